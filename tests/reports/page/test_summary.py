"""Summaries: every figure is the record's, the budget is kept, and the same record gives the same summary."""

import json
import math
import re
from pathlib import Path

import pytest

from rooflines import analyze, serial
from rooflines.errors import UsageError
from rooflines.reports.page import run as run_view
from rooflines.reports.page.statements import QUESTIONS
from rooflines.reports.page.summary import markdown, summarize, within
from rooflines.units import seconds
from tests.samples import analysis as sample

TRACES = Path(__file__).parents[2] / "data" / "traces"

RECORDED = (
    "bert-small_h100_inference.json.gz",
    "resnet50_v100_training_2021_schema.json.gz",
    "moe_b300_inference.json.gz",
    "cpu_only.json.gz",
)


@pytest.fixture(scope="module", params=("sample", *RECORDED))
def record(request):
    return sample() if request.param == "sample" else analyze(TRACES / request.param)


def summary(record, question=""):
    return summarize(record, run_view.page(record), "trace.json", "rooflines analyze trace.json --format json", question)


@pytest.mark.parametrize("question", ["", "operators", "memory", "communication", "idle", "host", "kernel e", "module "])
def test_every_figure_is_where_its_pointer_says(record, question):
    plain = serial.to_plain(record)
    try:
        found = summary(record, question)
    except UsageError:
        assert question.startswith(("kernel", "module"))
        return
    for statement in found.statements:
        assert statement.text.endswith(".")
        for pointer, value in statement.figures.items():
            assert serial.part(plain, pointer) == value
        at = statement.verify.partition(" --at ")[2]
        if at:
            json.dumps(serial.part(plain, at))


def test_it_says_the_verdict_and_the_recommendations_of_the_page(record):
    found = summary(record)
    assert found.verdict == run_view.page(record).verdict
    changes = [statement for statement in found.statements if statement.about == "change"]
    assert [next(iter(statement.figures.values())) for statement in changes if statement.figures] == [
        finding.later_s or finding.gain_s for finding in record.findings if finding.later_s or finding.gain_s >= 0.01 * record.whole_s
    ]


def test_it_is_the_same_each_time(record):
    assert markdown(summary(record)) == markdown(summary(record))


@pytest.mark.parametrize("budget", [5, 120, 300, 1000])
def test_a_budget_keeps_the_first_statements(record, budget):
    whole = summary(record)
    kept = within(whole, budget)
    assert kept.verdict == whole.verdict
    assert kept.statements == whole.statements[: len(kept.statements)]
    assert kept.left_out == len(whole.statements) - len(kept.statements)
    assert not kept.statements or math.ceil(len(markdown(kept)) / 4) <= budget
    assert ("left out (--budget)" in markdown(kept)) == bool(kept.left_out)


def test_a_budget_of_lines():
    whole = summary(sample())
    assert markdown(within(whole, 20, lines=True)).count("\n") <= 20


def test_rows_are_those_that_could_save_a_hundredth_of_the_step():
    record = sample()
    rows = [statement for statement in summary(record).statements if statement.about == "operator" and statement.figures]
    worth = [row for row in record.operators if row.headroom_s >= 0.01 * record.whole_s]
    assert len(rows) >= len(worth) - 1  # repeated layers are one row
    first, *_ = (value for name, value in rows[0].figures.items() if name.endswith("headroom_s"))
    saved_s = first if isinstance(first, float) else sum(one["headroom_s"] for one in first)
    assert saved_s >= max(row.headroom_s for row in record.operators)


@pytest.mark.ci
@pytest.mark.parametrize("trace", ["vit-b16_mi300x_inference.json.gz", "gpt-oss_b200_prefill.json.gz"])
def test_the_figures_of_a_folded_row_add_up_to_it(trace):
    statements = summary(analyze(TRACES / trace), "operators").statements
    folded = [one for one in statements if re.search(r"/\d+[-,]", next(iter(one.figures), ""))]
    assert folded
    for statement in folded:
        (pointer, values), *_ = statement.figures.items()
        times_s = [value if isinstance(value, float) else value["time_s"] for value in values]
        assert f": {seconds(sum(times_s))} a step" in statement.text
        assert statement.verify.endswith(f" --at {pointer}")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("why", "unknown question 'why'"),
        ("kernel", "unknown question 'kernel'"),
        ("memory of it", "unknown question 'memory of it'"),
        ("kernel no_such_kernel", "no kernel is called 'no_such_kernel'"),
    ],
)
def test_a_question_that_cannot_be_answered(question, message):
    with pytest.raises(UsageError, match=message) as caught:
        summary(sample(), question)
    assert caught.value.hint
    assert set(QUESTIONS) == {"operators", "lines", "memory", "communication", "idle", "host", "kernel NAME", "module PATH"}
