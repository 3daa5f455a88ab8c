"""Operator signature -> FLOPs and compulsory bytes, in plain integers. ``docs/counting.md`` states the conventions."""

# Importing a family registers its formulas.
import rooflines.roofline.work.attention
import rooflines.roofline.work.convolution
import rooflines.roofline.work.elementwise
import rooflines.roofline.work.loss
import rooflines.roofline.work.matmul
import rooflines.roofline.work.movement
import rooflines.roofline.work.normalization
import rooflines.roofline.work.optimizer
import rooflines.roofline.work.pooling
import rooflines.roofline.work.reduction  # noqa: F401
from rooflines.roofline.work.record import Work
from rooflines.roofline.work.table import Count, count, formula

__all__ = ["Count", "Work", "count", "formula"]
