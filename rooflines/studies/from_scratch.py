"""``rooflines study from-scratch``: one perceptron in every array library that is here, its operators, its memory, other sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rooflines._version import __version__
from rooflines.arguments import arg
from rooflines.errors import DeviceError, UsageError
from rooflines.profiler.directory import create_directory
from rooflines.profiler.progress import Progress, Silent
from rooflines.studies import data, networks, processes, session
from rooflines.studies.from_scratch_findings import findings
from rooflines.studies.from_scratch_page import page
from rooflines.studies.operator_bounds import bounded
from rooflines.studies.records import (
    Advance,
    DataName,
    Ended,
    Failed,
    FromScratchStudy,
    IterationsDone,
    LibraryResult,
    MemoryParts,
    Missing,
    OperatorsDone,
    PerceptronJob,
    SizeDone,
    Stage,
)

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
_OPERATOR_HEADER = (
    "backend", "name", "layer", "phase", "time_s", "flops", "bytes", "flop_per_s", "byte_per_s", "lower_bound_s", "efficiency", "bound",
    "memory_level",
)  # fmt: skip
_MEMORY_TIMEOUT_S = 600


class FromScratchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. ``backends`` is a comma-separated list; None in the others chooses by ``quick`` and by what data there is."""

    quick: bool = False
    backends: str | None = None
    widths: tuple[int, ...] = WIDTHS
    samples: int = SAMPLES
    iterations: int | None = None
    sizes: Sizes | None = None
    data_dir: str | None = None
    output: Path | None = None
    ceilings: str = "measured"
    threads: int | None = None
    seed: int = 0
    command: str = ""
    formats: tuple[str, ...] = session.FORMATS


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


def run(options: FromScratchOptions, progress: Progress | None = None) -> tuple[FromScratchStudy, Path]:
    """Run the study and write it; returns what was found, and where it is. A Ctrl-C ends it early, with what there is by then.

    Raises UsageError for what cannot be asked, DeviceError when no backend that was asked for can run here, DataError for a
    ``data_dir`` without MNIST, RooflinesError when no backend got as far as a result.
    """
    progress = progress or Silent()
    asked = networks.chosen(options.backends, networks.LIBRARIES)
    if options.widths[-1] < 10:
        raise UsageError(
            f"the last width must be 10 (the number of classes), got {options.widths[-1]}.",
            hint=f"For example: {arg('widths', '784-10-10')}",
        )
    session.check_ceilings(options.ceilings)
    on_mnist = session.check_data(options.data_dir)
    directory = session.directory_for("from-scratch", options.output)
    progress.stage("checking available backends", None)
    missing = [Missing(backend=name, reason=reason) for name in asked if (reason := networks.why_not(name))]
    able = [name for name in asked if name not in {one.backend for one in missing}]
    if not able:
        raise DeviceError(f"none of {', '.join(asked)} can run here: {missing[0].reason}.", hint="numpy and torch-cpu run everywhere.")
    create_directory(directory)
    notes = session.data_notes(on_mnist)
    iterations = options.iterations or (QUICK_ITERATIONS if options.quick else ITERATIONS)
    results: dict[str, LibraryResult] = {}
    interrupted = False
    try:
        for name in able:
            job = PerceptronJob(
                backend=name, widths=options.widths, samples=options.samples, iterations=iterations,
                data="mnist" if on_mnist else "synthetic", data_dir=options.data_dir, accuracy_data=_accuracy_data(on_mnist),
                accuracy_iterations=options.iterations or ITERATIONS, seed=options.seed,
                sizes=options.sizes if options.sizes is not None else QUICK_SIZES if options.quick else SIZES,
            )  # fmt: skip
            results[name] = LibraryResult(backend=name, device=networks.device_of(name), widths=options.widths)
            for found in _measure(job, results[name], options, progress):
                results[name] = found
            if _measured(results[name]):
                results[name] = _with_memory(results[name], options, progress)
    except KeyboardInterrupt:
        interrupted = True
    done = [one for one in results.values() if _measured(one)]
    missing += [Missing(backend=one.backend, reason=one.stopped) for one in results.values() if one.stopped]
    ending = session.judge(done, missing, options.ceilings, options.threads, progress, interrupted=interrupted)
    study = FromScratchStudy(
        created=session.now(), command=options.command, rooflines=__version__, machine=session.machine(),
        status=ending.status, quick=options.quick, widths=options.widths, samples=options.samples,
        iterations=iterations, missing=tuple(missing), ceilings=ending.ceilings, notes=(*notes, *ending.notes),
        results=tuple(msgspec.structs.replace(one, operators=bounded(one.operators, ending.ceilings.get(one.device))) for one in done),
    )  # fmt: skip
    study = msgspec.structs.replace(study, findings=findings(study))
    progress.stage("writing the report", None)
    write(study, directory, options.formats)
    return study, directory


def write(study: FromScratchStudy, directory: Path, formats: Sequence[str] = session.FORMATS) -> None:
    """Everything that a study writes, into ``directory``, its page in ``formats``."""
    session.write_study(directory, study)
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
        session.write_csv(curves / f"{one.backend}.csv", _HEADER, rows)
    session.write_operators(directory, _OPERATOR_HEADER, [(one.backend, one.operators) for one in study.results])
    session.write_csv(
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
    session.write_reports(page(study), directory, formats)


def _measure(job: PerceptronJob, found: LibraryResult, options: FromScratchOptions, progress: Progress) -> Iterator[LibraryResult]:
    """The result as it grows with every message of the worker."""
    for message in processes.messages(job, options.threads):
        if isinstance(message, Stage):
            progress.stage(message.text, message.total)
        elif isinstance(message, Advance):
            progress.advance()
        elif isinstance(message, IterationsDone):
            found = msgspec.structs.replace(
                found,
                process_memory_bytes=max(found.process_memory_bytes or 0, message.process_memory_bytes),
                device_memory_bytes=message.device_memory_bytes,
                **{message.purpose: message.iterations},
            )
        elif isinstance(message, OperatorsDone):
            found = msgspec.structs.replace(found, operators=message.operators)
        elif isinstance(message, SizeDone):
            found = msgspec.structs.replace(found, sizes=(*found.sizes, message.size))
        elif isinstance(message, Ended):
            found = msgspec.structs.replace(found, device=message.device, threads=message.threads, versions=message.versions)
        elif isinstance(message, Failed):
            found = msgspec.structs.replace(found, stopped=f"{message.reason} {message.hint}".strip())
        yield found


def _measured(one: LibraryResult) -> bool:
    """Whether there is anything of it to show."""
    return one.speed is not None or bool(one.sizes)


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
            env=processes.environment(options.threads),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return msgspec.structs.replace(found, memory_missing=f"measuring it took longer than {_MEMORY_TIMEOUT_S} s")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return msgspec.structs.replace(found, memory_missing=f"it could not be measured ({last[:200]})")
    return msgspec.structs.replace(found, memory=msgspec.convert(json.loads(done.stdout), MemoryParts))


def _accuracy_data(on_mnist: bool) -> DataName | None:
    return None if on_mnist or data.why_no_digits() else "digits"


def _positive(text: str, what: str) -> int:
    try:
        number = int(text.replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"{what} must be a positive integer, got {text!r}.", hint="For example: 784-10-10@59000")
    return number
