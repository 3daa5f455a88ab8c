"""A user's own operators, as docs/counting.md shows them: its examples run, and profiling them finds their rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import rooflines
from rooflines.roofline.work import table
from tests.commands import write_ceilings

PAGE = (Path(__file__).parents[2] / "docs" / "counting.md").read_text(encoding="utf-8")
CUSTOM, DECLARED = re.findall(r"```python\n(.*?)```", PAGE.partition("## Your own operators")[2], re.DOTALL)


@pytest.fixture(scope="module")
def custom():
    """What the first example defines; its formula is there for these tests only."""
    scope: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_FORMULAS", dict(table._FORMULAS))
        exec(compile(CUSTOM, "docs/counting.md", "exec"), scope)
        yield scope


@pytest.fixture
def profiled(tmp_path):
    def profile(step):
        run = rooflines.profile(
            step, ceilings=str(write_ceilings(tmp_path)), formats=("json",), output=tmp_path / "run", device="cpu", steps=2, warmup=1
        )
        return rooflines.analyze(run)

    return profile


def test_a_custom_operator_has_its_row(custom, profiled):
    x = torch.rand(1000)
    analysis = profiled(lambda: custom["damp"](x, 0.5))
    (row,) = [row for row in analysis.operators if row.name == "mylib::damp"]
    # One multiplication an element, 4 bytes read and 4 written.
    assert (row.calls, row.flops, row.bytes, row.category, row.precision) == (1, 1000, 8000, "element-wise", "fp32")
    assert row.time_s > 0
    assert row.lower_bound_s
    # What its implementation calls is part of it.
    assert not [row for row in analysis.operators if row.name == "aten::mul"]
    assert analysis.coverage.unmodelled == ()


def test_a_custom_operator_is_counted(custom):
    counted = rooflines.count(custom["damp"], torch.ones(1000), 0.5)
    assert (counted.flops, counted.bytes, counted.coverage) == (1000, 8000, 1.0)
    assert "rooflines.count(damp, torch.ones(1000), 0.5).flops  # 1000" in CUSTOM


def test_a_second_formula_for_an_operator_is_refused(custom):
    with pytest.raises(ValueError, match="operator 'mylib::damp' is registered twice"):
        rooflines.formula("mylib::damp", category="other")(custom["damp_work"])


def test_a_declared_kernel_has_its_row(profiled):
    scope: dict[str, object] = {}
    exec(compile(DECLARED, "docs/counting.md", "exec"), scope)
    analysis = profiled(scope["step"])
    (row,) = analysis.operators
    # A product and a sum an element; two vectors read, one written.
    assert (row.name, row.calls, row.flops, row.bytes) == ("decay", 1, 2 * 65536, 3 * 4 * 65536)
    assert row.time_s > 0
    assert row.lower_bound_s
    assert analysis.coverage.modelled_time_fraction == 1.0
    assert analysis.totals.flops == 2 * 65536


def test_declared_work_is_counted_and_what_it_calls_is_part_of_it():
    def step(x):
        with rooflines.work("mine", flops=5, bytes=7):
            x = x.exp() + 1
        return x * x

    counted = rooflines.count(step, torch.ones(1000))
    # Beside what is declared, one multiplication an element; both operands read and the result written.
    assert (counted.flops, counted.bytes) == (5 + 1000, 7 + 3 * 4000)
    assert sorted(counted.operators["name"]) == ["aten::mul", "mine"]
