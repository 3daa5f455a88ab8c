"""AITER's norms, activations, positions and quantization (``aiter``), each alone; ``aiter_fusions.py`` has several in one kernel.

Order of arguments: AITER, ``aiter/ops/*.py`` (commit e4048607; earlier names 9a9f684, 6dc68e5); ``rms_norm`` and ``rmsnorm2d_*_ck``
also as in 2025's versions. The name of an operator is that of the function in Python.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.passes import Pass, pass_work, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.rotary import rotary_work
from rooflines.roofline.formulas.table import formula

# --- norms -------------------------------------------------------------------------------------------------------------------------

LAYER_NORM: Final = costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT + 2  # a weight, a bias
_ADDED: Final = "write out, read input, read residual, write residual_out"


def _norms(name: str, cost: int, parameters: str) -> dict[str, Pass]:
    """The norm and its fusions with an addition and a quantization, which AITER names alike for both kinds of norms."""
    return {
        name: Pass(f"read input, {parameters}", cost, result="input"),
        f"{name}_with_add": Pass(f"{_ADDED}, {parameters}", cost + 1),
        f"{name}_with_smoothquant": Pass(
            f"write out, read input, read x_scale, write y_scale, {parameters}", cost + 1 + DYNAMIC_QUANTIZE
        ),
        f"{name}_with_add_smoothquant": Pass(f"{_ADDED}, read x_scale, write y_scale, {parameters}", cost + 2 + DYNAMIC_QUANTIZE),
        f"{name}_with_dynamicquant": Pass(f"write out, read input, write y_scale, {parameters}", cost + DYNAMIC_QUANTIZE),
        f"{name}_with_add_dynamicquant": Pass(f"{_ADDED}, write y_scale, {parameters}", cost + 1 + DYNAMIC_QUANTIZE),
    }


_RMS: Final = _norms("rmsnorm2d_fwd", costs.RMS_NORM, "read weight, eps")
_LAYER: Final = _norms("layernorm2d_fwd", LAYER_NORM, "read weight, read bias?, eps, read x_bias?")
NORMS: Final[dict[str, Pass]] = {
    **_RMS, **{f"{name}_ck": one for name, one in _RMS.items()},
    **_LAYER, **{f"{name}_ck": one for name, one in _LAYER.items()},
    "rms_norm": Pass("read input, read weight, eps", costs.RMS_NORM, result="input"),
    "layer_norm": Pass("read input, read weight?, read bias?, eps, read x_bias?", LAYER_NORM, result="input"),
    "rms_norm_cu": Pass("write out, read input, read weight, eps", costs.RMS_NORM),
    "fused_add_rms_norm_cu": Pass("update input, update residual, read weight, eps", costs.RMS_NORM + 1),
    "rmsnorm": Pass("write out, read input, read weight, eps", costs.RMS_NORM),
    "add_rmsnorm": Pass(f"{_ADDED}, read weight, eps", costs.RMS_NORM + 1),
    "rmsnorm_quant": Pass("write out, read input, write scale, read weight, eps", costs.RMS_NORM + DYNAMIC_QUANTIZE),
    "add_rmsnorm_quant": Pass(f"{_ADDED}, write scale, read weight, eps", costs.RMS_NORM + 1 + DYNAMIC_QUANTIZE),
    "_fused_rmsnorm": Pass("read input, read weight, eps", costs.RMS_NORM, result="input"),
    "_fused_rmsnorm_add": Pass("read input, read weight, eps, read residual", costs.RMS_NORM + 1, result="input residual"),
    "layernorm2d_with_add_asm": Pass(f"{_ADDED}, read weight, read bias, eps, read x_bias?", LAYER_NORM + 1),
    "layernorm2d_with_add_smoothquant_asm": Pass(
        f"{_ADDED}, read x_scale, write y_scale, read weight, read bias, eps, read x_bias?", LAYER_NORM + 2 + DYNAMIC_QUANTIZE
    ),
    **dict.fromkeys(
        ("gated_rmsnorm_fp8_group_quant", "gated_rmsnorm_fp8_per_token_quant"),
        Pass("write out, write scale, read input, read gate, read weight, eps", costs.RMS_NORM + costs.SILU + 1 + DYNAMIC_QUANTIZE),
    ),
}  # fmt: skip
register({f"aiter::{name}": one for name, one in NORMS.items()}, "normalisation")


@formula("aiter::_groupnorm_run", "aiter::groupnorm_run", category="normalisation")
def _group_norm(signature: Signature) -> Work:
    """The result and a workspace come first in newer versions; older ones return it."""
    older = not isinstance(signature.arg(1), TensorArg)
    leading = "" if older else "out, workspace, "
    return pass_work(signature, Pass(f"{leading}read input, groups, read weight, read bias", LAYER_NORM, result="input"))


# --- activations and quantization --------------------------------------------------------------------------------------------------

_UNARY: Final = {"sigmoid": costs.SIGMOID, "tanh": costs.TANH}
ELEMENT_WISE: Final[dict[str, Pass]] = {
    "silu_and_mul": Pass("write out, read input, limit", costs.SILU + 1, per="out"),
    "swiglu_and_mul": Pass("write out, read input", costs.SILU + 6, per="out"),
    "gelu_and_mul": Pass("write out, read input", costs.GELU + 1, per="out"),
    "gelu_tanh_and_mul": Pass("write out, read input", costs.GELU + 1, per="out"),
    "gelu_fast": Pass("write out, read input", costs.GELU, per="out"),
    "scaled_silu_and_mul": Pass("write out, read input, read scale", costs.SILU + 1 + costs.QUANTIZE, per="out"),
    "silu_and_mul_quant": Pass("write out, read input, write scale, group_size", costs.SILU + 1 + DYNAMIC_QUANTIZE, per="out"),
    "static_per_tensor_quant": Pass("write out, read input, read scale", costs.QUANTIZE),
    "dynamic_per_tensor_quant": Pass("write out, read input, write scale", DYNAMIC_QUANTIZE),
    "dynamic_per_token_scaled_quant": Pass("write out, read input, write scale, read scale_ub?", DYNAMIC_QUANTIZE),
    "dynamic_per_group_scaled_quant": Pass("write out, read input, write scale, group_size", DYNAMIC_QUANTIZE),
    "dynamic_per_group_scaled_quant_fp4": Pass("write out, read input, write scale, group_size", DYNAMIC_QUANTIZE),
    "smoothquant_fwd": Pass("write out, read input, read x_scale, write y_scale", 1 + DYNAMIC_QUANTIZE),
    "smooth_per_token_scaled_quant": Pass("write out, read input, write scale, read smooth_scale, read map?", 1 + DYNAMIC_QUANTIZE),
    "partial_transpose": Pass("write out, read input, read rows", 0),
    **{
        f"{name}_and_mul_bias": Pass("write out, read input, read expert_ids, read bias", cost + 3, per="out")  # a bias for each half
        for name, cost in (("silu", costs.SILU), ("gelu", costs.GELU), ("swiglu", costs.SILU + 5))
    },
    "quant_mxfp4": Pass("read input, write out, write scale", DYNAMIC_QUANTIZE),
    "moe_smoothquant_fwd": Pass("write out, read input, read x_scale, read ids, write y_scale", 1 + DYNAMIC_QUANTIZE, per="out"),
    "moe_smooth_per_token_scaled_quant_v1": Pass(
        "write out, read input, write scale, read smooth_scale, read map", 1 + DYNAMIC_QUANTIZE, per="out"
    ),
    "moe_smooth_per_token_scaled_quant_v2": Pass(
        "write out, read input, write scale, read smooth_scale, read ids, read expert_ids, read count", 1 + DYNAMIC_QUANTIZE, per="out"
    ),
    **{name: Pass("read input, read other", 1, result="input") for name in ("add", "sub", "mul", "div")},
    **{f"{name}_": Pass("update input, read other", 1) for name in ("add", "sub", "mul", "div")},
    **{f"_{name}_kernel": Pass("read input, read other, write out", 1, per="out") for name in ("add", "sub", "mul", "div")},
    **{f"_{name}_kernel_": Pass("update input, read other", 1) for name in ("add", "sub", "mul", "div")},
    **{f"_{name}": Pass("write out, read input", cost) for name, cost in _UNARY.items()},
    **{name: Pass("read input", cost, result="input") for name, cost in _UNARY.items()},
}
register({f"aiter::{name}": one for name, one in ELEMENT_WISE.items()}, "element-wise")

# --- positions ---------------------------------------------------------------------------------------------------------------------


@formula("aiter::rotary_embedding_fwd", "aiter::batched_rotary_embedding", category="element-wise")
def _rotary(signature: Signature) -> Work:
    """In place; cosines and sines of half a head each in a table of their own."""
    args = Arguments(signature, "positions query key head_size cos sin")
    return _with_two_tables(args, (args.tensor("query"), args.optional("key")), args.integer("head_size"), args.tensor("positions"))


def _with_two_tables(args: Arguments, rotated: tuple[TensorArg | None, ...], head_size: int, positions: TensorArg) -> Work:
    cos, sin = args.tensor("cos"), args.tensor("sin")
    table = TensorArg((cos.numel // cos.shape[-1], cos.shape[-1] + sin.shape[-1]), cos.dtype)
    return rotary_work(positions, rotated, table, head_size)


def _rope(signature: Signature, pairs: int, tables: int, *, at_positions: bool = False, starts: bool = False) -> Work:
    """``pairs`` results, as many inputs, perhaps where packed sequences start, and frequencies or their cosines and sines; with the
    positions of the tokens, their rows.

    The last dimension is a head; what does not rotate is copied. A flag says that the tables have one number for both of a pair.
    """
    outs, inputs, first = signature.tensors[:pairs], signature.tensors[pairs : 2 * pairs], 2 * pairs + starts
    found = signature.tensors[first : first + tables]
    shared = next((arg for arg in signature.args if isinstance(arg, bool)), None)
    if shared is None or len(found) < tables:
        raise NotCounted("layout of the frequencies not recorded")
    head, width = inputs[0].shape[-1], found[0].shape[-1]
    read = size(*found)
    if at_positions:
        positions, *offsets = signature.tensors[first + tables :]
        rows = min(positions.numel, found[0].numel // width)
        read = size(positions, *offsets) + rows * sum(table.shape[-1] * size_of(table.dtype) for table in found)
    rotating = width * (1 + shared) * (2 if "_2d_" in signature.name else 1)  # of two dimensions of an image, half of a head each
    return Work(
        other_flops=sum(one.numel // head for one in inputs) * min(head, rotating) * costs.ROTARY_EMBEDDING,
        bytes_read=size(*inputs, *signature.tensors[2 * pairs : first]) + read,
        bytes_written=written(*outs),
        precision=precision_of(inputs[0].dtype),
    )


for _pairs, _infix in ((1, ""), (2, "2c_")):
    for _way in ("fwd", "bwd"):
        formula(f"aiter::rope_{_infix}{_way}_impl", category="element-wise")(partial(_rope, pairs=_pairs, tables=1))
        formula(f"aiter::rope_cached_{_infix}{_way}_impl", category="element-wise")(partial(_rope, pairs=_pairs, tables=2))
    for _name in (f"rope_cached_positions_{_infix}fwd_impl", f"rope_cached_positions_offsets_{_infix}fwd_impl"):
        formula(f"aiter::{_name}", category="element-wise")(partial(_rope, pairs=_pairs, tables=2, at_positions=True))
for _way in ("fwd", "bwd"):
    formula(f"aiter::rope_thd_{_way}_impl", category="element-wise")(partial(_rope, pairs=1, tables=1, starts=True))
    formula(f"aiter::rope_2d_{_way}_impl", category="element-wise")(partial(_rope, pairs=1, tables=4))
