"""Operator signature -> FLOPs and compulsory bytes, in plain integers. ``docs/counting.md`` states the conventions."""

from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.table import CallCount, count, formula

__all__ = ["CallCount", "NotCounted", "Work", "count", "formula"]
