"""vLLM's norms, activations, conversions, positions and KV cache: closed forms at odd shapes, and calls as traces record them."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import MISSING, Signature, TensorArg, from_kineto
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


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("silu_and_mul", 14 + 1), ("mul_and_silu", 15), ("gelu_and_mul", 24 + 1), ("gelu_tanh_and_mul", 25), ("fatrelu_and_mul", 2),
        ("swigluoai_and_mul", 20), ("silu_and_mul_with_clamp", 18),
    ],
)  # fmt: skip
def test_gated_activations_read_twice_what_they_write(name, cost):
    assert figures(f"_C::{name}", bf16(T, D), bf16(T, 2 * D)) == (0, cost * T * D, 4 * T * D, 2 * T * D, "bf16")


@pytest.mark.parametrize(("name", "cost"), [("gelu_new", 24), ("gelu_fast", 24), ("gelu_quick", 15)])
def test_plain_activations(name, cost):
    assert figures(f"_C::{name}", bf16(T, D), bf16(T, D)) == (0, cost * T * D, 2 * T * D, 2 * T * D, "bf16")


def test_activations_with_a_conversion():
    assert figures("_C::silu_and_mul_quant", fp8(T, D), bf16(T, 2 * D), fp32(1)) == (0, 20 * T * D, 4 * T * D + 4, T * D, "bf16")
    blocks = (fp8(T, 2 * D), bf16(T, 4 * D), fp32(T, 2), 30, None, False)
    assert figures("_C::silu_and_mul_per_block_quant", *blocks) == (0, 22 * T * 2 * D, 8 * T * D, 2 * T * D + 8 * T, "bf16")
    # 15 for the activation, 7 for the conversion with a search for the range, two numbers a byte
    fp4 = (uint8(T, D // 2), fp8(T, 2), bf16(T, 2 * D), fp32(1))
    assert figures("_C::silu_and_mul_nvfp4_quant", *fp4) == (0, 22 * T * D, 4 * T * D + 4, T * D // 2 + 2 * T, "bf16")


@pytest.mark.parametrize(
    ("name", "args", "cost", "read", "written"),
    [
        ("static_scaled_fp8_quant", (fp8(T, D), bf16(T, D), fp32()), 5, 2 * T * D + 4, T * D),
        ("dynamic_scaled_fp8_quant", (fp8(T, D), bf16(T, D), fp32(1)), 7, 2 * T * D, T * D + 4),
        ("dynamic_per_token_scaled_fp8_quant", (fp8(T, D), bf16(T, D), fp32(T, 1), None), 7, 2 * T * D, T * D + 4 * T),
        ("static_scaled_int8_quant", (TensorArg((T, D), "int8"), bf16(T, D), fp32(1), int32(1)), 5, 2 * T * D + 8, T * D),
        ("dynamic_scaled_int8_quant", (TensorArg((T, D), "int8"), bf16(T, D), fp32(T, 1), None), 7, 2 * T * D, T * D + 4 * T),
        ("per_token_group_fp8_quant", (bf16(T, D), fp8(T, D), fp32(T, 2), 15, 1e-10), 7, 2 * T * D, T * D + 8 * T),
    ],
)  # fmt: skip
def test_conversions(name, args, cost, read, written):
    assert figures(f"_C::{name}", *args) == (0, cost * T * D, read, written, "bf16")


def test_numbers_of_4_bits_with_the_results_given_or_returned():
    given = figures("_C::scaled_fp4_quant", uint8(T, 16), bf16(T, 32), int32(128, 4), fp32(1))
    assert given == (0, 7 * T * 32, 2 * T * 32 + 4, T * 16 + 4 * 128 * 4, "bf16")
    returned = figures("_C::scaled_fp4_quant", bf16(T, 32), fp32(1), True)
    assert returned == (0, 7 * T * 32, 2 * T * 32 + 4, T * 16 + T * 2, "bf16"), "half a byte a number, a byte for each 16"


def test_rows_of_experts_become_numbers_of_4_bits():
    """5 rows of 32; a gate halves what is converted."""
    tensors = uint8(128, 16), int32(128, 1), bf16(5, 32), fp32(3), int32(4), int32(4)
    read = 5 * 32 * 2 + 12 + 16 + 16
    assert figures("_C::scaled_fp4_experts_quant", *tensors) == (0, 160 * 7, read, 80 + 10, "bf16")
    assert figures("_C::silu_and_mul_scaled_fp4_experts_quant", *tensors) == (0, 80 * (7 + 15), read, 40 + 5, "bf16")


def test_a_tensor_that_was_not_recorded_is_not_guessed():
    assert reason("_C::rms_norm", bf16(T, D), bf16(T, D), MISSING, 1e-5) == "shape of 'weight' not recorded"
    assert reason("_C::silu_and_mul", bf16(T, D)) == "shape of 'input' not recorded"


def test_another_name_for_the_same_memory_costs_nothing():
    assert counted("_C::weak_ref_tensor", bf16(T, D)).work == Work()


# --- positions ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_C::rotary_embedding", "sgl_kernel::rotary_embedding"])
def test_rotary_embedding_rotates_in_place(name):
    # 3 heads of queries, 2 of keys, 10 numbers a head; a table of 4 rows: fewer than tokens
    query, key = bf16(T, 30), bf16(T, 20)
    touched = 2 * T * 50
    assert figures(name, int64(T), query, key, 10, bf16(4, 10), True) == (0, 3 * T * 50, touched + 8 * T + 2 * 4 * 10, touched, "bf16")
    assert figures(name, int64(T), query, None, 10, bf16(99, 10), True)[2] == 2 * T * 30 + 8 * T + 2 * T * 10


def test_rotary_embedding_of_a_part_of_each_head_leaves_the_rest_alone():
    whole = figures("_C::rotary_embedding", int64(T), bf16(T, 30), bf16(T, 20), 10, bf16(99, 10), True)
    part = figures("_C::rotary_embedding", int64(T), bf16(T, 30), bf16(T, 20), 10, bf16(99, 4), True)
    assert part[1] * 10 == whole[1] * 4
    assert part[3] * 10 == whole[3] * 4


def test_norm_and_rotation_of_queries_and_keys_leave_the_values():
    # 3 heads of queries, 2 of keys, 2 of values, 10 numbers each
    args = (bf16(T, 70), 3, 2, 2, 10, 1e-6, bf16(10), bf16(10), bf16(99, 10), True, int64(T))
    touched = 2 * T * 50
    read = touched + 8 * T + 2 * T * 10 + 2 * 20
    assert figures("_C::fused_qk_norm_rope", *args) == (0, (4 + 3) * T * 50, read, touched, "bf16")


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


def test_compressed_keys_and_values_lie_side_by_side():
    args = (bf16(T, 24), bf16(T, 6), bf16(50, 16, 30), int64(T), None, fp32(1))
    assert figures("_C_cache_ops::concat_and_cache_mla", *args) == (0, 0, 2 * T * 30 + 8 * T + 4, 2 * T * 30, None)
    scaled = (bf16(T, 24), bf16(T, 6), uint8(50, 16, 36), int64(T), None, fp32(1))  # a row has scales too
    assert figures("_C_cache_ops::concat_and_cache_mla", *scaled)[3] == T * 36


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


def test_blocks_of_every_layer_are_copied():
    """Two blocks of 8 * 16 numbers in each of two layers' keys and values."""
    layer, mapping = bf16(7, 8, 16), int64(2, 2)
    moved = 2 * 4 * 8 * 16 * 2
    assert figures("_C_cache_ops::copy_blocks", (layer, layer), (layer, layer), mapping) == (0, 0, moved + 32, moved, None)
    assert figures("_C_cache_ops::copy_blocks_mla", (layer, layer), mapping) == (0, 0, moved // 2 + 32, moved // 2, None)
    assert reason("_C_cache_ops::copy_blocks", MISSING, MISSING, mapping) == "argument 'keys' not recorded"


def test_an_index_key_is_stored_with_a_scale_for_each_block():
    """5 tokens of 256 numbers with a scale for each 128; the batch is padded to 8."""
    found = figures("_C_cache_ops::indexer_k_quant_and_cache", bf16(8, 256), uint8(9, 64, 264), int64(5), 128, "ue8m0")
    assert found == (0, 5 * 256 * 7, 5 * 512 + 40, 5 * (256 + 8), "bf16")


def test_gathered_pages_are_bounded_by_the_result():
    outcome = counted("_C_cache_ops::gather_and_maybe_dequant_cache", uint8(50, 16, 30), bf16(T, 30), int32(2, 4), int32(3), int32(T))
    assert outcome.work.bytes_written == 2 * T * 30
    assert outcome.work.bytes_read == T * 30 + 4 * 8 + 4 * 3
    assert outcome.work.assumption


def test_no_call_of_these_raises():
    for name in ("_C::rms_norm", "_C::rotary_embedding", "_C_cache_ops::swap_blocks", "_C_cache_ops::reshape_and_cache"):
        assert count(Signature(name, ())).kind == "unknown"
