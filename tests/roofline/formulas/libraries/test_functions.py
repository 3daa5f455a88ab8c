"""Autograd functions around kernels: what their tensors and results say."""

from __future__ import annotations

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int64

X, W, B = bf16(3, 5, 16), bf16(16), bf16(16)
SIZE, ROWS = 3 * 5 * 16, 15


def test_the_gradient_of_a_norm_whose_weight_is_frozen():
    assert figures("Fast_RMS_LayernormBackward", (X,), X, W)[1:4] == (8 * SIZE, 4 * SIZE + 32 + 4 * ROWS, 2 * SIZE)
    assert figures("Fast_LayernormBackward", (X,), X, W, B)[1:4] == (11 * SIZE, 4 * SIZE + 32 + 8 * ROWS, 2 * SIZE)


# --- activations -------------------------------------------------------------------------------------------------------------------


def test_gates_of_two_tensors_or_of_two_halves():
    two = figures("SwiGLUFunction", X, X)
    assert two == (0, 15 * SIZE, 4 * SIZE, 2 * SIZE, "bf16")
    assert figures("SwiGLUFunction", bf16(3, 5, 32), False, False) == two
    assert figures("SwiGLUFunctionBackward", (X,), X, X) == (0, 21 * SIZE, 6 * SIZE, 4 * SIZE, "bf16")
    assert count(Signature("SwiGLUFunction", (X, X))).decomposes


# --- Megatron-LM -------------------------------------------------------------------------------------------------------------------


def test_tokens_go_to_other_ranks():
    tokens, places, weights = bf16(6, 16), int64(6, 2), fp32(6, 2)
    sent = Signature("FusedDispatch", (tokens, places, weights, 8))
    assert count(sent).reason == "number of received tokens not recorded"
    known = count(sent, outputs=(bf16(9, 16), TensorArg((9, 2))))
    assert (known.category, known.work.bytes_read, known.work.bytes_written) == ("communication", 192 + 96 + 48, 288)
    back = counted("FusedDispatchBackward", (bf16(9, 16), fp32(9, 2)), tokens, places, weights, 8).work
    assert (back.bytes_read, back.bytes_written) == (288 + 72, 192)
