"""Convolutions, forward and backward, of one, two and three dimensions, grouped, dilated and transposed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, Dispatches, NotCounted, distinct, size, size_of, written
from rooflines.roofline.formulas.matmul import activation_flops
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula

_LARGEST_KERNEL: Final = 4096  # taps in one dimension; beyond it no kernel is real, and every input position counts as touched

_WINDOW: Final = ("stride", "padding", "dilation", "output_padding", "groups")

# Operator -> its schema. ``self`` is the input, ``grad`` the gradient of the output.
FORWARD: Final[dict[str, str]] = {
    "aten::conv1d": "self weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "aten::conv2d": "self weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "aten::conv3d": "self weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "aten::convolution": "self weight bias stride padding dilation transposed output_padding groups",
    "aten::_convolution": "self weight bias stride padding dilation transposed output_padding groups",
    "aten::convolution_overrideable": "self weight bias stride padding dilation transposed output_padding groups",
    "aten::mkldnn_convolution": "self weight bias padding stride dilation groups",
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
    "aten::_nnpack_spatial_convolution": "self weight bias padding stride=1",
    "aten::_mps_convolution": "self weight bias padding stride dilation groups",
    # until torch 1.10
    "aten::thnn_conv2d_forward": "self weight kernel_size bias stride padding",
    "aten::thnn_conv_depthwise2d_forward": "self weight kernel_size bias stride padding dilation",
}  # fmt: skip
TRANSPOSED: Final[dict[str, str]] = {
    "aten::conv_transpose1d": "self weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "aten::conv_transpose2d": "self weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "aten::conv_transpose3d": "self weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "aten::cudnn_convolution_transpose": "self weight padding output_padding stride dilation groups",
    "aten::miopen_convolution_transpose": "self weight bias padding output_padding stride dilation groups",
    "aten::_mps_convolution_transpose": "self weight padding output_padding stride dilation groups",
    "mkldnn::_convolution_transpose_pointwise": "self weight bias padding output_padding stride dilation groups attr scalars=None",
    "aten::slow_conv_transpose2d": "self weight kernel_size bias=None stride=1 padding=0 output_padding=0 dilation=1",
    "aten::slow_conv_transpose3d": "self weight kernel_size bias=None stride=1 padding=0 output_padding=0 dilation=1",
}
BACKWARD: Final[dict[str, str]] = {
    "aten::convolution_backward": "grad self weight bias_sizes stride padding dilation transposed output_padding groups output_mask",
    "aten::convolution_backward_overrideable": "grad self weight stride padding dilation transposed output_padding groups output_mask",
    "aten::_slow_conv2d_backward": "grad self weight kernel_size stride padding output_mask",
    "aten::mps_convolution_backward": "self grad weight padding stride dilation groups output_mask",
    # until torch 1.10
    "aten::mkldnn_convolution_backward": "self grad weight padding stride dilation groups output_mask",
    "aten::mkldnn_convolution_backward_input": "self_size grad weight padding stride dilation groups",
    "aten::mkldnn_convolution_backward_weights": "weight_size grad self padding stride dilation groups bias_defined",
    "aten::cudnn_convolution_backward": "self grad weight padding stride dilation groups benchmark deterministic tf32 output_mask",
    "aten::cudnn_convolution_backward_input": "self_size grad weight padding stride dilation groups",
    "aten::cudnn_convolution_backward_weight": "weight_size grad self padding stride dilation groups",
    "aten::miopen_convolution_backward": "self grad weight padding stride dilation groups benchmark deterministic output_mask",
    "aten::miopen_convolution_backward_input": "self_size grad weight padding stride dilation groups",
    "aten::miopen_convolution_backward_weight": "weight_size grad self padding stride dilation groups",
    "aten::miopen_depthwise_convolution_backward":
        "self grad weight padding stride dilation groups benchmark deterministic output_mask",
    "aten::miopen_depthwise_convolution_backward_input": "self_size grad weight padding stride dilation groups",
    "aten::miopen_depthwise_convolution_backward_weight": "weight_size grad self padding stride dilation groups",
    "aten::thnn_conv2d_backward": "grad self weight kernel_size stride padding columns ones output_mask",
    "aten::thnn_conv_depthwise2d_backward": "grad self weight kernel_size stride padding dilation output_mask",
    "aten::_conv_depthwise2d_backward": "grad self weight kernel_size stride padding dilation output_mask",
    "aten::conv_depthwise3d_backward": "grad self weight kernel_size stride padding dilation output_mask",
    "aten::slow_conv_dilated2d_backward": "grad self weight kernel_size stride padding dilation output_mask",
    "aten::slow_conv_dilated3d_backward": "grad self weight kernel_size stride padding dilation output_mask",
    "aten::slow_conv3d_backward": "grad self weight kernel_size stride padding columns ones output_mask",
}  # fmt: skip
BACKWARD_TRANSPOSED: Final[dict[str, str]] = {
    "aten::mps_convolution_transpose_backward": "self grad weight padding output_padding stride dilation groups output_mask",
    # until torch 1.10
    "aten::cudnn_convolution_transpose_backward":
        "self grad weight padding output_padding stride dilation groups benchmark deterministic tf32 output_mask",
    "aten::cudnn_convolution_transpose_backward_weight": "weight_size grad self padding stride dilation groups",
    "aten::miopen_convolution_transpose_backward":
        "self grad weight padding output_padding stride dilation groups benchmark deterministic output_mask",
    "aten::miopen_convolution_transpose_backward_weight": "weight_size grad self padding stride dilation groups",
    "aten::slow_conv_transpose2d_backward":
        "grad self weight kernel_size stride padding output_padding dilation columns ones output_mask",
    "aten::slow_conv_transpose3d_backward":
        "grad self weight kernel_size stride padding output_padding dilation columns ones output_mask",
}  # fmt: skip


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


def sizes(
    args: Arguments, inputs: TensorArg, weight: TensorArg, transposed: bool, output: tuple[int, ...] | None = None
) -> Convolution:
    """The convolution of these tensors that the arguments (``stride``, ``padding``...) describe; where they were not recorded, the one
    that makes an ``output`` of this shape."""
    if output is not None and not all(args.recorded(name) for name in _WINDOW if args.has(name)):
        return _from_shapes(inputs, weight, output, transposed)
    padding = args.value("padding")
    if padding is None or isinstance(padding, str):
        raise Dispatches  # "same": text, which traces do not record; the convolution inside has it in numbers
    rank = len(weight.shape) - 2
    window = (args.integers("stride", rank), args.integers("padding", rank), args.integers("dilation", rank, absent=1))
    if not transposed:
        return _plain(inputs, weight, *window)
    extra = args.integers("output_padding", rank, absent=0)
    return _transposed(inputs, weight, *window, extra, args.integer("groups", absent=1))


def _batch_and_channels(inputs: TensorArg, weight: TensorArg) -> tuple[int, int]:
    rank = len(weight.shape) - 2
    if rank < 1 or len(inputs.shape) not in (rank + 1, rank + 2):
        raise NotCounted(f"input of {len(inputs.shape)} dimensions with a weight of {len(weight.shape)}")
    if weight.dtype.startswith("complex"):
        raise NotCounted("no formula for a convolution of complex numbers")
    return inputs.shape[0] if len(inputs.shape) == rank + 2 else 1, inputs.shape[-rank - 1]


def _plain(
    inputs: TensorArg, weight: TensorArg, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> Convolution:
    """Weight [out, in / groups, k...]: every output element is a sum over its group's channels and the kernel."""
    batch, in_channels = _batch_and_channels(inputs, weight)
    kernel = weight.shape[2:]
    in_spatial = inputs.shape[-len(kernel) :]
    out_spatial = tuple(map(output_size, in_spatial, kernel, stride, padding, dilation))
    covered = tuple(map(touched, in_spatial, kernel, stride, padding, dilation, out_spatial))
    macs = batch * weight.shape[0] * prod(out_spatial) * weight.shape[1] * prod(kernel)
    return Convolution(batch, in_channels, weight.shape[0], in_spatial, out_spatial, covered, macs)


def _transposed(
    inputs: TensorArg, weight: TensorArg, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...],
    extra: tuple[int, ...], groups: int,
) -> Convolution:  # fmt: skip
    """Weight [in, out / groups, k...]: every input element meets its group's filters."""
    batch, in_channels = _batch_and_channels(inputs, weight)
    kernel = weight.shape[2:]
    in_spatial = inputs.shape[-len(kernel) :]
    out_spatial = tuple(map(transposed_output_size, in_spatial, kernel, stride, padding, dilation, extra))
    macs = batch * in_channels * prod(in_spatial) * weight.shape[1] * prod(kernel)
    return Convolution(batch, in_channels, weight.shape[1] * groups, in_spatial, out_spatial, in_spatial, macs)


def _from_shapes(inputs: TensorArg, weight: TensorArg, output: tuple[int, ...], transposed: bool) -> Convolution:
    """FLOPs follow from the shapes alone. Of the input a window covers as many positions as the kernel has, or fewer: all of it, unless
    that is too few."""
    batch, in_channels = _batch_and_channels(inputs, weight)
    kernel = weight.shape[2:]
    rank = len(kernel)
    channels, in_spatial, out_spatial = output[-rank - 1], inputs.shape[-rank:], output[-rank:]
    if len(output) != len(inputs.shape) or output[: -rank - 1] != inputs.shape[: -rank - 1]:
        raise NotCounted("the shape of the output does not fit the input")
    if (in_channels if transposed else channels) != weight.shape[0] or (channels if transposed else in_channels) % weight.shape[1]:
        raise NotCounted("the shape of the output does not fit the weight")
    if transposed:
        macs = inputs.numel * weight.shape[1] * prod(kernel)
        return Convolution(batch, in_channels, channels, in_spatial, out_spatial, in_spatial, macs)
    covered = tuple(min(extent, outputs * taps) for extent, outputs, taps in zip(in_spatial, out_spatial, kernel, strict=True))
    macs = batch * channels * prod(out_spatial) * weight.shape[1] * prod(kernel)
    return Convolution(batch, in_channels, channels, in_spatial, out_spatial, covered, macs)


def _is_transposed(args: Arguments, inputs: TensorArg, weight: TensorArg, output: tuple[int, ...] | None) -> bool:
    """The flag; where it was not recorded, what the channels of the output say: a plain weight is [out, in / groups, k...], a
    transposed one [in, out / groups, k...]. Where both fit they are as much work if input and output are of one size."""
    if not args.has("transposed") or args.recorded("transposed") or output is None:
        return args.flag("transposed", absent=False)
    rank = len(weight.shape) - 2
    channels_in, channels_out = inputs.shape[-rank - 1], output[-rank - 1]
    plain = channels_out == weight.shape[0] and channels_in % weight.shape[1] == 0
    transposed = channels_in == weight.shape[0] and channels_out % weight.shape[1] == 0
    if plain and transposed and prod(output) != inputs.numel:
        return args.flag("transposed")
    return transposed and not plain


def _forward(signature: Signature, hints: Hints, schema: str, transposed: bool) -> Work:
    args = Arguments(signature, schema)
    inputs, weight, bias, added = args.tensor("self"), args.tensor("weight"), args.optional("bias"), args.optional("added")
    output = hints.outputs[0].shape if hints.outputs else None
    conv = sizes(args, inputs, weight, transposed or _is_transposed(args, inputs, weight, output), output)
    fused = 2 * (added is not None) + signature.name.endswith("_relu")
    if args.has("attr"):
        fused = activation_flops(args, "attr") + activation_flops(args, "unary") + (added is not None and not args.recorded("attr"))
    return Work(
        matrix_flops=2 * conv.macs,
        other_flops=conv.outputs * ((bias is not None) + fused),
        bytes_read=conv.input_bytes(inputs) + size(weight, bias, added),
        bytes_written=conv.outputs * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


_FUSED: Final = "weight bias padding stride dilation groups attr"


@formula("mkldnn::_convolution_pointwise", "mkldnn::_convolution_pointwise_", category="convolution")
def _fused(signature: Signature) -> Work:
    """``(X, W, B, ..., attr, scalars, algorithm)``, with a second operand ``(X, other, W, B, ..., attr, alpha, unary, ...)``, in place
    ``(other, X, W, B, ...)``."""
    if len(signature.args) < 13:
        schema = f"self {_FUSED} scalars=None algorithm=None"
    else:
        operands = "added self" if signature.name.endswith("_") else "self added"
        schema = f"{operands} {_FUSED} alpha=None unary=None scalars=None algorithm=None"
    return _forward(signature, Hints(), schema, transposed=False)


def _backward(signature: Signature, schema: str, transposed: bool) -> Work:
    """grad_input = grad * weight and grad_weight = input * grad: each meets every pair that the forward met."""
    args = Arguments(signature, schema)
    grad, inputs, weight = args.tensor("grad"), _tensor_or_size(args, "self"), _tensor_or_size(args, "weight")
    conv = sizes(args, inputs, weight, transposed or _is_transposed(args, inputs, weight, grad.shape), grad.shape)
    of_input, of_weight, of_bias = _asked_for(args)
    return Work(
        matrix_flops=2 * conv.macs * (of_input + of_weight),
        other_flops=grad.numel * of_bias,
        bytes_read=(
            size(grad if of_input or of_weight or of_bias else None, weight if of_input else None)
            + (conv.input_bytes(inputs) if of_weight else 0)
        ),
        bytes_written=(
            written(inputs if of_input else None, weight if of_weight else None) + of_bias * conv.out_channels * size_of(weight.dtype)
        ),
        precision=matrix_precision_of(grad.dtype),
    )


def _tensor_or_size(args: Arguments, name: str) -> TensorArg:
    """Operators that make one gradient are given only the shape of what it belongs to."""
    if args.has(name):
        return args.tensor(name)
    return TensorArg(args.sizes(f"{name}_size"), args.tensor("grad").dtype)


def _asked_for(args: Arguments) -> tuple[bool, bool, bool]:
    """Which of the gradients of input, weight and bias are wanted."""
    if args.has("weight_size"):
        return False, True, args.flag("bias_defined", absent=False)
    if args.has("self_size"):
        return True, False, False
    if args.optional("output_mask") is not None:
        return True, True, True  # the form that is given the tensors to write to
    asked = args.value("output_mask")
    of_input, of_weight, *of_bias = args.mask("output_mask", len(asked) if isinstance(asked, tuple) else 3)
    return of_input, of_weight, any(of_bias)


@formula("aten::cudnn_convolution_transpose_backward_input", "aten::miopen_convolution_transpose_backward_input",
         category="convolution")  # fmt: skip
def _transposed_input_gradient(signature: Signature) -> Work:
    """The plain convolution of the gradient: grad [b, out, ...] with the weight [in, out / groups, k...] is [b, in, ...]."""
    return _forward(signature, Hints(), "self weight padding stride dilation groups", transposed=False)


@formula("aten::miopen_convolution_backward_bias", "aten::cudnn_convolution_backward_bias", category="convolution")
def _bias_gradient(signature: Signature) -> Work:
    """[b, c, ...] summed to [c]."""
    grad = Arguments(signature, "grad").tensor("grad")
    return Work(
        other_flops=grad.numel,
        bytes_read=size(grad),
        bytes_written=grad.shape[1] * size_of(grad.dtype),
        precision=matrix_precision_of(grad.dtype),
    )


@formula("aten::conv_tbc", category="convolution")
def _time_first(signature: Signature) -> Work:
    """[t, b, in] with weight [k, in, out], padded at both ends."""
    args = Arguments(signature, "self weight bias pad=0")
    inputs, weight, bias = args.tensor("self"), args.tensor("weight"), args.tensor("bias")
    (steps, batch, channels), (kernel, _, outputs) = inputs.shape, weight.shape
    results = output_size(steps, kernel, 1, args.integer("pad"), 1) * batch * outputs
    return Work(
        matrix_flops=2 * results * kernel * channels,
        other_flops=results,
        bytes_read=size(inputs, weight, bias),
        bytes_written=results * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


for _name, _schema in FORWARD.items():
    hinted_formula(_name, category="convolution")(partial(_forward, schema=_schema, transposed=False))
for _name, _schema in TRANSPOSED.items():
    hinted_formula(_name, category="convolution")(partial(_forward, schema=_schema, transposed=True))
for _name, _schema in BACKWARD.items():
    formula(_name, category="convolution")(partial(_backward, schema=_schema, transposed=False))
for _name, _schema in BACKWARD_TRANSPOSED.items():
    formula(_name, category="convolution")(partial(_backward, schema=_schema, transposed=True))
