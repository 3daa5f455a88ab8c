"""Collectives of servers, alone and fused with a norm: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, int64, reason, uint8

T, D = 7, 30
SIZE = 2 * T * D
EMPTY = fp32(1)  # what AITER gives an operator whose first argument is no tensor


@pytest.mark.parametrize(
    ("name", "args", "read", "written"),
    [
        ("aiter::all_reduce_", (bf16(T, D), None, True, False), SIZE, SIZE),
        ("aiter::tbo_all_reduce", (bf16(T, D),), SIZE, SIZE),
        ("vllm::all_reduce_symmetric_with_copy", (bf16(T, D),), SIZE, SIZE),
        ("sglang::flashinfer_allreduce", (bf16(T, D), None), SIZE, SIZE),
        ("sglang::diffusion_all_reduce", (bf16(T, D), None), SIZE, SIZE),
        ("trtllm::userbuffers_allreduce_finalize", (bf16(T, D), False), SIZE, SIZE),
        ("sglang::reg_all_gather_into_tensor", (bf16(8 * T, D), bf16(T, D), None), SIZE, 8 * SIZE),
        ("sglang::reg_reduce_scatter_tensor", (bf16(T, D), bf16(8 * T, D), None), 8 * SIZE, SIZE),
        ("sglang::reg_all_to_all_single", (bf16(T, D), bf16(T, D), None), SIZE, SIZE),
        ("trtllm::allgather", (bf16(T, D), None, (0, 1, 2)), SIZE, 3 * SIZE),
        ("trtllm::allgather", (bf16(T, D), (T, 4, 6), (0, 1, 2)), SIZE, 2 * (T + 4 + 6) * D),
        ("trtllm::reducescatter", (bf16(9, D), None, (0, 1, 2)), 2 * 9 * D, 2 * 3 * D),
        ("_C_custom_ar::mnnvl_lamport_all_gather", (94, bf16(T, D), bf16(8 * T, D), 1, 2, 3, 4), SIZE, 8 * SIZE),
        ("_C_custom_ar::mnnvl_lamport_reduce_scatter", (94, bf16(8 * T, D), bf16(T, D), 1, 2, 3), 8 * SIZE, SIZE),
        ("_C_custom_ar::mnnvl_multimem_reduce_scatter", (94, bf16(8 * T, D), bf16(T, D), 1, 2, 3, 4), 8 * SIZE, SIZE),
    ],
)  # fmt: skip
def test_collectives_have_no_arithmetic(name, args, read, written):
    outcome = counted(name, *args)
    assert outcome.category == "communication"
    assert (outcome.work.flops, outcome.work.bytes_read, outcome.work.bytes_written) == (0, read, written)


@pytest.mark.parametrize(
    ("name", "rest", "grown"),
    [
        ("all_reduce", (True, False, 0, 0), 1), ("all_reduce_gfx1250", (True, False, 0, 0), 1), ("all_reduce_reg", (False,), 1),
        ("all_gather_reg", (0,), 8), ("all_gather_gfx1250", (0, 1, 2), 8), ("qr_all_reduce", (3, False), 1),
        ("reduce_scatter", (1, 2, 3, 0, 0, 0), 1), ("reduce_scatter_gfx1250", (1, 2, 3, 0, 0, 0), 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [(), (EMPTY,)])
@pytest.mark.parametrize("prefix", ["", "wrapper_"])
def test_aiters_handle_may_follow_an_empty_tensor(name, rest, grown, first, prefix):
    made = figures(f"aiter::{prefix}{name}", *first, 94, bf16(T, D), bf16(grown * T, D), *rest)
    assert made == (0, 0, SIZE, grown * SIZE, None)


@pytest.mark.parametrize("name", ["aiter::all_reduce_unreg", "aiter::all_gather_unreg"])
def test_the_buffer_of_aiters_collectives_is_only_a_way(name):
    assert figures(name, EMPTY, 94, bf16(T, D), uint8(1 << 20), bf16(T, D))[2:4] == (SIZE, SIZE)
    assert figures(name, EMPTY, 94, bf16(T, D), 99, bf16(T, D), 1 << 20)[2:4] == (SIZE, SIZE)


@pytest.mark.parametrize("name", ["fused_allreduce_rmsnorm", "fused_allreduce_rmsnorm_pad", "qr_all_reduce_rmsnorm"])
def test_an_all_reduce_with_a_norm_of_aiter(name):
    """As recorded by SGLang on an MI355X: an empty tensor, the handle, input, residual, their sum, the norm, the weight."""
    args = (EMPTY, 94, bf16(T, D), bf16(T, D), bf16(T, D), bf16(T, D), bf16(D), 1e-6, 0, 0, True)
    assert figures(f"aiter::{name}", *args) == (0, 5 * T * D, 2 * SIZE + 2 * D, 2 * SIZE, "bf16")


@pytest.mark.parametrize("name", ["quant", "quant_per_group", "mxfp4_quant"])
def test_an_all_reduce_with_a_narrow_norm_of_aiter(name):
    args = (EMPTY, 94, bf16(T, D), bf16(T, D), bf16(T, D), fp8(T, D), fp32(T, 1), bf16(D), 1e-6, 0, 0, True)
    made = SIZE + T * D + 4 * T
    assert figures(f"aiter::fused_allreduce_rmsnorm_{name}", *args) == (0, 12 * T * D, 2 * SIZE + 2 * D, made, "bf16")


@pytest.mark.parametrize(
    ("name", "rest", "cost", "norm"),
    [
        ("aiter::fused_allreduce_rmsnorm_", (None, False, 0), 5, SIZE),
        ("sglang::flashinfer_allreduce_residual_rmsnorm", (2048, None, False, True, True), 5, SIZE),
        ("vllm::rocm_aiter_fused_allreduce_rmsnorm", (False,), 5, SIZE),
        ("aiter::fused_allreduce_rmsnorm_quant_", (None, False), 12, T * D + 4 * T),
        ("aiter::fused_allreduce_rmsnorm_quant_emit_bf16_", (None, False), 12, T * D + 4 * T + SIZE),
        ("aiter::fused_allreduce_rmsnorm_quant_per_group_", (None, 15, False), 12, T * D + 4 * 2 * T),
        ("aiter::fused_allreduce_rmsnorm_quant_per_group_emit_bf16_", (None, 15, False), 12, T * D + 4 * 2 * T + SIZE),
        ("vllm::rocm_aiter_fused_allreduce_rmsnorm_quant_per_group", (15,), 12, T * D + 4 * 2 * T),
        ("vllm::rocm_aiter_fused_allreduce_rmsnorm_quant_per_group_with_bf16_norm", (15,), 12, T * D + 4 * 2 * T + SIZE),
    ],
)
def test_operators_that_return_the_norm_and_the_sum(name, rest, cost, norm):
    outcome = counted(name, bf16(T, D), bf16(T, D), bf16(D), 1e-6, *rest)
    assert outcome.decomposes
    work = outcome.work
    assert (work.other_flops, work.bytes_read, work.bytes_written) == (cost * T * D, 2 * SIZE + 2 * D, norm + SIZE)


@pytest.mark.parametrize(
    ("fusion", "cost", "wide", "narrow"),
    [
        (1, 4 + 1, 2, 0), (3, 4 + 4 + 1, 2, 0), (4, 4 + 1 + 5, 1, 7 * 32), (6, 4 + 1 + 5, 2, 7 * 32),
        (5, 4 + 1 + 7, 1, 7 * 16 + 7 * 2), (7, 4 + 1 + 7, 2, 7 * 16 + 7 * 2),
    ],
)  # fmt: skip
def test_what_follows_an_all_reduce_of_tensorrt_llm(fusion, cost, wide, narrow):
    args = (bf16(7, 32), bf16(7, 32), bf16(32), fp32(1), None, None, (0, 1), 3, fusion, 1e-6, True)
    read = 2 * 2 * 7 * 32 + 2 * 32 + 4
    assert figures("trtllm::allreduce", *args)[1:4] == (cost * 7 * 32, read, wide * 2 * 7 * 32 + narrow)


def test_an_all_reduce_of_tensorrt_llm_alone():
    alone = (bf16(T, D), None, None, None, None, None, (0, 1), 3, 0, 1e-6, True)
    assert figures("trtllm::allreduce", *alone) == (0, 0, SIZE, SIZE, None)
    assert figures("trtllm::autotuned_allreduce", *alone) == (0, 0, SIZE, SIZE, None)
    assert figures("trtllm::tunable_allreduce", *alone) == (0, 0, SIZE, SIZE, None)
    assert figures("trtllm::mnnvl_fusion_allreduce", bf16(T, D), None, None, None, fp32(99), int32(9), False)[1:4] == (0, SIZE, SIZE)
    assert reason("trtllm::allreduce", *alone[:8], 2, 1e-6, True) == "unknown fusion 2"


def test_an_all_reduce_of_tensorrt_llm_with_a_norm():
    tensors = (bf16(T, D), bf16(T, D), bf16(D), None, None, None, (0, 1))
    expected = (0, 5 * T * D, 2 * SIZE + 2 * D, 2 * SIZE, "bf16")
    assert figures("trtllm::allreduce_pg", *tensors, 0, None, 3, 1, 1e-6, True) == expected
    assert figures("trtllm::allreduce_pg_by_name", *tensors, 0, "tp", 3, 1, 1e-6, True) == expected
    fused = (bf16(T, D), bf16(D), bf16(T, D), 1e-6, fp32(99), int32(9), True)
    assert figures("trtllm::mnnvl_fusion_allreduce", *fused) == expected
    rows = (bf16(99, D), bf16(T, D), bf16(D), int32(T, 3), bf16(T, D), bf16(T, 3), fp32(9), 0, 2, 1e-6)
    finalized = figures("trtllm::moe_finalize_allreduce", *rows)
    assert finalized == (0, (2 * 3 + 6) * T * D, 3 * SIZE + 2 * SIZE + 2 * D + 6 * T * 3, 2 * SIZE, "bf16")
    narrow = figures("trtllm::mnnvl_fusion_allreduce", *fused, fp32(1), 4)
    assert narrow == (0, (5 + 5) * T * D, 2 * SIZE + 2 * D + 4, SIZE + T * D, "bf16")


def test_norms_of_heads_over_ranks():
    q, k, v = bf16(T, 20), bf16(T, 10), bf16(T, 10)
    plain = (EMPTY, 94, bf16(T, 40), bf16(20), bf16(10), q, k, v)
    read = 2 * T * 40 + 2 * 30
    assert figures("aiter::fused_qknorm_allreduce", *plain, 1e-6, 0, 0) == (0, 4 * T * 30, read, 2 * T * 40, "bf16")
    placed = figures("aiter::fused_qknorm_allreduce_rope", *plain, bf16(99, 4), int64(T), 10, 4, 1e-6, 0, 0)
    assert placed == (0, 4 * T * 30 + 3 * T * 3 * 4, read + 8 * T + 2 * T * 4, 2 * T * 40, "bf16")
