"""No figure changes unseen: ``python -m tests.golden`` approves what did, ``compare REVISION`` shows it."""

from __future__ import annotations

import json

import pytest

from tests.golden import STORE, hashes, items

KNOWN = json.loads(STORE.read_text())
SLOW = ("count ", "predict ")


@pytest.mark.parametrize(
    ("name", "compute"),
    [pytest.param(name, compute, id=name, marks=[pytest.mark.slow] * name.startswith(SLOW)) for name, compute in items()],
)
def test_the_figures_are_those_that_were_approved(name, compute):
    found = hashes(compute())
    assert {part for part in {*found, *KNOWN[name]} if found.get(part) != KNOWN[name].get(part)} == set(), "parts that differ"


def test_every_item_is_known():
    assert {name for name, _ in items()} == set(KNOWN)
