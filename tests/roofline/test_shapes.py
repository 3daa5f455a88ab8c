"""Rows of one call: repeated layers, and shapes that depend on the data."""

import pytest
import torch

import rooflines
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
    assert "largest loss: aten::add in layers.*.norm (48 × 110 µs at 10 %)" in found.evidence


def test_a_call_whose_shapes_depend_on_the_data_is_one_row(tmp_path):
    """Six steps, each with as many rows as its data has: a product, its backward, and a square matrix of the same size in all."""
    weight, square, sizes = torch.randn(64, 32, requires_grad=True), torch.randn(48, 48), (10, 20, 30, 40, 50, 60)
    steps = torch.profiler.schedule(wait=0, warmup=1, active=6, repeat=1)
    path = str(tmp_path / "trace.json")
    with torch.profiler.profile(
        record_shapes=True, schedule=steps, on_trace_ready=lambda one: one.export_chrome_trace(path)
    ) as profiler:
        for size in (70, *sizes):
            (torch.randn(size, 64) @ weight).sum().backward()
            square @ square
            profiler.step()
    analysis = rooflines.analyze(path)
    assert analysis.basis.steps == 6
    rows = [*analysis.operators, *analysis.coverage.unmodeled]
    assert all(row.calls >= 1 for row in rows if row.phase == "forward")
    varying, same = sorted((row for row in rows if row.name == "aten::mm" and row.phase == "forward"), key=lambda row: row.shapes)
    assert (varying.shapes, same.shapes) == ("10–60x64, 64x32", "48x48, 48x48")
    assert (varying.calls, varying.flops) == (1, 2 * 64 * 32 * sum(sizes) // 6)
    assert len(varying.step_times_s) == 6
    assert varying.time_s == pytest.approx(sum(varying.step_times_s) / 6)
    (gradient,) = (row for row in rows if row.name == "aten::mm" and row.phase == "backward")
    assert (gradient.calls, gradient.flops) == (1, 2 * 64 * 32 * sum(sizes) // 6)
    # What ran when speaks of the same rows.
    placed = {at for at in analysis.activity.rows if at >= 0} | set(analysis.activity.unplaced)
    assert max(placed) < len(rows)
    assert {rows[at].name for at in placed} >= {"aten::mm"}
