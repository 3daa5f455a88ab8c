"""How fast a trace is analyzed, and in how much memory, side by side with a floor, ``json.loads``, HolisticTraceAnalysis and TraceLens.

The traces are a real recorded training step (two of them, with NCCL and a backward pass) repeated to each size, ids and times
shifted, and compressed; for the start-up a real trace of 0.6 MB as it is; and that one repeated to 50 MB, because TraceLens finds no
kernels in the training step, a trace without flow events. Each side is a process of its own, in turn, and does what its documentation
gives for the same output: ours the whole ``rooflines analyze FILE --format json``, the floor inflating by isal and decoding of seven
fields of each event by msgspec, ``json.loads`` the decompressed file and nothing else, HolisticTraceAnalysis its temporal and its
kernel breakdown, TraceLens its performance report (as CSV). The last two take part where ``--hta PYTHON`` and ``--tracelens PYTHON``
name interpreters that have them (``pip install HolisticTraceAnalysis``, ``pip install
git+https://github.com/AMD-AGI/TraceLens.git``). Wall time, processor time and peak memory are the process's, imports included. The
other sides may use ``--address-space`` bytes, so that a trace that is too large for them ends them and not the machine. Writes
``benchmarks/results/trace_speed.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "trace_speed.json"
TRACES = HERE.parent / "tests" / "data" / "traces"
STEP = TRACES / "ddp_rank0.json.gz"
SMALL = TRACES / "bert-small_h100_inference.json.gz"
MEMORY_LIMIT_BYTES = {50: 300e6, 5000: 4e9}  # otherwise 1.5 times the uncompressed size; the last is the default of --memory-limit
IDS = ("correlation", "External id", "Sequence number", "Ev Idx")
STRIDE = 10_000_000
OURS = "rooflines"
_MARK = "@number@"
_LOADS = "import gzip, json, sys; json.loads(gzip.open(sys.argv[1]).read())"
_FLOOR = """
import sys
from typing import Any
import msgspec
from isal import igzip
class Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
class Document(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents")
msgspec.json.decode(igzip.open(sys.argv[1]).read(), type=Document)
"""
_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
analysis.get_temporal_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
"""
_VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
_MEMORY_ERRORS = ("MemoryError", "Unable to allocate", "Cannot allocate memory", "bad_alloc", "out of memory", "Not enough memory")


def repeated(source: Path, size_bytes: float) -> Iterator[tuple[str, int]]:
    """The text of a trace of about ``size_bytes``, in parts, and the number of events in each."""
    trace = json.loads(gzip.decompress(source.read_bytes()))
    events = [event for event in trace.pop("traceEvents") if event.get("ph") != "M"]
    spans = [event for event in events if event.get("ph") == "X"]
    first = min(event["ts"] for event in spans)
    period = max(event["ts"] + event["dur"] for event in spans) - first + 100
    length = len(json.dumps(events))
    numbers: list[tuple[float, float]] = []
    marked = [_marked(event, period, numbers) for event in events]
    text = ",\n".join(map(json.dumps, marked)).replace("%", "%%").replace(f'"{_MARK}"', "%r").replace(_MARK, "%r")
    yield json.dumps(trace)[:-1] + ', "traceEvents": [\n', 0
    for number in range(max(1, round(size_bytes / length))):
        yield (",\n" if number else "") + text % tuple(base + number * stride for base, stride in numbers), len(events)
    yield "]}", 0


def _marked(event: dict[str, Any], period: float, numbers: list[tuple[float, float]]) -> dict[str, Any]:
    """``event`` with marks for the numbers that differ between repetitions; the first of each and its stride go to ``numbers``."""

    def mark(base: float, stride: float) -> str:
        numbers.append((base, stride))
        return _MARK

    found: dict[str, Any] = {}
    for key, value in event.items():
        if key == "ts":
            found[key] = mark(value, period)
        elif key == "id" and isinstance(value, int):
            found[key] = mark(value, STRIDE)
        elif key == "name" and str(value).startswith("ProfilerStep#"):
            found[key] = "ProfilerStep#" + mark(int(value.partition("#")[2]) % 10, 10)
        elif key == "args" and isinstance(value, dict):
            found[key] = {
                name: mark(one, STRIDE) if name in IDS and isinstance(one, int) and one >= 0 else one for name, one in value.items()
            }
        else:
            found[key] = value
    return found


def write(path: Path, size_bytes: float, source: Path = STEP) -> tuple[int, int]:
    """Write the trace; returns its uncompressed bytes and its events."""
    size, events = 0, 0
    with gzip.open(path, "wb", compresslevel=1 if size_bytes > 1e9 else 4) as file:
        for text, number in repeated(source, size_bytes):
            size += file.write(text.encode())
            events += number
    return size, events


class Side(NamedTuple):
    """A program that reads a trace: its interpreter, what to run of it for the trace at a path, and the package with its version."""

    python: str
    command: Callable[[Path, Path], list[str]]
    package: str


def sides(hta: str | None, tracelens: str | None) -> dict[str, Side]:
    """The programs by name; the second argument of a command is a folder for what it writes."""
    found = {
        OURS: Side(
            sys.executable,
            lambda trace, folder: ["-m", "rooflines", "analyze", str(trace), "--format", "json", "-o", str(folder / "out.json")],
            "rooflines",
        ),
        "floor": Side(sys.executable, lambda trace, _: ["-c", _FLOOR, str(trace)], "msgspec"),
        "json.loads": Side(sys.executable, lambda trace, _: ["-c", _LOADS, str(trace)], ""),
    }
    if hta:
        found["HolisticTraceAnalysis"] = Side(hta, lambda trace, _: ["-c", _HTA, str(trace)], "HolisticTraceAnalysis")
    if tracelens:
        script = str(Path(tracelens).with_name("TraceLens_generate_perf_report_pytorch"))
        found["TraceLens"] = Side(
            tracelens, lambda trace, folder: [script, "--profile_json_path", str(trace), "--output_csvs_dir", str(folder)], "TraceLens"
        )
    return found


class Taken(NamedTuple):
    """What a process took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def run(command: list[str], patience_s: float, address_space: int | None = None) -> Taken | str:
    """What a process took, or why there is no figure: it was ended for the time or the memory that it took."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def limited() -> None:
        if address_space:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    with tempfile.TemporaryFile() as complaint:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=complaint, env=environment, preexec_fn=limited, start_new_session=True
        )
        patience = threading.Timer(patience_s, os.killpg, (process.pid, signal.SIGKILL))
        patience.start()
        _, status, usage = os.wait4(process.pid, 0)
        patience.cancel()
        seconds = time.perf_counter() - started
        complaint.seek(0)
        said = complaint.read().decode(errors="replace")
    if seconds >= patience_s:
        return f"longer than {patience_s:.0f} s"
    if status:
        if any(words in said for words in _MEMORY_ERRORS) or os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
            return "out of memory"
        if OURS in command:
            sys.exit(f"{command[:3]} failed:\n{said[-2000:]}")
        return f"failed: {said.strip().splitlines()[-1][:200] if said.strip() else status}"
    return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def measured(commands: dict[str, list[str]], rounds: int, patience_s: float, address_space: int) -> dict[str, dict[str, Any]]:
    """Each command's figures, in turn; one that ended without a figure is not asked again."""
    taken: dict[str, list[Taken]] = {name: [] for name in commands}
    without: dict[str, str] = {}
    for _ in range(rounds):
        for name, command in commands.items():
            if name in without:
                continue
            found = run(command, patience_s, None if name == OURS else address_space)
            if isinstance(found, str):
                without[name] = found
            else:
                taken[name].append(found)
    return {name: {"result": without[name]} if name in without else summary(found) for name, found in taken.items()}


def summary(taken: list[Taken]) -> dict[str, Any]:
    """The medians and the spread of one command's rounds."""
    wall, cpu = [one.wall_s for one in taken], [one.cpu_s for one in taken]
    return {
        "seconds": statistics.median(wall),
        "spread": [min(wall), max(wall)],
        "cpu_seconds": statistics.median(cpu),
        "cpu_spread": [min(cpu), max(cpu)],
        "peak_bytes": max(one.peak_bytes for one in taken),
    }


def measure(path: Path, size: int, events: int, arguments: argparse.Namespace, rounds: int) -> dict[str, Any]:
    """All sides on the trace in ``path``."""
    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for name, side in sides(arguments.hta, arguments.tracelens).items():
            own = Path(folder) / name
            own.mkdir()
            commands[name] = [side.python, *side.command(path, own)]
        found = measured(commands, rounds, arguments.patience, arguments.address_space)
    for one in found.values():
        if "seconds" in one:
            one["events_per_s"] = events / one["seconds"]
            one["time_of_rooflines_over_this"] = found[OURS]["seconds"] / one["seconds"]
            one["cpu_time_of_rooflines_over_this"] = found[OURS]["cpu_seconds"] / one["cpu_seconds"]
    return {
        "uncompressed_bytes": size,
        "compressed_bytes": path.stat().st_size,
        "events": events,
        "trace": path.name,
        "rounds": rounds,
        "sides": found,
    }


def start_up(rounds: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """What a command takes before it has done anything: the version, the help, and beside them the interpreter alone."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
        "rooflines --version": [sys.executable, "-m", "rooflines", "--version"],
        "rooflines --help": [sys.executable, "-m", "rooflines", "--help"],
        "rooflines analyze, as a table": [sys.executable, "-m", "rooflines", "analyze", str(SMALL)],
    }
    return measured(commands, rounds, arguments.patience, arguments.address_space)


def version(side: Side) -> str:
    """The version of a side's package; that of Python where it has none."""
    if not side.package:
        return f"Python {sys.version.split()[0]}"
    return subprocess.run([side.python, "-c", _VERSION, side.package], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measure, print, write."""
    from rooflines import serial
    from rooflines.profiler.machine.environment import collect_environment

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[50, 500, 5000], help="uncompressed megabytes (default 50 500 5000)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; of a trace of 5 GB one (default 5)")
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter with HolisticTraceAnalysis")
    parser.add_argument("--tracelens", metavar="PYTHON", help="an interpreter with TraceLens")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds after which a process is ended (default 300)")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    parser.add_argument(
        "--address-space", type=int, default=memory * 2 // 3, help="bytes for the other sides (default 2/3 of the memory)"
    )
    parser.add_argument("--folder", type=Path, help="folder for the traces that are made; those in it are used")
    parser.add_argument("--output", type=Path, default=RESULTS, help="result file")
    arguments = parser.parse_args()
    load = os.getloadavg()
    run([sys.executable, "-m", "rooflines", "analyze", str(SMALL)], arguments.patience)  # compiles the modules
    began = start_up(arguments.rounds, arguments)
    for name, one in began.items():
        print(f"{name:32} {one['seconds']:6.3f} s  {one['cpu_seconds']:6.3f} s of the processor  {one['peak_bytes'] / 1e6:5.0f} MB")
    text = gzip.decompress(SMALL.read_bytes())
    traces = [measure(SMALL, len(text), len(json.loads(text)["traceEvents"]), arguments, arguments.rounds)]
    show(0, traces[-1])
    with tempfile.TemporaryDirectory() as folder:
        for source, megabytes in ((SMALL, 50), *((STEP, size) for size in arguments.sizes)):
            path, size, events = made(arguments.folder or Path(folder), source, megabytes)
            traces.append(measure(path, size, events, arguments, 1 if megabytes > 1000 else arguments.rounds))
            show(megabytes, traces[-1])
    environment = {key: value for key, value in serial.to_plain(collect_environment("cpu")).items() if key != "host"}
    results = {
        "benchmark": "trace_speed",
        "start_up": began,
        "traces": traces,
        "versions": {name: version(side) for name, side in sides(arguments.hta, arguments.tracelens).items()},
        "address_space_bytes": arguments.address_space,
        "load_average": {"before": load, "after": os.getloadavg()},
        "environment": environment,
    }
    if len(traces) > 3:
        times, lengths = ([trace[key] for trace in (traces[2], traces[-1])] for key in ("sides", "uncompressed_bytes"))
        results["time_ratio"] = times[1][OURS]["seconds"] / times[0][OURS]["seconds"]
        results["size_ratio"] = lengths[1] / lengths[0]
        print(f"{results['size_ratio']:.1f} x the size takes {results['time_ratio']:.1f} x the time")
    arguments.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"written  {arguments.output}")


def made(folder: Path, source: Path, megabytes: int) -> tuple[Path, int, int]:
    """A trace of that size in ``folder``, its bytes and its events."""
    stem = f"{source.name.partition('.')[0]}_{megabytes}"
    path, facts = folder / f"{stem}.json.gz", folder / f"{stem}.facts"
    if not facts.exists():
        facts.write_text(json.dumps(write(path, megabytes * 1e6, source)))
    size, events = json.loads(facts.read_text())
    return path, size, events


def show(megabytes: int, trace: dict[str, Any]) -> None:
    """The trace's sides, a line each, and the targets."""
    print(f"{trace['trace']}: {trace['uncompressed_bytes'] / 1e6:.1f} MB, {trace['events']:,} events, {trace['rounds']} rounds")
    for name, side in trace["sides"].items():
        if "result" in side:
            print(f"  {name:22} {side['result']}")
            continue
        low, high = side["spread"]
        print(
            f"  {name:22} {side['seconds']:7.2f} s ({low:.2f} to {high:.2f}), of the processor {side['cpu_seconds']:7.2f} s"
            f"  {side['events_per_s'] / 1e3:7.0f} k events/s  {side['peak_bytes'] / 1e6:6.0f} MB"
            f"  ours / this {side['time_of_rooflines_over_this']:.2f}",
            flush=True,
        )
    ours = trace["sides"][OURS]
    limit = MEMORY_LIMIT_BYTES.get(megabytes, 1.5 * trace["uncompressed_bytes"])
    if megabytes and "peak_bytes" in ours:
        print(f"  memory limit {limit / 1e6:.0f} MB: {'kept' if ours['peak_bytes'] < limit else 'MISSED'}")


if __name__ == "__main__":
    main()
