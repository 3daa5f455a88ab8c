"""Resampling: interpolation to another size, sampling on a grid, and windows laid out as columns.

A result costs a multiply-add for each input element that it is interpolated from, a tap. Interpolation to another size shares its
weights among whole rows, and they are not counted; sampling on a grid computes weights at every point. Where the result is so much
smaller that no tap reaches some rows or columns of the input, these are not read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import floor, prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, distinct, size, size_of
from rooflines.roofline.formulas.convolution import output_size, touched
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, named, register

# Interpolation. Operator -> kind; each has a ``_backward``.
_INTERPOLATIONS: Final[dict[str, str]] = {
    "upsample_nearest1d": "nearest", "upsample_nearest2d": "nearest", "upsample_nearest3d": "nearest",
    "_upsample_nearest_exact1d": "nearest-exact", "_upsample_nearest_exact2d": "nearest-exact",
    "_upsample_nearest_exact3d": "nearest-exact", "upsample_linear1d": "linear", "upsample_bilinear2d": "linear",
    "upsample_trilinear3d": "linear", "upsample_bicubic2d": "cubic", "_upsample_bilinear2d_aa": "linear-antialiased",
    "_upsample_bicubic2d_aa": "cubic-antialiased", "_upsample_lanczos2d_aa": "lanczos-antialiased",
}  # fmt: skip
_REACH: Final = {"linear-antialiased": 1, "cubic-antialiased": 2, "lanczos-antialiased": 3}  # input steps to each side
_LONGEST: Final = 1 << 16  # of a longer dimension every element counts as read, and windows as whole


# Input positions from the one where a result is, of which it is interpolated.
_STEPS: Final = {"nearest": (0,), "nearest-exact": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}


def _axis(kind: str, extent: int, out: int, factor: float | None, aligned: bool) -> tuple[int, int]:
    """The input positions of one dimension that are reached, and the taps over all its results, as torch places them (UpSample.h:
    ``area_pixel_compute_source_index``)."""
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
    """Windows widened to what lies between two results: neighbors overlap, so that no position is left out between them."""
    bounds = [
        (max(int(scale * (position + 0.5) - reach + 0.5), 0), min(int(scale * (position + 0.5) + reach + 0.5), extent))
        for position in range(out)
    ]
    read = max((stop for _, stop in bounds), default=0) - min((start for start, _ in bounds), default=0)
    return read, sum(stop - start for start, stop in bounds)


def _axes(args: Arguments, kind: str, spatial: tuple[int, ...], out: tuple[int, ...]) -> tuple[int, int]:
    """The input positions of a plane that are reached, and the taps over all its results."""
    aligned = bool(args.given("align_corners"))
    given = [args.given(f"factor{axis}") for axis in range(len(spatial))]
    factors = given[0] if isinstance(given[0], tuple) else given
    axes = [
        _axis(kind, extent, result, factor if isinstance(factor, float | int) else None, aligned)
        for extent, result, factor in zip(spatial, out, factors, strict=True)
    ]
    return prod(read for read, _ in axes), prod(taps for _, taps in axes)


_FACTORS: Final = "factor0=None factor1=None factor2=None"


def _resampled_shape(spatial: tuple[int, ...], args: Arguments) -> tuple[int, ...]:
    """The new spatial sizes, given as such or as factors in the argument after them."""
    if args.value("output_size") is not None:
        return args.integers("output_size", len(spatial))
    factors = args.value("factor0")
    if not isinstance(factors, tuple) or len(factors) != len(spatial):
        raise NotCounted("argument 'scale_factors' not recorded")
    return tuple(int(extent * factor) for extent, factor in zip(spatial, factors, strict=True))


def _resample(signature: Signature, kind: str) -> Work:
    """[n, c, ...] -> [n, c, ...] of other sizes."""
    nearest = kind.startswith("nearest")
    args = Arguments(signature, f"self output_size {_FACTORS}" if nearest else f"self output_size align_corners {_FACTORS}")
    inputs = args.tensor("self")
    planes, spatial = prod(inputs.shape[:2]), inputs.shape[2:]
    out = _resampled_shape(spatial, args)
    reached, taps = _axes(args, kind, spatial, out)
    itemsize = size_of(inputs.dtype)
    return Work(
        other_flops=0 if nearest else 2 * planes * taps,
        bytes_read=min(planes * reached, distinct(inputs)) * itemsize,
        bytes_written=planes * prod(out) * itemsize,
        precision=None if nearest else precision_of(inputs.dtype),
    )


def _resample_backward(signature: Signature, kind: str) -> Work:
    """Each gradient is weighted and added to the elements that its result came from."""
    nearest = kind.startswith("nearest")
    schema = "grad output_size input_size" + ("" if nearest else " align_corners=False")
    args = Arguments(signature, f"{schema} {_FACTORS}")
    grad, sizes = args.tensor("grad"), args.sizes("input_size")
    _, taps = _axes(args, kind, sizes[2:], grad.shape[2:])
    flops = grad.numel if nearest else 2 * prod(grad.shape[:2]) * taps
    return Work(0, flops, size(grad), prod(sizes) * size_of(grad.dtype), precision_of(grad.dtype))


for _name, _kind in _INTERPOLATIONS.items():
    formula(f"aten::{_name}", category="copy")(partial(_resample, kind=_kind))
    formula(f"aten::{_name}_backward", category="copy")(partial(_resample_backward, kind=_kind))


# Sampling on a grid.

BILINEAR, NEAREST, BICUBIC = 0, 1, 2


@named
def point_cost(rank: int, mode: int = BILINEAR, position: int = costs.PIXEL_POSITION) -> int:
    """FLOPs to work out the weights of the taps of one point of ``rank`` coordinates, and at ``position`` each where it is."""
    if mode == NEAREST:
        return rank * (position + 1)  # rounded
    if mode == BICUBIC:
        return rank * (position + 2 + 4 * costs.CUBIC_WEIGHT)  # floor, fraction, four weights
    return rank * (position + 3) + (rank - 1) * (1 << rank)  # floor, both distances; the weight of each corner is a product of them


# [n, c, h, w] at [n, ho, wo, 2] -> [n, c, ho, wo]; three-dimensional likewise.
_POINTS: Final = (
    "rank = grid[-1]; points = grid.n // rank; made = self[1] * points; taps = 1 << rank if mode == 0 else (1, 1 << 2 * rank)[mode - 1]"
)
# The gradient of the input: each result's, weighted, added to its taps. That of the grid: of each tap its value times the gradient,
# times what moving the point along each coordinate changes of its weight; the nearest tap's weight does not change.
_GRADIENT: Final = Row(
    "", where=f"{_POINTS}; to_self = asked('mask', 2)[0]; to_grid = asked('mask', 2)[1]; moves = to_grid and mode != 1",
    other="made * ((2 * taps if mode != 1 else 1) * to_self + taps * (1 + 2 * rank) * moves) + points * point_cost(rank, mode)",
    reads="grad.size + grid.size + selected(self, taps * made) * moves", writes="self.full * to_self + grid.full * to_grid",
    precision="grad",
)  # fmt: skip
_SAMPLE: Final = Row(
    "view self, read grid, mode", where=_POINTS, other="2 * taps * made * (mode != 1) + points * point_cost(rank, mode)",
    reads="selected(self, taps * made) + grid.size", writes="made * self.item", precision="self",
)  # fmt: skip
_SAMPLES: Final[dict[str, Row]] = {
    "grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback": _SAMPLE,
    "cudnn_grid_sampler": replace(_SAMPLE, schema="view self, read grid", where=f"mode = 0; {_POINTS}"),
    "grid_sampler_2d_backward grid_sampler_3d_backward": replace(
        _GRADIENT, schema="view grad, view self, view grid, mode, padding, align, mask"
    ),
    "_grid_sampler_2d_cpu_fallback_backward": replace(_GRADIENT, schema="view grad, view self, view grid, mode"),
    "cudnn_grid_sampler_backward": replace(_GRADIENT, schema="view self, view grid, view grad", where=f"mode = 0; {_GRADIENT.where}"),
}
register(_SAMPLES, "copy", namespace="aten::")


# [points, rank + 1] @ [n, rank + 1, rank] -> [n, points, rank]: the corners of the image and one; or its gradient, as many products the
# other way.
_GRIDS: Final[dict[str, Row]] = {
    "affine_grid_generator": Row(
        "read theta, sizes+", where="rank = len(sizes) - 2; made = sizes[0] * prod(sizes[2:]) * rank",
        matrix="2 * made * (rank + 1)", writes="made * theta.item",
    ),
    "cudnn_affine_grid_generator": Row(
        "read theta, n, c, h, w", where="made = n * h * w * 2", matrix="6 * made", writes="made * theta.item"
    ),
    "cudnn_affine_grid_generator_backward": Row("read grad, n, c, h, w", matrix="12 * n * h * w", writes="6 * n * grad.item"),
}  # fmt: skip
register(_GRIDS, "matmul", namespace="aten::")


# Windows as columns.


@formula("aten::im2col", category="copy")
def _im2col(signature: Signature) -> Work:
    """[n, c, h, w] -> [n, c * k * k, windows]; positions that the stride jumps over are not read."""
    args = Arguments(signature, "self kernel dilation padding stride")
    inputs = args.tensor("self")
    extents, kernel = inputs.shape[-2:], args.integers("kernel", 2)
    dilation, padding, stride = args.integers("dilation", 2), args.integers("padding", 2), args.integers("stride", 2)
    windows = tuple(map(output_size, extents, kernel, stride, padding, dilation))
    planes, itemsize = prod(inputs.shape[:-2]), size_of(inputs.dtype)
    read = planes * prod(map(touched, extents, kernel, stride, padding, dilation, windows))
    return moved(min(read, distinct(inputs)) * itemsize, planes * prod(kernel) * prod(windows) * itemsize)


register({
    # [n, c * k * k, windows] -> [n, c, h, w], overlapping windows added
    "col2im": Row(
        "read self, output_size+, kernel+", 1, per="self",
        writes="prod(self[:-1]) // volume(kernel, 2) * volume(output_size, 2) * self.item",
    ),
}, "copy", namespace="aten::")  # fmt: skip
