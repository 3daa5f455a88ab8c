"""The page of the recommendations: one gain for a change, and what to do where there are no ceilings."""

from msgspec.structs import replace

from rooflines.profiler.records import Workload
from rooflines.reports.document import Findings, Paragraph
from rooflines.reports.page import advice
from rooflines.roofline.analysis import Finding
from tests.samples import analysis as sample

COMPILE = Finding(title="Fuse", saves_s=60e-6, evidence="many calls", suggestion="compile='on'", option="compile", value="on")


def test_a_trace_without_ceilings_says_how_to_get_them():
    traced = replace(sample(), ceilings=(), findings=(COMPILE,), workload=Workload(name="t", mode="inference", source="trace"))
    items, missing = advice.findings_section(traced).blocks
    assert isinstance(items, Findings)
    assert isinstance(missing, Paragraph)
    assert "--ceilings measured" in missing.text
    assert len(advice.findings_section(sample()).blocks) == 1
