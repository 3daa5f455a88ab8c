"""Fourier transforms: 5 n log2(n) FLOPs for n complex points, half as many for real ones, for any n.

That is the convention of FFTW's benchmark (http://www.fftw.org/speed/), the cost of the radix-2 algorithm of Cooley and Tukey. A
transform along several dimensions has the product of their lengths as n.
"""

from __future__ import annotations

from math import log2, prod
from typing import Final

from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.rows import Row, Tensors, named, register


@named
def transform_flops(elements: int, points: int, real: bool) -> int:
    """FLOPs of transforms of ``points`` each, over ``elements`` in all; of real numbers in or out half of those of complex ones."""
    return round((2.5 if real else 5.0) * elements * log2(points)) if points > 1 else 0


@named
def points(inputs: Tensors, dims: tuple[int, ...]) -> int:
    """Points of one transform along these dimensions."""
    if not all(-inputs.rank <= dim < inputs.rank for dim in dims):
        raise NotCounted("argument 'dim' not recorded")
    return prod(inputs.shape[dim] for dim in dims)


# Scaled by 1 / n or 1 / sqrt(n): a product for each number that comes out, two for a complex one.
_TRANSFORMS: Final[dict[str, Row]] = {
    "_fft_c2c": Row(
        "read self, dim+, normalization", result="self",
        other="transform_flops(self.n, points(self, dim), False) + (2 * self.n if normalization else 0)",
    ),
    # The spectrum of real numbers is symmetric: of the last dimension only the first n // 2 + 1 are kept, unless all are asked for.
    "_fft_r2c": Row(
        "read self, dim+, normalization, onesided",
        where="n = points(self, dim); last = max(self[dim[-1]], 1) if onesided and dim else 1;"
        " made = self.n // last * (last // 2 + 1)",
        other="transform_flops(self.n, n, True) + (2 * made if normalization else 0)",
        writes="made * (2 * self.item if floating(self) else 8)",
    ),
    # Half a spectrum, of which n // 2 + 1 are read, to n real numbers.
    "_fft_c2r": Row(
        "view self, dim+, normalization, last",
        where="n = points(self, dim); stored = max(self[dim[-1]], 1) if dim else 1; length = last if dim else 1;"
        " made = self.n // stored * length",
        other="transform_flops(made, n // stored * length, True) + (made if normalization else 0)",
        reads="self.size // stored * min(length // 2 + 1, stored)", writes="made * (self.item // (1 + self.complex))",
        precision="self",
    ),
    # multiples of 1 / (n d): of all n points, or of the n // 2 + 1 of half a spectrum
    "fft_fftfreq": Row("n, d=1.0, dtype=None", other="n", writes="n * item('dtype', 'float32')", precision="dtype=float32"),
    "fft_rfftfreq": Row(
        "n, d=1.0, dtype=None", where="made = n // 2 + 1", other="made", writes="made * item('dtype', 'float32')",
        precision="dtype=float32",
    ),
}  # fmt: skip
register(_TRANSFORMS, "other", namespace="aten::")
