"""The profiles part: ``rooflines profile`` on several workloads and ``rooflines monitor``, and the laws that each result must obey."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rooflines.device_specs.nvml import start_nvml
from rooflines.errors import DeviceError
from rooflines.gpu_check.cases import SCRIPT, Case, cases
from rooflines.gpu_check.laws import Profiled, program_monitored
from rooflines.gpu_check.records import Recorder, judged, rooflines_command, run_logged
from rooflines.pipeline.reporting import ANALYSIS_FILE
from rooflines.profiler.directory import file_stem
from rooflines.profiler.run import load
from rooflines.profiler.trace.reader import read_trace
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.usage.monitored import MonitorAnalysis
from rooflines.serial import read_json, to_plain

# The ceilings are those of the part before; where that part did not run, the first case measures them.
_MEASURING_S = 120.0
_KEPT = (
    "verdict", "workload", "basis", "totals", "timeline", "step_breakdown", "bound_breakdown", "coverage", "findings", "memory",
    "notes",
)  # fmt: skip
_ROWS = 15
MONITOR = "monitor of a training script"
# Long enough for tens of readings of a busy GPU; a rehearsal needs one reading.
_SECONDS, _REHEARSED_SECONDS = 4.0, 0.3
_MONITOR_LIMIT_S = 60.0


def run(recorder: Recorder) -> None:
    """Run every case, each recorded as soon as it is done."""
    import torch

    found: dict[str, Any] = {}
    for case in cases(recorder.device, visible_gpus(torch.cuda.device_count())):
        if case.left_out:
            recorder.leave_out(case.name, case.left_out)
        elif limit_s := recorder.seconds_for(case.name, case.limit_s + (0.0 if found else _MEASURING_S)):
            found[case.name] = run_case(recorder, case, limit_s)
            recorder.figure("runs", found)
    if limit_s := recorder.seconds_for(MONITOR, _MONITOR_LIMIT_S):
        run_monitor(recorder, limit_s)


def run_case(recorder: Recorder, case: Case, limit_s: float) -> dict[str, Any]:
    """Run one case for at most ``limit_s`` seconds and check its laws; return what the record keeps of its analysis."""
    stem = file_stem(case.name)
    directory = recorder.folder / stem
    done = run_logged(
        command(case, recorder.torch_device, directory), recorder.folder / f"{stem}.txt", limit_s, variables=case.environment
    )
    last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "") if done.code else ""
    recorder.check(judged("rooflines profile succeeds", case.name, (done.code == 0, f"{done.how}: {last}" if last else done.how)))
    if done.code != 0:
        return {"error": done.stderr[-4000:] if done.code else done.how}
    run, analysis = load(directory), read_json(directory / ANALYSIS_FILE, Analysis)
    profiled = Profiled(recorder.device, run, analysis, read_trace(run.trace_path) if run.trace_path else None)
    recorder.check(*(law.check(case.name, profiled) for law in case.laws))
    plain = to_plain(analysis)
    kept = {key: plain[key] for key in _KEPT if key in plain}
    steps = {key: value for key, value in plain.get("steps", {}).items() if key != "durations_s"}
    return {**kept, "steps": steps, "operators": plain["operators"][:_ROWS]}  # all of it is in the raw evidence


def command(case: Case, torch_device: str, directory: Path) -> list[str]:
    """Return the command of ``case``, which writes its run to ``directory``."""
    device = ("--device", torch_device) if case.names_device else ()
    formats = "html,json" if case.whole else "json"
    after = ("--", *case.script_arguments) if case.script_arguments else ()
    return rooflines_command("profile", *case.arguments, *device, "--output", str(directory), "--formats", formats, "--quiet", *after)


def visible_gpus(count: int) -> tuple[str, ...]:
    """Return what names each GPU that this process may use in CUDA_VISIBLE_DEVICES: as it is set, else their UUIDs; empty without NVML.

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


def run_monitor(recorder: Recorder, limit_s: float) -> None:
    """Run ``rooflines monitor`` on a script that uses the GPU: its exit code comes back, and the GPU that worked was sampled."""
    directory = recorder.folder / "monitor"
    seconds = _REHEARSED_SECONDS if recorder.device.rehearsed else _SECONDS
    program = (sys.executable, str(SCRIPT), "--device", recorder.torch_device, "--seconds", str(seconds))
    asked = rooflines_command("monitor", "--output", str(directory), "--formats", "json", "--quiet", "--", *program)
    done = run_logged(asked, recorder.folder / "monitor.txt", limit_s)
    file = directory / ANALYSIS_FILE
    if done.code is None or not file.exists():
        how = done.how if done.code is None else f"{done.how}: {done.stderr[-400:]}"
        recorder.check(judged("rooflines monitor succeeds", MONITOR, (False, how)))
        return
    analysis = read_json(file, MonitorAnalysis)
    recorder.check(*program_monitored(MONITOR, done.code, analysis, recorder.device))
    recorder.figure("monitor", to_plain(analysis))
