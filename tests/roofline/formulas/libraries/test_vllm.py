"""vLLM: calls as traces record them, versions, and wrappers of operators."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import MISSING, Signature, TensorArg, from_kineto
from rooflines.profiler.tree.tree import tree
from rooflines.roofline.count.count import count as count_calls
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, figures, fp8, fp32, int64, reason
from tests.traces import mm, op, trace

T, D = 7, 30  # tokens, width


def test_a_tensor_that_was_not_recorded_is_not_guessed():
    assert reason("_C::rms_norm", bf16(T, D), bf16(T, D), MISSING, 1e-5) == "shape of 'weight' not recorded"
    assert reason("_C::silu_and_mul", bf16(T, D)) == "shape of 'input' not recorded"


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


def test_routing_of_triton_kernels():
    """vLLM's capture on an MI300X, gpt-oss with 32 experts, 4 for a token: TraceLens, tests/traces/inference/vllm_decode_full."""
    top = {
        "Input Dims": [[32, 32], [], [], [], [], [], []], "Input type": ["c10::BFloat16", *["Scalar"] * 4, "", ""],
        "Concrete Inputs": ["", "4", "True", "1", "True", "", ""],
    }  # fmt: skip
    work = count(from_kineto("TopK", top)).work
    assert (work.other_flops, work.bytes_read, work.bytes_written) == (32 * 32 + 14 * 32 * 4, 2 * 32 * 32, 32 * (4 * 4 + 4))
    assert figures("SortTokens", bf16(32, 4), TensorArg((32, 4), "int16"), 32) == (0, 0, 4 * 128, 128 * 10 + 4 * 32, None)
    assert reason("TopK", bf16(3, 4, 5), 2, True, 1) == "arguments of another version of this operator"
