"""vLLM's norms, activations, conversions, positions and KV cache: closed forms at odd shapes, and calls as traces record them."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import MISSING, Signature, from_kineto
from rooflines.roofline.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, int64, reason, uint8

T, D = 7, 30  # tokens, width


@pytest.mark.parametrize(
    ("name", "args", "cost", "read", "written"),
    [
        # x * r * w and the mean square: 4 an element; an addition 1; a conversion 5; a range 2
        ("rms_norm", (bf16(T, D), bf16(T, D), bf16(D), 1e-5), 4, 2 * T * D + 2 * D, 2 * T * D),
        ("rms_norm_weightless", (bf16(T, D), bf16(T, D), 1e-5), 3, 2 * T * D, 2 * T * D),
        ("fused_add_rms_norm", (bf16(T, D), bf16(T, D), bf16(D), 1e-5), 5, 4 * T * D + 2 * D, 4 * T * D),
        ("rms_norm_static_fp8_quant", (fp8(T, D), bf16(T, D), bf16(D), fp32(1), 1e-5), 9, 2 * T * D + 2 * D + 4, T * D),
        ("fused_add_rms_norm_static_fp8_quant", (fp8(T, D), bf16(T, D), bf16(T, D), bf16(D), fp32(1), 1e-5),
         10, 4 * T * D + 2 * D + 4, T * D + 2 * T * D),
        ("rms_norm_dynamic_per_token_quant", (fp8(T, D), bf16(T, D), bf16(D), fp32(T, 1), 1e-5, None, bf16(T, D)),
         11, 4 * T * D + 2 * D, T * D + 4 * T + 2 * T * D),
        ("rms_norm_dynamic_per_token_quant", (fp8(T, D), bf16(T, D), bf16(D), fp32(T, 1), 1e-5, None, None),
         11, 2 * T * D + 2 * D, T * D + 4 * T),
    ],
)  # fmt: skip
def test_norms(name, args, cost, read, written):
    assert figures(f"_C::{name}", *args) == (0, cost * T * D, read, written, "bf16")
    assert counted(f"_C::{name}", *args).category == "normalisation"


def test_numbers_of_4_bits_with_the_results_given_or_returned():
    given = figures("_C::scaled_fp4_quant", uint8(T, 16), bf16(T, 32), int32(128, 4), fp32(1))
    assert given == (0, 7 * T * 32, 2 * T * 32 + 4, T * 16 + 4 * 128 * 4, "bf16")
    returned = figures("_C::scaled_fp4_quant", bf16(T, 32), fp32(1), True)
    assert returned == (0, 7 * T * 32, 2 * T * 32 + 4, T * 16 + T * 2, "bf16"), "half a byte a number, a byte for each 16"


def test_a_tensor_that_was_not_recorded_is_not_guessed():
    assert reason("_C::rms_norm", bf16(T, D), bf16(T, D), MISSING, 1e-5) == "shape of 'weight' not recorded"
    assert reason("_C::silu_and_mul", bf16(T, D)) == "shape of 'input' not recorded"


# --- positions ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_C::rotary_embedding", "sgl_kernel::rotary_embedding"])
def test_rotary_embedding_rotates_in_place(name):
    # 3 heads of queries, 2 of keys, 10 numbers a head; a table of 4 rows: fewer than tokens
    query, key = bf16(T, 30), bf16(T, 20)
    touched = 2 * T * 50
    assert figures(name, int64(T), query, key, 10, bf16(4, 10), True) == (0, 3 * T * 50, touched + 8 * T + 2 * 4 * 10, touched, "bf16")
    assert figures(name, int64(T), query, None, 10, bf16(99, 10), True)[2] == 2 * T * 30 + 8 * T + 2 * T * 10


# --- the KV cache ------------------------------------------------------------------------------------------------------------------

RESHAPE = {
    # vLLM on a B200, gpt-oss, one KV head of 64, tensor parallel: TraceLens, tests/traces/b200
    "Input Dims": [[888, 1, 64], [888, 1, 64], [4213816, 16, 1, 64], [4213816, 16, 1, 64], [888], [], [], []],
    "Input type": ["c10::BFloat16", "c10::BFloat16", "unsigned char", "unsigned char", "long int", "", "float", "float"],
    "Input Strides": [[640, 64, 1], [64, 64, 1], [2048, 64, 1024, 1], [2048, 64, 1024, 1], [1], [], [], []],
    "Concrete Inputs": ["", "", "", "", "", "", "", ""],
}


def test_the_cache_is_written_at_its_own_dtype_only_where_tokens_go():
    work = count(from_kineto("_C_cache_ops::reshape_and_cache_flash", RESHAPE)).work
    numbers = 2 * 888 * 64
    assert work == Work(0, 5 * numbers, 2 * numbers + 8 * 888 + 8, numbers, "bf16")


def test_a_batch_that_is_padded_stores_its_tokens():
    cache = bf16(50, 16, 2, 8)
    args = (bf16(T, 2, 8), bf16(T, 2, 8), cache, cache, int64(5), None, fp32(), fp32())
    moved = 2 * 2 * 5 * 16
    assert figures("_C_cache_ops::reshape_and_cache_flash", *args) == (0, 0, moved + 8 * 5 + 8, moved, None)
    assert reason("_C_cache_ops::reshape_and_cache", bf16(4, 2, 8), bf16(4, 2, 8), cache, cache, int64(5)) == "more tokens than keys"


def test_compressed_keys_rotate_on_their_way_into_the_cache():
    args = (int64(T), bf16(T, 3, 6), bf16(T, 6), bf16(T, 24), bf16(99, 6), True, int64(T), bf16(50, 16, 30), None, fp32(1))
    rotated = T * 4 * 6
    assert figures("_C_cache_ops::concat_and_cache_mla_rope_fused", *args) == (
        0, 3 * rotated, 2 * rotated + 8 * T + 2 * T * 6 + 2 * T * 24 + 8 * T + 4, 2 * rotated + 2 * T * 30, "bf16",
    )  # fmt: skip


def test_blocks_are_moved_by_the_map():
    source = bf16(50, 16, 30)
    assert figures("_C_cache_ops::swap_blocks", source, source, int64(3, 2))[2:4] == (3 * 960 + 48, 3 * 960)
    assert figures("_C_cache_ops::swap_blocks", source, source, 1000, int64(3, 2))[2:4] == (3 * 1000 + 48, 3 * 1000)


def test_no_call_of_these_raises():
    for name in ("_C::rms_norm", "_C::rotary_embedding", "_C_cache_ops::swap_blocks", "_C_cache_ops::reshape_and_cache"):
        assert count(Signature(name, ())).kind == "unknown"
