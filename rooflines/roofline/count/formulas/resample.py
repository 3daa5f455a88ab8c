"""Resampling: interpolation to another size, sampling on a grid, and windows laid out as columns.

A result costs a multiply-add for each input element that it is interpolated from, a tap. Interpolation to
another size shares its weights among whole rows, and they are not counted; sampling on a grid computes
weights at every point. Where the result is so much smaller that no tap reaches some rows or columns of the
input, these are not read.
"""

from __future__ import annotations

from math import floor, prod

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import Arguments, Ints, NotCounted, distinct, size, size_of
from rooflines.roofline.count.formulas.convolution import output_size, touched
from rooflines.roofline.count.formulas.copies import moved
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.rows import named

_REACH = {
    "linear-antialiased": 1,
    "cubic-antialiased": 2,
    "lanczos-antialiased": 3,
}  # input steps to each side
_LONGEST = 1 << 16  # of a longer dimension every element counts as read, and windows as whole


# Input positions from the one where a result is, of which it is interpolated.
_STEPS = {"nearest": (0,), "nearest-exact": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}


def _axis(kind: str, extent: int, out: int, factor: float | None, aligned: bool) -> tuple[int, int]:
    """The input positions of one dimension that are reached, and the taps over all its results, as torch
    places them (UpSample.h: ``area_pixel_compute_source_index``)."""
    span, results = (extent - 1, out - 1) if aligned else (extent, out)
    scale = 1 / factor if factor and not aligned else span / results if results > 0 else 0.0
    if kind in _REACH and out <= _LONGEST:
        return _antialiased(extent, out, scale, _REACH[kind] * max(scale, 1.0))
    steps = _STEPS.get(kind, (0,))
    if out > _LONGEST:
        return extent, out * len(steps)
    reached: set[int] = set()
    for position in range(out):
        place = scale * position if aligned or kind == "nearest" else scale * (position + 0.5)
        if kind in ("linear", "cubic") and not aligned:
            place -= 0.5
        first = floor(max(place, 0.0) if kind == "linear" else place)
        reached.update(min(max(first + step, 0), extent - 1) for step in steps)
    return len(reached), out * len(steps)


def _antialiased(extent: int, out: int, scale: float, reach: float) -> tuple[int, int]:
    """Windows widened to what lies between two results: neighbors overlap, so that no position is left out
    between them."""
    bounds = [
        (
            max(int(scale * (position + 0.5) - reach + 0.5), 0),
            min(int(scale * (position + 0.5) + reach + 0.5), extent),
        )
        for position in range(out)
    ]
    read = max((stop for _, stop in bounds), default=0) - min((start for start, _ in bounds), default=0)
    return read, sum(stop - start for start, stop in bounds)


def _axes(args: Arguments, kind: str, spatial: Ints, out: Ints) -> tuple[int, int]:
    """The input positions of a plane that are reached, and the taps over all its results."""
    aligned = bool(args.given("align_corners"))
    given = [args.given(f"factor{axis}") for axis in range(len(spatial))]
    factors = given[0] if isinstance(given[0], tuple) else given
    axes = [
        _axis(kind, extent, result, factor if isinstance(factor, float | int) else None, aligned)
        for extent, result, factor in zip(spatial, out, factors, strict=True)
    ]
    return prod(read for read, _ in axes), prod(taps for _, taps in axes)


_FACTORS = "factor0=None factor1=None factor2=None"


def _resampled_shape(spatial: Ints, args: Arguments) -> Ints:
    """The new spatial sizes, given as such or as factors in the argument after them."""
    if args.value("output_size") is not None:
        return args.integers("output_size", len(spatial))
    factors = args.value("factor0")
    if not isinstance(factors, tuple) or len(factors) != len(spatial):
        raise NotCounted("argument 'scale_factors' not recorded")
    return tuple(int(extent * factor) for extent, factor in zip(spatial, factors, strict=True))


def resample(signature: Signature, kind: str) -> Work:
    """[n, c, ...] -> [n, c, ...] of other sizes."""
    nearest = kind.startswith("nearest")
    args = Arguments(signature, f"self output_size {'' if nearest else 'align_corners '}{_FACTORS}")
    inputs = args.tensor("self")
    planes = prod(inputs.shape[:2])
    spatial = inputs.shape[2:]
    out = _resampled_shape(spatial, args)
    reached, taps = _axes(args, kind, spatial, out)
    itemsize = size_of(inputs.dtype)
    return Work(
        other_flops=0 if nearest else 2 * planes * taps,
        bytes_read=min(planes * reached, distinct(inputs)) * itemsize,
        bytes_written=planes * prod(out) * itemsize,
        precision=None if nearest else precision_of(inputs.dtype),
    )


def resample_backward(signature: Signature, kind: str) -> Work:
    """Each gradient is weighted and added to the elements that its result came from."""
    nearest = kind.startswith("nearest")
    schema = "grad output_size input_size" + ("" if nearest else " align_corners=False")
    args = Arguments(signature, f"{schema} {_FACTORS}")
    grad = args.tensor("grad")
    sizes = args.sizes("input_size")
    _, taps = _axes(args, kind, sizes[2:], grad.shape[2:])
    flops = grad.numel if nearest else 2 * prod(grad.shape[:2]) * taps
    return Work(0, flops, size(grad), prod(sizes) * size_of(grad.dtype), precision_of(grad.dtype))


# Sampling on a grid.

BILINEAR, NEAREST, BICUBIC = 0, 1, 2


@named
def point_cost(rank: int, mode: int = BILINEAR, position: int = costs.PIXEL_POSITION) -> int:
    """FLOPs to work out the weights of the taps of one point of ``rank`` coordinates, and at ``position``
    each where it is."""
    if mode == NEAREST:
        return rank * (position + 1)  # rounded
    if mode == BICUBIC:
        return rank * (position + 2 + 4 * costs.CUBIC_WEIGHT)  # floor, fraction, four weights
    return rank * (position + 3) + (rank - 1) * (
        1 << rank
    )  # floor, both distances; the weight of each corner is a product of them


# Windows as columns.


def im2col(signature: Signature) -> Work:
    """[n, c, h, w] -> [n, c * k * k, windows]; positions that the stride jumps over are not read."""
    args = Arguments(signature, "self kernel dilation padding stride")
    inputs = args.tensor("self")
    extents = inputs.shape[-2:]
    kernel, dilation, padding, stride = (
        args.integers(name, 2) for name in ("kernel", "dilation", "padding", "stride")
    )
    windows = tuple(map(output_size, extents, kernel, stride, padding, dilation))
    planes = prod(inputs.shape[:-2])
    itemsize = size_of(inputs.dtype)
    read = planes * prod(map(touched, extents, kernel, stride, padding, dilation, windows))
    return moved(min(read, distinct(inputs)) * itemsize, planes * prod(kernel) * prod(windows) * itemsize)
