"""The page of the recommendations: one gain for a change, and what to do where there are no ceilings."""

from __future__ import annotations

import msgspec
import pytest

from rooflines.profiler.records import Workload
from rooflines.reports.document import Findings, Paragraph
from rooflines.reports.views import advice
from rooflines.roofline.analysis import Finding
from rooflines.roofline.prediction.records import Change, Prediction
from tests.samples import analysis as sample

COMPILE = Finding(title="Fuse", saves_s=60e-6, evidence="many calls", suggestion="compile='on'", option="compile", value="on")


def test_a_recommendation_states_the_gain_that_the_table_predicts():
    analysis = msgspec.structs.replace(sample(), findings=(COMPILE,))
    change = Change(kind="compile", label="compiled", options={"compile": "on"})
    found, table = advice.page(analysis, [(change, Prediction(speedup=1.25, reason="fused"))]).sections
    (item,) = found.blocks[0].items
    assert (item.saves, item.share) == ("predicted 1.25 × the throughput", pytest.approx(0.2))
    assert table.blocks[0].rows[0].cells[2] == 1.25
    (alone,) = advice.findings_section(analysis).blocks[0].items
    assert alone.saves.startswith("up to 60.0 µs")


def test_a_trace_without_ceilings_says_how_to_get_them():
    traced = msgspec.structs.replace(
        sample(), ceilings=(), findings=(COMPILE,), workload=Workload(name="t", mode="inference", source="trace")
    )
    items, missing = advice.findings_section(traced).blocks
    assert isinstance(items, Findings)
    assert isinstance(missing, Paragraph)
    assert "--ceilings measured" in missing.text
    assert len(advice.findings_section(sample()).blocks) == 1
