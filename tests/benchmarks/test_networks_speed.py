"""docs/networks.md shows the numbers that ``benchmarks/networks_speed.py`` wrote, and no others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- python benchmarks/networks_speed.py --table -->\n", "\n<!-- end of networks_speed.py -->\n"


@pytest.fixture(scope="module")
def printed():
    command = [sys.executable, str(ROOT / "benchmarks" / "networks_speed.py"), "--table"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


def test_the_page_has_what_the_benchmark_prints(printed):
    text = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.split(BEGIN)[1].split(END)[0].strip() == printed, "put what --table prints between the two comments"


def test_the_prose_around_has_no_measured_figures():
    section = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8").split("## Speed")[1]
    prose = section.split(BEGIN)[0] + section.split(END)[1]
    assert not re.findall(r"\d[\d,.]*(?: %|%| samples/s)", prose)


def test_every_operator_is_in_the_table_with_its_share(printed):
    result = json.loads((ROOT / "benchmarks" / "results" / "networks_speed.json").read_text(encoding="utf-8"))
    rows = printed.rpartition("|---|---|---|---|---|\n")[2].splitlines()
    for row, one in zip(rows, result["operators"]["numba-cpu"], strict=True):
        name, *_, share = (cell.strip() for cell in row.strip("|").split("|"))
        assert name.endswith(one["name"])
        if not share.startswith("<"):
            assert float(share.removesuffix(" %")) == pytest.approx(100 * one["share_of_peak"], abs=0.5)
