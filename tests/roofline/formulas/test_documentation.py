"""``docs/counting.md`` and ``docs/operators.csv`` state what the code does: costs, operators and examples."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from rooflines.roofline.formulas import costs
from tests.roofline.formulas import operators

PAGE = (Path(__file__).parents[3] / "docs" / "counting.md").read_text(encoding="utf-8")


def test_the_costs_on_the_page_are_those_of_the_code():
    stated = {name: int(value) for name, value in re.findall(r"`([A-Z_]+)`\s(\d+)\b", PAGE)}
    assert stated
    assert stated.items() <= vars(costs).items()


def test_the_list_of_operators_is_that_of_the_code():
    with operators.FILE.open(newline="", encoding="utf-8") as file:
        listed = list(csv.reader(file))
    assert listed == [["operator", "origin", "category"], *operators.rows()], "Run python tests/roofline/formulas/operators.py."


def test_the_first_example_runs():
    first, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code, _, shown = first.partition("\n# CallCount")
    scope: dict[str, object] = {}
    exec(code.replace("\ncount_call(", "\nresult = count_call("), scope)
    printed = "CallCount" + shown.replace("\n#      ", "")
    assert repr(scope["result"]) == " ".join(printed.split())
