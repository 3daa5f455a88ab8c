"""The page of ``benchmarks/networks_speed.py`` shows the numbers that it wrote."""

import importlib
import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results" / "networks_speed.json"


def test_the_page_shows_every_operator_with_its_share(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    result = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    assert page == importlib.import_module("networks_speed").tables(result)
    rows = page.rpartition("|---|---|---|---|---|\n")[2].splitlines()
    for row, one in zip(rows, result["operators"]["numba-cpu"], strict=True):
        name, *_, share = (cell.strip() for cell in row.strip("|").split("|"))
        assert name.endswith(one["name"])
        if not share.startswith("<"):
            assert float(share.removesuffix(" %")) == pytest.approx(100 * one["share_of_peak"], abs=0.5)
