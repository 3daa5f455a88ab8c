"""Operators of ATOM in AITER's namespace: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from rooflines.roofline.formulas.registry import words
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int64, reason, uint8

T, D = 7, 64
M, N, K = 5, 24, 64
X, W = bf16(T, D), bf16(D)
SIZE = 2 * T * D


def test_norms():
    assert figures("aiter::rmsnorm2d_fwd_", X, W, 1e-6, D) == (0, 4 * T * D, SIZE + 2 * D, SIZE, "bf16")
    assert figures("aiter::fused_rmsnorm_pad_", X, W, 1e-6, 0) == (0, 4 * T * D, SIZE + 2 * D, SIZE, "bf16")
    assert figures("aiter::layernorm2d_fwd_", X, W, W, 1e-6, D) == (0, 8 * T * D, SIZE + 4 * D, SIZE, "bf16")
    assert figures("aiter::rmsnorm2d_fwd_with_add_", X, W, X, 1e-6, D) == (0, 5 * T * D, 2 * SIZE + 2 * D, 2 * SIZE, "bf16")
    assert figures("aiter::layernorm2d_fwd_with_add_", X, W, X, W, 1e-6, D) == (0, 9 * T * D, 2 * SIZE + 4 * D, 2 * SIZE, "bf16")
    assert figures("aiter::fused_add_rmsnorm_pad_", X, W, 1e-6, X, 256) == (0, 5 * T * D, 2 * SIZE + 2 * D, 2 * SIZE, "bf16")
    assert counted("aiter::fused_add_rmsnorm_pad_", X, W, 1e-6, X, 256).decomposes
    two = figures("aiter::fused_dual_rmsnorm_cat", X, W, X, W, 1e-6)
    assert two == (0, 8 * T * D, 2 * SIZE + 4 * D, 2 * SIZE, "bf16")


def test_norms_of_two_tensors_of_which_one_becomes_fp4():
    second = (bf16(T, 20), bf16(20), 1e-6)
    args = (X, W, 1e-6, *second, X, True, True, False)
    read = 2 * SIZE + 2 * D + 2 * T * 20 + 2 * 20
    made = T * D // 2 + T * D // 32 + 2 * T * 20 + SIZE
    assert figures("aiter::_fuse_rmsnorm_fp4_quant", *args) == (0, 12 * T * D + 4 * T * 20, read, made, "bf16")
    assert figures("aiter::_fuse_rmsnorm_fp4_quant", *args[:-1], True)[3] == made + SIZE
    alone = (X, W, 1e-6, None, None, None, None, True, True, False)
    assert figures("aiter::_fuse_rmsnorm_fp4_quant", *alone)[1:4] == (11 * T * D, SIZE + 2 * D, T * D // 2 + T * D // 32)


@pytest.mark.parametrize(("kind", "made", "cost"), [(2, T * D + 4 * T, 11), (4, T * D + 4 * T * 2, 11), (0, SIZE, 4), (None, SIZE, 4)])
def test_norms_in_fp8(kind, made, cost):
    args = (X, W, 1e-6, None, None, None, None, 24, 32, kind, False, False)
    assert figures("aiter::_fused_rms_fp8_quant", *args)[1:4] == (cost * T * D, SIZE + 2 * D, made)


@pytest.mark.parametrize(
    ("kind", "width", "made"), [(2, D, T * D + 4 * T), (3, D, T * D // 2 + T * D // 32), (4, 256, T * 256 + 4 * T * 2)]
)
def test_a_norm_with_scales_of_a_kind(kind, width, made):
    x = bf16(T, width)
    added = figures("aiter::_aiter_rms_quant", x, bf16(width), 1e-6, kind, False, x)
    assert added == (0, 12 * T * width, 4 * T * width + 2 * width, made + 2 * T * width, "bf16")
    assert "unknown kind" in reason("aiter::_aiter_rms_quant", x, bf16(width), 1e-6, 1, False, None)


def test_a_gate_in_fp4():
    assert figures("aiter::mxfp4_act_mul_quant_fuse", bf16(T, 2 * D), False) == (
        0, 22 * T * D, 2 * SIZE, T * D // 2 + T * D // 32, "bf16",
    )  # fmt: skip


def test_products():
    flops, read = 2 * M * N * K, (M + N) * K + 4 * (M + N)
    scaled = (fp8(M, K), fp8(N, K), fp32(M, 1), fp32(N, 1))
    for name in ("gemm_a8w8_blockscale_preshuffle_impl", "gemm_a8w8_blockscale_triton_impl"):
        assert figures(f"aiter::{name}", *scaled, 15, None) == (flops, M * N, read, 2 * M * N, "fp8")
    for name in ("gemm_a8w8_per_token_impl", "gemm_a8w8_per_tensor_impl"):
        assert figures(f"aiter::{name}", *scaled, bf16(N), 15) == (flops, 2 * M * N, read + 2 * N, 2 * M * N, "fp8")
    into = figures("aiter::gemm_a8w8_blockscale_preshuffle_into_output", *scaled, bf16(M, N), 15, None)
    assert into == (flops, M * N, read, 2 * M * N, "fp8")
    batched = figures("aiter::_bmm_fp8_op", fp8(3, M, K), fp8(3, K, N), bf16(3, M, N), fp32(1), fp32(1))
    assert batched == (3 * flops, 3 * M * N, 3 * (M + N) * K + 8, 6 * M * N, "fp8")
    weight, scales = uint8(N, K // 2), uint8(N, 2)
    wide = figures("aiter::gemm_a4w4_quant", bf16(M, K), None, weight, 15, scales, 45, None, N)
    assert wide == (flops, 7 * M * K + M * N, 2 * M * K + N * K // 2 + 2 * N, 2 * M * N, "fp4")
    narrow = figures("aiter::gemm_a4w4_quant", uint8(M, K // 2), uint8(M, 2), weight, 15, scales, 45, None, N)
    assert narrow == (flops, M * N, (M + N) * (K // 2 + 2), 2 * M * N, "fp4")


def test_attention_of_a_step():
    q, k = bf16(T, 4, 10), bf16(T, 2, 10)
    args = (q, None, k, k, int64(T), None, False, bf16(T, 80))
    work = counted("aiter::unified_attention_with_output_base", *args).work
    assert work.matrix_flops == 4 * 4 * (T * (T + 1) // 2) * 10
    latent = (*args[:6], True, bf16(T, 80))
    assert count(Signature("aiter::unified_attention_with_output_base", latent)).kind == "composite"


@pytest.mark.parametrize(
    "name",
    words(
        "v4_attention_with_output linear_attention_with_output_base indexer_score_topk moe_forward atom_vllm_mha_attention"
        " atom_vllm_mla_attention dspark_block_attention indexer_with_output kda_attention_with_output maybe_dual_stream_forward"
        " minimax_m3_sparse_attention sparse_attn_indexer sparse_attn_indexer_plugin_mode sparse_attn_indexer_sglang_plugin_mode"
        " v4_core_attention"
    ),
)
def test_layers_only_call_others(name):
    outcome = count(Signature(f"aiter::{name}", (X, X, None)))
    assert (outcome.kind, outcome.work) == ("composite", None)
