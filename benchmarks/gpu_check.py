"""Everything that needs an NVIDIA GPU, in one command and one JSON: ``make gpu-check``.

Runs the tests marked ``gpu`` and ``rooflines profile --model resnet50 --device cuda`` in inference and training, fp32 and amp-bf16, and
checks on each run the laws that hold on a CPU: times add up to the span, matrix FLOPs equal the closed form, nothing beats its bound.
Needs no network and nothing beyond what constraints.txt lists; what is missing (pytest, a report's library) is said and left out.

Writes benchmarks/results/gpu-check-DEVICE.json (or --output) and exits 1 when a check failed, 0 otherwise, also without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODEL = "resnet50"
BATCH = 32
# GMAC of one image: torchvision's `_ops` for resnet50, and of its first convolution (64 x 3 x 7 x 7 x 112 x 112).
FORWARD_MACS = 4_089_184_256
FIRST_CONVOLUTION_MACS = 64 * 3 * 7 * 7 * 112 * 112
RUNS = [(mode, precision) for mode in ("inference", "training") for precision in ("fp32", "amp-bf16")]


def main() -> int:
    """Run every check; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="the JSON to write")
    parser.add_argument("--keep", type=Path, help="keep the run directories there")
    options = parser.parse_args()

    try:
        import torch
    except ImportError:
        print(f"gpu-check: {sys.executable} has no torch: nothing was checked. Run 'make profile' first, or give PYTHON=.")
        return 2

    if not torch.cuda.is_available():
        reason = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds no usable NVIDIA GPU or driver"
        print(f"gpu-check: no NVIDIA GPU here ({reason}): nothing was checked.")
        return 0
    sys.path.insert(0, str(ROOT))
    from rooflines import serial
    from rooflines.profiler.environment import collect_environment

    name = torch.cuda.get_device_name()
    output = (
        options.output or ROOT / "benchmarks" / "results" / f"gpu-check-{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-').lower()}.json"
    )
    result: dict[str, Any] = {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "environment": serial.to_plain(collect_environment("cuda:0")),
        "checks": [],
        "runs": [],
    }
    result["tests"] = run_tests(result["checks"])
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        for mode, precision in RUNS:
            result["runs"].append(run_profile(mode, precision, folder, result["checks"]))
            write(output, result)  # after every part: a machine that goes away leaves what was measured
    write(output, result)
    failed = [check for check in result["checks"] if not check["ok"]]
    for check in result["checks"]:
        print(f"{'ok    ' if check['ok'] else 'FAILED'} {check['what']}: {check['found']}")
    left_out = f"; the tests were left out: {result['tests']['left_out']}" if "left_out" in result["tests"] else ""
    print(f"gpu-check: {len(result['checks']) - len(failed)} passed, {len(failed)} failed on {name}{left_out}; {output}")
    return 1 if failed else 0


def write(path: Path, result: dict[str, Any]) -> None:
    """The result so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def note(checks: list[dict[str, Any]], what: str, ok: bool, found: str) -> None:
    """Add one check."""
    checks.append({"what": what, "ok": bool(ok), "found": found})


def run_tests(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The tests marked gpu, in a process of their own."""
    missing = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"gpu-check: the tests are left out: {' and '.join(missing)} not installed")
        return {"left_out": f"{' and '.join(missing)} not installed"}
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "--tb=short"]
    found = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    tail = found.stdout.strip().splitlines()[-1:] or found.stderr.strip().splitlines()[-1:]
    note(checks, "tests marked gpu", found.returncode == 0, tail[0] if tail else f"exit {found.returncode}")
    if found.returncode != 0:
        print(found.stdout[-6000:], found.stderr[-2000:], sep="\n")
    return {
        "exit_code": found.returncode,
        "summary": tail[0] if tail else "",
        "output": found.stdout[-6000:] if found.returncode else "",
    }


def run_profile(mode: str, precision: str, folder: Path, checks: list[dict[str, Any]]) -> dict[str, Any]:
    """One run through the command line, with the laws that its analysis must obey."""
    label = f"{MODEL} {mode} {precision}"
    directory = folder / f"{MODEL}-{mode}-{precision}"
    formats = [
        name
        for name, needs in {"html": "plotly", "pdf": "typst", "tensorboard": "tensorboard"}.items()
        if importlib.util.find_spec(needs)
    ]
    command = [
        sys.executable, "-m", "rooflines", "profile", "--model", MODEL, "--device", "cuda", "--mode", mode, "--precision", precision,
        "--batch-size", str(BATCH), "--output", str(directory), "--formats", ",".join(["json", "csv", *formats]), "--quiet",
    ]  # fmt: skip
    begun = time.perf_counter()
    found = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - begun
    note(checks, f"{label}: ran", found.returncode == 0, f"exit {found.returncode} after {wall_s:.1f} s")
    if found.returncode != 0:
        print(found.stdout[-2000:], found.stderr[-4000:], sep="\n")
        return {"label": label, "error": found.stderr[-4000:]}
    analysis = json.loads((directory / "analysis.json").read_text())
    check_laws(label, analysis, mode, checks)
    kept = (
        "verdict", "workload", "basis", "ceilings", "totals", "timeline", "step_breakdown", "bound_breakdown", "coverage", "findings",
        "memory", "notes",
    )  # fmt: skip
    summary = {key: analysis[key] for key in kept if key in analysis}
    summary["steps"] = {key: value for key, value in analysis["steps"].items() if key != "durations_s"}
    return {"label": label, "wall_s": wall_s, **summary, "operators": analysis["operators"][:25]}


def check_laws(label: str, analysis: dict[str, Any], mode: str, checks: list[dict[str, Any]]) -> None:
    """Times add up, FLOPs equal the closed form, the operators are covered, nothing beats its bound."""
    timeline, operators, coverage = analysis["timeline"], analysis["operators"], analysis["coverage"]
    parts = sum(row["time_s"] for row in operators) + sum(item["time_s"] for item in coverage["unmodelled"]) + timeline["idle_s"]
    error = abs(parts - timeline["overlap_s"] - timeline["span_s"]) / timeline["span_s"]
    note(checks, f"{label}: operators + unmodelled + idle = span within 0.1 %", error < 1e-3, f"off by {error:.2e}")
    macs = FORWARD_MACS if mode == "inference" else 3 * FORWARD_MACS - FIRST_CONVOLUTION_MACS
    ratio = analysis["totals"]["matrix_flops"] / (2 * macs * BATCH)
    note(checks, f"{label}: matrix FLOPs equal the closed form within 0.1 %", abs(ratio - 1) < 1e-3, f"ratio {ratio:.6f}")
    fraction, least = coverage["modelled_time_fraction"], 0.97 if mode == "inference" else 0.95
    note(checks, f"{label}: coverage >= {least}", fraction >= least, f"{fraction:.4f}")
    best = max(operators, key=lambda row: row.get("efficiency", 0.0))
    most = best.get("efficiency", 0.0)
    where = f"{best['name']} {best['module']} {best['shapes']}"
    note(checks, f"{label}: no efficiency above 1.1", most <= 1.1, f"{most:.3f} by {where}")
    named = [row for row in operators if row["category"] == "convolution" and row["module"]]
    note(
        checks,
        f"{label}: convolutions carry module names",
        any(row["module"] == "layer1.0.conv2" for row in named),
        f"{len(named)} rows",
    )
    phases = {row["phase"] for row in operators if row["time_s"] > 0}
    wanted = {"forward"} if mode == "inference" else {"forward", "backward", "optimizer"}
    note(checks, f"{label}: phases are told apart", wanted <= phases, ", ".join(sorted(phase or "none" for phase in phases)))


def environment() -> dict[str, str]:
    """Ours with the repository importable: the GPU machine may not have the package installed."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


if __name__ == "__main__":
    sys.exit(main())
