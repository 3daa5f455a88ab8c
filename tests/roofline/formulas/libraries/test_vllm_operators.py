"""vLLM's operators in Python: they count only where nothing below them does."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.profiler.trace.tree import tree
from rooflines.roofline.formulas import Work, count
from rooflines.roofline.resolvers.count import count as count_calls
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int64, uint8
from tests.traces import mm, op, trace

T, D = 7, 30
M, N, K = 5, 24, 48


def test_norms_of_aiter():
    assert figures("vllm::rocm_aiter_rms_norm", bf16(T, D), bf16(D), 1e-5) == (0, 4 * T * D, 2 * T * D + 2 * D, 2 * T * D, "bf16")
    added = figures("vllm::rocm_aiter_rmsnorm2d_fwd_with_add", bf16(T, D), bf16(T, D), bf16(D), 1e-5)
    assert added == (0, 5 * T * D, 4 * T * D + 2 * D, 4 * T * D, "bf16")


def test_products():
    flops = 2 * M * N * K
    assert figures("vllm::rocm_unquantized_gemm", bf16(M, K), bf16(N, K), bf16(N)) == (
        flops, M * N, 2 * (M + N) * K + 2 * N, 2 * M * N, "bf16",
    )  # fmt: skip
    scaled = (fp8(M, K), fp8(N, K), fp32(M, 1), fp32(1, 1))
    read = (M + N) * K + 4 * M + 4
    for name in ("w8a8_triton_block_scaled_mm_func", "w8a8_block_fp8_matmul_deepgemm"):
        assert figures(f"vllm::{name}", *scaled, (128, 128), 15) == (flops, M * N, read, 2 * M * N, "fp8")
    assert figures("vllm::rocm_aiter_gemm_a8w8_blockscale", *scaled, 15) == (flops, M * N, read, 2 * M * N, "fp8")
    assert figures("vllm::rocm_per_tensor_float_w8a8_scaled_mm_impl", fp8(M, K), fp8(K, N), 15, fp32(1), fp32(1), None) == (
        flops, M * N, (M + N) * K + 8, 2 * M * N, "fp8",
    )  # fmt: skip
    narrow = (uint8(M, K // 2), uint8(K // 2, N), fp8(128, 4), fp8(4, 128), fp32(), 15, False, None)
    assert figures("vllm::flashinfer_mm_fp4", *narrow) == (flops, M * N, (M + N) * K // 2 + 1024 + 4, 2 * M * N, "fp4")


def test_products_of_other_orders_of_arguments():
    flops = 2 * M * N * K
    deep = (fp8(M, K), fp32(M, 1), fp8(N, K), fp32(1, 1), bf16(M, N), False)
    assert figures("vllm::fp8_gemm_nt_op", *deep) == (flops, M * N, (M + N) * K + 4 * M + 4, 2 * M * N, "fp8")
    integers = (TensorArg((M, K), "int8"), TensorArg((K, N), "int8"), fp32(M, 1), fp32(N), 15, bf16(N))
    assert figures("vllm::int8_scaled_mm_func", *integers) == (flops, 2 * M * N, (M + N) * (K + 4) + 2 * N, 2 * M * N, "int8")
    wide = (bf16(M, K), uint8(N, K // 2), fp8(N, 3), fp32(1))
    assert figures("vllm::flashinfer_mm_bf16_fp4", *wide) == (flops, M * N, 2 * M * K + N * K // 2 + 3 * N + 4, 2 * M * N, "bf16")


@pytest.mark.parametrize(
    ("name", "args", "cost", "read", "written"),
    [
        ("rmsnorm_fp8_group_quant", (bf16(T, D), bf16(D), 1e-5, 15), 11, 2 * T * D + 2 * D, T * D + 8 * T),
        ("rmsnorm_with_add_fp8_group_quant", (bf16(T, D), bf16(T, D), bf16(D), 1e-5, 15), 12, 4 * T * D + 2 * D, 3 * T * D + 8 * T),
        ("rmsnorm_fused_dynamic_quant", (bf16(T, D), bf16(D), 1e-5, 24), 11, 2 * T * D + 2 * D, T * D + 4 * T),
        ("rmsnorm_fused_add_dynamic_quant", (bf16(T, D), bf16(T, D), bf16(D), 1e-5, 24), 12, 4 * T * D + 2 * D, 3 * T * D + 4 * T),
        ("fused_rms_fp8_per_tensor_static_quant", (bf16(T, D), bf16(D), 1e-5, fp32(1), 24), 9, 2 * T * D + 2 * D + 4, T * D),
        ("act_mul_and_fp8_group_quant", (bf16(T, 2 * D), 15), 22, 4 * T * D, T * D + 8 * T),
        ("group_fp8_quant", (bf16(T, D), 15, False), 7, 2 * T * D, T * D + 8 * T),
    ],
)
def test_results_of_8_bits(name, args, cost, read, written):
    assert figures(f"vllm::rocm_aiter_{name}", *args) == (0, cost * T * D, read, written, "bf16")


def test_conversions_and_positions():
    assert figures("vllm::rocm_aiter_per_token_quant", bf16(T, D), 24, None) == (0, 7 * T * D, 2 * T * D, T * D + 4 * T, "bf16")
    given = figures("vllm::rocm_aiter_per_tensor_quant", fp8(T, D), bf16(T, D), fp32(1), False)
    assert given == (0, 5 * T * D, 2 * T * D + 4, T * D, "bf16")
    assert figures("vllm::rocm_aiter_per_tensor_quant", bf16(T, D), 24, fp32(1)) == (0, 5 * T * D, 2 * T * D + 4, T * D, "bf16")
    assert figures("vllm::flashinfer_nvfp4_quantize", bf16(T, 32), fp32(1))[3] == T * 16 + T * 2
    rotated = figures("vllm::flashinfer_rotary_embedding", int64(T), bf16(T, 30), bf16(T, 20), 10, bf16(99, 10), True)
    assert rotated[1] == 3 * T * 50


def test_a_cache_that_is_found_by_name_is_assumed_to_have_the_dtype_of_the_keys():
    outcome = counted("vllm::unified_kv_cache_update", bf16(T, 8, 64), bf16(T, 8, 64), None)
    assert outcome.decomposes
    assert outcome.work == Work(0, 0, 2 * 2 * T * 512, 2 * 2 * T * 512, None, "the cache has the dtype of the keys")


@pytest.mark.parametrize(
    ("name", "args", "read", "written"),
    [
        ("vllm::all_reduce", (bf16(T, D), None), 1, 1),
        ("vllm::all_gather", (bf16(T, D), -1, 8, None), 1, 8),
        ("vllm::reduce_scatter", (bf16(T, 40), 0, 4, None), 4, 1),
        ("_C_custom_ar::all_reduce", (94, bf16(T, D), bf16(T, D), 0, 0), 1, 1),
        ("sgl_kernel::all_reduce_unreg", (94, bf16(T, D), uint8(1 << 20), bf16(T, D)), 1, 1),
    ],
)
def test_collectives_have_no_arithmetic(name, args, read, written):
    outcome = counted(name, *args)
    size = 2 * args[0 if isinstance(args[0], TensorArg) else 1].numel
    assert outcome.category == "communication"
    assert (outcome.work.flops, outcome.work.bytes_read, outcome.work.bytes_written) == (0, size, size * written // read)


def test_an_all_reduce_with_a_norm():
    args = (bf16(T, D), bf16(T, D), bf16(D), 1e-6, 4, True, True, 99, 1, None, None, None, None)
    assert figures("vllm::flashinfer_trtllm_fused_allreduce_norm", *args) == (0, 5 * T * D, 4 * T * D + 2 * D, 4 * T * D, "bf16")
    narrow = (*args[:9], None, fp8(T, D), None, fp32(1))
    assert figures("vllm::flashinfer_trtllm_fused_allreduce_norm", *narrow)[1:4:2] == (10 * T * D, 3 * T * D)


def test_an_all_reduce_with_a_norm_before_0_12():
    args = (bf16(T, D), bf16(T, D), bf16(D), 1e-6, 0, 4, True, True, True, 99, 1, True, bf16(T, D), None, None, None)
    assert figures("vllm::flashinfer_trtllm_fused_allreduce_norm", *args) == (0, 5 * T * D, 4 * T * D + 2 * D, 4 * T * D, "bf16")


@pytest.mark.parametrize("name", ["vllm::mamba_mixer2", "vllm::gdn_attention_core"])
def test_layers_that_are_found_by_name_only_call_others(name):
    outcome = count(Signature(name, (bf16(T, D), bf16(T, D), None)))
    assert (outcome.kind, outcome.work) == ("composite", None)
    assert outcome.reason


def counted_names(*events):
    found = trace(*events)
    counts = count_calls(tree(found))
    own = counts.where(lambda variant: variant.count.kind == "counted" and variant.count.work != Work())
    return [found.names[code] for code in found.host.name[own]]


def wrapper(start, duration):
    types = ["c10::BFloat16", "c10::BFloat16", ""]
    return op("vllm::rocm_unquantized_gemm", start, duration, dims=[[5, 48], [24, 48], []], types=types, concrete=["", "", ""])


def test_a_wrapper_counts_only_where_no_operator_below_it_does():
    assert counted_names(wrapper(0, 50)) == ["vllm::rocm_unquantized_gemm"]
    assert counted_names(wrapper(0, 50), mm(10, 20, 5, 48, 24)) == ["aten::mm"]


def test_a_copy_below_a_wrapper_of_a_product_is_not_its_work():
    copy = op("aten::copy_", 5, 5, dims=[[5, 48], [5, 48], []], types=["c10::BFloat16"] * 2 + ["Scalar"], concrete=["", "", "False"])
    assert counted_names(wrapper(0, 50), copy) == ["vllm::rocm_unquantized_gemm", "aten::copy_"], "the outermost owns both"
    assert counted_names(wrapper(0, 50), copy, mm(10, 20, 5, 48, 24)) == ["aten::copy_", "aten::mm"]
