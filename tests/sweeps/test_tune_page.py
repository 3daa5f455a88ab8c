"""The page of a search: what it says of a gain, of none, of failures, and what it draws."""

import pytest
from msgspec.structs import replace

from rooflines.reports.charts.curves import Beams, Choices, Curves
from rooflines.reports.render.html import render
from rooflines.sweeps.records import PointResult
from rooflines.sweeps.results import OBJECTIVES
from rooflines.sweeps.space import read_space
from rooflines.sweeps.sweep import write_tuning
from rooflines.sweeps.tune import SearchTrial, Tuning, compare
from rooflines.sweeps.tune_page import page

SPACE = read_space(["resnet18"], {"batch_size": "8..64", "channels_last": "off,on"}, "profile")
SETTINGS = ({}, *({"batch_size": size, "channels_last": last} for size in (8, 16, 64) for last in (False, True)))


def tuning(pairs, **asked):
    plan = Tuning(name="resnet18", space=SPACE, objectives=("throughput", "memory"), command="rooflines tune", **asked)
    trials = []
    for number, setting in enumerate(SETTINGS):
        point = plan.point(setting)
        size = setting.get("batch_size", 1)
        values = {"samples_per_s": 10.0 * size * (2 if setting.get("channels_last") else 1), "peak_memory_bytes": 1e6 * size}
        reason = "out of memory in resnet18: too much. Use less." if size == 64 else None
        result = PointResult(point=point.id, round=1, values={} if reason else values, facts={"device_name": "test"}, reason=reason)
        trials.append(SearchTrial(number=number, point=point, state="failed" if reason else "complete", result=result, reason=reason))
    results = [
        tuple(PointResult(point="", round=1, values={"samples_per_s": rate, "peak_memory_bytes": 1e6}) for rate in pair)
        for pair in pairs
    ]
    return replace(plan, trials=tuple(trials), compared=tuple(compare(goal, results) for goal in plan.goals) if results else (),
                   importance={"throughput": {"batch_size": 0.75, "channels_last": 0.25}})  # fmt: skip


@pytest.mark.ci
def test_a_gain_is_said_with_its_interval_and_its_command(tmp_path):
    found = tuning([(32.0, 10.0), (31.0, 10.0), (33.0, 10.0)])
    made = page(found)
    assert made.verdict == (
        "batch 16 · channels last beats the default setting: "
        "throughput 3.20 × that of the default (95 % interval 2.96 to 3.46, 3 pairs)."
    )
    assert "Command: rooflines profile --model resnet18 --batch-size 16 --channels-last" in made.said
    assert "7 trials of 7 settings, 2 failed." in made.said
    drawings = [figure.drawing for figure in made.figures()]
    assert [type(one) for one in drawings] == [Curves, Curves, Beams, Choices]
    assert drawings[0].series[1].y == (10.0, 80.0, 160.0, 160.0, 320.0)
    assert drawings[1].series[1].y == (1e6,) * 5
    assert {one.label for one in drawings[3].choices if one.front} == {
        "default setting", "batch 8 · channels last", "batch 16 · channels last",
    }  # fmt: skip
    assert "out of memory in resnet18" in render(made)
    write_tuning(found, tmp_path, ("tensorboard",))
    lines = (tmp_path / "results.csv").read_text().splitlines()
    assert len(lines) == 8
    assert lines[0].startswith("point,kind,model,")
    assert ",trial,state" in lines[0]
    assert len(list((tmp_path / "tensorboard").iterdir())) == 6  # five settings that ran, and the page


def test_what_gained_nothing_or_failed_is_said():
    # No gain is said.
    made = page(tuning([(11.0, 10.0), (10.0, 11.0), (10.5, 10.0)]))
    assert made.verdict.startswith("No setting is sure to beat the default one. The best of the trials, batch 16 · channels last: ")
    assert "95 % interval 0.794 to 1.30" in made.verdict
    only = tuning([])
    assert page(replace(only, trials=only.trials[:1])).verdict == (
        "No setting beats the default one: it has the best throughput of all trials (10.0 samples/s)."
    )
    # What was not compared or failed is said.
    assert page(tuning([])).verdict == (
        "Best throughput: batch 16 · channels last with 320 samples/s; it was not compared with the default setting."
    )
    failed = tuning([])
    default = replace(failed.trials[0], state="failed", reason="it broke.", result=PointResult(point="", round=1, reason="it broke."))
    assert page(replace(failed, trials=(default, *failed.trials[1:]))).verdict.endswith("the default setting failed: it broke.")
    nothing = page(replace(failed, trials=failed.trials[5:]))
    assert nothing.verdict.startswith("No trial has a result: out of memory in resnet18")
    assert "out of memory" in render(nothing)
    assert page(replace(failed, trials=(), status="interrupted")).status[0] == "interrupted"


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_has_an_axis_and_a_column(name):
    goal = OBJECTIVES[name]
    kind = goal.kinds[0]
    plan = Tuning(name="s", space=read_space(["m"], {"batch_size": "1,2"}, kind), objectives=(name,))
    trials = []
    for number, size in enumerate((1, 2)):
        point = plan.point({"batch_size": size})
        result = PointResult(point=point.id, round=1, values={goal.value: 0.5 * size})
        trials.append(SearchTrial(number=number, point=point, state="complete", result=result))
    made = page(replace(plan, trials=tuple(trials)))
    best = 2 if goal.more else 1
    assert f"batch {best}" in made.verdict
    assert goal.name in render(made)
