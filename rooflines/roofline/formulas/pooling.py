"""Max, average and adaptive pooling, forward and backward. A window of k elements costs k FLOPs: k - 1 to combine, 1 to finish."""

from __future__ import annotations

from functools import partial
from math import gcd, prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, distinct, size, size_of
from rooflines.roofline.formulas.convolution import touched
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, Tensors, named, register

_INDEX_BYTES: Final = 8  # max-pooling writes where each maximum was, as int64
_MAX: Final = "self kernel stride=() padding=0 dilation=1 ceil=False"
_AVERAGE: Final = "self kernel stride=() padding=0 ceil=False"


def pooled_size(extent: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Windows over one dimension. With ``ceil`` a partial window counts if it starts inside the input or its left padding."""
    reach = extent + 2 * padding - dilation * (kernel - 1) - 1
    count = (reach + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (count - 1) * stride >= extent + padding:
        count -= 1
    return max(count, 0)


def _pooled(inputs: TensorArg, taps: int, covered: int, results: int, indices: bool) -> Work:
    """A pooling of ``taps`` elements in all windows, ``covered`` distinct ones of the input, to ``results``, perhaps with indices."""
    itemsize = size_of(inputs.dtype)
    return Work(
        other_flops=taps,
        bytes_read=min(covered, distinct(inputs)) * itemsize,
        bytes_written=results * (itemsize + (_INDEX_BYTES if indices else 0)),
        precision=precision_of(inputs.dtype),
    )


def _windowed(signature: Signature, schema: str, rank: int, indices: bool) -> Work:
    args = Arguments(signature, schema)
    inputs = args.tensor("self")
    planes, extents = prod(inputs.shape[:-rank]), inputs.shape[-rank:]
    kernel = args.integers("kernel", rank)
    stride = kernel if args.value("stride") == () else args.integers("stride", rank)
    window = (kernel, stride, args.integers("padding", rank), args.integers("dilation", rank, absent=1))
    out = tuple(map(pooled_size, extents, *window, (args.flag("ceil"),) * rank))
    results = planes * prod(out)
    return _pooled(inputs, results * prod(kernel), planes * prod(map(touched, extents, *window, out)), results, indices)


def _adaptive(signature: Signature, hints: Hints, rank: int, indices: bool) -> Work:
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


def _fractional(signature: Signature, rank: int) -> Work:
    """Windows of one size at random places. The first and the last have theirs at the borders, so that two need no random number."""
    args = Arguments(signature, "self kernel output_size random_samples")
    inputs = args.tensor("self")
    kernel, out = args.integers("kernel", rank), args.integers("output_size", rank)
    planes = prod(inputs.shape[:-rank])
    covered = planes * prod(min(extent, taps * count) for extent, taps, count in zip(inputs.shape[-rank:], kernel, out, strict=True))
    results = planes * prod(out)
    pooled = _pooled(inputs, results * prod(kernel), covered, results, indices=True)
    return pooled + Work(bytes_read=size(args.tensor("random_samples")) if max(out) > 2 else 0)


def _backward(schema: str, flops: str) -> Row:
    """Each output's gradient goes to the one maximum (an add), or divided to its whole window (an add each)."""
    return Row(f"read grad, {schema}", other=flops, result="self", precision="self")


_GRADIENTS: Final[dict[str, Row]] = {
    # a maximum without a stored index is searched for again in the input, which otherwise gives only its shape
    "max_pool2d_backward": _backward("read self, kernel+", "grad.n * (volume(kernel, 2) + 1)")
}
_UNPOOLED: Final[dict[str, Row]] = {}
for _rank in (1, 2, 3):
    for _name, _schema, _indices in (
        ("aten::max_pool", _MAX, False), ("aten::mkldnn_max_pool", _MAX, False), ("aten::avg_pool", _AVERAGE, False),
        ("aten::quantized_max_pool", _MAX, False), ("quantized::max_pool", _MAX, False), ("aten::max_pool", _MAX, True),
    ):  # fmt: skip
        if _name != "quantized::max_pool" or _rank < 3:
            formula(f"{_name}{_rank}d{'_with_indices' if _indices else ''}", category="reduction")(
                partial(_windowed, schema=_schema, rank=_rank, indices=_indices)
            )
    for _name in ("adaptive_avg_pool", "_adaptive_avg_pool", "mkldnn_adaptive_avg_pool", "adaptive_max_pool"):
        hinted_formula(f"aten::{_name}{_rank}d", category="reduction")(partial(_adaptive, rank=_rank, indices="max" in _name))
    _taps = f"adaptive_taps(self, grad, {_rank})"
    _GRADIENTS.update({
        f"max_pool{_rank}d_with_indices_backward": _backward(
            "view self, kernel, stride, padding, dilation, ceil, read indices", "grad.n"
        ),
        f"avg_pool{_rank}d_backward": _backward("view self, kernel+", f"grad.n * volume(kernel, {_rank})"),
        " ".join(f"{name}{_rank}d_backward" for name in ("_adaptive_avg_pool", "adaptive_avg_pool", "mkldnn_adaptive_avg_pool")):
            _backward("view self", _taps),
        f"adaptive_max_pool{_rank}d_backward": _backward("view self, read indices", "grad.n"),
        f"mkldnn_max_pool{_rank}d_backward": _backward("read output, read self, kernel+", f"grad.n * (volume(kernel, {_rank}) + 1)"),
    })  # fmt: skip
for _rank in (2, 3):
    formula(f"aten::fractional_max_pool{_rank}d", category="reduction")(partial(_fractional, rank=_rank))
    _GRADIENTS[f"fractional_max_pool{_rank}d_backward"] = _backward("view self, kernel, output_size, read indices", "grad.n")
    # zeros, with the elements of ``self`` at the places that a pooling kept
    _UNPOOLED[f"max_unpool{_rank}d"] = Row(
        "read self, read indices, output_size+", writes=f"prod(self[:-{_rank}]) * volume(output_size, {_rank}) * self.item"
    )
register(_GRADIENTS, "reduction", namespace="aten::")
register(_UNPOOLED, "copy", namespace="aten::")
