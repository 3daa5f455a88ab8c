"""Operators of ATOM in AITER's namespace: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from rooflines.roofline.formulas.registry import words
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, int64, reason

T, D = 7, 64
X, W = bf16(T, D), bf16(D)
SIZE = 2 * T * D


def test_norms_of_two_tensors_of_which_one_becomes_fp4():
    second = (bf16(T, 20), bf16(20), 1e-6)
    args = (X, W, 1e-6, *second, X, True, True, False)
    read = 2 * SIZE + 2 * D + 2 * T * 20 + 2 * 20
    made = T * D // 2 + T * D // 32 + 2 * T * 20 + SIZE
    assert figures("aiter::_fuse_rmsnorm_fp4_quant", *args) == (0, 12 * T * D + 4 * T * 20, read, made, "bf16")
    assert figures("aiter::_fuse_rmsnorm_fp4_quant", *args[:-1], True)[3] == made + SIZE
    alone = (X, W, 1e-6, None, None, None, None, True, True, False)
    assert figures("aiter::_fuse_rmsnorm_fp4_quant", *alone)[1:4] == (11 * T * D, SIZE + 2 * D, T * D // 2 + T * D // 32)


@pytest.mark.parametrize(
    ("kind", "width", "made"), [(2, D, T * D + 4 * T), (3, D, T * D // 2 + T * D // 32), (4, 256, T * 256 + 4 * T * 2)]
)
def test_a_norm_with_scales_of_a_kind(kind, width, made):
    x = bf16(T, width)
    added = figures("aiter::_aiter_rms_quant", x, bf16(width), 1e-6, kind, False, x)
    assert added == (0, 12 * T * width, 4 * T * width + 2 * width, made + 2 * T * width, "bf16")
    assert "another version" in reason("aiter::_aiter_rms_quant", x, bf16(width), 1e-6, 1, False, None)


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
