"""Operator signature -> FLOPs and compulsory bytes, in plain integers. ``docs/counting.md`` states the conventions."""

# Importing a family registers its formulas.
import rooflines.roofline.formulas.attention
import rooflines.roofline.formulas.communication
import rooflines.roofline.formulas.convolution
import rooflines.roofline.formulas.copies
import rooflines.roofline.formulas.distance
import rooflines.roofline.formulas.elementwise
import rooflines.roofline.formulas.embedding
import rooflines.roofline.formulas.factories
import rooflines.roofline.formulas.gather
import rooflines.roofline.formulas.generated_kernels
import rooflines.roofline.formulas.linalg
import rooflines.roofline.formulas.loss
import rooflines.roofline.formulas.low_precision
import rooflines.roofline.formulas.masks
import rooflines.roofline.formulas.matmul
import rooflines.roofline.formulas.normalization
import rooflines.roofline.formulas.optimizer
import rooflines.roofline.formulas.pooling
import rooflines.roofline.formulas.prims
import rooflines.roofline.formulas.quantized
import rooflines.roofline.formulas.quantized_embedding
import rooflines.roofline.formulas.ragged
import rooflines.roofline.formulas.random
import rooflines.roofline.formulas.recurrent
import rooflines.roofline.formulas.reduction
import rooflines.roofline.formulas.resample
import rooflines.roofline.formulas.sorting
import rooflines.roofline.formulas.sparse
import rooflines.roofline.formulas.spectral
import rooflines.roofline.formulas.views
import rooflines.roofline.formulas.vision  # noqa: F401
from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.table import CallCount, count, formula

__all__ = ["CallCount", "NotCounted", "Work", "count", "formula"]
