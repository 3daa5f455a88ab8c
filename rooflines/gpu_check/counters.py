"""The counters part: DRAM bytes and FLOPs of single operators by hardware counters (Nsight Compute), compared with our count of them.

One process runs all operators under ``ncu``, each in an NVTX range of its name, because starting ``ncu`` and torch takes most of the
time.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rooflines.gpu_check import laws
from rooflines.gpu_check.commands import run_logged
from rooflines.gpu_check.counted_operators import OPERATORS, count_operators
from rooflines.gpu_check.recorder import Recorder

# Nsight Compute's names: bytes that reach or leave device memory, and floating-point instructions of fp32 by kind, per thread.
DRAM_BYTES = "dram__bytes.sum"
FP32_INSTRUCTIONS = {
    f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum": flops for kind, flops in (("fadd", 1), ("fmul", 1), ("ffma", 2))
}
# The column of the ranges that the thread had pushed when it launched a kernel, and one of them in it: ncu quotes each, with its domain
# before its name and its payload behind it.
_RANGES_COLUMN = "Push/Pop_Range"
_RANGE = re.compile(r"<default domain>:([^:]+):")
# More than it takes. It ends before the part does, and is not begun with less time than torch takes to load.
_LIMIT_S, _MARGIN_S, _LEAST_S = 90.0, 3.0, 15.0
_SUBJECT = "hardware counters"


def run(recorder: Recorder) -> None:
    """Count every operator twice: by the hardware, and by us."""
    ncu = find_ncu()
    if ncu is None:
        recorder.leave_out(_SUBJECT, "ncu (Nsight Compute) is not installed")
        return
    log = recorder.folder / "ncu.csv"
    limit_s = min(_LIMIT_S, recorder.left_s - _MARGIN_S)
    if limit_s < _LEAST_S:
        recorder.leave_out(_SUBJECT, "no time was left")
        return
    try:
        done = run_logged(command(ncu, log, recorder.torch_device), log.with_suffix(".txt"), timeout_s=limit_s)
    except subprocess.TimeoutExpired:
        recorder.check(laws.judged("ncu counts", _SUBJECT, False, f"stopped after {limit_s:.0f} s"))
        return
    text = log.read_text() if log.exists() else ""
    if why := counters_refused(text + done.stdout + done.stderr):
        recorder.leave_out(_SUBJECT, why)
        return
    counted, ours = parse_counters(text), parse_counts(done.stdout)
    recorder.check(
        laws.judged(
            "ncu counts", _SUBJECT, done.returncode == 0 and bool(counted), f"exit code {done.returncode}, {len(counted)} operators"
        )
    )
    rows: dict[str, Any] = {}
    for name, operator in OPERATORS.items():
        mine = ours.get(name)
        if mine is None or "left_out" in mine:
            recorder.leave_out(f"counters of {name}", "the process ended before it" if mine is None else mine["left_out"])
            continue
        if name not in counted:
            recorder.check(laws.judged("ncu counts", name, False, "no kernel in its range"))
            continue
        rows[name] = {**mine, **beside(counted[name], mine)}
        for kind, within in (("bytes", operator.bytes_within), ("FLOPs", operator.flops_within)):
            if within is not None:
                recorder.check(laws.counted_alike(name, kind, rows[name].get(f"{kind.lower()}_ratio"), within))
    recorder.figure("operators", rows)


def command(ncu: str, log: Path, torch_device: str) -> list[str]:
    """The command that counts all operators and writes the counters to ``log``; the process prints our counts."""
    return [
        ncu, "--csv", "--page", "details", "--print-units", "base", "--nvtx", "--clock-control", "none", "--profile-from-start", "off",
        "--target-processes", "all", "--metrics", ",".join([DRAM_BYTES, *FP32_INSTRUCTIONS]), "--log-file", str(log),
        sys.executable, "-m", "rooflines.gpu_check.counters", torch_device,
    ]  # fmt: skip


def find_ncu() -> str | None:
    """Nsight Compute's command line, on the path or where its packages put it."""
    places = [Path("/usr/local/cuda/bin/ncu"), *sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)]
    return shutil.which("ncu") or next((str(place) for place in places if place.exists()), None)


def counters_refused(text: str) -> str:
    """Why the hardware's counters cannot be read on this machine at all, or empty."""
    if "ERR_NVGPUCTRPERM" in text:
        return "the driver lets only administrators read the counters (ERR_NVGPUCTRPERM)"
    failed = re.search(r"==ERROR== (Failed to (?:initialize|prepare)[^\n]*|[^\n]*LibraryNotLoaded[^\n]*)", text)
    return f"ncu cannot read the counters here ({failed[1].strip()})" if failed else ""


def parse_counters(text: str) -> dict[str, dict[str, float]]:
    """Operator to metric to its sum over the kernels of the operator, from what ``ncu --csv --page details --nvtx`` wrote.

    Lines of ncu's own (==PROF==) and of the program stand around the table; numbers may have commas for thousands. Kernels outside of
    the ranges of our operators are left out.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return {}
    table = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    column = next((name for name in table.fieldnames or () if _RANGES_COLUMN in name), "")
    found: dict[str, dict[str, float]] = {}
    for row in table:
        operator = next((name for name in _RANGE.findall(row.get(column) or "") if name in OPERATORS), None)
        metric, value = row.get("Metric Name"), (row.get("Metric Value") or "").replace(",", "")
        if operator is None or not metric:
            continue
        sums = found.setdefault(operator, {})
        with contextlib.suppress(ValueError):  # "n/a" where a chip has no such counter
            sums[metric] = sums.get(metric, 0.0) + float(value)
    return found


def parse_counts(text: str) -> dict[str, dict[str, Any]]:
    """Operator to our count of it, from what the process printed: one JSON object a line, among lines of ncu."""
    found = (json.loads(line) for line in text.splitlines() if line.startswith('{"operator"'))
    return {one.pop("operator"): one for one in found}


def beside(counted: dict[str, float], ours: dict[str, int]) -> dict[str, float]:
    """The hardware's counts and their ratio to ours, of what was counted and is not 0."""
    found = {}
    if DRAM_BYTES in counted:
        found["bytes"] = counted[DRAM_BYTES]
    if all(name in counted for name in FP32_INSTRUCTIONS):
        found["flops"] = sum(counted[name] * flops for name, flops in FP32_INSTRUCTIONS.items())
    ratios = {f"{kind}_ratio": value / ours[f"our_{kind}"] for kind, value in found.items() if ours[f"our_{kind}"]}
    return found | ratios


if __name__ == "__main__":
    for _count in count_operators(sys.argv[1]):
        sys.stdout.write(json.dumps(_count) + "\n")
        sys.stdout.flush()
