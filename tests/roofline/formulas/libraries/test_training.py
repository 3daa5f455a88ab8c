"""Norms of libraries for training, and what is not guessed."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, counted, fp32


def work(name, *args):
    return counted(name, *args).work


def node(name, gradients, *args):
    return work(name + "Backward", gradients, *args)


X, W, B = bf16(3, 5, 16), bf16(16), bf16(16)
N = 3 * 5 * 16  # elements of X


BACKWARD = [
    ("LigerRMSNormFunction", (X, W, 1e-6), 10 * N, 4 * N + 32 + 60, 2 * N + 32),
    ("FusedRMSNormFunction", (X,), 7 * N, 4 * N + 60, 2 * N),
    ("LigerLayerNormFunction", (X, W, B), 14 * N, 4 * N + 32 + 120, 2 * N + 64),
]


@pytest.mark.parametrize(("name", "args", "flops", "read", "written"), BACKWARD)
def test_backward_of_norms(name, args, flops, read, written):
    found = node(name, (X,), *args)
    assert (found.flops, found.bytes_read, found.bytes_written) == (flops, read, written)
    assert count(Signature(name + "Backward", (X,))).reason == "its forward call is not in the trace"


def test_an_operator_of_apex_has_its_saved_statistics():
    found = work("apex::fused_layer_norm_affine_bwd", X, fp32(15), fp32(15), X, (16,), W, B, 1e-6, False)
    assert found == node("FusedLayerNormAffineFunction", (X,), X, W, B)


# --- bitsandbytes and torchao ------------------------------------------------------------------------------------------------------


def test_outliers_are_not_guessed():
    args = (bf16(5, 16), TensorArg((5, 16), "int8"), TensorArg((7, 16), "int8"), fp32(5), fp32(7))
    assert count(Signature("bitsandbytes::int8_mixed_scaled_mm", args)).decomposes
    assert count(Signature("bitsandbytes::int8_mixed_scaled_mm", (*args, TensorArg((2,), "int64")))).kind == "unknown"


def test_torchao_passes_its_quantization_on():
    assert count(Signature("torchao::quantize_affine_float8_non_decomposed", (X,))).kind == "composite"
    sparse = work("torchao::rowwise_scaled_linear_sparse_cutlass_f8f8", TensorArg((5, 16), "float8_e4m3fn"), fp32(5),
                  TensorArg((7, 8), "float8_e4m3fn"), TensorArg((7, 2), "uint8"), fp32(7))  # fmt: skip
    assert (sparse.matrix_flops, sparse.bytes_written) == (2 * 5 * 8 * 7, 70)
