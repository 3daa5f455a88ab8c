"""The networks written by hand beside the libraries on an NVIDIA GPU; a part of ``make gpu-check``, and a command of its own.

- ``numba-cuda`` and eager ``torch-cuda`` train the MNIST network in turn, the data on the GPU: samples a second, the ratio round by
  round, memory, the loss curves, and how many kernels a step launches and for how long they keep the GPU busy
- the operators of each, timed one by one
- CuPy beside NumPy on the operators of the perceptron

Prints what cannot be done here and why, writes JSON to --output, exits 0 without a GPU too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rooflines.errors import RooflinesError
from rooflines.kernels.networks import cnn
from rooflines.kernels.networks.base import Network, OperatorTime
from rooflines.kernels.tf32 import tf32
from rooflines.units import si

ROUNDS = 10
ROUND_S = 0.5
PERCEPTRON_SAMPLES = 59_000
CURVE_STEPS = 100
PROFILED_STEPS = 20


def main() -> int:
    """Measure what this machine can; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="the JSON to write")
    parser.add_argument("--batch-size", type=int, default=cnn.BATCH_SIZE)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    result: dict[str, Any] = {"batch_size": options.batch_size}
    result["training"] = unless_left_out("training", lambda: training(options.batch_size, options.rounds))
    result["perceptron"] = unless_left_out("perceptron", lambda: perceptron(("numpy", "cupy"), PERCEPTRON_SAMPLES))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def unless_left_out(name: str, part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``part`` returns, or why this machine cannot do it."""
    try:
        return part()
    except RooflinesError as error:
        print(f"{name}: left out: {error}", flush=True)
        return {"left_out": str(error)}


# --- the MNIST network -------------------------------------------------------------------------------------------------------------


def training(batch: int, rounds: int) -> dict[str, Any]:
    """``numba-cuda`` beside ``torch-cuda``. Raises DeviceError where one of them cannot run."""
    from rooflines.kernels.networks.cnn_numba_cuda import NumbaCuda
    from rooflines.kernels.networks.cnn_torch import TorchCnn

    x, y = labelled(4 * batch)
    curves = {}
    with tf32(False):
        for network in (NumbaCuda(), TorchCnn("cuda")):
            curves[network.name] = losses(network, x, y, batch, CURVE_STEPS)
            network.close()
    # From here on with the defaults of each, which for torch's convolutions is TF32.
    networks: list[Network] = [NumbaCuda(), TorchCnn("cuda")]
    found: dict[str, Any] = in_turn(networks, x, y, batch, rounds, ROUND_S)
    first, second = (np.array(curve) for curve in curves.values())
    found["curves"] = curves | {"largest_difference": float(np.abs(first - second).max())}
    found["operators"] = {}
    found["kernels"] = {}
    for network in networks:
        images, classes = network.resident(x[:batch]), network.resident(y[:batch])
        found["operators"][network.name] = table(network.name, network.operators(images, classes))
        found["kernels"][network.name] = kernels(network, images, classes)
    print(f"losses over {CURVE_STEPS} steps differ by {found['curves']['largest_difference']:.2g} at most", flush=True)
    for name, counted in found["kernels"].items():
        if "launches" not in counted:
            print(f"{name}: {counted['left_out']}")
            continue
        step_s = batch / found["samples_per_s"][name]
        counted["busy_fraction"] = counted["busy_s"] / step_s
        print(f"{name}: {counted['launches']:g} kernels a step, the GPU busy for {counted['busy_fraction']:.0%} of {si(step_s, 's')}")
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
    found: dict[str, Any] = {
        "rounds": rounds,
        "samples_per_s": {network.name: statistics.median(row[side] for row in rates) for side, network in enumerate(networks)},
        "ratio": statistics.median(ratios),
        "ratio_least": min(ratios),
        "ratio_most": max(ratios),
        "device_memory_bytes": {network.name: network.device_memory_bytes() for network in networks},
    }
    for name, rate in found["samples_per_s"].items():
        memory = found["device_memory_bytes"][name]
        print(f"{name:12} {rate:12,.0f} samples/s  {si(memory, 'B') if memory else '-'}", flush=True)
    names = " / ".join(found["samples_per_s"])
    print(f"{names}: {found['ratio']:.2f} ({found['ratio_least']:.2f} to {found['ratio_most']:.2f} in {rounds} rounds)", flush=True)
    return found


def kernels(network: Network, images: Any, classes: Any) -> dict[str, Any]:
    """How many kernels a step launches and how long they take together, as the profiler of the driver sees them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(PROFILED_STEPS):
            network.step(images, classes)
        network.synchronise()
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        events = json.loads(trace.read_bytes())["traceEvents"]
    took = [event["dur"] * 1e-6 for event in events if event.get("cat") == "kernel"]  # from microseconds
    if not took:
        return {"left_out": "the profiler saw no kernels"}
    return {"launches": len(took) / PROFILED_STEPS, "busy_s": sum(took) / PROFILED_STEPS}


def table(name: str, times: Sequence[OperatorTime]) -> list[dict[str, Any]]:
    """Prints the operators and returns them as plain records."""
    print(f"{name}: operators of a step")
    rows = []
    for one in times:
        operator = one.operator
        rows.append(
            {
                "name": operator.name, "layer": operator.layer, "phase": operator.phase, "seconds": one.seconds,
                "flops": operator.flops, "executed_flops": operator.executed_flops, "bytes": operator.bytes,
            }
        )  # fmt: skip
        label = f"{operator.name} {operator.layer}".strip()
        rates = f"{si(one.flop_per_s, 'FLOP/s'):>15}  {si(one.byte_per_s, 'B/s'):>12}"
        print(f"  {label:66} {si(one.seconds, 's'):>9}  {rates}", flush=True)
    return rows


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
    print(f"{'operator':34} {first:>10} {second:>10}")
    for one, other in zip(times[first], times[second], strict=True):
        assert (one.operator.name, one.operator.layer) == (other.operator.name, other.operator.layer)
        ratio = one.seconds / other.seconds
        label = f"{one.operator.name} {one.operator.layer}"
        rows.append({"name": one.operator.name, "layer": one.operator.layer, first: one.seconds, second: other.seconds, "ratio": ratio})
        print(f"{label:34} {si(one.seconds, 's'):>10} {si(other.seconds, 's'):>10} {ratio:8.1f} x", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
