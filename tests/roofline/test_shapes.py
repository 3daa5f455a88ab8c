"""Rows of one call: repeated layers, and shapes that depend on the data."""

from __future__ import annotations

import pytest

from rooflines.roofline.advise import categories
from rooflines.roofline.judge.shapes import repeated_key, shapes_range
from tests.roofline.advise.cases import case, row


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (["17x512"], "17x512"),
        (["17x512", "4096x512", "37x512"], "17–4096x512"),
        (["3 tensors of 96 elements", "3 tensors of 12 elements"], "3 tensors of 12–96 elements"),
        (["8x16", "8x16x4", "8x16x2"], "3 kinds of shapes"),
    ],
)
def test_the_range_of_shapes(shapes, text):
    assert shapes_range(shapes) == text


def test_a_call_whose_shapes_depend_on_the_data_has_one_key():
    """Rows with less than one call a step are parts of one call and share its key; other rows have keys with their shapes."""
    ragged = [row("aten::embedding", 0.001, 0.0005, calls=0.25, shapes=f"{rows}x64", module="lookup") for rows in (17, 4096)]
    whole = [row("aten::embedding", 0.001, 0.0005, calls=1, shapes=f"{rows}x64", module="lookup") for rows in (17, 4096)]
    assert len({repeated_key(one) for one in ragged}) == 1
    assert len({repeated_key(one) for one in whole}) == 2


def test_the_largest_loss_is_that_of_all_layers_together():
    """Forty-eight calls of 110 us lose more than one of 2 ms."""
    norms = {"category": "element-wise", "shapes": "8x64"}
    layers = [row("aten::add", 110e-6, 11e-6, module=f"layers.{number}.norm", **norms) for number in range(48)]
    alone = row("aten::add", 0.002, 0.0005, module="head", category="element-wise", shapes="9x64")
    found = categories.slow("element-wise")(case(*layers, alone))
    assert "largest loss: aten::add in layers.*.norm (8x64): 48 × 110 µs, 10 % of its bound" in found.evidence
