"""The profiles part: ``rooflines profile`` on several workloads and ``rooflines monitor``, and the laws that each result must obey."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rooflines.device_specs.nvml import start_nvml
from rooflines.errors import DeviceError
from rooflines.gpu_check import case_laws, laws
from rooflines.gpu_check.case_laws import Profiled
from rooflines.gpu_check.cases import Case, cases
from rooflines.gpu_check.commands import rooflines_command, run_logged
from rooflines.gpu_check.recorder import Recorder
from rooflines.gpu_check.records import Check
from rooflines.pipeline.reporting import ANALYSIS_FILE
from rooflines.profiler.directory import file_stem, load
from rooflines.profiler.trace.reader import read_trace
from rooflines.profiler.trace.records import KERNEL, Trace
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.usage.device_usage import MonitorAnalysis
from rooflines.serial import read_json, to_plain

# The ceilings are those of the part before; where that part did not run, the first case measures them.
_MEASURING_S = 120.0
_KEPT = (
    "verdict", "workload", "basis", "totals", "timeline", "step_breakdown", "bound_breakdown", "coverage", "findings", "memory",
    "notes",
)  # fmt: skip
_ROWS = 15
# A case is not begun with less time than torch takes to load, and ends before the part does.
_LEAST_S, _MARGIN_S = 15.0, 3.0
MONITOR = "monitor of a training script"
SCRIPT = Path(__file__).with_name("workloads") / "train.py"
# Long enough for tens of readings of a busy GPU; a rehearsal needs one reading.
_SECONDS, _REHEARSED_SECONDS = 4.0, 0.3
_MONITOR_LIMIT_S = 60.0

Launch = Callable[..., subprocess.CompletedProcess[str]]


def run(recorder: Recorder, launch: Launch = run_logged) -> None:
    """Run every case, each recorded as soon as it is done. ``launch`` runs a command like ``commands.run_logged``."""
    import torch

    found: dict[str, Any] = {}
    for case in cases(recorder.device, visible_gpus(torch.cuda.device_count())):
        if case.left_out:
            recorder.leave_out(case.name, case.left_out)
            continue
        if recorder.left_s < _LEAST_S:
            recorder.leave_out(case.name, "no time was left")
            continue
        limit_s = min(case.limit_s + (0.0 if found else _MEASURING_S), recorder.left_s - _MARGIN_S)
        found[case.name] = run_case(recorder, case, launch, limit_s)
        recorder.figure("runs", found)
    if recorder.left_s < _LEAST_S:
        recorder.leave_out(MONITOR, "no time was left")
    else:
        run_monitor(recorder, launch)


def run_case(recorder: Recorder, case: Case, launch: Launch, limit_s: float) -> dict[str, Any]:
    """Run one case for at most ``limit_s`` seconds and check its laws; the record of it."""
    stem = file_stem(case.name)
    directory, log = recorder.folder / stem, recorder.folder / f"{stem}.txt"
    try:
        done = launch(command(case, recorder.torch_device, directory), log, variables=case.environment, timeout_s=limit_s)
    except subprocess.TimeoutExpired:
        recorder.check(laws.judged("rooflines profile succeeds", case.name, False, f"stopped after {limit_s:.0f} s"))
        return {"error": f"stopped after {limit_s:.0f} s"}
    recorder.check(laws.command_succeeded(case.name, done.returncode, done.stderr))
    if done.returncode != 0:
        return {"error": done.stderr[-4000:]}
    one, analysis = load(directory), read_json(directory / ANALYSIS_FILE, Analysis)
    trace = read_trace(one.trace_path) if one.trace_path else None
    recorder.check(*checks(case, Profiled(recorder.device, one, analysis, trace)))
    return summary(analysis)


def command(case: Case, torch_device: str, directory: Path) -> list[str]:
    """The command of ``case``, which writes its run to ``directory``."""
    device = ("--device", torch_device) if case.names_device else ()
    formats = "html,json" if case.whole else "json"
    after = ("--", *case.script_arguments) if case.script_arguments else ()
    return rooflines_command("profile", *case.arguments, *device, "--output", str(directory), "--formats", formats, "--quiet", *after)


def checks(case: Case, found: Profiled) -> tuple[Check, ...]:
    """The laws that a run of ``case`` must obey."""
    name, analysis = case.name, found.analysis
    shortest_s = shortest_kernel_s(found.trace) if found.trace else None
    results: list[Check] = []
    if case.whole:
        results += [
            laws.run_at_maximum_clock(name, analysis, found.device.max_clock_hz),
            laws.run_energies_agree(name, analysis),
        ]
    if case.traced:
        results += [
            laws.times_add_up(name, analysis),
            laws.busy_within_step(name, analysis),
            laws.nothing_beats_its_bound(name, analysis),
            laws.no_kernel_below_launch(name, analysis, shortest_s),
        ]
    if case.one_stream:
        results.append(case_laws.events_see_all_work(name, found))
    if case.flops is not None:
        results.append(laws.flops_equal(name, analysis, case.flops))
    if case.coverage is not None:
        results.append(laws.covered(name, analysis, case.coverage))
    if case.module:
        results.append(laws.modules_named(name, analysis, case.module))
    if case.traced and case.phases:
        results.append(laws.phases_told_apart(name, analysis, case.mode))
    return (*results, *(law(name, found) for law in case.laws))


def visible_gpus(count: int) -> tuple[str, ...]:
    """What names each GPU that this process may use in CUDA_VISIBLE_DEVICES: as it is set, else their UUIDs; empty without NVML.

    Torch sees ``count`` GPUs: one slice of a machine with MIG, however many boards there are, and none behind a name that is invalid.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(name.strip() for name in chosen.split(",") if name.strip())[:count]
    try:
        nvml = start_nvml()
    except DeviceError:
        return ()
    try:
        found = range(min(count, nvml.nvmlDeviceGetCount()))
        return tuple(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)) for index in found)
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()


def shortest_kernel_s(trace: Trace) -> float | None:
    """The duration of the shortest kernel in ``trace``; None without kernels."""
    device = trace.device
    kernels = device.kind == KERNEL
    return float((device.end_ns - device.start_ns)[kernels].min()) / 1e9 if kernels.any() else None


def summary(analysis: Analysis) -> dict[str, Any]:
    """The parts of ``analysis`` that the record of a check keeps; all of it is in the raw evidence."""
    plain = to_plain(analysis)
    kept = {key: plain[key] for key in _KEPT if key in plain}
    steps = {key: value for key, value in plain.get("steps", {}).items() if key != "durations_s"}
    return {**kept, "steps": steps, "operators": plain["operators"][:_ROWS]}


def run_monitor(recorder: Recorder, launch: Launch) -> None:
    """Run ``rooflines monitor`` on a script that uses the GPU: its exit code comes back, and the GPU that worked was sampled."""
    directory = recorder.folder / "monitor"
    seconds = _REHEARSED_SECONDS if recorder.device.rehearsed else _SECONDS
    program = (sys.executable, str(SCRIPT), "--device", recorder.torch_device, "--seconds", str(seconds))
    command = rooflines_command("monitor", "--output", str(directory), "--formats", "json", "--quiet", "--", *program)
    try:
        done = launch(command, recorder.folder / "monitor.txt", timeout_s=_MONITOR_LIMIT_S)
    except subprocess.TimeoutExpired:
        recorder.check(laws.judged("rooflines monitor succeeds", MONITOR, False, f"stopped after {_MONITOR_LIMIT_S:.0f} s"))
        return
    file = directory / ANALYSIS_FILE
    if not file.exists():
        recorder.check(laws.judged("rooflines monitor succeeds", MONITOR, False, f"exit code {done.returncode}: {done.stderr[-400:]}"))
        return
    analysis = read_json(file, MonitorAnalysis)
    recorder.check(*case_laws.program_monitored(MONITOR, done.returncode, analysis, recorder.device))
    recorder.figure("monitor", to_plain(analysis))
