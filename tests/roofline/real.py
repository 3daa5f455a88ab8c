"""The real traces of ``tests/data`` and their analyses, each made once.

``ROOFLINES_TRACES`` names a directory with further traces (``*.json``, ``*.json.gz``) to check.
"""

import functools
import os
from pathlib import Path

import pytest

import rooflines
from rooflines.roofline.analysis import Analysis

DATA = Path(__file__).parent.parent / "data" / "traces"
# Of a capture, as of other traces with launches and without device events, nothing is judged.
NOT_JUDGED = sorted((*DATA.glob("*_capture.json.gz"), *(DATA / "not_judged").glob("*.json.gz")))
TRACES = sorted({*DATA.rglob("*.json.gz")} - {*NOT_JUDGED})
if "ROOFLINES_TRACES" in os.environ:
    TRACES += sorted(
        path for path in Path(os.environ["ROOFLINES_TRACES"]).rglob("*.json*") if path.name.endswith((".json", ".json.gz"))
    )

every_trace = pytest.mark.parametrize(
    "path", TRACES, ids=[str(path.relative_to(path.parents[1])).removesuffix(".gz") for path in TRACES]
)


@functools.cache
def analysis_of(path: Path) -> Analysis:
    """The analysis of a trace."""
    return rooflines.analyze(path)


def named(name: str) -> Analysis:
    """The analysis of a trace of this repository, by its name without the suffix."""
    return analysis_of(DATA / f"{name}.json.gz")
