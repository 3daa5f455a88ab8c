"""Max, average and adaptive pooling, forward and backward. A window of k elements costs k FLOPs: k - 1 to
combine, 1 to finish."""

from __future__ import annotations

from math import gcd, prod

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import Arguments, distinct, size_of
from rooflines.roofline.count.formulas.convolution import touched
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.rows import Tensors, named

_INDEX_BYTES = 8  # max-pooling writes where each maximum was, as int64


def pooled_size(extent: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Windows over one dimension. With ``ceil`` a partial window counts if it starts inside the input or its
    left padding."""
    reach = extent + 2 * padding - dilation * (kernel - 1) - 1
    count = (reach + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (count - 1) * stride >= extent + padding:
        count -= 1
    return max(count, 0)


def _pooled(inputs: TensorArg, taps: int, covered: int, results: int, indices: bool) -> Work:
    """A pooling of ``taps`` elements in all windows, ``covered`` distinct ones of the input, to ``results``,
    perhaps with indices."""
    itemsize = size_of(inputs.dtype)
    return Work(
        other_flops=taps,
        bytes_read=min(covered, distinct(inputs)) * itemsize,
        bytes_written=results * (itemsize + (_INDEX_BYTES if indices else 0)),
        precision=precision_of(inputs.dtype),
    )


def windowed(signature: Signature, schema: str, rank: int, indices: bool = False) -> Work:
    args = Arguments(signature, schema)
    inputs = args.tensor("self")
    planes = prod(inputs.shape[:-rank])
    extents = inputs.shape[-rank:]
    kernel = args.integers("kernel", rank)
    stride = kernel if args.value("stride") == () else args.integers("stride", rank)
    window = (kernel, stride, args.integers("padding", rank), args.integers("dilation", rank, absent=1))
    out = tuple(map(pooled_size, extents, *window, (args.flag("ceil"),) * rank))
    results = planes * prod(out)
    return _pooled(
        inputs, results * prod(kernel), planes * prod(map(touched, extents, *window, out)), results, indices
    )


def adaptive(signature: Signature, hints: Hints, rank: int, indices: bool = False) -> Work:
    args = Arguments(signature, "self output_size")
    inputs = args.tensor("self")
    seen = hints.outputs if not args.recorded("output_size") else None
    out = seen[0].shape[-rank:] if seen else args.integers("output_size", rank)
    planes = prod(inputs.shape[:-rank])
    taps = planes * prod(map(_adaptive_taps, inputs.shape[-rank:], out))
    return _pooled(inputs, taps, inputs.numel, planes * prod(out), indices)


def _adaptive_taps(extent: int, outputs: int) -> int:
    """Elements over all windows of one dimension: window i is floor(i * n / o) to ceil((i + 1) * n / o).

    Neighbors share one element, unless their border (i + 1) * n / o is whole, which it is gcd(n, o) times.
    """
    return extent + outputs - gcd(extent, outputs)


@named
def adaptive_taps(inputs: Tensors, grad: Tensors, rank: int) -> int:
    """Elements over all windows."""
    return prod(grad.shape[:-rank]) * prod(map(_adaptive_taps, inputs.shape[-rank:], grad.shape[-rank:]))
