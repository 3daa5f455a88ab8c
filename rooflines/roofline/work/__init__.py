"""Operator signature -> FLOPs and compulsory bytes, in plain integers. ``docs/counting.md`` states the conventions."""

# Importing a family registers its formulas.
import rooflines.roofline.work.attention
import rooflines.roofline.work.communication
import rooflines.roofline.work.convolution
import rooflines.roofline.work.copies
import rooflines.roofline.work.distance
import rooflines.roofline.work.elementwise
import rooflines.roofline.work.embedding
import rooflines.roofline.work.factories
import rooflines.roofline.work.gather
import rooflines.roofline.work.linalg
import rooflines.roofline.work.loss
import rooflines.roofline.work.low_precision
import rooflines.roofline.work.masks
import rooflines.roofline.work.matmul
import rooflines.roofline.work.normalization
import rooflines.roofline.work.optimizer
import rooflines.roofline.work.pooling
import rooflines.roofline.work.prims
import rooflines.roofline.work.quantized
import rooflines.roofline.work.quantized_embedding
import rooflines.roofline.work.ragged
import rooflines.roofline.work.random
import rooflines.roofline.work.recurrent
import rooflines.roofline.work.reduction
import rooflines.roofline.work.resample
import rooflines.roofline.work.sorting
import rooflines.roofline.work.sparse
import rooflines.roofline.work.spectral
import rooflines.roofline.work.views
import rooflines.roofline.work.vision  # noqa: F401
from rooflines.roofline.work.record import Work
from rooflines.roofline.work.table import CallCount, count, formula

__all__ = ["CallCount", "Work", "count", "formula"]
