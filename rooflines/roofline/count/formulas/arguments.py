"""A call's arguments by the names of its schema, and the sizes that every family of formulas needs.

A formula states its operator's schema as text, ``"self dim=0 keepdim=False"``, and asks for arguments by
name. An argument beyond the recorded ones takes the schema's default; one that was there and could not be
read is never guessed: the call is not counted and the reason names it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TypeVar

from rooflines.profiler.read.signature import (
    DTYPE_BYTES,
    MISSING,
    SCALAR_TYPES,
    Argument,
    Signature,
    TensorArg,
)

Ints = tuple[int, ...]
TensorArgs = tuple[TensorArg, ...]
_Found = TypeVar("_Found")
_LONGEST_WALK = 1 << 20


class NotCounted(Exception):
    """This call has no count; the message is the reason a person reads."""


class Dispatches(Exception):
    """This call only hands its work to other operators, which carry what the count needs.

    A message says why kernels that it launches itself have no work.
    """


@cache
def _parse(schema: str) -> dict[str, tuple[int, Argument]]:
    fields = {}
    for index, field in enumerate(schema.split()):
        name, _, default = field.partition("=")
        fields[name] = (index, ast.literal_eval(default) if default else MISSING)
    return fields


def _flat(value: Argument) -> Iterator[TensorArg]:
    if isinstance(value, TensorArg):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _flat(item)


class Arguments:
    """The arguments of ``signature`` under the names in ``schema``."""

    def __init__(self, signature: Signature, schema: str) -> None:
        self.signature = signature
        self._fields = _parse(schema)

    def _found(self, name: str) -> Argument:
        index, default = self._fields[name]
        return self.signature.args[index] if index < len(self.signature.args) else default

    def value(self, name: str, absent: Argument = MISSING) -> Argument:
        """The argument as recorded, its default, or ``absent`` where the schema has no such name; raises
        NotCounted otherwise."""
        if name not in self._fields and absent is not MISSING:
            return absent
        found = self._found(name)
        if found is MISSING:
            raise NotCounted(f"argument '{name}' not recorded")
        return found

    def has(self, name: str) -> bool:
        """Whether the schema has an argument of this name."""
        return name in self._fields

    def recorded(self, name: str) -> bool:
        """Whether the argument was recorded or has a default."""
        return self._found(name) is not MISSING

    def told(self, name: str) -> bool:
        """Whether the schema has an argument of this name, and it was recorded or has a default."""
        return self.has(name) and self.recorded(name)

    def given(self, name: str) -> Argument:
        """The argument as recorded or its default, None where there is neither."""
        return self.value(name) if self.told(name) else None

    def tensor(self, name: str) -> TensorArg:
        """A tensor that the operator cannot do without."""
        found = self.optional(name)
        if found is None:
            raise NotCounted(f"shape of '{name}' not recorded")
        return found

    def operands(self, *names: str) -> TensorArgs:
        """Tensors that the operator cannot do without."""
        return tuple(map(self.tensor, names))

    def optional(self, name: str) -> TensorArg | None:
        """A tensor, or None where the call had none (old traces do not tell None from unrecorded)."""
        if name not in self._fields:
            return None
        found = self.signature.arg(self._fields[name][0])
        return found if isinstance(found, TensorArg) else None

    def optionals(self, *names: str) -> tuple[TensorArg | None, ...]:
        """Tensors, each None where the call had none."""
        return tuple(map(self.optional, names))

    def tensors(self, name: str) -> TensorArgs:
        """The tensors of a list argument, or of a list of lists, perhaps none."""
        found = self.value(name, absent=())
        return tuple(_flat(found)) if isinstance(found, tuple) else ()

    def integer(self, name: str, absent: int | None = None) -> int:
        """One integer."""
        found = self.value(name, absent=MISSING if absent is None else absent)
        if not isinstance(found, int):
            raise NotCounted(f"argument '{name}' not recorded")
        return found

    def integers(self, name: str, rank: int, absent: int | None = None) -> Ints:
        """``rank`` integers; a single one applies to all."""
        found = self.value(name, absent=MISSING if absent is None else absent)
        if isinstance(found, int):
            return (found,) * rank
        if (
            isinstance(found, tuple)
            and all(isinstance(item, int) for item in found)
            and len(found) in (1, rank)
        ):
            return found if len(found) == rank else found * rank
        raise NotCounted(f"argument '{name}' not recorded")

    def sizes(self, name: str) -> Ints:
        """A list of integers of any length."""
        found = self.value(name)
        if isinstance(found, tuple) and all(isinstance(item, int) for item in found):
            return found
        raise NotCounted(f"argument '{name}' not recorded")

    def flag(self, name: str, absent: bool | None = None) -> bool:
        """A boolean."""
        return bool(self.integer(name, absent))

    def mask(self, name: str, length: int) -> tuple[bool, ...]:
        """``length`` booleans saying which outputs were asked for; all of them where the schema has no such
        argument."""
        return tuple(bool(item) for item in self.integers(name, length, absent=1))

    def dtype(self, name: str, default: str) -> str:
        """The dtype argument ``name``, ``default`` where the schema has or the call gave none, or the trace
        records no values."""
        found = self.given(name)
        if found is None:
            return default
        if isinstance(found, int) and found in SCALAR_TYPES:
            return SCALAR_TYPES[found]
        raise NotCounted(f"argument '{name}' not recorded")


def listed(found: Argument) -> TensorArgs:
    """The tensors of a list; none of what is no list."""
    return tuple(item for item in found if isinstance(item, TensorArg)) if isinstance(found, tuple) else ()


def known(found: _Found | None, reason: str) -> _Found:
    """What was found; raises NotCounted with the reason where nothing was."""
    if found is None:
        raise NotCounted(reason)
    return found


def every(count: int) -> range:
    """The positions of a dimension that a formula walks one by one; raises NotCounted for one too long for
    that."""
    if count > _LONGEST_WALK:
        raise NotCounted("invalid size")
    return range(count)


def distinct(tensor: TensorArg) -> int:
    """Distinct elements in storage: expanded dimensions once, overlapping windows (``unfold``) once.

    A tensor cannot hold more distinct elements than lie between its first and its last one.
    """
    return min(tensor.distinct, tensor.extent) if tensor.extent > 0 else tensor.distinct


def size_of(dtype: str) -> int:
    """Bytes of one element of this dtype."""
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        raise NotCounted(f"unknown dtype '{dtype}'") from None


def size(*tensors: TensorArg | None) -> int:
    """Bytes of the distinct elements of all these tensors, or of what sparse ones store; None counts as no
    tensor."""
    given = (tensor for tensor in tensors if tensor is not None)
    return sum(
        tensor.stored[1] if tensor.stored else distinct(tensor) * size_of(tensor.dtype) for tensor in given
    )


def written(*tensors: TensorArg | None) -> int:
    """Bytes of every element of these results; None counts as no tensor."""
    return sum(tensor.numel * size_of(tensor.dtype) for tensor in tensors if tensor is not None)


def selected(source: TensorArg, elements: int) -> int:
    """Bytes of ``elements`` of ``source``, or of all that it has."""
    return min(elements, distinct(source)) * size_of(source.dtype)


def share(tensors: Iterable[TensorArg | None], experts: int, rows: int) -> int:
    """Bytes of the tensors, of those with one part for each expert as many parts as there are rows at
    most."""
    return sum(
        size(tensor) * min(experts, rows) // experts
        if tensor and experts and tensor.shape[:1] == (experts,)
        else size(tensor)
        for tensor in tensors
    )


def broadcast(shapes: Iterable[Ints]) -> Ints:
    """The shape of an element-wise result: dimensions aligned at the right, 1 stretched."""
    out: list[int] = []
    for shape in shapes:
        out = [1] * (len(shape) - len(out)) + out
        for axis, extent in enumerate(reversed(shape), start=1):
            if out[-axis] == 1:
                out[-axis] = extent
            elif extent not in (1, out[-axis]):
                raise NotCounted("shapes do not broadcast")
    return tuple(out)


def floating(dtype: str) -> bool:
    """Whether the dtype holds floating-point or complex numbers."""
    return dtype.startswith(("float", "bfloat", "complex"))


def _kind(dtype: str) -> int:
    return 3 if dtype.startswith("complex") else 2 if floating(dtype) else 0 if dtype == "bool" else 1


def promote(operands: Iterable[Argument]) -> str:
    """The dtype of an element-wise result, by torch's rule: tensors decide, a 0-dimensional one or a number
    counts only by its kind.

    A number in an expression reaches the operator as a 0-dimensional float64 or int64 tensor, and cannot be
    told from a real one.
    """
    full: list[str] = []
    scalars: list[str] = []
    numbers: list[str] = []
    for operand in operands:
        if isinstance(operand, TensorArg) and operand.shape:
            full.append(operand.dtype)
        elif isinstance(operand, TensorArg) and operand.dtype not in ("float64", "complex128"):
            scalars.append(operand.dtype)
        elif isinstance(operand, TensorArg):
            wide, usual = (
                ("float64", "float32") if operand.dtype == "float64" else ("complex128", "complex64")
            )
            numbers.append(wide if not full and not scalars else usual)
        elif isinstance(operand, bool | int | float | complex):
            numbers.append(
                {bool: "bool", int: "int64", float: "float32", complex: "complex64"}[type(operand)]
            )
    tiers = [tier for tier in (full, scalars, numbers) if tier]
    if not tiers:
        raise NotCounted("shapes not recorded")
    best = _widest(tiers[0])
    for tier in tiers[1:]:
        weaker = _widest(tier)
        if _kind(weaker) > _kind(best):
            best = _COMPLEX_OF.get(best, weaker) if weaker.startswith("complex") else weaker
    return best


# The complex dtype whose parts hold numbers of a real one.
_COMPLEX_OF = {
    "float64": "complex128",
    "float32": "complex64",
    "bfloat16": "complex64",
    "float16": "complex32",
}


def _widest(dtypes: list[str]) -> str:
    if any(dtype.startswith("complex") for dtype in dtypes):
        dtypes = [_COMPLEX_OF.get(dtype, dtype) for dtype in dtypes]
    kind = max(map(_kind, dtypes))
    same = {dtype for dtype in dtypes if _kind(dtype) == kind}
    if same == {"float16", "bfloat16"}:
        return "float32"
    return max(sorted(same), key=size_of)
