"""The environment of a run: one function per fact, None if the machine does not provide it."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from typing import Any

import msgspec

from rooflines._version import __version__
from rooflines.device_specs import detect
from rooflines.device_specs.nvml import start_nvml
from rooflines.errors import DeviceError
from rooflines.profiler.options import find_device
from rooflines.profiler.records import Environment


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """The NVIDIA driver: its version, the newest CUDA it runs ((12, 4)) and its GPUs; or the ``problem`` and
    what would ``fix`` it.

    ``gpus`` are the names by NVML's index. ``failed`` has a sentence for each GPU that does not answer, and
    is not among them.
    """

    version: str | None = None
    cuda: tuple[int, int] | None = None
    gpus: dict[int, str] = {}
    failed: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""


def collect_environment(device: str) -> Environment:
    """The facts about this machine that a run's numbers depend on. ``device`` is torch's name: ``cpu``,
    ``cuda``, ``cuda:1``, ``mps``.

    Driver, CUDA and cuDNN belong to CUDA devices and are absent for others. Raises DeviceError when torch
    cannot use ``device``.
    """
    import torch

    device = str(find_device(device))
    return msgspec.structs.replace(
        host_environment(),
        python=platform.python_version(),
        torch=str(torch.__version__),  # the metadata of the distribution leaves the build out: 2.6.0+cu124
        torchvision=package_version("torchvision"),
        device=device,
        device_name=device_name(device),
        cpu_isa=cpu_isa(),
        threads=torch.get_num_threads(),
        git_commit=git_commit(),
        **(_cuda_facts(device) if device.startswith("cuda") else {}),
    )


def host_environment() -> Environment:
    """The facts of the machine itself, where nothing is known of what a program is made of."""
    import psutil

    cpu = detect.cpu_name()
    return Environment(
        rooflines=__version__,
        device="cpu",
        device_name=cpu,
        host=platform.node(),
        os=os_name(),
        cpu=cpu,
        cpu_cores=detect.physical_cores(),
        cpu_threads=os.cpu_count(),
        cpu_isa=" ".join(detect.isa()) or None,
        memory_bytes=psutil.virtual_memory().total,
    )


def os_name() -> str:
    """The system with its version: ``Linux 6.8.0-49-generic``, ``macOS 15.1``, ``Windows 10.0.26100``."""
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]}"
    release = platform.version() if platform.system() == "Windows" else platform.release()
    return f"{platform.system()} {release}".strip()


def package_version(name: str) -> str | None:
    """The version of an installed distribution, without importing it; None when it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def device_name(device: str) -> str:
    """The device as its driver prints it; for the CPU and for Apple's GPU, which is part of it, the CPU's
    name."""
    if not device.startswith("cuda"):
        return detect.cpu_name()
    import torch

    return torch.cuda.get_device_name(device)


def _cuda_facts(device: str) -> dict[str, Any]:
    """What only a CUDA device has. A slice (MIG) has its own memory and units; ROCm calls its devices
    ``cuda`` and has no CUDA."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    cudnn: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {
        "device_memory_bytes": int(properties.total_memory),
        "device_units": int(properties.multi_processor_count),
        "driver": nvidia_driver().version,
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else dotted_cudnn(cudnn),
    }


def nvidia_driver() -> Driver:
    """The NVIDIA driver of this machine, as NVML describes it."""
    try:
        nvml = start_nvml()
    except DeviceError as error:
        return Driver(problem=error.message, fix=error.hint)
    try:
        cuda = None
        with contextlib.suppress(nvml.NVMLError):  # a driver from before this question
            version = nvml.nvmlSystemGetCudaDriverVersion_v2()  # 12040 is 12.4
            cuda = version // 1000, version % 1000 // 10
        gpus = {index: _gpu_name(nvml, index) for index in range(nvml.nvmlDeviceGetCount())}
        return Driver(
            version=nvml.nvmlSystemGetDriverVersion(),
            cuda=cuda,
            gpus={index: name for index, name in gpus.items() if isinstance(name, str)},
            failed=tuple(
                f"GPU {index} does not answer ({error})"
                for index, error in gpus.items()
                if not isinstance(error, str)
            ),
        )
    except nvml.NVMLError as error:
        return Driver(problem=f"NVML fails ({error}).")
    finally:
        nvml.nvmlShutdown()


def _gpu_name(nvml: Any, index: int) -> Any:
    """The name of a GPU, or the error that NVML has for it: it may be lost, or not for this user."""
    try:
        return nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        return error


def dotted_cudnn(number: int) -> str:
    """cuDNN's version number with dots. Version 9 moved the major version one digit up: 8902 is 8.9.2, 90100
    is 9.1.0."""
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def cpu_isa() -> str | None:
    """The instruction set that torch's kernels use here (``AVX512``); where torch names none, the sets that
    the CPU has."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return capability if capability not in ("DEFAULT", "NO AVX") else " ".join(detect.isa()) or None


def git_commit() -> str | None:
    """The commit of the working directory, ``-dirty`` when a tracked file differs from it; None outside a
    repository."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
            # Reading a repository must not take its lock from another process.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
