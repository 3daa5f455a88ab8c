"""``rooflines monitor`` on a program that uses the GPU: its exit code comes back, and the GPU that worked was sampled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rooflines.gpu_check import case_laws, laws
from rooflines.gpu_check.commands import rooflines_command
from rooflines.gpu_check.recorder import Recorder
from rooflines.pipeline.reporting import ANALYSIS_FILE
from rooflines.roofline.usage.monitored import MonitorAnalysis
from rooflines.serial import read_json, to_plain

NAME = "monitor of a training script"
SCRIPT = Path(__file__).with_name("workloads") / "train.py"
# Long enough for tens of readings of a busy GPU; a rehearsal needs one reading.
_SECONDS, _REHEARSED_SECONDS = 4.0, 0.3
_LIMIT_S = 60.0


def run(recorder: Recorder, launch: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Monitor the script and check what was recorded."""
    directory = recorder.folder / "monitor"
    seconds = _REHEARSED_SECONDS if recorder.device.rehearsed else _SECONDS
    program = (sys.executable, str(SCRIPT), "--device", recorder.torch_device, "--seconds", str(seconds))
    command = rooflines_command("monitor", "--output", str(directory), "--formats", "json", "--quiet", "--", *program)
    try:
        done = launch(command, recorder.folder / "monitor.txt", timeout_s=_LIMIT_S)
    except subprocess.TimeoutExpired:
        recorder.check(laws.judged("rooflines monitor succeeds", NAME, False, f"stopped after {_LIMIT_S:.0f} s"))
        return
    file = directory / ANALYSIS_FILE
    if not file.exists():
        recorder.check(laws.judged("rooflines monitor succeeds", NAME, False, f"exit code {done.returncode}: {done.stderr[-400:]}"))
        return
    analysis = read_json(file, MonitorAnalysis)
    recorder.check(*case_laws.program_monitored(NAME, done.returncode, analysis, recorder.device))
    recorder.figure("monitor", to_plain(analysis))
