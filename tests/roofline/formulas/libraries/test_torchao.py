"""torchao's conversions, and products that are not aten's: closed forms by hand at odd shapes."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, figures

DYNAMIC = 7


@pytest.mark.parametrize(
    ("name", "args", "scales"),
    [
        ("torchao::triton_to_mxfp8_dim0", (bf16(96, 64), 32, None), 192),
        ("torchao::triton_to_mxfp8_dim1", (bf16(96, 64),), 192),
        ("torchao::mxfp8_quantize_2d_32x1_cutedsl", (bf16(96, 64), 32), 192),
        ("torchao::mxfp8_quantize_3d_cutedsl", (bf16(3, 64, 96), 32, 32, 32), 18),
        ("torchao::triton_fp8_blockwise_act_quant_lhs", (bf16(19, 256),), 19 * 2 * 4),
        ("torchao::triton_fp8_blockwise_weight_quant_rhs", (bf16(300, 256),), 3 * 2 * 4),
        ("torchao::triton_fp8_blockwise_weight_quant_grouped_dgrad_rhs", (bf16(5, 300, 256),), 5 * 3 * 2 * 4),
        ("torchao::triton_fp8_rowwise_transpose_rhs", (bf16(5, 37, 53),), 5 * 37 * 4),
        ("torchao::triton_fp8_colwise_3d_scale_and_cast", (bf16(5, 37, 53),), 5 * 53 * 4),
        ("torchao::triton_fp8_rowwise_2d_scale_and_cast", (bf16(37, 53),), 37 * 4),
    ],
)
def test_a_byte_for_each_element_and_scales(name, args, scales):
    elements = args[0].numel
    assert figures(name, *args) == (0, elements * DYNAMIC, 2 * elements, elements + scales, "bf16")
