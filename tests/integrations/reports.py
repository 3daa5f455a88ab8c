"""Profiling a program, and what holds for every report."""

import textwrap
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import rooflines
from rooflines.roofline.analysis import PARTS
from tests.commands import run, write_ceilings

TRAINING = {"forward", "backward", "optimizer"}


def command_line(folder: Path, source: str) -> list[str]:
    """The arguments that profile ``source`` into ``folder``/out, with ceilings from a file."""
    (folder / "train.py").write_text(textwrap.dedent(source))
    ceilings = str(write_ceilings(folder))
    return ["profile", "train.py", "--ceilings", ceilings, "--formats", "json", "--device", "cpu", "-o", "out"]


def profile(folder: Path, source: str) -> rooflines.Run:
    """Profile ``source`` in a process of its own."""
    answer = run(*command_line(folder, source), cwd=folder)
    assert answer.code == 0, answer
    return rooflines.load(folder / "out")


def check_report(
    run: rooflines.Run, made: int, *, phases: set[str] = TRAINING, mode: str = "training", modules: bool = True
) -> rooflines.Analysis:
    """Return the analysis of ``run`` after checking it. The program makes ``made`` steps.

    The parts of the timeline, of the step and of the bounds each sum to their whole.
    """
    analysis = rooflines.analyze(run)
    assert run.facts.status == "complete"
    assert analysis.workload.mode == mode
    assert steps_taken(run) <= made
    assert sum(row.time_s for row in analysis.operators) > 0
    assert {row.phase for row in analysis.operators} >= phases
    if modules:
        assert any(row.module and row.phase == "forward" for row in analysis.operators)
        assert {"Linear", "Conv2d"} & {row.type for row in analysis.modules}
    timeline, division, coverage = analysis.timeline, analysis.division, analysis.coverage
    assert timeline is not None
    assert division is not None
    assert coverage is not None
    assert analysis.bound_breakdown is not None
    parts = [*(row.time_s for row in analysis.operators), *(gap.time_s for gap in coverage.unmodeled), timeline.idle_s]
    assert sum(parts) - timeline.overlap_s == pytest.approx(timeline.span_s, rel=1e-9)
    assert sum(getattr(division, f"{part}_s") or 0.0 for part in PARTS) == pytest.approx(division.step_s, rel=1e-9)
    assert sum(analysis.bound_breakdown.values()) == pytest.approx(timeline.span_s, rel=1e-9)
    return analysis


def steps_taken(run: rooflines.Run) -> int:
    """Return how many steps of the program were recorded.

    A trace of the whole program holds the first warm-up step, or none. The trace of the second step is replaced by a later one,
    which may be one of a single step after warm-up: then the second step is not counted.
    """
    steps = run.facts.steps
    assert steps is not None
    traced = {"program": 0, "early": 1, "steps": 1 + len(steps.traced_ns)}[steps.traced]
    return len(steps.warmup_ns) + len(steps.timed_ns) + traced


def alone(analysis: rooflines.Analysis) -> rooflines.Analysis:
    """Return the analysis as on a quiet machine: tests run beside others."""
    steps = analysis.steps and msgspec.structs.replace(analysis.steps, ci95_s=None)
    return msgspec.structs.replace(analysis, other_programs=None, steps=steps)


def calls(analysis: rooflines.Analysis) -> Counter[str]:
    """Return the calls of each operator in a step."""
    found: Counter[str] = Counter()
    for row in analysis.operators:
        found[row.name] += row.calls
    return found
