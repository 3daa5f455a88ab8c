"""Autograd functions of flash-linear-attention, flash-attn, Unsloth and Megatron-LM: closed forms by hand at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int64, reason

X, W, B = bf16(3, 5, 16), bf16(16), bf16(16)
SIZE, ROWS = 3 * 5 * 16, 15

# --- norms -------------------------------------------------------------------------------------------------------------------------


def test_norms():
    assert figures("LayerNormFunction", X, W, None, X, 1e-5)[1:4] == (5 * SIZE, 4 * SIZE + 32, 4 * SIZE + 4 * ROWS)
    assert figures("LayerNormFunctionBackward", (X,), X, W, B)[1:4] == (14 * SIZE, 4 * SIZE + 32 + 8 * ROWS, 2 * SIZE + 64)
    assert figures("Fast_RMS_Layernorm", X, W, 1e-6, False)[1:4] == (4 * SIZE, 2 * SIZE + 32, 2 * SIZE + 4 * ROWS)
    assert figures("Fast_Layernorm", X, W, B, 1e-6)[1] == 8 * SIZE


def test_the_gradient_of_a_norm_whose_weight_is_frozen():
    assert figures("Fast_RMS_LayernormBackward", (X,), X, W)[1:4] == (8 * SIZE, 4 * SIZE + 32 + 4 * ROWS, 2 * SIZE)
    assert figures("Fast_LayernormBackward", (X,), X, W, B)[1:4] == (11 * SIZE, 4 * SIZE + 32 + 8 * ROWS, 2 * SIZE)


# --- rotary embeddings: 2 sequences of 7 steps, 3 heads of 20, of which 12 rotate ----------------------------------------------------

HEADS, ANGLES, TURNED = bf16(2, 7, 3, 20), fp32(7, 6), 2 * 7 * 3 * 12
ALL, TABLES = 2 * 840, 2 * 4 * 42


@pytest.mark.parametrize("name", ["ApplyRotaryEmb", "RotaryEmbeddingFunction"])
def test_rotary_embeddings(name):
    copied = (0, 3 * TURNED, ALL + TABLES, ALL, "bf16")
    assert figures(name, HEADS, ANGLES, ANGLES, False, False, 0) == copied
    assert figures(name, HEADS, ANGLES, ANGLES, False, True, 0) == (0, 3 * TURNED, 2 * TURNED + TABLES, 2 * TURNED, "bf16")
    assert figures(f"{name}Backward", (HEADS,), HEADS, ANGLES, ANGLES, False, False, 0) == copied


def test_values_do_not_rotate():
    packed = bf16(2, 7, 3, 5, 20)
    assert figures("ApplyRotaryEmbQKV_", packed, ANGLES, ANGLES)[1] == 3 * (2 * 7 * 2 * 5 * 12)
    assert figures("ApplyRotaryEmbKV_", bf16(2, 7, 2, 5, 20), ANGLES, ANGLES)[3] == 2 * (2 * 7 * 5 * 12)
    assert reason("ApplyRotaryEmbQKV_", HEADS, ANGLES, ANGLES) == "arguments of another version of this operator"


# --- activations -------------------------------------------------------------------------------------------------------------------


def test_gates_of_two_tensors_or_of_two_halves():
    two = figures("SwiGLUFunction", X, X)
    assert two == (0, 15 * SIZE, 4 * SIZE, 2 * SIZE, "bf16")
    assert figures("SwiGLUFunction", bf16(3, 5, 32), False, False) == two
    assert figures("SwiGLUFunctionBackward", (X,), X, X) == (0, 21 * SIZE, 6 * SIZE, 4 * SIZE, "bf16")
    assert count(Signature("SwiGLUFunction", (X, X))).decomposes


def test_gates_with_a_bias_or_weights():
    assert figures("BiasSwiGLUFunction", bf16(15, 32), bf16(32), False)[1:4] == (16 * SIZE, 4 * SIZE + 64, 2 * SIZE)
    weighted = figures("WeightedSwiGLUFunctionBackward", (bf16(15, 16),), bf16(15, 32), fp32(15, 1))
    assert weighted[1:4] == (23 * SIZE, 2 * SIZE + 4 * SIZE + 60, 4 * SIZE + 60)
    assert figures("GeLUFunction", X, B)[1:4] == (23 * SIZE, 2 * SIZE + 32, 2 * SIZE)
    assert reason("GeGLUFunction", bf16(15, 31)) == "arguments of another version of this operator"


# --- Megatron-LM -------------------------------------------------------------------------------------------------------------------


def test_the_gradient_of_a_layer_is_added_in_float32():
    """10 of 40 tokens on this rank."""
    shard, weight, grad = bf16(10, 1, 16), bf16(24, 16), bf16(40, 1, 24)
    name = "LinearWithGradAccumulationAndAsyncCommunicationBackward"
    plain = figures(name, (grad,), shard, weight, None, False, False, True)
    assert plain == (2 * 2 * 40 * 16 * 24, 0, 2 * (40 * 24 + 384 + 640), 2 * (640 + 384), "bf16")
    added = figures(name, (grad,), shard, weight, None, True, False, True)
    assert added == (plain[0], 384, plain[2] + 4 * 384, 2 * 640 + 4 * 384, "bf16")
    assert figures(name, (grad,), shard, weight, bf16(24), False)[1] == 40 * 24


def test_tokens_go_to_other_ranks():
    tokens, places, weights = bf16(6, 16), int64(6, 2), fp32(6, 2)
    sent = Signature("FusedDispatch", (tokens, places, weights, 8))
    assert count(sent).reason == "number of received tokens not recorded"
    known = count(sent, outputs=(bf16(9, 16), TensorArg((9, 2))))
    assert (known.category, known.work.bytes_read, known.work.bytes_written) == ("communication", 192 + 96 + 48, 288)
    back = counted("FusedDispatchBackward", (bf16(9, 16), fp32(9, 2)), tokens, places, weights, 8).work
    assert (back.bytes_read, back.bytes_written) == (288 + 72, 192)
