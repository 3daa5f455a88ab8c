"""The registry of formulas and the one question asked of it: what must this call compute and move?

An operator is in one of four places. *Counted*: a formula, registered by ``@formula``. *Zero on purpose*: a formula too, which returns
``Work()`` (views, allocation, metadata). *Composite*: it only calls other operators; they are counted, it is not. *Unknown*: everything
else, said with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.work.arguments import Dispatches, NotCounted
from rooflines.roofline.work.record import Work

Formula = Callable[[Signature], Work]


@dataclass(frozen=True, slots=True)
class Count:
    """The answer for one signature: its work, or that it dispatches to other operators, or why it is unknown."""

    kind: Literal["counted", "composite", "unknown"]
    work: Work | None
    category: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Hints:
    """What the trace around a call says about sizes that the call's own arguments leave out; each field is None when it does not.

    ``output_bytes`` is what the call allocated. ``parameter_elements`` is how many elements of parameters it updates and
    ``parameter_dtype`` their dtype.
    """

    output_bytes: int | None = None
    parameter_elements: int | None = None
    parameter_dtype: str = "float32"


HintedFormula = Callable[[Signature, Hints], Work]


@dataclass(frozen=True, slots=True)
class _Entry:
    category: str
    formula: HintedFormula


_FORMULAS: Final[dict[str, _Entry]] = {}
_COMPOSITES: Final[set[str]] = set()

# Names that the autograd engine, the optimizers and torch.compile give to what they call; the operators are inside.
_COMPOSITE_NAMES: Final = re.compile(
    r"autograd::engine::evaluate_function: |torch::autograd::|torch::jit::|torch(::|\.)distributed(::|\.)|\w+Backward\d+\Z"
    r"|CopyBackwards\Z|CopySlices\Z|GraphRoot\Z|torch/"
    r"|Optimizer\.|ProfilerStep#|enumerate\(DataLoader\)|DistributedDataParallel\."
)
_COMPILED: Final = re.compile(r"Torch-Compiled Region|CompiledFunction|TorchDynamo |## Call CompiledFxGraph")
_COMMUNICATION: Final = re.compile(r"(c10d|_c10d_functional|nccl|gloo|mpi|ucc)(::|:)|record_param_comms")


def words(text: str) -> tuple[str, ...]:
    """Names written one after the other, as the long tables have them."""
    return tuple(text.split())


def aten(text: str) -> tuple[str, ...]:
    """``"relu gelu"`` -> ``("aten::relu", "aten::gelu")``."""
    return tuple(f"aten::{name}" for name in words(text))


def _register(names: tuple[str, ...], entry: _Entry) -> None:
    for name in names:
        if name in _FORMULAS or name in _COMPOSITES:
            raise ValueError(f"operator '{name}' is registered twice")
        _FORMULAS[name] = entry


def formula(*names: str, category: str) -> Callable[[Formula], Formula]:
    """Register ``f(signature) -> Work`` for these operators; ValueError names an operator that has one already."""

    def register(function: Formula) -> Formula:
        _register(names, _Entry(category, lambda signature, _: function(signature)))
        return function

    return register


def hinted_formula(*names: str, category: str) -> Callable[[HintedFormula], HintedFormula]:
    """Register ``f(signature, hints) -> Work`` for operators whose recorded arguments do not determine what they move."""

    def register(function: HintedFormula) -> HintedFormula:
        _register(names, _Entry(category, function))
        return function

    return register


def composite(*names: str) -> None:
    """Register operators that only call others; ValueError names one that is registered already."""
    for name in names:
        if name in _FORMULAS or name in _COMPOSITES:
            raise ValueError(f"operator '{name}' is registered twice")
        _COMPOSITES.add(name)


def registered() -> dict[str, str]:
    """Every registered operator with its category, ``composite`` for those that only dispatch."""
    return {name: entry.category for name, entry in _FORMULAS.items()} | dict.fromkeys(_COMPOSITES, "composite")


def count(
    signature: Signature, output_bytes: int | None = None, parameter_elements: int | None = None, parameter_dtype: str = "float32"
) -> Count:
    """The work of one call. Never raises: what cannot be counted is ``unknown`` with a reason.

    ``output_bytes`` is what the call allocated, where the trace has memory events. It is used only where the recorded inputs do not
    determine the output: ``aten::index``, ``nonzero``, the dtype of ``aten::cat``'s list, which traces do not record, and lists of more
    than 30 tensors, which they leave out. ``parameter_elements`` is how many elements of parameters a fused or
    foreach optimizer call updates, of ``parameter_dtype``: its lists are such long ones.
    """
    name = _without_overload(signature.name)
    entry = _FORMULAS.get(name)
    if entry is None:
        if name in _COMPOSITES or _COMPOSITE_NAMES.match(name):
            return Count("composite", None, "other")
        if _COMPILED.match(name):
            return Count("unknown", None, "other", "compiled code, whose fused kernels leave no event of their own")
        if _COMMUNICATION.match(name):
            return Count("unknown", None, "communication", "communication is bound by the link, not by the device")
        return Count("unknown", None, "other", "no formula")
    hints = Hints(output_bytes, parameter_elements, parameter_dtype)
    try:
        work = entry.formula(signature if name == signature.name else replace(signature, name=name), hints)
    except NotCounted as error:
        return Count("unknown", None, entry.category, str(error))
    except Dispatches:
        return Count("composite", None, entry.category)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # A signature that no call of this operator can have: another schema, a corrupt trace.
        return Count("unknown", None, entry.category, f"arguments not understood ({type(error).__name__})")
    if min(work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written) < 0:
        return Count("unknown", None, entry.category, "arguments not understood (negative size)")
    return Count("counted", work, entry.category)


def _without_overload(name: str) -> str:
    """``aten::add.Tensor`` -> ``aten::add``; other names as they are."""
    return name.partition(".")[0] if name.startswith("aten::") else name
