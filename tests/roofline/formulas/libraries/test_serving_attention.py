"""Attention of servers' newer kernels: a table of pages, latent keys, and a call of no version."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, counted, fp32, int32, reason

B, T, H, KV, D, PAGE = 2, 7, 4, 2, 16, 8
EXACT = ""


def causal(tokens):
    return tokens * (tokens + 1) // 2


def paged(cached=40):
    """Queries of a decode, and a cache [pages, heads, d / x, page, x] with its values [pages, heads, d, page]."""
    return bf16(B, H, D), bf16(cached, KV, D // 8, PAGE, 8), bf16(cached, KV, D, PAGE)


@pytest.mark.parametrize("name", ["pa_fwd_asm", "_pa_fwd_asm", "wrapper_pa_fwd_asm"])
def test_a_decode_from_a_table_of_pages(name):
    args = (*paged(), int32(B, 3), int32(B), 3, 1, None, None, bf16(B, H, D), None, 1, None)
    work = counted(f"aiter::{name}", *args).work
    assert work.matrix_flops == 4 * H * (B * 3 * PAGE) * D
    assert work.bytes_read == 2 * B * H * D + 2 * 2 * (B * 3 * PAGE) * KV * D + 4 * B


LATENT, VALUE = 24, 16


def test_a_latent_prefill_of_aiter():
    query, key, value, out = bf16(T, H, LATENT), bf16(T, H, LATENT), bf16(T, H, VALUE), bf16(T, H, VALUE)
    args = (query, key, value, int32(2), int32(2), int32(T), int32(9), int32(9), T, 0.1, True, fp32(9), fp32(9), out, None, None, None)
    work = counted("aiter::mla_prefill_ps_asm_fwd", *args).work
    assert (work.matrix_flops, work.assumption) == (2 * H * causal(T) * (LATENT + VALUE), EXACT)


def test_a_call_that_fits_no_version():
    assert "another version" in reason("aiter::pa_decode_gluon", bf16(B, H, D), 1, 2, 3, 4, 5, 6, 7, 8)
