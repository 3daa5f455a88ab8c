"""Liger, Apex, TransformerEngine, Mamba, causal-conv1d, bitsandbytes, torchao: closed forms by hand at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import count
from rooflines.roofline.formulas.counter import registered
from tests.roofline.formulas.libraries.calls import bf16, counted, fp32


def work(name, *args):
    return counted(name, *args).work


def node(name, gradients, *args):
    return work(name + "Backward", gradients, *args)


X, W, B = bf16(3, 5, 16), bf16(16), bf16(16)
N = 3 * 5 * 16  # elements of X


# --- norms: 2 bytes an element, statistics of 15 rows in float32 --------------------------------------------------------------------

FORWARD = [
    ("LigerRMSNormFunction", (X, W, 1e-6), 4 * N, 2 * N + 32, 2 * N + 60),
    ("LigerFusedAddRMSNormFunction", (X, X, W, 1e-6), 5 * N, 4 * N + 32, 4 * N + 60),
    ("LigerLayerNormFunction", (X, W, B, 1e-6), 8 * N, 2 * N + 64, 2 * N + 120),
    ("FusedRMSNormFunction", (X, 1e-6), 3 * N, 2 * N, 2 * N + 60),
    ("FusedLayerNormAffineFunction", (X, W, B), 8 * N, 2 * N + 64, 2 * N + 120),
    ("FastLayerNormFN", (X, W, B, 1e-6), 8 * N, 2 * N + 64, 2 * N + 120),
    ("apex::fused_rms_norm_affine_fwd", (X, W, (16,), 1e-6, False), 4 * N, 2 * N + 32, 2 * N + 60),
    ("LayerNormFn", (X, W, None, X), 5 * N, 4 * N + 32, 4 * N + 60),
    ("LayerNormFn", (X, W, B), 8 * N, 2 * N + 64, 2 * N + 120),
    ("_RMSNorm", (X, W), 4 * N, 2 * N + 32, 2 * N + 60),
]


@pytest.mark.parametrize(("name", "args", "flops", "read", "written"), FORWARD)
def test_norms(name, args, flops, read, written):
    found = work(name, *args)
    assert (found.flops, found.bytes_read, found.bytes_written) == (flops, read, written)


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


# --- layers ------------------------------------------------------------------------------------------------------------------------

UP, DOWN, BIAS = bf16(48, 16), bf16(16, 24), bf16(48)
ROWS = 15


def test_linear_layers():
    dense = work("FusedDenseFunc", X, UP, BIAS)
    assert (dense.matrix_flops, dense.other_flops, dense.bytes) == (2 * ROWS * 16 * 48, ROWS * 48, 2 * (N + 768 + 48 + ROWS * 48))


# --- Mamba -------------------------------------------------------------------------------------------------------------------------


def test_selective_scan():
    inputs, decay, key = bf16(2, 6, 9), fp32(6, 4), bf16(2, 1, 4, 9)
    scan = work("SelectiveScanFn", inputs, inputs, decay, key, key)
    kept = 2 * 6 * 1 * 4 * 2 * 4
    assert (scan.flops, scan.bytes_read, scan.bytes_written) == (108 * 4 * 16, 2 * 216 + 96 + 2 * 144, 216 + kept)
    gated = work("SelectiveScanFn", inputs, inputs, decay, key, key, fp32(6), inputs, fp32(6))
    assert (gated.flops, gated.bytes_written) == (scan.flops + 108 * (2 * 2 + 15), scan.bytes_written + 216)
    back = node("SelectiveScanFn", (inputs,), inputs, inputs, decay, key, key)
    assert (back.flops, back.bytes_written) == (108 * 4 * 29, 2 * 216 + 96 + 2 * 144)


def test_a_block_of_mamba():
    weights = (bf16(6, 1, 4), bf16(6), bf16(11, 6), bf16(6, 3), bf16(5, 6))
    found = work("MambaInnerFn", bf16(2, 12, 9), *weights, None, fp32(6, 4), None, None, fp32(6), fp32(6))
    rows = 18
    products = 2 * rows * (11 * 6 + 6 * 3 + 5 * 6)
    assert (found.matrix_flops, found.bytes_written) == (products + 2 * rows * 6 * 4, rows * 5 * 2)


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


def test_every_library_loads():
    assert {"LigerRMSNormFunction", "_LayerNorm", "MambaInnerFn", "fbgemm::f8f8bf16_rowwise", "torchao::mx_fp8_bf16"} <= set(
        registered()
    )
