"""The signature of a call that a dispatch mode sees: exact where a trace is not (strings, lists of optional
tensors, packings)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from rooflines.profiler.read.signature import (
    MISSING,
    SCALAR_TYPES,
    Argument,
    Keywords,
    Positional,
    Signature,
    TensorArg,
)

COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
# The function that adds to the ``.grad`` of a leaf, as autograd calls it.
ACCUMULATE = "torch::autograd::AccumulateGrad"
# torch.tensor makes its tensor out of sight and passes it through one of these.
LIFTS = frozenset({"aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy"})
# Memory that nothing was written to yet holds any number.
UNWRITTEN = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
_DTYPE_NAMES = {
    value: name
    for name, value in vars(torch).items()
    if isinstance(value, torch.dtype) and str(value) == f"torch.{name}"
}
_SCALAR_NUMBERS = {name: number for number, name in SCALAR_TYPES.items()}
# The methods that return what a sparse tensor is made of, its elements last.
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values")),
}
_BACKEND_KEYS = {"cpu": "CPU", "cuda": "CUDA", "mps": "MPS", "xpu": "XPU", "meta": "Meta"}


class CalledOperator:
    """Facts about an operator apart from its arguments, computed once."""

    __slots__ = ("_fields", "decomposes", "name")

    def __init__(self, func: Any) -> None:
        self.name: str = func._schema.name
        try:
            self.decomposes: bool = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE)
        except (
            RuntimeError
        ):  # questions that only subclasses of tensors are asked (``prim::device``, ``aten::sym_size``)
            self.decomposes = False
        self._fields = tuple(
            (argument.name, argument_of(argument.default_value) if argument.has_default_value() else MISSING)
            for argument in func._schema.arguments
        )

    def signature(self, args: Positional, kwargs: Keywords) -> Signature:
        """The call with these arguments, in the order of the schema and with its defaults."""
        values = [argument_of(value) for value in args]
        for name, default in self._fields[len(values) :]:
            values.append(argument_of(kwargs[name]) if name in kwargs else default)
        return Signature(self.name, tuple(values))


operator_of = cache(CalledOperator)


def name_of(func: Any) -> str:
    """The name of an operator, also of one that takes functions."""
    return (
        str(func._schema.name) if isinstance(func, torch._ops.OpOverload) else f"higher_order::{func.name()}"
    )


def running_node() -> str:
    """The name of the autograd function that is running, empty outside of a backward pass."""
    node: Any = torch._C._current_autograd_node()
    return "" if node is None else str(node.name())


def call_signature(func: Any, args: Positional, kwargs: Keywords) -> Signature:
    """The signature of calling the operator ``func`` (a ``torch._ops.OpOverload``): arguments in schema
    order, defaults filled in.

    Tensors become ``TensorArg``, dtypes and layouts torch's numbers, devices and generators None; packed
    weights of quantized operators become the pair ``(weight, bias)``.
    """
    return operator_of(func).signature(args, kwargs)


def tensor_arg(tensor: torch.Tensor) -> TensorArg:
    """A tensor's shape, dtype and strides (None for layouts without strides)."""
    strides = tuple(tensor.stride()) if tensor.layout is torch.strided else None
    return TensorArg(
        tuple(tensor.shape), _DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype)), strides, _stored(tensor)
    )


def _stored(tensor: torch.Tensor) -> tuple[int, int] | None:
    """``TensorArg.stored``; a fake sparse tensor has none."""
    if tensor.layout not in _PARTS or isinstance(tensor, FakeTensor):
        return None
    parts: list[torch.Tensor] = [getattr(tensor, part)() for part in _PARTS[tensor.layout]]
    return parts[-1].numel(), sum(part.nbytes for part in parts)


def _has_no_shape(tensor: torch.Tensor) -> bool:
    """Whether its rows are of different lengths, or it is a lazy module's that has not been made yet."""
    return tensor.is_nested or is_lazy(tensor)


def argument_of(value: Any) -> Argument:
    """A value that an operator was called with, as an argument of a signature; MISSING for what no signature
    can hold."""
    if isinstance(value, torch.Tensor):
        return MISSING if _has_no_shape(value) else tensor_arg(value)
    if value is None or isinstance(value, (bool, int, float, str, complex)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(argument_of(item) for item in value)
    if isinstance(value, torch.dtype):
        return _SCALAR_NUMBERS.get(_DTYPE_NAMES.get(value, ""), MISSING)
    if isinstance(value, (torch.device, torch.Generator, torch.layout, torch.memory_format)):
        return None
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.ScriptObject):
        with contextlib.suppress(
            RuntimeError, AttributeError
        ):  # the packed parameters of a quantized operator
            packed: Any = value
            weight, bias = packed.unpack()[:2]
            return (tensor_arg(weight), tensor_arg(bias) if bias is not None else None)
    return MISSING


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that have a shape in an argument or a result, those in lists included."""
    return (tensor for tensor in tensors_in(value) if not _has_no_shape(tensor))


def device_type(args: Positional) -> str:
    """The kind of device that a call with these arguments runs on: that of its first tensor."""
    return next((tensor.device.type for tensor in tensors_of(args)), "cpu")


@cache
def has_own_kernel(func: Any, device_type: str) -> bool:
    """Whether a decomposable operator has a separate kernel on this device, which then runs instead of its
    parts."""
    key = _BACKEND_KEYS.get(device_type)
    return key is not None and bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))


def python_kernel(func: Any, device_type: str) -> Any:
    """The set of the dispatch key that calls an operator's kernel on this device, where that is written in
    Python; else None."""
    name = func._schema.name.partition("::")[2] + (
        f".{func._schema.overload_name}" if func._schema.overload_name else ""
    )
    key = _BACKEND_KEYS.get(device_type)
    kernels = (f"{func.namespace}/{name}/{place}" for place in (key, "CompositeExplicitAutograd"))
    if key is None or torch.library._impls.isdisjoint(kernels):
        return None
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in ``value``: itself, or those in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
