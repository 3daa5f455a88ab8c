"""The first operator of a step that makes an infinity or a NaN out of finite numbers.

Every result is checked as it is made: forward, backward and in the optimizer, in-place operators and lists of tensors included.
Infinities are often meant: an attention mask is filled with ``-inf``, and the softmax turns it into zeros. Every non-finite number is
therefore followed from its source on, and a source counts only if it reaches a result of the step, a gradient or a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves, tree_map_only

from rooflines.profiler.dispatch.recorder import StepCalls, Watcher, record
from rooflines.profiler.dispatch.signatures import (
    ACCUMULATE,
    LIFTS,
    UNWRITTEN,
    name_of,
    repeated_wider,
    running_node,
    tensor_arg,
    tensors_in,
    written_tensors,
)  # fmt: skip
from rooflines.profiler.trace.tree import BACKWARD, OPTIMIZER, PHASES, Module

# What a non-finite number reaches: what the step returns (its loss), a gradient, or a parameter or the optimizer's state.
Reached = Literal["result", "gradients", "parameters"]
_ORDER: Final[tuple[Reached, ...]] = ("result", "gradients", "parameters")

_SCALER: Final = "aten::_amp_foreach_non_finite_check_and_unscale_"
_FINITE, _INF, _NAN = range(3)


class NonFinite(msgspec.Struct, frozen=True, kw_only=True):
    """An operator whose result is not finite, and what it was given.

    ``operator`` is its name (``aten::mm``), ``module`` the path of its module, ``module_type`` the class (both empty outside of
    modules). ``phase`` is ``forward`` (also between backward and optimizer), ``backward`` or ``optimizer``. ``step`` is the number of
    the step. ``what`` is ``nan`` if any element is NaN. ``share`` is the share of non-finite elements in the first tensor that has any,
    with its ``dtype``.

    ``inputs`` is the worst of what the inputs held (``finite``, ``inf``, ``nan``), ``input_magnitude`` the largest magnitude of their
    finite elements. ``given`` says what was not finite before the step: the name of a parameter or buffer (``parameter`` if it is
    not one of the network's), or ``input``; empty otherwise.

    ``wider`` is the type in which the same call was repeated on the same inputs (``float32`` for 8 and 16 bits, else ``float64``),
    ``wider_finite`` says whether that result was finite, ``wider_magnitude`` is its largest magnitude if it was. All are None if the
    call cannot be repeated. ``reaches`` lists what became non-finite: ``result``, ``gradients``, ``parameters``. A gradient scaler
    skips a step whose gradients are not finite: then it is ``gradients`` alone.
    """

    operator: str
    module: str = ""
    module_type: str = ""
    phase: str
    step: int
    what: Literal["inf", "nan"]
    dtype: str
    share: float
    inputs: Literal["finite", "inf", "nan"]
    input_magnitude: float | None = None
    given: str = ""
    wider: str | None = None
    wider_finite: bool | None = None
    wider_magnitude: float | None = None
    reaches: tuple[Reached, ...] = ()


def first_nonfinite(
    step: Callable[[], object], network: torch.nn.Module | None = None, *, steps: int = 1, first: int = 1
) -> NonFinite | None:
    """Run ``step`` up to ``steps`` times and return the first operator whose result is not finite though its inputs are.

    Infinities that reach neither what the step returns nor a gradient or parameter are ignored (attention masks), and so is memory that
    was not written to. The step should return its loss or outputs. It runs as it does in training: parameters change. Every result is
    read once more, and what is changed in place is copied before. ``network`` names the parameters and buffers that were not finite
    before the step; ``first`` is the number of the first step. What the step raises passes through.

    A step that a gradient scaler skips is no failure while later ones are fine: it is returned only if no step fails otherwise.

    Start it where the numbers are still finite. Otherwise the result is the first operator that uses what was not, named in ``given``.
    """
    skipped: NonFinite | None = None
    for number in range(first, first + steps):
        sources = _Sources(network, number)

        def watched(sources: _Sources = sources) -> None:
            sources.returned(step())

        nonfinite = sources.first(record(watched, None, sources, restore=False))
        if nonfinite is not None and not (sources.scaled and nonfinite.reaches == ("gradients",)):
            return nonfinite
        skipped = skipped or nonfinite
    return skipped


class _Before(NamedTuple):
    """A call's arguments as they were before it, and the tensors that it writes to: changed ones, and those given as ``out``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    changed: list[torch.Tensor]
    out: list[torch.Tensor]


@dataclass(slots=True, eq=False)
class _Source:
    """A call that made a non-finite number, or was the first to be given one. ``meant``: an infinity that may well be a mask."""

    facts: NonFinite
    module: int
    meant: bool
    reached: set[Reached] = field(default_factory=set)


class _Sources(Watcher):
    """Checks every result of a step, and follows non-finite numbers from their source on."""

    def __init__(self, network: torch.nn.Module | None, step: int) -> None:
        self._step = step
        self._sources: list[_Source] = []  # in the order in which they were found
        self._of: WeakKeyDictionary[torch.UntypedStorage, _Source] = WeakKeyDictionary()
        self._names: WeakKeyDictionary[torch.UntypedStorage, str] = WeakKeyDictionary()
        self.scaled = False  # whether a gradient scaler checked the gradients
        if network is not None:
            for name, tensor in (*network.named_parameters(), *network.named_buffers()):
                for value in _values(tensor):
                    self._names.setdefault(value.untyped_storage(), name)

    def calling(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Before:
        changed, out = written_tensors(func, args, kwargs)
        copies = {id(tensor): tensor.clone() for tensor in changed}
        if copies:
            args, kwargs = tree_map_only(torch.Tensor, lambda tensor: copies.get(id(tensor), tensor), (args, kwargs))
        return _Before(args, kwargs, changed, out)

    def called(self, func: Any, inputs: tuple[Any, ...], result: Any, phase: int, module: int, before: _Before) -> None:
        name = name_of(func)
        self.scaled = self.scaled or name == _SCALER
        written = [*before.changed, *before.out]
        made = list(_values((result, written)))
        if name in UNWRITTEN or name == "aten::resize_":
            for value in filter(_state, made):  # what nothing was written to may hold any number, and so a finite one
                value.copy_(value.nan_to_num(0.0, 0.0, 0.0))
            return
        made = list(filter(_state, made))
        if not made:
            return
        source = self._source_of(made) if _is_view(func) else self._source(func, inputs, before, made, phase, module)
        if source is None:
            return  # a view of what was not finite before the step: the operator that computes with it counts
        for value in made:
            self._of[value.untyped_storage()] = source
        if phase == OPTIMIZER and before.changed:
            source.reached.add("parameters")
        elif phase == BACKWARD and running_node() == ACCUMULATE:
            source.reached.add("gradients")

    def returned(self, result: object) -> None:
        """The step has returned ``result``."""
        leaves = tree_leaves(result)
        source = self._source_of([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        if source is None and any(map(_is_nonfinite, leaves)):  # a number that the step has read itself
            source = next((earlier for earlier in self._sources if not earlier.meant), None)
        if source is not None:
            source.reached.add("result")

    def first(self, calls: StepCalls) -> NonFinite | None:
        """The first source that has reached something."""
        for source in self._sources:
            if source.reached:
                reaches = tuple(reached for reached in _ORDER if reached in source.reached)
                module = calls.modules[source.module] if source.module >= 0 else Module("", "")
                return msgspec.structs.replace(source.facts, reaches=reaches, module=module.path, module_type=module.type)
        return None

    def _named(self, tensor: torch.Tensor) -> str:
        """What was not finite before the step: a parameter or buffer of the network, a parameter of anything, or an input."""
        name = self._names.get(tensor.untyped_storage())
        if name is not None:
            return name
        return "parameter" if isinstance(tensor if tensor._base is None else tensor._base, torch.nn.Parameter) else "input"

    def _source_of(self, tensors: Iterable[Any]) -> _Source | None:
        """The source of the first of ``tensors`` that is not finite."""
        for value in _values(tuple(tensors)):
            if _state(value):
                return self._of.get(value.untyped_storage())
        return None

    def _source(
        self, func: Any, inputs: tuple[Any, ...], before: _Before, made: list[torch.Tensor], phase: int, module: int
    ) -> _Source:
        """The source of ``made``, which is not finite: that of an input, or else this call."""
        worst, largest = _FINITE, None
        known: list[_Source] = []
        outside = ""
        out = set(map(id, before.out))
        for tensor, value in zip(_values(inputs), _values((*before.args, *before.kwargs.values())), strict=True):
            storage = tensor.untyped_storage()
            if id(tensor) in out:
                continue
            state, magnitude = _state(value), _magnitude(value)
            worst, largest = max(worst, state), magnitude if largest is None else max(largest, magnitude)
            if state and storage in self._of:
                known.append(self._of[storage])
            elif state:
                outside = outside or self._named(tensor)
        state = max(map(_state, made))
        failed = next((earlier for earlier in known if not earlier.meant), None)
        if failed is not None:
            return failed
        if known and state <= worst:
            return known[0]
        name, bad = name_of(func), made[0]
        filled = name in LIFTS or any(map(_is_nonfinite, tree_leaves((before.args, before.kwargs))))
        facts = NonFinite(
            operator=name, phase=PHASES[phase], step=self._step, what="nan" if state == _NAN else "inf",
            dtype=tensor_arg(bad).dtype, share=float((~bad.isfinite()).double().mean()), inputs=("finite", "inf", "nan")[worst],
            input_magnitude=largest, given=outside or (known[0].facts.given if known else ""), **_wider(func, before, bad.dtype),
        )  # fmt: skip
        # An infinity that was given to the step may be a mask; a NaN is not.
        source = _Source(facts, module, meant=filled or (bool(outside) and state == worst == _INF))
        self._sources.append(source)
        return source


def _wider(func: Any, before: _Before, narrow: torch.dtype) -> dict[str, Any]:
    """The fields of the same call in a wider type; none where it cannot be repeated."""
    values = list(_values(repeated_wider(narrow, func, before.args, before.kwargs)))
    if not values:
        return {}
    finite = not any(map(_state, values))
    return {
        "wider": tensor_arg(values[0]).dtype,
        "wider_finite": finite,
        "wider_magnitude": max(map(_magnitude, values)) if finite else None,
    }


def _is_view(func: Any) -> bool:
    return isinstance(func, torch._ops.OpOverload) and func.is_view


def _is_nonfinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _values(value: Any) -> Iterator[torch.Tensor]:
    """The floating-point numbers of the tensors in ``value``, as plain tensors that have elements and a storage."""
    tensor: Any
    for tensor in tensors_in(value):
        if is_lazy(tensor) or tensor.is_nested or is_traceable_wrapper_subclass(tensor) or tensor.is_meta:
            continue
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        if tensor.layout is torch.strided:
            yield tensor
        elif tensor.layout is torch.sparse_coo:
            yield tensor._values()
        elif tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
            yield tensor.values()


def _state(values: torch.Tensor) -> int:
    """Whether all are finite, some are infinite, or some are NaN: read once, without a temporary of their size."""
    low, high = _extremes(values)
    return _NAN if math.isnan(low) else _INF if math.isinf(low) or math.isinf(high) else _FINITE


def _extremes(values: torch.Tensor) -> tuple[float, float]:
    """The smallest and the largest, both NaN if any is."""
    values = values.float() if values.dtype.itemsize == 1 else values
    low, high = torch.stack(torch.aminmax(values)).tolist()
    return low, high


def _magnitude(values: torch.Tensor) -> float:
    """The largest magnitude of the finite ones."""
    low, high = _extremes(values)
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = _extremes(values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))
    return max(-low, high)
