"""flashinfer's operators of 2025: names of its builds, and closed forms at odd shapes."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int32, reason, uint8

T, D = 7, 30
READ, MADE = 2 * T * D + 2 * D, 2 * T * D
SPACE = (uint8(999), uint8(999), int32(15))


@pytest.mark.parametrize("namespace", ["norm", "flashinfer_kernels", "flashinfer_kernels_sm90", "flashinfer"])
def test_norms(namespace):
    for name in ("rmsnorm", "gemma_rmsnorm"):
        assert figures(f"{namespace}::{name}", bf16(T, D), bf16(T, D), bf16(D), 1e-6, True) == (0, 4 * T * D, READ, MADE, "bf16")
    for name in ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm"):
        added = figures(f"{namespace}::{name}", bf16(T, D), bf16(T, D), bf16(D), 1e-6, 0)
        assert added == (0, 5 * T * D, READ + MADE, 2 * MADE, "bf16")
    assert "not recorded" in reason(f"{namespace}::rmsnorm", bf16(T, D), bf16(D), 1e-6), "a function of another library"


H, KV, HD, PAGE = 4, 2, 10, 3
PREFILL = "batch_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_head_dim_qk_10_head_dim_vo_10_posenc_0"
DECODE = "batch_decode_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_head_dim_qk_10_head_dim_vo_10_posenc_0"


@pytest.mark.parametrize("heads_first", [0, 1])
def test_a_decode_from_pages(heads_first):
    """Two sequences with 5 pages of 3 tokens: at most 15 keys."""
    cache = bf16(9, KV, PAGE, HD) if heads_first else bf16(9, PAGE, KV, HD)
    end = (int32(3), int32(5), int32(2), bf16(2, H, HD), None, heads_first, -1, None, None, 0.0, 0.3)
    for name in (f"{DECODE}::run", "flashinfer_kernels::batch_decode_with_paged_kv_cache_run"):
        work = counted(name, *SPACE, bf16(2, H, HD), cache, cache, *end).work
        assert (work.matrix_flops, work.bytes_read) == (4 * H * 15 * HD, 2 * 2 * H * HD + 2 * 2 * 15 * KV * HD)
        assert work.bytes_written == 2 * 2 * H * HD
        assert work.assumption == "KV length of every sequence is the largest that the arguments allow"


@pytest.mark.parametrize(("mask", "pairs"), [(1, T * (T + 1) // 2), (0, T * T), (2, T * T)])
def test_a_prefill_of_one_sequence_from_pages(mask, pairs):
    cache = bf16(99, 1, KV, HD)
    args = (*SPACE, bf16(T, H, HD), cache, cache, int32(2), int32(2), int32(T), int32(1), bf16(T, H, HD), fp32(T, H), mask, 0, -1)
    for name in (f"{PREFILL}::paged_run", "flashinfer_kernels::batch_prefill_with_paged_kv_cache_run"):
        work = counted(name, *args, None, 0.0, 0.3).work
        assert (work.matrix_flops, work.bytes_read) == (4 * H * pairs * HD, 2 * T * H * HD + 2 * 2 * T * KV * HD + 4 * 2)
        assert work.bytes_written == 2 * T * H * HD + 4 * T * H


def test_a_single_sequence():
    key, out = bf16(9, KV, HD), bf16(T, H, HD)
    args = (bf16(T, H, HD), key, key, uint8(99), out, None, 1, 0, -1, None)
    work = counted("single_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_head_dim_qk_10::run", *args).work
    assert work.matrix_flops == 4 * H * (T * 9 - T * (T - 1) // 2) * HD
    swapped = bf16(KV, 9, HD)
    one = (bf16(H, HD), swapped, swapped, uint8(99), bf16(H, HD), None, 1, -1, None)
    work = counted("flashinfer_kernels::single_decode_with_kv_cache", *one).work
    assert (work.matrix_flops, work.bytes_written) == (4 * H * 9 * HD, 2 * H * HD)
    assert work.bytes_read == 2 * H * HD + 2 * 2 * 9 * KV * HD
