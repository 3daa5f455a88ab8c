"""The counters part: DRAM bytes and FLOPs of single operators by hardware counters (Nsight Compute), compared with our count of them.

One process runs ten operators under ``ncu``, each in an NVTX range of its name, because starting ``ncu`` and torch takes most of the
time. The compulsory bytes of these operators are also what their kernels move: each reads its inputs once and writes its result once,
element by element, row by row with rows that fit a block, a product whose smaller matrix fits one tile, a convolution of each channel
by itself. Memory is far larger than any cache: 2 GiB and more.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rooflines.gpu_check.records import Recorder, Verdict, judged, run_logged
from rooflines.units import percent

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
_SUBJECT, _LAW = "hardware counters", "ncu counts"

# On a GPU, elements of 4 bytes in 1 GiB; on a CPU few, to count them by the same code.
ELEMENTS = {"cuda": 1 << 28, "cpu": 1 << 14}
# A kernel ends before the last of what it wrote has left the L2 cache, of 126 MB at most (B200): 6 % of 2 GiB. Memories that keep their
# error correction within the data (GDDR) move a sixteenth more.
BYTES_WITHIN = 0.1
# Address arithmetic is done in integers; what remains is the ends of sums.
_FLOPS_WITHIN = 0.05
_WIDTH = 64  # of the smaller matrix: no tile of a product is narrower, so that the larger matrix is read once
_ROW = 1024
OPERATORS = (
    "add fp32", "sum fp32", "relu bf16", "fp32 to bf16", "layer_norm fp32", "softmax fp32", "depthwise conv fp32", "embedding fp32",
    "mm fp32", "mm bf16",
)  # fmt: skip
# The FLOPs of an addition are not compared, because torch compiles ``a + alpha * b`` to FMAs; those of functions of an element
# (softmax) are counted by convention. Products of bf16 run on tensor cores, whose instructions these counters do not see.
_FLOPS_COMPARED = ("sum fp32", "mm fp32")

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def run(recorder: Recorder) -> None:
    """Count every operator twice: by the hardware, and by us."""
    ncu = find_ncu()
    if ncu is None:
        recorder.leave_out(_SUBJECT, "ncu (Nsight Compute) is not installed")
        return
    if (limit_s := recorder.seconds_for(_SUBJECT, _LIMIT_S)) is None:
        return
    log = recorder.folder / "ncu.csv"
    done = run_logged(command(ncu, log, recorder.torch_device), log.with_suffix(".txt"), limit_s)
    text = log.read_text() if log.exists() else ""
    if done.code is None:
        recorder.check(judged(_LAW, _SUBJECT, (False, done.how)))
        return
    if why := counters_refused(text + done.stdout + done.stderr):
        recorder.leave_out(_SUBJECT, why)
        return
    counted, ours = parse_counters(text), parse_counts(done.stdout)
    recorder.check(judged(_LAW, _SUBJECT, (done.code == 0 and bool(counted), f"{done.how}, {len(counted)} operators")))
    rows: dict[str, Any] = {}
    for name in OPERATORS:
        mine = ours.get(name)
        if mine is None or "left_out" in mine:
            recorder.leave_out(f"counters of {name}", "the process ended before it" if mine is None else mine["left_out"])
            continue
        if name not in counted:
            recorder.check(judged(_LAW, name, (False, "no kernel in its range")))
            continue
        rows[name] = {**mine, **beside(counted[name], mine)}
        compared = {"bytes": BYTES_WITHIN, **({"FLOPs": _FLOPS_WITHIN} if name in _FLOPS_COMPARED else {})}
        for kind, within in compared.items():
            ratio = rows[name].get(f"{kind.lower()}_ratio")
            verdict: Verdict = "the hardware has no such counter" if ratio is None else (abs(ratio - 1) <= within, f"{ratio:.4f}")
            recorder.check(judged(f"{kind} by hardware counters within {percent(within)} of ours", name, verdict))
    recorder.figure("operators", rows)


def command(ncu: str, log: Path, torch_device: str) -> list[str]:
    """Return the command that counts all operators and writes the counters to ``log``; the process prints our counts."""
    return [
        ncu, "--csv", "--page", "details", "--print-units", "base", "--nvtx", "--clock-control", "none", "--profile-from-start", "off",
        "--target-processes", "all", "--metrics", ",".join([DRAM_BYTES, *FP32_INSTRUCTIONS]), "--log-file", str(log),
        sys.executable, "-m", "rooflines.gpu_check.counters", torch_device,
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


# --- the operators, in the process of ncu -------------------------------------------------------------------------------------------


def _calls(elements: int, device: str) -> dict[str, Callable[[], Call]]:
    """Return what makes the call of each of ``OPERATORS``, of ``elements`` of 4 bytes (twice as many of 2 bytes) on ``device``."""
    import torch
    from torch.nn import functional

    def random(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.rand(*sizes, device=device, dtype=dtype)

    half, rows, side = torch.bfloat16, elements // _ROW, 256 if device == "cuda" else 16
    return {
        "add fp32": lambda: (torch.add, (random(elements), random(elements))),
        "sum fp32": lambda: (torch.sum, (random(2 * elements),)),
        "relu bf16": lambda: (torch.relu, (random(2 * elements, dtype=half),)),
        # A copy of one type into another: a copy of the same type is no kernel, but a transfer of the driver's that ncu does not count.
        "fp32 to bf16": lambda: (torch.Tensor.to, (random(2 * elements), half)),
        "layer_norm fp32": lambda: (functional.layer_norm, (random(rows, _ROW), (_ROW,))),
        "softmax fp32": lambda: (torch.softmax, (random(rows, _ROW), -1)),
        # 3 x 3 on each channel by itself, by a kernel of torch's own: cuDNN may change the layout first, which moves everything again.
        "depthwise conv fp32": lambda: (
            functional.conv2d,
            (random(elements // (64 * side * side), 64, side, side), random(64, 1, 3, 3), None, 1, 1, 1, 64),
        ),
        # Every row of a table once, in random order.
        "embedding fp32": lambda: (functional.embedding, (torch.randperm(rows, device=device), random(rows, _ROW))),
        "mm fp32": lambda: (torch.mm, (random(elements // _WIDTH, _WIDTH), random(_WIDTH, _WIDTH))),
        "mm bf16": lambda: (
            torch.mm, (random(2 * elements // _WIDTH, _WIDTH, dtype=half), random(_WIDTH, _WIDTH, dtype=half))
        ),
    }  # fmt: skip


def count_operators(torch_device: str) -> Iterator[dict[str, Any]]:
    """Run each operator and yield our count of it: ``operator``, ``our_bytes`` and ``our_flops``, or why it is ``left_out``.

    On a GPU each runs a second time in an NVTX range of its name between cudaProfilerStart and cudaProfilerStop, for ``ncu``.
    """
    import torch

    torch.set_float32_matmul_precision("highest")
    device = torch_device.partition(":")[0]
    with torch.no_grad():
        for name, call in _calls(ELEMENTS[device], device).items():
            yield {"operator": name, **_count(name, call, device)}


def _count(name: str, call: Callable[[], Call], device: str) -> dict[str, Any]:
    import torch

    from rooflines.roofline.counting.count import count

    try:
        function, inputs = call()
        counted = count(function, *inputs)
        if device == "cuda":
            _profile(name, function, inputs)
    except torch.OutOfMemoryError:
        return {"left_out": "not enough free memory on the device"}
    return {"our_bytes": counted.bytes, "our_flops": counted.flops}


def _profile(name: str, function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    import torch

    function(*inputs)  # loads the kernel
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
    function(*inputs)
    torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    for _counted in count_operators(sys.argv[1]):
        sys.stdout.write(json.dumps(_counted) + "\n")
        sys.stdout.flush()
