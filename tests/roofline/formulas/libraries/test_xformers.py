"""xformers' operators apart from attention: closed forms by hand at odd shapes."""

from __future__ import annotations

from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int64, reason, uint8


def test_swiglu():
    inputs, weight = bf16(19, 37), bf16(53, 37)
    found = figures("xformers::dual_gemm_silu_identity_mul", inputs, weight, bf16(53), weight, None)
    read = (19 * 37 + 2 * 53 * 37 + 53) * 2
    assert found == (2 * 2 * 19 * 37 * 53, 19 * 53 * (14 + 1 + 1), read, 3 * 19 * 53 * 2, "bf16")
    found = figures("xformers::silu_bw_fused", bf16(19, 53), bf16(19, 53), bf16(19, 53))
    assert found == (0, 19 * 53 * 21, 3 * 19 * 53 * 2, 3 * 19 * 53 * 2, "bf16")
    found = figures("xformers::gemm_fused_operand_sum", bf16(53, 19), bf16(19, 37))
    assert found == (2 * 53 * 19 * 37, 53 * 19, (53 * 19 + 19 * 37) * 2, 53 * 38 * 2, "bf16")


def test_two_of_four_elements():
    inputs, mask = bf16(64, 96), uint8(8, 12, 8)
    found = figures("xformers::sparse24_sparsify_both_ways", inputs, None, None)
    assert found == (0, 6144, 12288, 12288 + 2 * 768 + 768, "bf16")
    assert figures("xformers::sparse24_apply", inputs, mask) == (0, 0, 12288 + 768, 12288 + 2 * 768, None)
    assert counted("xformers::sparseNM_dense", inputs, None, 2, 4).work.bytes == 2 * 12288
    assert counted("xformers::_sparse24_sm90_cutlass_compress", fp8(64, 96)).work.bytes_written == 64 * 48 + 768
    found = counted("xformers::_sparse24_gemm", bf16(64, 48), bf16(96, 37), uint8(64, 12)).work
    assert (found.matrix_flops, found.bytes_written) == (2 * 64 * 48 * 37, 64 * 37 * 2)
    scaled = (fp8(64, 48), uint8(64, 12), fp8(96, 37), fp32(64, 1), fp32(1, 37))
    found = counted("xformers::_sparse24_fp8_sm90_cutlass_gemm", *scaled).work
    assert (found.other_flops, found.bytes_written, found.precision) == (64 * 37, 64 * 37 * 2, "fp8")
    assert reason("xformers::_sparse24_gemm", bf16(64, 96), bf16(96, 37), uint8(64, 12)).endswith("not understood")


def test_rows_by_index():
    call = (bf16(7, 5, 11), int64(3), bf16(3, 5, 11), bf16(11), 1.5)
    assert figures("_ScaledIndexAdd", *call) == (0, 165 * 3, 24 + 330 + 22 + 330, 330, "bf16")
    assert figures("_ScaledIndexAddBackward", (bf16(7, 5, 11),), *call) == (0, 165 * 4, 330 + 24 + 22 + 330, 660, "bf16")
    call = (bf16(7, 11), bf16(9, 13), int64(3), int64(4))
    rows = (3 * 11 + 4 * 13) * 2
    assert figures("_IndexSelectCat", *call) == (0, 0, rows + 56, rows, None)
    assert figures("_IndexSelectCatBackward", (bf16(85),), *call) == (0, 0, rows + 56, (77 + 117) * 2, None)
