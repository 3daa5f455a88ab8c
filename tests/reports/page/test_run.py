"""The time of a step by part, in every report: the table, and how the timed pass stands beside the traced one."""

from html import unescape

import pytest
from msgspec.structs import replace

from rooflines.reports.charts.palette import BOUNDS
from rooflines.reports.document import value_of
from rooflines.reports.page import run as view
from rooflines.reports.page.run import division_rows, division_title, input_sentences
from rooflines.reports.render.html import render
from rooflines.reports.words.sentences import device_sentences
from rooflines.roofline.advise.verdict import verdict
from rooflines.roofline.analysis import PARTS, Input, Rate, StepDivision
from tests.printing import in_terminal
from tests.samples import analysis as sample

DEVICE = StepDivision(
    of="device", step_s=0.1, data_loading_s=0.05, host_to_device_s=0.01, forward_s=0.02, backward_s=0.015, idle_s=0.005, loader_s=0.06
)  # fmt: skip
FED = Input(
    loader="DataLoader", wait_s=0.042, wait_fraction=0.5, delay_s=0.042, delay_fraction=0.5, unit="images", workers=2, ready_batches=4,
    workers_busy_fraction=0.25, loader_rate=Rate(per_s=7012.3, ci95_per_s=(6900, 7100)), step_rate=Rate(per_s=190_432, how="derived"),
)  # fmt: skip
WAITING = replace(
    sample(), division=DEVICE, input=FED, limited_by="input", bound_breakdown={"input": 0.05, "compute": 0.05},
    timeline=replace(sample().timeline, span_s=0.1, idle_s=0.05, busy_s=0.05),
)  # fmt: skip


def shown(analysis):
    return in_terminal(view.page(analysis), 100)


def test_rows_stand_in_the_order_of_a_step_with_their_shares():
    rows = division_rows(replace(sample(), division=DEVICE))
    assert [row.name for row in rows] == ["data loading", "host to device", "forward", "backward", "other idle"]
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert all(row.meaning for row in rows)


@pytest.mark.parametrize("of", ["device", "host"])
def test_every_part_has_a_meaning_where_it_can_be(of):
    # A processor that computes itself copies to no device, and is not idle: what it does beside operators is the host's.
    impossible = {"host": {"host_to_device", "other", "idle"}, "device": set()}[of]
    whole = StepDivision(of=of, step_s=9.0, **{f"{part}_s": 1.0 for part in PARTS if part not in impossible})
    assert all(row.meaning for row in division_rows(replace(sample(), division=whole)))


def test_divisions_of_a_step():
    # One part is no division.
    assert division_rows(replace(sample(), division=StepDivision(of="host", step_s=1.0, host_s=1.0))) == []
    assert division_rows(sample()) == []
    # One figure says how long a step waits.
    sentences = input_sentences(replace(sample(), division=DEVICE, input=FED))
    assert sentences == [
        "The program waits for data for 42.0 ms of a step (DataLoader, 2 workers).",
        "It delays the device by 42.0 ms; the rest is hidden behind the device's work.",
        "The step alone was derived: the timed steps less what they waited.",
        "The workers computed for 25 % of their time.",
    ]  # fmt: skip
    short = input_sentences(replace(sample(), input=replace(FED, is_lower_bound=True)))
    assert short[1] == "4 batches were ready when the timed pass began: with more steps the share would be larger."
    # Rates that no advice says are said here.
    fed_well = replace(FED, wait_fraction=0.01, delay_s=0.001, delay_fraction=0.01)
    rates = "The loader alone delivers 7,010 images/s (±2 %), the step alone could take 190,000 images/s (derived)."
    assert rates in input_sentences(replace(sample(), input=fed_well))
    assert rates not in input_sentences(replace(sample(), input=FED))
    hardly_known = replace(fed_well, step_rate=Rate(per_s=900, ci95_per_s=(400, 1900), how="measured"))
    assert any(
        text.endswith("the step alone could take 400 to 1,900 images/s (measured).")
        for text in input_sentences(replace(sample(), input=hardly_known))
    )


def test_every_report_shows_it():
    analysis = WAITING
    text = " ".join(shown(analysis).split())
    page = render(view.page(analysis))
    table = view.division_table(analysis)
    assert division_title(analysis) in text
    assert division_title(analysis) in page
    for row in division_rows(analysis):
        assert f"{row.share * 100:.1f} {row.name}" in text
        assert row.meaning in page
    assert [value_of(row.cells[1]) for row in table.rows] == [row.name for row in division_rows(analysis)]
    assert "input 50 %" in text
    assert 'class="p-input"' in page
    for sentence in input_sentences(analysis):
        assert sentence in text
        assert sentence in unescape(page)


@pytest.mark.ci
def test_without_a_division_and_in_ascii():
    # Without a division nothing stands there.
    assert division_title(sample()) not in shown(sample())
    assert division_title(sample()) not in render(view.page(sample()))
    assert view.division_table(sample()) is None
    # A console of ascii can show it.
    text = in_terminal(view.page(replace(WAITING, division=DEVICE)), encoding="ascii")
    assert "% input 50 %" in text
    assert "50.0  data loading" in text


def test_the_verdict_rounds_a_saving_as_its_recommendation_does():
    gain = replace(sample().findings[0], saves_s=0.1016)
    analysis = replace(sample(), findings=(gain,))
    analysis = replace(analysis, verdict=verdict(analysis))
    assert analysis.verdict.endswith("saves up to 102 ms of 73.3 ms a step.")
    assert shown(analysis).count("102 ms") == 2


def test_host_and_idle_are_the_same_words_in_the_bar_and_in_the_table():
    idle = {"host_bound_s": 0.02, "synchronization_s": 0.01, "kernel_wait_s": 0.004, "unknown_s": 0.001, "data_loading_s": 0.005}
    analysis = replace(
        sample(), division=StepDivision(of="device", step_s=0.1, forward_s=0.06, data_loading_s=0.005, host_s=0.03, idle_s=0.005),
        bound_breakdown={"compute": 0.06, "input": 0.005, "host": 0.03, "idle": 0.005}, idle_breakdown=idle,
    )  # fmt: skip
    rows = {row.name: row for row in division_rows(analysis)}
    for name, word in {"host": "host", "idle": "other idle"}.items():
        assert rows[word].time_s == analysis.bound_breakdown[name]
        assert rows[word].meaning == BOUNDS[name].meaning
        assert f"{word} 30 %" in shown(analysis) or f"{word} 5 %" in shown(analysis)
    assert "other host" not in shown(analysis)
    sentence = next(text for text, _ in device_sentences(analysis) if "runs nothing" in text)
    assert sentence == (
        "The device runs nothing for 40.0 ms a step (55 %): input 5.00 ms (the host was loading data); host 30.0 ms (20.0 ms the host "
        "had launched nothing, 10.0 ms the host was waiting for the device); other idle 5.00 ms (4.00 ms launched work had not begun, "
        "1.00 ms the launch of the next work is not in the trace)."
    )


@pytest.mark.ci
@pytest.mark.parametrize("timed", [True, False])
def test_the_method_claims_no_timed_steps_where_there_are_none(timed):
    page = render(view.page(replace(sample(), basis=replace(sample().basis, timed=timed, steady=timed))))
    assert ("steps run with the profiler off" in page) is timed
    assert ("No step was timed without the profiler." in page) is not timed
