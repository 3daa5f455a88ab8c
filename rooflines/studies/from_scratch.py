"""``rooflines study from-scratch``: one perceptron in every array library that is here, its operators, its memory, other sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.profiler.progress import Progress
from rooflines.studies import data, networks
from rooflines.studies.experiment import Experiment, StudyOptions, write_csv
from rooflines.studies.from_scratch_findings import findings
from rooflines.studies.from_scratch_page import page
from rooflines.studies.records import (
    FromScratchStudy,
    IterationsDone,
    Job,
    LibraryResult,
    MemoryParts,
    Message,
    PerceptronJob,
    SizeDone,
)
from rooflines.sweeps import process

WIDTHS = (784, 10, 10)
SAMPLES = 59_000
ITERATIONS = 500
QUICK_ITERATIONS = 60
Sizes = tuple[tuple[tuple[int, ...], int], ...]
# One step away from the paper's network in each direction: hidden width, number of samples, depth.
SIZES: Sizes = (
    ((784, 10, 10), 10_000), ((784, 32, 10), 10_000), ((784, 128, 10), 10_000), ((784, 512, 10), 10_000),
    ((784, 10, 10), 1_000), ((784, 10, 10), 59_000), ((784, 128, 64, 10), 10_000),
)  # fmt: skip
QUICK_SIZES: Sizes = (((784, 10, 10), 10_000), ((784, 128, 10), 10_000), ((784, 512, 10), 10_000), ((784, 10, 10), 1_000))
_TELL_MEMORY = ("numpy", "cupy")
_HEADER = ("backend", "iteration", "train_loss", "test_accuracy", "data")
_SIZE_HEADER = ("backend", "widths", "samples", "iteration_s", "flops", "bytes", "flop_per_s", "byte_per_s")
_MEMORY_TIMEOUT_S = 600


class FromScratchOptions(StudyOptions, frozen=True, kw_only=True):
    """What to run. None chooses by ``quick`` and by the available data."""

    widths: tuple[int, ...] = WIDTHS
    samples: int = SAMPLES
    iterations: int | None = None
    sizes: Sizes | None = None


def parse_sizes(text: str) -> Sizes:
    """``784-10-10@59000,784-128-10@10000``: widths from input to classes, and samples. Raises UsageError for anything else."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        widths, _, samples = part.partition("@")
        found.append((parse_widths(widths, "sizes"), _positive(samples, f"{arg('sizes', part)}: the samples behind @")))
    if not found:
        raise UsageError(f"{arg('sizes')} is empty.", hint=f"For example: {arg('sizes', '784-10-10@59000,784-128-10@10000')}")
    return tuple(found)


def parse_widths(text: str, argument: str = "widths") -> tuple[int, ...]:
    """``784-10-10``: the widths of the input, the hidden layers and the classes."""
    widths = tuple(_positive(width, f"{arg(argument, text)}: a width") for width in text.split("-"))
    if len(widths) < 2:
        raise UsageError(f"{arg(argument, text)} has too few layers.", hint="Give at least inputs and classes, for example 784-10-10.")
    return widths


class FromScratch(Experiment[LibraryResult, FromScratchStudy]):
    """The from-scratch study."""

    name = "from-scratch"
    backends = networks.LIBRARIES
    everywhere = "numpy and torch-cpu"
    findings = staticmethod(findings)
    page = staticmethod(page)

    def __init__(self, options: FromScratchOptions) -> None:
        if options.widths[-1] < 10:
            raise UsageError(
                f"the last width must be 10 (the number of classes), got {options.widths[-1]}.",
                hint=f"For example: {arg('widths', '784-10-10')}",
            )
        self.options: FromScratchOptions = options
        self.iterations = options.iterations or (QUICK_ITERATIONS if options.quick else ITERATIONS)

    def jobs(self, backend: str, on_mnist: bool) -> Iterator[Job]:
        """One: the training, the operators, the other sizes."""
        options = self.options
        yield PerceptronJob(
            backend=backend, widths=options.widths, samples=options.samples, iterations=self.iterations,
            data="mnist" if on_mnist else "synthetic", data_dir=options.data_dir,
            accuracy_data=None if on_mnist or data.why_no_digits() else "digits",
            accuracy_iterations=options.iterations or ITERATIONS, seed=options.seed,
            sizes=options.sizes if options.sizes is not None else QUICK_SIZES if options.quick else SIZES,
        )  # fmt: skip

    def empty(self, backend: str, device: str) -> LibraryResult:
        return LibraryResult(backend=backend, device=device, widths=self.options.widths)

    def add(self, result: LibraryResult, job: Job, message: Message) -> LibraryResult:
        if isinstance(message, IterationsDone):
            return msgspec.structs.replace(
                result,
                process_memory_bytes=max(result.process_memory_bytes or 0, message.process_memory_bytes),
                device_memory_bytes=message.device_memory_bytes,
                **{message.purpose: message.iterations},
            )
        if isinstance(message, SizeDone):
            return msgspec.structs.replace(result, sizes=(*result.sizes, message.size))
        return result

    def finish(self, result: LibraryResult, directory: Path, progress: Progress) -> LibraryResult:
        return _with_memory(result, self.options, progress) if result.measured else result

    def record(self, **common: Any) -> FromScratchStudy:
        return FromScratchStudy(widths=self.options.widths, samples=self.options.samples, iterations=self.iterations, **common)

    def write_tables(self, study: FromScratchStudy, directory: Path) -> None:
        curves = directory / "iterations"
        curves.mkdir(exist_ok=True)
        for one in study.results:
            rows = [
                {"backend": one.backend, "iteration": number + 1, "train_loss": loss, "data": trained.data.name,
                 "test_accuracy": dict(zip(trained.checked_at, trained.accuracies, strict=True)).get(number + 1)}
                for trained in (one.speed, one.accuracy)
                if trained is not None
                for number, loss in enumerate(trained.losses)
            ]  # fmt: skip
            write_csv(curves / f"{one.backend}.csv", _HEADER, rows)
        write_csv(
            directory / "sizes.csv",
            _SIZE_HEADER,
            (
                {
                    **msgspec.to_builtins(size),
                    "backend": one.backend,
                    "widths": "-".join(map(str, size.widths)),
                    "flop_per_s": size.flops / size.iteration_s,
                    "byte_per_s": size.bytes / size.iteration_s,
                }
                for one in study.results
                for size in one.sizes
            ),
        )


def run(options: FromScratchOptions, progress: Progress | None = None) -> tuple[FromScratchStudy, Path]:
    """Run the study; see ``Experiment.run``."""
    return FromScratch(options).run(progress)


def _with_memory(found: LibraryResult, options: FromScratchOptions, progress: Progress) -> LibraryResult:
    """``found`` with the memory of an iteration by component, measured in one more process that has imported nothing yet."""
    if found.backend not in _TELL_MEMORY:
        return msgspec.structs.replace(found, memory_missing="PyTorch's allocators do not record which array they serve")
    progress.stage(f"{found.backend}: memory by component", None)
    arguments = ["--library", found.backend, "--widths", ",".join(map(str, options.widths)), "--samples", str(options.samples)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rooflines.kernels.networks.perceptron_memory", *arguments],
            capture_output=True, text=True, timeout=_MEMORY_TIMEOUT_S, stdin=subprocess.DEVNULL,
            env=process.environment(options.threads),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return msgspec.structs.replace(found, memory_missing=f"measuring it took longer than {_MEMORY_TIMEOUT_S} s")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return msgspec.structs.replace(found, memory_missing=f"it could not be measured ({last[:200]})")
    return msgspec.structs.replace(found, memory=msgspec.convert(json.loads(done.stdout), MemoryParts))


def _positive(text: str, what: str) -> int:
    try:
        number = int(text.replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"{what} must be a positive integer, got {text!r}.", hint="For example: 784-10-10@59000")
    return number
