"""Matrix products: linear layers, mm, bmm, matmul, the forms with an addition, and groups of them.

A product [m, k] @ [k, n] is m * k * n multiply-adds: 2 FLOPs each for real numbers, 8 for complex ones.
``alpha`` and ``beta`` are folded into the product, what is added to it costs one addition a result.
"""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Argument, Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    Ints,
    NotCounted,
    broadcast,
    known,
    size,
    size_of,
)
from rooflines.roofline.count.formulas.costs import (
    COMPLEX_ADD,
    COMPLEX_MULTIPLY,
    GELU,
    HARDSWISH,
    SIGMOID,
    SILU,
    TANH,
)
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of
from rooflines.roofline.count.formulas.rows import Tensors, named

# What a fused linear layer or convolution does to each result, by the name it is given. Traces do not record
# names: there the product and the bias are counted, the activation is not.
ACTIVATIONS: dict[str, int] = {
    "none": 0,
    "relu": 1,
    "leaky_relu": 2,
    "hardtanh": 2,
    "gelu": GELU,
    "tanh": TANH,
    "sigmoid": SIGMOID,
    "swish": SILU,
    "silu": SILU,
    "hardswish": HARDSWISH,
    "add": 1,
    "sub": 1,
    "mul": 1,
    "sum": 1,
}


def activation_flops(args: Arguments, *names: str) -> int:
    """FLOPs a result of the fused operations named by the arguments ``names``; 0 of one that is absent or was
    not recorded."""
    return sum(activation_cost(args.given(name)) for name in names)


@named
def activation_cost(name: Argument) -> int:
    """FLOPs a result of a fused operation; 0 for None."""
    if name is None:
        return 0
    if name not in ACTIVATIONS:
        raise NotCounted(f"unknown fused operation '{name}'")
    return ACTIVATIONS[name]


def multiply_add_flops(dtype: str) -> int:
    """FLOPs of one multiply-add: a complex one is 4 multiplications and 4 additions."""
    return COMPLEX_MULTIPLY + COMPLEX_ADD if dtype.startswith("complex") else 2


def addition_flops(dtype: str) -> int:
    """FLOPs of one addition."""
    return COMPLEX_ADD if dtype.startswith("complex") else 1


def product_flops(batch: int, m: int, k: int, n: int, dtype: str = "float32") -> int:
    """FLOPs of ``[b, m, k] @ [b, k, n]``: each of the b*m*n results is k multiply-adds."""
    return multiply_add_flops(dtype) * batch * m * k * n


def product(left: TensorArg, right: TensorArg) -> tuple[int, Ints]:
    """FLOPs and result shape of ``left @ right`` by the rule of torch.matmul: vectors gain a dimension,
    batches broadcast."""
    _refuse_sparse(left, right)
    if not left.shape or not right.shape:
        raise NotCounted("a matrix product of a scalar")
    a = left.shape if len(left.shape) > 1 else (1, *left.shape)
    b = right.shape if len(right.shape) > 1 else (*right.shape, 1)
    if a[-1] != b[-2]:
        raise NotCounted(f"inner dimensions {a[-1]} and {b[-2]} differ")
    batch = broadcast((a[:-2], b[:-2]))
    rows = a[-2:-1] if len(left.shape) > 1 else ()
    columns = b[-1:] if len(right.shape) > 1 else ()
    summed = (prod(batch), a[-2], a[-1], b[-1])
    if left.stored or right.stored:  # each stored element is a factor in a row, or a column, of results
        summed = (
            (1, 1, left.stored[0], b[-1])
            if left.stored
            else (1, 1, right.stored[0] if right.stored else 0, a[-2])
        )
    return product_flops(*summed, left.dtype), (*batch, *rows, *columns)


@named
def multiply_adds(left: Tensors, right: Tensors) -> int:
    """FLOPs of ``left @ right``."""
    return product(left.tensors[0], right.tensors[0])[0]


@named
def results_of(left: Tensors, right: Tensors) -> int:
    """Results of ``left @ right``."""
    return prod(product(left.tensors[0], right.tensors[0])[1])


def _refuse_sparse(*tensors: TensorArg) -> None:
    """A sparse operand has no strides where the others have some: None in a recording, an empty list in a
    trace.

    The product of one with a dense operand is known where its elements are.
    """
    known = sum(tensor.stored is not None for tensor in tensors)
    if known == 1:
        return
    with_strides = [
        tensor.strides is not None and len(tensor.strides) == len(tensor.shape) for tensor in tensors
    ]
    if (
        known
        or any(tensor.strides == () and tensor.shape for tensor in tensors)
        or (any(with_strides) and not all(with_strides))
    ):
        raise NotCounted(SPARSE)


SPARSE = "the elements that a sparse tensor stores are not in its shape"


def product_work(
    left: TensorArg,
    right: TensorArg,
    *others: TensorArg | None,
    each: int = 0,
    out_dtype: str = "",
    summed: bool = False,
) -> Work:
    """``left @ right``: both read with ``others``, ``each`` FLOPs done to each result, and this written as
    ``out_dtype``, or as ``left``; ``summed`` says that the results are sums over the batch."""
    flops, shape = product(left, right)
    results = prod(shape[1:] if summed else shape)
    return Work(
        matrix_flops=flops,
        other_flops=results * each,
        bytes_read=size(left, right, *others),
        bytes_written=results * size_of(out_dtype or left.dtype),
        precision=matrix_precision_of(left.dtype),
    )


def plain(signature: Signature) -> Work:
    args = Arguments(signature, "self other out_dtype=None")
    # the argument after the operands is a dtype in one overload, the tensor to write to in another
    dtype = "" if args.optional("out_dtype") is not None else args.dtype("out_dtype", "")
    return product_work(args.tensor("self"), args.tensor("other"), out_dtype=dtype)


def with_addition(signature: Signature) -> Work:
    """beta * self + alpha * (left @ right); the addition is one FLOP a result. ``addbmm`` sums its products
    over the batch."""
    gelu = signature.name == "aten::_addmm_activation"
    # addmm(self, left, right, out_dtype, beta, alpha) and not addmm(self, left, right, beta, alpha, out)
    has_dtype = not gelu and len(signature.args) > 5 and isinstance(signature.args[5], int | float | complex)
    args = Arguments(
        signature, f"self left right {'out_dtype ' if has_dtype else ''}beta=1 alpha=1 use_gelu=False"
    )
    added, left, right = args.operands("self", "left", "right")
    cost = addition_flops(left.dtype)
    if gelu:
        cost += GELU if args.flag("use_gelu") else 1
    return product_work(
        left,
        right,
        None if args.recorded("beta") and args.value("beta") == 0 else added,
        each=cost,
        out_dtype=args.dtype("out_dtype", "") if has_dtype else "",
        summed=signature.name.startswith("aten::addbmm"),
    )


@named
def dense(*operands: Tensors) -> bool:
    """True; raises NotCounted where one is sparse."""
    _refuse_sparse(*(tensor for operand in operands for tensor in operand.tensors))
    return True


# --- linear layers ----------------------------------------------------------------------------------------


def layer_work(
    inputs: TensorArg, outputs: int, *read: TensorArg | None, each: int = 0, unpack: int = 0, dtype: str = ""
) -> Work:
    """[..., k] with a weight of k * ``outputs`` numbers in any layout, which is one of the tensors that are
    ``read`` with ``inputs``.

    ``each`` is FLOPs of each result, ``unpack`` of each number of the weight. The result is of this
    ``dtype``, or that of ``inputs``.
    """
    rows = prod(inputs.shape[:-1])
    inner = inputs.shape[-1]
    results = rows * outputs
    return Work(
        matrix_flops=product_flops(1, rows, inner, outputs, inputs.dtype),
        other_flops=results * each + unpack * inner * outputs,
        bytes_read=size(inputs, *read),
        bytes_written=results * size_of(dtype or inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


def linear(signature: Signature, schema: str) -> Work:
    """``self @ weight^T + bias`` with weight [n, k], or [k] for one number a row; with a second operand or an
    activation fused."""
    binary = signature.name == "mkldnn::_linear_pointwise" and len(signature.args) == 5
    args = Arguments(signature, "self other weight bias attr" if binary else schema)
    inputs, weight = args.operands("self", "weight")
    bias = args.optional("bias")
    if signature.name == "aten::linear":
        _refuse_sparse(inputs, weight)
    else:  # tensors in oneDNN's layout have no strides; they are dense
        inputs = TensorArg(inputs.shape, inputs.dtype)
        weight = TensorArg(weight.shape, weight.dtype)
    if inputs.shape[-1] != weight.shape[-1]:
        raise NotCounted(f"inner dimensions {inputs.shape[-1]} and {weight.shape[-1]} differ")
    each = (activation_flops(args, "attr") or int(binary)) + addition_flops(inputs.dtype) * (bias is not None)
    return layer_work(
        inputs,
        weight.shape[0] if len(weight.shape) == 2 else 1,
        weight,
        bias,
        args.optional("other"),
        each=each,
    )


# --- several products in one call -------------------------------------------------------------------------


def products_of_lists(signature: Signature) -> Work:
    args = Arguments(signature, "self other")
    lefts = args.tensors("self")
    rights = args.tensors("other")
    if not lefts or len(lefts) != len(rights):
        raise NotCounted("shapes of 'self' not recorded")
    return sum(map(product_work, lefts, rights), Work())


def grouped_product(left: TensorArg, right: TensorArg, offsets: TensorArg | None) -> tuple[int, Ints]:
    """FLOPs and result shape of a grouped product, whose groups share the tensors' rows, columns or inner
    dimension.

    ``offsets`` says where each of the g groups ends; the last one ends where the tensor does. So the sizes of
    the groups, which are not recorded, do not matter.
    """
    if len(left.shape) == 3 and len(right.shape) == 3:  # [g, m, k] @ [g, k, n]: no offsets
        return product(left, right)
    groups = known(offsets, "shape of 'offs' not recorded").numel
    if len(left.shape) == 2 and len(right.shape) == 3:  # rows: [sum m, k] @ [g, k, n] -> [sum m, n]
        shape: Ints = (left.shape[0], right.shape[-1])
    elif len(left.shape) == 3:  # columns: [g, m, k] @ [k, sum n] -> [m, sum n]
        shape = (left.shape[1], right.shape[-1])
    else:  # inner dimension: [m, sum k] @ [sum k, n] -> [g, m, n]
        shape = (groups, left.shape[0], right.shape[-1])
    inner = left.shape[-1]
    if inner != right.shape[-2]:
        raise NotCounted(f"inner dimensions {inner} and {right.shape[-2]} differ")
    return product_flops(1, shape[-2], inner, shape[-1], left.dtype), shape


@named
def grouped(left: Tensors, right: Tensors, offsets: Tensors) -> tuple[int, int]:
    """FLOPs and results of a grouped product."""
    flops, shape = grouped_product(left.tensors[0], right.tensors[0], next(iter(offsets.tensors), None))
    return flops, prod(shape)


def trilinear(signature: Signature) -> Work:
    """Sum over ``sumdim`` of i1 * i2 * i3, each given the dimensions in its ``expand`` list: two products.

    i1 and i2 meet first, summed over what i3 lacks; the rest is summed with i3. ``bilinear`` is [b, 1, i, 1],
    [1, o, i, j] and [b, 1, 1, j]: b * o * j results of i multiply-adds, then b * o of j.
    """
    args = Arguments(signature, "i1 i2 i3 expand1 expand2 expand3 sumdim unroll_dim=1")
    tensors = args.operands("i1", "i2", "i3")
    expanded = [_with_ones(tensor.shape, args.sizes(f"expand{n}")) for n, tensor in enumerate(tensors, 1)]
    absent = args.sizes("expand3")
    summed = args.sizes("sumdim")
    first = broadcast(expanded[:2])
    between = tuple(1 if axis in absent and axis in summed else extent for axis, extent in enumerate(first))
    second = broadcast((between, expanded[2]))
    results = prod(1 if axis in summed else extent for axis, extent in enumerate(second))
    dtype = tensors[0].dtype
    return Work(
        matrix_flops=multiply_add_flops(dtype) * (prod(first) + prod(second)),
        bytes_read=size(*tensors),
        bytes_written=results * size_of(dtype),
        precision=matrix_precision_of(dtype),
    )


def _with_ones(shape: Ints, axes: Ints) -> Ints:
    extents = list(shape)
    for axis in sorted(axes):
        extents.insert(axis, 1)
    return tuple(extents)
