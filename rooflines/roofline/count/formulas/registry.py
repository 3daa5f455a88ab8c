"""The registry of formulas: what one is, and how one is entered. It imports no formula.

An operator is in one of four places. *Counted*: a formula, registered by ``@formula``. *Zero on purpose*: a
formula too, which returns ``Work()`` (views, allocation, metadata). *Composite*: it only calls other
operators; they are counted, it is not. *Unknown*: everything else, said with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import shapes
from rooflines.roofline.count.formulas.arguments import Dispatches, NotCounted, TensorArgs, known, written
from rooflines.roofline.count.formulas.families import is_torchs
from rooflines.roofline.count.formulas.lengths import Sequences
from rooflines.roofline.count.formulas.record import Work

Formula = Callable[[Signature], Work]


@dataclass(frozen=True, slots=True)
class CallCount:
    """The answer for one signature: its work, or that it dispatches to other operators, or why it is unknown.

    ``decomposes`` says that the work counts only where no operator below the call is counted.
    """

    kind: Literal["counted", "composite", "unknown"]
    work: Work | None
    category: str
    reason: str = ""
    decomposes: bool = False


@dataclass(frozen=True, slots=True)
class Hints:
    """Known facts about a call besides its arguments; an unknown field is None.

    ``outputs`` are the tensors that it returned, which a recording has and a trace has not. ``output_bytes``
    is what the call allocated. ``parameter_elements`` is how many elements of parameters it updates and
    ``parameter_dtype`` their dtype. ``sequences`` are the lengths of the packed sequences of a server's step.
    """

    outputs: TensorArgs | None = None
    output_bytes: int | None = None
    parameter_elements: int | None = None
    parameter_dtype: str = "float32"
    sequences: Sequences | None = None

    def results(self, signature: Signature) -> TensorArgs:
        """The tensors that the call returns: as recorded, else as torch's own shape inference has them;
        raises NotCounted."""
        found = self.outputs if self.outputs is not None else shapes.infer(signature)
        return known(found, "output shapes not known")

    def left_out(self) -> TensorArgs:
        """A list that the trace left out, as long as the parameters that the call updates together; empty
        where that is not known."""
        return (
            ()
            if self.parameter_elements is None
            else (TensorArg((self.parameter_elements,), self.parameter_dtype),)
        )

    def recorded_results(self) -> TensorArgs:
        """The tensors that the call returned; raises Dispatches where they were not recorded."""
        if not self.outputs:
            raise Dispatches
        return self.outputs

    def result_bytes(self, reason: str) -> int:
        """Bytes of results whose sizes depend on values: as recorded, else what the call allocated;
        NotCounted says ``reason``."""
        if self.outputs is not None:
            return written(*self.outputs)
        return known(self.output_bytes, reason)


HintedFormula = Callable[[Signature, Hints], Work]
Origin = Literal["torch", "library", "user"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered formula. ``origin`` is the author: this package for PyTorch's operators or for those of a
    library, or a user."""

    category: str
    formula: HintedFormula
    wraps: bool
    origin: Origin


FORMULAS: dict[str, Entry] = {}
# FLOPs or bytes of one call. More is a corrupt trace: at 1e18 FLOP/s this takes two weeks.
_MOST = 1 << 80


def words(text: str) -> tuple[str, ...]:
    """Names written one after the other, as long lists have them."""
    return tuple(text.split())


def aten(text: str) -> tuple[str, ...]:
    """``"relu gelu"`` -> ``("aten::relu", "aten::gelu")``."""
    return tuple(f"aten::{name}" for name in words(text))


def enter(names: tuple[str, ...], category: str, hinted: HintedFormula, wraps: bool, origin: Origin) -> None:
    """Register a formula for these operators; ValueError names one that has a formula already, unless it is
    one for another library, which a user's replaces.

    ``wraps`` says that they may call other operators for all of their work: where an operator below is
    counted, only that one counts.
    """
    for name in names:
        before = FORMULAS.get(name)
        if before is not None and (before.origin, origin) == ("user", "library"):
            continue  # a user's formula, which came first
        replaces = before is None or (before.origin, origin) == ("library", "user")
        if not replaces or (origin == "user" and is_torchs(name)):
            raise ValueError(f"operator '{name}' is registered twice")
        FORMULAS[name] = Entry(category, hinted, wraps, origin)


def formula(*names: str, category: str, wraps: bool = False) -> Callable[[Formula], Formula]:
    """Register ``f(signature) -> Work`` for these operators (``enter``)."""

    def register(function: Formula) -> Formula:
        enter(names, category, lambda signature, _: function(signature), wraps, "user")
        return function

    return register


def count_by(work_of: Callable[[], Work], category: str) -> CallCount:
    """The count of a call whose work ``work_of`` returns: unknown, with the reason, where it raises or no
    call can have that much."""
    try:
        work = work_of()
    except NotCounted as error:
        reason = str(error)
    except Dispatches as error:
        return CallCount("composite", None, category, str(error))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # A signature that no call of this operator can have: another schema, a corrupt trace.
        reason = f"arguments not understood ({type(error).__name__})"
    else:
        numbers = _numbers(work)
        if numbers is None:
            reason = "its formula does not return rooflines.Work with whole numbers"
        elif min(numbers) < 0:
            reason = "arguments not understood (negative size)"
        elif max(numbers) > _MOST:
            reason = "arguments not understood (invalid size)"
        else:
            return CallCount("counted", work, category)
    return CallCount("unknown", None, category, reason)


def _numbers(work: object) -> tuple[int, ...] | None:
    """FLOPs and bytes of what a formula returned; None for what is not ``Work`` of whole numbers (formulas
    may be a user's)."""
    if not isinstance(work, Work):
        return None
    numbers = (work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written)
    return numbers if all(isinstance(number, int) for number in numbers) else None
