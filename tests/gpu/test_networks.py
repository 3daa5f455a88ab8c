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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rooflines.errors import RooflinesError
from rooflines.kernels.tf32 import tf32
from rooflines_studies.networks import cnn
from rooflines_studies.networks.base import Network, OperatorTime
from rooflines_studies.networks.cnn_torch import TorchCnn
from rooflines_studies.networks.perceptron import WIDTHS, Perceptron, library
from tests.gpu.parts import Judge, Recorder, Verdict, named

_ROUNDS = 10
_ROUND_S = 0.5
_PERCEPTRON_SAMPLES = 59_000
_CURVE_STEPS = 100
_PROFILED_STEPS = 20
# Our CUDA network against eager torch with the data on the GPU; the samples a second that were once published for a Numba CUDA version
# of it whose convolutions were never trained; of two fp32 runs over 100 steps, whose sums are in different orders; launches of a step.
LEAST_OF_TORCH = 0.5
PUBLISHED_SAMPLES_PER_S = 71_758
MOST_LOSS_DIFFERENCE = 1e-2
LAUNCHES = 13
_BESIDE_TORCH = "numba-cuda beside torch-cuda"


def measure(recorder: Recorder) -> None:
    """Measure what this machine can measure."""
    try:
        recorder.figure("training", training(cnn.BATCH_SIZE, _ROUNDS, recorder.folder))
    except RooflinesError as error:
        recorder.leave_out(_BESIDE_TORCH, str(error))
    try:
        recorder.figure("perceptron", perceptron(("numpy", "cupy"), _PERCEPTRON_SAMPLES))
    except RooflinesError as error:
        recorder.leave_out("CuPy beside NumPy", str(error))


class Trained(msgspec.Struct, kw_only=True):
    """What the laws need of the figure "training"."""

    samples_per_s: dict[str, float]
    ratio: float
    ratio_least: float
    ratio_most: float
    curves: dict[str, Any]
    kernels: dict[str, dict[str, Any]]


def _law(verdict: Callable[[Trained], Verdict]) -> Judge:
    return lambda found, device: verdict(found.figure("training", Trained))


@_law
def keeps_up_with_torch(found: Trained) -> Verdict:
    spread = f"{found.ratio:.2f} ({found.ratio_least:.2f} to {found.ratio_most:.2f})"
    return found.ratio >= LEAST_OF_TORCH, spread


@_law
def faster_than_published(found: Trained) -> Verdict:
    rate = found.samples_per_s["numba-cuda"]
    return rate > PUBLISHED_SAMPLES_PER_S, f"{rate:,.0f} samples/s"


@_law
def same_losses(found: Trained) -> Verdict:
    difference = found.curves["largest_difference"]
    return difference <= MOST_LOSS_DIFFERENCE, f"{difference:.2g}"


@_law
def few_kernels(found: Trained) -> Verdict:
    kernels = found.kernels["numba-cuda"]
    launched = kernels.get("launches")
    return kernels["left_out"] if launched is None else (launched == LAUNCHES, f"{launched:g}")


LAWS = {
    f"speed >= {LEAST_OF_TORCH} x torch, data resident": keeps_up_with_torch,
    f"more than {PUBLISHED_SAMPLES_PER_S:,} samples/s": faster_than_published,
    f"losses within {MOST_LOSS_DIFFERENCE} of torch's": same_losses,
    f"{LAUNCHES} kernels per step": few_kernels,
}


@pytest.mark.gpu
@pytest.mark.parametrize("law", named(_BESIDE_TORCH, LAWS))
def test_networks(judge: Callable[[Judge], None], law: Judge) -> None:
    judge(law)


# --- the MNIST network -------------------------------------------------------------------------------------------------------------


def training(batch: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Train ``numba-cuda`` beside ``torch-cuda``; traces of both go to ``folder``. Raises DeviceError where one of them cannot run."""
    from rooflines_studies.networks.cnn_numba_cuda import NumbaCuda

    x, y = labeled(4 * batch)
    curves = {}
    with tf32(False):
        for exact in (NumbaCuda(), TorchCnn("cuda")):
            curves[exact.name] = losses(exact, x, y, batch, _CURVE_STEPS)
            exact.close()
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


def labeled(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random images that can be distinguished, and their classes."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, cnn.CLASSES, count)
    centers = generator.standard_normal((cnn.CLASSES, *cnn.IMAGE))
    return (centers[y] + generator.standard_normal((count, *cnn.IMAGE))).astype(np.float32), y


def losses(network: Network, x: np.ndarray, y: np.ndarray, batch: int, steps: int) -> list[float]:
    """Return the loss of each step, over the batches of ``x`` again and again."""
    images, classes = network.resident(x), network.resident(y)
    begins = [step * batch % len(x) for step in range(steps)]
    return [network.step(images[begin : begin + batch], classes[begin : begin + batch]) for begin in begins]


def in_turn(networks: Sequence[Network], x: np.ndarray, y: np.ndarray, batch: int, rounds: int, round_s: float) -> dict[str, Any]:
    """Measure samples a second of each network, ``rounds`` times one after the other, about ``round_s`` each; the data is resident.

    ``ratio`` is of the first to the second network, round by round: other work of the machine slows both.
    """
    data = [(network.resident(x), network.resident(y)) for network in networks]
    begins = range(0, len(x) - batch + 1, batch)

    def run(side: int, steps: int) -> float:
        images, classes = data[side]
        parts = [slice(begin, begin + batch) for begin in begins]
        networks[side].synchronize()
        begun = time.perf_counter()
        for step in range(steps):
            part = parts[step % len(parts)]
            networks[side].step(images[part], classes[part])
        networks[side].synchronize()
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
    """Return how many kernels a step launches and how long they take together, as the profiler of the driver sees them in ``trace``."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(_PROFILED_STEPS):
            network.step(images, classes)
        network.synchronize()
    recorded.export_chrome_trace(str(trace))
    return launches(trace, _PROFILED_STEPS)


def launches(trace: Path, steps: int) -> dict[str, Any]:
    """Return the kernels of a step in a ``trace`` of ``steps`` steps, and the seconds that they take together."""
    events = json.loads(trace.read_bytes())["traceEvents"]
    took = [event["dur"] * 1e-6 for event in events if event.get("cat") == "kernel"]  # from microseconds
    if not took:
        return {"left_out": "the profiler saw no kernels"}
    return {"launches": len(took) / steps, "busy_s": sum(took) / steps}


def table(times: Sequence[OperatorTime]) -> list[dict[str, Any]]:
    """Return the operators as plain records."""
    kept = ("name", "layer", "phase", "flops", "executed_flops", "bytes")
    return [{**{name: getattr(timed.operator, name) for name in kept}, "seconds": timed.seconds} for timed in times]


# --- the perceptron ----------------------------------------------------------------------------------------------------------------


def perceptron(names: Sequence[str], samples: int, rounds: int = 5) -> dict[str, Any]:
    """Time the operators of the perceptron in two libraries. Raises DeviceError where one is not here."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((samples, WIDTHS[0])).astype(np.float32)
    y = generator.integers(0, WIDTHS[-1], samples)
    times: dict[str, tuple[OperatorTime, ...]] = {}
    for name, arrays in [(name, library(name)) for name in names]:
        network = Perceptron(arrays)
        times[name] = network.operators(network.resident(x), network.resident(y), rounds)
        network.close()
    return {"samples": samples, "operators": beside(times)}


def beside(times: Mapping[str, Sequence[OperatorTime]]) -> list[dict[str, Any]]:
    """Return the seconds of each library by operator, in the order of an iteration, and the ratio of the first to the second."""
    first, second = times
    rows = []
    for ours, theirs in zip(times[first], times[second], strict=True):
        named = {"name": ours.operator.name, "layer": ours.operator.layer}
        assert named == {"name": theirs.operator.name, "layer": theirs.operator.layer}
        rows.append({**named, first: ours.seconds, second: theirs.seconds, "ratio": ours.seconds / theirs.seconds})
    return rows
