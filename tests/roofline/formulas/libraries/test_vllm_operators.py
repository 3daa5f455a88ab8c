"""vLLM's operators in Python: they count only where nothing below them does."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
from rooflines.profiler.trace.tree import tree
from rooflines.roofline.formulas import Work, count
from rooflines.roofline.resolvers.count import count as count_calls
from tests.roofline.formulas.libraries.calls import bf16, figures, fp8, fp32
from tests.traces import mm, op, trace

T, D = 7, 30


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
