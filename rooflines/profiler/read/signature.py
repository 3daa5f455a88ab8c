"""The signature of an operator call, as a trace records it: name, and for each argument a tensor, a value, or
nothing.

A trace with a million events holds a few hundred distinct signatures, so everything expensive (counting,
shape inference) is done once per signature. Signatures are hashable and need no torch. ``StoredCall`` is a
call as ``run.json`` and ``compiled.json`` store it, with the arguments that a trace leaves out.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from itertools import islice, zip_longest
from math import prod
from typing import Any, TypeAlias

import msgspec

# An argument that the call had and the trace did not record.
MISSING = msgspec.UNSET

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "complex64": 8,
    "complex128": 16,
    "complex32": 4,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "qint8": 1,
    "quint8": 1,
    "qint32": 4,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}

# torch.ScalarType's numbers, as traces record a dtype argument.
SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    8: "complex32",
    9: "complex64",
    10: "complex128",
    11: "bool",
    12: "qint8",
    13: "quint8",
    14: "qint32",
    15: "bfloat16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
    27: "uint16",
    28: "uint32",
    29: "uint64",
    44: "float8_e8m0fnu",
    45: "float4_e2m1fn_x2",
}

# What Kineto prints for a dtype (C++ type names, since 2021) -> the name torch and numpy use.
_KINETO_DTYPES = {
    "double": "float64",
    "float": "float32",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "c10::complex<c10::Half>": "complex32",
    "long int": "int64",
    "__int64": "int64",
    "long": "int64",
    "long long": "int64",  # on Windows __int64
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "unsigned short": "uint16",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
    "bool": "bool",
    "c10::qint8": "qint8",
    "c10::quint8": "quint8",
    "c10::qint32": "qint32",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "c10::Float4_e2m1fn_x2": "float4_e2m1fn_x2",
}


# What Kineto prints for the dtype of a collective -> torch.ScalarType's number.
COLLECTIVE_DTYPES = {
    "Byte": 0,
    "Char": 1,
    "Short": 2,
    "Int": 3,
    "Long": 4,
    "Half": 5,
    "Float": 6,
    "Double": 7,
    "ComplexHalf": 8,
    "ComplexFloat": 9,
    "ComplexDouble": 10,
    "Bool": 11,
    "BFloat16": 15,
    "Float8_e5m2": 23,
    "Float8_e4m3fn": 24,
}

# Tools that write traces themselves use torch.ScalarType's names (``Float``), or types in lower case
# (``c10::bfloat16``).
_OTHER_DTYPES = {
    **{name.removeprefix("c10::").lower(): dtype for name, dtype in _KINETO_DTYPES.items()},
    **{name.lower(): SCALAR_TYPES[number] for name, number in COLLECTIVE_DTYPES.items()},
}


# Operators of which a trace does not hold every argument: the tensors of an index, the packed weights of a
# quantized layer, the sizes of groups. One that asks a sparse tensor for its elements is called by those that
# are given one.
LOSSY = (
    "aten::index",
    "aten::_unsafe_index",
    "aten::_index_put_impl_",
    "aten::_grouped_mm",
    "aten::_nnz",
    "quantized::",
    "onednn::",
    "torchao::",
)

# A tensor's elements, and every integer among arguments, fit into 64 bits; torch itself stops at 64
# dimensions in its kernels.
_LARGEST = (1 << 63) - 1
_MOST_DIMENSIONS = 256
# More than any operator of torch, or fused kernel, takes.
_MOST_ARGUMENTS = 4096
_MOST_VALUES = 1024
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


@dataclass(frozen=True, slots=True)
class TensorArg:
    """A tensor argument: its shape, dtype (``float32``) and strides in elements (None where the trace has
    none).

    ``stored`` is the number of elements that a sparse tensor stores, and their bytes with those of their
    places, where they are known.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    stored: tuple[int, int] | None = None

    @property
    def numel(self) -> int:
        """Number of elements, expanded dimensions counted."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element; KeyError for an unknown dtype."""
        return DTYPE_BYTES[self.dtype]

    @property
    def distinct(self) -> int:
        """Number of distinct elements in storage: a dimension with stride 0 (an expanded one) counts once."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.numel
        return prod(
            size for size, stride in zip(self.shape, self.strides, strict=True) if stride != 0 or size == 0
        )

    @property
    def extent(self) -> int:
        """Elements from the first to the last one in memory."""
        if self.strides is None or len(self.strides) != len(self.shape) or not self.numel:
            return self.numel
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the distinct elements."""
        return self.distinct * self.itemsize


Tensors: TypeAlias = tuple[TensorArg, ...]
# TensorArg | tuple[TensorArg, ...] | int | float | bool | str | tuple[int | float | bool, ...] | None |
# UnsetType
Argument = Any
# The values of a call: by their place, and by their name.
Positional: TypeAlias = tuple[Any, ...]
Keywords: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """An operator's name with its arguments in schema order. Trailing arguments may be absent from old
    traces."""

    name: str
    args: tuple[Argument, ...] = ()

    def arg(self, index: int, default: Argument = MISSING) -> Argument:
        """Argument ``index``, or ``default`` where it is beyond the recorded ones or was not recorded."""
        if index >= len(self.args) or self.args[index] is MISSING:
            return default
        return self.args[index]

    @property
    def tensors(self) -> Tensors:
        """Every tensor among the arguments, those in lists included, in order."""
        items = (item for arg in self.args for item in (arg if isinstance(arg, tuple) else (arg,)))
        return tuple(item for item in items if isinstance(item, TensorArg))

    def shapes(self) -> str:
        """The tensor shapes for a person: ``4x64x56x56, 64x64x3x3``; a list of tensors as its count and total
        elements."""
        parts: list[str] = []
        for arg in self.args:
            if isinstance(arg, TensorArg):
                parts.append("x".join(map(str, arg.shape)) or "scalar")
            elif isinstance(arg, tuple) and arg and isinstance(arg[0], TensorArg):
                parts.append(
                    f"{len(arg)} tensors of {sum(item.numel for item in arg if isinstance(item, TensorArg))}"
                )
        return ", ".join(parts)


def from_kineto(name: str, args: dict[str, Any], list_dtype: str = "float32") -> Signature:
    """The signature in a Kineto event's ``args``: ``Input Dims``, ``Input type``, ``Input Strides``,
    ``Concrete Inputs``.

    Kineto writes the type of a list of tensors as ``TensorList``, without their dtype: they get
    ``list_dtype``. It writes neither strings nor lists of optional tensors (the indices of ``aten::index``):
    both read as None.

    Fields that a trace lacks become MISSING arguments, never guesses. Nothing here raises on malformed
    fields: what cannot be read is MISSING.
    """
    given = (
        args.get("Input Dims", args.get("Input dims")),
        *map(args.get, ("Input type", "Input Strides", "Concrete Inputs")),
    )
    dims, types, strides, concrete = (values if isinstance(values, list) else [] for values in given)
    count = min(max(len(dims), len(types), len(concrete)), _MOST_ARGUMENTS)
    arguments = islice(zip_longest(dims, types, strides, concrete), count)
    return Signature(name, tuple(_argument(*argument, list_dtype) for argument in arguments))


def collective(
    name: str, kind: str | None, elements_in: int | None, elements_out: int | None, dtype: str | None
) -> Signature:
    """The signature of the event that a process group leaves of a collective: what was done, how many
    elements this rank sent and received, and their dtype (``"allreduce"``, 1024, 1024, ``"Float"``); MISSING
    for what is not known."""
    said = (kind, elements_in, elements_out, COLLECTIVE_DTYPES.get(dtype or ""))
    return Signature(name, tuple(MISSING if value is None else value for value in said))


def _argument(dims: Any, kind: Any, strides: Any, concrete: Any, list_dtype: str) -> Argument:
    if kind == "TensorList" or (isinstance(dims, list) and dims and isinstance(dims[0], list)):
        return _tensor_list(dims, strides, list_dtype)
    dtype = None
    if isinstance(kind, str):  # in traces of 2021 a number is an ``Int`` without sizes
        kind = kind.removeprefix("struct ")  # on Windows
        dtype = _KINETO_DTYPES.get(kind) or (
            _OTHER_DTYPES.get(kind.removeprefix("c10::").lower()) if dims else None
        )
    if dtype is not None and isinstance(dims, list):
        tensor = _tensor(dims, dtype, strides)
        return MISSING if tensor is None else tensor
    if isinstance(concrete, str) and concrete:
        return _value(concrete)
    if concrete == "" and kind == "":
        return None
    return MISSING


def _tensor_list(dims: Any, strides: Any, dtype: str) -> Tensors | msgspec.UnsetType:
    if not isinstance(dims, list):
        return ()
    rows = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
    tensors = [
        _tensor(shape, dtype, row) for shape, row in zip(dims, rows, strict=True) if isinstance(shape, list)
    ]
    return MISSING if None in tensors else tuple(tensors)  # type: ignore[arg-type]


def _tensor(dims: list[Any], dtype: str, strides: Any) -> TensorArg | None:
    """None for sizes that no tensor has; strides that do not go with the sizes are none."""
    if len(dims) > _MOST_DIMENSIONS or not _are_integers(dims) or min(dims, default=0) < 0:
        return None
    if prod(max(size, 1) for size in dims) > _LARGEST:
        return None
    fitting = isinstance(strides, list) and len(strides) == len(dims) and _are_integers(strides)
    if fitting and any(abs(stride) > _LARGEST for stride in strides):
        return None
    return TensorArg(tuple(dims), dtype, tuple(strides) if fitting else None)


def _are_integers(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def _value(text: str) -> Argument:
    if len(text) > 4096:
        return MISSING
    if text in ("inf", "-inf"):
        return float(text)
    value = _json(text)
    if value is MISSING:
        try:
            value = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return text if _WORD.match(text) else MISSING
    return _plain(value)


def _json(text: str) -> Any:
    """A number or a list, which JSON reads fifty times as fast as Python; MISSING for anything else."""
    if text[0] not in "[-0123456789":
        return MISSING
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return MISSING


def _plain(value: Any) -> Argument:
    """A number, word, None or a tuple of these; MISSING for what no argument is, such as an object or an
    integer beyond 64 bits."""
    if isinstance(value, (list, tuple)):
        items = tuple(
            _plain(item) if not isinstance(item, (list, tuple)) else MISSING
            for item in value[: _MOST_VALUES + 1]
        )
        return MISSING if len(items) > _MOST_VALUES or MISSING in items else items
    if isinstance(value, int):
        return value if -_LARGEST <= value <= 2 * _LARGEST + 1 else MISSING
    return value if value is None or isinstance(value, (float, complex, str)) else MISSING


class StoredCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: the operator, its arguments and its results.

    A tensor is ``{"shape", "dtype", "strides"}``, a number that JSON has not ``{"number": "-inf"}``, a
    missing argument ``{}``.
    """

    name: str
    args: list[Any]
    outputs: list[Any]

    @classmethod
    def of(cls, signature: Signature, outputs: Tensors) -> StoredCall:
        """The call with this signature and these results."""
        return cls(
            name=signature.name,
            args=list(map(_encoded, signature.args)),
            outputs=list(map(_encoded, outputs)),
        )

    @property
    def signature(self) -> Signature:
        """The call as a signature."""
        return Signature(self.name, tuple(map(_decoded, self.args)))

    @property
    def results(self) -> Tensors:
        """The tensors that it returned."""
        return tuple(map(_decoded, self.outputs))


def _encoded(value: Argument) -> Any:
    match value:
        case TensorArg():
            strides = None if value.strides is None else list(value.strides)
            sparse = {} if value.stored is None else {"stored": list(value.stored)}
            return {"shape": list(value.shape), "dtype": value.dtype, "strides": strides, **sparse}
        case tuple():
            return list(map(_encoded, value))
        case None | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"number": str(value)}
    return {}


def _decoded(value: Any) -> Argument:
    if isinstance(value, dict):
        if not value:
            return MISSING
        if "number" in value:
            return float(value["number"])
        strides, stored = (
            None if given is None else tuple(given) for given in map(value.get, ("strides", "stored"))
        )
        return TensorArg(tuple(value["shape"]), value["dtype"], strides, stored)
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    return value
