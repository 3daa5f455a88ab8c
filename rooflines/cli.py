# ruff: noqa: T201 (a command line prints)
"""The command line: each command parses, calls the library, prints. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer

from rooflines._version import __version__
from rooflines.errors import Interrupted, OutputError, RooflinesError, UsageError, WorkloadError

if TYPE_CHECKING:
    from rich.console import Console

    from rooflines.profiler.collect import Progress

app = typer.Typer(
    name="rooflines",
    help="Profile a deep-learning workload and place every operator on this device's roofline.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_WHAT, _HOW, _MEASURE, _OUTPUT = "What to run", "How to run it", "How to measure", "Output"
_WHICH, _OWN = "Which devices", "Your own sheets"


class Mode(str, Enum):
    """What a step is."""

    inference = "inference"
    training = "training"


class Precision(str, Enum):
    """The arithmetic of the run."""

    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"
    amp_bf16 = "amp-bf16"
    amp_fp16 = "amp-fp16"


class CountBy(str, Enum):
    """What a row of a count is."""

    operator = "operator"
    module = "module"


class CountFormat(str, Enum):
    """How ``count`` answers."""

    table = "table"
    json = "json"
    csv = "csv"


class CeilingsFormat(str, Enum):
    """How ``ceilings`` answers."""

    table = "table"
    json = "json"
    csv = "csv"


class DeviceKind(str, Enum):
    """Which devices ``devices`` lists."""

    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"
    xpu = "xpu"
    gpu = "gpu"


class SheetPrecision(str, Enum):
    """The precisions that a data sheet may have a rate for."""

    fp64 = "fp64"
    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"
    fp8 = "fp8"
    int8 = "int8"


class AnalysisFormat(str, Enum):
    """How ``analyze`` answers."""

    table = "table"
    json = "json"


# What several commands take.
_BatchSize = Annotated[
    Optional[int], typer.Option(help="Samples a step.", rich_help_panel=_WHAT, show_default="1")  # noqa: UP045
]
_ImageSize = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Height and width in pixels.", rich_help_panel=_WHAT, show_default="that of the model's published weights"),
]
_SequenceLength = Annotated[int, typer.Option(help="Tokens a sequence, for language models.", rich_help_panel=_WHAT)]
_Precision = Annotated[Precision, typer.Option(help="Of the whole network, or of autocast (amp-*).", rich_help_panel=_HOW)]
_MemoryLimit = Annotated[str, typer.Option(help="Most that is kept of a trace in memory.", metavar="SIZE")]
_ChannelsLast = Annotated[bool, typer.Option("--channels-last", help="Store images as NHWC.", rich_help_panel=_HOW)]


def main() -> None:
    """The entry point: our errors become one line, a hint and an exit code; anything else is a bug and shows its traceback."""
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="rooflines", standalone_mode=False))
    except RooflinesError as error:
        _print_cause(error)
        _fail(error.message, error.hint, error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted.", "Nothing was being recorded.", Interrupted.exit_code)
    except Exception as error:
        # What typer refuses; its class has had three homes in the versions we support, the method has stayed.
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", None) or "rooflines"
        message = " ".join(error.format_message().split())
        hint = f"See {command} --help."
        if "No such option" in message and any(argument.endswith(".py") for argument in sys.argv):
            hint = "A script's own options go after --: rooflines profile train.py -- --its --own args"
        _fail(message[:1].lower() + message[1:], hint, UsageError.exit_code)


def _fail(message: str, hint: str, code: int) -> NoReturn:
    print(f"rooflines: {message}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
    sys.exit(code)


def _print_cause(error: RooflinesError) -> None:
    """The traceback of the user's own code, where it was that that failed; torch's refusal of an input is already in our line."""
    cause = error.__cause__
    if not isinstance(error, WorkloadError) or cause is None or isinstance(cause, SystemExit):
        return
    shown = traceback.TracebackException.from_exception(cause)
    ours = False
    chain: list[traceback.TracebackException] = []
    link: traceback.TracebackException | None = shown
    while link is not None and link not in chain:
        chain.append(link)
        link.stack = traceback.StackSummary.from_list(_from_users(link.stack))
        ours = ours or any("site-packages" not in frame.filename for frame in link.stack)
        link = link.__cause__ or link.__context__
    if ours or isinstance(cause, SyntaxError):
        print("".join(shown.format()), end="", file=sys.stderr)


def _from_users(stack: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """``stack`` without the leading frames that are ours or the interpreter's own start of a file."""
    here = Path(__file__).parent
    for index, frame in enumerate(stack):
        if not (here in Path(frame.filename).parents or frame.filename.startswith("<frozen")):
            return stack[index:]
    return []


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Nothing: the option acts by itself."""


@app.command()
def profile(
    context: typer.Context,
    target: Annotated[
        Optional[str], typer.Argument(help="A script to run (train.py), or path/to/file.py:factory.", show_default=False)  # noqa: UP045
    ] = None,
    arguments: Annotated[
        Optional[list[str]], typer.Argument(help="The script's own arguments, after --.", show_default=False)  # noqa: UP045
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="A torchvision model (resnet50), timm:NAME, hf:NAME or path/to/file.py:factory.",
            rich_help_panel=_WHAT,
            show_default=False,
        ),
    ] = None,
    mode: Annotated[Mode, typer.Option(help="Inference, or training with SGD.", rich_help_panel=_WHAT)] = Mode.inference,
    batch_size: _BatchSize = None,
    image_size: _ImageSize = None,
    sequence_length: _SequenceLength = 128,
    precision: _Precision = Precision.fp32,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.", rich_help_panel=_HOW)] = "auto",
    threads: Annotated[
        Optional[int], typer.Option(help="CPU threads.", rich_help_panel=_HOW, show_default="torch's choice")  # noqa: UP045
    ] = None,
    channels_last: _ChannelsLast = False,
    compile: Annotated[bool, typer.Option("--compile", help="Run through torch.compile.", rich_help_panel=_HOW)] = False,
    seed: Annotated[int, typer.Option(help="Of weights and inputs.", rich_help_panel=_HOW)] = 0,
    to_end: Annotated[
        bool,
        typer.Option(
            "--to-end", help="Let a script run to its end instead of stopping it when enough is recorded.", rich_help_panel=_HOW
        ),
    ] = False,
    steps: Annotated[
        Optional[int], typer.Option(help="Timed steps.", rich_help_panel=_MEASURE, show_default="about 5 s, 5 to 100 steps")  # noqa: UP045
    ] = None,
    warmup: Annotated[
        Optional[int], typer.Option(help="Warm-up steps.", rich_help_panel=_MEASURE, show_default="until step times settle")  # noqa: UP045
    ] = None,
    ceilings: Annotated[str, typer.Option(help="measured, spec, or a JSON file with ceilings.", rich_help_panel=_MEASURE)] = "measured",
    remeasure: Annotated[
        bool, typer.Option("--remeasure", help="Measure the ceilings again instead of using the cached ones.", rich_help_panel=_MEASURE)
    ] = False,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="The run directory to make.", rich_help_panel=_OUTPUT, show_default="runs/NAME-MODE-TIME"),
    ] = None,
    formats: Annotated[
        str, typer.Option(help="Reports to write, separated by commas.", rich_help_panel=_OUTPUT)
    ] = "html,pdf,json,csv,tensorboard",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the report's path only.", rich_help_panel=_OUTPUT)] = False,
) -> None:
    """Run a workload, measure it and this device, and write a report.

    [bold]rooflines profile --model resnet50 --mode training --batch-size 8[/bold]

    [bold]rooflines profile train.py -- --its --own args[/bold]
    """
    from rooflines import pipeline

    chosen = pipeline.check_formats(name.strip() for name in formats.split(",") if name.strip())
    is_script = target is not None and target.endswith(".py")
    if target is None and model is None:
        raise UsageError("nothing to profile was given.", hint="For example: rooflines profile --model resnet50")
    if target is not None and model is not None:
        raise UsageError(f"both --model {model} and {target} were given.", hint="Give one of them.")
    if arguments and not is_script:
        raise UsageError(
            f"unexpected argument {arguments[0]!r}.", hint="Only a script (train.py) takes arguments of its own, after --."
        )
    if is_script:
        _refuse_for_script(context)
    with _progress(quiet) as progress:
        if is_script and target is not None:
            run = pipeline.profile_script(
                Path(target), list(arguments or ()), device=device, threads=threads, batch_size=batch_size, precision=precision.value,
                steps=steps, warmup=warmup, ceilings=ceilings, remeasure=remeasure, output=output, formats=chosen, to_end=to_end,
                progress=progress,
            )  # fmt: skip
        else:
            run = pipeline.profile(
                model or target or "", mode=mode.value, batch_size=batch_size, image_size=image_size, sequence_length=sequence_length,
                precision=precision.value, device=device, threads=threads, channels_last=channels_last, compile=compile, steps=steps,
                warmup=warmup, ceilings=ceilings, remeasure=remeasure, output=output, formats=chosen, seed=seed, progress=progress,
            )  # fmt: skip
    _print_run(run.directory, chosen, quiet)


# What a script decides for itself; batch size and precision are taken as labels.
_NOT_FOR_SCRIPTS = ("mode", "image_size", "sequence_length", "channels_last", "compile", "seed")


def _refuse_for_script(context: typer.Context) -> None:
    for name in _NOT_FOR_SCRIPTS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"--{name.replace('_', '-')} does not reach into a script, which decides that itself.",
                hint="The script's own options go after --.",
            )


@app.command()
def count(
    target: Annotated[
        Optional[str], typer.Argument(help="The same as --model.", show_default=False)  # noqa: UP045
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="A torchvision model (resnet50), timm:NAME, hf:NAME, hf:PATH/config.json or path/to/file.py:factory.",
            rich_help_panel=_WHAT,
            show_default=False,
        ),
    ] = None,
    mode: Annotated[Mode, typer.Option(help="Inference, or a training step with SGD.", rich_help_panel=_WHAT)] = Mode.inference,
    batch_size: _BatchSize = None,
    image_size: _ImageSize = None,
    sequence_length: _SequenceLength = 128,
    precision: _Precision = Precision.fp32,
    channels_last: _ChannelsLast = False,
    by: Annotated[CountBy, typer.Option(help="What a row is.", rich_help_panel=_OUTPUT)] = CountBy.operator,
    format: Annotated[CountFormat, typer.Option(help="What to print.", rich_help_panel=_OUTPUT)] = CountFormat.table,
    rows: Annotated[int, typer.Option(help="Most rows of the table.", min=1, rich_help_panel=_OUTPUT)] = 20,
    against: Annotated[
        str,
        typer.Option(
            help="Other counters beside ours, with what makes the difference: torch, fvcore, profiler, separated by commas.",
            rich_help_panel=_OUTPUT,
            show_default=False,
        ),
    ] = "",
    memory: Annotated[
        bool, typer.Option("--memory", help="Also the most memory that a step holds, and what it is.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Count FLOPs and bytes of a model, operator by operator, without data and without running it.

    [bold]rooflines count --model resnet50[/bold]

    [bold]rooflines count --model hf:path/to/config.json --mode training --by module[/bold]
    """
    from rooflines.profiler.collect import quiet_profiler
    from rooflines.profiler.options import Options
    from rooflines.roofline.against import count_against

    if (model is None) == (target is None):
        raise UsageError("give one model.", hint="For example: rooflines count --model resnet50")
    if memory and format is CountFormat.csv:
        raise UsageError("--memory has no place among the rows of a CSV.", hint="Use --format table or json.")
    quiet_profiler()
    options = Options(
        mode=mode.value, batch_size=batch_size, image_size=image_size, sequence_length=sequence_length, precision=precision.value,
        device="cpu", channels_last=channels_last,
    )  # fmt: skip
    workload, counted, others = count_against(model or target or "", options, against.split(","), memory=memory)
    if format is CountFormat.json:
        from rooflines import serial

        beside = {"against": others} if others else {}
        print(serial.to_json({"workload": workload, **counted.to_dict(), **beside}), end="")
        return
    from rooflines.reports.count import count_csv, print_against, print_count, print_memory

    if format is CountFormat.csv:
        print(count_csv(counted, by.value), end="")
        return
    print_count(counted, workload, by.value, rows, _console())
    if counted.memory is not None:
        print_memory(counted.memory, _console())
    if others:
        print_against(counted, others, _console())


@app.command()
def analyze(
    source: Annotated[
        str, typer.Argument(help="A run directory, or anybody's PyTorch trace: a JSON file, plain, .gz or .zst, or its URL.")
    ],
    format: Annotated[AnalysisFormat, typer.Option(help="What to print.")] = AnalysisFormat.table,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Write the JSON there.", show_default="RUN/analysis.json, or nowhere for a trace"),
    ] = None,
    ceilings: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="measured, spec, or a JSON file: judge by these.",
            show_default="the run's own; for a trace the data sheet of the device it names",
        ),
    ] = None,
    memory_limit: _MemoryLimit = "4GB",
) -> None:
    """Analyse a run anew from its raw files, or a trace that anybody recorded, without running the model."""
    from rooflines import pipeline, serial

    limit = _bytes(memory_limit)
    with _progress(format is AnalysisFormat.json) as progress:
        if pipeline.is_directory(source):
            analysis = pipeline.analyze(source, ceilings=ceilings)
            output = output or Path(source) / pipeline.ANALYSIS_FILE
        else:
            _, analysis = pipeline.analyze_trace(source, ceilings=ceilings, memory_limit_bytes=limit, progress=progress)
    if output is not None:
        path = output / pipeline.ANALYSIS_FILE if output.is_dir() else output
        try:
            serial.write_json(path, analysis)
        except OSError as error:
            raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}.", hint="Give another --output.") from None
    if format is AnalysisFormat.json:
        print(serial.to_json(analysis), end="")
        return
    from rooflines.reports.terminal import print_analysis

    print_analysis(analysis, _console())


@app.command()
def report(
    source: Annotated[str, typer.Argument(help="A run directory, or a trace (file or URL).")],
    formats: Annotated[str, typer.Option(help="Reports to write, separated by commas.")] = "html,pdf,json,csv,tensorboard",
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Directory for the reports.", show_default="the run itself; runs/TRACE-... for a trace"),
    ] = None,
    ceilings: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="measured, spec, or a JSON file: judge by these.", show_default="as rooflines analyze"),
    ] = None,
    memory_limit: _MemoryLimit = "4GB",
) -> None:
    """Write the reports of a run again with this version's formulas and pages, or those of a trace."""
    from rooflines import pipeline

    chosen = pipeline.check_formats(name.strip() for name in formats.split(",") if name.strip())
    with _progress(False) as progress:
        written = pipeline.report_on(
            source, chosen, output=output, ceilings=ceilings, memory_limit_bytes=_bytes(memory_limit), progress=progress
        )
    for name, path in written.items():
        print(f"{name:12} {path}")


@app.command()
def ceilings(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda:N or mps.", rich_help_panel=_MEASURE)] = "auto",
    threads: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="CPU threads.", min=1, rich_help_panel=_MEASURE, show_default="torch's choice"),
    ] = None,
    sustained: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Hold every rate for so many seconds, too (CUDA).", min=1, rich_help_panel=_MEASURE, metavar="SECONDS"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Measure though other processes keep the GPU busy.", rich_help_panel=_MEASURE)
    ] = False,
    remeasure: Annotated[
        bool, typer.Option("--remeasure", help="Measure now instead of showing what is cached.", rich_help_panel=_MEASURE)
    ] = False,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Measured, data sheet and derived side by side.", rich_help_panel=_OUTPUT),
    ] = False,
    chart: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Draw it, too: FILE.html, .png or .svg.", rich_help_panel=_OUTPUT, metavar="FILE"),
    ] = None,
    format: Annotated[
        Optional[CeilingsFormat],  # noqa: UP045
        typer.Option(help="What to print.", rich_help_panel=_OUTPUT, show_default="table, or what --output ends in"),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Write it there instead of printing.", rich_help_panel=_OUTPUT, metavar="FILE"),
    ] = None,
) -> None:
    """Measure what this device can do, each roof with its spread and its source; the results are cached and shown with their age.

    [bold]rooflines ceilings --compare --chart ceilings.html[/bold]

    [bold]rooflines ceilings --output mine.json; rooflines profile --model resnet50 --ceilings mine.json[/bold]
    """
    from rooflines.reports import ceilings as show
    from rooflines.reports import ceilings_chart

    suffix = output.suffix.removeprefix(".") if output is not None else ""
    chosen = format or (CeilingsFormat(suffix) if suffix in ("json", "csv") else CeilingsFormat.table)
    if chart is not None:
        ceilings_chart.check_suffix(chart)
    for path in filter(None, (chart, output)):
        _check_writable(path)
    from rooflines.device_specs.compare import compare as put_beside
    from rooflines.device_specs.compare import references
    from rooflines.device_specs.measure import measure
    from rooflines.profiler.options import find_device

    found = str(find_device(device))
    if threads is not None and found != "cpu":
        raise UsageError(f"--threads is for a CPU, and the device is {found}.", hint="Add --device cpu.")
    try:
        with _progress(not sys.stderr.isatty()) as progress:
            measured = measure(
                found, threads=threads, full=True, sustained_s=sustained, force=force, remeasure=remeasure,
                progress=None if progress is None else lambda text: progress.stage(text, None),
            )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted("interrupted; what was measured before is as it was.", hint="rooflines ceilings measures again.") from None
    beside = references(measured, found) if compare else None
    rows = put_beside(measured, beside) if beside is not None else ()
    if chart is not None:
        _write(chart, ceilings_chart.draw(measured, rows, beside, chart.suffix))
    if chosen is CeilingsFormat.json:
        text = show.ceilings_json(measured, rows if compare else None)
    elif chosen is CeilingsFormat.csv:
        text = show.comparison_csv(rows) if compare else show.ceilings_csv(measured)
    else:
        console = _console(text_only=output is not None)
        with console.capture() as captured:
            if beside is not None:
                show.print_comparison(rows, beside, measured, console)
            else:
                show.print_ceilings(measured, console)
        text = captured.get()
    if output is None:
        print(text, end="")
    else:
        _write(output, text.encode())
    for path in filter(None, (chart, output)):
        print(f"written   {path}", file=sys.stderr)


def _check_writable(path: Path) -> None:
    """Refuse a file that cannot be written before anything is measured for it."""
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a directory.", hint="Name a file.")
    if not path.parent.is_dir():
        raise OutputError(f"there is no directory {str(path.parent)!r}.", hint="Make it, or name another file.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(f"cannot write {str(path)!r}: permission denied.", hint="Name another file.")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}.", hint="Name another file.") from None


@app.command()
def devices(
    name: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="A name as a driver prints it, or some words of it.", show_default=False),
    ] = None,
    vendor: Annotated[str, typer.Option(help="NVIDIA, AMD, Intel, Apple, AWS.", rich_help_panel=_WHICH, show_default=False)] = "",
    kind: Annotated[
        Optional[DeviceKind],  # noqa: UP045
        typer.Option(help="The torch device type; gpu is all but cpu.", rich_help_panel=_WHICH),
    ] = None,
    architecture: Annotated[
        str, typer.Option(help="Part of its name, or a compute capability.", rich_help_panel=_WHICH, show_default=False)
    ] = "",
    precision: Annotated[
        Optional[SheetPrecision],  # noqa: UP045
        typer.Option(help="Those that have a rate for it.", rich_help_panel=_WHICH),
    ] = None,
    min_bandwidth: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="GB/s of memory bandwidth, at least.", rich_help_panel=_WHICH, metavar="GB/S"),
    ] = None,
    min_memory: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="GB of memory, at least.", rich_help_panel=_WHICH, metavar="GB"),
    ] = None,
    format: Annotated[CountFormat, typer.Option(help="What to print.", rich_help_panel=_OUTPUT)] = CountFormat.table,
    add: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Check a data sheet of your own and keep it.", rich_help_panel=_OWN, metavar="FILE.toml", show_default=False),
    ] = None,
    remove: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Take out a data sheet of your own.", rich_help_panel=_OWN, metavar="NAME", show_default=False),
    ] = None,
) -> None:
    """List the data sheets of devices, or show one with the source of every figure.

    [bold]rooflines devices --vendor nvidia --min-bandwidth 2000[/bold]

    [bold]rooflines devices "NVIDIA A100-SXM4-80GB"[/bold]
    """
    from rooflines.device_specs import search, user_sheets

    if sum(map(bool, (name, add, remove))) > 1:
        raise UsageError("NAME, --add and --remove exclude each other.", hint="Give one of them.")
    if add is not None:
        sheet, kept = user_sheets.add(add)
        print(f"{sheet.name} is kept in {kept}")
        return
    if remove is not None:
        print(f"{user_sheets.remove(remove)} is removed")
        return
    found = search.search(
        " ".join(name or ()), vendor=vendor, kind=kind.value if kind else "", architecture=architecture,
        precision=precision.value if precision else "", min_bandwidth=min_bandwidth, min_memory=min_memory,
    )  # fmt: skip
    from rooflines.reports import devices as show

    if format is CountFormat.json:
        print(show.to_json(found), end="")
    elif format is CountFormat.csv:
        print(show.to_csv(found), end="")
    elif name and len(found) == 1:
        show.print_one(found[0], _console())
    else:
        show.print_list(found, _console())


@app.command()
def doctor() -> None:
    """Say what can be measured on this machine, what is missing, and the command that would fix it."""
    from rooflines.profiler.doctor import examine
    from rooflines.reports.doctor import print_checks

    print_checks(examine(), _console())


def _bytes(text: str) -> int:
    from rooflines.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"--memory-limit {text!r} is no size: {error}.", hint="Give one like 800MB or 4GiB.") from None


def _print_run(directory: Path, formats: tuple[str, ...], quiet: bool) -> None:
    from rooflines import pipeline

    shown = directory / ("report.html" if "html" in formats else pipeline.ANALYSIS_FILE)
    if quiet:
        print(shown)
        return
    from rooflines.reports.terminal import print_analysis

    print_analysis(pipeline.analyze(directory), _console())
    print(f"\nreport    {shown}")
    print(f"again     rooflines report {shlex.quote(str(directory))}")
    if "tensorboard" in formats:
        print(f"browse    tensorboard --logdir {shlex.quote(str(directory.parent))}")


def _console(*, text_only: bool = False) -> Console:
    """The terminal; ``text_only`` for a file: no colour, and 100 columns whatever the terminal has."""
    from rich.console import Console

    return Console(width=100, color_system=None, force_terminal=False) if text_only else Console()


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Progress | None]:
    """A bar on standard error that says what is happening; nothing with --quiet."""
    if quiet:
        yield None
        return
    from rooflines.reports.progress import Bar

    with Bar() as bar:
        yield bar


__all__ = ["app", "main"]
