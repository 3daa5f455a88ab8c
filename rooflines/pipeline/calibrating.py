"""Measure the usual operators of networks on this machine, for predictions of other networks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rooflines.pipeline.options import ProfileOptions
from rooflines.pipeline.recording import profile
from rooflines.profiler.directory import default_directory
from rooflines.profiler.options import find_device
from rooflines.profiler.records import Run

# The sweep forward only, and with its backward pass and update.
_MODES = ("inference", "training")


def calibrate(options: ProfileOptions | None = None, **keywords: Any) -> list[Run]:
    """Profile a sweep of operators over their sizes in inference and training; returns both runs, which
    ``predict`` takes as ``like``.

    ``keywords`` are fields of ``ProfileOptions`` (``device``, ``precision``, ``threads``, ``ceilings``),
    instead of ``options``; ``output`` is the directory of the runs. Takes about a minute beside what measures
    the ceilings. Raises what ``profile`` does.
    """
    import torch

    from rooflines.profiler.workloads.kernel_sweep import KernelSweep

    options = options or ProfileOptions(**keywords)
    place = Path(options.output) if options.output is not None else default_directory("kernels", "calibrate")
    sweep = KernelSweep(find_device(options.device).type)
    runs = []
    for mode in _MODES:
        changed = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
        runs.append(profile(sweep, torch.zeros(1), **changed | {"mode": mode, "output": place / mode}))
    return runs
