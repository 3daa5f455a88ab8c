"""Fake tensors, which have shapes and no data: their mode, when they will not do, and rules for results that
torch's own rules miss."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import sys
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, NoReturn
from weakref import ref

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.jit._script import RecursiveScriptModule
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves, tree_map_only

from rooflines.kernels.threads import torch_threads
from rooflines.profiler.calls.signatures import UNWRITTEN, tensors_in
from rooflines.profiler.hooks.replaced import Function, replaced, when_imported
from rooflines.profiler.read.signature import Keywords, Positional

_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
_CACHED = type(functools.lru_cache(lambda: None))
_DEPTH = 4  # the function, its entries, an entry, the result, what the result holds


def fake_tensors() -> FakeTensorMode:
    """A mode in which everything that is created, or given real, is fake."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def fake_mode_of(*values: Any) -> FakeTensorMode | None:
    """The mode of the fake tensors in ``values`` (modules, mappings, lists), or the one that is active; None
    where all are real."""
    leaves: list[Any] = []
    for value in tree_leaves(values):
        if isinstance(value, torch.nn.Module):
            leaves += [*value.parameters(), *value.buffers()]
        else:
            leaves.append(value)
    mode: FakeTensorMode | None = detect_fake_mode(leaves)
    return mode


def must_be_real(*values: Any) -> bool:
    """Whether a module in ``values`` reads memory that a fake tensor does not have: packed integer weights,
    TorchScript's constants."""
    return any(
        isinstance(module, torch.jit.ScriptModule) or type(module).__module__.startswith(_QUANTIZED)
        for value in tree_leaves(values)
        if isinstance(value, torch.nn.Module)
        for module in value.modules()
    )


def quiet_refusals() -> contextlib.AbstractContextManager[None]:
    """No traceback in the log for what a fake tensor refuses: the exception is enough."""
    return replaced("disabled", lambda _: True, logging.getLogger("torch._subclasses.fake_tensor"))


def empty_caches_of_fakes() -> None:
    """Empty every cache of a function that has a fake tensor in it: the next call on real tensors would get
    that one."""
    for cached in gc.get_referrers(
        _CACHED
    ):  # gc.get_objects would break tuples that other threads are just making
        if type(cached) is _CACHED and _holds_fake(cached, _DEPTH):
            cached.cache_clear()


def _holds_fake(value: Any, depth: int) -> bool:
    if isinstance(value, FakeTensor):
        return True
    if not depth or isinstance(value, (FunctionType, ModuleType, type)):
        return False
    return any(_holds_fake(held, depth - 1) for held in gc.get_referents(value))


def _grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """torch's rule (2.14) is that of the CUDA kernel for 16-bit numbers; all others run a matrix product a
    group.

    [m, k] @ [g, k, n], rows in groups: [m, n]. [g, m, k] @ [k, n], columns in groups: [m, n]. [m, k] @ [k,
    n], both along k: [g, m, n].
    """
    m, n = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim() == 3:
        return a.new_empty((a.shape[0], m, n), dtype=out_dtype)
    if a.dim() == b.dim() == 2 and offs is not None:
        return a.new_empty((offs.numel(), m, n), dtype=out_dtype)
    return a.new_empty((m, n), dtype=out_dtype)


def _layer_norm_backward(
    grad: torch.Tensor,
    inputs: torch.Tensor,
    shape: list[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mask: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    """Kernels return a contiguous gradient, torch's rule one that is laid out as ``grad``, which then seems
    to need a copy."""
    of = (inputs, weight, bias)
    return tuple(
        inputs.new_empty(x.shape, dtype=x.dtype) if x is not None and wanted else None
        for x, wanted in zip(of, mask, strict=True)
    )


# What is called in place of an operator whose rule in torch is not that of its kernels, by the operator's
# name.
RULES: dict[str, Function] = {
    "aten::_grouped_mm": _grouped_mm,
    "aten::native_layer_norm_backward": _layer_norm_backward,
}


# --- values of small fake tensors -------------------------------------------------------------------------
# Networks ask for some values: ``torch.linspace(0, rate, depth).tolist()`` while they are built, a mask that
# is tested for padding, a coin that decides whether a layer runs. None of them depends on what the network
# computes. So a tensor made only of numbers is also made for real, and so is a tensor computed from such
# values alone.

# Elements up to which values are kept: the tokens of a batch, or a mask of its pixels; what takes long to
# compute (random numbers, products) only for a stochastic depth, a coin, or an angle of each position.
QUICK, SLOW = 1 << 20, 1 << 12
_PRODUCTS = frozenset(
    {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::mv", "aten::convolution"}
)
_VALUE = "_rooflines_value"
_BIASES = "torch.nn.attention.bias"


def as_fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """The fake tensor for this one. Small integer tensors keep their values: tokens, masks and positions."""
    if isinstance(tensor, FakeTensor):
        return tensor
    fake = mode.from_tensor(tensor)
    if not (tensor.is_floating_point() or tensor.is_complex() or hasattr(fake, _VALUE)) and _is_small(
        tensor, QUICK
    ):
        with torch._C._DisableTorchDispatch():
            setattr(fake, _VALUE, tensor.detach().clone())
    return fake


class ConcreteValues:
    """Calls operators on fake tensors and answers what they ask of values that are known."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._stale: set[int] = set()  # storages of values that something unknown was written into
        self._made: list[ref[torch.Tensor]] = []

    def call(self, func: Any, args: Positional, kwargs: Keywords, rule: Function | None = None) -> Any:
        """``func(*args, **kwargs)``, on the known values as well where they suffice; ``rule`` makes the fake
        result in its place."""
        traits, given = _traits(func), (*args, *kwargs.values())
        if any(self._value(tensor) is None for tensor in tensors_in(given)):
            if traits.writes:
                self._forget(given)
            if func is torch.ops.aten.index.Tensor:
                args = (args[0], self._positions(args[1]))
            return (rule or func)(*args, **kwargs)
        # Known are also the values of none: such a call makes something.
        if traits.unwritten:
            return func(*args, **kwargs)
        if traits.asks:
            return self._fake(self._computed(func, args, kwargs))
        result = func(*args, **kwargs)
        if all(_is_small(tensor, traits.limit) for tensor in tensors_in(result)):
            values = self._computed(func, args, kwargs)
            for tensor, value in zip(tensors_in(result), tensors_in(values), strict=False):
                setattr(tensor, _VALUE, value)
                self._made.append(ref(tensor))
        elif traits.writes:
            self._forget(given)
        return result

    def any_survives(self) -> bool:
        """Whether the program still holds a fake tensor made of known values, such as cached tables."""
        return any(made() is not None for made in self._made)

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if not isinstance(tensor, FakeTensor):
            wrapper: Any = tensor  # what it wraps may be fake
            return (
                None if is_traceable_wrapper_subclass(wrapper) else tensor
            )  # on its way to become a fake one
        value: torch.Tensor | None = getattr(tensor, _VALUE, None)
        # A copy of a fake tensor's attributes makes a fake of the value, too.
        unknown = (
            value is None or isinstance(value, FakeTensor) or (self._stale and _storage(value) in self._stale)
        )
        return None if unknown else value

    def _forget(self, values: Positional) -> None:
        for tensor in tensors_in(values):
            value = getattr(tensor, _VALUE, None)
            if value is not None and not isinstance(value, FakeTensor):
                self._stale.add(_storage(value))

    def _computed(self, func: Any, args: Positional, kwargs: Keywords) -> Any:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            args, kwargs = tree_map_only(
                torch.Tensor,
                lambda tensor: self._value(tensor) if isinstance(tensor, FakeTensor) else tensor.clone(),
                (args, kwargs),
            )
            return func(*args, **kwargs)

    def _positions(self, indices: Any) -> list[Any]:
        """Indices with the positions that known masks select in place of the masks: as many as the result
        will have."""
        positions: list[Any] = []
        for index in indices:
            value = None if index is None or index.dtype is not torch.bool else self._value(index)
            if value is None:
                positions.append(index)
            else:
                positions.extend(
                    self._fake(self._computed(torch.ops.aten.nonzero.default, (index,), {})).unbind(1)
                )
        return positions

    def _fake(self, result: Any) -> Any:
        """The answer of an operator that no fake tensor could have given: a number, or a tensor of as many
        elements as it found."""

        def made(value: torch.Tensor) -> torch.Tensor:
            fake = self._mode.from_tensor(value)
            setattr(fake, _VALUE, value)
            return fake

        return tree_map_only(torch.Tensor, made, result)


class Building(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """In which networks are built of fake tensors: entered inside the mode that makes them fake.

    ``parameter_bytes`` is what their parameters would take if they were real.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._values = ConcreteValues(mode)
        self._around = contextlib.ExitStack()
        self.parameter_bytes = 0

    def __enter__(self) -> Building:
        # trunc_normal_ draws until all values fit, which fake ones never tell: it leaves them as they are.
        self._around.enter_context(
            replaced("_no_grad_trunc_normal_", lambda _: lambda tensor, *_, **__: tensor, torch.nn.init)
        )
        # TorchScript reads the constants that it is loaded with or frozen to.
        loads = ("import_ir_module", "import_ir_module_from_buffer")
        for owner, name in ((RecursiveScriptModule, "__init__"), *((torch._C, load) for load in loads)):
            self._around.enter_context(replaced(name, lambda _: _refuse_script, owner))
        self._around.callback(register_module_parameter_registration_hook(self._registered).remove)
        self._around.enter_context(torch_threads(1))  # to wake others takes longer than the few elements
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)  # type: ignore[no-untyped-call]
        self._around.close()

    def _registered(self, module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        if parameter is not None and not is_lazy(parameter):
            self.parameter_bytes += parameter.nbytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Positional = (), kwargs: Keywords | None = None
    ) -> Any:
        return self._values.call(func, args, kwargs or {})


def _refuse_script(*_: Any) -> NoReturn:
    raise NotImplementedError("TorchScript")


@contextlib.contextmanager
def biases_made() -> Iterator[None]:
    """Masks of ``torch.nn.attention.bias`` can be made: below a dispatch mode, torch makes no tensor of a
    subclass by its class.

    That module imports the compiler, a second, so it is changed where the program imports it.
    """
    with contextlib.ExitStack() as stack:

        def change() -> None:
            bias: Any = sys.modules[_BIASES].CausalBias
            stack.enter_context(
                replaced("__new__", lambda _: lambda kind, *_: torch.empty(0).as_subclass(kind), bias)
            )

        stack.enter_context(when_imported(_BIASES, change))
        yield


def seen_by_transformers() -> contextlib.AbstractContextManager[None]:
    """Masks whose values are known are not fake to ``transformers``.

    It drops a mask that masks nothing, and attention is causal and fused then. With a fake tensor it assumes
    that a graph is traced for any mask, and keeps it.
    """
    module: Any = sys.modules.get("transformers.utils.import_utils")
    return replaced(
        "is_fake_tensor",
        lambda original: lambda value: original(value) and not hasattr(value, _VALUE),
        module,
    )


class _Traits(NamedTuple):
    """Whether an operator writes into arguments, asks for values or makes none, and up to which size it is
    computed."""

    writes: bool
    asks: bool
    limit: int
    unwritten: bool


@cache
def _traits(func: Any) -> _Traits:
    name = func._schema.name
    tags = getattr(func, "tags", ())
    return _Traits(
        writes=any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments),
        asks=torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags,
        limit=SLOW if torch.Tag.nondeterministic_seeded in tags or name in _PRODUCTS else QUICK,
        unwritten=name in UNWRITTEN,
    )


def _is_small(tensor: torch.Tensor, limit: int) -> bool:
    return tensor.numel() <= limit and tensor.device.type == "cpu" and tensor.layout is torch.strided


def _storage(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)
