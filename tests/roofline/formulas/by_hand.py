"""Operator calls written by hand, and what they count as."""

from __future__ import annotations

from typing import Any

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import CallCount, Work, count


def tensor(*shape: int, dtype: str = "float32") -> TensorArg:
    """A tensor without gaps, as far as its bytes tell."""
    return TensorArg(shape, dtype)


def _count(name: str, args: tuple[Any, ...], outputs: tuple[TensorArg, ...] | None = None) -> CallCount:
    return count(Signature(name if "::" in name else f"aten::{name}", args), outputs=outputs)


def work(name: str, *args: Any, outputs: tuple[TensorArg, ...] | None = None) -> Work:
    """The work of ``aten::<name>``, which must have a formula that takes these arguments."""
    outcome = _count(name, args, outputs)
    assert outcome.kind == "counted", (name, outcome)
    assert outcome.work is not None
    return outcome.work


def reason(name: str, *args: Any) -> str:
    """Why a call of ``aten::<name>`` is not counted."""
    outcome = _count(name, args)
    assert outcome.kind == "unknown", (name, outcome)
    return outcome.reason
