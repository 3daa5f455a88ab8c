"""How fast a trace is analysed, and in how much memory, beside ``json.loads`` alone and HolisticTraceAnalysis loading the same file.

The trace is a real recorded training step (two of them, with NCCL and a backward pass) repeated to the size asked for, ids and times
shifted, and compressed. Each side is a process of its own, in turn: ours the whole ``rooflines analyze FILE --format json``, the second
Python's ``json.loads`` of the decompressed file and nothing else, the third ``TraceAnalysis`` of HolisticTraceAnalysis with its
temporal breakdown, where ``--hta PYTHON`` names an interpreter that has it (``pip install HolisticTraceAnalysis``). Wall time and peak
memory are the process's, imports included. Writes ``benchmarks/results/trace_speed.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "trace_speed.json"
STEP = Path(__file__).parents[1] / "tests" / "data" / "traces" / "ddp_rank0.json.gz"
MEMORY_LIMIT_BYTES = {50: 300e6}  # and 1.5 times the uncompressed size above
IDS = ("correlation", "External id", "Sequence number", "Ev Idx")
STRIDE = 10_000_000
PATIENCE_S = 90.0
_LOADS = "import gzip, json, sys; json.loads(gzip.open(sys.argv[1]).read())"
_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/").get_temporal_breakdown(visualize=False)
"""


def repeated(source: Path, size_bytes: float) -> Iterator[tuple[str, int]]:
    """The text of a trace of about ``size_bytes``, in parts, and the number of events in each."""
    trace = json.loads(gzip.decompress(source.read_bytes()))
    events = [event for event in trace.pop("traceEvents") if event.get("ph") != "M"]
    spans = [event for event in events if event.get("ph") == "X"]
    first = min(event["ts"] for event in spans)
    period = max(event["ts"] + event["dur"] for event in spans) - first + 100
    length = len(json.dumps(events))
    yield json.dumps(trace)[:-1] + ', "traceEvents": [\n', 0
    for number in range(max(1, round(size_bytes / length))):
        shifted = [moved(event, number, period) for event in events]
        yield (",\n" if number else "") + ",\n".join(map(json.dumps, shifted)), len(shifted)
    yield "]}", 0


def moved(event: dict[str, Any], number: int, period: float) -> dict[str, Any]:
    """``event`` as it would be in the repetition ``number``."""
    event = dict(event)
    if "ts" in event:
        event["ts"] += number * period
    if isinstance(event.get("id"), int):
        event["id"] += number * STRIDE
    if str(event.get("name", "")).startswith("ProfilerStep#"):
        event["name"] = f"ProfilerStep#{number * 10 + int(event['name'].partition('#')[2]) % 10}"
    if isinstance(event.get("args"), dict):
        event["args"] = {
            key: value + number * STRIDE if key in IDS and isinstance(value, int) and value >= 0 else value
            for key, value in event["args"].items()
        }
    return event


def write(path: Path, size_bytes: float) -> tuple[int, int]:
    """Write the trace; returns its uncompressed bytes and its events."""
    size, events = 0, 0
    with gzip.open(path, "wb", compresslevel=4) as file:
        for text, number in repeated(STEP, size_bytes):
            size += file.write(text.encode())
            events += number
    return size, events


def run(command: list[str]) -> tuple[float, int] | None:
    """Wall seconds and peak resident bytes of a process; None for one that was ended because it took longer than ``PATIENCE_S``."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    patience = threading.Timer(PATIENCE_S, process.kill)
    patience.start()
    complaint = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    patience.cancel()
    seconds = time.perf_counter() - started
    if seconds > PATIENCE_S:
        return None
    if status:
        sys.exit(f"{command[:3]} failed:\n{complaint.decode()[-2000:]}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(path: Path, size: int, events: int, rounds: int, hta: str | None) -> dict[str, Any]:
    """All sides in turn."""
    sides = {
        "rooflines": [sys.executable, "-m", "rooflines", "analyze", str(path), "--format", "json", "-o", str(path.with_suffix(".out"))],
        "json.loads": [sys.executable, "-c", _LOADS, str(path)],
    }
    if hta:
        sides["HolisticTraceAnalysis"] = [hta, "-c", _HTA, str(path)]
    taken: dict[str, list[tuple[float, int]]] = {name: [] for name in sides}
    impatient: list[str] = []
    for _ in range(rounds):
        for name, command in sides.items():
            if name in impatient:
                continue
            found = run(command)
            if found is None:
                impatient.append(name)
            else:
                taken[name].append(found)
    ours = [seconds for seconds, _ in taken["rooflines"]]
    result: dict[str, Any] = {
        "uncompressed_bytes": size,
        "compressed_bytes": path.stat().st_size,
        "events": events,
        "rounds": rounds,
        "sides": {},
    }
    for name, measured in taken.items():
        if name in impatient:
            result["sides"][name] = {"longer_than_s": PATIENCE_S}
            continue
        seconds = [one for one, _ in measured]
        result["sides"][name] = {
            "seconds": statistics.median(seconds),
            "spread": [min(seconds), max(seconds)],
            "events_per_s": events / statistics.median(seconds),
            "peak_bytes": max(peak for _, peak in measured),
            "time_of_rooflines_over_this": statistics.median(mine / other for mine, other in zip(ours, seconds, strict=True)),
        }
    return result


def main() -> None:
    """Measure, print, write."""
    from rooflines import serial
    from rooflines.profiler.environment import collect_environment

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 500], help="uncompressed megabytes (default 50 500)")
    parser.add_argument("--rounds", type=int, default=5, help="of each size (default 5)")
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter with HolisticTraceAnalysis")
    arguments = parser.parse_args()
    traces = []
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in arguments.sizes:
            path = Path(folder) / f"{megabytes}.json.gz"
            size, events = write(path, megabytes * 1e6)
            traces.append(measure(path, size, events, arguments.rounds, arguments.hta))
            path.unlink()
            show(megabytes, traces[-1])
    environment = {key: value for key, value in serial.to_plain(collect_environment("cpu")).items() if key != "host"}
    results = {"benchmark": "trace_speed", "traces": traces, "environment": environment}
    if len(traces) > 1:
        times, sizes = ([trace[key] for trace in (traces[0], traces[-1])] for key in ("sides", "uncompressed_bytes"))
        results["time_ratio"] = times[1]["rooflines"]["seconds"] / times[0]["rooflines"]["seconds"]
        results["size_ratio"] = sizes[1] / sizes[0]
        print(f"{results['size_ratio']:.1f} x the size takes {results['time_ratio']:.1f} x the time")
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"written  {RESULTS}")


def show(megabytes: int, trace: dict[str, Any]) -> None:
    """The trace's sides, a line each, and the targets."""
    print(f"{trace['uncompressed_bytes'] / 1e6:.1f} MB, {trace['events']:,} events, {trace['rounds']} rounds")
    for name, side in trace["sides"].items():
        if "longer_than_s" in side:
            print(f"  {name:22} more than {side['longer_than_s']:.0f} s, not waited for")
            continue
        low, high = side["spread"]
        print(
            f"  {name:22} {side['seconds']:7.2f} s ({low:.2f} to {high:.2f})  {side['events_per_s'] / 1e3:7.0f} k events/s"
            f"  {side['peak_bytes'] / 1e6:6.0f} MB  ours / this {side['time_of_rooflines_over_this']:.2f}"
        )
    limit = MEMORY_LIMIT_BYTES.get(megabytes, 1.5 * trace["uncompressed_bytes"])
    print(f"  memory limit {limit / 1e6:.0f} MB: {'kept' if trace['sides']['rooflines']['peak_bytes'] < limit else 'MISSED'}")


if __name__ == "__main__":
    main()
