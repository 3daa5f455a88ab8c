"""``docs/counting.md`` states what the code does: its cost table, its operator lists and its examples."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.counter import registered
from rooflines.roofline.formulas.families import is_torchs
from rooflines.roofline.formulas.ragged import NESTED
from rooflines.roofline.formulas.sparse import SEARCH, SPARSE
from rooflines.roofline.formulas.views import ALLOCATIONS, METADATA, VIEWS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "counting.md").read_text(encoding="utf-8")
LIBRARIES = (DOCS / "libraries.md").read_text(encoding="utf-8")


def test_the_cost_table_is_that_of_the_code():
    stated = {name: int(value) for name, value in re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", PAGE, re.MULTILINE)}
    assert stated == {name: value for name, value in vars(costs).items() if name.isupper()}


def plain(names):
    """Names without ``aten::``, and without the in-place form of one that is there."""
    return {name.removeprefix("aten::") for name in names if not (name.endswith("_") and name[:-1] in registered())}


def listed(heading):
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0].partition("\n\nEverything")[0]
    return set(re.findall(r"`([^`]+)`", section))


NOTHING = {*VIEWS, *ALLOCATIONS, *METADATA, "detach", "detach_"}
UNKNOWN = {*NESTED, *SPARSE, SEARCH}
OF_TORCH = {name: category for name, category in registered().items() if is_torchs(name)}
CATEGORIES = sorted(set(OF_TORCH.values()) - {"other"})


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_counted_operator_is_listed(category):
    assert listed(category.capitalize()) == plain(name for name, found in OF_TORCH.items() if found == category)


def test_what_is_counted_and_has_no_category_is_listed():
    others = plain(name for name, found in OF_TORCH.items() if found == "other") - plain(NOTHING)
    assert listed("Other") == others - plain(UNKNOWN)
    assert listed("Unknown for all shapes") == plain(UNKNOWN)


def test_every_operator_of_a_library_is_listed():
    stated = set(re.findall(r"`([^`]+)`", LIBRARIES))
    patterns = [name for name in stated if "*" in name.strip("*")]
    left = {name for name in registered() if not is_torchs(name)} - stated
    assert [name for name in left if not any(fnmatchcase(name, pattern) for pattern in patterns)] == []


def test_every_listed_operator_of_a_library_exists():
    namespaces = {name.partition("::")[0] for name in registered() if "::" in name}
    stated = {name for name in re.findall(r"`(\w+::[^`…]+)`", LIBRARIES) if name.partition("::")[0] in namespaces}
    assert [name for name in stated if not any(fnmatchcase(known, name) for known in registered())] == []


def test_what_is_zero_is_listed():
    assert listed("Zero on purpose") == plain(NOTHING)


def test_the_first_example_runs():
    first, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code, _, shown = first.partition("\n# CallCount")
    scope: dict[str, object] = {}
    exec(code.replace("\ncount_call(", "\nresult = count_call("), scope)
    printed = "CallCount" + shown.replace("\n#      ", "")
    assert repr(scope["result"]) == " ".join(printed.split())
