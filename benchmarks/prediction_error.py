"""How far predicted times of operators and steps are from measured ones, held out.

``python benchmarks/prediction_error.py --traces AMD-AGI/TraceLens=CLONE`` predicts the operators of public traces: from the data sheet
alone, from the efficiencies of another device, and from those of the same device without the model; CLONE may be a bare repository.
``--machine`` profiles networks on this CPU (some minutes) and predicts each by the others. A section that is not run keeps its last
result. Writes ``benchmarks/results/prediction_error.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rooflines
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.judge.bounds import IMPLAUSIBLE
from rooflines.roofline.predict.calls import MeasuredCall, host_time, measured_calls
from rooflines.roofline.predict.efficiencies import Efficiencies, Estimate
from rooflines.units import percent, seconds, si

RESULTS = Path(__file__).parent / "results" / "prediction_error.json"

COMMIT = "171dd747"
FOLDERS = ("h100", "mi300", "b200")
H100, MI300X, B200 = "H100 SXM5 80GB", "Instinct MI300X", "B200 SXM"
# Trained with PyTorch's profiler of its own, on a network that none of the other traces resembles.
TRAINING = "resnet_act_checkpoint"

METHOD = """\
Time = start + bound / share, fitted to the measured calls most alike (`rooflines/roofline/predict/efficiencies.py`). What a call weighs
(the root of its time) and the wider kind (one call) was chosen on the H100 traces, each model predicted by the other four
("development"); nothing is set per model. The factor of the interval of a step with fewer than three runs is that of the steps of these
traces. Equal calls of a model count once, in "by time" with the time of all. An error is |predicted - measured| / measured.
"""
MACHINE = """\
Times are of the median step without the profiler on one thread, bounds by ceilings measured on this machine. "Step" is the error of the
whole step, whose time outside of operators is that of the reference runs per call. Other programs kept at most {busy_by_others:.2g}
processors busy during a run; the steps that they delayed are left out, as are {runs_left_out} of the runs with too many of them.
"""
# Networks and batch sizes on this machine; one of each network first, for a machine with little time.
NETWORKS = ("resnet18", "mobilenet_v3_large", "vit_b_16", "hf:bert", "hf:gpt2")
SIZES = (1, 4, 2)
# Of the calls faster than their bound, the page has the first few.
_LISTED = 8


class Run(NamedTuple):
    """A measured step, or a part of one: what ran, where, and its calls."""

    model: str
    part: str
    calls: tuple[MeasuredCall, ...]
    analysis: Analysis

    @property
    def device(self) -> str:
        return self.calls[0].device

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.model, self.device, self.part)))


Choice = Callable[[Run, Run], bool]


# --- what a prediction is worth ----------------------------------------------------------------------------------------------------


def compared(label: str, use: str, targets: Sequence[Run], runs: Sequence[Run], reference: Choice | None) -> dict[str, Any]:
    """The errors of predictions for ``targets`` by those of ``runs`` that are their ``reference``; without one, of their bounds."""
    errors, times, steps = [], [], []
    for run in targets:
        by = by_runs([other for other in runs if reference(run, other)], run) if reference is not None else None
        estimates = [by.estimate(call) if by is not None else as_prediction(call) for call in run.calls]
        errors += [abs(one.time_s / call.time_s - 1) for one, call in zip(estimates, run.calls, strict=True)]
        times += [call.calls * call.time_s for call in run.calls]
        steps.append(step_of(run, estimates, by))
    weights, order = np.array(times) / sum(times), np.argsort(errors)
    return {
        "prediction": label,
        "use": use,
        "operators": len(errors),
        "mean_error": float(np.mean(errors)),
        "median_error": float(np.median(errors)),
        "mean_error_by_time": float(np.dot(errors, weights)),
        "median_error_by_time": float(np.array(errors)[order][np.searchsorted(np.cumsum(weights[order]), 0.5)]),
        "sums": steps,
    }


def as_prediction(call: MeasuredCall) -> Estimate:
    """The bound of ``call`` as its time."""
    bound_s = call.lower_bound_s
    return Estimate(time_s=bound_s, low_s=bound_s, high_s=None, lower_bound_s=bound_s, basis="bound")


def by_runs(references: Sequence[Run], run: Run) -> Efficiencies:
    """The efficiencies of ``references`` for ``run``."""
    hosts = [host for other in references if (host := host_time(other.analysis)) is not None]
    return Efficiencies((call for other in references for call in other.calls), run.device, hosts)


def step_of(run: Run, estimates: Sequence[Estimate], by: Efficiencies | None) -> dict[str, Any]:
    """The error of the sum of a step's operators, whether its interval holds, and on a CPU the error of the whole step."""
    numbers, division = [call.calls for call in run.calls], run.analysis.division
    measured_s = sum(call.calls * call.time_s for call in run.calls)
    sum_s = sum(calls * one.time_s for calls, one in zip(numbers, estimates, strict=True))
    found = {"run": str(run), "measured_s": measured_s, "error": sum_s / measured_s - 1}
    if by is None:
        return found
    total = by.total(zip(estimates, numbers, strict=True))
    found |= {"low_s": total.low_s, "high_s": total.high_s, "held": is_held(total, measured_s)}
    outside_s = by.outside_s(sum(row.calls for row in run.analysis.rows), sum_s)
    if outside_s is not None and division is not None:
        found |= {"step_s": division.step_s, "step_error": (sum_s + outside_s) / division.step_s - 1}
    return found


def is_held(estimate: Estimate, measured_s: float) -> bool:  # an interval without an upper limit holds nothing
    return estimate.high_s is not None and estimate.low_s <= measured_s <= estimate.high_s


def violations(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Calls faster than their bound, each with the reason."""
    return [
        {
            "run": str(run),
            "operator": call.name,
            "measured_s": call.time_s,
            "lower_bound_s": call.lower_bound_s,
            "reason": reason(call),
        }
        for run in runs
        for call in run.calls
        if call.time_s < call.lower_bound_s
    ]


def reason(call: MeasuredCall) -> str:
    """Why ``call`` may be faster than its bound."""
    why = {
        "memory": "more of it was in a cache than the ceilings assume",
        "latency": "the shortest operator measured is not the shortest",
    }
    found = why.get(call.bound, "the ceiling is too low, or an algorithm with fewer FLOPs ran")
    if call.lower_bound_s <= IMPLAUSIBLE * call.time_s:
        found = "within 5 %, no closer are times and ceilings known"
    return f"{si(call.bytes, 'B')}, {call.bound} bound: {found}"


# --- public traces -----------------------------------------------------------------------------------------------------------------


def public_traces(clone: Path) -> list[Run]:
    """The steps in the traces of a clone of AMD-AGI/TraceLens, judged by the data sheets of their devices."""
    found = []
    for folder in FOLDERS:
        for name in git(clone, "ls-tree", "--name-only", COMMIT, f"tests/traces/{folder}/").decode().split():
            data = git(clone, "cat-file", "blob", f"{COMMIT}:{name}") if name.endswith(".json.gz") else b""
            if not data:  # another file, or one that the clone lacks
                continue
            model = Path(name).name.removesuffix(".json.gz").partition("__")[0]
            with tempfile.TemporaryDirectory() as place:
                path = Path(place) / Path(name).name
                path.write_bytes(data)
                analysis = rooflines.analyze(path)
            found.append(Run(model, "", measured_calls(analysis, model), analysis))
    return found


def git(clone: Path, *arguments: str) -> bytes:
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    return subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, check=False, env=environment).stdout


def in_public_traces(runs: Sequence[Run]) -> dict[str, Any]:
    """The comparisons of the public traces."""

    def on(device: str) -> list[Run]:
        return [run for run in runs if run.device == device and (device != MI300X or run.model != TRAINING)]

    def of(*devices: str) -> Choice:
        return lambda run, other: other.device in devices and other.model != run.model and other.model != TRAINING

    def same(device: str) -> Choice:
        return lambda run, other: other.device == device and other.model == run.model

    training = [run for run in runs if run.model == TRAINING]
    tenths = [run._replace(part=f"tenth {at + 1}", calls=run.calls[at::10]) for run in runs for at in range(10) if run.calls[at::10]]

    def by_other_tenths(device: str) -> dict[str, Any]:
        targets = [part for part in tenths if part.device == device]
        label = f"{device}: a tenth of a run's calls by the others"
        found = compared(label, "held out", targets, tenths, lambda run, other: other.analysis is run.analysis and other is not run)
        return found | {"sums": []}  # those of parts are no steps

    rows = [compared(f"{device}: bound by the data sheet", "no data", on(device), runs, None) for device in (H100, MI300X, B200)]
    rows += [
        compared("H100 by H100, model left out", "development", on(H100), runs, of(H100)),
        compared("MI300X by MI300X, model left out", "held out", on(MI300X), runs, of(MI300X)),
        compared("MI300X training of ResNet by inference of five others", "held out", training, runs, of(MI300X)),
        compared("MI300X by H100, model left out", "held out", on(MI300X), runs, of(H100)),
        compared("MI300X by H100, same model", "held out", on(MI300X), runs, same(H100)),
        compared("H100 by MI300X, model left out", "held out", on(H100), runs, of(MI300X)),
        compared("H100 by MI300X, same model", "held out", on(H100), runs, same(MI300X)),
        compared("B200 serving by H100", "held out", on(B200), runs, of(H100)),
        compared("B200 serving by H100 and MI300X", "held out", on(B200), runs, of(H100, MI300X)),
    ]
    rows += map(by_other_tenths, (H100, MI300X, B200))
    return {"source": "AMD-AGI/TraceLens", "commit": COMMIT, "comparisons": rows, "faster_than_bound": violations(runs)}


# --- this machine ------------------------------------------------------------------------------------------------------------------


def profiled(minutes: float) -> list[Run]:
    """The steps of the networks on one thread of this CPU; those that other programs disturb too much are run again after the others.

    No run is begun after this many ``minutes``.
    """
    found: list[Run] = []
    pending, until = deque(itertools.product(SIZES, NETWORKS)), time.monotonic() + 60 * minutes
    while pending and time.monotonic() < until:
        size, model = pending.popleft()
        with tempfile.TemporaryDirectory() as place:
            options: dict[str, Any] = {"device": "cpu", "threads": 1, "steps": 10, "warmup": 3, "formats": ("json",)}
            rooflines.profile(model, batch_size=size, sequence_length=64, output=Path(place) / "run", **options)
            analysis = rooflines.analyze(Path(place) / "run")
        run = Run(model, f"batch {size}", measured_calls(analysis, model), analysis)
        print(f"{model}, {run.part}: {seconds(analysis.whole_s)}, {len(run.calls)} calls judged", flush=True)
        if run.calls:
            found.append(run)
        else:
            pending.append((size, model))
    return found


def swept() -> Iterator[tuple[str, Analysis]]:
    """What ``rooflines calibrate`` measures on one thread of this CPU."""
    with tempfile.TemporaryDirectory() as place:
        for run in rooflines.calibrate(device="cpu", threads=1, output=Path(place) / "sweep", formats=("json",)):
            yield run.facts.workload.mode, rooflines.analyze(run.directory)


def on_this_machine(runs: Sequence[Run]) -> dict[str, Any]:
    """The comparisons of this machine, and the state that it was in."""
    sweep = [Run("sweep", mode, measured_calls(one, "sweep"), one) for mode, one in swept()]
    several = [run for run in runs if sum(run.model == other.model for other in runs) > 1]
    rows = [
        compared("measured ceilings: bound", "no data", runs, runs, None),
        compared("rooflines calibrate", "held out", runs, sweep, lambda run, other: True),
        compared(
            "rooflines calibrate, and other models", "held out", runs, [*sweep, *runs], lambda run, other: other.model != run.model
        ),
        compared("model left out", "held out", runs, runs, lambda run, other: other.model != run.model),
        compared(
            "same model, size left out", "held out", several, runs, lambda run, other: other.model == run.model and other is not run
        ),
    ]
    others, facts = [run.analysis.other_programs for run in runs], runs[0].analysis.environment
    return {
        "cpu": f"{facts.cpu}, {facts.cpu_cores} cores, {facts.threads} thread, torch {facts.torch}",
        "runs_left_out": len(SIZES) * len(NETWORKS) - len(runs),
        "busy_by_others": max((one.busy for one in others if one is not None), default=0.0),
        "comparisons": rows,
        "faster_than_bound": violations(runs),
    }


# --- the page ----------------------------------------------------------------------------------------------------------------------


def page(sections: dict[str, Any]) -> str:
    """The result in Markdown."""
    parts = ["# Error of predicted times\n", METHOD]
    if public := sections.get("public_traces"):
        parts += [f"## Public traces ({public['source']}, commit {public['commit']})\n", *tables(public)]
    if machine := sections.get("this_machine"):
        parts += [f"## A CPU: {machine['cpu']}\n", MACHINE.format(**machine), *tables(machine)]
    return "\n".join(parts)


def tables(section: dict[str, Any]) -> list[str]:
    """The table of a section, and its calls that are faster than their bound."""
    head = "| prediction | use | operators | mean | median | mean by time | median by time | sum of a step | sums held | step |"
    lines = [head, f"|{'---|' * head.count(' | ')}---|", *map(table_row, section["comparisons"]), ""]
    faster = section["faster_than_bound"]
    lines.append(f"Calls faster than their bound: {len(faster)}.")
    lines += [
        f"- {one['operator']} in {one['run']}: {seconds(one['measured_s'])}, bound {seconds(one['lower_bound_s'])} ({one['reason']})"
        for one in faster[:_LISTED]
    ]
    return [*lines, ""]


def table_row(row: dict[str, Any]) -> str:
    errors = [one["error"] for one in row["sums"]]
    sums = (
        ", ".join(f"{100 * error:+.0f} %" for error in errors) if len(errors) < 6 else f"{percent(float(np.mean(np.abs(errors))))} mean"
    )
    held = [one["held"] for one in row["sums"] if "held" in one]
    whole = [one["step_error"] for one in row["sums"] if "step_error" in one]
    figures = [percent(row[name]) for name in ("mean_error", "median_error", "mean_error_by_time", "median_error_by_time")]
    figures += [sums, f"{sum(held)} of {len(held)}" if held else ""]
    figures.append(f"{percent(float(np.mean(np.abs(whole))))} mean" if whole else "")
    return f"| {' | '.join((row['prediction'], row['use'], str(row['operators']), *figures))} |"


def main() -> None:
    """Measure what was asked for, and write all that is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", metavar="AMD-AGI/TraceLens=CLONE", help="predict the operators of public traces")
    parser.add_argument("--machine", action="store_true", help="profile networks on this CPU and predict them")
    parser.add_argument("--minutes", type=float, default=7.0, help="begin no run on this CPU after this time")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="where to write the result")
    arguments = parser.parse_args()
    sections = json.loads(arguments.output.read_text())["sections"] if arguments.output.exists() else {}
    if arguments.traces:
        runs = public_traces(Path(arguments.traces.partition("=")[2]))
        sections["public_traces"] = in_public_traces(runs)
    if arguments.machine:
        sections["this_machine"] = on_this_machine(profiled(arguments.minutes))
    result = {"benchmark": "prediction_error", "rooflines": rooflines.__version__, "sections": sections}
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    arguments.output.with_suffix(".md").write_text(page(sections))


if __name__ == "__main__":
    main()
