"""Max, average and adaptive pooling, forward and backward. A window of k elements costs k FLOPs: k - 1 to combine, 1 to finish."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd, prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, distinct, size, size_of, written
from rooflines.roofline.formulas.convolution import touched
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula

_INDEX_BYTES: Final = 8  # max-pooling writes where each maximum was, as int64
_MAX: Final = "self kernel stride=() padding=0 dilation=1 ceil=False"
_AVERAGE: Final = "self kernel stride=() padding=0 ceil=False"
_ADAPTIVE: Final = "self output_size"


def pooled_size(extent: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Windows over one dimension. With ``ceil`` a partial window counts if it starts inside the input or its left padding."""
    reach = extent + 2 * padding - dilation * (kernel - 1) - 1
    count = (reach + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (count - 1) * stride >= extent + padding:
        count -= 1
    return max(count, 0)


def _windowed(signature: Signature, schema: str, rank: int, indices: bool) -> Work:
    args = Arguments(signature, schema)
    inputs = args.tensor("self")
    extents = inputs.shape[-rank:]
    kernel = args.integers("kernel", rank)
    stride = kernel if args.value("stride") == () else args.integers("stride", rank)
    padding, dilation = args.integers("padding", rank), args.integers("dilation", rank, absent=1)
    ceil = (args.flag("ceil"),) * rank
    out = tuple(map(pooled_size, extents, kernel, stride, padding, dilation, ceil))
    planes = prod(inputs.shape[:-rank])
    covered = planes * prod(map(touched, extents, kernel, stride, padding, dilation, out))
    outputs = planes * prod(out)
    itemsize = size_of(inputs.dtype)
    return Work(
        other_flops=outputs * prod(kernel),
        bytes_read=min(covered, distinct(inputs)) * itemsize,
        bytes_written=outputs * (itemsize + (_INDEX_BYTES if indices else 0)),
        precision=precision_of(inputs.dtype),
    )


def _adaptive(signature: Signature, hints: Hints, rank: int, indices: bool) -> Work:
    args = Arguments(signature, _ADAPTIVE)
    inputs = args.tensor("self")
    extents = inputs.shape[-rank:]
    seen = hints.outputs if not args.recorded("output_size") else None
    out = seen[0].shape[-rank:] if seen else args.integers("output_size", rank)
    planes = prod(inputs.shape[:-rank])
    taps = planes * prod(map(_adaptive_taps, extents, out))
    itemsize = size_of(inputs.dtype)
    return Work(
        other_flops=taps,
        bytes_read=size(inputs),
        bytes_written=planes * prod(out) * (itemsize + (_INDEX_BYTES if indices else 0)),
        precision=precision_of(inputs.dtype),
    )


def _adaptive_taps(extent: int, outputs: int) -> int:
    """Elements over all windows of one dimension: window i is floor(i * n / o) to ceil((i + 1) * n / o).

    Neighbours share one element, unless their border (i + 1) * n / o is whole, which it is gcd(n, o) times.
    """
    return extent + outputs - gcd(extent, outputs)


def _backward(signature: Signature, schema: str, rank: int) -> Work:
    """Each output's gradient goes to the one maximum (an add), or divided to its whole window (an add each).

    The input gives only its shape; a maximum without a stored index is searched for again in the input.
    """
    args = Arguments(signature, schema)
    grad, inputs = args.tensor("grad"), args.tensor("self")
    searched = args.optional("output") is not None or signature.name == "aten::max_pool2d_backward"
    if args.has("indices"):
        flops = grad.numel
    elif args.has("kernel"):
        flops = grad.numel * prod(args.integers("kernel", rank))
    else:
        flops = prod(grad.shape[:-rank]) * prod(map(_adaptive_taps, inputs.shape[-rank:], grad.shape[-rank:]))
    return Work(
        other_flops=flops + (grad.numel if searched else 0),
        bytes_read=size(grad, args.optional("indices"), args.optional("output"), inputs if searched else None),
        bytes_written=written(inputs),
        precision=precision_of(inputs.dtype),
    )


def _fractional(signature: Signature, rank: int) -> Work:
    """Windows of one size at random places. The first and the last have theirs at the borders, so that two need no random number."""
    args = Arguments(signature, "self kernel output_size random_samples")
    inputs = args.tensor("self")
    kernel, out = args.integers("kernel", rank), args.integers("output_size", rank)
    planes = prod(inputs.shape[:-rank])
    covered = planes * prod(min(extent, taps * count) for extent, taps, count in zip(inputs.shape[-rank:], kernel, out, strict=True))
    outputs = planes * prod(out)
    itemsize = size_of(inputs.dtype)
    return Work(
        other_flops=outputs * prod(kernel),
        bytes_read=min(covered, distinct(inputs)) * itemsize + (size(args.tensor("random_samples")) if max(out) > 2 else 0),
        bytes_written=outputs * (itemsize + _INDEX_BYTES),
        precision=precision_of(inputs.dtype),
    )


def _unpool(signature: Signature, rank: int) -> Work:
    """Zeros, with the elements of ``self`` at the places that a pooling kept."""
    args = Arguments(signature, "self indices output_size")
    inputs, indices = args.tensor("self"), args.tensor("indices")
    results = prod(inputs.shape[:-rank]) * prod(args.integers("output_size", rank))
    return Work(bytes_read=size(inputs, indices), bytes_written=results * size_of(inputs.dtype))


def _register(name: str, function: Callable[[Signature], Work]) -> None:
    formula(name, category="reduction")(function)


for _rank in (1, 2, 3):
    _register(f"aten::max_pool{_rank}d", partial(_windowed, schema=_MAX, rank=_rank, indices=False))
    _register(f"aten::max_pool{_rank}d_with_indices", partial(_windowed, schema=_MAX, rank=_rank, indices=True))
    _register(f"aten::mkldnn_max_pool{_rank}d", partial(_windowed, schema=_MAX, rank=_rank, indices=False))
    _register(f"aten::quantized_max_pool{_rank}d", partial(_windowed, schema=_MAX, rank=_rank, indices=False))
    _register(f"aten::avg_pool{_rank}d", partial(_windowed, schema=_AVERAGE, rank=_rank, indices=False))
    for _name in ("adaptive_avg_pool", "_adaptive_avg_pool", "mkldnn_adaptive_avg_pool", "adaptive_max_pool"):
        hinted_formula(f"aten::{_name}{_rank}d", category="reduction")(partial(_adaptive, rank=_rank, indices="max" in _name))
    for _name, _schema in {
        f"aten::max_pool{_rank}d_with_indices_backward": "grad self kernel stride padding dilation ceil indices",
        f"aten::avg_pool{_rank}d_backward": "grad self kernel",
        f"aten::_adaptive_avg_pool{_rank}d_backward": "grad self",
        f"aten::adaptive_avg_pool{_rank}d_backward": "grad self",
        f"aten::adaptive_max_pool{_rank}d_backward": "grad self indices",
        f"aten::mkldnn_max_pool{_rank}d_backward": "grad output self kernel",
        f"aten::mkldnn_adaptive_avg_pool{_rank}d_backward": "grad self",
    }.items():
        _register(_name, partial(_backward, schema=_schema, rank=_rank))
_register("aten::max_pool2d_backward", partial(_backward, schema="grad self kernel", rank=2))
for _rank in (1, 2):
    _register(f"quantized::max_pool{_rank}d", partial(_windowed, schema=_MAX, rank=_rank, indices=False))
for _rank in (2, 3):
    _register(f"aten::fractional_max_pool{_rank}d", partial(_fractional, rank=_rank))
    _register(
        f"aten::fractional_max_pool{_rank}d_backward", partial(_backward, schema="grad self kernel output_size indices", rank=_rank)
    )
    formula(f"aten::max_unpool{_rank}d", category="copy")(partial(_unpool, rank=_rank))
