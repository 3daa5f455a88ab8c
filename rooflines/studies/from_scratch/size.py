"""Time an iteration of a perceptron of other widths on random samples: their values do not change how long it takes."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rooflines.studies import network_result, networks
from rooflines.studies.from_scratch.widths import parse_size
from rooflines.sweeps.records import Result

if TYPE_CHECKING:
    from rooflines.sweeps.worker import Channel

# An iteration is repeated until this much time has gone by, and at least so often.
_SECONDS = 0.6
_ROUNDS = 3


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
    while len(steps) < _ROUNDS or sum(steps) < _SECONDS:
        begun = time.perf_counter()
        network.step(x, y)
        steps.append(time.perf_counter() - begun)
    declared = [one.operator for one in network.operators(x, y, rounds=1)]
    network.close()
    iteration_s, flops, size = statistics.median(steps), sum(one.flops for one in declared), sum(one.bytes for one in declared)
    values = {
        "iteration_s": iteration_s, "flops": flops, "bytes": size, "flop_per_s": flops / iteration_s, "byte_per_s": size / iteration_s,
    }  # fmt: skip
    return network_result.make_result(task, directory, values, data="random samples")
