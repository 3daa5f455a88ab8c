"""The networks part: the networks written by hand beside the libraries on an NVIDIA GPU.

- ``numba-cuda`` and eager ``torch-cuda`` train the MNIST network in turn, the data on the GPU: samples a second, the ratio round by
  round, memory, the loss curves, and how many kernels a step launches and for how long they keep the GPU busy
- the operators of each, timed one by one
- CuPy beside NumPy on the operators of the perceptron
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rooflines.errors import RooflinesError
from rooflines.gpu_check import laws
from rooflines.gpu_check.recorder import Recorder
from rooflines.kernels.networks import cnn
from rooflines.kernels.networks.base import Network, OperatorTime
from rooflines.kernels.tf32 import tf32

_ROUNDS = 10
_ROUND_S = 0.5
_PERCEPTRON_SAMPLES = 59_000
_CURVE_STEPS = 100
_PROFILED_STEPS = 20


def run(recorder: Recorder) -> None:
    """Measure what this machine can."""
    try:
        found = training(cnn.BATCH_SIZE, _ROUNDS, recorder.folder)
        recorder.figure("training", found)
        recorder.check(*laws.networks_reach(found))
    except RooflinesError as error:
        recorder.leave_out("numba-cuda beside torch-cuda", str(error))
    try:
        recorder.figure("perceptron", perceptron(("numpy", "cupy"), _PERCEPTRON_SAMPLES))
    except RooflinesError as error:
        recorder.leave_out("CuPy beside NumPy", str(error))


# --- the MNIST network -------------------------------------------------------------------------------------------------------------


def training(batch: int, rounds: int, folder: Path) -> dict[str, Any]:
    """``numba-cuda`` beside ``torch-cuda``; traces of both go to ``folder``. Raises DeviceError where one of them cannot run."""
    from rooflines.kernels.networks.cnn_numba_cuda import NumbaCuda
    from rooflines.kernels.networks.cnn_torch import TorchCnn

    x, y = labelled(4 * batch)
    curves = {}
    with tf32(False):
        for one in (NumbaCuda(), TorchCnn("cuda")):
            curves[one.name] = losses(one, x, y, batch, _CURVE_STEPS)
            one.close()
    # From here on with the defaults of each, which for torch's convolutions is TF32.
    networks: list[Network] = [NumbaCuda(), TorchCnn("cuda")]
    found: dict[str, Any] = in_turn(networks, x, y, batch, rounds, _ROUND_S)
    first, second = (np.array(curve) for curve in curves.values())
    found["curves"] = curves | {"largest_difference": float(np.abs(first - second).max())}
    found["operators"] = {}
    found["kernels"] = {}
    for network in networks:
        images, classes = network.resident(x[:batch]), network.resident(y[:batch])
        found["operators"][network.name] = table(network.operators(images, classes))
        found["kernels"][network.name] = kernels(network, images, classes, folder / f"{network.name}.json")
    for name, counted in found["kernels"].items():
        if "busy_s" in counted:
            counted["busy_fraction"] = counted["busy_s"] * found["samples_per_s"][name] / batch
    return found


def labelled(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random images that can be told apart, and their classes."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, cnn.CLASSES, count)
    centres = generator.standard_normal((cnn.CLASSES, *cnn.IMAGE))
    return (centres[y] + generator.standard_normal((count, *cnn.IMAGE))).astype(np.float32), y


def losses(network: Network, x: np.ndarray, y: np.ndarray, batch: int, steps: int) -> list[float]:
    """The loss of each step, over the batches of ``x`` again and again."""
    images, classes = network.resident(x), network.resident(y)
    begins = [step * batch % len(x) for step in range(steps)]
    return [network.step(images[begin : begin + batch], classes[begin : begin + batch]) for begin in begins]


def in_turn(networks: Sequence[Network], x: np.ndarray, y: np.ndarray, batch: int, rounds: int, round_s: float) -> dict[str, Any]:
    """Samples a second of each network, ``rounds`` times one after the other, about ``round_s`` each; the data is resident.

    ``ratio`` is of the first to the second network, round by round: whatever else the machine does meets both.
    """
    data = [(network.resident(x), network.resident(y)) for network in networks]
    begins = range(0, len(x) - batch + 1, batch)

    def run(side: int, steps: int) -> float:
        images, classes = data[side]
        parts = [slice(begin, begin + batch) for begin in begins]
        networks[side].synchronise()
        begun = time.perf_counter()
        for step in range(steps):
            part = parts[step % len(parts)]
            networks[side].step(images[part], classes[part])
        networks[side].synchronise()
        return steps * batch / (time.perf_counter() - begun)

    steps = []
    for side in range(len(networks)):
        run(side, 3)  # compiles
        steps.append(max(3, round(run(side, 10) / batch * round_s)))
    rates = [[run(side, steps[side]) for side in range(len(networks))] for _ in range(rounds)]
    ratios = [row[0] / row[1] for row in rates]
    return {
        "rounds": rounds,
        "samples_per_s": {network.name: statistics.median(row[side] for row in rates) for side, network in enumerate(networks)},
        "ratio": statistics.median(ratios),
        "ratio_least": min(ratios),
        "ratio_most": max(ratios),
        "device_memory_bytes": {network.name: network.device_memory_bytes() for network in networks},
    }


def kernels(network: Network, images: Any, classes: Any, trace: Path) -> dict[str, Any]:
    """How many kernels a step launches and how long they take together, as the profiler of the driver sees them in ``trace``."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(_PROFILED_STEPS):
            network.step(images, classes)
        network.synchronise()
    recorded.export_chrome_trace(str(trace))
    return launches(trace, _PROFILED_STEPS)


def launches(trace: Path, steps: int) -> dict[str, Any]:
    """The kernels of a step in a ``trace`` of ``steps`` steps, and the seconds that they take together."""
    events = json.loads(trace.read_bytes())["traceEvents"]
    took = [event["dur"] * 1e-6 for event in events if event.get("cat") == "kernel"]  # from microseconds
    if not took:
        return {"left_out": "the profiler saw no kernels"}
    return {"launches": len(took) / steps, "busy_s": sum(took) / steps}


def table(times: Sequence[OperatorTime]) -> list[dict[str, Any]]:
    """The operators as plain records."""
    return [
        {
            "name": one.operator.name, "layer": one.operator.layer, "phase": one.operator.phase, "seconds": one.seconds,
            "flops": one.operator.flops, "executed_flops": one.operator.executed_flops, "bytes": one.operator.bytes,
        }
        for one in times
    ]  # fmt: skip


# --- the perceptron ----------------------------------------------------------------------------------------------------------------


def perceptron(names: Sequence[str], samples: int, rounds: int = 5) -> dict[str, Any]:
    """The operators of the perceptron in two libraries; the second beside the first. Raises DeviceError where one is not here."""
    from rooflines.kernels.networks.perceptron import WIDTHS, Perceptron
    from rooflines.kernels.networks.perceptron_library import library

    generator = np.random.default_rng(0)
    x = generator.standard_normal((samples, WIDTHS[0])).astype(np.float32)
    y = generator.integers(0, WIDTHS[-1], samples)
    times: dict[str, tuple[OperatorTime, ...]] = {}
    for name, found in [(name, library(name)) for name in names]:
        network = Perceptron(found)
        times[name] = network.operators(network.resident(x), network.resident(y), rounds)
        network.close()
    return {"samples": samples, "operators": beside(times)}


def beside(times: Mapping[str, Sequence[OperatorTime]]) -> list[dict[str, Any]]:
    """Operator by operator, in the order of an iteration: the seconds of each library, and how often the first takes the second's."""
    first, second = times
    rows = []
    for one, other in zip(times[first], times[second], strict=True):
        assert (one.operator.name, one.operator.layer) == (other.operator.name, other.operator.layer)
        ratio = one.seconds / other.seconds
        rows.append({"name": one.operator.name, "layer": one.operator.layer, first: one.seconds, second: other.seconds, "ratio": ratio})
    return rows
