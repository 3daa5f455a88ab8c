"""The counters part: bytes and FLOPs of single operators by hardware counters (Nsight Compute), compared with our count of them."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rooflines.gpu_check import laws
from rooflines.gpu_check.commands import run_logged
from rooflines.gpu_check.recorder import Recorder
from rooflines.profiler.directory import file_stem

# Nsight Compute's names: bytes that reach or leave device memory, and floating-point instructions of fp32 by kind, per thread.
DRAM_BYTES = "dram__bytes.sum"
FP32_INSTRUCTIONS = {
    f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum": flops for kind, flops in (("fadd", 1), ("fmul", 1), ("ffma", 2))
}


class Operator(NamedTuple):
    """One call to count: how it is made, and how far the counters may be from our count (None: only reported)."""

    make: Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
    bytes_within: float | None
    flops_within: float | None


def operators() -> dict[str, Operator]:
    """Operators whose traffic is far larger than any cache, so that the compulsory bytes are all there are; and two products.

    What a kernel leaves in the L2 cache when it ends was not written to memory yet: a few per cent of a GiB. The FLOPs of an addition
    are not compared, because torch compiles ``a + alpha * b`` to FMAs.
    """
    count = 1 << 28  # elements: 1 GiB of fp32

    def numbers(torch: Any, *sizes: int, **options: Any) -> Any:
        return torch.rand(*sizes, device="cuda", **options)

    return {
        "add fp32": Operator(lambda torch: (torch.add, (numbers(torch, count), numbers(torch, count))), 0.1, None),
        "mul fp32": Operator(lambda torch: (torch.mul, (numbers(torch, count), numbers(torch, count))), 0.1, 0.05),
        "sum fp32": Operator(lambda torch: (torch.sum, (numbers(torch, count),)), 0.1, 0.05),
        "relu bf16": Operator(lambda torch: (torch.relu, (numbers(torch, count, dtype=torch.bfloat16),)), 0.1, None),
        "copy fp32": Operator(lambda torch: (torch.clone, (numbers(torch, count),)), 0.1, None),
        "layer_norm fp32": Operator(
            lambda torch: (torch.nn.functional.layer_norm, (numbers(torch, count // 4096, 4096), (4096,))), 0.1, None
        ),
        "mm fp32 4096": Operator(lambda torch: (torch.mm, (numbers(torch, 4096, 4096), numbers(torch, 4096, 4096))), None, 0.05),
        "mm bf16 8192": Operator(
            lambda torch: (torch.mm, tuple(numbers(torch, 8192, 8192, dtype=torch.bfloat16) for _ in range(2))), None, None
        ),
    }


def run(recorder: Recorder) -> None:
    """Count every operator twice: by the hardware, and by us."""
    ncu = find_ncu()
    if ncu is None:
        recorder.leave_out("hardware counters", "ncu (Nsight Compute) is not installed")
        return
    rows: dict[str, Any] = {}
    for name, operator in operators().items():
        log = recorder.folder / f"{file_stem(name)}.csv"
        command = [
            ncu, "--csv", "--page", "details", "--print-units", "base", "--clock-control", "none", "--profile-from-start", "off",
            "--target-processes", "all", "--metrics", ",".join([DRAM_BYTES, *FP32_INSTRUCTIONS]), "--log-file", str(log),
            sys.executable, "-m", "rooflines.gpu_check.counters", name,
        ]  # fmt: skip
        done = run_logged(command, log.with_suffix(".txt"))
        text = log.read_text() if log.exists() else ""
        if why := counters_refused(text + done.stdout + done.stderr):
            recorder.leave_out("hardware counters", why)
            return
        counted = parse_counters(text)
        said = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), "")
        if done.returncode or not counted or not said:
            rows[name] = {"error": (text + done.stdout + done.stderr)[-2000:]}
            recorder.check(laws.judged("ncu counts", name, False, f"exit code {done.returncode}, {len(counted)} metrics"))
        else:
            ours = json.loads(said)
            rows[name] = {**ours, **beside(counted, ours)}
            for kind, within in (("bytes", operator.bytes_within), ("flops", operator.flops_within)):
                if within is not None:
                    recorder.check(laws.counted_alike(name, kind, rows[name].get(f"{kind}_ratio"), within))
        recorder.figure("operators", rows)


def count_operator(name: str) -> dict[str, int]:
    """Run one operator between cudaProfilerStart and cudaProfilerStop, in the process that ncu watches; our count of it."""
    import torch

    import rooflines

    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.no_grad():
        function, inputs = operators()[name].make(torch)
        count = rooflines.count(function, *inputs)
        function(*inputs)  # loads the kernel
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        function(*inputs)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
    return {"our_bytes": count.bytes, "our_flops": count.flops}


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


def parse_counters(text: str) -> dict[str, float]:
    """Metric to its sum over all kernels, from what ``ncu --csv --page details --print-units base`` wrote.

    Lines of ncu's own (==PROF==) and of the program stand around the table; numbers may have commas for thousands.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return {}
    found: dict[str, float] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        name, value = row.get("Metric Name"), (row.get("Metric Value") or "").replace(",", "")
        try:
            found[name or ""] = found.get(name or "", 0.0) + float(value)
        except ValueError:  # "n/a" where a chip has no such counter, or a line of the program's
            continue
    found.pop("", None)
    return found


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
    sys.stdout.write(json.dumps(count_operator(sys.argv[1])) + "\n")
