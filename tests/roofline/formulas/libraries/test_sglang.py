"""SGLang's compiled operators and those in Python: closed forms at odd shapes, and calls as traces record them."""

from __future__ import annotations

from rooflines.profiler.trace.signature import from_kineto
from rooflines.roofline.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, figures, fp8, fp32, int64

T, D = 7, 30


def test_gated_activation_as_recorded():
    """Qwen3-8B on an MI300X: TraceLens, tests/traces/inference/sglang_prefilldecode."""
    args = {"Input Dims": [[15360, 12288], [15360, 24576]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    numbers = 15360 * 12288
    assert count(from_kineto("sgl_kernel::silu_and_mul", args)).work == Work(0, 15 * numbers, 4 * numbers, 2 * numbers, "bf16")
    assert figures("sgl_kernel::gelu_quick", bf16(T, D), bf16(T, D))[1] == 15 * T * D


def test_cache_as_recorded():
    """The same trace: slots for 835,874 tokens, of which 15,360 are written; values lie between queries and keys."""
    args = {
        "Input Dims": [[15360, 1024], [15360, 1024], [835874, 1024], [835874, 1024], [15360], [], []],
        "Input type": ["c10::BFloat16"] * 4 + ["long int", "Scalar", "Scalar"],
        "Input Strides": [[1024, 1], [6144, 1], [1024, 1], [1024, 1], [1], [], []],
        "Concrete Inputs": ["", "", "", "", "", "2048", "0"],
    }
    moved = 2 * 2 * 15360 * 1024
    assert count(from_kineto("sglang::store_cache", args)).work == Work(0, 0, moved + 8 * 15360, moved)
    cache = bf16(99, 8)
    assert figures("sgl_kernel::store_kv_cache", cache, cache, int64(T), bf16(T, 8), bf16(T, 8))[3] == 4 * T * 8


def test_rotary_embedding_with_the_keys_going_into_the_cache():
    q, k = bf16(T, 3, 10), bf16(T, 2, 10)
    table, positions = fp32(99, 10), int64(T)
    plain = figures(
        "sgl_kernel::apply_rope_pos_ids_cos_sin_cache", q, k, q, k, table, positions, False, False, 0, None, None, None, None
    )
    assert plain == (0, 3 * T * 50, 2 * T * 50 + 8 * T + 4 * T * 10, 2 * T * 50, "bf16")
    cache = fp8(99, 2, 10)
    stored = (bf16(T, 2, 10), cache, cache, int64(T))
    newer = figures("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", q, k, q, k, table, positions, False, False, *stored)
    both = figures("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", q, k, q, k, table, positions, False, False, 0, *stored)
    assert both == newer, "without a stream before the values"
    assert both[2] - plain[2] == 2 * T * 20 + 8 * T
    assert both[3] - plain[3] == 2 * T * 20


H, KV, HD, ROT = 3, 2, 10, 8
Q, KEY = bf16(T, H, HD), bf16(T, KV, HD)
NUMBERS = T * (H + KV) * HD
PLACES = (bf16(99, ROT), int64(T))
TURNED, READ = 3 * T * (H + KV) * ROT, 8 * T + 2 * T * ROT


def test_norms_and_positions_of_heads():
    normed = figures("sglang::fused_inplace_qknorm", Q, KEY, bf16(HD), bf16(HD), 1e-6, 0)
    assert normed == (0, 4 * NUMBERS, 2 * NUMBERS + 4 * HD, 2 * NUMBERS, "bf16")
    both = (0, 4 * NUMBERS + TURNED, 2 * NUMBERS + 4 * HD + READ, 2 * NUMBERS, "bf16")
    assert figures("sglang::fused_inplace_qknorm_rope", Q, KEY, bf16(HD), bf16(HD), *PLACES, True) == both
    assert figures("sglang::fused_qknorm_rope_out_of_place", Q, KEY, Q, KEY, bf16(HD), bf16(HD), *PLACES, True) == both
    turned = T * (H + KV) * ROT
    assert figures("sglang::apply_rope_inplace", Q, KEY, *PLACES, True, ROT) == (0, TURNED, 2 * turned + READ, 2 * turned, "bf16")
    inside = (bf16(T, (H + 2 * KV) * HD), bf16(HD), bf16(HD), int64(T), H, KV, KV, HD, 1e-6, 1e4, True, 1.0, 1.0, 1.0, 1.0, HD)
    assert figures("sglang::fused_qk_norm_rope_out", *inside) == (0, 7 * NUMBERS, 2 * NUMBERS + 4 * HD + 8 * T, 2 * NUMBERS, "bf16")
