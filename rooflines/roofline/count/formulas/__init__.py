"""Operator signature -> FLOPs and compulsory bytes, in plain integers. ``docs/counting.md`` states the
conventions."""

from rooflines.roofline.count.formulas.arguments import NotCounted
from rooflines.roofline.count.formulas.counter import count
from rooflines.roofline.count.formulas.record import Work
from rooflines.roofline.count.formulas.registry import CallCount, formula

__all__ = ["CallCount", "NotCounted", "Work", "count", "formula"]
