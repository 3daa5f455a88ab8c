"""Detect this machine: its CPU with cores, instruction sets and caches, and its NVIDIA GPUs as torch sees them.

One small function per fact. A fact that the system does not give is None or missing, never a default.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
from pathlib import Path

import msgspec

_CPUS = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")
_DMI = Path("/sys/devices/virtual/dmi/id")
# limit and use in bytes, of cgroups version 2 and 1
_CGROUP_MEMORY = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))

# Arm prints numbers instead of a name: implementer and part of the server cores that clouds offer (Arm's MIDR_EL1 register values).
_ARM_CORES = {
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
}

# The instruction sets that decide how much arithmetic a cycle holds, as /proc/cpuinfo spells them (x86 "flags", Arm "Features").
_ISA = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8",
        "asimd", "asimdhp", "sve", "sve2", "i8mm", "bf16")  # fmt: skip


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """One level of data cache: ``size_bytes`` of one instance, ``instances`` on the CPUs this process may use."""

    level: str
    size_bytes: int
    instances: int

    def capacity_bytes(self, threads: int) -> int:
        """The total capacity for ``threads`` threads, spread over all instances."""
        return self.size_bytes * min(self.instances, threads)


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU: ``name`` as the system prints it, ``model`` the numbers behind it (family/model/stepping on x86).

    ``caches`` are ordered from the core outwards and hold only what the system reports.
    """

    name: str
    machine: str
    model: str = ""
    physical_cores: int | None = None
    logical_cores: int | None = None
    isa: tuple[str, ...] = ()
    caches: tuple[Cache, ...] = ()

    def cache(self, level: str) -> Cache | None:
        """The cache called ``level`` (L1, L2, L3), or None where the system reports none."""
        return next((cache for cache in self.caches if cache.level == level), None)


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One NVIDIA GPU. ``sm_clock_hz`` is the highest clock the driver allows, absent when NVML cannot say.

    ``memory_clock_hz`` is the memory's highest clock, as the driver counts it (two transfers a cycle), ``bus_bits`` the width of its
    bus; both are absent where the memory is the host's.
    """

    name: str
    index: int
    compute_capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int | None = None
    driver: str | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
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
        caches=caches(),
    )


def cpu_name() -> str:
    """The CPU's name as the system prints it: "AMD EPYC 9654 96-Core Processor"; the architecture where it prints none."""
    if platform.system() == "Darwin":
        name = _sysctl("machdep.cpu.brand_string")
    else:
        facts = _cpuinfo()
        core = _ARM_CORES.get((facts.get("cpu implementer", ""), facts.get("cpu part", "")))
        name = facts.get("model name") or core
    return " ".join((name or platform.processor() or platform.machine()).split())


def cpu_model(facts: dict[str, str] | None = None) -> str:
    """The numbers behind the name: family/model/stepping on x86, implementer/part/revision on Arm, empty where unknown.

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


def caches(root: Path = _CPUS) -> tuple[Cache, ...]:
    """Data caches of the usable CPUs, from sysfs on Linux, from sysctl on macOS, empty elsewhere."""
    if platform.system() == "Darwin":
        return _caches_of_macos()
    return caches_of_sysfs(root, usable_cpus())


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
                # cores of different kinds: the smallest counts, because what is meant to fit must fit everywhere
                sizes[level] = min(size, sizes.get(level, size))
    return tuple(Cache(level=level, size_bytes=sizes[level], instances=len(sharers[level])) for level in sorted(sizes))


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
    uuid = str(getattr(facts, "uuid", ""))
    driver, clock = _nvml_facts(uuid)
    memory_clock, bus_bits = _nvml_memory(uuid)
    return Gpu(
        name=facts.name,
        index=index,
        compute_capability=(facts.major, facts.minor),
        multiprocessors=facts.multi_processor_count,
        memory_bytes=facts.total_memory,
        l2_bytes=getattr(facts, "L2_cache_size", None) or None,
        driver=driver,
        sm_clock_hz=clock,
        # newer versions of torch pass on CUDA's facts about the memory, its clock in kHz
        memory_clock_hz=memory_clock or getattr(facts, "memory_clock_rate", 0) * 1e3 or None,
        bus_bits=bus_bits or getattr(facts, "memory_bus_width", 0) or None,
    )


def _nvml_facts(uuid: str) -> tuple[str | None, float | None]:
    """Driver version and highest SM clock (Hz) of the GPU with ``uuid``, as torch prints it; None for what NVML does not tell.

    By UUID, because CUDA_VISIBLE_DEVICES renumbers the GPUs for torch but not for NVML.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no pynvml, no driver: the errors of both differ from version to version
        return None, None
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            clock = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM) * 1e6  # NVML: MHz
        except pynvml.NVMLError:  # a MIG slice has another UUID; some boards do not support the clock query
            return driver, None
        return driver, clock
    finally:
        pynvml.nvmlShutdown()


def _nvml_memory(uuid: str) -> tuple[float | None, int | None]:
    """Highest memory clock (Hz) and bus width (bits) of the GPU with ``uuid``; None where NVML does not tell (a MIG slice)."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # as above
        return None, None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        return pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM) * 1e6, pynvml.nvmlDeviceGetMemoryBusWidth(handle)
    except pynvml.NVMLError:
        return None, None
    finally:
        pynvml.nvmlShutdown()


def apple_gpu_cores() -> int | None:
    """The number of cores of this Mac's GPU, which differs between variants of a chip; None if torch does not report it."""
    import torch

    count = getattr(torch.backends.mps, "get_core_count", None)
    return int(count()) if count is not None and torch.backends.mps.is_available() else None


def system_vendor(root: Path = _DMI) -> str | None:
    """The maker of this machine as its firmware (DMI) gives it: "Amazon EC2", "Dell Inc."; None where it gives none."""
    try:
        return " ".join((root / "sys_vendor").read_text().split()) or None
    except OSError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


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
    cores = _sysctl_number("hw.perflevel0.physicalcpu") or _sysctl_number("hw.physicalcpu")
    if not cores:
        return ()
    found = []
    level1 = _sysctl_number("hw.perflevel0.l1dcachesize") or _sysctl_number("hw.l1dcachesize")
    if level1:
        found.append(Cache(level="L1", size_bytes=level1, instances=cores))
    level2 = _sysctl_number("hw.perflevel0.l2cachesize") or _sysctl_number("hw.l2cachesize")
    if level2:
        sharing = _sysctl_number("hw.perflevel0.cpusperl2") or 1
        found.append(Cache(level="L2", size_bytes=level2, instances=max(1, cores // sharing)))
    level3 = _sysctl_number("hw.l3cachesize")
    if level3:
        found.append(Cache(level="L3", size_bytes=level3, instances=1))
    return tuple(found)


def _sysctl(name: str) -> str | None:
    try:
        return subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def _sysctl_number(name: str) -> int | None:
    text = _sysctl(name)
    return int(text) if text and text.isdigit() else None
