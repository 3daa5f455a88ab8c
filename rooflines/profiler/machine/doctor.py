"""Check what rooflines can measure on this machine, with the command that enables the rest.

One function per question. Each answers with a ``Check``, or with None where the question does not arise on
this machine; one that fails is itself an answer, so examining never raises.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import platform
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

from rooflines.device_specs import detect
from rooflines.device_specs.detect import cuda_extra
from rooflines.device_specs.history import History, cache_directory
from rooflines.errors import DeviceError
from rooflines.profiler.machine.environment import Driver, cpu_isa, nvidia_driver, package_version
from rooflines.profiler.samplers.host import cpu_frequency_hz, line_of
from rooflines.profiler.samplers.rapl import POWERCAP, package_counters
from rooflines.serial import read_json_if_whole
from rooflines.units import binary_bytes, counted, si

CheckStatus = Literal["ok", "missing", "limited"]

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 6)
# the extras of releases before this one do not bring the compiler (NVVM) for both CUDA 12 and 13
OLDEST_NUMBA_CUDA = (0, 30)
LITTLE_DISK_BYTES = 1 << 30
LITTLE_MEMORY_BYTES = 2 << 30

_PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA_PARAMETERS = Path("/proc/driver/nvidia/params")
_CPUFREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class Check(msgspec.Struct, frozen=True):
    """One answer. ``limited`` is there but not as good as it could be; ``fix`` is the command that helps,
    empty where none does."""

    status: CheckStatus
    detail: str
    fix: str = ""
    name: str = ""


def examine() -> tuple[Check, ...]:
    """Every check that applies to this machine, software first, then devices, rights and space. Takes as long
    as importing torch."""
    _driver.cache_clear()
    answers = [_guarded(name, question) for name, question in _QUESTIONS]
    return tuple(answer for answer in answers if answer is not None)


# --- the CPU


def cpu() -> Check:
    torch = _torch()
    cores, threads, usable = detect.physical_cores(), torch.get_num_threads(), len(detect.usable_cpus())
    facts = [
        detect.cpu_name(),
        f"{cores} cores" if cores else "",
        cpu_isa() or "",
        f"{threads} threads for torch",
    ]
    detail = ", ".join(fact for fact in facts if fact)
    quota = cpu_quota()
    if quota is not None and quota < min(threads, usable):
        return Check("limited", f"{detail}; limited to {quota:g} cores by the container")
    variable = next((name for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ), None)
    if variable and cores and threads < min(cores, usable):
        return Check(
            "limited", f"{detail}, because {variable}={os.environ[variable]}", fix=f"unset {variable}"
        )
    return Check("ok", detail)


def cpu_quota(path: Path = _CPU_QUOTA) -> float | None:
    """The CPU limit of the control group in cores (cgroup v2: "150000 100000" is 1.5), None without a
    limit."""
    try:
        quota, period = path.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file; or no limit, which is spelled "max"
        return None


def cpu_clock(cpufreq: Path = _CPUFREQ) -> Check:
    frequency_hz = cpu_frequency_hz()
    if frequency_hz is None:
        return Check("missing", "not reported by the system: throttling cannot be detected")
    if platform.system() == "Linux" and not cpufreq.is_dir():
        return Check(
            "limited",
            f"{si(frequency_hz, 'Hz')} rated, no cpufreq (a virtual machine?): throttling cannot be detected",
        )
    return Check("ok", f"{si(frequency_hz, 'Hz')} now")


def cpu_power(powercap: Path = POWERCAP) -> Check | None:
    if platform.system() != "Linux":
        return None
    counters = package_counters(powercap)
    if not counters:
        return Check("missing", "the kernel provides no RAPL energy counters")
    if not all(os.access(counter, os.R_OK) for counter in counters):
        fix = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
        return Check("limited", "RAPL energy counters are readable by root only", fix=fix)
    return Check("ok", f"RAPL counters of {counted(len(counters), 'CPU package')}")


# --- NVIDIA


def gpu_driver() -> Check:
    """Driver and NVML in one: NVML is a part of the driver."""
    driver = _driver()
    if driver.problem:
        boards = nvidia_boards()
        if boards:
            on_bus = f"{counted(boards, 'NVIDIA GPU')} on the bus: see nvidia.com/drivers"
            return Check("limited", f"{driver.problem} {on_bus}", fix=driver.fix)
        return Check("missing", driver.problem, fix=driver.fix)
    cuda = f", CUDA up to {_dotted(driver.cuda)}" if driver.cuda else ""
    detail = "; ".join((f"{driver.version}{cuda}", _counted(tuple(driver.gpus.values())), *driver.failed))
    if driver.failed:
        return Check("limited", f"{detail}: see nvidia-smi and the kernel log")
    return Check("ok", detail)


def nvidia_boards(pci: Path = _PCI_DEVICES) -> int:
    """NVIDIA display controllers on the PCI bus, driver or not (Linux)."""
    return sum(
        line_of(device / "vendor") == "0x10de" and line_of(device / "class").startswith("0x03")
        for device in pci.glob("*")
    )


def cuda() -> Check:
    """Whether torch can use a CUDA device, and if not, the first reason that explains it."""
    torch = _torch()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if available:
        count = torch.cuda.device_count()
        built = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        return Check("ok", f"{built}, {_counted(tuple(map(torch.cuda.get_device_name, range(count))))}")
    return why_no_cuda(
        _driver(),
        torch.version.cuda,
        "; ".join(str(warning.message).split("(Triggered")[0].strip() for warning in told),
    )


def why_no_cuda(driver: Driver, built: str | None, told: str) -> Check:
    """The reason why torch, ``built`` for a CUDA version or for none, has no device; ``told`` is torch's
    warning, if any."""
    missing = functools.partial(Check, "missing")
    if driver.problem:
        return missing("no NVIDIA driver" + ("" if built else ", and torch is built without CUDA"))
    wheel = {11: "cu118", 12: "cu126"}.get(driver.cuda[0] if driver.cuda else 0, "cu130")
    reinstall = f"pip install torch --force-reinstall --index-url https://download.pytorch.org/whl/{wheel}"
    if built is None:
        return missing("torch is built without CUDA", fix=reinstall)
    if driver.cuda and int(built.split(".")[0]) > driver.cuda[0]:
        detail = (
            f"driver {driver.version} supports CUDA up to {_dotted(driver.cuda)}, torch is built for {built}"
        )
        return missing(f"{detail}: update the driver, or", fix=reinstall)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return missing(
            f"CUDA_VISIBLE_DEVICES={visible!r} hides all devices", fix="unset CUDA_VISIBLE_DEVICES"
        )
    return missing(told or f"driver {driver.version} is installed, but torch finds no device")


def numba_cuda() -> Check | None:
    built = _torch().version.cuda
    check, version = _cuda_package("numba_cuda", _driver(), built), package_version("numba-cuda")
    if check is None or check.status != "ok" or version is None:
        return check
    return _at_least(version, OLDEST_NUMBA_CUDA, _install(cuda_extra(built, _driver().cuda)))


def device_trace() -> Check:
    """Kineto with CUPTI (or its like): without it a trace has no kernels."""
    torch = _torch()
    recorded = sorted(activity.name for activity in torch.profiler.supported_activities())
    if torch.cuda.is_available() and "CUDA" not in recorded:
        return Check("limited", f"Kineto records {', '.join(recorded)} only: torch is built without CUPTI")
    return Check("ok" if recorded else "missing", f"Kineto records {', '.join(recorded) or 'nothing'}")


def hardware_counters(parameters: Path = _NVIDIA_PARAMETERS) -> Check | None:
    """Whether the driver lets this user read performance counters; None without an NVIDIA driver."""
    try:
        lines = parameters.read_text().splitlines()
    except OSError:
        return None
    restricted = any(line.replace(" ", "") == "RmProfilingAdminOnly:1" for line in lines)
    if not restricted or os.geteuid() == 0:
        return Check("ok", "readable by this user")
    option = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
    fix = f"echo {option} | sudo tee /etc/modprobe.d/nvidia-profiling.conf"
    return Check("limited", "readable by administrators only; to change it (then reboot):", fix=fix)


# --- Apple


def mps() -> Check | None:
    if platform.system() != "Darwin":
        return None
    torch = _torch()
    if torch.backends.mps.is_available():
        return Check("ok", "available to torch")
    reason = "macOS or the Mac is too old" if torch.backends.mps.is_built() else "torch is built without MPS"
    return Check("missing", reason)


# --- space


def cache() -> Check:
    directory = cache_directory().parent
    nearest = next((place for place in (directory, *directory.parents) if place.exists()), directory)
    if nearest.is_dir() and os.access(nearest, os.W_OK):
        return Check("ok", str(directory))
    fix = "export ROOFLINES_CACHE_DIR=/tmp/rooflines"
    return Check("limited", f"{directory} is not writable: ceilings are measured in every run", fix=fix)


def ceilings() -> Check:
    """The devices of this machine with measured ceilings in the cache."""
    torch = _torch()
    devices = [detect.cpu_name()]
    if torch.cuda.is_available():
        devices += sorted({torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())})
    stored = {
        history.device
        for path in cache_directory().glob("*.json")
        if (history := read_json_if_whole(path, History)) and history.sessions
    }
    known = [device for device in devices if device in stored]
    if len(known) == len(devices):
        return Check("ok", f"measured: {', '.join(known)}")
    absent = ", ".join(device for device in devices if device not in stored)
    detail = f"not measured yet: {absent}; rooflines profile measures them"
    return Check("limited" if known else "missing", detail, fix="rooflines ceilings")


def disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    return Check(
        "ok" if free >= LITTLE_DISK_BYTES else "limited", f"{binary_bytes(free)} free in this directory"
    )


def memory() -> Check:
    free = detect.memory_available_bytes()
    whole = psutil.virtual_memory().total
    return Check(
        "ok" if free >= LITTLE_MEMORY_BYTES else "limited",
        f"{binary_bytes(free)} free of {binary_bytes(whole)}",
    )


# --- how the answers are made


def _torch() -> Any:
    """torch, where it is installed: a function, so that its absence is an answer of each question."""
    import torch

    return torch


# Four questions ask the driver, and starting NVML can take a second on a machine with many GPUs.
_driver = functools.cache(nvidia_driver)

_QUESTIONS: tuple[tuple[str, Callable[[], Check | None]], ...] = (
    ("Python", lambda: _at_least(platform.python_version(), OLDEST_PYTHON, "")),
    (
        "PyTorch",
        lambda: _at_least(
            str(_torch().__version__), OLDEST_TORCH, "pip install --upgrade 'torch>=2.6' torchvision"
        ),
    ),
    (
        "torchvision",
        lambda: _importable("torchvision", "pip install torchvision", "torchvision models by name"),
    ),
    ("CPU", cpu),
    ("CPU clock", cpu_clock),
    ("CPU power", cpu_power),
    ("Numba", lambda: _importable("numba", "pip install numba", "measuring this CPU's ceilings")),
    ("GPU driver", gpu_driver),
    ("CUDA", cuda),
    ("CuPy", lambda: _cuda_package("cupy", _driver(), _torch().version.cuda)),
    ("numba-cuda", numba_cuda),
    ("MPS", mps),
    ("Tracing", device_trace),
    ("GPU counters", hardware_counters),
    ("timm", lambda: _optional("timm", "pip install timm", "models timm:NAME")),
    ("transformers", lambda: _optional("transformers", "pip install transformers", "models hf:NAME")),
    (
        "fvcore",
        lambda: _optional("fvcore", "pip install 'rooflines[fvcore]'", "comparing FLOP counts with it"),
    ),
    (
        "TensorBoard",
        lambda: _optional("tensorboard", "pip install 'rooflines[tensorboard]'", "rooflines view"),
    ),
    ("typst", lambda: _optional("typst", "pip install typst", "PDF reports")),
    ("Ceilings", ceilings),
    ("Cache", cache),
    ("Disk", disk),
    ("Memory", memory),
)


def _guarded(name: str, question: Callable[[], Check | None]) -> Check | None:
    """The answer to ``question``, or the error: a broken installation raises more than ImportError."""
    try:
        answer = question()
    except ModuleNotFoundError as error:
        answer = Check("missing", f"{error.name} is not installed", fix=f"pip install {error.name}")
    except Exception as error:
        reason = str(error) if isinstance(error, DeviceError) else f"{type(error).__name__}: {error}"
        answer = Check("limited", f"check failed: {reason.splitlines()[0].strip()}")
    return None if answer is None else msgspec.structs.replace(answer, name=name)


def _at_least(version: str, oldest: tuple[int, int], fix: str) -> Check:
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) >= oldest:
        return Check("ok", version)
    return Check("limited", f"{version}; rooflines requires {_dotted(oldest)} or newer", fix=fix)


def _importable(module: str, fix: str, needed_for: str) -> Check:
    """A package that we depend on: importing it is the test, because a binary that does not fit is found only
    then."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    except ImportError as error:
        return Check("missing", f"needed for {needed_for}: {error}", fix=fix)
    return Check("ok", package_version(module) or "installed")


def _optional(module: str, fix: str, needed_for: str) -> Check:
    """A package for those who want it: looked up and not imported, because importing some takes seconds."""
    if importlib.util.find_spec(module) is None:
        return Check("missing", f"needed for {needed_for}", fix=fix)
    return Check("ok", package_version(module) or "installed")


def _cuda_package(module: str, driver: Driver, built: str | None) -> Check | None:
    """A package of the extra that fits torch, ``built`` for a CUDA version or for none; None without a
    driver."""
    if driver.problem:
        return None
    if importlib.util.find_spec(module) is not None:
        return Check("ok", "installed")
    fix = _install(cuda_extra(built, driver.cuda))
    after = "" if fix else ", after a torch that this driver runs"
    return Check("missing", f"needed for GPU kernels of rooflines{after}", fix=fix)


def _install(extra: str | None) -> str:
    """The command that installs an extra, empty without one."""
    return f"pip install 'rooflines[{extra}]'" if extra else ""


def _counted(names: tuple[str, ...]) -> str:
    """``2 x NVIDIA A100, NVIDIA T4``."""
    counts = Counter(names).items()
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts) or "no GPU"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
