"""Attention written by hand."""

from __future__ import annotations

import msgspec
import pytest

from rooflines.roofline.advice import matrix
from tests.roofline.advice.cases import case, kernel, row

SCORES = "8x12x513x513"


def written(module="layer.0.attention", phase="forward", softmax="layer.0.attention.softmax"):
    """Products, softmax and a scaling over 8 x 12 x 513 x 513 scores."""
    common = {"phase": phase, "precision": "bf16"}
    return [
        row("aten::bmm", 0.004, shapes="96x513x64, 96x64x513", category="matmul", module=module, **common),
        row("aten::div", 0.003, shapes=f"{SCORES}, scalar", category="element-wise", module=module, **common),
        row("aten::softmax", 0.005, shapes=SCORES, category="reduction", module=softmax, **common),
        row("aten::bmm", 0.004, shapes="96x513x513, 96x513x64", category="matmul", module=module, **common),
    ]


def test_products_and_softmax_in_one_module_are_one_fused_attention():
    other = row("aten::bmm", 0.02, shapes="96x513x64, 96x64x513", category="matmul", module="layer.1.attention")
    found = matrix.hand_written(case(*written(), other))
    assert "scaled_dot_product_attention" in found.suggestion
    # 4 x 96 x 513 x 513 x 64 FLOPs at 900 TFLOP/s are less than the traffic of q, k, v and the result at 3 TB/s.
    flops_s, bytes_s = 4 * 96 * 513 * 513 * 64 / 900e12, 4 * 96 * 513 * 64 * 2 / 3e12
    assert found.saves_s == pytest.approx(0.016 - max(flops_s, bytes_s))
    assert sum(found.of.values()) == pytest.approx(0.016)
    assert "layer.0.attention" in found.evidence


def test_fused_attention_is_measured_against_the_rate_of_other_products():
    slow = row("aten::mm", 0.01, 0.005, category="matmul", precision="bf16", shapes="64x64, 64x64")
    best = msgspec.structs.replace(slow, bound="compute", efficiency=0.5)
    long = [msgspec.structs.replace(one, shapes=one.shapes.replace("513", "1026")) for one in written()]
    at_roof, attained = (matrix.hand_written(case(*long, *more)) for more in ((), (best,)))
    flops_s = 4 * 96 * 1026 * 1026 * 64 / 900e12
    assert at_roof.saves_s == pytest.approx(0.016 - flops_s)
    assert attained.saves_s == pytest.approx(0.016 - flops_s / 0.5)


def test_products_on_a_fallback_kernel_are_named():
    rows = written()
    bmm = row("aten::bmm", 0.004, shapes="96x513x64, 96x64x513", category="matmul", module="layer.0.attention", precision="bf16",
              kernels=(kernel("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align1"),))  # fmt: skip
    assert "because 513 is not a multiple of 8" in matrix.hand_written(case(bmm, *rows[1:])).evidence


def test_without_ceilings_only_the_passes_over_the_scores_are_saved():
    found = matrix.hand_written(case(*written(), ceilings=()))
    assert found.saves_s == pytest.approx(0.008)


def test_the_backward_pass_counts_as_well():
    common = {"phase": "backward", "category": "matmul", "module": "a", "precision": "bf16"}
    backward = [
        row("aten::bmm", 0.004, shapes="96x513x513, 96x513x64", **common),
        row("aten::bmm", 0.004, shapes="96x513x64, 96x64x513", **common),
        row("aten::_softmax_backward_data", 0.004, shapes=f"{SCORES}, {SCORES}", **{**common, "category": "reduction"}),
        row("aten::bmm", 0.004, shapes="96x64x513, 96x513x513", **common),
    ]
    assert matrix.hand_written(case(*backward)).saves_s > 0.015


@pytest.mark.parametrize(
    "rows",
    [
        written()[2:3],  # a softmax alone: a classifier
        written()[:3],  # no product reads the scores
        written(softmax="layer.1.attention.softmax"),  # products of another module
        [row("aten::bmm", 0.01, category="matmul"), row("aten::softmax", 0.01), row("aten::bmm", 0.01, category="matmul")],  # no shapes
        [
            row("aten::linear", 0.01, shapes="64x512, 512x512", category="matmul"),
            row("aten::softmax", 0.01, shapes="64x512", category="reduction"),
            row("aten::linear", 0.01, shapes="64x512, 512x10", category="matmul"),
        ],
    ],
)
def test_what_is_not_attention_is_left_alone(rows):
    assert matrix.hand_written(case(*rows)) is None


def test_a_product_whose_last_argument_is_no_matrix():
    biased = row("aten::baddbmm", 0.004, shapes="96x513x64, 96x64x513, 513", category="matmul", module="layer.0.attention")
    assert matrix.hand_written(case(biased, *written()[1:])) is not None
