"""The main job, step by step: check, run, measure the ceilings, analyse, report.

The command line and the Python API are this file with different ways of asking. The order matters: what can be refused is refused
before anything runs; the run is on disk before its ceilings are measured; every report is a function of the run directory.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.errors import DataError, Interrupted, OutputError, TraceError, UsageError, WorkloadError
from rooflines.profiler.collect import Progress, Recording, Silent, collect, quiet_profiler
from rooflines.profiler.foreign import run_of_trace
from rooflines.profiler.memory_shortage import memory_shortage
from rooflines.profiler.options import Options, check_options, find_device
from rooflines.profiler.records import Environment, Mode, Run, Settings, Workload
from rooflines.profiler.run import RUN_FILE, check_directory, create_directory, default_directory, load, save
from rooflines.profiler.trace.columns import MEMORY_LIMIT_BYTES
from rooflines.profiler.trace.reader import read_trace
from rooflines.profiler.trace.stream import is_url
from rooflines.profiler.workloads import Prepared, from_module, from_step, prepare, thread_count
from rooflines.roofline.analysis import ANALYSIS_SCHEMA, Analysis
from rooflines.roofline.analyze import IMPLAUSIBLE
from rooflines.roofline.analyze import analyze as _analyze
from rooflines.roofline.compare import compare as _compare
from rooflines.roofline.comparison import Comparison
from rooflines.serial import read_json, write_json

if TYPE_CHECKING:
    import torch

    from rooflines.roofline.ranks import RankAnalysis

FORMATS = ("html", "pdf", "json", "csv", "tensorboard")
ANALYSIS_FILE = "analysis.json"
# How often the ceilings of a device may be measured in all because operators beat them; each time takes as long as the first.
MEASUREMENTS_MOST = 3
MEASURED_AGAIN = (
    "the ceilings were measured more than once, because operators had been faster than they allowed; the best of each counts"
)


def profile(
    model: torch.nn.Module | Callable[[], object] | str,
    inputs: Any = None,
    *,
    mode: Mode = "inference",
    batch_size: int | None = None,
    image_size: int | None = None,
    sequence_length: int = 128,
    precision: str = "fp32",
    device: torch.device | str = "auto",
    threads: int | None = None,
    channels_last: bool = False,
    compile: bool = False,
    steps: int | None = None,
    warmup: int | None = None,
    ceilings: str = "measured",
    remeasure: bool = False,
    output: Path | str | None = None,
    formats: Sequence[str] = FORMATS,
    seed: int = 0,
    progress: Progress | None = None,
    command: str = "",
) -> Run:
    """Record ``model`` and write its analysis and reports; returns the run.

    ``model`` is a module, called with ``inputs`` (a tensor, a tuple, or a dict of keywords), a function that runs one step, or a
    name: a torchvision model, ``timm:NAME``, ``hf:NAME``, or ``path/to/file.py:factory``. ``batch_size`` is samples a step; for a
    module it is read off the inputs. ``steps`` and ``warmup`` are numbers of timed and warm-up steps, chosen from the step times when
    None. ``ceilings`` is ``measured``, ``spec`` or the path of a file. A module is given back as it was: device, precision, memory
    format, training flags, gradients and, after training, its values; so are torch's thread count and its random generators. Raises
    UsageError (bad input), OutOfMemoryError, Interrupted; a run that had begun stays on disk and loads.
    """
    options = Options(
        mode=mode, batch_size=batch_size, image_size=image_size, sequence_length=sequence_length, precision=precision,
        device=str(device), threads=threads, channels_last=channels_last, compile=compile, seed=seed,
    )  # fmt: skip
    formats = check_formats(formats)
    check_steps(steps, warmup)
    check_options(options)
    name = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    directory = Path(output) if output is not None else default_directory(name, mode)
    check_directory(directory)
    given = _given_ceilings(ceilings, str(device))
    progress = progress or Silent()
    quiet_profiler()
    progress.stage("building the model", None)
    settings = Settings(command=command or default_command(), steps=steps, warmup=warmup, seed=seed, ceilings=ceilings)
    with _generators_kept(options):
        prepared = _prepare(model, inputs, options, name)
        with prepared.flags():
            run = collect(prepared.step, directory, prepared.facts, prepared.device, settings=settings, progress=progress)
    # What the workload holds on the device is given back before the device's ceilings are measured.
    del prepared
    gc.collect()
    return _finish(run, given, formats, remeasure=remeasure, progress=progress)


def _prepare(model: Any, inputs: Any, options: Options, name: str) -> Prepared:
    import torch

    if inputs is not None and not isinstance(model, torch.nn.Module):
        raise UsageError(f"inputs were given with {name!r}.", hint="Only a module takes inputs; a name or a step function has its own.")
    try:
        if isinstance(model, str):
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
        f"cannot profile a {type(model).__name__}.", hint="Give a module and its inputs, a step function, or a model's name."
    )


@contextlib.contextmanager
def _generators_kept(options: Options) -> Iterator[None]:
    """Seeded inside, and torch's random generators (host, and the device's) as they were afterwards."""
    import torch

    device = find_device(options.device)
    with torch.random.fork_rng([device.index] if device.type == "cuda" else []):
        torch.manual_seed(options.seed)
        yield


def profile_script(
    script: Path,
    arguments: list[str],
    *,
    device: str = "auto",
    threads: int | None = None,
    batch_size: int | None = None,
    precision: str = "fp32",
    steps: int | None = None,
    warmup: int | None = None,
    ceilings: str = "measured",
    remeasure: bool = False,
    output: Path | str | None = None,
    formats: Sequence[str] = FORMATS,
    to_end: bool = False,
    progress: Progress | None = None,
    command: str = "",
) -> Run:
    """Record the steps of ``script``, run with ``arguments`` as its own command line, and write its analysis and reports.

    A step ends with ``optimizer.step()``, or in a script without optimizer when an outermost module returns with gradients off. The
    script is stopped when enough is recorded, unless ``to_end``. ``device`` is the one whose clock and memory are watched;
    ``batch_size`` and ``precision`` only label the run. Raises WorkloadError when the script raises, with its exception as
    ``__cause__``.
    """
    from rooflines.profiler.script import collect_script

    check_steps(steps, warmup)
    check_options(Options(batch_size=batch_size, precision=precision, device=device, threads=threads))
    formats = check_formats(formats)
    if not script.is_file():
        nearby = [str(path) for path in script.parent.glob("*.py")] if script.parent.is_dir() else []
        close = difflib.get_close_matches(str(script), nearby, n=1)
        raise WorkloadError(f"no such script: {str(script)!r}.", hint=f"Did you mean {close[0]}?" if close else "Check the path.")
    directory = Path(output) if output is not None else default_directory(script.stem, "script")
    check_directory(directory)
    given = _given_ceilings(ceilings, str(device))
    quiet_profiler()
    found = find_device(device)
    progress = progress or Silent()
    settings = Settings(command=command or default_command(), steps=steps, warmup=warmup, ceilings=ceilings)
    workload = Workload(name=script.name, mode="inference", batch_size=batch_size, precision=precision, source="script")
    recording = Recording(directory, workload, found, settings=settings, progress=progress)
    with thread_count(threads):
        run = collect_script(script, arguments, recording, found, to_end=to_end)
    return _finish(run, given, formats, remeasure=remeasure, progress=progress)


def _finish(run: Run, given: _Ceilings, formats: Sequence[str], *, remeasure: bool, progress: Progress) -> Run:
    """What follows a recording: the ceilings of its device, the analysis, the reports."""
    try:
        run = add_ceilings(run, given, remeasure=remeasure, progress=progress)
        run, analysis = _settle_ceilings(run, progress)
        report(run, formats, analysis=analysis, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted after the run was recorded; it is in {str(run.directory)!r}.",
            hint=f"rooflines report {run.directory} writes its reports.",
        ) from None
    return run


def _settle_ceilings(run: Run, progress: Progress) -> tuple[Run, Analysis]:
    """The run and its analysis, after measuring the ceilings again where an operator was faster than they allow."""
    analysis = _analyze(run)
    environment, settings = run.facts.environment, run.facts.settings
    while True:
        ceilings = run.facts.ceilings
        # Only memory: a convolution above the compute roof may well do less than its formula (Winograd), and no measurement helps.
        beaten = any(
            row.efficiency is not None and row.efficiency > IMPLAUSIBLE and row.bound == "memory" for row in analysis.operators
        )
        if settings.ceilings != "measured" or ceilings is None or ceilings.measurements >= MEASUREMENTS_MOST or not beaten:
            break
        from rooflines.device_specs.measure import measure_again

        progress.stage("operators beat the ceilings: measuring these again", None)
        better = measure_again(
            ceilings, environment.device, threads=environment.threads, progress=lambda text: progress.stage(text, None)
        )
        notes = tuple(dict.fromkeys((*run.facts.notes, MEASURED_AGAIN)))
        facts = msgspec.structs.replace(run.facts, ceilings=better, notes=notes)
        run = msgspec.structs.replace(save(run.directory, facts), samples=run.samples)
        analysis = _analyze(run)
    return run, analysis


@contextlib.contextmanager
def record(
    output: Path | str | None = None,
    *,
    name: str = "loop",
    mode: Mode = "training",
    batch_size: int | None = None,
    precision: str = "fp32",
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

    The first ``warmup`` steps are not counted, the next ``steps`` are timed with the profiler off, the four after that run under the
    profiler (one to see how large its trace is); any further step costs nothing. The name, mode, batch size and precision only label
    the run. On leaving, the analysis and reports are written, unless the loop raised.
    """
    formats = check_formats(formats)
    check_steps(steps, warmup)
    check_options(Options(mode=mode, batch_size=batch_size, precision=precision, device=str(device)))
    directory = Path(output) if output is not None else default_directory(name, mode)
    check_directory(directory)
    given = _given_ceilings(ceilings, str(device))
    quiet_profiler()
    progress = progress or Silent()
    workload = Workload(name=name, mode=mode, batch_size=batch_size, precision=precision, source="loop")
    settings = Settings(command=default_command(), steps=steps, warmup=warmup, ceilings=ceilings)
    recording = Recording(directory, workload, find_device(str(device)), settings=settings, progress=progress)
    with recording:
        yield recording
    assert recording.run is not None
    recording.run = _finish(recording.run, given, formats, remeasure=False, progress=progress)


def analyze(source: Run | Path | str, *, ceilings: str | None = None, memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> Analysis:
    """The analysis of a run, of a run directory, derived anew from its raw files, or of anybody's PyTorch trace; nothing is written.

    ``source`` may be a URL that fsspec opens when it is a trace. ``ceilings`` replaces those stored with the run: ``measured`` (on this
    machine, now), ``spec``, or a file; a trace is judged by the data sheet of the device that it names, if there is one. What is kept
    of a trace takes at most ``memory_limit_bytes``. Raises RunError and TraceError for what cannot be read.
    """
    if not isinstance(source, Run) and not is_directory(source):
        return analyze_trace(source, ceilings=ceilings, memory_limit_bytes=memory_limit_bytes)[1]
    run = source if isinstance(source, Run) else load(source)
    if ceilings is None:
        return _analyze(run)
    chosen = _given_ceilings(ceilings, run.facts.environment.device, recorded=run.facts.environment)
    return _analyze(run, chosen(run, False, Silent()))


def analyze_trace(
    path: Path | str, *, ceilings: str | None = None, memory_limit_bytes: int = MEMORY_LIMIT_BYTES, progress: Progress | None = None
) -> tuple[Run, Analysis]:
    """What the trace in ``path`` says of its run, and the analysis; the parameters are those of ``analyze``."""
    progress = progress or Silent()
    if not is_url(path) and not Path(path).exists():
        raise TraceError(f"no such run or trace: {str(path)!r}.", hint="Give a run directory, a trace's file, or its URL.")
    progress.stage("reading the trace", None)
    trace = read_trace(path, memory_limit_bytes=memory_limit_bytes)
    run = run_of_trace(path, trace, default_command())
    progress.stage("analysing", None)
    if ceilings is not None:
        judges: Ceilings | None = _given_ceilings(ceilings, run.facts.environment.device, recorded=run.facts.environment)(
            run, False, progress
        )
    else:
        judges, why_not = _sheet_of(run.facts.environment)
        if why_not:
            facts = msgspec.structs.replace(run.facts, notes=(*run.facts.notes, why_not))
            run = msgspec.structs.replace(run, facts=facts)
    return run, _analyze(run, judges, trace)


def is_directory(source: Path | str) -> bool:
    """Whether ``source`` is a directory here, and so a run, rather than a trace."""
    return not is_url(source) and Path(source).is_dir()


def _sheet_of(environment: Environment) -> tuple[Ceilings | None, str]:
    """The data sheet's ceilings of the device that a trace names, or why there are none."""
    if not environment.device_name:
        return None, "the trace does not name the device that it was recorded on, so nothing is judged: give its --ceilings"
    try:
        return _known_ceilings(environment.device, environment), ""
    except UsageError as error:
        return None, f"{error.message.removesuffix('.')}, so nothing is judged: give its --ceilings"


def report(
    run: Run, formats: Sequence[str] = FORMATS, *, analysis: Analysis | None = None, progress: Progress | None = None
) -> dict[str, Path]:
    """Write the reports of ``run`` into its directory; returns what was written, by format. ``analysis.json`` is always among them."""
    formats = check_formats(formats)
    progress = progress or Silent()
    directory = run.directory
    if analysis is None:
        progress.stage("analysing", None)
        analysis = _analyze(run)
    written: dict[str, Path] = {}
    try:
        write_json(directory / ANALYSIS_FILE, analysis)
        written["json"] = directory / ANALYSIS_FILE
        if analysis.operators:
            from rooflines.reports.tables import write_parquet

            write_parquet(analysis, directory / "operators.parquet")
        for name in formats:
            if name != "json":
                progress.stage(f"writing the {name} report", None)
                written[name] = _WRITERS[name](analysis, run)
    except OSError as error:
        raise OutputError(
            f"cannot write the reports in {str(directory)!r}: {error.strerror or error}", hint="Is the disk full?"
        ) from None
    return written


def report_on(
    source: Path | str,
    formats: Sequence[str] = FORMATS,
    *,
    output: Path | None = None,
    ceilings: str | None = None,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """Write the reports of a run directory or of a trace, into ``output``, without it into the run or a new directory under ``runs``.

    Returns what was written, by format. The other parameters are those of ``analyze``.
    """
    formats = check_formats(formats)
    if is_directory(source):
        run = load(source)
        analysis = analyze(run, ceilings=ceilings)
        if output is None:
            return report(run, formats, analysis=analysis, progress=progress)
    else:
        run, analysis = analyze_trace(source, ceilings=ceilings, memory_limit_bytes=memory_limit_bytes, progress=progress)
        output = output or default_directory(run.facts.workload.name.partition(".")[0], "trace")
    create_directory(output)
    return report(msgspec.structs.replace(run, directory=output), formats, analysis=analysis, progress=progress)


def add_ceilings(run: Run, chosen: _Ceilings, *, remeasure: bool = False, progress: Progress | None = None) -> Run:
    """``run`` with the ceilings of its device, stored in its directory."""
    ceilings = chosen(run, remeasure, progress or Silent())
    facts = msgspec.structs.replace(run.facts, ceilings=ceilings)
    return msgspec.structs.replace(save(run.directory, facts), samples=run.samples)


def default_command() -> str:
    """The shell line that started this process, with the programs' names instead of their paths; empty in a notebook."""
    program, *arguments = sys.argv or [""]
    path = Path(program)
    if path.name in ("rooflines", "rooflines.exe") or (path.name == "__main__.py" and path.parent.name == "rooflines"):
        return shlex.join(["rooflines", *arguments])
    if path.name.startswith(("ipykernel", "colab_kernel")):
        return ""
    return shlex.join(["python", program, *arguments]) if program else "python"


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats as a tuple; raises UsageError for an unknown one."""
    chosen = tuple(dict.fromkeys(formats))
    unknown = [name for name in chosen if name not in FORMATS]
    if unknown:
        raise UsageError(f"unknown report format {unknown[0]!r}.", hint=f"Choose from {', '.join(FORMATS)}.")
    return chosen


def check_steps(steps: int | None, warmup: int | None) -> None:
    """Raise UsageError for a number of steps that makes no run."""
    if steps is not None and steps < 1:
        raise UsageError(f"--steps must be at least 1, got {steps}.", hint="Leave it out to let the step times decide.")
    if warmup is not None and warmup < 0:
        raise UsageError(f"--warmup must not be negative, got {warmup}.", hint="Leave it out to let the step times decide.")


_Ceilings = Callable[[Run, bool, Progress], Ceilings]


def _given_ceilings(choice: str, device: str, recorded: Environment | None = None) -> _Ceilings:
    """How to get the ceilings asked for, for ``device`` here or for the device that a run was ``recorded`` on.

    A file or a data sheet is read at once, so that a bad one is refused before anything runs.
    """
    if choice == "measured":

        def measured(run: Run, remeasure: bool, progress: Progress) -> Ceilings:
            from rooflines.device_specs.measure import measure

            progress.stage("measuring this device's ceilings (cached afterwards)", None)
            environment = run.facts.environment
            # The run was made on the device as it is: what keeps it busy is said of the ceilings and does not refuse the run.
            return measure(
                environment.device,
                threads=environment.threads,
                force=True,
                remeasure=remeasure,
                progress=lambda text: progress.stage(text, None),
            )

        return measured
    if choice == "spec":
        sheet = _known_ceilings(device, recorded)
        return lambda *_: sheet
    path = Path(choice)
    if not path.is_file():
        raise UsageError(f"--ceilings {choice!r} is no file.", hint="Give measured, spec, or a JSON file with ceilings.")
    from rooflines.device_specs.measure import load_file

    loaded = load_file(path)
    return lambda *_: loaded


def _known_ceilings(device: str, recorded: Environment | None) -> Ceilings:
    """The data sheet's ceilings of ``device`` here, derived ones where it has no sheet; or the sheet's of a recorded run's device."""
    from rooflines.device_specs import catalog, live

    if recorded is None:
        return live.known(str(find_device(device)))
    kind = recorded.device.partition(":")[0]
    return catalog.look_up(
        recorded.device_name,
        kind=kind,
        cores=recorded.cpu_cores if kind == "cpu" else None,
        multiprocessors=recorded.device_units,
        memory_bytes=recorded.device_memory_bytes if kind == "cuda" else None,
    )


def _write_html(analysis: Analysis, run: Run) -> Path:
    from rooflines.reports import html

    return html.write(analysis, run.directory / "report.html")


def _write_pdf(analysis: Analysis, run: Run) -> Path:
    from rooflines.reports import pdf

    return pdf.write(analysis, run.directory / "report.pdf")


def _write_csv(analysis: Analysis, run: Run) -> Path:
    from rooflines.reports.tables import write_csv

    write_csv(analysis, run.directory)
    return run.directory / "operators.csv"


def _write_tensorboard(analysis: Analysis, run: Run) -> Path:
    from rooflines.reports import tensorboard

    return tensorboard.write(analysis, run.directory, run.samples)


_WRITERS: dict[str, Callable[[Analysis, Run], Path]] = {
    "html": _write_html,
    "pdf": _write_pdf,
    "csv": _write_csv,
    "tensorboard": _write_tensorboard,
}


def compare(
    before: Analysis | Run | Path | str,
    after: Analysis | Run | Path | str,
    *,
    ceilings: str | None = None,
    anyway: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> Comparison:
    """``after`` held against the baseline ``before``: each an analysis, a run or its directory, a trace, or an ``analysis.json``.

    Raises UsageError when the two ran on unlike devices, with other numbers of threads or in other modes, naming the facts that differ,
    unless ``anyway``; facts that a trace does not hold do not differ. The other parameters are those of ``analyze``.
    """
    return compare_all(
        (before, after), ceilings=ceilings, anyway=anyway, memory_limit_bytes=memory_limit_bytes, progress=progress
    )[0]  # fmt: skip


def compare_all(
    sources: Sequence[Analysis | Run | Path | str],
    *,
    ceilings: str | None = None,
    anyway: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> list[Comparison]:
    """Each of ``sources`` but the first held against the first, which is read once; the parameters are those of ``compare``."""
    baseline: tuple[Analysis, str] | None = None
    comparisons = []
    for source in sources:
        if isinstance(source, Analysis):
            side = source, "B" if baseline else "A"
        else:
            found = read_analysis(source, ceilings=ceilings, memory_limit_bytes=memory_limit_bytes, progress=progress)
            side = found, str(source.directory if isinstance(source, Run) else source)
        if baseline is None:
            baseline = side
            continue
        comparison = _compare(baseline[0], side[0], (baseline[1], side[1]))
        if comparison.unlike and not anyway:
            facts = ", ".join(f"{fact.name} {fact.before!r} and {fact.after!r}" for fact in comparison.unlike)
            raise UsageError(
                f"{baseline[1]!r} and {side[1]!r} ran under unlike conditions: {facts}.",
                hint="Their times say little about each other; --anyway (anyway=True) compares them all the same.",
            )
        comparisons.append(comparison)
    return comparisons


def read_analysis(
    source: Run | Path | str,
    *,
    ceilings: str | None = None,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> Analysis:
    """The analysis of a run, its directory or a trace, derived anew, or the one that a file written by rooflines holds.

    The parameters are those of ``analyze``. Raises DataError for a file of ours that is corrupt or something else, UsageError for
    ``ceilings`` with a stored analysis, which holds no times to judge anew.
    """
    if not isinstance(source, Run):
        found = _stored_schema(source)
        if found:
            if ceilings is not None:
                raise UsageError(
                    f"{str(source)!r} is an analysis, which --ceilings cannot judge anew.", hint="Give the run or the trace itself."
                )
            return _stored_analysis(Path(source), found)
        if not is_directory(source):
            return analyze_trace(source, ceilings=ceilings, memory_limit_bytes=memory_limit_bytes, progress=progress)[1]
    return analyze(source, ceilings=ceilings)


_STORED = re.compile(rb'\s*\{\s*"schema"\s*:\s*"(rooflines\.[a-z]+/[0-9]+)"')


def _stored_schema(source: Path | str) -> str:
    """The schema of a JSON file of ours; empty for anything else, which a trace or its reader's complaint is."""
    if is_url(source) or not Path(source).is_file():
        return ""
    try:
        with Path(source).open("rb") as file:
            found = _STORED.match(file.read(1024))
    except OSError:
        return ""
    return found[1].decode() if found else ""


def _stored_analysis(path: Path, schema: str) -> Analysis:
    if schema != ANALYSIS_SCHEMA:
        raise DataError(
            f"{str(path)!r} has schema {schema!r}, and what is compared is {ANALYSIS_SCHEMA!r}.",
            hint="Give the run directory, a trace, or an analysis.json of this version.",
        )
    try:
        return read_json(path, Analysis)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"the analysis {str(path)!r} is corrupt: {error}.", hint="Write it again with 'rooflines analyze'.") from None
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror or error}.", hint="Check who may read it.") from None


RANKS_FILE = "ranks.json"
RANKS_FORMATS = ("html", "json", "csv")


def find_sources(sources: Sequence[Path | str]) -> list[str]:
    """What ``sources`` (files, directories of traces, patterns, URLs, runs) stand for: one run or trace, which ``analyze`` takes, or
    the traces of several ranks, which ``analyze_ranks`` takes. Raises UsageError for a pattern without traces, and for such a directory
    where more than it is given."""
    from rooflines.profiler.trace.sources import find_traces

    if len(sources) == 1 and is_directory(sources[0]):
        # A directory without traces is a run or nothing; loading it says which.
        found = [] if _is_run(sources[0]) else find_traces(sources, may_be_empty=True)
        return found if len(found) > 1 else [str(sources[0])]
    return [trace for source in sources for trace in ([_trace_of_run(source)] if _is_run(source) else find_traces([source]))]


def analyze_ranks(
    sources: Sequence[Path | str],
    *,
    jobs: int | None = None,
    dask: str | None = None,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> RankAnalysis:
    """The traces of several ranks of one job, each and together, with their collectives matched; nothing is written.

    ``sources`` are files, directories of traces, patterns, URLs or run directories. The traces are read by ``jobs`` processes (by
    default as many as there are processors and work for), each within ``memory_limit_bytes``, or by the workers of the Dask scheduler
    at the address ``dask``. The processes are spawned: a script that calls this needs ``if __name__ == "__main__":``. Raises TraceError
    for a trace that cannot be read, UsageError for two of one rank.
    """
    from rooflines.roofline.rank_readers import read_ranks
    from rooflines.roofline.ranks import analyze_parts

    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs must be at least 1, got {jobs}.", hint="Leave it out to use all processors.")
    progress = progress or Silent()
    traces = find_sources(sources)
    progress.stage(f"reading the traces of {len(traces)} ranks", len(traces))
    parts = read_ranks(traces, jobs=jobs, dask=dask, memory_limit_bytes=memory_limit_bytes, done=progress.advance)
    progress.stage("matching their collectives", None)
    return analyze_parts(parts)


def report_ranks(
    analysis: RankAnalysis, formats: Sequence[str] = RANKS_FORMATS, *, output: Path | None = None, progress: Progress | None = None
) -> dict[str, Path]:
    """Write the reports of several ranks into ``output``, without it into a new directory under ``runs``; returns what was written, by
    format. ``ranks.json`` is always among them. Raises UsageError for a format that there is not for several ranks."""
    from rooflines.reports import ranks as tables
    from rooflines.reports import ranks_html

    formats = check_ranks_formats(formats)
    progress = progress or Silent()
    directory = output or default_directory(f"{len(analysis.ranks)}-ranks", "trace")
    create_directory(directory)
    written = {"json": directory / RANKS_FILE}
    try:
        write_json(written["json"], analysis)
        if "html" in formats:
            progress.stage("writing the html report", None)
            written["html"] = ranks_html.write(analysis, directory / "report.html")
        if "csv" in formats:
            written["csv"] = directory / "ranks.csv"
            written["csv"].write_text(tables.ranks_csv(analysis), encoding="utf-8")
            (directory / "collectives.csv").write_text(tables.collectives_csv(analysis), encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"cannot write the reports in {str(directory)!r}: {error.strerror or error}", hint="Is the disk full?"
        ) from None
    return written


def check_ranks_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats as a tuple; raises UsageError for one that there is not for several ranks."""
    chosen = check_formats(formats)
    unknown = [name for name in chosen if name not in RANKS_FORMATS]
    if unknown:
        raise UsageError(f"there is no {unknown[0]} report of several ranks.", hint=f"Choose from {', '.join(RANKS_FORMATS)}.")
    return chosen


def _is_run(source: Path | str) -> bool:
    return is_directory(source) and (Path(source) / RUN_FILE).is_file()


def _trace_of_run(source: Path | str) -> str:
    run = load(source)
    if run.trace_path is None:
        raise UsageError(f"the run {str(source)!r} has no trace.", hint="Leave it out, or record it again.")
    return str(run.trace_path)
