"""AITER's kernels that join norms, positions, conversions and the KV cache: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, figures, fp8, fp32, int64, reason, uint8

T, H, WIDE, ROT = 7, 3, 20, 8  # tokens, heads, compressed width, rotated width
TABLES = (bf16(99, ROT // 2), bf16(99, ROT // 2))
PLACED = 8 * T + 2 * T * ROT  # positions and their rows of both tables
TURNED = 3 * T * (H + 1) * ROT  # queries of all heads, one key


def latent(cache, out):
    return (bf16(T, H, WIDE), bf16(T, H, ROT), bf16(T, WIDE), bf16(T, ROT), cache(99, 1, WIDE + ROT), out(T, H, WIDE + ROT),
            int64(T), fp32(1), fp32(1), int64(T), *TABLES, True, True)  # fmt: skip


@pytest.mark.parametrize("name", ["fused_qk_rope_concat_and_cache_mla", "fused_qk_rope_concat_and_cache_mla_seg"])
def test_latent_queries_and_keys(name):
    queries, keys = T * H * (WIDE + ROT), T * (WIDE + ROT)
    read = 2 * (queries + keys) + PLACED + 8 * T + 8
    assert figures(f"aiter::{name}", *latent(bf16, bf16)) == (0, TURNED, read, 2 * (queries + keys), "bf16")
    assert figures(f"aiter::{name}", *latent(fp8, fp8)) == (0, TURNED + 5 * (queries + keys), read, queries + keys, "bf16")


def test_the_index_of_a_sparse_attention():
    width, block = 16, 8
    args = (bf16(T, H, width), fp8(T, H, width), bf16(T, H), fp32(T, H), bf16(T, width), uint8(9, 16, width + 8), int64(T), bf16(width),
            bf16(width), int64(T), *TABLES, 1e-6, block, None, 0.5, False, True)  # fmt: skip
    numbers = T * H * width
    assert figures("aiter::indexer_qk_rope_quant_and_cache", *args) == (
        0, 3 * T * (H + 1) * ROT + 7 * numbers + 2 * T * H + T * width * (4 + 2 + 2 + 7),
        2 * numbers + 2 * T * H + 2 * T * width + 4 * width + 8 * T + PLACED, numbers + 4 * T * H + T * (width + 4 * 2), "bf16",
    )  # fmt: skip
    assert "invalid size" in reason("aiter::indexer_qk_rope_quant_and_cache", *args[:13], 0)
    key = figures("aiter::indexer_k_quant_and_cache", bf16(T, width), uint8(9, 16, 24), int64(T), block, None, False)
    assert key == (0, 7 * T * width, 2 * T * width + 8 * T, T * (width + 8), "bf16")
    gathered = figures("aiter::cp_gather_indexer_k_quant_cache", uint8(9, 16, 24), fp8(5, width), uint8(5, 8), int64(2, 3), int64(3))
    assert gathered == (0, 0, 5 * 24 + 8 * 6 + 8 * 3, 5 * 24, None)


HQ, HK, HD = 3, 2, 10
QKV = bf16(T, (HQ + 2 * HK) * HD)
NUMBERS = T * (HQ + HK) * HD
VALUES = T * HK * HD
TABLE = bf16(99, ROT)
ROTATED = 3 * T * (HQ + HK) * ROT


def test_queries_and_keys_and_the_cache():
    caches = (fp8(9, HK, 5, 16, 2), fp8(9, HK, HD, 16), int64(T))
    end = (HQ, HK, HK, HD, 1e-6, bf16(HD), bf16(HD), TABLE, True, int64(T), *caches, None, fp32(1), fp32(1))
    stored = T * HK * HD * 2  # keys and values
    expected = (
        0, 4 * NUMBERS + ROTATED + 5 * stored, 2 * NUMBERS + 2 * VALUES + 4 * HD + 8 * T + 2 * T * ROT + 8 * T + 8,
        2 * NUMBERS + stored, "bf16",
    )  # fmt: skip
    assert figures("aiter::fused_qk_norm_rope_cache_quant_shuffle", QKV, *end) == expected
    parts = (bf16(T, HQ * HD), bf16(T, HK * HD), bf16(T, HK * HD))
    assert figures("aiter::_fused_qk_norm_rope_cache_quant_shuffle_hip", *parts, *end) == expected
