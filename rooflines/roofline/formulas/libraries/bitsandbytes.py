"""bitsandbytes: products and layers of 8-bit integers and 4-bit weights, blockwise quantization, and optimizers with 8-bit states.

Order of arguments: bitsandbytes 0.50 (commit 95f9af30), the schemas in ``bitsandbytes/_ops.py``. 4-bit weights are packed two to a
byte, with a scale for each block.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE
from rooflines.roofline.formulas.matmul import layer_work, product_flops
from rooflines.roofline.formulas.narrow import narrowed, widened
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula

# --- 8-bit integers ----------------------------------------------------------------------------------------------------------------


def _integer_product(args: Arguments, dtype: str, scaled: bool) -> Work:
    """[..., k] @ [n, k]^T of int8; a scaled one multiplies each result by the scales of its row and its column."""
    inputs, weight, bias = args.tensor("left"), args.tensor("right"), args.optional("bias")
    scales = (args.optional("row_stats"), args.optional("col_stats")) if scaled else ()
    each = (2 if scaled else 0) + (bias is not None)
    return layer_work(inputs, weight.shape[0], weight, bias, *scales, each=each, dtype=dtype, precision="int8")


@formula("bitsandbytes::int8_linear_matmul", category="matmul")
def _linear(signature: Signature) -> Work:
    return _integer_product(Arguments(signature, "left right"), "int32", False)


@formula("bitsandbytes::int8_scaled_mm", category="matmul")
def _scaled(signature: Signature) -> Work:
    args = Arguments(signature, "left right row_stats col_stats bias=None dtype=None")
    return _integer_product(args, args.dtype("dtype", "float16"), True)


@formula("bitsandbytes::int8_mixed_scaled_mm", category="matmul", wraps=True)
def _mixed(signature: Signature) -> Work:
    """The scaled product, and of columns with outliers one in the dtype of the input, how many is data."""
    args = Arguments(signature, "wide left right row_stats col_stats outliers=None bias=None")
    outliers = args.optional("outliers")
    if outliers is not None and outliers.numel:
        raise NotCounted("columns with outliers are multiplied separately; their number is not recorded")
    return _integer_product(args, args.tensor("wide").dtype, True)


@formula("bitsandbytes::int8_vectorwise_quant", "bitsandbytes::int8_double_quant", category="element-wise")
def _quantize_rows(signature: Signature) -> Work:
    """int8 and the largest magnitude of each row; the double form also by columns."""
    inputs = Arguments(signature, "self").tensor("self")
    rows, columns = prod(inputs.shape[:-1]), inputs.shape[-1]
    double = signature.name.endswith("double_quant")
    passes = 2 if double else 1
    return narrowed(inputs, scales=4 * (rows + (columns if double else 0)), numbers=inputs.numel * passes)


@formula("bitsandbytes::int8_vectorwise_dequant", category="element-wise")
def _dequantize_rows(signature: Signature) -> Work:
    args = Arguments(signature, "self stats")
    inputs = args.tensor("self")
    return widened(inputs, args.tensor("stats"), dtype="float32")


@formula("bitsandbytes::int8_mm_dequant", category="element-wise")
def _dequantize_product(signature: Signature) -> Work:
    args = Arguments(signature, "self row_stats col_stats dtype=None bias=None")
    inputs, bias = args.tensor("self"), args.optional("bias")
    return Work(
        other_flops=inputs.numel * (2 + (bias is not None)),
        bytes_read=size(inputs, args.tensor("row_stats"), args.tensor("col_stats"), bias),
        bytes_written=inputs.numel * size_of(args.dtype("dtype", "float16")),
        precision="fp32",
    )


# --- blocks ------------------------------------------------------------------------------------------------------------------------


@formula("bitsandbytes::quantize_4bit", category="element-wise")
def _quantize_half_bytes(signature: Signature) -> Work:
    args = Arguments(signature, "self blocksize")
    inputs = args.tensor("self")
    blocks = -(-inputs.numel // args.integer("blocksize"))
    results = -(-inputs.numel // 2) + 4 * blocks
    return Work(0, inputs.numel * (QUANTIZE + 2), size(inputs), results, precision_of(inputs.dtype))


@formula("bitsandbytes::dequantize_4bit", category="element-wise")
def _dequantize_half_bytes(signature: Signature) -> Work:
    args = Arguments(signature, "self absmax blocksize quant_type shape dtype")
    elements, dtype = prod(args.sizes("shape")), args.dtype("dtype", "")
    return widened(args.tensor("self"), args.tensor("absmax"), dtype=dtype, numbers=elements)


@formula("bitsandbytes::quantize_blockwise", category="element-wise")
def _quantize_blocks(signature: Signature) -> Work:
    args = Arguments(signature, "self code blocksize")
    inputs = args.tensor("self")
    return narrowed(inputs, args.tensor("code"), scales=4 * -(-inputs.numel // args.integer("blocksize")))


@formula("bitsandbytes::dequantize_blockwise", category="element-wise")
def _dequantize_blocks(signature: Signature) -> Work:
    args = Arguments(signature, "self absmax code blocksize dtype")
    inputs, dtype = args.tensor("self"), args.dtype("dtype", "")
    return widened(inputs, args.tensor("absmax"), args.tensor("code"), dtype=dtype)


_FOUR_BIT: Final = {
    "bitsandbytes::gemv_4bit": "self packed shape absmax code blocksize",
    "bitsandbytes::gemm_4bit": "self packed shape absmax blocksize quant_type bias=None absmax_8bit=None absmax_code=None offset=None",
}


@formula(*_FOUR_BIT, category="matmul")
def _four_bit(signature: Signature) -> Work:
    """[..., k] with a weight [n, k] of 4 bits, widened as it is read."""
    args = Arguments(signature, _FOUR_BIT[signature.name])
    inputs, bias = args.tensor("self"), args.optional("bias")
    outputs, inner = args.sizes("shape")
    rows = inputs.numel // inner
    scales = [args.optional(name) for name in ("absmax", "code", "absmax_8bit", "absmax_code")]
    return Work(
        matrix_flops=product_flops(1, rows, inner, outputs),
        other_flops=DEQUANTIZE * inner * outputs + rows * outputs * (bias is not None),
        bytes_read=size(inputs, args.tensor("packed"), bias, *scales),
        bytes_written=rows * outputs * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


# --- optimizers --------------------------------------------------------------------------------------------------------------------

_STEPS: Final = {
    "bitsandbytes::optimizer_update_32bit": "name grad param state1 state2=None unorm=None",
    "bitsandbytes::optimizer_update_8bit_blockwise": "name grad param state1 state2 beta1 beta2 beta3 alpha eps step lr qmap1 qmap2"
    " absmax1 absmax2",
}


@formula(*_STEPS, category="optimizer")
def _step(signature: Signature) -> Work:
    """Two states are Adam's, LAMB's or AdEMAMix's, one is that of momentum, RMSprop, Adagrad or Lion. 8-bit states are widened, and
    quantized again."""
    args = Arguments(signature, _STEPS[signature.name])
    grad, param, first, second = args.tensor("grad"), args.tensor("param"), args.tensor("state1"), args.optional("state2")
    states = [one for one in (first, second) if one is not None]
    packed = signature.name.endswith("blockwise")
    scales = [one for name in ("absmax1", "absmax2") if packed and (one := args.optional(name)) is not None]
    cost = costs.ADAM if second is not None else costs.SGD_MOMENTUM + costs.SGD
    cost += len(states) * (DEQUANTIZE + QUANTIZE + 2) if packed else 0
    return Work(
        other_flops=param.numel * cost,
        bytes_read=size(grad, param, *states, *scales),
        bytes_written=written(param, *states, *scales),
        precision=precision_of(param.dtype),
    )
