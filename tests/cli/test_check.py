"""``rooflines check``: the baselines that a repository keeps, and what a build is told."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
from msgspec.structs import replace

from rooflines.roofline.analysis import Analysis, TracedStep
from rooflines.serial import read_json, write_json
from tests.cli.test_compare import slower_sample
from tests.commands import call, quick, run
from tests.roofline.compare.steps import with_steps
from tests.samples import analysis as sample

NAME = "resnet50-training-batch4-224px-fp32-SGD"


@pytest.fixture
def check(tmp_path, capsys, monkeypatch):
    """The command in a folder with a.json, slower.json (1.5 times), and a baseline of the first in ``perf``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_json(tmp_path / "a.json", sample())
    write_json(tmp_path / "slower.json", slower_sample(1.5))

    def ask(*arguments):
        return call(capsys, monkeypatch, "check", *arguments)

    answer = ask("--baseline", "perf", "--update", "a.json")
    assert answer.code == 0
    (path,) = Path("perf").iterdir()
    assert answer.out == f"baseline  {path}\n"
    assert path.stem == NAME
    return ask


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["a.json"], 0), (["slower.json"], 1), (["slower.json", "--fail-above", "40"], 1), (["slower.json", "--fail-above", "60"], 0)],
)
def test_the_exit_code(check, arguments, code):
    answer = check("--baseline", "perf", *arguments)
    assert answer.code == code
    assert "B takes" in answer.out
    if code:
        assert answer.complaint[0].startswith(f"rooflines: slower than 'perf/{NAME}")
        assert answer.complaint[0].endswith("'slower.json' by 50.0 %.")


def test_a_baseline_of_another_workload_device_or_an_interrupted_run_is_refused(check, tmp_path):
    # Another workload has no baseline.
    other = replace(sample(), workload=replace(sample().workload, batch_size=8))
    write_json(tmp_path / "other.json", other)
    answer = check("--baseline", "perf", "other.json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.complaint[0].startswith("rooflines: no baseline of 'resnet50-training-batch8-224px-fp32-SGD'")
    assert f"in 'perf', which has {NAME}" in answer.complaint[0]
    assert "--update" in answer.complaint[1]
    assert check("--baseline", "perf", "--update", "other.json").code == 0
    assert check("--baseline", "perf", "other.json").code == 0
    assert len(list(Path("perf").iterdir())) == 2
    # A baseline of another device is refused.
    moved = replace(sample(), environment=replace(sample().environment, device_name="NVIDIA H200"))
    write_json(tmp_path / "moved.json", moved)
    answer = check("--baseline", "perf", "moved.json")
    assert (answer.code, answer.out) == (2, "")
    assert "ran under different conditions: device name" in answer.complaint[0]
    assert check("--baseline", "perf", "moved.json", "--anyway").code == 0
    # An interrupted run is no baseline.
    write_json(tmp_path / "half.json", replace(sample(), status="interrupted"))
    answer = check("--baseline", "perf", "--update", "half.json")
    assert answer.code == 2
    assert "its run is interrupted" in answer.complaint[0]


def test_the_baseline_holds_what_a_comparison_needs_and_no_more(check, tmp_path):
    whole = with_steps(sample(), 1)
    write_json(tmp_path / "whole.json", whole)
    assert check("--baseline", "perf", "--update", "whole.json").code == 0
    (path,) = Path("perf").iterdir()
    stored = read_json(path, Analysis)
    assert (stored.usage, stored.findings, stored.environment.host, stored.command) == (None, (), None, "")
    assert [row.step_times_s for row in stored.operators] == [row.step_times_s for row in whole.operators]
    answer = check("--baseline", "perf", "whole.json", "--format", "json")
    assert json.loads(answer.out)["pace"]["ratio"] == 1.0


def replaced(**steps):
    """The sample with other step times."""
    return replace(sample(), steps=replace(sample().steps, **steps))


@pytest.mark.parametrize(("steps", "known"), [
    ({"count": 3, "ci95_s": (0.0, 0.315)}, "the median of 3 timed steps is known to ±275 % only (0 s to 315 ms)"),  # 315 / 84 - 1
    ({"count": 1, "ci95_s": None}, "the median of fewer than 6 steps has no interval"),
])  # fmt: skip
def test_a_baseline_that_is_not_known_well_enough_is_refused(check, tmp_path, steps, known):
    write_json(tmp_path / "noise.json", replaced(**steps))
    answer = check("--baseline", "other", "--update", "noise.json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.complaint == [
        f"rooflines: 'noise.json' is not stored as a baseline: {known}; the limit is ±10 %.",
        "  Where other programs always run, compare with a commit (rooflines check --against), which profiles both in turn, "
        "or store it with --anyway: smaller slowdowns are then not decided. "
        "Else repeat the run with more steps (--steps) or when the machine is idle (--wait-quiet).",
    ]
    assert not Path("other").exists()
    answer = check("--baseline", "other", "noise.json")
    assert (answer.code, answer.complaint[0]) == (2, "rooflines: no baseline in 'other'.")
    assert check("--baseline", "other", "--update", "--anyway", "noise.json").code == 0
    assert check("--baseline", "other", "noise.json").code == 0


def test_without_timed_steps_the_traced_ones_tell_how_well_a_baseline_is_known(check, tmp_path):
    def traced(scatter):
        steps = [TracedStep(name=f"#{n}", duration_s=1 + scatter * (n % 2), breakdown={}) for n in range(10)]
        return replace(sample(), steps=None, traced_steps=tuple(steps))

    write_json(tmp_path / "steady.json", traced(0.01))
    write_json(tmp_path / "noise.json", traced(9.0))
    assert check("--baseline", "other", "--update", "steady.json").code == 0
    assert "the median of 10 traced steps is known to" in check("--baseline", "other", "--update", "noise.json").complaint[0]


@pytest.mark.ci
def test_runs_that_are_not_judged_or_far_off_are_warnings(check, tmp_path):
    # A run whose noise is unknown is not judged.
    write_json(tmp_path / "one.json", replaced(count=1, median_s=0.16, ci95_s=None, durations_s=(0.16,)))
    answer = check("--baseline", "perf", "one.json")
    assert answer.code == 0
    assert "Not decided: B takes 90 % more time than A" in answer.out
    assert "at least 6 timed steps on both sides" in " ".join(answer.out.split())
    assert answer.complaint == [f"rooflines: warning: 'one.json' compared with 'perf/{NAME}.json': Not decided."]
    failed = check("--baseline", "perf", "one.json", "--undecided", "fail")
    assert failed.code == 1
    assert f"rooflines: not decided whether slower than 'perf/{NAME}.json': 'one.json'." in failed.complaint
    assert check("--baseline", "perf", "a.json").complaint == []
    # Steps that scatter widely are no proof that nothing is slower.
    wide = tuple(0.084 * (1 + 0.4 * (number % 2)) for number in range(20))
    write_json(tmp_path / "wide.json", replaced(median_s=0.09, durations_s=wide))
    answer = check("--baseline", "perf", "wide.json")
    assert (answer.code, "No difference beyond the noise" in answer.out) == (0, True)
    assert re.fullmatch(
        rf"rooflines: warning: 'wide.json' compared with 'perf/{NAME}.json': up to \d+ % more time is within the noise.",
        " ".join(answer.complaint),
    )
    # A baseline a hundred times slower than the run is a warning.
    write_json(tmp_path / "fast.json", slower_sample(0.01))
    answer = check("--baseline", "perf", "fast.json")
    assert answer.code == 0
    assert "less time" not in answer.out
    assert answer.complaint == [
        f"rooflines: warning: 'fast.json' compared with 'perf/{NAME}.json': A may not describe this workload or machine."
    ]


def test_markdown_and_junit(check, tmp_path):
    answer = check("--baseline", "perf", "slower.json", "--format", "markdown")
    assert answer.code == 1
    assert answer.out.startswith("# Comparison\n")
    assert check("--baseline", "perf", "slower.json", "-o", "junit.xml").code == 1
    (suite,) = xml.parse(tmp_path / "junit.xml").getroot()
    assert suite.get("failures") == "1"
    assert check("--baseline", "perf", "a.json", "-o", "summary.md").code == 0
    assert (tmp_path / "summary.md").read_text().startswith("# Comparison\n")


def test_the_figures_for_a_tracker(check, tmp_path):
    assert check("--baseline", "perf", "slower.json", "--top", "2", "--benchmark", "figures.json").code == 1
    step, flops, *operators = json.loads((tmp_path / "figures.json").read_text())
    assert (step["name"], step["unit"], step["value"]) == ("resnet50: step", "ms", pytest.approx(126))  # 1.5 * 84
    assert "B takes 50 % more time than A" in step["extra"]
    assert (flops["unit"], flops["value"]) == ("GFLOP", pytest.approx(sum(row.flops for row in sample().operators if row.flops) / 1e9))
    longest = sorted((row.time_s for row in sample().operators), reverse=True)[:2]
    assert [one["value"] for one in operators] == pytest.approx([1e3 * time_s for time_s in longest])
    assert "range" not in flops, "a count has no noise"


@pytest.mark.ci
def test_a_workload_is_profiled_and_checked(check, tmp_path):
    (tmp_path / "models.py").write_text(
        "import gc, time, torch\n"
        "class Slow(torch.nn.Linear):\n"  # long enough that the times of a busy machine scatter little
        "    def forward(self, x):\n        time.sleep(0.1)\n        return super().forward(x)\n"
        # Only commands that run no program switch the collector of cycles off.
        "def mlp(batch_size):\n    assert gc.isenabled()\n    return Slow(8, 8), torch.randn(batch_size, 8)\n"
    )
    command = ["--", "--model", "models.py:mlp", *quick(tmp_path), "--steps", "9", "--threads", "1"]
    # In a process of its own, where no other command has been imported.
    answer = run("check", "--baseline", "new", "--update", *command, cwd=tmp_path)
    assert (answer.code, answer.complaint) == (0, [])
    assert answer.out.startswith("baseline  new/"), "the output of the profile goes to standard error"
    answer = check("--baseline", "new", "--fail-above", "1000000", *command)
    assert answer.code == 0
    assert "What was compared" in answer.out
    answer = check("--baseline", "new", "--", "--model", "models.py:mlp", "--output", "mine")
    assert (answer.code, answer.out) == (2, "")
    assert "check chooses the directory" in answer.complaint[0]
