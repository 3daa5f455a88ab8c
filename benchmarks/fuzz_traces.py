"""Mutated traces through the reader, the call tree, the attribution and the analysis: nothing may raise but a TraceError.

    python benchmarks/fuzz_traces.py --runs 100000 [--seed N] [--seconds N] [--guided]

Small traces (some by hand, some cut out of real ones) are mutated as JSON (a value, a key, an event changed, moved, doubled, left
out) and as bytes. ``--guided`` lets atheris (``pip install atheris``, for development only) choose mutations by the code that they
reach; the plain loop keeps what ended in a way not seen before as a seed of its own. A failure is an exception that is not ours, a
trace that takes more than five seconds, or (without atheris) memory that has grown by more than 64 MiB; what fails is saved in
tests/data/traces/fuzz, which tests/profiler/read/test_fuzz.py reads. Figures are written to benchmarks/results/fuzz_traces.json.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import gzip
import hashlib
import json
import os
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE.parent / "tests" / "data" / "traces"
FAILED = DATA / "fuzz"
RESULTS = HERE / "results" / "fuzz_traces.json"
LONGEST_S = 5.0
GROWTH_BYTES = 64 << 20
MEMORY_LIMIT_BYTES = 64 << 20
LARGEST_INPUT = 32 << 10
# Runs before the growth of memory is measured from: imports, caches of formulas and the allocator's own pools come first.
SETTLING = 2000

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, -(2**31) - 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40, 0.5, -0.0, 1e-320,
    1e15, 4e15, 9e15, -9e15, 1e300, float("nan"), float("inf"), float("-inf"), "", " ", "0", "12", "-5", "1e400", "nan", "²", "٣",
    "\x00",
    "\ud800", "\u202e", "x" * 5000, "=1+1", "<script>", "X", "i", "M", "cpu_op", "kernel", "cuda_runtime", "user_annotation",
    "gpu_memcpy",
    "python_function", "[memory]", "aten::mm", "aten::index", "aten::cat", "aten::convolution", "aten::_foreach_add_", "ProfilerStep#1",
    "nn.Module: a.b (C)", "nn.Module: Linear_0", "ncclDevKernel", "record_param_comms", "nccl:all_reduce", "cudaGraphLaunch",
    "autograd::engine::evaluate_function: MmBackward0", "Optimizer.step#SGD.step", "enumerate(DataLoader)#x",
    "rooflines.work: name=a&other_flops=5&precision=fp32", "float", "c10::BFloat16", "TensorList", "ScalarList", "Scalar",
    [], {}, [[]], [1], [2, 3], [[2, 3], [3, 4]], [-1, 5], [2**62, 2**62], [0, 0], [[[2]]], ["float", "float"], {"a": 1}, [None], "[1]",
    "[" * 90, "[1,", "-inf", "(1, 2)", "{1: 2}", "9" * 400,
]  # fmt: skip
KEYS = (
    "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "Input Dims", "Input dims", "Input type", "Input Strides",
    "Concrete Inputs",
    "Sequence number", "Fwd thread id", "correlation", "correlation id", "stream", "device", "Bytes", "bytes", "Device Type",
    "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Process Group Name", "Group size", "Process Group Ranks", "name",
    "traceEvents", "deviceProperties", "distributedInfo", "rank", "world_size", "backend", "totalGlobalMem", "numSms", "computeMajor",
)  # fmt: skip


def seeds() -> list[bytes]:
    """Small traces: events by hand of every kind that is read, and the first events with their kernels of the real ones."""
    sys.path.insert(0, str(HERE.parent))
    from tests import traces

    by_hand = [
        traces.span("ProfilerStep#1", 0, 100), traces.span("nn.Module: a.b (Linear)", 1, 20), traces.mm(2, 10, 4, 5, 6, seq=3),
        traces.launch(3, 2, 1), traces.kernel("gemm", 8, 5, 1), traces.add(20, 9), traces.launch(21, 2, 2),
        traces.kernel("Memcpy HtoD", 24, 3, 2, cat="gpu_memcpy"), traces.allocation(21, 4000), traces.allocation(23, -4000),
        traces.op("autograd::engine::evaluate_function: MmBackward0", 40, 9, seq=3, fwd=1), traces.mm(41, 5, 5, 4, 6, seq=3, fwd=1),
        traces.op("aten::index", 50, 5, dims=[[5, 6], []], types=["float", ""], concrete=["", ""]), traces.launch(51, 1, 3),
        traces.kernel("ncclDevKernel_AllReduce", 52, 8, 3, stream=9),
        traces.op("Optimizer.step#SGD.step", 60, 20),
        traces.op("aten::_foreach_add_", 61, 9, dims=[[[5], [6, 7]], []], types=["TensorList", "Scalar"], concrete=["", "1"]),
        traces.op("aten::cat", 71, 3, dims=[[[5], [6]], []], types=["TensorList", "Scalar"], concrete=["", "0"]),
        traces.op("aten::convolution", 75, 4, dims=[[1, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], [], [], []],
                  types=["float", "float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"],
                  concrete=["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]),
        traces.span("rooflines.work: name=own&other_flops=7&bytes_read=9", 82, 3), traces.span("enumerate(DataLoader)#x.__next__",
        86, 3),
    ]  # fmt: skip
    noted = {"Collective name": "allreduce", "In msg nelems": 5, "Out msg nelems": 5, "dtype": "Float", "Group size": 2}
    by_hand.append({**traces.op("record_param_comms", 90, 2), "args": noted})
    by_hand[14]["args"] |= {**noted, "Process Group Name": "0"}
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85 * 10**9, "computeMajor": 9,
                              "computeMinor": 0, "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    }  # fmt: skip
    found = [json.dumps({**head, "traceEvents": by_hand}).encode(), json.dumps(by_hand[1:9]).encode()]
    found += [json.dumps({"traceEvents": by_hand[start : start + 6], **head}).encode() for start in (2, 9, 13, 16)]
    for path in sorted(DATA.glob("*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        events = [event for event in document["traceEvents"] if event.get("ph") == "X" and event.get("args")]
        operators = [event for event in events if event["cat"] == "cpu_op"][20:26]
        kernels = [event for event in events if event["cat"] == "kernel"][:3]
        ids = {event["args"].get("correlation") for event in kernels}
        calls = [event for event in events if "runtime" in event["cat"] and event["args"].get("correlation") in ids]
        found.append(json.dumps({**document, "traceEvents": [*operators, *calls, *kernels]}).encode())
    return found + [path.read_bytes() for path in sorted(FAILED.glob("*.json"))]


# --- mutations -----------------------------------------------------------------------------------------------------------------------


def mutated(data: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    """``data`` with one to six changes, of its values or of its bytes."""
    if rng.random() < 0.75:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, (dict, list)) and document:
            with contextlib.suppress(RecursionError):
                for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
                    _change(document, rng)
                data = json.dumps(document).encode()
            if rng.random() < 0.8:
                return data[:LARGEST_INPUT]
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = _bytes_changed(data, rng, pool)
    return data[:LARGEST_INPUT]


def _change(document: Any, rng: random.Random) -> None:
    """One change somewhere in ``document``."""
    holder = document
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = holder[key]
        if not (isinstance(inner, (dict, list)) and inner) or rng.random() < 0.12:
            break
        holder = inner
    kind = rng.randrange(10)
    if kind < 4:
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind == 4 and isinstance(inner, (int, float)):
        holder[key] = inner * rng.choice((-1, 0.5, 2, 1000, 10**15)) + rng.choice((0, 1, -1, 0.001, 1e6))
    elif kind == 5:
        del holder[key]
    elif kind == 6 and isinstance(holder, list):
        at = rng.randrange(len(holder) + 1)
        holder[at:at] = [copy.deepcopy(inner) for _ in range(rng.choice((1, 1, 2, 30)))]
    elif kind == 7 and isinstance(holder, list):
        rng.shuffle(holder)
    elif kind == 8 and isinstance(holder, dict):
        holder[rng.choice(KEYS)] = copy.deepcopy(rng.choice(VALUES))
    elif kind == 9:
        for _ in range(rng.choice((1, 2, 50))):
            inner = [inner] if rng.random() < 0.7 else {rng.choice(KEYS): inner}
        holder[key] = inner


def _bytes_changed(data: bytes, rng: random.Random, pool: list[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    until = min(len(data), at + rng.choice((1, 2, 8, 64, 1000)))
    kind = rng.randrange(8)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[until:]
    if kind == 2:
        return data[:at] + rng.randbytes(rng.choice((1, 2, 4))) + data[until:]
    if kind == 3:
        return data[:until] + data[at:]
    if kind == 4:
        other = rng.choice(pool)
        start = rng.randrange(len(other) + 1)
        return data[:at] + other[start : start + 300] + data[at:]
    if kind == 5 and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    token = rng.choice((b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\xff", b"NaN", b"-", b"1e999", b"0" * 500,
    b'{"ph":"X"},',
                        b"},{", b'"traceEvents":[', b"\xef\xbb\xbf", b"[" * 60, b"9" * 30, b"\x00"))  # fmt: skip
    return data[:at] + token + data[at if kind == 6 else until :]


# --- what is tried -------------------------------------------------------------------------------------------------------------------


class TooSlow(Exception):
    """A trace took more than ``LONGEST_S``."""


def attempt(data: bytes) -> str:
    """What became of one input: ``accepted`` with what was said of it, or ``refused`` and why, without the numbers. Raises what may not
    be raised."""
    from rooflines.errors import TraceError

    try:
        return analyzed(data)
    except TraceError as error:
        return "refused: " + "".join("#" if letter.isdigit() else letter for letter in error.message)[:60]


def analyzed(data: bytes) -> str:
    """What was said of an input that is a trace. Raises TraceError for others."""
    from rooflines import serial
    from rooflines.profiler.read.reader import read_pieces, whole_part
    from rooflines.profiler.read.records import ReadOptions
    from rooflines.profiler.tree.external_trace import run_of_trace
    from rooflines.profiler.tree.tree import tree
    from rooflines.roofline.analyze import analyze
    from rooflines.roofline.count.count import count as count_calls
    from rooflines.roofline.own.own import own

    options = ReadOptions(zlib.crc32(data) % 8 < 4, MEMORY_LIMIT_BYTES)
    trace = whole_part(read_pieces([data], "trace", options))
    calls = tree(trace)
    attribution = own(count_calls(calls))
    assert 0 <= attribution.busy_ns <= attribution.span_ns, "busy for longer than the span"
    assert all(row.time_ns >= 0 for row in attribution.rows), "an operator with less than no time"
    assert ((calls.after > range(len(calls.after))) & (calls.parent < range(len(calls.after)))).all(), "a call tree that is none"
    if zlib.crc32(data) % 4 == 0:  # the analysis does all of the above again
        serial.to_json(analyze(run_of_trace("fuzzed.json", trace), _ceilings(), trace).analysis)
    kinds = (len(trace.host) > 0, len(trace.device) > 0, len(trace.memory) > 0, attribution.steps > 0, len(attribution.gaps) > 0)
    said = sorted("".join("#" if letter.isdigit() else letter for letter in note)[:30] for note in trace.notes)
    return f"accepted: {''.join('01'[kind] for kind in kinds)} {' '.join(said)}"


@functools.cache
def _ceilings() -> Any:
    from rooflines.device_specs import catalog

    return catalog.look_up("NVIDIA H100 80GB HBM3", kind="cuda", multiprocessors=132)


class Session:
    """Runs inputs, times them, and keeps what fails."""

    def __init__(self, stop_at_failures: int = 20) -> None:
        self.runs = 0
        self.outcomes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.slowest_s = 0.0
        self.began = time.perf_counter()
        self.memory_start = 0
        self.grown_bytes = 0
        self._stop_at = stop_at_failures
        signal.signal(signal.SIGALRM, _too_slow)

    def run(self, data: bytes) -> str:
        """The outcome of ``data``; ``failed: ...`` where it is saved as a failure."""
        peak = peak_bytes()
        began = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        try:
            outcome = attempt(data)
        except Exception as error:  # everything is what is looked for
            place = traceback.extract_tb(error.__traceback__)[-1]
            outcome = f"failed: {type(error).__name__} {error} ({Path(place.filename).name}:{place.lineno})"[:200]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.slowest_s = max(self.slowest_s, time.perf_counter() - began)
        self.runs += 1
        self.outcomes[outcome] += 1
        if outcome.startswith("failed") and outcome not in self.failures:
            self._save(data, outcome)
        self.failures[outcome] += outcome.startswith("failed")
        if self.runs == SETTLING:
            self.memory_start = peak_bytes()
        elif self.runs > SETTLING:
            self.grown_bytes += peak_bytes() - peak
        return outcome

    def over(self) -> bool:
        """Whether enough different failures are known."""
        return sum(count > 0 for count in self.failures.values()) >= self._stop_at

    def _save(self, data: bytes, outcome: str) -> None:
        FAILED.mkdir(exist_ok=True)
        path = FAILED / f"{hashlib.sha256(data).hexdigest()[:12]}.json"
        path.write_bytes(data)
        print(f"{outcome}\n  saved as {path.name}", flush=True)

    def report(self, seed: int, guided: bool) -> int:
        """Print and write what was found; the exit status."""
        seconds = time.perf_counter() - self.began
        end = peak_bytes()
        start = self.memory_start or end
        accepted = sum(count for outcome, count in self.outcomes.items() if outcome.startswith("accepted"))
        failed = sum(self.failures.values())
        facts = {
            "runs": self.runs, "seed": seed, "guided": guided, "wall_s": round(seconds, 1), "runs_per_s": round(self.runs / seconds, 1),
            "accepted": accepted, "refused": self.runs - accepted - failed, "failed": failed,
            "distinct_outcomes": len(self.outcomes), "slowest_s": round(self.slowest_s, 3),
            "peak_memory_start_bytes": start, "peak_memory_end_bytes": end,
            "grown_in_runs_bytes": self.grown_bytes, "python": platform.python_version(),
        }  # fmt: skip
        for name, value in facts.items():
            print(f"{name:26} {value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{name:26} {value}")
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        RESULTS.write_text(json.dumps([*known, facts], indent=1) + "\n")
        # What atheris keeps grows while our code runs: 41 MB in 20,000 inputs that without it made 1 MB of difference.
        grew = self.grown_bytes > GROWTH_BYTES and not guided
        if grew:
            print(f"memory grew by {self.grown_bytes >> 20} MiB, more than {GROWTH_BYTES >> 20} MiB")
        return int(failed > 0 or grew)


def _too_slow(*_: object) -> None:
    raise TooSlow(f"more than {LONGEST_S} s")


def peak_bytes() -> int:
    """The most memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def plain(session: Session, runs: int, seconds: float, seed: int) -> None:
    """Mutations without knowledge of the code; an outcome that is new makes its input a seed."""
    rng = random.Random(seed)
    pool = seeds()
    for data in pool:
        session.run(data)
    while session.runs < runs and time.perf_counter() - session.began < seconds and not session.over():
        data = mutated(rng.choice(pool), rng, pool)
        before = len(session.outcomes)
        outcome = session.run(data)
        if len(session.outcomes) > before and not outcome.startswith("failed") and len(pool) < 2000:
            pool.append(data)


def guided(session: Session, runs: int, seconds: float, seed: int) -> None:
    """Mutations chosen by atheris for the code that they reach; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["rooflines.profiler.read", "rooflines.roofline.own.own"]):
        import rooflines.profiler.read.reader
        import rooflines.profiler.tree.tree
        import rooflines.roofline.own.own  # noqa: F401

    pool = seeds()
    corpus = Path(tempfile.mkdtemp(prefix="rooflines-fuzz-"))
    for number, data in enumerate(pool):
        (corpus / f"{number}.json").write_bytes(data)

    def one(data: bytes) -> None:
        session.run(data)
        if session.runs >= runs or time.perf_counter() - session.began > seconds or session.over():
            status = session.report(seed, True)
            shutil.rmtree(corpus)
            sys.stdout.flush()
            os._exit(status)

    def mutator(data: bytes, largest: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.5:
            return mutated(bytes(data), rng, pool)[:largest]
        return atheris.Mutate(data, largest)

    atheris.Setup(
        [sys.argv[0], str(corpus), f"-seed={seed + 1}", f"-max_len={LARGEST_INPUT}", "-rss_limit_mb=4096", "-verbosity=0"],
        one, custom_mutator=mutator, internal_libfuzzer=True,
    )  # fmt: skip
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, whatever was run")
    parser.add_argument("--guided", action="store_true", help="with atheris")
    options = parser.parse_args()
    warnings.simplefilter("error")  # an overflow in a column is a wrong number
    session = Session()
    (guided if options.guided else plain)(session, options.runs, options.seconds, options.seed)
    return session.report(options.seed, options.guided)


if __name__ == "__main__":
    sys.exit(main())
