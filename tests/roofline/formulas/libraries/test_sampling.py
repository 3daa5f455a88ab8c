"""The choice of tokens, the k largest scores and Hadamard transforms: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, int64, reason, uint8

B, V = 7, 99
LOGITS = 4 * B * V


@pytest.mark.parametrize("library", ["flashinfer", "sgl_kernel"])
def test_probabilities(library):
    limits = fp32(B)
    for name in ("top_k_renorm_probs", "top_p_renorm_probs"):
        assert figures(f"{library}::{name}", fp32(B, V), fp32(B, V), limits, 0) == (0, 3 * B * V, LOGITS + 4 * B, LOGITS, "fp32")
    assert figures(f"{library}::top_k_mask_logits", fp32(B, V), fp32(B, V), None, 5) == (0, 2 * B * V, LOGITS, LOGITS, "fp32")
    chosen = figures(f"{library}::top_p_sampling_from_probs", fp32(B, V), int32(B), None, limits, 0.9, True, None)
    assert chosen == (0, 2 * B * V, LOGITS + 4 * B, 4 * B, "fp32")
    both = figures(f"{library}::top_k_top_p_sampling_from_probs", fp32(B, V), int32(B), None, int32(B), 0, limits, 0.9, True, None)
    assert both == (0, 2 * B * V, LOGITS + 8 * B, 4 * B, "fp32")
    assert figures(f"{library}::min_p_sampling_from_probs", fp32(B, V), int32(B), None, limits, 0.1, True, None)[1] == 3 * B * V


def test_names_of_flashinfers_builds():
    for namespace in ("sampling", "flashinfer_kernels"):
        assert figures(f"{namespace}::sampling_from_probs", fp32(B, V), int32(B), None, True, None)[1:4] == (2 * B * V, LOGITS, 4 * B)
        assert figures(f"{namespace}::top_k_sampling_from_probs", fp32(B, V), int32(B), None, None, 5, True, None)[3] == 4 * B
    assert figures("sampling::sampling_from_logits", fp32(B, V), int32(B), None, True, None)[1] == 23 * B * V
    assert figures("sampling::softmax", uint8(99), fp32(B, V), fp32(B, V), None, 1.0, False)[1:4] == (15 * B * V, LOGITS, LOGITS)
    old = ("sampling::sampling_from_probs", fp32(B, V), fp32(B), int32(B), True)
    assert reason(*old) == "arguments of another version of this operator"


def test_aiters_sampling():
    assert figures("aiter::greedy_sample", int32(B), fp32(B, V)) == (0, B * V, LOGITS, 4 * B, "fp32")
    args = (int32(B), fp32(B, V), fp32(1, V), fp32(B))
    for name in ("mixed_sample_outer_exponential", "random_sample_outer_exponential"):
        assert figures(f"aiter::{name}", *args, 1e-10) == (0, 17 * B * V, LOGITS + 4 * V + 4 * B, 4 * B, "fp32")
    for name in ("mixed_sample", "_mixed_sample", "random_sample", "_random_sample"):
        assert figures(f"aiter::{name}", int32(B), fp32(B, V), fp32(B), 1.0, 0, 0) == (0, 28 * B * V, LOGITS + 4 * B, 4 * B, "fp32")
    for name in ("exponential", "_exponential"):
        assert figures(f"aiter::{name}", fp32(B, V), 1.0)[1:4] == (11 * B * V, 0, LOGITS)
    assert figures("aiter::top_k_renorm_probs", fp32(B, V), None, 5) == (0, 3 * B * V, LOGITS, LOGITS, "fp32")
    assert figures("aiter::top_p_sampling_from_probs", fp32(B, V), None, None, 0.9)[1:4] == (2 * B * V, LOGITS, 4 * B)
    two = figures("aiter::top_k_top_p_sampling_from_probs", fp32(B, V), int32(B), None, 5, None, 0.9)
    assert two[1:4] == (2 * B * V, LOGITS + 4 * B, 4 * B)


def test_penalties_and_masks():
    masks = (uint8(B, V), uint8(B, V), fp32(B))
    assert figures("_C::apply_repetition_penalties_", fp32(B, V), *masks) == (0, 3 * B * V, LOGITS + 2 * B * V + 4 * B, LOGITS, "fp32")
    masked = counted("sgl_kernel::apply_token_bitmask_inplace_cuda", fp32(B, V), int32(B, 4), None).work
    assert (masked.flops, masked.bytes_read, masked.bytes_written) == (0, 4 * B * 4, LOGITS)
    assert masked.assumption == "no token is allowed"


STARTS, K = int32(B), 8
ROWS = (fp32(B, V), STARTS, STARTS, int32(B, K))
SCHEMAS = {
    "_C::top_k_per_row_prefill": (*ROWS, B, V, 1, K), "_C::top_k_per_row_decode": (fp32(B, V), 1, STARTS, int32(B, K), B, V, 1, K),
    "_C::persistent_topk": (fp32(B, V), STARTS, int32(B, K), uint8(99), K, V),
    "_C::cooperative_topk": (fp32(B, V), STARTS, int32(B, K), uint8(99), K, V),
    "_C::large_context_topk": (fp32(B, V), int32(B, K), STARTS, None),
    "aiter::top_k_per_row_prefill": (*ROWS, None, B, V, 1), "aiter::_top_k_per_row_prefill": (*ROWS, None, B, V, 1, K),
    "aiter::top_k_per_row_prefill_fast": (*ROWS, None, B, V, 1),
    "aiter::top_k_per_row_decode": (fp32(B, V), 1, STARTS, int32(B, K), B, V, 1),
    "aiter::_top_k_per_row_decode": (fp32(B, V), 1, STARTS, int32(B, K), B, V, 1, K),
    "aiter::top_k_per_row_decode_fast": (fp32(B, V), 1, STARTS, int32(B, K), B, V, 1),
    "sgl_kernel::fast_topk": (fp32(B, V), int32(B, K), STARTS, None),
    "trtllm::indexer_topk_prefill": (*ROWS, K), "trtllm::indexer_topk_decode": (fp32(B, V), STARTS, int32(B, K), 1, K),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_largest_of_long_rows(name):
    work = counted(name, *SCHEMAS[name]).work
    limits = 2 if "prefill" in name else 1
    assert (work.other_flops, work.bytes_read, work.bytes_written) == (B * V, LOGITS + limits * 4 * B, 4 * B * K)
    assert work.assumption == "every row of scores is full"


def test_the_largest_with_their_values_or_pages():
    for name in ("topk_plain", "_topk_plain"):
        assert figures(f"aiter::{name}", bf16(B, V), int32(B, K), bf16(B, K), K, True)[1:4] == (B * V, 2 * B * V, 6 * B * K)
    pages = (fp32(B, V), STARTS, int32(B, K), int32(B, 99), int32(B + 1), None)
    assert figures("sgl_kernel::fast_topk_transform_fused", *pages)[2:4] == (LOGITS + 4 * B + 4 * (B + 1), 4 * B * K)
    ragged = (fp32(B, V), STARTS, int32(B, K), int32(B), None)
    assert figures("sgl_kernel::fast_topk_transform_ragged_fused", *ragged)[2:4] == (LOGITS + 8 * B, 4 * B * K)


@pytest.mark.parametrize("name", ["sgl_kernel::fast_hadamard_transform", "sglang::hadamard_transform", "_C::hadacore_transform"])
def test_a_hadamard_transform_adds_in_each_of_log2_steps(name):
    assert figures(name, bf16(B, 64), 1.0) == (0, (6 + 1) * B * 64, 2 * B * 64, 2 * B * 64, "bf16")
    assert figures(name, bf16(B, 48), 1.0)[1] == (6 + 1) * B * 48


def test_hadamard_transforms_of_aiter():
    heads = bf16(B, 3, 64)
    numbers = B * 3 * 64
    for name in ("rotate_activation", "_rotate_activation_bf16"):
        assert figures(f"aiter::{name}", heads, heads) == (0, 7 * numbers, 2 * numbers, 2 * numbers, "bf16")
    narrow = figures("aiter::_rotate_activation_fp4quant", uint8(B, 3, 32), uint8(B, 3, 2), heads, 32, True)
    assert narrow == (0, 14 * numbers, 2 * numbers, numbers // 2 + numbers // 32, "bf16")
    table = (bf16(99, 4), bf16(99, 4), int64(B))
    read = 2 * numbers + 8 * B + 2 * B * 8
    turned = 3 * B * 3 * 8
    for name in ("rope_rotate_activation", "_rope_rotate_activation_bf16"):
        assert figures(f"aiter::{name}", heads, heads, *table, 8)[1:4] == (7 * numbers + turned, read, 2 * numbers)
    assert figures("aiter::_rope_rotate_activation_bf16", heads, heads, *table, 8, False)[1] == turned
    eighth = figures("aiter::_rope_rotate_activation_fp8quant", fp8(B, 3, 64), fp32(B, 3, 1), heads, *table, 8, 128, True)
    assert eighth[1:4] == (14 * numbers + turned, read, numbers + 4 * B * 3)
    fourth = figures("aiter::_rope_rotate_activation_fp4quant", uint8(B, 3, 32), uint8(B, 3, 2), heads, *table, 8, 32, True, True)
    assert fourth[1:4] == (14 * numbers + turned, read, numbers // 2 + numbers // 32)
