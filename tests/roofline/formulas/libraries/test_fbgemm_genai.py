"""FBGEMM's GenAI operators and MSLK: closed forms by hand at odd shapes."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, counted, fp4, fp8, fp32, int8, int32, int64, reason, uint8

# 19 tokens, 37 to 53 features, 5 experts.
FP4 = fp4(19, 18)
PRODUCT = 2 * 19 * 36 * 53
RESULT = 19 * 53 * 2


@pytest.mark.parametrize(
    ("name", "args", "flops", "read", "precision"),
    [
        ("f4f4bf16", (FP4, fp4(53, 18), uint8(19, 2), uint8(53, 2)), PRODUCT, 72 * 18 + 72 * 2, "fp4"),
        ("f4f4bf16", (uint8(19, 18), uint8(53, 18), uint8(19, 2), uint8(53, 2), None, fp32(1)), PRODUCT + 19 * 53,
         72 * 18 + 72 * 2 + 4, "fp4"),
        ("mx8mx4bf16", (fp8(19, 36), uint8(53, 18), uint8(19, 2), uint8(53, 2)), PRODUCT, 19 * 36 + 53 * 18 + 144, "fp8"),
        ("bf16i4bf16_rowwise_batched", (bf16(3, 19, 36), int8(3, 53, 18), fp32(3, 53), fp32(3, 53)),
         3 * (PRODUCT + 2 * 53 * 36), 3 * (19 * 36 * 2 + 53 * 18 + 2 * 53 * 4), "bf16"),
        ("bf16i4bf16_shuffled_grouped", (bf16(19, 36), int8(5, 53, 18), bf16(5, 2, 53), bf16(5, 2, 53), int64(5)),
         PRODUCT + 2 * 5 * 53 * 36, 19 * 36 * 2 + 5 * 53 * 18 + 2 * 5 * 2 * 53 * 2 + 40, "bf16"),
        ("f4f4bf16_grouped_stacked", (FP4, fp4(5, 53, 18), uint8(19, 2), uint8(5, 53, 2), int64(5), fp32(5)),
         PRODUCT + 19 * 53, 19 * 18 + 5 * 53 * 18 + 38 + 530 + 40 + 20, "fp4"),
        ("mx8mx8bf16_grouped_mm", (fp8(19, 36), fp8(5, 36, 53), uint8(19, 2), uint8(5, 53, 2), int32(5)), PRODUCT,
         19 * 36 + 5 * 36 * 53 + 38 + 530 + 20, "fp8"),
        ("mx8mx4bf16_grouped_mm", (fp8(19, 36), uint8(5, 18, 53), uint8(19, 2), uint8(5, 53, 2), int32(5)), PRODUCT,
         19 * 36 + 5 * 18 * 53 + 38 + 530 + 20, "fp8"),
        ("f4f4bf16_grouped_mm", (FP4, fp4(5, 18, 53), uint8(19, 2), uint8(5, 53, 2), int32(5)), PRODUCT,
         19 * 18 + 5 * 18 * 53 + 38 + 530 + 20, "fp4"),
        ("f8f8bf16_rowwise_grouped_mm", (fp8(19, 36), fp8(5, 53, 36), fp32(19), fp32(5, 53), int32(5), bf16(19, 53)),
         PRODUCT + 19 * 53, 19 * 36 + 5 * 36 * 53 + 76 + 1060 + 20, "fp8"),
        ("f8f8bf16_rowwise_grouped", ((fp8(7, 36), fp8(12, 36)), (fp8(53, 36), fp8(53, 36)), (fp32(7), fp32(12)), (fp32(53), fp32(53))),
         PRODUCT + 19 * 53, 19 * 36 + 2 * 53 * 36 + 4 * (19 + 2 * 53), "fp8"),
    ],
)  # fmt: skip
def test_products_of_narrow_numbers(name, args, flops, read, precision):
    for library in ("fbgemm", "mslk"):
        found = counted(f"{library}::{name}", *args).work
        results = RESULT * (3 if name.endswith("batched") else 1)
        assert (found.flops, found.bytes_read, found.bytes_written, found.precision) == (flops, read, results, precision)


def test_padded_groups():
    found = counted("fbgemm::bf16bf16bf16_grouped_dynamic", bf16(5, 19, 36), bf16(5, 53, 36), int64(5)).work
    assert (found.matrix_flops, found.other_flops) == (5 * PRODUCT, 0)
    assert found.assumption == "no row is padding"


# 3 sequences of together 29 tokens, 4 heads of depth 16.
PACKED, ENDS = bf16(29, 4, 16), int32(4)


def test_attention_on_blackwell():
    query, key = bf16(2, 19, 4, 16), bf16(2, 23, 2, 16)
    found = counted("mslk::fmha_fwd", query, key, key).work
    assert found.matrix_flops == 2 * 2 * 4 * 19 * 23 * 32
    assert found.bytes_written == 2 * 19 * 4 * (16 * 2 + 4)
    ends = (None, None, None, None, None, True, None, None, None, -1, 0)
    pairs = sum(place + 5 for place in range(19))
    assert counted("fbgemm::fmha_fwd", query, key, key, *ends).work.matrix_flops == 2 * 2 * 4 * pairs * 32
    upper = sum(place + 1 for place in range(19))
    assert counted("fbgemm::fmha_fwd", query, key, key, *ends, False).work.matrix_flops == 2 * 2 * 4 * upper * 32
    back = counted("mslk::cutlass_blackwell_fmha_bwd", query, query, key, key, query, fp32(2, 4, 19)).work
    assert back.matrix_flops == 5 * 2 * 2 * 4 * 19 * 23 * 16


def test_attention_over_a_cache():
    query, cache = bf16(3, 1, 8, 16), bf16(3, 64, 2, 16)
    found = counted("fbgemm::gqa_attn_splitk", query, cache, cache, int32(3), 0.25, 4).work
    assert (found.matrix_flops, found.bytes_written) == (2 * 3 * 8 * 64 * 32, 3 * 8 * 16 * 2)
    assert found.assumption.startswith("KV length")


def test_hstu():
    lengths, causal = (ENDS, ENDS, None, None, 29, 29, 29), (1, -1, 0)
    inputs = (PACKED, PACKED, PACKED)
    found = counted("fbgemm::hstu_varlen_fwd_80", *inputs, *lengths, None, None, *causal).work
    back = counted("fbgemm::hstu_varlen_bwd_80", PACKED, *inputs, *lengths, None, None, None, None, None, *causal).work
    pairs = found.other_flops // (14 + 2)
    assert found.matrix_flops == 2 * pairs * 32
    assert (back.matrix_flops, back.other_flops) == (5 * 2 * pairs * 16, pairs * (16 + 6))
    assert found.bytes_written == 29 * 4 * 16 * 2
    marked = counted("fbgemm::hstu_varlen_fwd_90", *inputs, *lengths, None, int32(3), *causal).work
    assert marked.matrix_flops == found.matrix_flops
    assert "no targets" in marked.assumption
    assert "tensor says" in reason("fbgemm::hstu_varlen_fwd_80", *inputs, *lengths, None, None, *causal, 1.0, None, int32(9))


def test_flash_attention_of_mslk_is_that_of_xformers():
    forward = (PACKED, PACKED, PACKED, ENDS, ENDS, None, 29, 29, 0.0, 0.25, True, -1, -1, False, None)
    assert counted("mslk_flash::flash_fwd", *forward).work == counted("xformers_flash::flash_fwd", *forward).work
