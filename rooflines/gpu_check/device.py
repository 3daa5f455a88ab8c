"""The GPU of a check, found in a process of its own: a driver that hangs stops nothing, and this process holds no memory on the GPU."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from rooflines.gpu_check.commands import environment
from rooflines.profiler.environment import collect_environment
from rooflines.profiler.records import Environment
from rooflines.serial import to_plain

GPU = "cuda:0"
_LIMIT_S = 120.0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about the GPU and its software; without a usable GPU the ``reason``."""

    reason: str = ""
    environment: Environment | None = None


def find(device: str = GPU) -> Found:
    """Look for ``device`` as torch sees it. Never raises."""
    command = [sys.executable, "-m", "rooflines.gpu_check.device", device]
    try:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Found(reason=f"torch or the driver did not answer within {_LIMIT_S:.0f} s")
    try:
        return msgspec.json.decode((done.stdout.splitlines() or [""])[-1], type=Found)
    except msgspec.DecodeError:
        words = (done.stderr.strip().splitlines() or [""])[-1]
        return Found(reason=f"the process that asks torch ended with exit code {done.returncode}: {words}")


def here(device: str) -> Found:
    """The same in this process."""
    try:
        import torch
    except ImportError as error:
        return Found(reason=f"torch cannot be imported: {error}")
    if device != "cpu":
        if torch.version.hip is not None:
            return Found(reason="this torch is built for AMD GPUs")
        if torch.version.cuda is None:
            return Found(reason="this torch is built without CUDA")
        if not torch.cuda.is_available():
            return Found(reason="torch finds no usable NVIDIA GPU or driver")
    return Found(environment=msgspec.structs.replace(collect_environment(device), host=None))


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(to_plain(here(sys.argv[1]))).decode() + "\n")
