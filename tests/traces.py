"""Small Kineto traces written by hand: one line an event, microseconds, so that a test's arithmetic can be read off."""

import json
from typing import Any

from rooflines.profiler.read.reader import read_pieces, whole_part
from rooflines.profiler.read.records import READ_DEFAULTS, ReadOptions, Trace
from rooflines.profiler.read.sources import PIECE_BYTES


def parse_trace(data: bytes, origin: str = "trace", options: ReadOptions = READ_DEFAULTS) -> Trace:
    """The trace in the JSON's bytes; ``origin`` names them in errors."""
    parts = (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))
    return whole_part(read_pieces(parts, origin, options))


def op(name: str, ts: float, dur: float, *, tid: int = 1, seq: int | None = None, fwd: int = 0, **args: Any) -> dict[str, Any]:
    """An operator on thread ``tid``; ``dims``, ``types``, ``strides``, ``concrete`` are its recorded arguments."""
    names = {"dims": "Input Dims", "types": "Input type", "strides": "Input Strides", "concrete": "Concrete Inputs"}
    fields = {names[key]: value for key, value in args.items()}
    if seq is not None:
        fields |= {"Sequence number": seq, "Fwd thread id": fwd}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": fields}


def add(ts: float, dur: float, size: int = 1000, **more: Any) -> dict[str, Any]:
    """``aten::add`` of two float32 vectors of ``size``: ``size`` FLOPs, 12 bytes an element."""
    return op("aten::add", ts, dur, dims=[[size], [size], []], types=["float", "float", "Scalar"], concrete=["", "", "1"], **more)


def mm(ts: float, dur: float, m: int, k: int, n: int, **more: Any) -> dict[str, Any]:
    """``aten::mm``: 2*m*k*n matrix FLOPs."""
    return op("aten::mm", ts, dur, dims=[[m, k], [k, n]], types=["float", "float"], **more)


def span(name: str, ts: float, dur: float, *, tid: int = 1) -> dict[str, Any]:
    """A user annotation."""
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def launch(ts: float, dur: float, correlation: int, *, tid: int = 1) -> dict[str, Any]:
    """A CUDA launch on the host."""
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": tid, "ts": ts, "dur": dur,
            "args": {"correlation": correlation}}  # fmt: skip


def kernel(name: str, ts: float, dur: float, correlation: int, *, stream: int = 7, cat: str = "kernel") -> dict[str, Any]:
    """A kernel (or memcpy, memset) on the device."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
            "args": {"correlation": correlation, "stream": stream, "device": 0}}  # fmt: skip


def allocation(ts: float, size: int, *, tid: int = 1) -> dict[str, Any]:
    """An allocation (a free where ``size`` is negative)."""
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": tid, "ts": ts,
            "args": {"Bytes": size, "Total Allocated": 0, "Device Type": 0, "Device Id": -1}}  # fmt: skip


def trace(*events: dict[str, Any]) -> Trace:
    """The trace of ``events``, through the real reader."""
    return parse_trace(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}).encode())
