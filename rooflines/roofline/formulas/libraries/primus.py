"""Primus and Primus-Turbo: products, grouped products, narrow numbers and fused norms on AMD's GPUs.

The functions of ``primus_turbo`` call the kernels of ``primus_turbo_cpp_extension``, of AITER or of Triton, whose time is theirs.
Hadamard transforms before a conversion are not counted.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, share, size, size_of
from rooflines.roofline.formulas.experts import SPREAD
from rooflines.roofline.formulas.libraries.norms import register_norms
from rooflines.roofline.formulas.matmul import grouped_product, product
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints
from rooflines.roofline.formulas.scaled import FOUR_BIT, operand_precision
from rooflines.roofline.formulas.tables import table

_KERNELS: Final = "primus_turbo_cpp_extension::"
_PADDED: Final = "rows that pad the groups count"
# ``flip_left`` and ``flip_right`` say which operand is transposed. Numbers of 4 bits lie two in an element of the last dimension.
_FLIPS: Final = "flip_left flip_right"
_TURBO: Final = "left left_scale flip_left right right_scale flip_right out_dtype flip_out granularity"
_GROUPS: Final = f"left right lengths offsets {_FLIPS}"
_SCALED_GROUPS: Final = f"left right left_scale right_scale lengths offsets {_FLIPS}"


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


def product_of(signature: Signature, _: Hints, text: str) -> Work:
    versions = [Arguments(signature, schema) for schema in text.split("|")]
    args = next((one for one in versions if one.optional("right") is not None), versions[0])
    left, right = args.tensor("left"), args.tensor("right")
    flops, shape = product(_operand(left, args.flag("flip_left")), _operand(right, args.flag("flip_right")))
    return _work(args, flops, prod(shape), size(left, right, args.optional("left_scale"), args.optional("right_scale")))


def grouped(signature: Signature, _: Hints, text: str) -> Work:
    """[rows of all groups, k] with a weight for each group; or, where both have two dimensions, the product of each group's own part of
    the inner dimension, which conversions to blocks of 32 have laid along the rows of both operands."""
    args = Arguments(signature, text)
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


def _narrow(scales: str, copies: int = 1, bits: int = 8, rest: str = "dtype", ranged: str = "1") -> str:
    """A conversion to ``copies`` tensors of ``bits``, each with ``scales`` bytes of scales. It searches for the range of each block,
    unless it is given the scale."""
    reads = "reads = self.size + given.size; " if "given" in rest else ""
    made = f"{copies} * (self.n * {bits} // 8 + {scales})"
    return f"read self, {rest}; other = self.n * ({costs.QUANTIZE * copies} + 2 * ({ranged})); {reads}writes = {made}"


register_norms("_RMSNormFunction", "_RMSNormResidualFunction", rms=True)

# silu(a) * b * weight of [rows, 2 * hidden] and a weight for each row.
_SILU_GATE: Final = "a gate of SiLU, because the name of the activation is not recorded"


_TABLE: Final = f"""
[element-wise]
{_KERNELS}quantize_fp8_tensorwise primus::quantize_fp8_tensorwise primus::quantize_fp8_prescaled
    primus::quantize_fp8_prescaled_stochastic: {_narrow("4", rest="dtype, read given?", ranged="not given")}
# A place for the range follows the scale.
primus::cast_fp8_triton: {_narrow("4", rest="dtype, read given?, read range?", ranged="not given or bool(range)")}
primus::cast_transpose_fp8_triton: {_narrow("4", 2, rest="dtype, read given?, read range?", ranged="not given or bool(range)")}
{_KERNELS}quantize_fp8_rowwise: {_narrow("4 * (self.n // self[axis])", rest="dtype, axis, read given?", ranged="not given")}
primus_turbo::quant_fp8_blockwise_impl: {_narrow("4 * up(self.n, 128)")}
{_KERNELS}quantize_fp8_blockwise_segment_m_row_col primus_turbo::quant_fp8_blockwise_segment_m_row_col_impl
    primus_turbo::quant_fp8_blockwise_dual_impl primus_turbo::quant_fp8_blockwise_for_act_grad_impl:
    {_narrow("4 * up(self.n, 128)", 2)}
{_KERNELS}quantize_fp8_blockwise_for_weight primus_turbo::quant_fp8_blockwise_for_weight_impl: {_narrow("4 * up(self.n, 128 * 128)")}
primus::quantize_mxfp4_dual: {_narrow("up(self.n, 32)", 2, bits=4)}
{_KERNELS}quantize_mxfp4 {_KERNELS}grouped_quantize_mxfp4: {_narrow("up(self.n, 32)", bits=4)}
{_KERNELS}quantize_mxfp4_dual {_KERNELS}grouped_quantize_mxfp4_dual: {_narrow("up(self.n, 32)", 2, bits=4)}
{_KERNELS}quantize_mxfp8 {_KERNELS}grouped_quantize_mxfp8: {_narrow("up(self.n, 32)")}
{_KERNELS}quantize_mxfp8_dual {_KERNELS}grouped_quantize_mxfp8_dual: {_narrow("up(self.n, 32)", 2)}
# The way back, from two numbers in an element of 4 bits.
{_KERNELS}dequantize_fp8_tensorwise primus_turbo::dequant_fp8_blockwise_impl primus_turbo::dequant_fp8_blockwise_for_weight_impl:
    read self, read scale, out_dtype; cost = 1; per = self; writes = self.n * item('out_dtype'); precision = out_dtype
{_KERNELS}dequantize_fp8_rowwise like {_KERNELS}dequantize_fp8_tensorwise: read self, read scale, axis, out_dtype
{_KERNELS}dequantize_mxfp8 like {_KERNELS}dequantize_fp8_tensorwise: read self, read scale, axis, block, out_dtype
{_KERNELS}dequantize_mxfp4 like {_KERNELS}dequantize_mxfp8: ; cost = 2; writes = 2 * self.n * item('out_dtype')
{_KERNELS}grouped_dequantize_mxfp8 like {_KERNELS}dequantize_fp8_tensorwise: read self, read scale, offsets, padded_offsets, axis,
    block, out_dtype
primus::modulate primus::modulate_v2: read x, read scale, read shift -> x; cost = SCALE_AND_SHIFT + 1; per = x
# x: g * (1 + scale); scale and shift: a sum over the tokens each.
primus::modulate_backward primus::modulate_backward_v2: read grad, read x, read scale, of_x, of_scale, of_shift;
    other = grad.n * (2 * bool(of_x) + 2 * bool(of_scale) + bool(of_shift));
    writes = x.n * x.item * bool(of_x) + scale.n * scale.item * (bool(of_scale) + bool(of_shift)); precision = x
[normalization]
# A layer norm of [tokens, batch, hidden] without parameters, then the scale and the shift [batch, hidden] of a diffusion step. In the
# gradient the scale is the weight of the norm, and the shift its bias.
primus::fused_ln_modulate primus::fused_ln_modulate_v2: read x[*rows hidden], read scale, read shift -> x;
    cost = MEAN_AND_VARIANCE + SCALE_AND_SHIFT + SCALE_AND_SHIFT + 1; per = x; writes = 2 * 4 * rows
primus::fused_ln_modulate_backward primus::fused_ln_modulate_backward_v2: read grad, read x, read mean, read deviation,
    read scale -> x scale scale; cost = LAYER_NORM_BACKWARD + 1; per = x; precision = x
[element-wise tensors_only]
GLUWithProbs: read x, read weights, read rows?; other = x.n // 2 * (SILU + 2); writes = x.n // 2 * x.item; assumption = {_SILU_GATE}
[element-wise with_gradient]
# The gate again; a: s * (1 + a * (1 - s)) * b * g; b: silu(a) * g; the weight: a sum of the result times g; g * weight first.
GLUWithProbsBackward: read grad, update x, update weights, read rows?; other = x.n // 2 * (SILU + 7 + 4); precision = x;
    assumption = {_SILU_GATE}
[copy]
{_KERNELS}transpose_2d {_KERNELS}shuffle_scale {_KERNELS}shuffle_weight: read x -> x
# Tokens to a row for each expert that they go to, with the scales of narrow numbers and the weights of the routing.
{_KERNELS}permute: read source, write target, read scale?, write scale_out?, read weights?, write weights_out?, read map?;
    reads = min(source.size, target.n * target.item) + scale.size + weights.size + map.size
{_KERNELS}unpermute: read source, write target, read weights?, write weights_out?, read map; cost = 1; per = source
[matmul by=product]
{_KERNELS}hipblaslt_gemm: left left_scale right right_scale out_dtype {_FLIPS} flip_out
    | left right out_dtype {_FLIPS} flip_out=False beta=0.0 out=None
{_KERNELS}hipblaslt_gemm_fp8 {_KERNELS}hipblaslt_gemm_fp4 {_KERNELS}turbo_gemm_fp8: left left_scale right right_scale out_dtype
    {_FLIPS} flip_out granularity beta=0.0 out=None
{_KERNELS}ck_gemm_fp8: left right left_scale right_scale {_FLIPS} out_dtype granularity
primus_turbo::gemm_impl: left flip_left right flip_right out_dtype flip_out backend
primus_turbo::gemm_accum_impl: left flip_left right flip_right out_dtype flip_out out backend
primus_turbo::gemm_fp8_impl primus_turbo::gemm_fp4_impl: {_TURBO} backend
primus_turbo::gemm_fp8_accum_impl primus_turbo::gemm_fp4_accum_impl: {_TURBO} out backend
primus_turbo::gemm_fp8_blockwise_impl: left right left_scale right_scale out_dtype block_m block_n block_k {_FLIPS}
[matmul by=grouped]
{_KERNELS}grouped_gemm {_KERNELS}grouped_gemm_variable_k {_KERNELS}ck_grouped_gemm {_KERNELS}ck_grouped_gemm_variable_k: {_GROUPS}
    units=None
{_KERNELS}grouped_gemm_fp8 {_KERNELS}grouped_gemm_fp8_variable_k {_KERNELS}ck_grouped_gemm_fp8
    {_KERNELS}ck_grouped_gemm_fp8_variable_k: {_SCALED_GROUPS} out_dtype granularity units
{_KERNELS}hipblaslt_grouped_gemm: {_GROUPS} synchronize beta=0.0 out=None
{_KERNELS}hipblaslt_grouped_gemm_fp8: {_SCALED_GROUPS} out_dtype granularity synchronize beta=0.0 out=None
primus_turbo::grouped_gemm_impl: {_GROUPS} units backend
primus_turbo::grouped_gemm_variable_k_impl: {_GROUPS} flip_out units backend
primus_turbo::grouped_gemm_variable_k_accum_impl: {_GROUPS} flip_out units backend out
primus_turbo::grouped_gemm_fp4_impl primus_turbo::grouped_gemm_fp8_impl: {_SCALED_GROUPS} out_dtype granularity units backend
primus_turbo::grouped_gemm_fp4_variable_k_impl primus_turbo::grouped_gemm_fp8_variable_k_impl: {_SCALED_GROUPS} flip_out out_dtype
    granularity units backend
primus_turbo::grouped_gemm_fp4_variable_k_accum_impl primus_turbo::grouped_gemm_fp8_variable_k_accum_impl: {_SCALED_GROUPS} flip_out
    out_dtype granularity units backend out
"""
table(_TABLE, product=product_of, grouped=grouped)
