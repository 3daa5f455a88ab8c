"""torchao's conversions, and products that are not aten's: closed forms by hand at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import TensorArg
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int8, int32, uint8

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


def test_scales_of_groups():
    found = figures("torchao::triton_fp8_per_group_rowwise_scales", bf16(37, 53), int32(5))
    assert found == (0, 37 * 53 * DYNAMIC, 37 * 53 * 2 + 20, 37 * 53 + 5 * 37 * 4, "bf16")
    found = figures("torchao::triton_fp8_per_group_colwise_scales_dual", bf16(37, 53), bf16(37, 19), int32(5))
    assert found == (0, 37 * 72 * DYNAMIC, 37 * 72 * 2 + 20, 37 * 72 + 5 * 72 * 4, "bf16")


def test_both_directions_read_once():
    found = figures("torchao::mxfp8_quantize", bf16(96, 64), True, True, 32, 32, None, None)
    assert found == (0, 2 * 6144 * DYNAMIC, 2 * 6144, 2 * (6144 + 192), "bf16")


def test_half_a_byte():
    assert figures("ao::mslk_quantize_nvfp4", bf16(19, 64)) == (0, 1216 * DYNAMIC, 2432, 608 + 76, "bf16")
    stacked = counted("ao::mslk_quantize_nvfp4_stacked", TensorArg((5,), "int64"), bf16(19, 64), fp32(5)).work
    assert (stacked.bytes_read, stacked.bytes_written) == (2432 + 40 + 20, 608 + 76)
    assert figures("ao::mslk_calculate_group_max", bf16(19, 64), int32(5)) == (0, 2432, 2432 + 20, 20, "bf16")


def test_widening():
    found = figures("torchao::triton_mxfp8_dequant_dim0", fp8(19, 64), uint8(19, 2), 15)
    assert found == (0, 1216, 1216 + 38, 2432, "bf16")


def test_moves():
    assert figures("torchao::triton_mx_block_rearrange", uint8(37, 8)) == (0, 0, 296, 296, None)
    assert figures("torchao::fused_pad_token_groups", bf16(37, 64), int32(5), 32) == (0, 0, 4736 + 20, 4736, None)
    found = figures("torchao::fused_unpad_token_groups", bf16(160, 64), int32(5), int32(5), 37, 32)
    assert found == (0, 0, 4736 + 40, 4736, None)
    found = figures("torchao::_triton_permute_bwd", bf16(29, 64), int32(29), 37, 64)
    assert found == (0, 0, 29 * 128 + 29 * 4, 37 * 128, None)


def test_products():
    found = figures("torchao::triton_fp8_gemm_1x128_128x128", fp8(19, 256), fp8(256, 384), fp32(19, 2), fp32(2, 3))
    assert found == (2 * 19 * 256 * 384, 19 * 384, 19 * 256 + 256 * 384 + 4 * (38 + 6), 19 * 384 * 4, "fp8")
    found = figures("ao::blockwise_fp8_gemm", fp8(2, 19, 256), fp32(2, 19, 2), fp8(384, 256), fp32(3, 2))
    assert found == (2 * 38 * 256 * 384, 38 * 384, 38 * 256 + 256 * 384 + 4 * (76 + 6), 38 * 384 * 2, "fp8")
    scales = (fp32(19), int32(19), uint8(2, 4, 32, 16), fp32(2, 4, 32), int8(2, 4, 32), int32(2, 4, 32))
    found = figures("torchao::da8w4_linear_cpu", uint8(19, 128), *scales, fp32(64), 6)
    assert found[:2] == (2 * 19 * 128 * 64, 19 * 64 * 3 + 2 * 128 * 64)
    assert found[3:] == (19 * 64 * 4, "int8")
