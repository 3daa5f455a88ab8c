"""Ceilings measured on this machine: runs the micro-benchmarks of ``rooflines.kernels.micro`` and remembers what they found.

Every figure is the median of repeats after the clock has settled, with their coefficient of variation as its spread; its source says
which kernel, how many threads and how many repeats. Measuring takes seconds, so the result is kept in the user's cache directory
under a fingerprint of everything that could change it.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.device_specs import detect
from rooflines.device_specs.cache import age, cache_path, load_file, newest
from rooflines.device_specs.measure_clock import sustained_clock_hz
from rooflines.device_specs.measure_cpu import measure_cpu
from rooflines.device_specs.measure_gpu import measure_cuda, measure_mps
from rooflines.device_specs.meter import Meter, Progress
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.errors import DeviceError, UsageError
from rooflines.serial import to_plain, write_json

if TYPE_CHECKING:
    import torch

__all__ = ["BUDGET_S", "FULL_BUDGET_S", "METHOD", "age", "load_file", "measure", "measure_again"]

# Part of the fingerprint: raise it when a kernel or the way it is timed changes, so that older cached figures are measured again.
METHOD = 3
# Seconds that the repeats of all figures may take: of those that judge a run, and of every figure there is.
BUDGET_S = 12.0
FULL_BUDGET_S = 40.0


def measure(
    device: str = "cpu",
    *,
    threads: int | None = None,
    full: bool = False,
    sustained_s: float | None = None,
    force: bool = False,
    remeasure: bool = False,
    progress: Progress | None = None,
    budget_s: float | None = None,
) -> Ceilings:
    """Ceilings of ``device`` (``cpu``, ``cuda:0``, ``mps``), from the user's cache where it has them, else measured now and cached.

    What judges a run is measured in some twelve seconds; ``full`` adds the further roofs (variants, links) and takes up to a minute.
    ``sustained_s`` holds every rate of a CUDA device for so many seconds as well. The cache is asked for the same device, driver,
    thread count (``threads``, on a CPU; torch's own by default), packages and ``budget_s``, the seconds that repeats may take in all;
    a full set answers for the figures that judge a run, but not the other way round. ``progress`` is told each figure as it is found.
    Nothing is cached before the last figure. Raises DeviceError for a device that is not there, or that other processes keep busy
    (unless ``force``), and UsageError for ``sustained_s`` on a device that has no such figures.
    """
    import torch

    progress = progress or _silent
    target = _device(device)
    if sustained_s is not None and target.type != "cuda":
        raise UsageError(f"sustained figures are measured on CUDA devices, not on {target}.", hint="Leave --sustained out.")
    full = full or sustained_s is not None
    threads = max(1, threads or torch.get_num_threads()) if target.type == "cpu" else None
    facts = _facts(target, threads, budget_s)
    fingerprint = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    if not remeasure:
        known = newest(f"{target.type}-{fingerprint}", fingerprint, full=full, sustained_s=sustained_s)
        if known is not None:
            return known
    found: list[Ceiling] = []
    meter = Meter(budget_s or (FULL_BUDGET_S if full else BUDGET_S), found, progress)
    clock_hz = None
    with torch.no_grad():
        if target.type == "cpu":
            measure_cpu(meter, threads or 1, full=full)
            clock_hz = sustained_clock_hz(threads or 1) if full else None
        elif target.type == "cuda":
            measure_cuda(meter, target, full=full, sustained_s=sustained_s, force=force)
        else:
            measure_mps(meter, target, full=full)
    ceilings = Ceilings(
        device=facts["name"],
        kind=target.type,
        ceilings=tuple(found),
        fingerprint=fingerprint,
        measured_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        full=full,
        sustained_s=sustained_s,
        method=METHOD,
        packages=facts["packages"],
        driver=facts.get("gpu", {}).get("driver"),
        threads=threads,
        clock_hz=clock_hz,
    )
    _keep(ceilings, progress)
    return ceilings


def measure_again(
    known: Ceilings,
    device: str = "cpu",
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    budget_s: float | None = None,
) -> Ceilings:
    """``known`` after another measurement of ``device``: of every figure the better one, cached like ``measure`` does.

    For when an operator was faster than a ceiling allows. What holds a machine back for a while, another guest on the same core or the
    same memory, only ever makes a ceiling too low, and evenly so that no spread shows it.
    """
    progress = progress or _silent
    anew = measure(device, threads=threads, force=True, remeasure=True, progress=progress, budget_s=budget_s)
    found = {one.key: one for one in known.ceilings if one.source.kind in ("measured", "derived")}
    for one in anew.ceilings:
        before = found.get(one.key)
        better = before is None or (one.value < before.value if one.kind == "latency" else one.value > before.value)
        if better:
            found[one.key] = one
    best = msgspec.structs.replace(
        anew,
        ceilings=tuple(found.values()),
        measurements=known.measurements + 1,
        full=known.full,
        sustained_s=known.sustained_s,
        clock_hz=known.clock_hz,
    )
    _keep(best, progress)
    return best


def _keep(ceilings: Ceilings, progress: Progress) -> None:
    """Into the cache; where that cannot be written, the figures still serve this run."""
    path = cache_path(f"{ceilings.kind}-{ceilings.fingerprint}", ceilings.full)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, ceilings)
    except OSError as error:
        progress(f"ceilings not cached: {error}")


def _device(name: str) -> torch.device:
    """``name`` as a torch device with its index; DeviceError where it is not on this machine."""
    import torch

    kinds = "Use cpu, cuda:0 or mps."
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceError(f'"{name}" is not a device.', hint=kinds) from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise DeviceError(
                f'"{name}" was asked for, but torch {torch.__version__} sees no GPU.',
                hint="Use --device cpu, or install a CUDA build of torch and check that nvidia-smi lists the GPU.",
            )
        index = torch.cuda.current_device() if device.index is None else device.index
        if index >= count:
            raise DeviceError(f'"{name}" was asked for, but the last GPU is cuda:{count - 1}.', hint=f"torch sees {count}.")
        return torch.device("cuda", index)
    if device.type == "mps":
        if not torch.backends.mps.is_available():
            raise DeviceError(f'"{name}" was asked for, but torch sees no Apple GPU.', hint="Use --device cpu.")
        return torch.device("mps")
    raise DeviceError(f'"{name}" is a device that rooflines cannot measure.', hint=kinds)


def _facts(device: torch.device, threads: int | None, budget_s: float | None) -> dict[str, Any]:
    """Everything that could change a measured figure; its hash is the fingerprint. ``name`` is the device's."""
    from importlib.metadata import PackageNotFoundError, version

    import torch

    packages = {name: version(name) for name in ("torch", "numba", "llvmlite", "numpy")}
    if device.type == "cuda":
        with contextlib.suppress(PackageNotFoundError):  # with it Numba has its CUDA kernels, else they are left out
            packages["numba-cuda"] = version("numba-cuda")
    facts: dict[str, Any] = {"method": METHOD, "kind": device.type, "packages": packages, "budget_s": budget_s}
    cpu = detect.cpu()
    if device.type == "cuda":
        gpu = detect.gpu(device.index)
        return facts | {"name": gpu.name, "gpu": to_plain(gpu), "cuda": torch.version.cuda, "hip": torch.version.hip}
    return facts | {"name": cpu.name, "cpu": to_plain(cpu), "threads": threads, "cpus": len(detect.usable_cpus())}


def _silent(_: str) -> None:
    """Progress that nobody listens to."""
