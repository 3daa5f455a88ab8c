"""SGLang: calls as traces record them."""

from __future__ import annotations

from rooflines.profiler.read.signature import from_kineto
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, figures, int64

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
