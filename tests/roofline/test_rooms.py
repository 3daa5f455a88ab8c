"""The rooms of docs/design.md by hand: each takes the record of the one before."""

import msgspec
import pytest

import rooflines
from rooflines.profiler.tree.tree import tree
from rooflines.reports.page.run import page
from rooflines.reports.render.markdown import render
from rooflines.roofline.advise.conclude import conclude
from rooflines.roofline.count.count import count
from rooflines.roofline.judge.judge import judge
from rooflines.roofline.own.own import own
from tests.roofline.real import DATA, analysis_of
from tests.roofline.rooms import read


@pytest.mark.parametrize("name", ["ddp_rank0.json.gz", "resnet50_v100_training_2021_schema.json.gz", "cpu_only.json.gz"])
def test_the_walk_of_a_trace(name):
    analysis = conclude(judge(own(count(tree(read(DATA / name))))).analysis)
    expected = analysis_of(DATA / name)
    # Without the name of the file nobody says which trace it was, or which data sheet judges it.
    assert [(row.name, row.calls, row.flops, row.bytes, row.time_s) for row in analysis.operators] == [
        (row.name, row.calls, row.flops, row.bytes, row.time_s) for row in expected.operators
    ]
    assert analysis.timeline == expected.timeline
    assert f"**{analysis.verdict.partition('.')[0]}" in render(page(analysis))
    assert msgspec.json.decode(msgspec.json.encode(analysis), type=rooflines.Analysis) == analysis
