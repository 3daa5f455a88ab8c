"""Convolutions, forward and backward, of one, two and three dimensions, grouped, dilated and transposed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    Dispatches,
    Ints,
    NotCounted,
    distinct,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.families import texts
from rooflines.roofline.count.formulas.matmul import activation_flops
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of
from rooflines.roofline.count.formulas.registry import Hints

_LARGEST_KERNEL = (
    4096  # taps in one dimension; beyond it no kernel is real, and every input position counts as touched
)

FORWARD = texts("convolution.forward")
TRANSPOSED = texts("convolution.transposed")
BACKWARD = texts("convolution.backward")
BACKWARD_TRANSPOSED = texts("convolution.backward_transposed")
_WINDOW = ("stride", "padding", "dilation", "output_padding", "groups")


def output_size(extent: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Positions of a window over one dimension."""
    return max((extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, 0)


def transposed_output_size(
    extent: int, kernel: int, stride: int, padding: int, dilation: int, output_padding: int
) -> int:
    """Length of one dimension after a transposed convolution."""
    return max((extent - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1, 0)


def touched(extent: int, kernel: int, stride: int, padding: int, dilation: int, outputs: int) -> int:
    """Distinct positions of one dimension that some window covers: all of them, unless the stride jumps over
    some.

    Tap ``j`` of window ``o`` is at ``o * stride + (j * dilation - padding)``, so each tap walks one residue
    class modulo the stride; the union is taken class by class.
    """
    if kernel > _LARGEST_KERNEL:
        return extent
    walks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for tap in range(kernel):
        first, residue = divmod(tap * dilation - padding, stride)
        last_inside = (extent - 1 - residue) // stride
        start = max(first, 0)
        stop = min(first + outputs - 1, last_inside) + 1
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
    """The sizes of one convolution. ``macs`` is multiply-accumulates of the product, the same for each
    gradient."""

    batch: int
    in_channels: int
    out_channels: int
    in_spatial: Ints
    out_spatial: Ints
    touched_spatial: Ints
    macs: int

    @property
    def outputs(self) -> int:
        """Elements of the output."""
        return self.batch * self.out_channels * prod(self.out_spatial)

    def input_bytes(self, tensor: TensorArg) -> int:
        """Bytes of the input positions that some window covers."""
        all_of_it = prod(self.in_spatial)
        some_of_it = prod(self.touched_spatial)
        if all_of_it == some_of_it:
            return size(tensor)
        return min(self.batch * self.in_channels * some_of_it, distinct(tensor)) * size_of(tensor.dtype)


def sizes(
    args: Arguments,
    inputs: TensorArg,
    weight: TensorArg,
    transposed: bool,
    output: Ints | None = None,
) -> Convolution:
    """The convolution of these tensors that the arguments (``stride``, ``padding``...) describe; where they
    were not recorded, the one that makes an ``output`` of this shape.

    A weight is [out, in / groups, k...], and every output element is a sum over its group's channels and the
    kernel. A transposed one is [in, out / groups, k...], and every input element meets its group's filters.
    """
    kernel = weight.shape[2:]
    rank = len(kernel)
    recorded = output is None or all(args.recorded(name) for name in _WINDOW if args.has(name))
    padding = args.value("padding") if recorded else ()
    if padding is None or isinstance(padding, str):
        raise Dispatches  # "same": text, which traces do not record; the convolution inside has it in numbers
    if rank < 1 or len(inputs.shape) not in (rank + 1, rank + 2):
        raise NotCounted(f"input of {len(inputs.shape)} dimensions with a weight of {len(weight.shape)}")
    if weight.dtype.startswith("complex"):
        raise NotCounted("no formula for a convolution of complex numbers")
    batch = inputs.shape[0] if len(inputs.shape) == rank + 2 else 1
    in_channels = inputs.shape[-rank - 1]
    in_spatial = covered = inputs.shape[-rank:]
    if output is not None and not recorded:
        out_channels = output[-rank - 1]
        out_spatial = output[-rank:]
        _check_output(inputs, weight, output, transposed)
        if (
            not transposed
        ):  # windows cover as many positions as they have, or fewer: all, unless that is too few
            covered = tuple(
                min(extent, outputs * taps)
                for extent, outputs, taps in zip(in_spatial, out_spatial, kernel, strict=True)
            )
    else:
        window = (
            args.integers("stride", rank),
            args.integers("padding", rank),
            args.integers("dilation", rank, absent=1),
        )
        if transposed:
            out_channels = weight.shape[1] * args.integer("groups", absent=1)
            extra = args.integers("output_padding", rank, absent=0)
            out_spatial = tuple(map(transposed_output_size, in_spatial, kernel, *window, extra))
        else:
            out_channels = weight.shape[0]
            out_spatial = tuple(map(output_size, in_spatial, kernel, *window))
            covered = tuple(map(touched, in_spatial, kernel, *window, out_spatial))
    macs = batch * prod(in_spatial if transposed else out_spatial) * weight.numel
    return Convolution(batch, in_channels, out_channels, in_spatial, out_spatial, covered, macs)


def _check_output(inputs: TensorArg, weight: TensorArg, output: Ints, transposed: bool) -> None:
    rank = len(weight.shape) - 2
    channels_in = inputs.shape[-rank - 1]
    channels_out = output[-rank - 1]
    if len(output) != len(inputs.shape) or output[: -rank - 1] != inputs.shape[: -rank - 1]:
        raise NotCounted("the shape of the output does not fit the input")
    if not fits_weight(weight, channels_in, channels_out, transposed):
        raise NotCounted("the shape of the output does not fit the weight")


def fits_weight(weight: TensorArg, channels_in: int, channels_out: int, transposed: bool) -> bool:
    """Whether a weight makes these channels: a plain one is [out, in / groups, k...], a transposed one
    [in, out / groups, k...]."""
    first, second = (channels_in, channels_out) if transposed else (channels_out, channels_in)
    return first == weight.shape[0] and second % weight.shape[1] == 0


def _is_transposed(args: Arguments, inputs: TensorArg, weight: TensorArg, output: Ints | None) -> bool:
    """The flag; where it was not recorded, what the channels of the output say. Where both fit they are as
    much work if input and output are of one size."""
    if not args.has("transposed") or args.recorded("transposed") or output is None:
        return args.flag("transposed", absent=False)
    rank = len(weight.shape) - 2
    channels_in = inputs.shape[-rank - 1]
    channels_out = output[-rank - 1]
    plain, transposed = (fits_weight(weight, channels_in, channels_out, flag) for flag in (False, True))
    if plain and transposed and prod(output) != inputs.numel:
        return args.flag("transposed")
    return transposed and not plain


def forward(signature: Signature, hints: Hints, schema: str, spreads: bool = False) -> Work:
    args = Arguments(signature, schema)
    inputs, weight = args.operands("self", "weight")
    bias, added = args.optionals("bias", "added")
    output = hints.outputs[0].shape if hints.outputs else None
    conv = sizes(args, inputs, weight, spreads or _is_transposed(args, inputs, weight, output), output)
    fused = 2 * (added is not None) + signature.name.endswith("_relu")
    if args.has("attr"):
        unnamed = added is not None and not args.recorded("attr")
        fused = activation_flops(args, "attr", "unary") + unnamed
    return Work(
        matrix_flops=2 * conv.macs,
        other_flops=conv.outputs * ((bias is not None) + fused),
        bytes_read=conv.input_bytes(inputs) + size(weight, bias, added),
        bytes_written=conv.outputs * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


def transposed(signature: Signature, hints: Hints, schema: str) -> Work:
    """Each input meets the window of results that it spreads over."""
    return forward(signature, hints, schema, spreads=True)


_FUSED = "weight bias padding stride dilation groups attr"


def fused(signature: Signature) -> Work:
    """``(X, W, B, ..., attr, scalars, algorithm)``, with a second operand ``(X, other, W, B, ..., attr,
    alpha, unary, ...)``, in place ``(other, X, W, B, ...)``."""
    if len(signature.args) < 13:
        schema = f"self {_FUSED} scalars=None algorithm=None"
    else:
        operands = "added self" if signature.name.endswith("_") else "self added"
        schema = f"{operands} {_FUSED} alpha=None unary=None scalars=None algorithm=None"
    return forward(signature, Hints(), schema)


def backward(signature: Signature, schema: str, spreads: bool = False) -> Work:
    """grad_input = grad * weight and grad_weight = input * grad: each meets every pair that the forward
    met."""
    args = Arguments(signature, schema)
    grad = args.tensor("grad")
    inputs = _tensor_or_size(args, "self")
    weight = _tensor_or_size(args, "weight")
    conv = sizes(
        args, inputs, weight, spreads or _is_transposed(args, inputs, weight, grad.shape), grad.shape
    )
    of_input, of_weight, of_bias = _asked_for(args)
    return Work(
        matrix_flops=2 * conv.macs * (of_input + of_weight),
        other_flops=grad.numel * of_bias,
        bytes_read=(
            size(grad if of_input or of_weight or of_bias else None, weight if of_input else None)
            + (conv.input_bytes(inputs) if of_weight else 0)
        ),
        bytes_written=(
            written(inputs if of_input else None, weight if of_weight else None)
            + of_bias * conv.out_channels * size_of(weight.dtype)
        ),
        precision=matrix_precision_of(grad.dtype),
    )


def backward_transposed(signature: Signature, schema: str) -> Work:
    """As of the other convolutions."""
    return backward(signature, schema, spreads=True)


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


def transposed_input_gradient(signature: Signature, hints: Hints, schema: str) -> Work:
    """The plain convolution of the gradient: grad [b, out, ...] with the weight [in, out / groups, k...] is
    [b, in, ...]."""
    return forward(signature, hints, schema)
