"""Calls of a step with the arguments that a trace leaves out: the tensors of an index, the packed weights of a quantized layer.

A run of a workload that we own makes one step more, after everything is measured, under the recorder; the calls that the trace cannot
hold whole are kept in ``run.json`` in the order in which the step makes them.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from rooflines.profiler.trace.signature import MISSING, Argument, Signature, TensorArg

# Operators that are looked for in a trace; ``recorder.py`` keeps the same ones.
LOSSY: Final = ("aten::index", "aten::_unsafe_index", "aten::_index_put_impl_", "quantized::", "onednn::", "torchao::")
_CHUNK: Final = 1 << 22


class NotedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: the operator, its arguments and its results.

    A tensor is ``{"shape", "dtype", "strides"}``, a number that JSON has not ``{"number": "-inf"}``, a missing argument ``{}``.
    """

    name: str
    args: list[Any]
    outputs: list[Any]

    @property
    def signature(self) -> Signature:
        """The call as a signature."""
        return Signature(self.name, tuple(map(_decoded, self.args)))

    @property
    def results(self) -> tuple[TensorArg, ...]:
        """The tensors that it returned."""
        return tuple(map(_decoded, self.outputs))


def note(step: Callable[[], object]) -> tuple[NotedCall, ...]:
    """Run ``step`` once more and return its calls of lossy operators in order; what it raises passes through."""
    from rooflines.profiler.recorder import record

    recording = record(step, None, untouched=False)
    return tuple(noted_call(call.signature, call.outputs) for call in recording.lossy)


def noted_call(signature: Signature, outputs: tuple[TensorArg, ...]) -> NotedCall:
    """A call as it is stored."""
    return NotedCall(name=signature.name, args=list(map(_encoded, signature.args)), outputs=list(map(_encoded, outputs)))


def leaves_out(trace: Path) -> bool:
    """Whether the trace holds an operator whose arguments it cannot hold whole."""
    marks = [f'"name": "{name}'.encode() for name in LOSSY]
    kept = max(map(len, marks))
    tail = b""
    with gzip.open(trace, "rb") as file:
        while chunk := file.read(_CHUNK):
            window = tail + chunk
            if any(mark in window for mark in marks):
                return True
            tail = window[-kept:]
    return False


def _encoded(value: Argument) -> Any:
    if isinstance(value, TensorArg):
        return {"shape": list(value.shape), "dtype": value.dtype, "strides": None if value.strides is None else list(value.strides)}
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return {"number": str(value)} if isinstance(value, float) else {}


def _decoded(value: Any) -> Argument:
    if isinstance(value, dict):
        if not value:
            return MISSING
        if "number" in value:
            return float(value["number"])
        strides = value.get("strides")
        return TensorArg(tuple(value["shape"]), value["dtype"], None if strides is None else tuple(strides))
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    return value
