"""Convolutions, forward and backward, of one, two and three dimensions, grouped, dilated and transposed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.work.arguments import Arguments, Dispatches, NotCounted, distinct, size, size_of
from rooflines.roofline.work.record import Work, matrix_precision_of
from rooflines.roofline.work.table import formula

_LARGEST_KERNEL: Final = 4096  # taps in one dimension; beyond it no kernel is real, and every input position counts as touched

# Operator -> its schema. ``self`` is the input, ``grad`` the gradient of the output.
FORWARD: Final[dict[str, str]] = {
    "aten::conv1d": "self weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "aten::conv2d": "self weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "aten::conv3d": "self weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "aten::convolution": "self weight bias stride padding dilation transposed output_padding groups",
    "aten::_convolution": "self weight bias stride padding dilation transposed output_padding groups",
    "aten::convolution_overrideable": "self weight bias stride padding dilation transposed output_padding groups",
    "aten::mkldnn_convolution": "self weight bias padding stride dilation groups",
    "mkldnn::_convolution_pointwise": "self weight bias padding stride dilation groups",
    "aten::cudnn_convolution": "self weight padding stride dilation groups",
    "aten::cudnn_convolution_relu": "self weight bias stride padding dilation groups",
    "aten::cudnn_convolution_add_relu": "self weight added alpha bias stride padding dilation groups",
    "aten::miopen_convolution": "self weight bias padding stride dilation groups",
    "aten::miopen_convolution_relu": "self weight bias stride padding dilation groups",
    "aten::miopen_convolution_add_relu": "self weight added alpha bias stride padding dilation groups",
    "aten::miopen_depthwise_convolution": "self weight bias padding stride dilation groups",
    "aten::_conv_depthwise2d": "self weight kernel_size bias stride padding dilation",
    "aten::conv_depthwise3d": "self weight kernel_size bias stride padding dilation",
    "aten::thnn_conv2d": "self weight kernel_size bias=None stride=1 padding=0",
    "aten::_slow_conv2d_forward": "self weight kernel_size bias stride padding",
    "aten::slow_conv_dilated2d": "self weight kernel_size bias=None stride=1 padding=0 dilation=1",
    "aten::slow_conv_dilated3d": "self weight kernel_size bias=None stride=1 padding=0 dilation=1",
    "aten::slow_conv3d": "self weight kernel_size bias=None stride=1 padding=0",
    "aten::slow_conv3d_forward": "self weight kernel_size bias stride padding",
}  # fmt: skip
TRANSPOSED: Final[dict[str, str]] = {
    "aten::conv_transpose1d": "self weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "aten::conv_transpose2d": "self weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "aten::conv_transpose3d": "self weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "aten::cudnn_convolution_transpose": "self weight padding output_padding stride dilation groups",
    "aten::miopen_convolution_transpose": "self weight bias padding output_padding stride dilation groups",
    "aten::slow_conv_transpose2d": "self weight kernel_size bias=None stride=1 padding=0 output_padding=0 dilation=1",
    "aten::slow_conv_transpose3d": "self weight kernel_size bias=None stride=1 padding=0 output_padding=0 dilation=1",
}
BACKWARD: Final[dict[str, str]] = {
    "aten::convolution_backward": "grad self weight bias_sizes stride padding dilation transposed output_padding groups output_mask",
    "aten::convolution_backward_overrideable": "grad self weight stride padding dilation transposed output_padding groups output_mask",
    "aten::_slow_conv2d_backward": "grad self weight kernel_size stride padding output_mask",
    # until torch 1.10
    "aten::mkldnn_convolution_backward": "self grad weight padding stride dilation groups output_mask",
    "aten::cudnn_convolution_backward": "self grad weight padding stride dilation groups benchmark deterministic tf32 output_mask",
}


def output_size(extent: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Positions of a window over one dimension."""
    return max((extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, 0)


def transposed_output_size(extent: int, kernel: int, stride: int, padding: int, dilation: int, output_padding: int) -> int:
    """Length of one dimension after a transposed convolution."""
    return max((extent - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1, 0)


def touched(extent: int, kernel: int, stride: int, padding: int, dilation: int, outputs: int) -> int:
    """Distinct positions of one dimension that some window covers: all of them, unless the stride jumps over some.

    Tap ``j`` of window ``o`` is at ``o * stride + (j * dilation - padding)``, so each tap walks one residue class modulo the stride;
    the union is taken class by class.
    """
    if kernel > _LARGEST_KERNEL:
        return extent
    walks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for tap in range(kernel):
        first, residue = divmod(tap * dilation - padding, stride)
        last_inside = (extent - 1 - residue) // stride
        start, stop = max(first, 0), min(first + outputs - 1, last_inside) + 1
        if start < stop:
            walks[residue].append((start, stop))
    return sum(_union(intervals) for intervals in walks.values())


def _union(intervals: list[tuple[int, int]]) -> int:
    covered, end = 0, 0
    for start, stop in sorted(intervals):
        covered += max(stop - max(start, end), 0)
        end = max(end, stop)
    return covered


@dataclass(frozen=True, slots=True)
class Convolution:
    """The sizes of one convolution. ``macs`` is multiply-accumulates of the product, the same for each gradient."""

    batch: int
    in_channels: int
    out_channels: int
    in_spatial: tuple[int, ...]
    out_spatial: tuple[int, ...]
    touched_spatial: tuple[int, ...]
    macs: int

    @property
    def outputs(self) -> int:
        """Elements of the output."""
        return self.batch * self.out_channels * prod(self.out_spatial)

    def input_bytes(self, tensor: TensorArg) -> int:
        """Bytes of the input positions that some window covers."""
        all_of_it, some_of_it = prod(self.in_spatial), prod(self.touched_spatial)
        if all_of_it == some_of_it:
            return size(tensor)
        return min(self.batch * self.in_channels * some_of_it, distinct(tensor)) * size_of(tensor.dtype)


def sizes(args: Arguments, transposed: bool) -> Convolution:
    """The convolution that these arguments (``self``, ``weight``, ``stride``...) describe."""
    inputs, weight = args.tensor("self"), args.tensor("weight")
    rank = len(weight.shape) - 2
    if rank < 1 or len(inputs.shape) not in (rank + 1, rank + 2):
        raise NotCounted(f"input of {len(inputs.shape)} dimensions with a weight of {len(weight.shape)}")
    batch = inputs.shape[0] if len(inputs.shape) == rank + 2 else 1
    in_channels, in_spatial = inputs.shape[-rank - 1], inputs.shape[-rank:]
    kernel = weight.shape[2:]
    if args.value("padding") is None:
        raise Dispatches  # padding="same": text, which traces do not record; the convolution inside has it in numbers
    stride, padding = args.integers("stride", rank), args.integers("padding", rank)
    dilation = args.integers("dilation", rank, absent=1)
    if transposed:
        extra = args.integers("output_padding", rank)
        out_spatial = tuple(map(transposed_output_size, in_spatial, kernel, stride, padding, dilation, extra))
        # weight [in, out / groups, k...]: every input element meets its group's filters
        out_channels = weight.shape[1] * args.integer("groups", absent=1)
        macs = batch * in_channels * prod(in_spatial) * weight.shape[1] * prod(kernel)
        return Convolution(batch, in_channels, out_channels, in_spatial, out_spatial, in_spatial, macs)
    out_spatial = tuple(map(output_size, in_spatial, kernel, stride, padding, dilation))
    covered = tuple(map(touched, in_spatial, kernel, stride, padding, dilation, out_spatial))
    # weight [out, in / groups, k...]: every output element is a sum over its group's channels and the kernel
    macs = batch * weight.shape[0] * prod(out_spatial) * weight.shape[1] * prod(kernel)
    return Convolution(batch, in_channels, weight.shape[0], in_spatial, out_spatial, covered, macs)


def _forward(signature: Signature, schema: str, transposed: bool) -> Work:
    args = Arguments(signature, schema)
    inputs, weight, bias, added = args.tensor("self"), args.tensor("weight"), args.optional("bias"), args.optional("added")
    if bias is not None and len(bias.shape) != 1:
        raise NotCounted("a bias that is not a vector")  # the pointwise forms with a second operand have another schema
    conv = sizes(args, transposed or args.flag("transposed", absent=False))
    fused_relu = signature.name.endswith("_relu")
    return Work(
        matrix_flops=2 * conv.macs,
        other_flops=conv.outputs * ((bias is not None) + 2 * (added is not None) + fused_relu),
        bytes_read=conv.input_bytes(inputs) + size(weight, bias, added),
        bytes_written=conv.outputs * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


def _backward(signature: Signature, schema: str) -> Work:
    args = Arguments(signature, schema)
    grad, inputs, weight = args.tensor("grad"), args.tensor("self"), args.tensor("weight")
    conv = sizes(args, args.flag("transposed", absent=False))
    grad_input, grad_weight, grad_bias = args.mask("output_mask", 3)
    # grad_input = grad * weight and grad_weight = input * grad: each meets every pair that the forward met
    return Work(
        matrix_flops=2 * conv.macs * (grad_input + grad_weight),
        other_flops=conv.outputs * grad_bias,
        bytes_read=size(grad) + (size(weight) if grad_input else 0) + (conv.input_bytes(inputs) if grad_weight else 0),
        bytes_written=(
            grad_input * inputs.numel * size_of(inputs.dtype)
            + grad_weight * weight.numel * size_of(weight.dtype)
            + grad_bias * conv.out_channels * size_of(weight.dtype)
        ),
        precision=matrix_precision_of(grad.dtype),
    )


for _name, _schema in FORWARD.items():
    formula(_name, category="convolution")(partial(_forward, schema=_schema, transposed=False))
for _name, _schema in TRANSPOSED.items():
    formula(_name, category="convolution")(partial(_forward, schema=_schema, transposed=True))
for _name, _schema in BACKWARD.items():
    formula(_name, category="convolution")(partial(_backward, schema=_schema))
