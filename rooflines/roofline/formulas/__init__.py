"""Operator signature -> FLOPs and compulsory bytes, in plain integers. ``docs/counting.md`` states the conventions."""

from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.counter import count
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import CallCount, formula

__all__ = ["CallCount", "NotCounted", "Work", "count", "formula"]
