"""Primus and Primus-Turbo: products, grouped products, narrow numbers and fused norms on AMD's GPUs.

The functions of ``primus_turbo`` call the kernels of ``primus_turbo_cpp_extension``, of AITER or of Triton, whose time is theirs.
Hadamard transforms before a conversion are not counted.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, share, size, size_of
from rooflines.roofline.formulas.experts import SPREAD
from rooflines.roofline.formulas.libraries.norms import register_norms
from rooflines.roofline.formulas.matmul import grouped_product, product
from rooflines.roofline.formulas.nodes import tensors_only, with_gradient
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import FOUR_BIT, operand_precision

_KERNELS: Final = "primus_turbo_cpp_extension::"
_PADDED: Final = "rows that pad the groups count"

# --- products ----------------------------------------------------------------------------------------------------------------------
# ``flip_left`` and ``flip_right`` say which operand is transposed. Numbers of 4 bits lie two in an element of the last dimension.

_FLIPS: Final = "flip_left flip_right"
_SCALED: Final = f"left left_scale right right_scale out_dtype {_FLIPS} flip_out granularity beta=0.0 out=None"
_TURBO: Final = "left left_scale flip_left right right_scale flip_right out_dtype flip_out granularity"
# The schema of each operator; of two versions where there is a bar.
_PRODUCTS: Final[dict[str, str]] = {
    f"{_KERNELS}hipblaslt_gemm": f"left left_scale right right_scale out_dtype {_FLIPS} flip_out"
    f" | left right out_dtype {_FLIPS} flip_out=False beta=0.0 out=None",
    f"{_KERNELS}hipblaslt_gemm_fp8 {_KERNELS}hipblaslt_gemm_fp4 {_KERNELS}turbo_gemm_fp8": _SCALED,
    f"{_KERNELS}ck_gemm_fp8": f"left right left_scale right_scale {_FLIPS} out_dtype granularity",
    "primus_turbo::gemm_impl": "left flip_left right flip_right out_dtype flip_out backend",
    "primus_turbo::gemm_accum_impl": "left flip_left right flip_right out_dtype flip_out out backend",
    "primus_turbo::gemm_fp8_impl primus_turbo::gemm_fp4_impl": f"{_TURBO} backend",
    "primus_turbo::gemm_fp8_accum_impl primus_turbo::gemm_fp4_accum_impl": f"{_TURBO} out backend",
    "primus_turbo::gemm_fp8_blockwise_impl": f"left right left_scale right_scale out_dtype block_m block_n block_k {_FLIPS}",
}

_GROUPS: Final = f"left right lengths offsets {_FLIPS}"
_SCALED_GROUPS: Final = f"left right left_scale right_scale lengths offsets {_FLIPS}"
_OF_KERNELS: Final = "{0}grouped_gemm{1} {0}grouped_gemm{1}_variable_k {0}ck_grouped_gemm{1} {0}ck_grouped_gemm{1}_variable_k"
_VARIABLE: Final = "primus_turbo::grouped_gemm_fp4_variable_k_{0}impl primus_turbo::grouped_gemm_fp8_variable_k_{0}impl"
_GROUPED: Final[dict[str, str]] = {
    _OF_KERNELS.format(_KERNELS, ""): f"{_GROUPS} units=None",
    _OF_KERNELS.format(_KERNELS, "_fp8"): f"{_SCALED_GROUPS} out_dtype granularity units",
    f"{_KERNELS}hipblaslt_grouped_gemm": f"{_GROUPS} synchronize beta=0.0 out=None",
    f"{_KERNELS}hipblaslt_grouped_gemm_fp8": f"{_SCALED_GROUPS} out_dtype granularity synchronize beta=0.0 out=None",
    "primus_turbo::grouped_gemm_impl": f"{_GROUPS} units backend",
    "primus_turbo::grouped_gemm_variable_k_impl": f"{_GROUPS} flip_out units backend",
    "primus_turbo::grouped_gemm_variable_k_accum_impl": f"{_GROUPS} flip_out units backend out",
    "primus_turbo::grouped_gemm_fp4_impl primus_turbo::grouped_gemm_fp8_impl": f"{_SCALED_GROUPS} out_dtype granularity units backend",
    _VARIABLE.format(""): f"{_SCALED_GROUPS} flip_out out_dtype granularity units backend",
    _VARIABLE.format("accum_"): f"{_SCALED_GROUPS} flip_out out_dtype granularity units backend out",
}


def _operand(tensor: TensorArg, flipped: bool) -> TensorArg:
    """The operand as it is multiplied: numbers of 4 bits one in an element, rows before columns."""
    *batch, rows, columns = tensor.shape
    columns *= 2 if tensor.dtype in FOUR_BIT else 1
    return TensorArg((*batch, columns, rows) if flipped else (*batch, rows, columns), tensor.dtype)


def _work(args: Arguments, flops: int, results: int, read: int, assumption: str = "") -> Work:
    """A product with its results, which are scaled, or added to what ``out`` holds."""
    left, right, out = args.tensor("left"), args.tensor("right"), args.optional("out")
    dtype = "bfloat16" if size_of(left.dtype) == 1 else left.dtype
    if args.has("out_dtype"):
        dtype = args.dtype("out_dtype", dtype)
    return Work(
        matrix_flops=flops,
        other_flops=results * ((args.optional("left_scale") is not None) + (out is not None)),
        bytes_read=read + size(out),
        bytes_written=results * size_of(out.dtype if out else dtype),
        precision=operand_precision(left, right),
        assumption=assumption,
    )


def _product(signature: Signature, schemas: str) -> Work:
    versions = [Arguments(signature, schema) for schema in schemas.split("|")]
    args = next((one for one in versions if one.optional("right") is not None), versions[0])
    left, right = args.tensor("left"), args.tensor("right")
    flops, shape = product(_operand(left, args.flag("flip_left")), _operand(right, args.flag("flip_right")))
    return _work(args, flops, prod(shape), size(left, right, args.optional("left_scale"), args.optional("right_scale")))


def _grouped(signature: Signature, schema: str) -> Work:
    """[rows of all groups, k] with a weight for each group; or, where both have two dimensions, the product of each group's own part of
    the inner dimension, which conversions to blocks of 32 have laid along the rows of both operands."""
    args = Arguments(signature, schema)
    left, right, lengths = args.tensor("left"), args.tensor("right"), args.tensor("lengths")
    flips = args.flag("flip_left"), args.flag("flip_right")
    if len(right.shape) == 2:
        flips = flips[0], not flips[0]
    flops, shape = grouped_product(_operand(left, flips[0]), _operand(right, flips[1]), lengths)
    others = [args.optional(name) for name in ("left_scale", "right_scale", "lengths", "offsets")]
    scale = args.optional("left_scale")
    padded = scale is not None and scale.dtype == "float8_e8m0fnu"
    groups = lengths.numel if len(right.shape) == 3 else 0
    read = size(left) + share((right,), groups, left.shape[0]) + size(*others)
    assumptions = [text for text, holds in ((SPREAD, groups > 1), (_PADDED, padded)) if holds]
    return _work(args, flops, prod(shape), read, "; ".join(assumptions))


for _names, _schemas in _PRODUCTS.items():
    formula(*_names.split(), category="matmul")(partial(_product, schemas=_schemas))
for _names, _schema in _GROUPED.items():
    formula(*_names.split(), category="matmul")(partial(_grouped, schema=_schema))


# --- conversions -------------------------------------------------------------------------------------------------------------------


def _narrow(scales: str, copies: int = 1, bits: int = 8, rest: str = "dtype", ranged: str = "1") -> Row:
    """A conversion to ``copies`` tensors of ``bits``, each with ``scales`` bytes of scales. It searches for the range of each block,
    unless it is given the scale."""
    return Row(
        f"read self, {rest}",
        other=f"self.n * ({costs.QUANTIZE * copies} + 2 * ({ranged}))",
        reads="self.size + given.size" if "given" in rest else "",
        writes=f"{copies} * (self.n * {bits} // 8 + {scales})",
    )


_BLOCKS: Final = "4 * up(self.n, 128)"
_GIVEN: Final = "dtype, read given?"
_NARROW: Final[dict[str, Row]] = {
    f"{_KERNELS}quantize_fp8_tensorwise primus::quantize_fp8_tensorwise primus::quantize_fp8_prescaled"
    " primus::quantize_fp8_prescaled_stochastic": _narrow("4", rest=_GIVEN, ranged="not given"),
    # A place for the range follows the scale.
    "primus::cast_fp8_triton": _narrow("4", rest=f"{_GIVEN}, read range?", ranged="not given or bool(range)"),
    "primus::cast_transpose_fp8_triton": _narrow("4", 2, rest=f"{_GIVEN}, read range?", ranged="not given or bool(range)"),
    f"{_KERNELS}quantize_fp8_rowwise": _narrow("4 * (self.n // self[axis])", rest="dtype, axis, read given?", ranged="not given"),
    "primus_turbo::quant_fp8_blockwise_impl": _narrow(_BLOCKS),
    f"{_KERNELS}quantize_fp8_blockwise_segment_m_row_col primus_turbo::quant_fp8_blockwise_segment_m_row_col_impl"
    " primus_turbo::quant_fp8_blockwise_dual_impl primus_turbo::quant_fp8_blockwise_for_act_grad_impl": _narrow(_BLOCKS, 2),
    f"{_KERNELS}quantize_fp8_blockwise_for_weight primus_turbo::quant_fp8_blockwise_for_weight_impl": _narrow(
        "4 * up(self.n, 128 * 128)"
    ),
    "primus::quantize_mxfp4_dual": _narrow("up(self.n, 32)", 2, bits=4),
    **{
        f"{_KERNELS}quantize_mxfp{bits}{kind} {_KERNELS}grouped_quantize_mxfp{bits}{kind}": _narrow("up(self.n, 32)", copies, bits)
        for bits in (4, 8)
        for kind, copies in {"": 1, "_dual": 2}.items()
    },
}
register(_NARROW, "element-wise")


def _wide(rest: str, numbers: int = 1) -> Row:
    """The way back from ``numbers`` numbers in an element."""
    made = f"{numbers} * self.n * item('out_dtype')"
    return Row(f"read self, read scale, {rest}", numbers, "self", writes=made, precision="out_dtype")


_WIDE: Final[dict[str, Row]] = {
    f"{_KERNELS}dequantize_fp8_tensorwise primus_turbo::dequant_fp8_blockwise_impl"
    " primus_turbo::dequant_fp8_blockwise_for_weight_impl": _wide("out_dtype"),
    f"{_KERNELS}dequantize_fp8_rowwise": _wide("axis, out_dtype"),
    f"{_KERNELS}dequantize_mxfp4": _wide("axis, block, out_dtype", numbers=2),
    f"{_KERNELS}dequantize_mxfp8": _wide("axis, block, out_dtype"),
    f"{_KERNELS}grouped_dequantize_mxfp8": _wide("offsets, padded_offsets, axis, block, out_dtype"),
}
register(_WIDE, "element-wise")

# --- norms, gates and layouts ------------------------------------------------------------------------------------------------------

_MODULATE: Final = costs.SCALE_AND_SHIFT + 1  # x * (1 + scale) + shift
_MODULATIONS: Final[dict[str, Row]] = {
    "primus::modulate primus::modulate_v2": Row("read x, read scale, read shift", _MODULATE, "x", "x"),
    # x: g * (1 + scale); scale and shift: a sum over the tokens each.
    "primus::modulate_backward primus::modulate_backward_v2": Row(
        "read grad, read x, read scale, of_x, of_scale, of_shift",
        other="grad.n * (2 * bool(of_x) + 2 * bool(of_scale) + bool(of_shift))",
        writes="x.n * x.item * bool(of_x) + scale.n * scale.item * (bool(of_scale) + bool(of_shift))",
        precision="x",
    ),
}
register(_MODULATIONS, "element-wise")
# A layer norm of [tokens, batch, hidden] without parameters, then the scale and the shift [batch, hidden] of a diffusion step. In the
# gradient the scale is the weight of the norm, and the shift its bias.
_MODULATED_NORMS: Final[dict[str, Row]] = {
    "primus::fused_ln_modulate primus::fused_ln_modulate_v2": Row(
        "read x[*rows hidden], read scale, read shift",
        costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT + _MODULATE,
        "x",
        result="x",
        writes="2 * 4 * rows",
    ),
    "primus::fused_ln_modulate_backward primus::fused_ln_modulate_backward_v2": Row(
        "read grad, read x, read mean, read deviation, read scale",
        costs.LAYER_NORM_BACKWARD + 1,
        "x",
        result="x scale scale",
        precision="x",
    ),
}
register(_MODULATED_NORMS, "normalisation")
register_norms("_RMSNormFunction", "_RMSNormResidualFunction", rms=True)

# silu(a) * b * weight of [rows, 2 * hidden] and a weight for each row.
_SILU_GATE: Final = "a gate of SiLU, because the name of the activation is not recorded"
_GATE: Final = Row(
    "read x, read weights, read rows?",
    other=f"x.n // 2 * {costs.SILU + 2}",
    writes="x.n // 2 * x.item",
    assumption=_SILU_GATE,
)
# The gate again; a: s * (1 + a * (1 - s)) * b * g; b: silu(a) * g; the weight: a sum of the result times g; g * weight first.
_GATE_GRADIENT: Final = Row(
    "read grad, update x, update weights, read rows?",
    other=f"x.n // 2 * {costs.SILU + 7 + 4}",
    precision="x",
    assumption=_SILU_GATE,
)
register({"GLUWithProbs": _GATE}, "element-wise", given=tensors_only)
register({"GLUWithProbsBackward": _GATE_GRADIENT}, "element-wise", given=with_gradient)

_MOVES: Final[dict[str, Row]] = {
    f"{_KERNELS}transpose_2d {_KERNELS}shuffle_scale {_KERNELS}shuffle_weight": Row("read x", result="x"),
    # Tokens to a row for each expert that they go to, with the scales of narrow numbers and the weights of the routing.
    f"{_KERNELS}permute": Row(
        "read source, write target, read scale?, write scale_out?, read weights?, write weights_out?, read map?",
        reads="min(source.size, target.n * target.item) + scale.size + weights.size + map.size",
    ),
    # The rows of each token added up.
    f"{_KERNELS}unpermute": Row("read source, write target, read weights?, write weights_out?, read map", 1, "source"),
}
register(_MOVES, "copy")
