"""Matrix products on fallback kernels."""

from __future__ import annotations

import msgspec
import pytest

from rooflines.profiler.records import Environment
from rooflines.roofline.advice import matrix
from tests.roofline.advice.cases import analysis, case, kernel, row, unmodelled

ALIGN1 = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x1_tn_align1>"
ALIGN2 = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>"


def product(name, shapes="512x3137, 3137x64", time_s=0.04, bound_s=0.001, precision="fp16", **more):
    return row(
        "aten::mm", time_s, bound_s, shapes=shapes, category="matmul", precision=precision, kernels=(kernel(name, time_s),), **more
    )


def test_an_odd_size_is_named_and_padded():
    found = matrix.fallback(case(product(ALIGN1)))
    assert found.saves_s == pytest.approx(0.04 - 0.001 * 3144 / 3137)
    assert "pad 3137 to a multiple of 8" in found.suggestion
    assert "40 % of the step" in found.evidence


def test_the_size_is_the_one_that_fits_the_kernel():
    found = matrix.fallback(case(product(ALIGN2, "30522, 141x512, 512x30522", precision="bf16")))
    assert "pad 30522 to a multiple of 8" in found.suggestion
    assert "141" not in found.suggestion


@pytest.mark.parametrize(
    ("name", "precision", "device", "slow"),
    [
        ("volta_sgemm_128x64_nn", "fp16", "NVIDIA A100", True),
        ("volta_sgemm_128x64_nn", "fp32", "NVIDIA A100", False),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align4", "bf16", "NVIDIA A100", True),
        ("cutlass_75_tensorop_s1688gemm_f16_256x128_32x2_nn_align8", "fp16", "NVIDIA H100 80GB HBM3", True),
        ("cutlass_75_tensorop_s1688gemm_f16_256x128_32x2_nn_align8", "fp16", "NVIDIA A100", False),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "tf32", "NVIDIA H100 80GB HBM3", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_cublas", "bf16", "NVIDIA H100 80GB HBM3", False),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_tn", "fp16", "NVIDIA A100", False),
    ],
)
def test_which_kernels_are_fallbacks(name, precision, device, slow):
    made = analysis(product(name, precision=precision))
    made = msgspec.structs.replace(made, environment=Environment(rooflines="0", device="cuda:0", device_name=device))
    assert (matrix.fallback(matrix.Case(made)) is not None) == slow


def test_sizes_that_are_aligned_are_not_padded():
    assert matrix.fallback(case(product("volta_sgemm_128x64_nn", "512x1024, 1024x64"))) is None
    assert matrix.fallback(case(product(ALIGN1, "512x1024, 1024x64"))) is None


def test_without_shapes_a_saving_is_not_stated_and_only_much_time_is_worth_it():
    found = matrix.fallback(case(unmodelled("aten::bmm", 0.04, kernels=(kernel(ALIGN1, 0.04),))))
    assert found.saves_s is None
    assert "shapes are not recorded" in found.evidence
    assert matrix.fallback(case(unmodelled("aten::bmm", 0.004, kernels=(kernel(ALIGN1, 0.004),)))) is None


def test_fallback_kernels_inside_a_compiled_function():
    compiled = unmodelled("CompiledFunction", 0.03, kernels=(kernel(ALIGN1, 0.02), kernel("triton_poi_fused_add_0", 0.01)))
    found = matrix.fallback(case(compiled))
    assert (found.saves_s, found.of) == (None, {("unmodelled", 0): 0.02})
    assert "inside compiled functions" in found.evidence
    small = unmodelled("CompiledFunction", 0.03, kernels=(kernel(ALIGN1, 0.001), kernel("triton_poi_fused_add_0", 0.029)))
    assert matrix.fallback(case(small)) is None
