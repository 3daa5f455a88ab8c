"""Primus and Primus-Turbo: products, grouped products, narrow numbers and fused norms on AMD's GPUs.

Order of arguments: AMD-AGI/Primus-Turbo a6a16cd (csrc/pytorch/bindings_pytorch.cpp, primus_turbo/pytorch/kernels), and of earlier
versions 8402031 (September 2025) and ea6d30d (June 2025); AMD-AGI/Primus fd1eeab (primus/backends/megatron/core/extensions and
models/diffusion/common/normalization.py). The functions of ``primus_turbo`` call the kernels of ``primus_turbo_cpp_extension``, of
AITER or of Triton, whose time is theirs. Hadamard transforms before a conversion are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import SPREAD, share
from rooflines.roofline.formulas.libraries.norms import norm_forward, norm_of
from rooflines.roofline.formulas.libraries.norms import register as register_norms
from rooflines.roofline.formulas.matmul import grouped_product, product
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.scaled import FOUR_BIT, operand_precision
from rooflines.roofline.formulas.table import formula

_KERNELS: Final = "primus_turbo_cpp_extension::"
_PADDED: Final = "rows that pad the groups count"

# --- products ----------------------------------------------------------------------------------------------------------------------
# ``flip_left`` and ``flip_right`` say which operand is transposed. Numbers of 4 bits lie two in an element of the last dimension.

_FLIPS: Final = "flip_left flip_right"
_GROUPS: Final = "left right lengths offsets"
_SCALED_GROUPS: Final = "left right left_scale right_scale lengths offsets"
_SCALED: Final = f"left left_scale right right_scale out_dtype {_FLIPS} flip_out granularity beta=0.0 out=None"
_TURBO: Final = "left left_scale flip_left right right_scale flip_right out_dtype flip_out granularity"

_PRODUCTS: Final[dict[str, tuple[str, ...]]] = {
    f"{_KERNELS}hipblaslt_gemm": (
        f"left left_scale right right_scale out_dtype {_FLIPS} flip_out",
        f"left right out_dtype {_FLIPS} flip_out=False beta=0.0 out=None",
    ),
    f"{_KERNELS}hipblaslt_gemm_fp8": (_SCALED,),
    f"{_KERNELS}hipblaslt_gemm_fp4": (_SCALED,),
    f"{_KERNELS}turbo_gemm_fp8": (_SCALED,),
    f"{_KERNELS}ck_gemm_fp8": (f"left right left_scale right_scale {_FLIPS} out_dtype granularity",),
    "primus_turbo::gemm_impl": ("left flip_left right flip_right out_dtype flip_out backend",),
    "primus_turbo::gemm_accum_impl": ("left flip_left right flip_right out_dtype flip_out out backend",),
    "primus_turbo::gemm_fp8_impl": (f"{_TURBO} backend",),
    "primus_turbo::gemm_fp8_accum_impl": (f"{_TURBO} out backend",),
    "primus_turbo::gemm_fp4_impl": (f"{_TURBO} backend",),
    "primus_turbo::gemm_fp4_accum_impl": (f"{_TURBO} out backend",),
    "primus_turbo::gemm_fp8_blockwise_impl": (f"left right left_scale right_scale out_dtype block_m block_n block_k {_FLIPS}",),
}  # fmt: skip

_GROUPED: Final[dict[str, str]] = {
    **dict.fromkeys(
        (f"{_KERNELS}{name}" for name in ("grouped_gemm", "grouped_gemm_variable_k", "ck_grouped_gemm", "ck_grouped_gemm_variable_k")),
        f"{_GROUPS} {_FLIPS} units=None",
    ),
    **dict.fromkeys(
        (f"{_KERNELS}{name}" for name in ("grouped_gemm_fp8", "grouped_gemm_fp8_variable_k", "ck_grouped_gemm_fp8",
                                          "ck_grouped_gemm_fp8_variable_k")),
        f"{_SCALED_GROUPS} {_FLIPS} out_dtype granularity units",
    ),
    f"{_KERNELS}hipblaslt_grouped_gemm": f"{_GROUPS} {_FLIPS} synchronize beta=0.0 out=None",
    f"{_KERNELS}hipblaslt_grouped_gemm_fp8": f"{_SCALED_GROUPS} {_FLIPS} out_dtype granularity synchronize beta=0.0 out=None",
    "primus_turbo::grouped_gemm_impl": f"{_GROUPS} {_FLIPS} units backend",
    "primus_turbo::grouped_gemm_variable_k_impl": f"{_GROUPS} {_FLIPS} flip_out units backend",
    "primus_turbo::grouped_gemm_variable_k_accum_impl": f"{_GROUPS} {_FLIPS} flip_out units backend out",
    **dict.fromkeys(
        ("primus_turbo::grouped_gemm_fp4_impl", "primus_turbo::grouped_gemm_fp8_impl"),
        f"{_SCALED_GROUPS} {_FLIPS} out_dtype granularity units backend",
    ),
    **{
        f"primus_turbo::grouped_gemm_fp{bits}_variable_k_{kind}impl":
        f"{_SCALED_GROUPS} {_FLIPS} flip_out out_dtype granularity units backend {'out' if kind else ''}"
        for bits in (4, 8) for kind in ("", "accum_")
    },
}  # fmt: skip


def _operand(tensor: TensorArg, flipped: bool) -> TensorArg:
    """The operand as it is multiplied: numbers of 4 bits one in an element, rows before columns."""
    *batch, rows, columns = tensor.shape
    columns *= 2 if tensor.dtype in FOUR_BIT else 1
    return TensorArg((*batch, columns, rows) if flipped else (*batch, rows, columns), tensor.dtype)


def _work(args: Arguments, flops: int, results: int, read: int, assumption: str = "") -> Work:
    """A product with its results, which are scaled, or added to what ``out`` holds."""
    left, right, out = args.tensor("left"), args.tensor("right"), args.optional("out")
    out_dtype = "bfloat16" if size_of(left.dtype) == 1 else left.dtype
    if args.has("out_dtype"):
        out_dtype = args.dtype("out_dtype", out_dtype)
    if out is not None:
        out_dtype = out.dtype
    return Work(
        matrix_flops=flops,
        other_flops=results * ((args.optional("left_scale") is not None) + (out is not None)),
        bytes_read=read + size(out),
        bytes_written=results * size_of(out_dtype),
        precision=operand_precision(left, right),
        assumption=assumption,
    )


def _product(signature: Signature, schemas: tuple[str, ...]) -> Work:
    versions = [Arguments(signature, schema) for schema in schemas]
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


for _name, _schemas in _PRODUCTS.items():
    formula(_name, category="matmul")(partial(_product, schemas=_schemas))
for _name, _schema in _GROUPED.items():
    formula(_name, category="matmul")(partial(_grouped, schema=_schema))


# --- conversions -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Narrow:
    """A conversion to ``copies`` narrow tensors of ``bits``, each with a scale of ``scale`` bytes for every ``block`` numbers.

    ``block`` is 0 where there is one scale for all of them, None where there is one for each row along ``axis``. The argument ``given``
    is a scale, ``range`` a place for the range.
    """

    schema: str
    bits: int = 8
    copies: int = 1
    block: int | None = 0
    scale: int = 4


def _mx(bits: int, copies: int) -> _Narrow:
    return _Narrow("self", bits, copies, block=32, scale=1)


_TENSORWISE: Final = _Narrow("self dtype given=None")
_SQUARES: Final = _Narrow("self dtype", block=128 * 128)
_TWICE: Final = _Narrow("self dtype", copies=2, block=128)
_NARROW: Final[dict[str, _Narrow]] = {
    f"{_KERNELS}quantize_fp8_tensorwise": _TENSORWISE,
    "primus::quantize_fp8_tensorwise": _TENSORWISE,
    f"{_KERNELS}quantize_fp8_rowwise": _Narrow("self dtype axis given=None", block=None),
    f"{_KERNELS}quantize_fp8_blockwise_segment_m_row_col": _TWICE,
    f"{_KERNELS}quantize_fp8_blockwise_for_weight": _SQUARES,
    "primus_turbo::quant_fp8_blockwise_impl": _Narrow("self dtype", block=128),
    "primus_turbo::quant_fp8_blockwise_dual_impl": _TWICE,
    "primus_turbo::quant_fp8_blockwise_for_act_grad_impl": _TWICE,
    "primus_turbo::quant_fp8_blockwise_for_weight_impl": _SQUARES,
    "primus_turbo::quant_fp8_blockwise_segment_m_row_col_impl": _TWICE,
    "primus::quantize_mxfp4_dual": _mx(4, 2),
    **{
        f"{_KERNELS}{grouped}quantize_mxfp{bits}{kind}": _mx(bits, 1 + bool(kind))
        for grouped in ("", "grouped_") for bits in (4, 8) for kind in ("", "_dual")
    },
    "primus::cast_fp8_triton": _Narrow("self dtype given range=None"),
    "primus::cast_transpose_fp8_triton": _Narrow("self dtype given range=None", copies=2),
    "primus::quantize_fp8_prescaled": _Narrow("self dtype given"),
    "primus::quantize_fp8_prescaled_stochastic": _Narrow("self dtype given"),
}  # fmt: skip


def _scales(args: Arguments, inputs: TensorArg, block: int | None) -> int:
    if block is None:
        return inputs.numel // inputs.shape[args.integer("axis")]
    return -(-inputs.numel // block) if block else 1


def _narrowed(signature: Signature, one: _Narrow) -> Work:
    """The conversion searches for the range of each block, unless it is given the scale."""
    args = Arguments(signature, one.schema)
    inputs, given = args.tensor("self"), args.optional("given")
    ranged = given is None or args.optional("range") is not None
    return Work(
        other_flops=inputs.numel * (costs.QUANTIZE * one.copies + 2 * ranged),
        bytes_read=size(inputs, given),
        bytes_written=one.copies * (inputs.numel * one.bits // 8 + _scales(args, inputs, one.block) * one.scale),
        precision=precision_of(inputs.dtype),
    )


for _name, _one in _NARROW.items():
    formula(_name, category="element-wise")(partial(_narrowed, one=_one))

_WIDE: Final = {
    f"{_KERNELS}dequantize_fp8_tensorwise": "self scale out_dtype",
    f"{_KERNELS}dequantize_fp8_rowwise": "self scale axis out_dtype",
    f"{_KERNELS}dequantize_mxfp4": "self scale axis block out_dtype",
    f"{_KERNELS}dequantize_mxfp8": "self scale axis block out_dtype",
    f"{_KERNELS}grouped_dequantize_mxfp8": "self scale offsets padded_offsets axis block out_dtype",
    "primus_turbo::dequant_fp8_blockwise_impl": "self scale out_dtype",
    "primus_turbo::dequant_fp8_blockwise_for_weight_impl": "self scale out_dtype",
}


def _widened(signature: Signature, schema: str) -> Work:
    args = Arguments(signature, schema)
    inputs, scale, out_dtype = args.tensor("self"), args.tensor("scale"), args.dtype("out_dtype", "")
    if not out_dtype:
        raise NotCounted("dtype of the result not recorded")
    numbers = inputs.numel * (2 if inputs.dtype in FOUR_BIT else 1)
    return Work(0, numbers, size(inputs, scale), numbers * size_of(out_dtype), precision_of(out_dtype))


for _name, _schema in _WIDE.items():
    formula(_name, category="element-wise")(partial(_widened, schema=_schema))

# --- norms, gates and layouts ------------------------------------------------------------------------------------------------------

_MODULATE: Final = costs.SCALE_AND_SHIFT + 1  # x * (1 + scale) + shift
register(
    {f"primus::modulate{version}": Pass("read x, read scale, read shift", _MODULATE, "x", result="x") for version in ("", "_v2")},
    "element-wise",
)


@formula("primus::modulate_backward", "primus::modulate_backward_v2", category="element-wise")
def _modulation_gradient(signature: Signature) -> Work:
    """x: g * (1 + scale); scale and shift: a sum over the tokens each."""
    args = Arguments(signature, "grad x scale of_x of_scale of_shift")
    grad, x, scale = args.tensor("grad"), args.tensor("x"), args.tensor("scale")
    results = [one for one, name in ((x, "of_x"), (scale, "of_scale"), (scale, "of_shift")) if args.flag(name)]
    cost = 2 * args.flag("of_x") + 2 * args.flag("of_scale") + args.flag("of_shift")
    return Work(0, grad.numel * cost, size(grad, x, scale), written(*results), precision_of(x.dtype))


@formula("primus::fused_ln_modulate", "primus::fused_ln_modulate_v2", category="normalisation")
def _modulated_norm(signature: Signature) -> Work:
    """A layer norm of [tokens, batch, hidden] without parameters, then the scale and the shift [batch, hidden] of a diffusion step."""
    args = Arguments(signature, "x scale shift eps")
    x, scale, shift = args.tensor("x"), args.tensor("scale"), args.tensor("shift")
    norm = norm_forward(norm_of((x,), rms=False))
    return norm + Work(0, x.numel * _MODULATE, size(scale, shift), 0, norm.precision)


# The scale is the weight of the norm, and the shift its bias.
_MODULATED_NORM_GRADIENT: Final = Pass(
    "read grad, read x, read mean, read deviation, read scale",
    costs.LAYER_NORM_BACKWARD + 1,
    "x",
    result="x scale scale",
    precision="x",
)
register({f"primus::fused_ln_modulate_backward{version}": _MODULATED_NORM_GRADIENT for version in ("", "_v2")}, "normalisation")


register_norms("_RMSNormFunction", "_RMSNormResidualFunction", rms=True)


_SILU_GATE: Final = "a gate of SiLU, because the name of the activation is not recorded"


def _gate(signature: Signature) -> tuple[tuple[TensorArg, ...], int]:
    """[rows, 2 * hidden] and a weight for each row; elements of the result."""
    if len(signature.tensors) < 2 or signature.tensors[0].shape[-1] % 2:
        raise NotCounted("shapes not recorded")
    return signature.tensors[:3], signature.tensors[0].numel // 2


@formula("GLUWithProbs", category="element-wise")
def _weighted_gate(signature: Signature) -> Work:
    """silu(a) * b * weight."""
    tensors, results = _gate(signature)
    written_bytes = results * size_of(tensors[0].dtype)
    return Work(0, results * (costs.SILU + 2), size(*tensors), written_bytes, precision_of(tensors[0].dtype), _SILU_GATE)


@formula("GLUWithProbsBackward", category="element-wise")
def _weighted_gate_gradient(signature: Signature) -> Work:
    """The gate again; a: s * (1 + a * (1 - s)) * b * g; b: silu(a) * g; the weight: a sum of the result times g; g * weight first."""
    (grad, *_), forward = parts(signature)
    tensors, results = _gate(forward)
    flops = results * (costs.SILU + 7 + 4)
    return Work(0, flops, size(grad, *tensors), written(*tensors[:2]), precision_of(tensors[0].dtype), _SILU_GATE)


_MOVES: Final = {
    f"{_KERNELS}transpose_2d": Pass("read x, dim0, dim1", 0, "x", result="x"),
    f"{_KERNELS}shuffle_scale": Pass("read x, layout", 0, "x", result="x"),
    f"{_KERNELS}shuffle_weight": Pass("read x, layout", 0, "x", result="x"),
    # The rows of each token added up.
    f"{_KERNELS}unpermute": Pass("read source, write target, read weights?, write weights_out?, read map", 1, "source"),
}
register(_MOVES, "copy")


@formula(f"{_KERNELS}permute", category="copy")
def _permuted(signature: Signature) -> Work:
    """Tokens to a row for each expert that they go to, with the scales of narrow numbers and the weights of the routing."""
    args = Arguments(signature, "source target scale scale_out weights weights_out map")
    source, target = args.tensor("source"), args.tensor("target")
    return Work(
        bytes_read=min(size(source), written(target)) + size(*(args.optional(name) for name in ("scale", "weights", "map"))),
        bytes_written=written(target, args.optional("scale_out"), args.optional("weights_out")),
    )
