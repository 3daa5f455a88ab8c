"""Fourier transforms: 5 n log2(n) FLOPs for n complex points, half as many for real ones, for any n.

That is the convention of FFTW's benchmark (http://www.fftw.org/speed/), the cost of the radix-2 algorithm of
Cooley and Tukey. A transform along several dimensions has the product of their lengths as n.
"""

from __future__ import annotations

from math import log2, prod

from rooflines.roofline.count.formulas.arguments import NotCounted
from rooflines.roofline.count.formulas.rows import Tensors, named


@named
def transform_flops(elements: int, points: int, real: bool) -> int:
    """FLOPs of transforms of ``points`` each, over ``elements`` in all; of real numbers in or out half of
    those of complex ones."""
    return round((2.5 if real else 5.0) * elements * log2(points)) if points > 1 else 0


@named
def points(inputs: Tensors, dims: tuple[int, ...]) -> int:
    """Points of one transform along these dimensions."""
    if not all(-inputs.rank <= dim < inputs.rank for dim in dims):
        raise NotCounted("argument 'dim' not recorded")
    return prod(inputs.shape[dim] for dim in dims)
