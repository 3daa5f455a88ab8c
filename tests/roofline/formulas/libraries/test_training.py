"""Libraries for training: autograd functions around kernels, and what is not guessed."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int64


def work(name, *args):
    return counted(name, *args).work


def node(name, gradients, *args):
    return work(name + "Backward", gradients, *args)


X, W, B = bf16(3, 5, 16), bf16(16), bf16(16)
SIZE, ROWS = 3 * 5 * 16, 15  # elements of X, its rows


def test_an_operator_of_apex_has_its_saved_statistics():
    found = work("apex::fused_layer_norm_affine_bwd", X, fp32(15), fp32(15), X, (16,), W, B, 1e-6, False)
    assert found == node("FusedLayerNormAffineFunction", (X,), X, W, B)


def test_outliers_are_not_guessed():
    args = (bf16(5, 16), TensorArg((5, 16), "int8"), TensorArg((7, 16), "int8"), fp32(5), fp32(7))
    assert count(Signature("bitsandbytes::int8_mixed_scaled_mm", args)).decomposes
    assert count(Signature("bitsandbytes::int8_mixed_scaled_mm", (*args, TensorArg((2,), "int64")))).kind == "unknown"


def test_torchao_passes_its_quantization_on():
    assert count(Signature("torchao::quantize_affine_float8_non_decomposed", (X,))).kind == "composite"
    sparse = work("torchao::rowwise_scaled_linear_sparse_cutlass_f8f8", TensorArg((5, 16), "float8_e4m3fn"), fp32(5),
                  TensorArg((7, 8), "float8_e4m3fn"), TensorArg((7, 2), "uint8"), fp32(7))  # fmt: skip
    assert (sparse.matrix_flops, sparse.bytes_written) == (2 * 5 * 8 * 7, 70)


@pytest.mark.parametrize("name", ["LigerRMSNormFunction", "FusedRMSNormFunction", "LigerLayerNormFunction"])
def test_a_gradient_needs_its_forward_call(name):
    assert count(Signature(name + "Backward", (X,))).reason == "its forward call is not in the trace"


def test_the_gradient_of_a_norm_whose_weight_is_frozen():
    assert figures("Fast_RMS_LayernormBackward", (X,), X, W)[1:4] == (8 * SIZE, 4 * SIZE + 32 + 4 * ROWS, 2 * SIZE)
    assert figures("Fast_LayernormBackward", (X,), X, W, B)[1:4] == (11 * SIZE, 4 * SIZE + 32 + 8 * ROWS, 2 * SIZE)


def test_gates_of_two_tensors_or_of_two_halves():
    two = figures("SwiGLUFunction", X, X)
    assert figures("SwiGLUFunction", bf16(3, 5, 32), False, False) == two
    assert count(Signature("SwiGLUFunction", (X, X))).decomposes


def test_tokens_go_to_other_ranks():
    tokens, places, weights = bf16(6, 16), int64(6, 2), fp32(6, 2)
    sent = Signature("FusedDispatch", (tokens, places, weights, 8))
    assert count(sent).reason == "number of received tokens not recorded"
    known = count(sent, outputs=(bf16(9, 16), TensorArg((9, 2))))
    assert (known.category, known.work.bytes_read, known.work.bytes_written) == ("communication", 192 + 96 + 48, 288)
    back = counted("FusedDispatchBackward", (bf16(9, 16), fp32(9, 2)), tokens, places, weights, 8).work
    assert (back.bytes_read, back.bytes_written) == (288 + 72, 192)
