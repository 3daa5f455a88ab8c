"""The main job, step by step: check, run, measure the ceilings, analyze, report.

The order matters: what can be refused is refused before anything runs; the run is on disk before its ceilings
are measured; every report is a function of the run directory.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from rooflines.arguments import escaped
from rooflines.errors import Interrupted, RooflinesError, UsageError, WorkloadError, first_line
from rooflines.extras import is_installed, missing
from rooflines.kernels.threads import torch_threads
from rooflines.pipeline.ceilings import GivenCeilings, given_ceilings, known_ceilings, measured_ceilings
from rooflines.pipeline.command import default_command
from rooflines.pipeline.options import FORMATS, NOT_FOR_SCRIPTS, ProfileOptions
from rooflines.pipeline.reporting import report_run
from rooflines.pipeline.result_checks import FirstResult, floats, output_error, reference_options
from rooflines.profiler.directory import (
    RUN_FILE,
    SAMPLES_FILE,
    check_directory,
    default_directory,
    discard,
    saved_with,
)
from rooflines.profiler.distributed import rank_here
from rooflines.profiler.options import Mode, OptionValue, PointOptions, Precision, find_device
from rooflines.profiler.progress import LiveProgress, Progress, Silent
from rooflines.profiler.record.collect import Recording, collect
from rooflines.profiler.record.device import program_device
from rooflines.profiler.record.passes import TRACED_STEPS
from rooflines.profiler.record.torch_logs import quiet_logs, quiet_profiler, quiet_start
from rooflines.profiler.records import Run, Settings, Workload
from rooflines.profiler.workloads.causal_models import generation_sizes
from rooflines.profiler.workloads.memory_shortage import free_memory, memory_shortage
from rooflines.profiler.workloads.prepare import Prepared, from_module, from_step, prepare
from rooflines.reports.render.formats import check_formats
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze as _analyze
from rooflines.roofline.judge.bounds import IMPLAUSIBLE
from rooflines.roofline.judge.judge import Judged

if TYPE_CHECKING:
    import torch

# How often the ceilings of a device may be measured in all because operators beat them; each time takes as
# long as the first.
MEASUREMENTS_MOST = 3
# A measurement that raised the roof by less than this factor ends them.
_RAISED = 1.01
MEASURED_AGAIN = (
    "the ceilings were measured more than once because operators exceeded them; the best of each counts"
)

P = ParamSpec("P")


class _Profile(Protocol[P]):
    """A function that profiles a model, and takes the keyword arguments ``P``."""

    def __call__(
        self,
        model: torch.nn.Module | Callable[[], object] | str,
        inputs: Any = None,
        *args: P.args,
        **options: P.kwargs,
    ) -> Run: ...


def _with_keywords(
    record: Callable[P, ProfileOptions],
) -> Callable[[Callable[[Any, Any, ProfileOptions], Run]], _Profile[P]]:
    """Make the fields of ``record`` the keyword arguments of a function that takes the record."""

    def decorate(function: Callable[[Any, Any, ProfileOptions], Run]) -> _Profile[P]:
        @functools.wraps(function)
        def profile(model: Any, inputs: Any = None, *args: P.args, **options: P.kwargs) -> Run:
            return function(model, inputs, record(*args, **options))

        own = list(inspect.signature(function).parameters.values())[:2]
        keywords = inspect.signature(record).parameters.values()
        shown = inspect.Signature([own[0], own[1].replace(default=None), *keywords])
        profile.__signature__ = shown  # type: ignore[attr-defined]
        return profile

    return decorate


@_with_keywords(ProfileOptions)
def profile(model: torch.nn.Module | Callable[[], object] | str, inputs: Any, options: ProfileOptions) -> Run:
    """Record ``model`` and write its analysis and reports; returns the run.

    ``model`` is a module, called with ``inputs`` (a tensor, a tuple, or a dict of keywords), a function that
    runs one step, or a name: a torchvision model, ``timm:NAME``, ``hf:NAME``, or ``path/to/file.py:factory``.
    ``batch_size`` is samples a step; for a module it is read off the inputs. ``steps`` and ``warmup`` are
    numbers of timed and warm-up steps, chosen from the step times when None. ``ceilings`` is ``measured``,
    ``spec``, the path of a file or the name of a device. A module is given back as it was: device, precision,
    memory format, training flags, gradients and, after training, its values; so are torch's thread count and
    its random generators. Raises UsageError (bad input), OutOfMemoryError, Interrupted; a run that had begun
    stays on disk and loads.
    """
    from rooflines.device_specs.measure_torch import emulation

    options.refuse(("to_end",), "models", "Only scripts have an end.")
    name = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    directory, given = _checked(options, name, options.mode)
    progress = options.progress or Silent()
    progress.stage("building the model", None)
    with quiet_profiler(), _generators_kept(options):
        prepared = _prepare(model, inputs, options, name)
        emulates = emulation(prepared.device, options.precision)
        if emulates is not None:
            progress.stage(emulates, None)
        plain = reference_options(options) if prepared.facts.source == "model" and options.trace else None
        step = FirstResult(prepared.step) if plain is not None else prepared.step
        with prepared.flags(), quiet_logs():
            recording = Recording(
                directory,
                prepared.facts,
                prepared.device,
                settings=_settings(options, model),
                progress=progress,
                notes=(*prepared.notes, *([emulates] if emulates else [])),
                traced_steps=TRACED_STEPS if options.trace else 0,
            )
            if prepared.tokens is not None:
                generator: Any = prepared.generator
                recording.passes.generations = prepared.tokens.generations
                recording.sizes = lambda: generation_sizes(generator, getattr(generator, "cache", None))
            run = collect(step, recording)
    # What the workload holds on the device is given back before the device's ceilings are measured.
    del prepared, recording
    gc.collect()
    if plain is not None and isinstance(step, FirstResult):
        result, step = step.tensors, lambda: None
        progress.stage("running one step in fp32 for comparison", None)
        run = _with_output_error(run, result, model, inputs, plain, name)
    return _finish(run, given, options)


def _with_output_error(
    run: Run, result: list[Any] | None, model: Any, inputs: Any, plain: PointOptions, name: str
) -> Run:
    """``run`` with the difference of its first result, ``result``, from that of a step with the options
    ``plain``."""
    try:
        with _generators_kept(plain):
            reference = _prepare(model, inputs, plain, name)
            with reference.flags():
                error = output_error(result or [], floats(reference.step()), classifies=reference.classifies)
    except (RooflinesError, RuntimeError, MemoryError) as problem:
        return saved_with(run, f"the result could not be compared with that in fp32: {first_line(problem)}")
    return saved_with(run, output_error=error)


def _checked(
    options: ProfileOptions, name: str, kind: str, *, as_rank: bool = False
) -> tuple[Path, GivenCeilings]:
    """Check everything that needs no run. Returns the directory of the run and where its ceilings come
    from."""
    check_formats(options.formats, traced=options.trace)
    options.check()
    directory = Path(options.output) if options.output is not None else default_directory(name, kind)
    if as_rank and (rank := rank_here()) is not None:
        directory /= f"rank{rank.number}"
    check_directory(directory)
    return directory, given_ceilings(
        options.ceilings, None if as_rank and options.device == "auto" else str(options.device)
    )


def _settings(options: ProfileOptions, model: object = None) -> Settings:
    given: dict[str, OptionValue] = (
        {"model": escaped(model), **options.changed()} if isinstance(model, str) else {}
    )
    return Settings(
        command=default_command(),
        steps=options.steps,
        warmup=options.warmup,
        wait_quiet=options.wait_quiet,
        budget_s=options.budget,
        seed=options.seed,
        ceilings=options.ceilings,
        options=given,
    )


def _prepare(model: Any, inputs: Any, options: PointOptions, name: str) -> Prepared:
    import torch

    if inputs is not None and not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"inputs cannot be combined with {name!r}.",
            hint="Only modules take inputs; named models and step functions provide their own.",
        )
    try:
        if isinstance(model, str):
            _check_memory(model, options)
            return prepare(model, options)
        if isinstance(model, torch.nn.Module):
            return from_module(model, inputs, options)
        if callable(model):
            return from_step(model, options, name=name)
    except (RuntimeError, MemoryError) as error:
        facts = Workload(name=name, mode=options.mode, batch_size=options.batch_size)
        shortage = memory_shortage(error, facts, find_device(options.device))
        if shortage is None:
            raise
        raise shortage from error
    raise UsageError(
        f"cannot profile a {type(model).__name__}.",
        hint="Give a module and its inputs, a step function, or a model's name.",
    )


def _check_memory(name: str, options: PointOptions) -> None:
    """Raise OutOfMemoryError before a language model is built that plainly does not fit. One that cannot be
    counted is not refused."""
    if options.mode != "generate" or not name.startswith("hf:"):
        return
    from rooflines.roofline.dry_run.memory_fit import check_memory
    from rooflines.roofline.dry_run.phases import count_generation

    free_bytes, _, free = free_memory(find_device(options.device))
    try:
        counted = count_generation(name, options, keys=())
    except WorkloadError as error:
        if error.__cause__ is None:
            raise
        return
    check_memory(name, counted, free_bytes, free, options)


@contextlib.contextmanager
def _generators_kept(options: PointOptions) -> Iterator[None]:
    """Seeded inside, and torch's random generators (host, and the device's) as they were afterwards."""
    import torch

    device = find_device(options.device)
    with torch.random.fork_rng([device.index] if device.type == "cuda" else []):
        torch.manual_seed(options.seed)
        yield


def profile_script(
    script: Path | str,
    arguments: list[str],
    options: ProfileOptions,
    *,
    module: bool = False,
    show: Callable[[Path | None, RooflinesError | None], object] = lambda *_: None,
) -> Run:
    """Record the steps of ``script``, run with ``arguments`` as its own command line, and write its analysis
    and reports.

    ``script`` is a file, or with ``module`` the name of a module (``python -m``). A step ends with
    ``optimizer.step()``, or in a script without optimizer when an outermost module returns with gradients
    off; a script without any step is recorded as one. It is stopped when enough is recorded, unless
    ``to_end``. ``device`` is the one whose clock and memory are watched, for ``auto`` the one that the first
    step runs on; ``batch_size`` and ``precision`` only label the run. As one rank of a job, ``output`` is the
    job's directory and the run is in ``rankN`` below it. So are the runs of its child processes; if it makes
    no steps itself, the first of them is returned. Where the script itself ends this process (``os._exit``),
    ``show`` is called before with the directory of the report and our error, None where there is none.

    Raises WorkloadError when the script raises or exits with an error, with its exception as ``__cause__``,
    and Interrupted on Ctrl-C, both after what had been recorded was reported (``reported``).
    """
    options.refuse(NOT_FOR_SCRIPTS, "scripts", "Set it in the script or with the script's own arguments.")
    name = _check_module(str(script)) if module else _check_script(Path(script))
    directory, given = _checked(options, Path(name).stem, "script", as_rank=True)
    from rooflines.pipeline.jobs import gather, join, report_job
    from rooflines.profiler.monitor.python_startup.sitecustomize import child_environment
    from rooflines.profiler.record.child import Child, ChildOrder
    from rooflines.profiler.record.children import Children
    from rooflines.profiler.record.code_changes import code_changes
    from rooflines.profiler.record.program import Program
    from rooflines.profiler.record.script import NoOperators, collect_script

    device = program_device(options.device)
    workload = Workload(
        name=name,
        mode="inference",
        batch_size=options.batch_size,
        precision=options.precision,
        source="script",
    )
    # A screen is drawn around the program's own lines; a line of ours would end up inside one of them.
    screen = options.progress if isinstance(options.progress, LiveProgress) else None
    settings = _settings(options)
    recording = Recording(directory, workload, device, settings=settings, progress=screen)
    order = ChildOrder(
        directory=str(recording.place), workload=workload, settings=settings, device=str(options.device)
    )

    def report(failure: RooflinesError | None) -> Run:
        here = (
            directory if directory.absolute() == recording.place else recording.place
        )  # the program may have changed its own
        own, (runs, notes) = recording.run, gather(here)
        if runs and not recording.passes.steps:
            if own is not None:
                discard(own.directory, RUN_FILE, SAMPLES_FILE, own.facts.trace or RUN_FILE, made=False)
            runs = [_finish(run, given, options) for run in runs]
            report_job(runs, notes, options.formats, here, options.progress or Silent())
            run = runs[0]
            if isinstance(failure, NoOperators):
                return run
        elif own is None:
            assert failure is not None
            of_children = [f"{note[0].upper()}{note[1:]}." for note in notes]  # they ran PyTorch
            hint = "" if of_children and isinstance(failure, NoOperators) else failure.marked_hint
            failure.marked_hint = " ".join((hint, *of_children)).strip()
            raise failure
        else:
            notes += [
                f"a process that the program started was recorded, too: rooflines analyze {run.directory}"
                for run in runs
            ]
            run = _finish(saved_with(own, *notes), given, options)
        if failure is not None:
            failure.reported = run.directory
            raise failure
        return run

    def end_hard(failure: RooflinesError | None) -> None:
        try:
            if len(sys._current_frames()) > 1 and recording.run is not None:
                directory = recording.run.directory
                raise RooflinesError(
                    f"the program ended itself while it had other threads; the run is in {str(directory)!r}.",
                    hint=f"Write its report: rooflines report {directory}",
                )
            show(report(failure).directory, None)
        except RooflinesError as error:
            show(error.reported, error)

    failure: RooflinesError | None = None
    try:
        with torch_threads(options.threads), code_changes():
            collect_script(
                Program(str(script), arguments, module),
                recording,
                to_end=options.to_end,
                children=Children(order.text(), child_environment, Child.begun),
                on_hard_end=end_hard,
            )
    except RooflinesError as error:
        failure = error
    join()
    with quiet_logs(), quiet_start():
        return report(failure)


def _check_script(script: Path) -> str:
    """The file's name; raises WorkloadError if the file does not exist."""
    if not script.is_file():
        nearby = [str(path) for path in script.parent.glob("*.py")] if script.parent.is_dir() else []
        close = difflib.get_close_matches(str(script), nearby, n=1)
        raise WorkloadError(
            f"no such script: {str(script)!r}.",
            hint=f"Did you mean {close[0]}?" if close else "Check the path.",
        )
    return escaped(script.name)


def _check_module(module: str) -> str:
    """The module's name; raises WorkloadError where ``python -m`` would not find it."""
    import importlib.util

    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.remove(os.getcwd())
    if spec is None:
        raise WorkloadError(
            f"no module named {module!r}.",
            hint="Give the name as for python -m and run from the directory that contains it.",
        )
    return module


def _finish(run: Run, given: GivenCeilings, options: ProfileOptions, *, tell: bool = False) -> Run:
    """What follows a recording: the ceilings of its device, the analysis, the reports. ``tell`` writes the
    verdict and the first report's path to standard error."""
    progress = options.progress or Silent()
    try:
        if options.trace:
            try:
                run = saved_with(run, ceilings=given(run, options.remeasure, progress))
            except ModuleNotFoundError as error:
                if (lacks := missing(error)) is None:
                    raise
                stated: dict[str, Any] = {}
                with contextlib.suppress(
                    RooflinesError
                ):  # what its data sheet says of the device, or its clock gives
                    stated["ceilings"] = known_ceilings(run.facts.environment.device, None)
                run = saved_with(
                    run,
                    f"the ceilings were not measured: {error.name} is not installed ({lacks[1]})",
                    **stated,
                )
            except (RuntimeError, RooflinesError) as error:
                if run.facts.status != "failed":  # else its device may be lost
                    raise
                run = saved_with(
                    run, f"the ceilings could not be measured after the failure: {first_line(error)}"
                )
        run, judged = _settle_ceilings(run, progress)
        written = report_run(run, options.formats, judged=judged, progress=progress)
        if tell:
            verdict, path = judged.analysis.verdict, written.get("html", run.directory)
            print("\n".join(filter(None, (verdict, f"report    {path}"))), file=sys.stderr)  # noqa: T201
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted after recording; the run is in {str(run.directory)!r}.",
            hint=f"Write its reports: rooflines report {run.directory}",
        ) from None
    return run


def _settle_ceilings(run: Run, progress: Progress) -> tuple[Run, Judged]:
    """The run and its analysis, after measuring the ceilings again where an operator was faster than they
    allow.

    A convolution may well do less than its formula (Winograd), and then no measurement helps: where the roof
    that was beaten by most rose by less than ``_RAISED``, it stands.
    """
    judged = _analyze(run)
    environment, excess = run.facts.environment, _most_beaten(judged.analysis)
    # The device of a run that failed may be lost.
    measured = (
        run.facts.settings.ceilings == "measured" and run.facts.status != "failed" and is_installed("numba")
    )
    for _ in range(MEASUREMENTS_MOST - 1):
        ceilings = run.facts.ceilings
        if not measured or not excess or ceilings is None or ceilings.measurements >= MEASUREMENTS_MOST:
            break
        progress.stage("some operators exceed the ceilings: measuring those ceilings again", None)
        better = measured_ceilings(environment.device, environment.threads, remeasure=True, progress=progress)
        run = saved_with(run, MEASURED_AGAIN, ceilings=better)
        judged = _analyze(run)
        before, excess = excess, _most_beaten(judged.analysis)
        if excess * _RAISED > before:
            break
    return run, judged


def _most_beaten(analysis: Analysis) -> float:
    """The highest implausible efficiency of an operator that a ceiling of arithmetic or memory bounds; 0
    where there is none."""
    bounded = (row.efficiency or 0.0 for row in analysis.operators if row.bound in ("compute", "memory"))
    return max((efficiency for efficiency in bounded if efficiency > IMPLAUSIBLE), default=0.0)


@contextlib.contextmanager
def record(
    output: Path | str | None = None,
    *,
    name: str = "loop",
    mode: Mode = "training",
    batch_size: int | None = None,
    precision: Precision = "fp32",
    device: torch.device | str = "auto",
    steps: int | None = 10,
    warmup: int | None = 3,
    ceilings: str = "measured",
    formats: Sequence[str] = FORMATS,
    progress: Progress | None = None,
) -> Iterator[Recording]:
    """Record a loop that the caller owns; call ``step()`` on what this yields at the end of every step.

    ::

        with rooflines.record(batch_size=64) as r:
            for batch in loader:
                train_on(batch)
                r.step()
        print(r.run.directory)

    How long a step waits for the batches of a torch ``DataLoader`` is seen; ``r.loader(batches)`` does it for
    any other iterable (docs/workloads.md). ``r.pause()`` and ``r.resume()`` around an evaluation keep it out
    of the steps.

    The first ``warmup`` steps are not timed, and the first of them is traced; so is the step after it. The
    next ``steps`` are timed with the profiler off, the three after that run under the profiler; any further
    step costs nothing. A loop may end after any step, and without any the whole block is recorded as one.
    None lets the step times decide. ``device`` ``auto`` is the one that the first step runs on. The name,
    mode, batch size and precision only label the run. As one rank of a job, ``output`` is the job's directory
    and the run is in ``rankN`` below it. On leaving, the analysis and reports are written, unless the loop
    raised; the verdict and the path of the report go to standard error.
    """
    options = ProfileOptions(
        mode=mode,
        batch_size=batch_size,
        precision=precision,
        device=device,
        steps=steps,
        warmup=warmup,
        ceilings=ceilings,
        output=output,
        formats=formats,
        progress=progress,
    )
    directory, given = _checked(options, name, mode, as_rank=True)
    workload = Workload(name=name, mode=mode, batch_size=batch_size, precision=precision, source="loop")
    recording = Recording(
        directory, workload, program_device(device), settings=_settings(options), progress=progress
    )
    with recording:
        yield recording
    assert recording.run is not None
    with quiet_logs(), quiet_start():
        first = (rank := rank_here()) is None or rank.number == 0
        recording.run = _finish(recording.run, given, options, tell=first)
