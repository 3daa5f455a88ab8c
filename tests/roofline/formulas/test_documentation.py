"""``docs/counting.md`` states what the code does: costs and an example."""

from __future__ import annotations

import re
from pathlib import Path

from rooflines.roofline.count.formulas import costs

PAGE = (Path(__file__).parents[3] / "docs" / "counting.md").read_text(encoding="utf-8")


def test_the_costs_on_the_page_are_those_of_the_code():
    stated = {name: int(value) for name, value in re.findall(r"`([A-Z_]+)`\s(\d+)\b", PAGE)}
    assert stated
    assert stated.items() <= vars(costs).items()


def test_the_first_example_runs():
    first, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code, _, shown = first.partition("\n# CallCount")
    scope: dict[str, object] = {}
    exec(code.replace("\ncount_call(", "\nresult = count_call("), scope)
    printed = "CallCount" + shown.replace("\n#      ", "")
    assert repr(scope["result"]) == " ".join(printed.split())
