"""Ceilings measured on this machine: runs the micro-benchmarks of ``rooflines.kernels.micro`` and remembers
what they found.

Every figure is the best of several rounds, with the coefficient of variation between them as its spread
(``rounds.py``); its source says which kernel and how many threads. Measuring takes seconds, so the rounds are
kept in the user's cache directory under a fingerprint of everything that could change them, and the best of
all measurements counts (``history.py``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from typing import Any

import torch

from rooflines.arguments import arg
from rooflines.device_specs import detect
from rooflines.device_specs.history import (
    History,
    HistorySession,
    Progress,
    add_session,
    answering,
    read_history,
)
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import Ceilings
from rooflines.errors import DeviceError, UsageError
from rooflines.serial import to_plain

# Part of the fingerprint: raise it when a kernel or the way it is timed changes, so that older cached figures
# are measured again.
METHOD = 6
# Seconds that the rounds of all figures may take: of those that judge a run, and of every figure there is. A
# GPU has more figures, and more ways to measure each.
_BUDGETS_S = (9.0, 37.0)
_GPU_BUDGETS_S = (20.0, 60.0)


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
    """Return the ceilings of ``device`` (``cpu``, ``cuda:0``, ``mps``), from the user's cache where it has
    them, else measured now.

    What judges a run is measured in about twelve seconds, half a minute on a CUDA device, where code is
    compiled first; ``full`` adds the further roofs (variants, links) and takes up to a minute, or one and a
    half. ``sustained_s`` also measures every rate of a CUDA device over this many seconds. The cache is asked
    for the same device, driver, thread count (``threads``, on a CPU; torch's own by default), packages and
    ``budget_s``, the seconds that the rounds may take in all; a full set answers for the figures that judge a
    run, but not the other way round. With ``remeasure`` the device is measured once more, and of every figure
    the best of all measurements counts. ``progress`` is called for each round of each figure. Nothing is
    cached before the last figure. Raises DeviceError for a device that is not there, or that other processes
    keep busy (unless ``force``), and UsageError for ``sustained_s`` on a device that has no such figures.
    """
    progress = progress or (lambda _: None)
    target = _device(device)
    if sustained_s is not None and target.type != "cuda":
        raise UsageError(
            f"sustained rates are measured on CUDA devices only; the device is {target}.",
            hint=f"Remove {arg('sustained_s')}.",
        )
    full = full or sustained_s is not None
    threads = max(1, threads or torch.get_num_threads()) if target.type == "cpu" else None
    facts = _facts(target, threads, budget_s)
    empty = History(
        device=facts["name"],
        kind=target.type,
        method=METHOD,
        packages=facts["packages"],
        driver=facts.get("gpu", {}).get("driver"),
        threads=threads,
        fingerprint=hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16],
    )
    if not remeasure:
        known = answering(empty, full=full, sustained_s=sustained_s)
        if known is not None:
            return known
    begin = time.perf_counter()
    # Not at the top of the file: they import Numba, which takes half a second that an answer from the cache
    # is spared.
    from rooflines.device_specs.measure_cpu import measure_cpu
    from rooflines.device_specs.measure_gpu import measure_cuda, measure_mps

    usual = (_GPU_BUDGETS_S if target.type == "cuda" else _BUDGETS_S)[full]
    plan = Plan(budget_s or usual, progress, threads)
    with torch.no_grad():
        if target.type == "cpu":
            measure_cpu(plan, threads or 1, full=full)
        elif target.type == "cuda":
            measure_cuda(plan, target, full=full, sustained_s=sustained_s, force=force)
        else:
            measure_mps(plan, target, full=full)
    return add_session(
        empty, plan.session(full=full, seconds=time.perf_counter() - begin), progress
    ).ceilings(sustained_s)


def sessions(ceilings: Ceilings) -> tuple[HistorySession, ...]:
    """Return the measurements in the user's cache that ``ceilings`` are the best of, with every round."""
    known = read_history(ceilings.kind, ceilings.fingerprint)
    return known.sessions if known else ()


def _device(name: str) -> torch.device:
    """``name`` as a torch device with its index; DeviceError where it is not on this machine."""
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
                f'"{name}" is not available: torch {torch.__version__} finds no GPU.',
                hint=(
                    f"Use {arg('device', 'cpu')}, or install a CUDA build of torch and check that "
                    "nvidia-smi lists the GPU."
                ),
            )
        index = torch.cuda.current_device() if device.index is None else device.index
        if index >= count:
            raise DeviceError(
                f'"{name}" is not available: the last GPU is cuda:{count - 1}.', hint=f"torch finds {count}."
            )
        return torch.device("cuda", index)
    if device.type == "mps":
        if not torch.backends.mps.is_available():
            raise DeviceError(
                f'"{name}" is not available: torch finds no Apple GPU.', hint=f"Use {arg('device', 'cpu')}."
            )
        return torch.device("mps")
    raise DeviceError(f'"{name}" cannot be measured.', hint=kinds)


def _facts(device: torch.device, threads: int | None, budget_s: float | None) -> dict[str, Any]:
    """Everything that could change a measured figure; its hash is the fingerprint. ``name`` is the
    device's."""
    from importlib.metadata import PackageNotFoundError, version

    packages = {name: version(name) for name in ("torch", "numba", "llvmlite", "numpy")}
    if device.type == "cuda":
        with contextlib.suppress(
            PackageNotFoundError
        ):  # with it Numba has its CUDA kernels, else they are left out
            packages["numba-cuda"] = version("numba-cuda")
    facts: dict[str, Any] = {
        "method": METHOD,
        "kind": device.type,
        "packages": packages,
        "budget_s": budget_s,
    }
    if device.type == "cuda":
        gpu = detect.gpu(device.index)
        return facts | {
            "name": gpu.name,
            "gpu": to_plain(gpu),
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
        }
    cpu = detect.cpu()
    return facts | {
        "name": cpu.name,
        "cpu": to_plain(cpu),
        "threads": threads,
        "cpus": len(detect.usable_cpus()),
    }
