"""TransformerEngine's operators, routing and permutation of tokens: closed forms by hand at odd shapes."""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int32


def test_the_product_inside_a_layer_counts():
    assert count(Signature("_Linear", (bf16(53, 19), bf16(37, 19)))).decomposes


def test_packed_queries_keys_and_values_rotate():
    packed, angles = bf16(7, 2, 3, 6 * 16), fp32(7, 1, 1, 16)
    sizes = 7 * 2 * 3 * 16
    alone = counted("FusedQKVRoPEFunc", packed, angles, angles, "sbhd", False).work
    assert (alone.flops, alone.bytes_read, alone.bytes_written) == (18 * sizes + 40 * 7 * 16, 12 * sizes + 8 * 7 * 16, 12 * sizes)
    assert "values rotate" in alone.assumption
    gradients = (bf16(7, 2, 12, 16), bf16(7, 2, 3, 16), bf16(7, 2, 3, 16))
    back = counted("FusedQKVRoPEFuncBackward", gradients, packed, angles, angles).work
    assert (back.flops, back.bytes_read) == (15 * sizes + 40 * 7 * 16, 12 * sizes + 8 * 7 * 16)
    known = count(Signature("FusedQKVRoPEFunc", (packed, angles, angles)), outputs=gradients).work
    assert (known.flops, known.assumption) == (back.flops, "")


def test_the_loss_leaves_its_gradient():
    assert count(Signature("CrossEntropyFunctionBackward", (fp32(),))).kind == "composite"


# --- permutation of tokens: 6 of them, of width 16, 11 rows, 4 experts -------------------------------------------------------------

TOKENS, ROWS, MASK, WEIGHTS = bf16(6, 16), bf16(11, 16), TensorArg((6, 4), "bool"), fp32(6, 4)
INDEX, FROM_INDEX, FROM_MASK = int32(6, 2), int32(12), int32(6, 9)
T, R = 6 * 16 * 2, 11 * 16 * 2


def test_tokens_to_their_experts():
    assert figures("te_moe::permute_index_map", TOKENS, INDEX, 11, 20) == (0, 0, T + 48, R + 48, None)
    assert figures("te_moe::permute_index_map", TOKENS, INDEX, 0, 20)[3] == 12 * 32 + 48
    by_mask = (0, 0, T + 24 + 96, R + 4 * 6 * 9 + 44, None)
    for name in ("te_moe::permute_mask_map_fwd", "_moe_permute_mask_map", "TokenPermuteMaskMap"):
        assert figures(name, TOKENS, MASK, 11, WEIGHTS, None) == by_mask
        old = Signature(name, (TOKENS, MASK, WEIGHTS))  # a trace with tensors only
        assert count(old).reason == "number of permuted tokens not recorded"
        assert count(old, outputs=(ROWS,)).work.bytes_written == by_mask[3]


def test_gradients_of_rows():
    weighted = (0, 3 * 176, T + R + 216 + 96, R + 96, "bf16")
    assert figures("te_moe::unpermute_mask_map_bwd_with_probs", TOKENS, FROM_MASK, ROWS, WEIGHTS, None, 6, 4, 11, 16) == weighted
    assert figures("_moe_unpermute_mask_mapBackward", (TOKENS,), ROWS, FROM_MASK, WEIGHTS) == weighted
    plain = (0, 0, T + 216, R, None)
    assert figures("te_moe::unpermute_mask_map_bwd_no_probs", TOKENS, FROM_MASK, None, 6, 4, 11, 16) == plain
    assert figures("_moe_unpermute_mask_mapBackward", (TOKENS,), ROWS, FROM_MASK) == plain
    assert figures("te_moe::unpermute_index_map_bwd", TOKENS, ROWS, FROM_INDEX, fp32(6, 2))[1:4] == (3 * 176, T + R + 96, R + 48)
