"""What another program changes in a report: the same workloads with and without one that takes a core for random half seconds.

Runs every workload in turn without and with the disturbance, by the command that a user types: ``--runs`` times with it, and the first
``--quiet`` times without, by default each time: the machine has fast and slow minutes, and what is compared should be of the same
ones. Of every run it keeps the verdict, the first recommendation, the sum of the bars over the timed step, and
the distance: the share of the step that lies in other rows than in the median of the quiet runs (half the sum of the absolute
differences of the shares of all rows and of idle time). Writes ``results/disturbed.json`` and ``.md`` with the facts of the machine.

Fails if

- bars do not add up to the timed step,
- a run lacks FLOPs, bounds, classes or a recommendation, or a disturbed one the certainty of its recommendations,
- a disturbed run that is judged is further from the quiet ones than ``LIMIT`` without saying that new pages of memory divide the step
  otherwise from run to run, or
- a disturbed run contradicts the quiet ones: its range of the step lies below all of theirs, or above them without being called a
  limit, its efficiency (a lower limit) is above theirs, of the bounds that it names none of them names one ("no single bound" is
  one), or its range of the share of a class lies outside of the shares that the quiet runs give it: of the class that leads in it, and
  of each that leads in a quiet run. The machine's own speed changes from minute to minute, because it is shared below the system, too.
  So a fixed piece of work, which does not use rooflines, is timed before and after every run, and steps are compared in multiples of
  its time (the shorter and the longer of the two times give a range). As a control, each quiet run is compared with the other quiet
  ones by the same rule, but for the shares, of which a quiet run gives no range, or
- ``rooflines check`` of a disturbed run against the last quiet one, which ran the same code, exits with another code than 0.

``--only`` keeps what the file has of other workloads; without a name nothing is run, and the file is judged again.

    python benchmarks/disturbed.py [--runs 8] [--quiet 8] [--only resnet50 ...]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results" / "disturbed.json"
LIMIT = 0.08
# Verdicts round shares to whole percent.
ROUNDING = 0.005
BOUNDS = (
    "Inefficient or delayed",
    "Compute-bound", "Memory-bound", "Inefficient", "Launch-bound", "Host-bound", "Input-bound", "No single bound",
)  # fmt: skip
BURNER = """
import random, time
while True:
    end = time.perf_counter() + random.uniform(0.25, 0.75)
    while time.perf_counter() < end: pass
    time.sleep(random.uniform(0.25, 0.75))
"""
STEP = """
import torch
layers = torch.nn.Sequential(*(part for _ in range(8) for part in (torch.nn.Linear(128, 128), torch.nn.ReLU())))
values = torch.randn(16, 128)
def make():
    def step():
        with torch.no_grad():
            layers(values)
    return step
"""
TRAINING = """
import torch
from torch import nn
network = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64),
    nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(network.parameters())
data = torch.utils.data.TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
for epoch in range(1000):
    for images, labels in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
"""
# The last one was not used to choose the method.
WORKLOADS = {
    "resnet50": ("--model", "resnet50"),
    "vit_b_16": ("--model", "vit_b_16"),
    "training script": ("train.py",),
    "step function": ("step.py:make",),
    "efficientnet_b0": ("--model", "efficientnet_b0"),
}


def unit_s() -> list[float]:
    """What a convolution and a pass over memory take now, each the median of a second: the unit of time, and nothing of rooflines."""
    import torch

    image, filters, many = torch.randn(1, 64, 56, 56), torch.randn(64, 64, 3, 3), torch.randn(1 << 22)
    found = []
    with torch.no_grad():
        for work in (lambda: torch.conv2d(image, filters, padding=1), lambda: torch.relu(many)):
            times, end = [], time.perf_counter() + 1
            while time.perf_counter() < end:
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
            found.append(statistics.median(times))
    return found


def profile(arguments: tuple[str, ...], folder: Path, name: str, disturbed: bool) -> dict[str, Any]:
    """Run the command, next to the disturbing program if ``disturbed``; returns its analysis."""
    burner = subprocess.Popen([sys.executable, "-c", BURNER]) if disturbed else None
    try:
        command = [sys.executable, "-m", "rooflines", "profile", *arguments, "--formats", "json", "--quiet", "--output", name]
        done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    finally:
        if burner is not None:
            burner.kill()
            burner.wait()
    found: dict[str, Any] = json.loads((folder / name / "analysis.json").read_text())
    baseline = [sys.executable, "-m", "rooflines", "check", "--baseline", "baseline", *([] if disturbed else ["--update"]), name]
    checked = subprocess.run(baseline, cwd=folder, check=False, capture_output=True, text=True)
    return {**found, "check": {"exit": checked.returncode, "said": checked.stderr.strip().splitlines()[-1:]}}


def shares(analysis: dict[str, Any]) -> Counter[str]:
    """The share of the step of every row and of idle time."""
    rows = [*analysis["operators"], *analysis["coverage"].get("unmodeled", ())]
    found: Counter[str] = Counter({"idle": analysis["timeline"]["idle_s"]})
    for row in rows:
        found[" ".join((row["name"], row.get("module", ""), row.get("shapes", ""), row.get("phase", "")))] += row["time_s"]
    whole = sum(found.values())
    return Counter({key: value / whole for key, value in found.items()})


def distance(one: Counter[str], other: Counter[str]) -> float:
    """The share of the time that is attributed to other rows."""
    return sum(abs(one[key] - other[key]) for key in {*one, *other}) / 2


def summary(analysis: dict[str, Any], disturbed: bool, reference: Counter[str]) -> dict[str, Any]:
    others, median_s = analysis.get("other_programs") or {}, analysis["steps"]["median_s"]
    findings = analysis.get("findings") or [{}]
    order = sorted(reference, key=lambda key: -reference[key])[:10]
    return {
        "disturbed": disturbed,
        "judged": others.get("judged", True),
        "lacks": [what for what, is_there in known_parts(analysis, disturbed).items() if not is_there],
        "check": analysis["check"],
        "range_s": range_of(analysis),
        "is_limit": "at most" in analysis["verdict"].lower() or not others.get("judged", True),
        "efficiency": efficiency_of(analysis["verdict"]),
        "pages": "new pages of memory" in analysis["verdict"],
        "verdict": analysis["verdict"],
        "first": findings[0].get("title", "none").partition(" at ")[0],
        "step_s": median_s,
        "bars_over_step": sum(analysis["bound_breakdown"].values()) / median_s,
        "distance": distance(shares(analysis), reference),
        "ten_longest_found": len(set(order) & {key for key, _ in shares(analysis).most_common(10)}),
        "left_out": [others.get("timed_left_out", 0), others.get("traced_left_out", 0)],
        "others": others.get("busy", 0.0),
        "shares": class_shares(analysis),
        "share_ranges": others.get("shares", {}),
    }


def class_shares(analysis: dict[str, Any]) -> dict[str, float]:
    """The share of the step of every class of bounds."""
    classes = analysis["bound_breakdown"]
    return {name: time_s / sum(classes.values()) for name, time_s in classes.items()}


def share_range(run: dict[str, Any], name: str) -> tuple[float, float]:
    """What a run says of the share of a class. Of delayed steps, what counts as inefficient may be bounded by compute or memory."""
    low, high = run["share_ranges"].get(name, (run["shares"].get(name, 0.0),) * 2)
    if run["judged"] or name not in ("compute", "memory", "inefficient"):
        return low, high
    return (0.0, high) if name == "inefficient" else (low, high + run["shares"].get("inefficient", 0.0))


def range_of(analysis: dict[str, Any]) -> list[float]:
    """The least and the longest step that the verdict states: its interval, or its percentiles where none is given."""
    steps = analysis["steps"]
    judged = (analysis.get("other_programs") or {}).get("judged", True)
    return steps["ci95_s"] if judged and steps.get("ci95_s") else [steps["p10_s"], steps["p90_s"]]


def efficiency_of(verdict: str) -> float | None:
    """The efficiency in a verdict."""
    found = re.search(r"(\d+(?:\.\d+)?) % efficiency", verdict)
    return float(found[1]) / 100 if found else None


def contradicts(run: dict[str, Any], quiet: list[dict[str, Any]]) -> list[str]:
    """What a disturbed run states that no quiet one agrees with, times in units of the machine's speed beside each run."""

    def steps(one: dict[str, Any]) -> tuple[float, float]:
        low, high = one["range_s"]
        return low / max(one["unit"]), high / min(one["unit"])

    low, high = steps(run)
    found = []
    if high < min(steps(one)[0] for one in quiet):
        found.append("a shorter step")
    if low > max(steps(one)[1] for one in quiet) and not run["is_limit"]:
        found.append("a longer step that is not called a limit")
    known = [one["efficiency"] * max(one["unit"]) for one in quiet if one["efficiency"] is not None]
    if run["efficiency"] is not None and known and run["efficiency"] * min(run["unit"]) > max(known) + 0.01:
        found.append("a higher efficiency")
    if run["disturbed"]:
        named = bounds_of(run["verdict"])
        if named.isdisjoint({"Inefficient or delayed"}.union(*(bounds_of(one["verdict"]) for one in quiet))):
            found.append("another bound")
        for name in sorted({max(one["shares"], key=one["shares"].__getitem__) for one in (run, *quiet)}):
            low, high = share_range(run, name)
            of_quiet = [one["shares"].get(name, 0.0) for one in quiet]
            if high < min(of_quiet) - ROUNDING or low > max(of_quiet) + ROUNDING:
                found.append(f"{name} {low:.0%} to {high:.0%}, not {min(of_quiet):.0%} to {max(of_quiet):.0%}")
    return found


def known_parts(analysis: dict[str, Any], disturbed: bool) -> dict[str, bool]:
    """Whether what does not depend on other programs is there, and a recommendation with its certainty: that the machine is shared."""
    classes = analysis["bound_breakdown"]
    return {
        "FLOPs": analysis["totals"].get("flops", 0) > 0,
        "bounds": any(row.get("lower_bound_s") for row in analysis["operators"]),
        "classes": classes.get("unknown", 0.0) < 0.5 * sum(classes.values()),
        "recommendation": bool(analysis.get("findings")),
        "certainty": not disturbed or "Shared machine" in analysis["verdict"],
    }


def measure(name: str, runs: int, quiet_runs: int, folder: Path) -> list[dict[str, Any]]:
    found, units = [], []
    for number in range(runs):
        for disturbed in (False, True) if number < quiet_runs else (True,):
            before = unit_s()
            analysis = profile(WORKLOADS[name], folder, f"{name[:3]}{number}{disturbed}", disturbed)
            found.append((disturbed, analysis))
            units.append([*before, *unit_s()])
            print(name, number, "disturbed" if disturbed else "quiet", found[-1][1]["verdict"][:160], file=sys.stderr, flush=True)
    quiet = [shares(analysis) for disturbed, analysis in found if not disturbed]
    reference = Counter({key: statistics.median(one[key] for one in quiet) for key in {key for one in quiet for key in one}})
    usual = [statistics.median(values) for values in zip(*units, strict=True)]
    return [
        {**summary(analysis, disturbed, reference), "unit": [value / middle for value, middle in zip(unit, usual, strict=True)]}
        for (disturbed, analysis), unit in zip(found, units, strict=True)
    ]


def bound_of(verdict: str) -> str:
    """The first words of what the verdict says of the bound."""
    for words in BOUNDS:
        if words in verdict:
            return words
    return "other"


def bounds_of(verdict: str) -> set[str]:
    """The bounds that a verdict names: both where it says that one or the other leads, which is no single one, either."""
    first = bound_of(verdict)
    other = re.search(rf"{first} or (\w[\w-]*(?: or delayed)?):", verdict)
    return {first, other[1].capitalize(), "No single bound"} if other else {first}


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "| workload | | judged | new pages | verdict | first advice | bars / timed step | distance (max) | ten longest rows |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in results.items():
        for disturbed in (False, True):
            chosen = [run for run in runs if run["disturbed"] == disturbed]
            judged = [run for run in chosen if run["judged"]]
            count = ", ".join(f"{words} {n}" for words, n in Counter(bound_of(run["verdict"]) for run in chosen).most_common())
            first = ", ".join(f"{words} {n}" for words, n in Counter(run["first"] for run in judged).most_common())
            sums = [run["bars_over_step"] for run in chosen]
            away = [run["distance"] for run in judged]
            far = f"{statistics.median(away):.1%} ({max(away):.1%})" if away else "-"
            rank = f"{statistics.mean(run['ten_longest_found'] for run in judged):.1f}" if judged else "-"
            what = "disturbed" if disturbed else "quiet"
            sums_text = f"{min(sums):.4f} to {max(sums):.4f}"
            cells = (
                name,
                what,
                f"{len(judged)} of {len(chosen)}",
                str(sum(run["pages"] for run in judged)),
                count,
                first,
                sums_text,
                far,
                rank,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--quiet", type=int, default=8)
    parser.add_argument("--only", nargs="*", choices=WORKLOADS, default=list(WORKLOADS))
    asked = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    results: dict[str, list[dict[str, Any]]] = {name: runs for name, runs in known["runs"].items() if name not in asked.only}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "step.py").write_text(STEP)
        (folder / "train.py").write_text(TRAINING)
        for name in asked.only:
            results[name] = measure(name, asked.runs, asked.quiet, folder)
            facts = {
                "cpu_threads": psutil.cpu_count(),
                "memory_bytes": psutil.virtual_memory().total,
                "date": time.strftime("%Y-%m-%d"),
            }
            RESULTS.write_text(json.dumps({"machine": facts, "runs": results}, indent=1) + "\n")
            RESULTS.with_suffix(".md").write_text(table(results))
    print(table(results))
    for name, runs in results.items():
        for one in runs:
            one["contradicts"] = contradicts(one, [other for other in runs if not other["disturbed"]]) if one["disturbed"] else []
        quiet_s = sorted(run["step_s"] for run in runs if not run["disturbed"])
        quiet = [run for run in runs if not run["disturbed"]]
        # How far the machine by itself takes one run from the others, which is no property of a disturbed one.
        apart = sum(bool(contradicts(run, [one for one in quiet if one is not run])) for run in quiet) if len(quiet) > 1 else 0
        print(
            f"{name}: the medians of the quiet runs differ by {quiet_s[-1] / quiet_s[0] - 1:.0%}; {apart} of {len(quiet)} contradict"
            " the other quiet ones"
        )
    every = [run for runs in results.values() for run in runs]
    uneven = [run for run in every if abs(run["bars_over_step"] - 1) > 1e-3]
    away = [run for run in every if run["disturbed"] and run["judged"] and run["distance"] > LIMIT]
    unsaid = [run for run in away if not run["pages"]]
    lacking = [run for run in every if run.get("lacks")]
    contradicting = [run for run in every if run.get("contradicts")]
    checked = [run["check"] for run in every if run["disturbed"] and "check" in run]
    failing = [one for one in checked if one["exit"]]
    print(
        f"{len(every)} runs, {len(uneven)} whose bars do not add up to the step, {len(away)} judged ones further than {LIMIT:.0%} away,"
        f" {len(unsaid)} of them without a word on new pages, {len(lacking)} that lack something, {len(contradicting)} that contradict"
        f" the quiet ones; {len(checked)} checks of identical code, {len(failing)} with another exit code than 0"
    )
    for run in (*lacking, *contradicting):
        print(f"{', '.join((*run['lacks'], *run['contradicts']))}: {run['verdict']}")
    print(*failing, sep="\n")
    return bool(uneven or unsaid or lacking or contradicting or failing)


if __name__ == "__main__":
    sys.exit(main())
