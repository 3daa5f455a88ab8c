"""Detect this machine: its CPU with cores, instruction sets and caches, and its NVIDIA GPUs as torch sees
them.

One small function per fact. A fact that the system does not give is None or missing, never a default.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rooflines.device_specs.nvml import start_nvml

_CPUS = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")
_DMI = Path("/sys/devices/virtual/dmi/id")
# limit and use in bytes, of cgroups version 2 and 1
_CGROUP_MEMORY = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)

# Arm prints numbers instead of a name: implementer and part of the server cores that clouds offer (Arm's
# MIDR_EL1 register values).
_ARM_CORES = {
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
}

# The instruction sets that decide how much arithmetic a cycle holds, as /proc/cpuinfo spells them (x86
# "flags", Arm "Features").
_ISA = (
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "avx_vnni",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "asimdhp",
    "sve",
    "sve2",
    "i8mm",
    "bf16",
)


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """One level of data cache: ``size_bytes`` of one instance, ``instances`` on the CPUs this process may
    use."""

    level: str
    size_bytes: int
    instances: int

    def capacity_bytes(self, threads: int) -> int:
        """The total capacity for ``threads`` threads, spread over all instances."""
        return self.size_bytes * min(self.instances, threads)


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU of a machine."""

    #: As the system prints it.
    name: str
    machine: str
    #: The numbers behind it: family/model/stepping on x86.
    model: str = ""
    physical_cores: int | None = None
    logical_cores: int | None = None
    isa: tuple[str, ...] = ()
    #: From the core outwards; only those that the system reports.
    caches: tuple[Cache, ...] = ()


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One NVIDIA GPU."""

    name: str
    index: int
    compute_capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int | None = None
    driver: str | None = None
    #: The highest clock that the driver allows; None where NVML does not report it.
    sm_clock_hz: float | None = None
    #: The highest clock of the memory as the driver counts it (two transfers a cycle); None where the memory
    #: is the host's.
    memory_clock_hz: float | None = None
    #: The width of the memory's bus; None where the memory is the host's.
    bus_bits: int | None = None


@functools.cache
def cpu() -> Cpu:
    """The CPU of this machine."""
    return Cpu(
        name=cpu_name(),
        machine=platform.machine(),
        model=cpu_model(),
        physical_cores=physical_cores(),
        logical_cores=os.cpu_count(),
        isa=isa(),
        caches=_caches_of_macos() if platform.system() == "Darwin" else caches_of_sysfs(_CPUS, usable_cpus()),
    )


def cpu_name() -> str:
    """The CPU's name as the system prints it: "AMD EPYC 9654 96-Core Processor"; the architecture where it
    prints none."""
    facts = _cpuinfo()
    name = facts.get("model name") or _ARM_CORES.get(
        (facts.get("cpu implementer", ""), facts.get("cpu part", ""))
    )
    if platform.system() == "Darwin":
        name = _sysctl("machdep.cpu.brand_string")
    return " ".join((name or platform.processor() or platform.machine()).split())


def cpu_model(facts: dict[str, str] | None = None) -> str:
    """The numbers behind the name: family/model/stepping on x86, implementer/part/revision on Arm, empty
    where unknown.

    Virtual machines often hide the name ("AMD EPYC") but not these.
    """
    facts = _cpuinfo() if facts is None else facts
    for keys in (("cpu family", "model", "stepping"), ("cpu implementer", "cpu part", "cpu revision")):
        if all(key in facts for key in keys):
            return "/".join(facts[key] for key in keys)
    return ""


def physical_cores() -> int | None:
    """Cores without counting hardware threads, as psutil knows them."""
    import psutil

    return psutil.cpu_count(logical=False)


def usable_cpus() -> tuple[int, ...]:
    """The CPU numbers this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def isa() -> tuple[str, ...]:
    """The instruction sets that matter for arithmetic, spelled as in /proc/cpuinfo."""
    if platform.system() == "Darwin":
        return ("asimd",) if platform.machine() == "arm64" else ()
    facts = _cpuinfo()
    words = set((facts.get("flags") or facts.get("features") or "").split())
    return tuple(name for name in _ISA if name in words)


def caches_of_sysfs(root: Path, cpus: tuple[int, ...]) -> tuple[Cache, ...]:
    """Data and unified caches under ``root`` (/sys/devices/system/cpu) that belong to ``cpus``."""
    sharers: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    for number in cpus:
        for index in sorted((root / f"cpu{number}" / "cache").glob("index*")):
            try:
                kind = (index / "type").read_text().strip()
                level = "L" + (index / "level").read_text().strip()
                size = _size_bytes((index / "size").read_text())
                shared = (index / "shared_cpu_list").read_text().strip()
            except (OSError, ValueError):
                continue  # some virtual machines list a cache without its size
            if kind != "Instruction":
                sharers.setdefault(level, set()).add(shared)
                # cores of different kinds: the smallest counts, because what is meant to fit must fit
                # everywhere
                sizes[level] = min(size, sizes.get(level, size))
    return tuple(
        Cache(level=level, size_bytes=sizes[level], instances=len(sharers[level])) for level in sorted(sizes)
    )


def memory_available_bytes(cgroup: Path = _CGROUP) -> int:
    """Memory that can be used without swapping and, in a container, without being killed."""
    import psutil

    available = int(psutil.virtual_memory().available)
    for limit, used in _CGROUP_MEMORY:
        try:
            room = int((cgroup / limit).read_text()) - int((cgroup / used).read_text())
        except (OSError, ValueError):  # not this version of cgroups, or the limit is "max"
            continue
        available = min(available, max(0, room))
    return available


def gpu(index: int) -> Gpu:
    """The NVIDIA GPU that torch calls ``cuda:index``; it must exist."""
    import torch

    facts = torch.cuda.get_device_properties(index)
    # newer versions of torch pass on CUDA's facts about the memory, its clock in kHz
    of_torch = {
        "l2_bytes": getattr(facts, "L2_cache_size", 0),
        "memory_clock_hz": getattr(facts, "memory_clock_rate", 0) * 1e3,
        "bus_bits": getattr(facts, "memory_bus_width", 0),
    }
    known: dict[str, Any] = {**of_torch, **_facts_of_nvml(str(getattr(facts, "uuid", "")))}
    return Gpu(
        name=facts.name,
        index=index,
        compute_capability=(facts.major, facts.minor),
        multiprocessors=facts.multi_processor_count,
        memory_bytes=facts.total_memory,
        **{name: value for name, value in known.items() if value},
    )


def _facts_of_nvml(uuid: str) -> dict[str, Any]:
    """What NVML knows of the GPU with ``uuid``, as torch prints it, by fields of ``Gpu``.

    By UUID, because CUDA_VISIBLE_DEVICES renumbers the GPUs for torch but not for NVML. What a MIG slice,
    which has another UUID, and some boards do not answer is missing.
    """
    try:
        nvml = start_nvml()
    except Exception:  # the errors of pynvml and of the driver differ from version to version
        return {}
    found: dict[str, Any] = {}
    questions: dict[str, Callable[[Any], Any]] = {  # NVML: MHz
        "sm_clock_hz": lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
        "memory_clock_hz": lambda gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
        "bus_bits": lambda gpu: nvml.nvmlDeviceGetMemoryBusWidth(gpu),
    }
    try:
        version = nvml.nvmlSystemGetDriverVersion()
        found["driver"] = version.decode() if isinstance(version, bytes) else version
        for name, question in questions.items():
            with contextlib.suppress(nvml.NVMLError):
                found[name] = question(nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    finally:
        nvml.nvmlShutdown()
    return found


def cuda_extra(torch_cuda: str | None, driver_cuda: tuple[int, int] | None) -> str | None:
    """Return the extra of this package that brings CUDA kernels, ``cuda12`` or ``cuda13``; None where neither
    fits.

    torch loads the libraries of the CUDA that it was built for (``torch_cuda``, "13.0"), so the extra is that
    version's. A torch built without CUDA does not restrict the choice: then it is the newest that the driver
    runs (``driver_cuda``, (12, 4)). None where torch or the driver is older than CUDA 12, and where torch is
    newer than the driver, because torch itself has to be replaced first.
    """
    if torch_cuda is None:
        major = min(driver_cuda[0], 13) if driver_cuda else 0
    else:
        major = int(torch_cuda.split(".")[0])
        if driver_cuda and driver_cuda[0] < major:
            return None
    return f"cuda{major}" if major in (12, 13) else None


def apple_gpu_cores() -> int | None:
    """The number of cores of this Mac's GPU, which differs between variants of a chip; None if torch does not
    report it."""
    import torch

    count = getattr(torch.backends.mps, "get_core_count", None)
    return int(count()) if count is not None and torch.backends.mps.is_available() else None


def system_vendor(root: Path = _DMI) -> str | None:
    """The maker of this machine as its firmware (DMI) gives it: "Amazon EC2", "Dell Inc."; None where it
    gives none."""
    try:
        return " ".join((root / "sys_vendor").read_text().split()) or None
    except OSError:
        return None


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """The first processor's block of /proc/cpuinfo, keys in lower case."""
    try:
        text = _CPUINFO.read_text()
    except OSError:
        return {}
    return cpuinfo_facts(text)


def cpuinfo_facts(text: str) -> dict[str, str]:
    """Keys in lower case and values of the first block of ``text``, which is laid out as /proc/cpuinfo."""
    pairs = (line.split(":", 1) for line in text.split("\n\n", 1)[0].splitlines() if ":" in line)
    return {key.strip().lower(): value.strip() for key, value in pairs}


def _size_bytes(text: str) -> int:
    """A size as sysfs prints it, "48K" or "32M", in bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if match is None:
        raise ValueError(f"not a cache size: {text!r}")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def _caches_of_macos() -> tuple[Cache, ...]:
    """The performance cores' L1 data and L2 caches; Apple reports no L3 to software."""
    cores = _sysctl_number("hw.perflevel0.physicalcpu", "hw.physicalcpu")
    if not cores:
        return ()
    sharing = _sysctl_number("hw.perflevel0.cpusperl2") or 1
    levels = {
        "L1": (_sysctl_number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"), cores),
        "L2": (_sysctl_number("hw.perflevel0.l2cachesize", "hw.l2cachesize"), max(1, cores // sharing)),
        "L3": (_sysctl_number("hw.l3cachesize"), 1),
    }
    return tuple(
        Cache(level=level, size_bytes=size, instances=count)
        for level, (size, count) in levels.items()
        if size
    )


def _sysctl(name: str) -> str | None:
    try:
        return (
            subprocess.run(
                ["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True
            ).stdout.strip()
            or None
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _sysctl_number(*names: str) -> int | None:
    """The first positive number under one of ``names``."""
    texts = (_sysctl(name) or "" for name in names)
    return next((int(text) for text in texts if text.isdigit() and int(text)), None)
