"""Everything that needs an NVIDIA GPU, in one command and one JSON: ``make gpu-check``.

In this order, each part in processes of its own and written to the JSON as soon as it is done; one that fails does not stop the others:

- ceilings: the full set of this GPU's measured roofs beside its data sheet, on an H200 against the project's targets
- networks: the network of our own CUDA kernels beside eager torch's, and CuPy beside NumPy operator by operator (gpu_networks.py)
- counters: bytes and FLOPs of single operators as the hardware counts them, where Nsight Compute (``ncu``) is installed and allowed to
- energy: of a matrix product held for 20 s, by the energy counter and by integrating power; the two agree within 3 %
- tests: those marked ``gpu``
- profiles: ``rooflines profile --model resnet50 --device cuda`` in inference and training, fp32 and amp-bf16, and the laws that hold
  on a CPU: times add up to the span, matrix FLOPs equal the closed form, nothing beats its bound

Needs no network and nothing beyond what constraints.txt lists; what is missing (pytest, a report's library, ncu) is said and left out.

Writes benchmarks/results/gpu-check-DEVICE.json (or --output) and exits 1 when a check failed, 0 otherwise, also without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MODEL = "resnet50"
BATCH = 32
# GMAC of one image: torchvision's `_ops` for resnet50, and of its first convolution (64 x 3 x 7 x 7 x 112 x 112).
FORWARD_MACS = 4_089_184_256
FIRST_CONVOLUTION_MACS = 64 * 3 * 7 * 7 * 112 * 112
RUNS = [(mode, precision) for mode in ("inference", "training") for precision in ("fp32", "amp-bf16")]
PARTS = ("ceilings", "networks", "counters", "energy", "tests", "profiles")

# What the ceilings of one device must reach: B/s and FLOP/s.
TARGETS = {"(NVIDIA )?H200": {"HBM copy": 4.1e12, "FMA fp32": 60e12, "GEMM bf16": 780e12, "GEMM fp8": 1400e12}}
# A ceiling further above its data sheet than any clock above the advertised one explains is an error of ours.
MOST_ABOVE_SHEET = 1.2

# Our CUDA network against eager torch with the data on the GPU, and the samples a second that were once published for a Numba CUDA
# version of it whose convolutions were never trained.
LEAST_OF_TORCH = 0.5
PUBLISHED_SAMPLES_PER_S = 71_758
MOST_LOSS_DIFFERENCE = 1e-2  # of two fp32 runs over 100 steps, whose sums are in different orders

# Nsight Compute's names: bytes that reach or leave device memory, and floating-point instructions of fp32 by kind, per thread.
DRAM_BYTES = "dram__bytes.sum"
FP32_INSTRUCTIONS = {
    f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum": flops for kind, flops in (("fadd", 1), ("fmul", 1), ("ffma", 2))
}


def main() -> int:
    """Run every check; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="the JSON to write")
    parser.add_argument("--keep", type=Path, help="keep the run directories there")
    parser.add_argument("--only", default=",".join(PARTS), help=f"the parts to run, of {', '.join(PARTS)}")
    parser.add_argument("--sustained", type=float, metavar="SECONDS", help="hold every main ceiling for so long as well")
    parser.add_argument("--force", action="store_true", help="measure ceilings though other processes keep the GPU busy")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the child that measures ceilings, into this file
    parser.add_argument("--operator", help=argparse.SUPPRESS)  # the child that ncu watches
    options = parser.parse_args()
    wanted = [name for name in options.only.split(",") if name]
    if unknown := [name for name in wanted if name not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    sys.path.insert(0, str(ROOT))

    try:
        import torch
    except ImportError:
        print(f"gpu-check: {sys.executable} has no torch: nothing was checked. Run 'make profile' first, or give PYTHON=.")
        return 2

    if not torch.cuda.is_available():
        reason = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds no usable NVIDIA GPU or driver"
        print(f"gpu-check: no GPU here: nothing was checked ({reason}).")
        return 0
    if options.measure:
        return measure_child(options.measure, options.sustained, options.force)
    if options.operator:
        return operator_child(options.operator)
    from rooflines import serial
    from rooflines.profiler.environment import collect_environment

    name = torch.cuda.get_device_name()
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()
    output = options.output or ROOT / "benchmarks" / "results" / f"gpu-check-{slug}.json"
    result: dict[str, Any] = {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "environment": serial.to_plain(collect_environment("cuda:0")),
        "checks": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        parts: dict[str, Callable[[], Any]] = {
            "ceilings": lambda: run_ceilings(name, Path(scratch), options, result["checks"]),
            "networks": lambda: run_networks(Path(scratch), result["checks"]),
            "counters": lambda: run_counters(result["checks"]),
            "energy": lambda: run_energy(result["checks"]),
            "tests": lambda: run_tests(result["checks"]),
            "profiles": lambda: run_profiles(options.keep or Path(scratch), output, result),
        }
        for part in wanted:
            do_part(part, parts[part], output, result)
    failed = [check for check in result["checks"] if not check["ok"]]
    for check in result["checks"]:
        print(f"{'ok    ' if check['ok'] else 'FAILED'} {check['what']}: {check['found']}")
    left_out = [
        f"{part}: {result[part]['left_out']}" for part in wanted if isinstance(result.get(part), dict) and "left_out" in result[part]
    ]
    left = f"; left out: {'; '.join(left_out)}" if left_out else ""
    print(f"gpu-check: {len(result['checks']) - len(failed)} passed, {len(failed)} failed on {name}{left}; {output}")
    return 1 if failed else 0


def do_part(name: str, part: Callable[[], Any], output: Path, result: dict[str, Any]) -> None:
    """Run one part and write the result so far: a machine that goes away leaves what was measured, a part that fails the others."""
    print(f"gpu-check: {name}", flush=True)
    begun = time.perf_counter()
    try:
        result[name] = part()
    except Exception as error:  # whatever it is, the other parts are still worth having
        traceback.print_exc()
        result[name] = {"error": traceback.format_exc()}
        note(result["checks"], f"{name}: ran", False, f"{type(error).__name__}: {error}")
    result.setdefault("wall_s", {})[name] = time.perf_counter() - begun
    write(output, result)


def write(path: Path, result: dict[str, Any]) -> None:
    """The result so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def note(checks: list[dict[str, Any]], what: str, ok: bool, found: str) -> None:
    """Add one check."""
    checks.append({"what": what, "ok": bool(ok), "found": found})


# --- ceilings ----------------------------------------------------------------------------------------------------------------------


def run_ceilings(name: str, scratch: Path, options: argparse.Namespace, checks: list[dict[str, Any]]) -> dict[str, Any]:
    """Every ceiling of the GPU, beside its data sheet."""
    from rooflines.device_specs.catalog import look_up
    from rooflines.errors import UsageError

    into = scratch / "ceilings.json"
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(into), *(["--force"] if options.force else [])]
    command += ["--sustained", str(options.sustained)] if options.sustained else []
    found = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=False)
    said = found.stdout.splitlines()
    note(checks, "ceilings: measured", found.returncode == 0, said[-1] if found.returncode and said else f"exit {found.returncode}")
    if found.returncode:
        return {"error": said[-20:]}
    measured = json.loads(into.read_text())
    try:
        sheet = json.loads(plain_json(look_up(name)))["ceilings"]
    except UsageError as error:
        print(f"no data sheet to compare with: {error}")
        sheet = []
    rows = compared(measured["ceilings"], sheet)
    print(ceilings_table(rows))
    check_ceilings(name, rows, checks)
    for line in said:
        print(line)
    return {"measured": measured, "sheet": sheet, "compared": rows, "not_measured": said}


def measure_child(into: Path, sustained_s: float | None, force: bool) -> int:
    """Measure the full set and write it; the last line printed says what was wrong where it could not be."""
    from rooflines.device_specs.measure import measure
    from rooflines.errors import RooflinesError

    def progress(line: str) -> None:
        print(line, file=sys.stderr if "left out" not in line else sys.stdout, flush=True)

    try:
        ceilings = measure("cuda:0", full=True, sustained_s=sustained_s, force=force, remeasure=True, progress=progress)
    except RooflinesError as error:
        print(error)
        return 1
    into.write_text(plain_json(ceilings))
    return 0


def plain_json(record: Any) -> str:
    """A record of rooflines as JSON."""
    from rooflines import serial

    return json.dumps(serial.to_plain(record))


def compared(measured: Iterable[dict[str, Any]], sheet: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each measured ceiling with the figure of the sheet for the same arithmetic or memory, and the fraction of it that was reached.

    A sheet gives one rate for device memory, whatever the access, and none for caches, links and latencies.
    """
    rates = list(sheet)
    rows = []
    for one in measured:
        same: list[float] = []
        if one["kind"] == "compute":
            same = [
                other["value"]
                for other in rates
                if (other["kind"], other.get("precision"), other.get("engine")) == ("compute", one.get("precision"), one.get("engine"))
                and other.get("accumulate") in (None, one.get("accumulate"))
            ]
        elif one["kind"] == "memory" and one.get("level") == "HBM":
            same = [other["value"] for other in rates if other["kind"] == "memory" and other.get("capacity_bytes") is None]
        value = max(same, default=None)
        conditions = one.get("conditions") or {}
        rows.append(
            {
                "name": f"{one['name']} ({one['variant']})" if one.get("variant") else one["name"],
                "main": not one.get("variant"),
                "unit": one["unit"],
                "measured": one["value"],
                "sheet": value,
                "fraction": one["value"] / value if value else None,
                "spread": one.get("spread"),
                "clock_hz": conditions.get("clock_hz"),
                "power_w": conditions.get("power_w"),
                "temperature_c": conditions.get("temperature_c"),
                "throttled": list(conditions.get("throttled") or ()),
                "how": one["source"]["detail"],
            }
        )
    return rows


def ceilings_table(rows: Iterable[dict[str, Any]]) -> str:
    """The comparison as text, one ceiling a line."""
    from rooflines.units import percent, si

    def cells(row: dict[str, Any]) -> tuple[str, ...]:
        return (
            row["name"],
            si(row["measured"], row["unit"]),
            si(row["sheet"], row["unit"]) if row["sheet"] else "-",
            percent(row["fraction"]) if row["fraction"] else "-",
            percent(row["spread"], 1) if row["spread"] is not None else "-",
            si(row["clock_hz"], "Hz") if row["clock_hz"] else "-",
            f"{row['power_w']:.0f} W" if row["power_w"] else "-",
            f"{row['temperature_c']:.0f} C" if row["temperature_c"] else "-",
            ", ".join(row["throttled"]),
        )

    table = [("ceiling", "measured", "sheet", "reached", "spread", "clock", "power", "at", "held back by"), *map(cells, rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table)


def check_ceilings(name: str, rows: list[dict[str, Any]], checks: list[dict[str, Any]]) -> None:
    """The targets of this device, and that nothing is further above its sheet than a clock explains."""
    from rooflines.units import si

    values = {row["name"]: row for row in rows}
    for pattern, targets in TARGETS.items():
        if re.fullmatch(pattern, name):
            for ceiling, least in targets.items():
                row = values.get(ceiling)
                found = si(row["measured"], row["unit"]) if row else "not measured"
                what = f"{ceiling} >= {si(least, 'B/s' if ceiling.startswith('HBM') else 'FLOP/s')}"
                note(checks, what, row is not None and row["measured"] >= least, found)
    above = [row for row in rows if row["fraction"] and row["fraction"] > MOST_ABOVE_SHEET]
    most = max((row for row in rows if row["fraction"]), key=lambda row: row["fraction"], default=None)
    found = f"{most['fraction']:.2f} by {most['name']}" if most else "no sheet"
    note(checks, f"no ceiling above {MOST_ABOVE_SHEET} x its data sheet", not above, found)


# --- networks ----------------------------------------------------------------------------------------------------------------------


def run_networks(scratch: Path, checks: list[dict[str, Any]]) -> dict[str, Any]:
    """What gpu_networks.py measures, in a process of its own."""
    into = scratch / "networks.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_networks.py"), "--output", str(into)]
    found = subprocess.run(command, cwd=ROOT, env=environment(), text=True, check=False)
    note(checks, "networks: measured", found.returncode == 0, f"exit {found.returncode}")
    if found.returncode:
        return {"error": f"exit {found.returncode}"}
    measured: dict[str, Any] = json.loads(into.read_text())
    check_networks(measured, checks)
    left = [f"{name} ({part['left_out']})" for name, part in measured.items() if isinstance(part, dict) and "left_out" in part]
    return measured | ({"left_out": "; ".join(left)} if left else {})


def check_networks(measured: dict[str, Any], checks: list[dict[str, Any]]) -> None:
    """Our network is about as fast as torch's, computes the same, and takes few launches; what was left out is not checked."""
    training = measured["training"]
    if "left_out" in training:
        return
    rate, ratio = training["samples_per_s"]["numba-cuda"], training["ratio"]
    spread = f"{ratio:.2f} ({training['ratio_least']:.2f} to {training['ratio_most']:.2f})"
    note(checks, f"numba-cuda >= {LEAST_OF_TORCH} x torch-cuda, data resident", ratio >= LEAST_OF_TORCH, spread)
    note(checks, f"numba-cuda > {PUBLISHED_SAMPLES_PER_S:,} samples/s", rate > PUBLISHED_SAMPLES_PER_S, f"{rate:,.0f} samples/s")
    difference, most = training["curves"]["largest_difference"], MOST_LOSS_DIFFERENCE
    note(checks, f"numba-cuda and torch-cuda: losses within {most}", difference <= most, f"{difference:.2g}")
    launches = training["kernels"]["numba-cuda"].get("launches")
    if launches is not None:
        note(checks, "numba-cuda: 13 kernels a step", launches == 13, f"{launches:g}")


# --- hardware counters -------------------------------------------------------------------------------------------------------------


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


def run_counters(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes and FLOPs of single operators: counted by the hardware, and by us."""
    ncu = find_ncu()
    if ncu is None:
        return left_out("ncu (Nsight Compute) is not installed")
    rows: dict[str, Any] = {}
    for name, operator in operators().items():
        with tempfile.TemporaryDirectory() as scratch:
            log = Path(scratch) / "ncu.csv"
            command = [
                ncu, "--csv", "--page", "details", "--print-units", "base", "--clock-control", "none", "--profile-from-start", "off",
                "--target-processes", "all", "--metrics", ",".join([DRAM_BYTES, *FP32_INSTRUCTIONS]), "--log-file", str(log),
                sys.executable, str(Path(__file__).resolve()), "--operator", name,
            ]  # fmt: skip
            found = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
            text = log.read_text() if log.exists() else ""
        if why := counters_refused(text + found.stdout + found.stderr):
            return {**left_out(why), "operators": rows}
        counted = parse_counters(text)
        said = next((line for line in reversed(found.stdout.splitlines()) if line.startswith("{")), "")
        if found.returncode or not counted or not said:
            rows[name] = {"error": (text + found.stdout + found.stderr)[-2000:]}
            note(checks, f"counters: {name}", False, f"ncu exit {found.returncode}, {len(counted)} metrics")
            continue
        ours = json.loads(said)
        rows[name] = {**ours, **beside(counted, ours)}
        for kind, within in (("bytes", operator.bytes_within), ("flops", operator.flops_within)):
            ratio = rows[name].get(f"{kind}_ratio")
            if within is not None and ratio is not None:
                note(
                    checks,
                    f"{name}: {kind} counted by the hardware within {within:.0%} of ours",
                    abs(ratio - 1) <= within,
                    f"{ratio:.4f}",
                )
        print(f"{name:18} bytes {rows[name].get('bytes_ratio')}  fp32 FLOPs {rows[name].get('flops_ratio')} of ours", flush=True)
    return {"ncu": ncu, "operators": rows}


def operator_child(name: str) -> int:
    """Run one operator between cudaProfilerStart and cudaProfilerStop; prints our count of it as JSON."""
    import torch

    import rooflines

    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.no_grad():
        function, inputs = operators()[name].make(torch)
        count = rooflines.count(function, *inputs)
        function(*inputs)  # loads the kernel
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        function(*inputs)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    print(json.dumps({"our_bytes": count.bytes, "our_flops": count.flops}))
    return 0


def left_out(why: str) -> dict[str, Any]:
    """A part that could not run here, and why."""
    print(f"gpu-check: left out: {why}")
    return {"left_out": why}


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


# --- tests and profiles ------------------------------------------------------------------------------------------------------------


def run_energy(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The energy of a held load, got in two ways."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_energy.py")]
    done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines:
        note(checks, "energy: measured", False, f"exit {done.returncode}")
        return {"error": f"exit {done.returncode}"}
    found: dict[str, Any] = json.loads(lines[-1])
    note(checks, "energy by counter and by power agree within 3 %", found["agrees"], found["sentence"])
    return found


def run_tests(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The tests marked gpu, in a process of their own."""
    missing = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if missing:
        return left_out(f"{' and '.join(missing)} not installed")
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


def run_profiles(folder: Path, output: Path, result: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs, each written as soon as it is done."""
    runs: list[dict[str, Any]] = []
    for mode, precision in RUNS:
        runs.append(run_profile(mode, precision, folder, result["checks"]))
        write(output, {**result, "profiles": runs})
    return runs


def run_profile(mode: str, precision: str, folder: Path, checks: list[dict[str, Any]]) -> dict[str, Any]:
    """One run through the command line, with the laws that its analysis must obey."""
    label = f"{MODEL} {mode} {precision}"
    directory = folder / f"{MODEL}-{mode}-{precision}"
    formats = [name for name, needs in {"pdf": "typst", "tensorboard": "tensorboard"}.items() if importlib.util.find_spec(needs)]
    command = [
        sys.executable, "-m", "rooflines", "profile", "--model", MODEL, "--device", "cuda", "--mode", mode, "--precision", precision,
        "--batch-size", str(BATCH), "--output", str(directory), "--formats", ",".join(["html", "json", "csv", *formats]), "--quiet",
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
