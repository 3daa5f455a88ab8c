"""Ranges in the trace that torch's profiler writes, and ranges of declared work: what a kernel outside of
PyTorch (Numba, CuPy, Triton) computes and moves, as its author states it.

Declared work is a range whose name carries the numbers, ``rooflines.work: name=histogram&flops=4096``: a
query string, because Kineto drops quotes, backslashes and non-ASCII characters from names.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

from rooflines.errors import UsageError


def profiler_range(name: str) -> Any:
    """Return a context manager that writes the range.

    torch's C++ range costs a tenth of the Python one. It exists in every supported torch on Linux.
    """
    return _range_of_torch()(name)


@functools.cache
def _range_of_torch() -> Any:
    import torch

    return getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)


RANGE_PREFIX = "rooflines.work: "
PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
_NUMBERS = ("matrix_flops", "other_flops", "bytes_read", "bytes_written")
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DeclaredWork:
    """One call of a user's kernel: FLOPs on matrix engines and elsewhere, compulsory bytes, the precision of
    the arithmetic."""

    name: str
    matrix_flops: int = 0
    other_flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    precision: str | None = None


def declare_work(
    name: str = "user kernel",
    *,
    flops: int | None = None,
    matrix_flops: int = 0,
    bytes: int | None = None,
    bytes_read: int = 0,
    bytes_written: int = 0,
    precision: str | None = None,
) -> WorkRange:
    """Declare what the code inside the ``with`` block computes and moves, once for each time that it is
    entered.

    ``flops`` counts all of them, ``matrix_flops`` those among them that are products on matrix engines
    (default: none, or all where ``flops`` is left out). ``bytes`` is what must be read and written together;
    or say ``bytes_read`` and ``bytes_written``. ``precision`` (fp64 fp32 tf32 bf16 fp16 fp8 int8) chooses the
    compute roof; without it only bytes are judged. Operators inside are part of the declared work and are not
    counted again. Costs about two microseconds when no profiler runs.

    >>> with rooflines.declare_work("histogram", flops=image.size, bytes=image.nbytes):
    ...     histogram(image, bins)

    Raises UsageError for an invalid count of FLOPs or bytes.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"the name of declared work must be a non-empty string, got {name!r}.")
    if precision is not None and precision not in PRECISIONS:
        raise UsageError(
            f"unknown precision {precision!r} for work '{name}'.", hint=f"Choose from {' '.join(PRECISIONS)}."
        )
    matrix = _whole(name, "matrix_flops", matrix_flops)
    every = matrix if flops is None else _whole(name, "flops", flops)
    if every < matrix:
        raise UsageError(
            f"work '{name}': matrix_flops={matrix} is more than flops={every}.",
            hint="flops includes matrix_flops.",
        )
    read, written = _whole(name, "bytes_read", bytes_read), _whole(name, "bytes_written", bytes_written)
    if bytes is not None:
        if read or written:
            raise UsageError(
                f"work '{name}': bytes cannot be combined with bytes_read or bytes_written.",
                hint="bytes is the sum of bytes_read and bytes_written.",
            )
        read = _whole(name, "bytes", bytes)
    return WorkRange(DeclaredWork(name, matrix, every - matrix, read, written, precision))


class WorkRange:
    """A context in which the declared work is done; it may be entered again, inside itself and on several
    threads."""

    __slots__ = ("declared",)

    def __init__(self, declared: DeclaredWork) -> None:
        self.declared = declared

    def __enter__(self) -> DeclaredWork:
        span = None
        if "torch" in sys.modules:
            span = profiler_range(range_name(self.declared))
            span.__enter__()
        if not _THREAD.entered:
            for listener in _THREAD.listeners:
                listener(self.declared)
        _THREAD.entered.append((self.declared, span))
        return self.declared

    def __exit__(self, *details: object) -> None:
        _, span = _THREAD.entered.pop()
        if span is not None:
            span.__exit__(*details)


def active() -> DeclaredWork | None:
    """The declared work of the innermost range that this thread is in; None outside of all."""
    return _THREAD.entered[-1][0] if _THREAD.entered else None


@contextlib.contextmanager
def listening(listener: Callable[[DeclaredWork], None]) -> Iterator[None]:
    """While it is open, ``listener`` is called with the work of every range that this thread enters outside
    of all others.

    A kernel that calls no operator is seen by nothing else.
    """
    _THREAD.listeners.append(listener)
    try:
        yield
    finally:
        _THREAD.listeners.remove(listener)


@lru_cache(maxsize=1024)
def range_name(declared: DeclaredWork) -> str:
    """The name of the range for ``declared`` in a trace."""
    return RANGE_PREFIX + urlencode({key: value for key, value in asdict(declared).items() if value})


def from_range_name(name: str) -> DeclaredWork | None:
    """The declared work in the name of a range; None where the name is not one of ours or has invalid
    numbers."""
    if not name.startswith(RANGE_PREFIX):
        return None
    fields = dict(parse_qsl(name.removeprefix(RANGE_PREFIX)))
    try:
        numbers = {key: int(fields.get(key, "0")) for key in _NUMBERS}
    except ValueError:
        return None
    if "name" not in fields or any(not 0 <= number <= _LARGEST for number in numbers.values()):
        return None
    precision = fields.get("precision")
    return DeclaredWork(fields["name"], **numbers, precision=precision if precision in PRECISIONS else None)


def _whole(name: str, field: str, value: Any) -> int:
    """``value`` as a Python integer: also numpy's and torch's, no float, no negative one."""
    try:
        whole = operator.index(value) if not isinstance(value, bool) else -1
    except TypeError:
        raise UsageError(
            f"{field} of work '{name}' must be an integer, got {value!r}.", hint="Round it with int()."
        ) from None
    if not 0 <= whole <= _LARGEST:
        raise UsageError(f"{field} of work '{name}' must be an integer from 0 to 2**63 - 1, got {value!r}.")
    return whole


class _Thread(threading.local):
    """What this thread is in, outermost first, each with its range; and who wants to know."""

    def __init__(self) -> None:
        self.entered: list[tuple[DeclaredWork, Any]] = []
        self.listeners: list[Callable[[DeclaredWork], None]] = []


_THREAD = _Thread()
