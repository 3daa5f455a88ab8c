"""All rules together: no time twice, nothing below the noise, no saving above the time it names."""

import csv
import functools
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from rooflines import pipeline
from rooflines.reports.words.sentences import certainty_sentence
from rooflines.roofline.advise.case import Case
from rooflines.roofline.advise.findings import RULES, WORTH, _found, find
from rooflines.roofline.advise.verdict import verdict
from rooflines.roofline.analysis import HostWork, OtherPrograms, Steps, Synchronization
from rooflines.roofline.judge.step.interference import noise_s, unsteady
from rooflines.roofline.predict.change import Change
from rooflines.roofline.predict.options import predict
from tests.roofline.advise.cases import STEP_S, analysis, kernel, row
from tests.roofline.real import DATA, analysis_of

RUNS = DATA.parent / "gpu_runs"


def steps(median_s=STEP_S, half_s=0.001):
    return Steps(count=10, median_s=median_s, p10_s=median_s, p90_s=median_s, ci95_s=(median_s - half_s, median_s + half_s))


def waiting(**more):
    idle = {"host_bound": 0.05, "synchronization": 0.004}
    waits = (Synchronization(call="cudaStreamSynchronize", calls=1, wait_s=0.1, idle_s=0.02, operator="aten::item"),)
    work = (HostWork(kind="python", name="data.py(7): load", calls=1, idle_s=0.02),)
    add = row("aten::add", 0.03, 0.006, category="element-wise", kernels=(kernel("add", 0.03, calls=100),))
    return analysis(add, idle=idle, synchronizations=waits, host_work=work, **more)


def test_every_second_is_saved_once():
    found = find(waiting())
    assert {finding.title: round(finding.saves_s, 6) for finding in found} == {
        "Fuse element-wise operators": 0.024,
        "Let the host run ahead of the device": 0.02,
        "Move work of the host out of the step": 0.02,
        "Keep the device busy": 0.014,
    }


def test_two_recommendations_of_one_option_together_save_what_is_predicted_for_it():
    half = {"category": "element-wise", "shapes": "1024x1024", "bytes": 100 * 2**23, "calls": 100}
    slow = row("aten::add", 0.03, 0.002, **half), row("aten::mul", 0.03, 0.002, **half)
    small = row("aten::neg", 0.03, 0.003, bound="latency", category="copy", shapes="4x4", bytes=3200, calls=100)
    made = analysis(*slow, small, steps=steps())
    found = [one for one in find(made) if "torch.compile" in one.suggestion]
    gain = predict(Change(kind="compile", label="", options={"compile": "on"}), made).speedup
    assert sum(one.saves_s for one in found) == pytest.approx(STEP_S * (1 - 1 / gain))


def test_advice_within_the_noise_is_given_and_called_uncertain():
    found = find(noisy := waiting(steps=steps(half_s=0.015)))
    assert found == find(quiet := waiting(steps=steps(half_s=0.009))), "an interval of 9 % is not wide"
    assert certainty_sentence(replace(noisy, findings=found)).startswith(
        "Not certain on this machine: savings below 15 % of the step are within the error of its time."
    )
    assert certainty_sentence(replace(quiet, findings=found)) == ""
    assert certainty_sentence(noisy) == "", "nothing is recommended"
    others = OtherPrograms(busy=1.2, threads=2)
    assert noise_s(waiting(steps=steps(half_s=0.009), other_programs=others)) == pytest.approx(0.009)


def test_beside_other_programs_the_largest_small_gain_is_listed(monkeypatch):
    quiet = waiting(steps=steps())
    largest = max(find(quiet), key=lambda one: one.saves_s)
    monkeypatch.setattr("rooflines.roofline.advise.findings.WORTH", 10.0)  # nothing is worth its words
    assert find(quiet) == ()
    shared = replace(quiet, other_programs=OtherPrograms(busy=1.2, threads=2))
    assert [one.title for one in find(shared)] == [largest.title]


def test_steps_that_tell_nothing_give_no_saving():
    others = OtherPrograms(busy=1.5, threads=2, judged=False)
    slow = replace(steps(), profiler_dilation=200.0)
    add = row("aten::add", 0.03, 0.006, category="element-wise", calls=100)
    made = analysis(add, idle={"host_bound": 0.05}, device="cpu", steps=slow, other_programs=others)
    told = [finding.saves_s for finding in find(replace(made, steps=steps()))]
    assert any(told)
    assert not any(finding.saves_s for finding in find(made))
    assert next(finding.option for finding in find(made)) == "wait_quiet"


def test_a_machine_that_is_not_quiet_is_said_after_the_answer():
    shared = waiting(steps=steps(), other_programs=OtherPrograms(busy=1.2, threads=2))
    assert verdict(shared).endswith(" Shared machine: other programs took 1.2 of 2 processors.")
    wide = waiting(steps=steps(half_s=0.02))
    assert verdict(wide).endswith(" Unsteady times: the median step is known to ±20 % only.")
    both = replace(wide, other_programs=OtherPrograms(busy=1.2, threads=2))
    assert ", and the median step is known to ±20 % only." in verdict(both)
    assert unsteady(waiting(steps=steps())) == ""


PAGE = Path(__file__).parents[3] / "docs" / "advice.md"
TABLE = [
    [cell.strip() for cell in line.strip("|\n").split("|")] for line in PAGE.read_text().splitlines() if re.match(r"\| `\w+\.\w+", line)
]
# Traces of tests/data are in code font; the others are published (benchmarks/results/verdicts.md), and "test only" is none of these.
with Path(__file__).with_name("fires.csv").open(newline="", encoding="utf-8") as _file:
    TRACES_OF_RULES = list(csv.DictReader(_file))
CLAIMS = [
    (line["rule"], name, column == "fires")
    for line in TRACES_OF_RULES
    for column in ("fires", "held back")
    for name in re.findall(r"`([^`]+)`", line[column])
]


def named(rule):
    """The name of a rule in the table."""
    name = f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
    return re.sub(r"slow_\w+", "slow_*", name) if rule.__module__.endswith("categories") else name


def test_the_table_has_every_rule_in_its_order():
    names = list(dict.fromkeys(map(named, RULES)))
    assert [line[0].strip("`") for line in TABLE] == [line["rule"] for line in TRACES_OF_RULES] == names
    assert all(len(line) == 4 and all(line) for line in TABLE)
    assert all(line["fires"] and line["held back"] for line in TRACES_OF_RULES)


@functools.cache
def firing(name):
    """The rules that give advice about a trace of tests/data, one after the other as ``find`` calls them."""
    path = next(path for path in (RUNS / name, DATA / f"{name}.json.gz") if path.exists())
    case = Case(pipeline.analyze(path) if path.is_dir() else analysis_of(path))
    return {named(rule) for rule in RULES if list(_found(case, (rule,), WORTH * case.step_s))}


@pytest.mark.ci
@pytest.mark.parametrize(("rule", "name", "fires"), CLAIMS)
def test_rules_fire_and_are_held_back_where_the_table_says(rule, name, fires):
    assert (rule in firing(name)) == fires
