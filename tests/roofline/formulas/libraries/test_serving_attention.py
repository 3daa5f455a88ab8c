"""Attention of servers' newer kernels: AITER's, FlashMLA's and vLLM's; closed forms, and the bytes of what is read."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from rooflines.roofline.formulas.registry import words
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
    assert work.matrix_flops == 4 * B * H * causal(7) * D
    assert work.bytes_written == 2 * B * 7 * H * D + 4 * B * H * 7
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
    assert work.matrix_flops == 4 * H * (5 * PAGE) * D
    assert work.bytes_written == 2 * B * H * D


def test_other_decodes_from_pages():
    query, key, value = paged()
    keys = B * 3 * PAGE
    gluon = (bf16(B, H, D), query, key, value, int32(B), int32(B, 3), 0.1, 1, 4, 256, 15, None, None, None, fp32(9), fp32(9), bf16(9),
             None, None, -1, True)  # fmt: skip
    assert counted("aiter::pa_decode_gluon", *gluon).work.matrix_flops == 4 * H * keys * D
    window = (*gluon[:19], 10, True)
    assert counted("aiter::pa_decode_gluon", *window).work.matrix_flops == 4 * H * (B * 10) * D
    asm = (query, key, value, int32(5), int32(B), 0.1, fp32(1), fp32(1), fp32(1), bf16(B, H, D), int32(B + 1), int32(B + 1), None, None,
           None, None, fp32(H), 2, 1, None)  # fmt: skip
    assert counted("aiter::_pa_decode_bf16_asm", *asm).work.matrix_flops == 4 * H * (5 * PAGE) * D
    ragged = (bf16(B, H, D), uint8(99), query, bf16(99, 1, KV, D), bf16(99, 1, KV, D), 0.1, int32(B + 1), int32(11), int32(B), 1, 4,
              None, None, None, 0.0, fp32(1), fp32(1))  # fmt: skip
    assert counted("aiter::paged_attention_ragged", *ragged).work.matrix_flops == 4 * H * 11 * D


def test_a_cache_with_lengths():
    args = (bf16(B, 1, H, D), bf16(B, 9, KV, D), bf16(B, 9, KV, D), None, None, None, int32(B), 0.1, True, -1, -1, 0, 0.0, 0, None, 0,
            None, None, None, None, False, None)  # fmt: skip
    work = counted("aiter::_flash_attn_with_kvcache", *args).work
    assert (work.matrix_flops, work.bytes_written) == (4 * H * (B * 9) * D, 2 * B * H * D)


def test_prefills_of_aiter():
    q, k, out = bf16(B, T, H, D), bf16(B, T, KV, D), bf16(B, T, H, D)
    opus = counted("aiter::_fmha_fwd_bf16_opus_fwd", q, k, k, out, True, 0.1, None, None, None, None, 0, 0).work
    assert (opus.matrix_flops, opus.bytes_written) == (4 * B * H * causal(T) * D, 2 * B * T * H * D)
    sums = fp32(B, H, T)
    sunk = counted("aiter::_fmha_fwd_with_sink_asm", q, k, k, out, sums, fp32(H), 0.1, True, True).work
    assert (sunk.matrix_flops, sunk.bytes_written) == (4 * B * H * causal(T) * D, 2 * B * T * H * D + 4 * B * T * H)
    packed = (bf16(T, H, D), bf16(T, KV, D), bf16(T, KV, D), bf16(T, H, D), fp32(H, T), None, int32(2), int32(2), T, 0.1, True, False)
    assert counted("aiter::_fmha_fwd_with_sink_varlen_asm", *packed).work.matrix_flops == 4 * H * causal(T) * D
    eighth = (fp8(B, T, H, D), fp8(B, T, KV, D), fp8(B, T, KV, D), uint8(9), uint8(9), fp32(1), out, sums, 0.1, False, False)
    work = counted("aiter::_fmha_fwd_mxfp8_asm", *eighth).work
    assert (work.matrix_flops, work.precision) == (4 * B * H * T * T * D, "fp8")


LATENT, VALUE = 24, 16
LISTS = (int32(B + 1), int32(B + 1), int32(11), int32(B))


def test_latent_decodes_of_aiter():
    query, key, out = bf16(B, H, LATENT), bf16(99, 1, 1, LATENT), bf16(B, H, VALUE)
    flops = 2 * H * 11 * (LATENT + VALUE)
    parts = (fp32(4, H, VALUE), fp32(4, H))
    opus = (query, key, *LISTS, int32(9), int32(9), 1, 1, 1, 0.1, *parts, out, None, None, None, True)
    assert counted("aiter::mla_decode_fwd_opus_stage1", *opus).work.matrix_flops == flops
    for name in ("hk_mla_decode_fwd", "hk_mla_v32_decode_fwd_mi3xx"):
        work = counted(f"aiter::{name}", query, key, *LISTS, int32(9), int32(9), 1, 0.1, *parts, out).work
        assert (work.matrix_flops, work.bytes_written) == (flops, 2 * B * H * VALUE)


def test_a_latent_prefill_of_aiter():
    query, key, value, out = bf16(T, H, LATENT), bf16(T, H, LATENT), bf16(T, H, VALUE), bf16(T, H, VALUE)
    args = (query, key, value, int32(2), int32(2), int32(T), int32(9), int32(9), T, 0.1, True, fp32(9), fp32(9), out, None, None, None)
    work = counted("aiter::mla_prefill_ps_asm_fwd", *args).work
    assert work.matrix_flops == 2 * H * causal(T) * (LATENT + VALUE)
    assert work.assumption == EXACT


@pytest.mark.parametrize("name", ["pa_sparse_prefill_opus", "pa_sparse_prefill_opus_fwd"])
def test_keys_of_two_lists(name):
    query, cache, new, out = bf16(T, H, D), bf16(99, D), bf16(T, D), bf16(T, H, D)
    lists = (cache, int32(30), int32(T + 1), new, int32(12), int32(T + 1), fp32(H))
    end = (out, 0.1) if name.endswith("_fwd") else (0.1, None)
    work = counted(f"aiter::{name}", query, *lists, *end).work
    assert work.matrix_flops == 2 * H * (30 + 12) * (D + D)
    assert work.bytes_read == 2 * T * H * D + 2 * (30 + T) * D + 4 * (30 + 12 + 2 * (T + 1) + H)
    assert work.bytes_written == 2 * T * H * D


@pytest.mark.parametrize(
    ("name", "args", "lengths"),
    [
        ("get_mla_metadata_v1", (int32(3), int32(3), 4, 1, True), 6),
        ("get_mla_metadata_v1", (int32(3), int32(3), int32(2), 4, 1, True), 8),
        ("_get_mla_metadata_v1_impl", (int32(3), int32(3), int32(2), 4, 1, True), 8),
        ("get_pa_metadata_v1", (int32(3), int32(3), int32(2), 4, 1, True), 8),
        ("get_ps_metadata_v1", (int32(3), int32(3), int32(2), 4, 1), 8),
    ],
)  # fmt: skip
def test_plans(name, args, lengths):
    plan = (int32(2), int32(9, 8), int32(9), int32(4), int32(3, 2), int32(5))
    made = 2 + 72 + 9 + 4 + 6 + 5
    work = counted(f"aiter::{name}", *args, *plan, 16, 16).work
    assert (work.flops, work.bytes_read, work.bytes_written) == (0, 4 * lengths, 4 * made)
    assert work.assumption == "the plan fills its tensors"


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


def test_flash_mla_of_its_extension():
    args = (fp8(B, 1, H, LATENT), fp8(40, PAGE, 1, LATENT), VALUE, int32(B), int32(B, 3), 0.1, True, int32(9), int32(9), None, None)
    work = counted("_flashmla_extension_C::fwd_kvcache_mla_fp8", *args).work
    assert work.matrix_flops == 2 * H * (B * 3 * PAGE) * (LATENT + VALUE)


def test_a_latent_decode_that_returns_the_rows_sums():
    args = (bf16(B, H, LATENT), bf16(99, 1, 1, LATENT), bf16(B, H, VALUE), int32(B + 1), 1, int32(B + 1), int32(11), int32(B), 0.1)
    plain, sums = (counted(f"vllm::rocm_aiter_mla_decode_fwd{end}", *args).work for end in ("", "_lse"))
    assert plain.matrix_flops == sums.matrix_flops == 2 * H * 11 * (LATENT + VALUE)
    assert sums.bytes_written == plain.bytes_written + 4 * B * H


@pytest.mark.parametrize(
    "name",
    words("flash_attn_maxseqlen_wrapper torch_sdpa_wrapper triton_attn_wrapper flashinfer_wrapper aiter_fp8_attn_wrapper"),
)
def test_attention_of_images_calls_others(name):
    assert count(Signature(f"vllm::{name}", (bf16(1, T, H, D),) * 3)).kind == "composite"


def test_a_call_that_fits_no_version():
    assert "another version" in reason("aiter::pa_decode_gluon", bf16(B, H, D), 1, 2, 3, 4, 5, 6, 7, 8)
