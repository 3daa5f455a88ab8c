"""Attention of servers' newer kernels: AITER's, FlashMLA's and vLLM's; closed forms, and the bytes of what is read."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, counted, fp8, fp32, int32, reason, uint8

B, T, H, KV, D, PAGE = 2, 7, 4, 2, 16, 8
EXACT = ""


def causal(tokens):
    return tokens * (tokens + 1) // 2


def paged(cached=40):
    """Queries of a decode, and a cache [pages, heads, d / x, page, x] with its values [pages, heads, d, page]."""
    return bf16(B, H, D), bf16(cached, KV, D // 8, PAGE, 8), bf16(cached, KV, D, PAGE)


def test_a_forward_with_a_causal_mask():
    tensors = (bf16(B, 7, H, D), bf16(B, 7, KV, D), bf16(B, 7, KV, D))
    options = (0.0, 0.1, True, -1, -1, None, None, True, False)
    work = counted("aiter::_flash_attn_forward", *tensors, *options).work
    assert (work.matrix_flops, work.bytes_written) == (4 * B * H * causal(7) * D, 2 * B * 7 * H * D + 4 * B * H * 7)
    assert reason("aiter::_flash_attn_forward", *tensors) == "arguments of another version of this operator"


@pytest.mark.parametrize("name", ["pa_fwd_asm", "_pa_fwd_asm", "wrapper_pa_fwd_asm"])
def test_a_decode_from_a_table_of_pages(name):
    args = (*paged(), int32(B, 3), int32(B), 3, 1, None, None, bf16(B, H, D), None, 1, None)
    work = counted(f"aiter::{name}", *args).work
    assert work.matrix_flops == 4 * H * (B * 3 * PAGE) * D
    assert work.bytes_read == 2 * B * H * D + 2 * 2 * (B * 3 * PAGE) * KV * D + 4 * B


@pytest.mark.parametrize("name", ["pa_ps_fwd_asm", "_pa_ps_fwd_asm"])
def test_a_decode_from_a_list_of_pages(name):
    args = (*paged(), int32(B + 1), int32(5), int32(B), 0.1, 1, None, None, bf16(B, H, D), int32(B + 1))
    work = counted(f"aiter::{name}", *args).work
    assert (work.matrix_flops, work.bytes_written) == (4 * H * (5 * PAGE) * D, 2 * B * H * D)


def test_a_cache_with_lengths():
    args = (bf16(B, 1, H, D), bf16(B, 9, KV, D), bf16(B, 9, KV, D), None, None, None, int32(B), 0.1, True, -1, -1, 0, 0.0, 0, None, 0,
            None, None, None, None, False, None)  # fmt: skip
    work = counted("aiter::_flash_attn_with_kvcache", *args).work
    assert (work.matrix_flops, work.bytes_written) == (4 * H * (B * 9) * D, 2 * B * H * D)


LATENT, VALUE = 24, 16


def test_a_latent_prefill_of_aiter():
    query, key, value, out = bf16(T, H, LATENT), bf16(T, H, LATENT), bf16(T, H, VALUE), bf16(T, H, VALUE)
    args = (query, key, value, int32(2), int32(2), int32(T), int32(9), int32(9), T, 0.1, True, fp32(9), fp32(9), out, None, None, None)
    work = counted("aiter::mla_prefill_ps_asm_fwd", *args).work
    assert (work.matrix_flops, work.assumption) == (2 * H * causal(T) * (LATENT + VALUE), EXACT)


@pytest.mark.parametrize("library", ["_flashmla_C", "sgl_kernel"])
def test_flash_mla(library):
    key = bf16(40, PAGE, 1, LATENT)
    dense = (bf16(B, 1, H, LATENT), key, VALUE, int32(B), int32(B, 3), 0.1, True, None, None, None)
    assert counted(f"{library}::dense_decode_fwd", *dense).work.matrix_flops == 2 * H * (B * 3 * PAGE) * (LATENT + VALUE)
    eighth = (fp8(B, 1, H, LATENT), fp8(40, PAGE, 1, LATENT), VALUE, int32(B), int32(B, 3), 0.1, True, int32(9), int32(9), None, None)
    assert counted(f"{library}::fwd_kvcache_mla_fp8", *eighth).work.precision == "fp8"
    sparse = (bf16(B, 1, H, LATENT), key, int32(B, 1, 12), None, None, None, None, None, None, None, VALUE, 0.1)
    work = counted(f"{library}::sparse_decode_fwd", *sparse).work
    assert work.matrix_flops == 2 * H * (B * 12) * (LATENT + VALUE)
    assert work.bytes_read == 2 * B * H * LATENT + 4 * B * 12 + 2 * (B * 12) * LATENT
    more = (*sparse[:7], bf16(9, 4, 1, LATENT), int32(B, 1, 5), None, VALUE, 0.1)
    both = counted(f"{library}::sparse_decode_fwd", *more).work
    assert both.matrix_flops == 2 * H * (B * 17) * (LATENT + VALUE)
    assert both.bytes_read == work.bytes_read + 4 * B * 5 + 2 * (B * 5) * LATENT
    packed = (uint8(99), bf16(T, H, LATENT), bf16(T, H, LATENT), bf16(T, H, VALUE), int32(2), int32(2), bf16(T, H, VALUE), fp32(T, H))
    masked = counted(f"{library}::dense_prefill_fwd", *packed, 1, 0.1, T, T, True).work
    assert masked.matrix_flops == 2 * H * causal(T) * (LATENT + VALUE)
    assert counted(f"{library}::dense_prefill_fwd", *packed, 0, 0.1, T, T, True).work.matrix_flops == 2 * H * T * T * (LATENT + VALUE)


def test_a_call_that_fits_no_version():
    assert "another version" in reason("aiter::pa_decode_gluon", bf16(B, H, D), 1, 2, 3, 4, 5, 6, 7, 8)
