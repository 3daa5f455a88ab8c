"""Time an iteration of a perceptron of other widths, ``784-10-10@59000``, on random samples: their values do not change its time."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.profiler.others import OthersMeter
from rooflines.studies import network_result, networks
from rooflines.sweeps.records import Result

if TYPE_CHECKING:
    from rooflines.sweeps.worker import Channel

# An iteration is repeated until this much time has gone by, and at least so often.
_SECONDS = 0.6
_ROUNDS = 3
CLASSES = 10


class SizeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a network to time: ``size`` has its widths and the number of samples."""

    backend: str
    size: str
    seed: int


def time_size(task: dict[str, Any], directory: Path, channel: Channel) -> Result:
    """Run the point of ``task``."""
    from rooflines.kernels.networks.perceptron import Perceptron
    from rooflines.kernels.networks.perceptron_library import library

    job = networks.read_options(task["point"]["options"], SizeOptions)
    widths, samples = parse_size(job.size)
    channel.stage("timing its iterations")
    generator = np.random.default_rng(job.seed)
    network = Perceptron(library(job.backend), widths=widths, seed=job.seed)
    x = network.resident(generator.random((samples, widths[0]), np.float32))
    y = network.resident(generator.integers(0, widths[-1], samples))
    network.step(x, y)
    steps: list[float] = []
    others = OthersMeter()
    while len(steps) < _ROUNDS or sum(steps) < _SECONDS:
        begun = time.perf_counter()
        network.step(x, y)
        steps.append(time.perf_counter() - begun)
    busy = others.cores()
    declared = [one.operator for one in network.operators(x, y, rounds=1)]
    network.close()
    iteration_s, flops, size = statistics.median(steps), sum(one.flops for one in declared), sum(one.bytes for one in declared)
    values = {
        "iteration_s": iteration_s, "flops": flops, "bytes": size, "flop_per_s": flops / iteration_s, "byte_per_s": size / iteration_s,
        "others_cores": busy,
    }  # fmt: skip
    return network_result.make_result(task, directory, values, data="random samples")


def parse_widths(text: str, name: str = "widths") -> tuple[int, ...]:
    """Return the widths of the input, the hidden layers and the classes in ``text``, the option ``name``; raises UsageError."""
    given = arg("set", f"{name}={text}")
    widths = tuple(_positive(width, f"{given}: a width") for width in text.split("-"))
    if len(widths) < 2:
        raise UsageError(f"{given} has too few layers.", hint="Give at least inputs and classes, for example 784-10-10.")
    if widths[-1] < CLASSES:
        raise UsageError(
            f"{given}: the last width must be {CLASSES} (the number of classes), got {widths[-1]}.", hint="For example: 784-10-10"
        )
    return widths


def parse_size(text: str) -> tuple[tuple[int, ...], int]:
    """Return the widths and the number of samples in ``784-10-10@59000``; raises UsageError for anything else."""
    widths, _, samples = text.partition("@")
    return parse_widths(widths, "size"), _positive(samples, f"{arg('set', f'size={text}')}: the samples behind @")


def _positive(text: str, what: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"{what} must be a positive integer, got {text!r}.", hint="For example: 784-10-10@59000")
    return number
