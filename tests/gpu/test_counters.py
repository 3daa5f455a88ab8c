"""The counters part: DRAM bytes and FLOPs of single operators by hardware counters (Nsight Compute), compared with our count of them.

One process runs ten operators (``operators``) under ``ncu``, each in an NVTX range of its name, because starting ``ncu`` and torch
takes most of the time.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rooflines.units import percent
from tests.gpu.operators import OPERATORS
from tests.gpu.parts import Device, Findings, Judge, Recorder, Verdict, named, python, run_logged

# Nsight Compute's names: bytes that reach or leave device memory, and floating-point instructions of fp32 by kind, per thread.
DRAM_BYTES = "dram__bytes.sum"
FP32_INSTRUCTIONS = {
    f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum": flops for kind, flops in (("fadd", 1), ("fmul", 1), ("ffma", 2))
}
# The column of the ranges that the thread had pushed when it launched a kernel, and one of them in it: ncu quotes each, with its domain
# before its name and its payload behind it.
_RANGES_COLUMN = "Push/Pop_Range"
_RANGE = re.compile(r"<default domain>:([^:]+):")
_LIMIT_S = 90.0
_SUBJECT = "hardware counters"

# A kernel ends before the last of what it wrote has left the L2 cache, of 126 MB at most (B200): 6 % of 2 GiB. Memories that keep their
# error correction within the data (GDDR) move a sixteenth more.
BYTES_WITHIN = 0.1
# Address arithmetic is done in integers; what remains is the ends of sums.
_FLOPS_WITHIN = 0.05
# The FLOPs of an addition are not compared, because torch compiles ``a + alpha * b`` to FMAs; those of functions of an element
# (softmax) are counted by convention. Products of bf16 run on tensor cores, whose instructions these counters do not see.
_FLOPS_COMPARED = ("sum fp32", "mm fp32")


def run_commands(recorder: Recorder) -> None:
    """Count every operator twice: by the hardware, and by us."""
    if (ncu := find_ncu()) is None:
        recorder.leave_out(_SUBJECT, "ncu (Nsight Compute) is not installed")
        return
    log = recorder.folder / "ncu.csv"
    done = run_logged(command(ncu, log, recorder.torch_device), log.with_suffix(".txt"), min(_LIMIT_S, recorder.left_s))
    text = log.read_text() if log.exists() else ""
    if why := counters_refused(text + done.stdout + done.stderr):
        recorder.leave_out(_SUBJECT, why)
        return
    recorder.figure("operators", rows(parse_counters(text), parse_counts(done.stdout)))
    if done.code != 0:
        recorder.error = f"ncu: {done.how}"


def rows(counted: dict[str, dict[str, float]], ours: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the two counts of each operator and their ratios, or why it was ``left_out``."""
    found: dict[str, Any] = {}
    for name in OPERATORS:
        mine = ours.get(name, {"left_out": "the process ended before it"})
        found[name] = mine if "left_out" in mine else {**mine, **beside(counted.get(name, {}), mine)}
        if "left_out" not in mine and name not in counted:
            found[name]["error"] = "no kernel in its range"
    return found


def command(ncu: str, log: Path, torch_device: str) -> list[str]:
    """Return the command that counts all operators and writes the counters to ``log``; the process prints our counts."""
    return [
        ncu, "--csv", "--page", "details", "--print-units", "base", "--nvtx", "--clock-control", "none", "--profile-from-start", "off",
        "--target-processes", "all", "--metrics", ",".join([DRAM_BYTES, *FP32_INSTRUCTIONS]), "--log-file", str(log),
        *python("tests.gpu.operators", torch_device),
    ]  # fmt: skip


def find_ncu() -> str | None:
    """Return Nsight Compute's command line, on the path or where its packages put it."""
    places = [Path("/usr/local/cuda/bin/ncu"), *sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)]
    return shutil.which("ncu") or next((str(place) for place in places if place.exists()), None)


def counters_refused(text: str) -> str:
    """Return why the hardware's counters cannot be read on this machine at all, or empty."""
    if "ERR_NVGPUCTRPERM" in text:
        return "the driver lets only administrators read the counters (ERR_NVGPUCTRPERM)"
    failed = re.search(r"==ERROR== (Failed to (?:initialize|prepare)[^\n]*|[^\n]*LibraryNotLoaded[^\n]*)", text)
    return f"ncu cannot read the counters here ({failed[1].strip()})" if failed else ""


def parse_counters(text: str) -> dict[str, dict[str, float]]:
    """Return, by operator and metric, its sum over the kernels of the operator, from what ``ncu --csv --page details --nvtx`` wrote.

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
    """Return our count by operator, from what the process printed: one JSON object a line, among lines of ncu."""
    counts = (json.loads(line) for line in text.splitlines() if line.startswith('{"operator"'))
    return {count.pop("operator"): count for count in counts}


def beside(counted: dict[str, float], ours: dict[str, int]) -> dict[str, float]:
    """Return the hardware's counts and their ratio to ours, of what was counted and is not 0."""
    found = {}
    if DRAM_BYTES in counted:
        found["bytes"] = counted[DRAM_BYTES]
    if all(name in counted for name in FP32_INSTRUCTIONS):
        found["flops"] = sum(counted[name] * flops for name, flops in FP32_INSTRUCTIONS.items())
    ratios = {f"{kind}_ratio": value / ours[f"our_{kind}"] for kind, value in found.items() if ours[f"our_{kind}"]}
    return found | ratios


# --- laws ---------------------------------------------------------------------------------------------------------------------------


def ncu_counts(found: Findings, device: Device) -> Verdict:
    """At least one operator was counted by the hardware."""
    counted = [name for name, row in found.figure("operators", dict[str, Any]).items() if "bytes" in row or "flops" in row]
    return bool(counted), f"{len(counted)} operators"


def agrees(kind: str, within: float, name: str, found: Findings, device: Device) -> Verdict:
    """The hardware's bytes or FLOPs of an operator are ours."""
    row = found.figure("operators", dict[str, Any]).get(name, {"left_out": "it was not counted"})
    if "left_out" in row:
        return str(row["left_out"])
    if "error" in row:
        return False, row["error"]
    ratio = row.get(f"{kind.lower()}_ratio")
    return "the hardware has no such counter" if ratio is None else (abs(ratio - 1) <= within, f"{ratio:.4f}")


def _laws(kind: str, within: float, operators: Iterable[str]) -> list[Any]:
    law = f"{kind} by hardware counters within {percent(within)} of ours"
    return [param for name in operators for param in named(name, {law: partial(agrees, kind, within, name)})]


LAWS = [
    *named(_SUBJECT, {"ncu counts": ncu_counts}),
    *_laws("bytes", BYTES_WITHIN, OPERATORS),
    *_laws("FLOPs", _FLOPS_WITHIN, _FLOPS_COMPARED),
]


@pytest.mark.gpu
@pytest.mark.parametrize("law", LAWS)
def test_counters(judge: Callable[[Judge], None], law: Judge) -> None:
    judge(law)
