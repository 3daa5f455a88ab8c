"""A user's own operators, as docs/counting.md shows them: its examples run, and profiling them finds their rows."""

import json
import re
from pathlib import Path

import pytest
import torch

import rooflines
from rooflines.roofline.count.formulas.registry import FORMULAS
from tests.commands import run, write_ceilings

PAGE = (Path(__file__).parents[2] / "docs" / "counting.md").read_text(encoding="utf-8")
CUSTOM, DECLARED = re.findall(r"```python\n(.*?)```", PAGE.partition("## Your own operators")[2], re.DOTALL)


@pytest.fixture(scope="module")
def custom():
    """What the first example defines; its formula is there for these tests only."""
    scope: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FORMULAS, "mylib::damp", None)  # what was there returns
        del FORMULAS["mylib::damp"]
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
    assert analysis.coverage.unmodeled == ()


def test_a_custom_operator_is_counted_once(custom):
    # A custom operator is counted.
    counted = rooflines.count(custom["damp"], torch.ones(1000), 0.5)
    assert (counted.flops, counted.bytes, counted.coverage) == (1000, 8000, 1.0)
    assert "rooflines.count(damp, torch.ones(1000), 0.5).flops  # 1000" in CUSTOM
    # A second formula for an operator is refused.
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
    assert analysis.coverage.modeled_time_fraction == 1.0
    assert analysis.totals.flops == 2 * 65536


def test_declared_work_is_counted_and_what_it_calls_is_part_of_it():
    def step(x):
        with rooflines.declare_work("mine", flops=5, bytes=7):
            x = x.exp() + 1
        return x * x

    counted = rooflines.count(step, torch.ones(1000))
    # Beside what is declared, one multiplication an element; both operands read and the result written.
    assert (counted.flops, counted.bytes) == (5 + 1000, 7 + 3 * 4000)
    assert sorted(counted.to_dataframe()["name"]) == ["aten::mul", "mine"]


EXTENDING = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8").partition("## A formula\n")[2]
FILES = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", EXTENDING.partition("\n## ")[0], re.DOTALL))
NETWORK = """
import torch

@torch.library.custom_op("mylib::damp", mutates_args=())
def damp(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor

damp.register_fake(lambda x, factor: torch.empty_like(x))

def network():
    x = torch.ones(1000)
    return lambda: damp(x, 0.5)
"""


@pytest.fixture
def counted(tmp_path):
    """The answer of ``rooflines count`` for one call of ``mylib::damp``, in a process that finds what is installed in ``tmp_path``."""
    (tmp_path / "network.py").write_text(NETWORK)

    def count(*options, expect=0):
        answer = run("count", tmp_path / "network.py:network", "--format", "json", *options, cwd=tmp_path)
        assert answer.code == expect, answer.err
        return json.loads(answer.out) if not expect else answer.err

    return count


def write_package(directory, value="mylib_formulas"):
    """The metadata of an installed package that names a module of formulas, as pip writes it."""
    information = directory / "mylib-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mylib\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[rooflines.formulas]\nmylib = {value}\n")


def test_an_operator_without_a_formula_is_counted_by_what_its_kernel_calls(counted):
    answer = counted()
    assert [(row["name"], row["kind"]) for row in answer["operators"]] == [("aten::mul", "counted")]


@pytest.mark.parametrize("installed", [False, True])
def test_a_file_and_an_installed_package_of_formulas_are_used(counted, tmp_path, installed):
    assert '[project.entry-points."rooflines.formulas"]\nmylib = "mylib_formulas"' in FILES["pyproject.toml"]
    (tmp_path / "mylib_formulas.py").write_text(FILES["mylib_formulas.py"])
    if installed:
        write_package(tmp_path)
    answer = counted(*(() if installed else ("--formulas", "mylib_formulas.py")))
    assert (answer["flops"], answer["bytes"], answer["coverage"]) == (1000, 8000, 1.0)


@pytest.mark.parametrize(("text", "message"), [
    (None, "no such file: 'some.py'."),
    ("1 / 0", "'some.py' cannot be loaded: ZeroDivisionError: division by zero."),
    (FILES["mylib_formulas.py"] * 2, "operator 'mylib::damp' is registered twice"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_is_named(counted, tmp_path, text, message):
    if text is not None:
        (tmp_path / "some.py").write_text(text)
    assert message in counted("--formulas", "some.py", expect=2)


def test_a_package_that_cannot_be_imported_is_named(counted, tmp_path):
    write_package(tmp_path, "not_there")
    assert "the formulas 'mylib' (not_there) cannot be loaded: ModuleNotFoundError" in counted(expect=2)
