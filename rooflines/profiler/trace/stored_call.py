"""An operator call as ``run.json`` and ``compiled.json`` store it, with the arguments that a trace leaves out."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from rooflines.profiler.trace.signature import MISSING, Argument, Signature, TensorArg

# Operators of which a trace does not hold every argument: the tensors of an index, the packed weights of a quantized layer.
LOSSY: Final = ("aten::index", "aten::_unsafe_index", "aten::_index_put_impl_", "quantized::", "onednn::", "torchao::")


class StoredCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: the operator, its arguments and its results.

    A tensor is ``{"shape", "dtype", "strides"}``, a number that JSON has not ``{"number": "-inf"}``, a missing argument ``{}``.
    """

    name: str
    args: list[Any]
    outputs: list[Any]

    @classmethod
    def of(cls, signature: Signature, outputs: tuple[TensorArg, ...]) -> StoredCall:
        """The call with this signature and these results."""
        return cls(name=signature.name, args=list(map(_encoded, signature.args)), outputs=list(map(_encoded, outputs)))

    @property
    def signature(self) -> Signature:
        """The call as a signature."""
        return Signature(self.name, tuple(map(_decoded, self.args)))

    @property
    def results(self) -> tuple[TensorArg, ...]:
        """The tensors that it returned."""
        return tuple(map(_decoded, self.outputs))


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
