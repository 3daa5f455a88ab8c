"""vLLM: closed forms at odd shapes, and calls as traces record them."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import MISSING, Signature, TensorArg, from_kineto
from rooflines.profiler.trace.tree import tree
from rooflines.roofline.formulas import Work, count
from rooflines.roofline.resolvers.count import count as count_calls
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int8, int32, int64, reason, uint8
from tests.traces import mm, op, trace

T, D = 7, 30  # tokens, width


@pytest.mark.parametrize(
    ("name", "args", "cost", "read", "written"),
    [
        # x * r * w and the mean square: 4 an element; an addition 1; a conversion 5; a range 2
        ("rms_norm", (bf16(T, D), bf16(T, D), bf16(D), 1e-5), 4, 2 * T * D + 2 * D, 2 * T * D),
        ("rms_norm_weightless", (bf16(T, D), bf16(T, D), 1e-5), 3, 2 * T * D, 2 * T * D),
        ("fused_add_rms_norm", (bf16(T, D), bf16(T, D), bf16(D), 1e-5), 5, 4 * T * D + 2 * D, 4 * T * D),
        ("rms_norm_static_fp8_quant", (fp8(T, D), bf16(T, D), bf16(D), fp32(1), 1e-5), 9, 2 * T * D + 2 * D + 4, T * D),
        ("fused_add_rms_norm_static_fp8_quant", (fp8(T, D), bf16(T, D), bf16(T, D), bf16(D), fp32(1), 1e-5),
         10, 4 * T * D + 2 * D + 4, T * D + 2 * T * D),
        ("rms_norm_dynamic_per_token_quant", (fp8(T, D), bf16(T, D), bf16(D), fp32(T, 1), 1e-5, None, bf16(T, D)),
         11, 4 * T * D + 2 * D, T * D + 4 * T + 2 * T * D),
        ("rms_norm_dynamic_per_token_quant", (fp8(T, D), bf16(T, D), bf16(D), fp32(T, 1), 1e-5, None, None),
         11, 2 * T * D + 2 * D, T * D + 4 * T),
    ],
)  # fmt: skip
def test_norms(name, args, cost, read, written):
    assert figures(f"_C::{name}", *args) == (0, cost * T * D, read, written, "bf16")
    assert counted(f"_C::{name}", *args).category == "normalization"


def test_numbers_of_4_bits_with_the_results_given_or_returned():
    given = figures("_C::scaled_fp4_quant", uint8(T, 16), bf16(T, 32), int32(128, 4), fp32(1))
    assert given == (0, 7 * T * 32, 2 * T * 32 + 4, T * 16 + 4 * 128 * 4, "bf16")
    returned = figures("_C::scaled_fp4_quant", bf16(T, 32), fp32(1), True)
    assert returned == (0, 7 * T * 32, 2 * T * 32 + 4, T * 16 + T * 2, "bf16"), "half a byte a number, a byte for each 16"


def test_a_tensor_that_was_not_recorded_is_not_guessed():
    assert reason("_C::rms_norm", bf16(T, D), bf16(T, D), MISSING, 1e-5) == "shape of 'weight' not recorded"
    assert reason("_C::silu_and_mul", bf16(T, D)) == "shape of 'input' not recorded"


# --- positions ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_C::rotary_embedding", "sgl_kernel::rotary_embedding"])
def test_rotary_embedding_rotates_in_place(name):
    # 3 heads of queries, 2 of keys, 10 numbers a head; a table of 4 rows: fewer than tokens
    query, key = bf16(T, 30), bf16(T, 20)
    touched = 2 * T * 50
    assert figures(name, int64(T), query, key, 10, bf16(4, 10), True) == (0, 3 * T * 50, touched + 8 * T + 2 * 4 * 10, touched, "bf16")
    assert figures(name, int64(T), query, None, 10, bf16(99, 10), True)[2] == 2 * T * 30 + 8 * T + 2 * T * 10


# --- the KV cache ------------------------------------------------------------------------------------------------------------------

RESHAPE = {
    # vLLM on a B200, gpt-oss, one KV head of 64, tensor parallel: TraceLens, tests/traces/b200
    "Input Dims": [[888, 1, 64], [888, 1, 64], [4213816, 16, 1, 64], [4213816, 16, 1, 64], [888], [], [], []],
    "Input type": ["c10::BFloat16", "c10::BFloat16", "unsigned char", "unsigned char", "long int", "", "float", "float"],
    "Input Strides": [[640, 64, 1], [64, 64, 1], [2048, 64, 1024, 1], [2048, 64, 1024, 1], [1], [], [], []],
    "Concrete Inputs": ["", "", "", "", "", "", "", ""],
}


def test_the_cache_is_written_at_its_own_dtype_only_where_tokens_go():
    work = count(from_kineto("_C_cache_ops::reshape_and_cache_flash", RESHAPE)).work
    numbers = 2 * 888 * 64
    assert work == Work(0, 5 * numbers, 2 * numbers + 8 * 888 + 8, numbers, "bf16")


def test_a_batch_that_is_padded_stores_its_tokens():
    cache = bf16(50, 16, 2, 8)
    args = (bf16(T, 2, 8), bf16(T, 2, 8), cache, cache, int64(5), None, fp32(), fp32())
    moved = 2 * 2 * 5 * 16
    assert figures("_C_cache_ops::reshape_and_cache_flash", *args) == (0, 0, moved + 8 * 5 + 8, moved, None)
    assert reason("_C_cache_ops::reshape_and_cache", bf16(4, 2, 8), bf16(4, 2, 8), cache, cache, int64(5)) == "more tokens than keys"


def test_compressed_keys_rotate_on_their_way_into_the_cache():
    args = (int64(T), bf16(T, 3, 6), bf16(T, 6), bf16(T, 24), bf16(99, 6), True, int64(T), bf16(50, 16, 30), None, fp32(1))
    rotated = T * 4 * 6
    assert figures("_C_cache_ops::concat_and_cache_mla_rope_fused", *args) == (
        0, 3 * rotated, 2 * rotated + 8 * T + 2 * T * 6 + 2 * T * 24 + 8 * T + 4, 2 * rotated + 2 * T * 30, "bf16",
    )  # fmt: skip


def test_blocks_are_moved_by_the_map():
    source = bf16(50, 16, 30)
    assert figures("_C_cache_ops::swap_blocks", source, source, int64(3, 2))[2:4] == (3 * 960 + 48, 3 * 960)
    assert figures("_C_cache_ops::swap_blocks", source, source, 1000, int64(3, 2))[2:4] == (3 * 1000 + 48, 3 * 1000)


def test_no_call_of_these_raises():
    for name in ("_C::rms_norm", "_C::rotary_embedding", "_C_cache_ops::swap_blocks", "_C_cache_ops::reshape_and_cache"):
        assert count(Signature(name, ())).kind == "unknown"


M, N, K = 5, 24, 48
FLOPS = 2 * M * N * K


@pytest.mark.parametrize("right", [fp8(K, N), fp8(N, K)])
def test_scaled_products_take_the_weight_both_ways_round(right):
    scales = (fp32(M, 1), fp32(1, N))
    read = M * K + N * K + 4 * (M + N)
    assert figures("_C::cutlass_scaled_mm", bf16(M, N), fp8(M, K), right, *scales, None) == (FLOPS, M * N, read, 2 * M * N, "fp8")
    biased = figures("_C::cutlass_scaled_mm", bf16(M, N), fp8(M, K), right, *scales, bf16(N))
    assert biased == (FLOPS, 2 * M * N, read + 2 * N, 2 * M * N, "fp8")


@pytest.mark.parametrize("name", ["_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm"])
@pytest.mark.parametrize("dtype", ["uint8", "float4_e2m1fn_x2"])
def test_two_numbers_of_4_bits_lie_in_an_element(name, dtype):
    left, right = TensorArg((M, K // 2), dtype), TensorArg((N, K // 2), dtype)
    args = (bf16(M, N), left, right, fp8(128, 4), fp8(128, 4), fp32(1))
    assert figures(name, *args) == (FLOPS, M * N, (M + N) * K // 2 + 2 * 512 + 4, 2 * M * N, "fp4")


@pytest.mark.parametrize("weight", [int32(K // 8, N), int32(N, K // 8), uint8(N, K // 2)])
def test_fp8_activations_with_a_packed_weight(weight):
    args = (fp8(M, K), weight, bf16(1, N), K, fp32(N, 1), fp32(M, 1), 15)
    assert figures("_C::cutlass_w4a8_mm", *args) == (FLOPS, M * N, M * K + N * K // 2 + 2 * N + 4 * (M + N), 2 * M * N, "fp8")


SQUARE = 2 * 3 * 64 * 64  # a weight [64, 64] of 4-bit numbers, [64, 32] of bytes


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("vllm::rocm_aiter_gemm_a8wfp4", (fp8(3, 64), uint8(64, 32), fp32(3, 1), fp32(64, 2), 15)),
        ("vllm::flashinfer_mm_bf16_fp4", (bf16(3, 64), uint8(64, 32), fp8(64, 4), fp32(1))),
        ("sgl_kernel::qserve_w4a8_per_chn_gemm",
         (int8(3, 64), int8(64, 32), bf16(64), bf16(3), bf16(64), bf16(3), bf16(3, 64))),
    ],
)  # fmt: skip
def test_a_square_weight_of_4_bits_is_not_one_of_bytes(name, args):
    work = counted(name, *args).work
    assert (work.matrix_flops, work.bytes_written) == (SQUARE, 2 * 3 * 64)


def test_a_weight_of_bytes_is_told_by_the_result_or_by_its_partner():
    """[64, 32] is read as [k, n] if the result is [.., 32], and of two operands of int8."""
    scales = (fp32(3, 1), fp32(1, 32))
    assert counted("_C::cutlass_scaled_mm", bf16(3, 32), int8(3, 64), int8(64, 32), *scales, None).work.matrix_flops == SQUARE // 2
    assert counted("sgl_kernel::int8_scaled_mm", int8(3, 64), int8(64, 32), *scales, 15, None).work.matrix_flops == SQUARE // 2


def test_operands_that_do_not_fit_are_not_counted():
    args = (fp8(M, K), int32(K // 8, 25), bf16(1, 25), K, fp32(25, 1), fp32(M, 1), 15)
    assert counted("_C::cutlass_w4a8_mm", *args).work.matrix_flops == 2 * M * K * 25
    assert "differ" in reason("_C::cutlass_w4a8_mm", fp8(M, K), int32(7, 25), *args[2:])
    no_dtype = reason("_C::cutlass_w4a8_mm", *args[:-1], None)
    assert no_dtype == "dtype of the result not recorded"


# --- weights of 4 bits are widened: the arithmetic is that of the activations, unpacking costs 2 a weight ----------------------------


@pytest.mark.parametrize(
    "args",
    [
        # vLLM 0.9, vLLM 0.13 with a bias and scales of activations, vLLM 0.4 with the weight second
        (bf16(M, K), None, int32(K // 16, 2 * N), bf16(2, N), None, None, None, None, int32(99), 1125, M, N, K, True, False, True),
        (bf16(M, K), None, int32(K // 16, 2 * N), None, bf16(2, N), None, None, None, None, None, int32(99), 1125, M, N, K, True, False,
         True, False),
        (bf16(M, K), int32(K // 16, 2 * N), bf16(2, N), int32(99), 4, M, N, K, True),
    ],
)  # fmt: skip
def test_marlin_has_its_sizes_as_numbers(args):
    assert figures("_C::gptq_marlin_gemm", *args) == (FLOPS, 2 * N * K, 2 * M * K + N * K // 2 + 4 * N, 2 * M * N, "bf16")


def test_marlin_of_8_bit_activations_writes_the_dtype_of_the_scales():
    args = (fp8(3, 64), None, int32(4, 80), None, bf16(1, 40), fp32(3, 1), None, None, None, None, int32(99), 1125, 3, 40, 64, True)
    read = 3 * 64 + 4 * 4 * 80 + 2 * 40 + 4 * 3
    assert figures("_C::marlin_gemm", *args) == (2 * 3 * 40 * 64, 2 * 40 * 64, read, 2 * 3 * 40, "fp8")
    given = (args[0], bf16(3, 40), *args[2:])
    assert figures("_C::marlin_gemm", *given) == figures("_C::marlin_gemm", *args)
    unscaled = (*args[:4], None, *args[5:])
    assert reason("_C::marlin_gemm", *unscaled) == "dtype of the result not recorded"


def test_marlin_of_an_unknown_version_is_not_counted():
    assert reason("_C::marlin_gemm", bf16(M, K), int32(3, 4), int32(9), M, N, K + 1, True) == "arguments of another version"
    assert reason("_C::marlin_gemm", bf16(M, K), True) == "sizes of the product not recorded"


def test_an_all_reduce_with_a_norm():
    args = (bf16(T, D), bf16(T, D), bf16(D), 1e-6, 4, True, True, 99, 1, None, None, None, None)
    assert figures("vllm::flashinfer_trtllm_fused_allreduce_norm", *args) == (0, 5 * T * D, 4 * T * D + 2 * D, 4 * T * D, "bf16")
    narrow = (*args[:9], None, fp8(T, D), None, fp32(1))
    assert figures("vllm::flashinfer_trtllm_fused_allreduce_norm", *narrow)[1:4:2] == (10 * T * D, 3 * T * D)


def test_an_all_reduce_with_a_norm_before_0_12():
    args = (bf16(T, D), bf16(T, D), bf16(D), 1e-6, 0, 4, True, True, True, 99, 1, True, bf16(T, D), None, None, None)
    assert figures("vllm::flashinfer_trtllm_fused_allreduce_norm", *args) == (0, 5 * T * D, 4 * T * D + 2 * D, 4 * T * D, "bf16")


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


T, WIDTH, RANK, SLICES = 7, 48, 5, 3
LISTS = (int64(T), int64(T), int32(9), int32(10), int32(9), int32(1))
ONE = "every token has an adapter, all the same"


@pytest.mark.parametrize("active", [(), (int32(1),), (4,)])
def test_the_product_back(active):
    args = (fp32(SLICES, T, RANK), None, bf16(T, WIDTH), *LISTS, *active)
    work = counted("vllm::lora_expand", *args, 0, True).work
    assert (work.matrix_flops, work.other_flops) == (2 * T * RANK * WIDTH, T * WIDTH)
    assert work.bytes_read == 4 * SLICES * T * RANK + 2 * RANK * WIDTH + 2 * T * WIDTH
    assert (work.bytes_written, work.assumption) == (2 * T * WIDTH, ONE)
    assert counted("vllm::lora_expand", *args, 0, False).work.bytes_read == 4 * SLICES * T * RANK + 2 * RANK * WIDTH
    assert "another version" in reason("vllm::lora_expand", *args, 16, True)
