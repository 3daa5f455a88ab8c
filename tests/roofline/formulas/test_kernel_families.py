"""Kernels that libraries launch themselves, from the calls around the launch: FLOPs and bytes at odd sizes."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import SCALAR_TYPES, Signature, TensorArg
from rooflines.roofline.count.formulas.kernels import Launch, count_launch

NUMBERS = {name: number for number, name in SCALAR_TYPES.items()}
TOKENS, TOP_K, EXPERTS, HIDDEN, INNER = 5, 3, 11, 64, 40
ROWS = TOKENS * TOP_K
MXFP4 = 17 / 32  # bytes of a weight with its share of the scale of 32
MXFP8 = 33 / 32


def empty(*shape, dtype="bfloat16"):
    return Signature("aten::empty", (shape, NUMBERS[dtype], None, None, False, None))


def view(*shape, dtype="bfloat16"):
    return Signature("aten::view", (TensorArg(shape, dtype), shape))


def counted(kernel, *before, **more):
    label, found = count_launch(Launch(kernel, before, **more), "label")
    assert label.name == "label"
    return found


WRAPPER = Signature("vllm::moe_forward", (TensorArg((TOKENS, HIDDEN), "bfloat16"), TensorArg((TOKENS, EXPERTS), "bfloat16")))


def test_a_grouped_product_with_a_gate():
    found = counted(
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        empty(1, ROWS, INNER), view(TOKENS, HIDDEN), view(EXPERTS, HIDDEN // 2, 2 * INNER, dtype="uint8"),
    )  # fmt: skip
    assert (found.category, found.work.precision) == ("moe", "bf16")
    assert found.work.matrix_flops == 2 * ROWS * HIDDEN * 2 * INNER
    assert found.work.bytes_read == TOKENS * HIDDEN * 2 + EXPERTS * HIDDEN * 2 * INNER * MXFP4  # 15 rows reach all 11 experts
    assert found.work.bytes_written == ROWS * INNER * 2
    assert "experts" in found.work.assumption


def test_fewer_rows_than_experts_read_the_weights_of_as_many():
    found = counted(
        "_p_matmul_ogs_NTT_bf16xbf16xbf16_16x128x256x2",
        empty(2, 1, 4, HIDDEN), view(4, INNER), view(EXPERTS, INNER, HIDDEN),
    )  # fmt: skip
    assert found.work.matrix_flops == 2 * 4 * INNER * HIDDEN
    assert found.work.bytes_read == 4 * INNER * 2 + 4 * INNER * HIDDEN * 2
    assert found.work.bytes_written == 2 * 4 * HIDDEN * 2  # two parts of k


def test_the_rows_of_a_token_are_added():
    found = counted("_finalize_matmul_scatter_bf16", empty(1, 1, ROWS, HIDDEN), wrapper=WRAPPER)
    assert found.work.other_flops == (ROWS - TOKENS) * HIDDEN
    assert (found.work.bytes_read, found.work.bytes_written) == (ROWS * HIDDEN * 2, TOKENS * HIDDEN * 2)


def test_kernels_of_the_routing_move_at_most_the_tensors_around_them():
    inside = (empty(TOKENS, TOP_K), empty(TOKENS, TOP_K, dtype="int16"))
    top_k = Signature("TopK", (TensorArg((TOKENS, EXPERTS), "bfloat16"), TOP_K))
    found = counted("_topk_forward", *inside, operator=top_k, inside=inside)
    assert (found.work.bytes_read, found.work.bytes_written) == (TOKENS * EXPERTS * 2, ROWS * 4)
    assert found.work.assumption


PADDED = 16 * EXPERTS
BMM = (
    empty(TOKENS, TOP_K, dtype="int32"), empty(TOKENS, TOP_K), empty(PADDED, INNER, dtype="uint8"), empty(900, dtype="uint8"),
    empty(PADDED, HIDDEN),
)  # fmt: skip


def test_the_first_grouped_product_of_tensorrt_llm_gates():
    name = "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_rM_TN_transOut_swiGlu_dynBatch_sm100f"
    found = counted(name, *BMM, wrapper=WRAPPER, grid=(1, EXPERTS, 1))
    assert found.work.matrix_flops == 2 * ROWS * HIDDEN * 2 * INNER
    assert found.work.bytes_read == TOKENS * HIDDEN * MXFP8 + EXPERTS * HIDDEN * 2 * INNER * MXFP4
    assert (found.work.bytes_written, found.work.precision) == (round(ROWS * INNER * MXFP8), "fp8")


def test_the_second_grouped_product_of_tensorrt_llm():
    name = "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_rM_TN_transOut_dynBatch_sm100f"
    found = counted(name, *BMM, wrapper=WRAPPER)
    assert found.work.matrix_flops == 2 * ROWS * INNER * HIDDEN
    assert found.work.bytes_read == round(ROWS * INNER * MXFP8 + EXPERTS * INNER * HIDDEN * MXFP4)
    assert found.work.bytes_written == ROWS * HIDDEN * 2


def test_padding_is_not_read_by_the_last_sum():
    found = counted("void moe::dev::finalize::finalizeKernelVecLoad<x>(x)", *BMM, wrapper=WRAPPER)
    assert found.work.other_flops == 2 * ROWS * HIDDEN
    assert (found.work.bytes_read, found.work.bytes_written) == (ROWS * HIDDEN * 2 + 2 * ROWS * 4, TOKENS * HIDDEN * 2)


@pytest.mark.parametrize(
    ("kernel", "before"),
    [
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", (view(TOKENS, HIDDEN),)),  # no weight
        ("_matmul_ogs_NNT_bf16xbf16xint3_16x128x256x1", (view(TOKENS, HIDDEN),)),  # a dtype of the future
        ("bmm_Bfloat16_E4m3_Fp32_t128x16x256", ()),
        ("_topk_forward", ()),
        ("moe::dev::permute::kernel", ()),
    ],
)
def test_without_the_tensors_a_kernel_is_unknown_with_a_reason(kernel, before):
    found = counted(kernel, *before)
    assert found.kind == "unknown"
    assert found.reason


@pytest.mark.parametrize(
    ("kernel", "before", "wrapper"),
    [
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x0", (empty(0), view(4, 64), view(0, 32, 0, dtype="uint8")), None),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256", BMM, Signature("moe", (TensorArg(()), TensorArg(())))),
        ("_matmul_ogs_NNT_" + "x" * 4000, (), None),
    ],
)
def test_calls_that_cannot_be_are_unknown(kernel, before, wrapper):
    assert counted(kernel, *before, wrapper=wrapper).kind == "unknown"


def test_a_grid_that_cannot_cover_the_result_contradicts_the_allocations():
    name = "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t32x16x256u2_dynBatch"
    assert "grid" in counted(name, *BMM, wrapper=WRAPPER, grid=(1, EXPERTS, 1)).reason


def test_other_kernels_have_no_family():
    assert count_launch(Launch("void at::native::elementwise_kernel<4>()", ()), "label") is None
