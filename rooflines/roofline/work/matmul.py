"""Matrix products: linear layers, mm, bmm, matmul and the forms with an addition."""

from __future__ import annotations

from math import prod

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.work.arguments import Arguments, NotCounted, broadcast, size, size_of
from rooflines.roofline.work.costs import GELU
from rooflines.roofline.work.record import Work, matrix_precision_of
from rooflines.roofline.work.table import aten, composite, formula


def product_flops(batch: int, m: int, k: int, n: int) -> int:
    """FLOPs of ``[b, m, k] @ [b, k, n]``: each of the b*m*n results is k multiply-adds."""
    return 2 * batch * m * k * n


def product(left: TensorArg, right: TensorArg) -> tuple[int, tuple[int, ...]]:
    """FLOPs and result shape of ``left @ right`` by the rule of torch.matmul: vectors gain a dimension, batches broadcast."""
    if not left.shape or not right.shape:
        raise NotCounted("a matrix product of a scalar")
    a = left.shape if len(left.shape) > 1 else (1, *left.shape)
    b = right.shape if len(right.shape) > 1 else (*right.shape, 1)
    if a[-1] != b[-2]:
        raise NotCounted(f"inner dimensions {a[-1]} and {b[-2]} differ")
    batch = broadcast((a[:-2], b[:-2]))
    rows = a[-2:-1] if len(left.shape) > 1 else ()
    columns = b[-1:] if len(right.shape) > 1 else ()
    return product_flops(prod(batch), a[-2], a[-1], b[-1]), (*batch, *rows, *columns)


def _product_work(left: TensorArg, right: TensorArg, out_dtype: str | None = None) -> Work:
    flops, shape = product(left, right)
    return Work(
        matrix_flops=flops,
        bytes_read=size(left, right),
        bytes_written=prod(shape) * size_of(out_dtype or left.dtype),
        precision=matrix_precision_of(left.dtype),
    )


@formula("aten::mm", "aten::bmm", "aten::matmul", "aten::mv", "aten::dot", "aten::vdot", "aten::linalg_matmul",
         category="matmul")  # fmt: skip
def _plain(signature: Signature) -> Work:
    args = Arguments(signature, "self other")
    return _product_work(args.tensor("self"), args.tensor("other"))


@formula("aten::_int_mm", category="matmul")
def _integer(signature: Signature) -> Work:
    args = Arguments(signature, "self other")
    return _product_work(args.tensor("self"), args.tensor("other"), out_dtype="int32")


@formula("aten::_scaled_mm", category="matmul")
def _scaled(signature: Signature) -> Work:
    args = Arguments(signature, "self other scale_a scale_b bias=None scale_result=None out_dtype=None")
    left, right = args.tensor("self"), args.tensor("other")
    scales = [args.optional(name) for name in ("scale_a", "scale_b", "bias", "scale_result")]
    return _product_work(left, right, args.dtype("out_dtype", left.dtype)) + Work(bytes_read=size(*scales))


@formula("aten::addmm", "aten::addmm_", "aten::addmv", "aten::addmv_", "aten::baddbmm", "aten::baddbmm_", "aten::_addmm_activation",
         category="matmul")  # fmt: skip
def _with_addition(signature: Signature) -> Work:
    """beta * self + alpha * (left @ right); alpha and beta are folded into the product, the addition is one FLOP a result."""
    args = Arguments(signature, "self left right beta=1 alpha=1 use_gelu=False")
    added, left, right = args.tensor("self"), args.tensor("left"), args.tensor("right")
    work = _product_work(left, right)
    results = work.bytes_written // size_of(left.dtype)
    cost = 1
    if signature.name == "aten::_addmm_activation":
        cost += GELU if args.flag("use_gelu") else 1
    read = size(added) if not args.recorded("beta") or args.value("beta") != 0 else 0
    return work + Work(other_flops=cost * results, bytes_read=read, precision=work.precision)


@formula("aten::addbmm", "aten::addbmm_", category="matmul")
def _sum_of_products(signature: Signature) -> Work:
    args = Arguments(signature, "self left right")
    added, left, right = args.tensor("self"), args.tensor("left"), args.tensor("right")
    flops, (_, rows, columns) = product(left, right)  # [b, m, k] @ [b, k, n], summed over b
    return Work(
        matrix_flops=flops,
        other_flops=rows * columns,
        bytes_read=size(added, left, right),
        bytes_written=rows * columns * size_of(left.dtype),
        precision=matrix_precision_of(left.dtype),
    )


@formula("aten::linear", "aten::mkldnn_linear", "mkldnn::_linear_pointwise", category="matmul")
def _linear(signature: Signature) -> Work:
    args = Arguments(signature, "self weight bias=None")
    inputs, weight, bias = args.tensor("self"), args.tensor("weight"), args.optional("bias")
    if bias is not None and len(bias.shape) > 1:
        raise NotCounted("a bias that is not a vector")  # the pointwise form with a second operand has another schema
    # [..., k] @ [n, k]^T; a weight of one dimension gives one number a row
    outputs = weight.shape[0] if len(weight.shape) == 2 else 1
    rows = prod(inputs.shape[:-1])
    if inputs.shape[-1] != weight.shape[-1]:
        raise NotCounted(f"inner dimensions {inputs.shape[-1]} and {weight.shape[-1]} differ")
    return Work(
        matrix_flops=product_flops(1, rows, inputs.shape[-1], outputs),
        other_flops=rows * outputs if bias is not None else 0,
        bytes_read=size(inputs, weight, bias),
        bytes_written=rows * outputs * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


@formula("aten::linear_backward", "aten::mkldnn_linear_backward", category="matmul")
def _linear_backward(signature: Signature) -> Work:
    args = Arguments(signature, "self grad weight output_mask")
    inputs, grad, weight = args.tensor("self"), args.tensor("grad"), args.tensor("weight")
    grad_input, grad_weight, grad_bias = args.mask("output_mask", 3)
    flops = product_flops(1, prod(inputs.shape[:-1]), inputs.shape[-1], weight.shape[0])
    return Work(
        matrix_flops=flops * (grad_input + grad_weight),
        other_flops=grad.numel * grad_bias,
        bytes_read=size(grad) + (size(weight) if grad_input else 0) + (size(inputs) if grad_weight else 0),
        bytes_written=(
            grad_input * inputs.numel * size_of(inputs.dtype)
            + grad_weight * weight.numel * size_of(weight.dtype)
            + grad_bias * weight.shape[0] * size_of(weight.dtype)
        ),
        precision=matrix_precision_of(grad.dtype),
    )


@formula("aten::outer", "aten::ger", category="matmul")
def _outer(signature: Signature) -> Work:
    args = Arguments(signature, "self other")
    left, right = args.tensor("self"), args.tensor("other")
    results = left.numel * right.numel  # [m] x [n]: one multiplication each, no sum
    return Work(
        other_flops=results,
        bytes_read=size(left, right),
        bytes_written=results * size_of(left.dtype),
        precision=matrix_precision_of(left.dtype),
    )


# Decomposed into bmm, mm or the layers they name.
composite(
    *aten(
        "einsum inner tensordot bilinear _trilinear chain_matmul linalg_multi_dot kron matmul_backward lstm gru rnn_tanh rnn_relu"
        " lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _convolution_mode _convolution_double_backward"
    )
)
