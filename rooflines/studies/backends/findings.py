"""What the numbers of the backends study say, in sentences computed from them, the one to read first at the head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from rooflines.studies.backends.records import BackendResult
from rooflines.studies.records import TimedOperator
from rooflines.studies.study import decided
from rooflines.studies.tables import printed
from rooflines.sweeps.records import Estimate
from rooflines.units import percent, seconds, significant

MNIST_TRAIN = 60_000
Paper: TypeAlias = Mapping[str, Mapping[str, Any]]
# What may set the pace of a training, and how it is called.
PACES = {
    "compute": "bound by arithmetic", "memory": "bound by memory", "latency": "bound by launches", "host": "between operators",
    "input": "waiting for input", "unknown": "without a roof",
}  # fmt: skip
# Rates of the paper's PyTorch backends that lie within this factor of each other do not depend on the device.
_ALIKE = 1.5
_CONVOLUTIONS = ("conv1", "conv2")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step's time goes: seconds by what sets the pace (``PACES``), and how much of it is input."""

    step_s: float
    parts: dict[str, float]

    @property
    def limit(self) -> str:
        """The largest part."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def share(self) -> float:
        """What share of the time that is."""
        return self.parts[self.limit] / sum(self.parts.values())


def paper_table() -> Paper:
    """Return the paper's table of results by backend, in its units; GPU memory is None where it was not measured."""
    return {one["backend"]: one for one in printed(Path(__file__).parent / "backends_mnist_cnn.csv")}


def sentences(results: Sequence[BackendResult]) -> Iterator[str]:
    """Yield the sentences. Without a result there are those about the paper."""
    timed = sorted(results, key=lambda one: one.rate.value, reverse=True)
    if timed:
        yield _verdict(timed[0])
        yield from decided(_compared(timed, paper_table()), "trains", "many samples/s")
        yield from (sentence for one in timed if (sentence := _why(one)))
        yield from _convolutions(timed)
    yield from contradiction(paper_table())
    yield from _loaders(timed, paper_table())
    yield (
        f"The paper's Numba backends omit the gradients of the convolutions, {percent(unlearned_share())} of the FLOPs of a step; "
        "here every backend computes all gradients."
    )
    yield from _accuracy(results)


def pace(one: BackendResult) -> Pace | None:
    """Where the time of a step goes: its input, its operators by bound, and what no operator explains; None without operators."""
    if not one.operators:
        return None
    parts: dict[str, float] = {}
    for each in one.operators:
        parts[each.bound] = parts.get(each.bound, 0.0) + each.time_s
    step_s = one.speed.step_s
    parts["host"] = parts.get("host", 0.0) + max(0.0, step_s - sum(parts.values()))
    last = one.speed.epochs[-1]
    steps = round(last.samples_per_s * last.epoch_s / one.speed.batch_size) or 1
    parts["input"] = last.input_s / steps
    return Pace(step_s=step_s, parts={name: time for name, time in parts.items() if time > 0})


def convolution_efficiency(one: BackendResult) -> float | None:
    """The share of their roofs that the convolutions reach, forward and backward together, by the FLOPs that their kernels execute.

    The operators that are fused into a convolution count with it.
    """
    return _reached(each for each in one.operators if each.layer in _CONVOLUTIONS and each.matrix_flops)


def _reached(operators: Iterable[TimedOperator]) -> float | None:
    """The share of their roofs that those of ``operators`` reach together that have one; None without any."""
    bounded = [(each.lower_bound_s, each.time_s) for each in operators if each.lower_bound_s is not None]
    time_s = sum(time_s for _, time_s in bounded)
    return sum(lower_s for lower_s, _ in bounded) / time_s if time_s > 0 else None


def contradiction(paper: Paper) -> Iterator[str]:
    """Why the paper's text and its table name different winners: its PyTorch rows do not measure PyTorch."""
    torch = {name: row for name, row in paper.items() if name.startswith("torch")}
    rates = [row["samples_per_s"] for row in torch.values()]
    numba, cuda = paper["numba-cuda"], paper["torch-cuda"]
    if max(rates) / min(rates) > _ALIKE:
        return
    loader_s = min(row["epoch_s"] for row in torch.values())
    rest = {name: row["epoch_s"] - loader_s for name, row in torch.items() if row["epoch_s"] > loader_s}
    slowest = max(rest, key=lambda name: rest[name])
    yield (
        "The paper contradicts itself: its text gives the highest throughput to Numba CUDA and, some sentences on, calls it notably "
        "slower than PyTorch CUDA; its table has Numba CUDA at "
        f"{numba['samples_per_s']:,.0f} samples/s and PyTorch CUDA at {cuda['samples_per_s']:,.0f}, "
        f"{numba['samples_per_s'] / cuda['samples_per_s']:.1f} times slower. PyTorch has {min(rates):,.0f} to {max(rates):,.0f} "
        "samples/s on a CPU, an NVIDIA GPU and an Apple GPU alike. This must be the rate of the data loader, which prepared the images "
        f"in {significant(1e6 / max(rates))} µs each, not of the devices. If the loader took the whole epoch of the fastest of them "
        f"({seconds(loader_s)}), {slowest} itself computed for {seconds(rest[slowest])} "
        f"({MNIST_TRAIN / rest[slowest]:,.0f} samples/s), and the rate of PyTorch CUDA cannot be derived from the table. Neither the "
        "text nor the table compares the backends."
    )


def _loaders(timed: Sequence[BackendResult], paper: Paper) -> Iterator[str]:
    """The same here: a resident backend, and the same one behind the paper's loader."""
    for one in timed:
        through = one.loader
        if through is None:
            continue
        waited, alone = through.input_fraction, one.rate.value
        predicted = 1 / (1 / alone + 1 / through.alone_samples_per_s)
        had = f" (paper: {paper[one.backend]['samples_per_s']:,.0f})" if one.backend in paper else ""
        yield (
            f"{one.name} trains {alone:,.0f} samples/s on data in memory and {through.samples_per_s:,.0f} "
            f"with a loader like the paper's{had}, waiting for input {percent(waited)} of the time. The "
            f"loader alone delivers {through.alone_samples_per_s:,.0f} samples/s; loading and computing one after the other would give "
            f"{predicted:,.0f}."
        )


def _verdict(fastest: BackendResult) -> str:
    said = f"{fastest.name} trains {fastest.rate.value:,.0f} samples/s"
    found = pace(fastest)
    if found is None:
        return f"{said}."
    return f"{said}. {percent(found.share)} of its step is {PACES[found.limit]}{_efficiency(fastest, found.limit)}."


def _why(one: BackendResult) -> str:
    found = pace(one)
    if found is None:
        return ""
    whole = sum(found.parts.values())
    parts = sorted(found.parts.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{percent(time / whole)} {PACES[name]}{_efficiency(one, name)}" for name, time in parts if time / whole >= 0.01)
    each = len(one.operators)
    fastest = f"{seconds(found.step_s)} ({one.speed.batch_size / found.step_s:,.0f} samples/s)"
    return f"{one.name}: the fastest step takes {fastest} in {each} operators: {listed}."


def _efficiency(one: BackendResult, bound: str) -> str:
    """How near the operators with this bound are to their roofs."""
    reached = _reached(each for each in one.operators if each.bound == bound)
    return "" if reached is None else f" (at {percent(reached)} of that roof)"


def _convolutions(timed: Sequence[BackendResult]) -> Iterator[str]:
    shares = [(one.name, share) for one in timed if (share := convolution_efficiency(one)) is not None]
    if shares:
        listed = ", ".join(f"{name} {percent(share)}" for name, share in shares)
        yield f"Efficiency of the convolutions (forward and backward): {listed}."


def _compared(timed: Sequence[BackendResult], paper: Paper) -> Iterator[tuple[str, Estimate, str, Estimate]]:
    """The fastest backend and the others, each and the paper's."""
    yield from ((timed[0].name, timed[0].rate, one.name, one.rate) for one in timed[1:])
    for one in timed:
        if one.backend in paper:
            theirs = paper[one.backend]["samples_per_s"]
            yield one.name, one.rate, f"the paper's ({theirs:,.0f})", Estimate(value=theirs, low=theirs, high=theirs)


def unlearned_share() -> float:
    """The share of a step's FLOPs in the gradients of the convolutions, which the paper's Numba backends did not compute."""
    from rooflines.kernels.networks import cnn

    operators = cnn.work(512)
    left_out = sum(one.flops for one in operators if one.phase == "backward" and one.layer in _CONVOLUTIONS)
    return left_out / sum(one.flops for one in operators)


def _accuracy(results: Sequence[BackendResult]) -> Iterator[str]:
    found = [(one.name, one.accuracy) for one in results if one.accuracy is not None]
    if not found:
        return
    listed = ", ".join(f"{name} {percent(training.epochs[-1].test_accuracy, 1)}" for name, training in found)
    first = found[0][1]
    said = f"Accuracy on {first.data.label} after {len(first.epochs)} epochs: {listed}"
    if len(found) > 1:
        losses = [training.epochs[0].train_loss for _, training in found]
        apart = (max(losses) - min(losses)) / max(*losses, 1e-12)
        said += f"; with the same initial parameters and data order, their losses in the first epoch differ by {apart:.0e}"
    yield f"{said}."
