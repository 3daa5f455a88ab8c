"""Scaled dot-product attention and the fused encoder layers built on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.work.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.work.costs import GELU, MEAN_AND_VARIANCE, SCALE_AND_SHIFT, SOFTMAX, SOFTMAX_BACKWARD
from rooflines.roofline.work.matmul import product_flops
from rooflines.roofline.work.record import Work, matrix_precision_of
from rooflines.roofline.work.table import aten, composite, formula

# Query, key and value are [b, h, s, d], except where noted. ``bias`` is the additive or boolean mask.
FORWARD: Final[dict[str, str]] = {
    "aten::scaled_dot_product_attention": "query key value bias=None dropout=0.0 causal=False",
    "aten::_scaled_dot_product_attention_math": "query key value bias=None dropout=0.0 causal=False",
    "aten::_scaled_dot_product_flash_attention": "query key value dropout=0.0 causal=False",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "query key value dropout=0.0 causal=False bias=None",
    "aten::_scaled_dot_product_efficient_attention": "query key value bias log_sum dropout=0.0 causal=False",
    "aten::_scaled_dot_product_cudnn_attention": "query key value bias log_sum dropout=0.0 causal=False",
    "aten::_scaled_dot_product_fused_attention_overrideable": "query key value bias=None dropout=0.0 causal=False",
}
# [b, s, h, d]
FORWARD_SEQUENCE_FIRST: Final[dict[str, str]] = {
    "aten::_flash_attention_forward": "query key value cum_q cum_k max_q max_k dropout causal",
    "aten::_efficient_attention_forward": "query key value bias cum_q cum_k max_q max_k dropout causal",
}
BACKWARD: Final[dict[str, str]] = {
    "aten::_scaled_dot_product_flash_attention_backward":
        "grad query key value out log_sum cum_q cum_k max_q max_k dropout causal",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": "grad query key value out log_sum dropout causal bias=None",
    "aten::_scaled_dot_product_efficient_attention_backward":
        "grad query key value bias out log_sum seed offset dropout output_mask causal=False",
    "aten::_scaled_dot_product_cudnn_attention_backward":
        "grad query key value out log_sum seed offset bias cum_q cum_k max_q max_k dropout causal",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward":
        "grad query key value bias output_mask out log_sum cum_q cum_k max_q max_k dropout causal",
}  # fmt: skip
BACKWARD_SEQUENCE_FIRST: Final[dict[str, str]] = {
    "aten::_flash_attention_backward": "grad query key value out log_sum cum_q cum_k max_q max_k dropout causal",
    "aten::_efficient_attention_backward":
        "grad query key value bias out cum_q cum_k max_q max_k log_sum dropout seed offset causal",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attention:
    """The sizes of one attention: ``pairs`` is how many (query, key) pairs meet, over all batches and heads."""

    pairs: int
    query_depth: int
    value_depth: int

    @property
    def scores_flops(self) -> int:
        """q: [b, h, s_q, d] @ k: [b, h, d, s_k] -> scores: [b, h, s_q, s_k], or its half below the diagonal."""
        return product_flops(1, self.pairs, self.query_depth, 1)

    @property
    def values_flops(self) -> int:
        """scores: [b, h, s_q, s_k] @ v: [b, h, s_k, d_v] -> out: [b, h, s_q, d_v]."""
        return product_flops(1, self.pairs, self.value_depth, 1)


def pairs(queries: int, keys: int, causal: bool) -> int:
    """(query, key) pairs of one head. Causal: query i sees keys 0..i, so S(S + 1) / 2 where the sequences are equally long."""
    if not causal:
        return queries * keys
    triangle = min(queries, keys)
    return triangle * (triangle + 1) // 2 + max(queries - keys, 0) * keys


def _sizes(args: Arguments, sequence_axis: int) -> Attention:
    query, key, value = args.tensor("query"), args.tensor("key"), args.tensor("value")
    if len(query.shape) < 2 or len(query.shape) != len(key.shape):
        raise NotCounted("query and key differ in dimensions")
    if args.optional("cum_q") is not None:
        raise NotCounted("sequences of different lengths are packed into one tensor")
    heads = prod(query.shape[:-1]) // query.shape[sequence_axis] if query.shape[sequence_axis] else 0
    meeting = pairs(query.shape[sequence_axis], key.shape[sequence_axis], args.flag("causal"))
    return Attention(heads * meeting, query.shape[-1], value.shape[-1])


def _softmax_cost(args: Arguments) -> int:
    """FLOPs a score: scale, softmax, and what mask and dropout add."""
    dropout = args.value("dropout")
    return 1 + SOFTMAX + (args.optional("bias") is not None) + (2 if isinstance(dropout, float) and dropout > 0 else 0)


def _forward(signature: Signature, schema: str, sequence_axis: int) -> Work:
    args = Arguments(signature, schema)
    query, key, value = args.tensor("query"), args.tensor("key"), args.tensor("value")
    sizes = _sizes(args, sequence_axis)
    return Work(
        matrix_flops=sizes.scores_flops + sizes.values_flops,
        other_flops=sizes.pairs * _softmax_cost(args),
        bytes_read=size(query, key, value, args.optional("bias")),
        bytes_written=prod(query.shape[:-1]) * value.shape[-1] * size_of(query.dtype),
        precision=matrix_precision_of(query.dtype),
    )


def _backward(signature: Signature, schema: str, sequence_axis: int) -> Work:
    """The scores again, then two products for each of the forward's two: 5 where the forward has 2."""
    args = Arguments(signature, schema)
    inputs = [args.tensor(name) for name in ("query", "key", "value")]
    sizes = _sizes(args, sequence_axis)
    recomputed = sizes.scores_flops
    gradients = 2 * (sizes.scores_flops + sizes.values_flops)
    saved = [args.optional(name) for name in ("grad", "out", "log_sum", "bias")]
    return Work(
        matrix_flops=recomputed + gradients,
        other_flops=sizes.pairs * (_softmax_cost(args) + SOFTMAX_BACKWARD + 1),
        bytes_read=size(*inputs, *saved),
        bytes_written=sum(tensor.numel * size_of(tensor.dtype) for tensor in inputs),
        precision=matrix_precision_of(inputs[0].dtype),
    )


for _table, _axis in ((FORWARD, -2), (FORWARD_SEQUENCE_FIRST, -3)):
    for _name, _schema in _table.items():
        formula(_name, category="attention")(partial(_forward, schema=_schema, sequence_axis=_axis))
for _table, _axis in ((BACKWARD, -2), (BACKWARD_SEQUENCE_FIRST, -3)):
    for _name, _schema in _table.items():
        formula(_name, category="attention")(partial(_backward, schema=_schema, sequence_axis=_axis))


def _self_attention(tokens: int, keys: int, batch: int, width: int, heads: int, masked: bool) -> tuple[int, int]:
    """Matrix and other FLOPs of packed projections, attention and output projection, biases counted apart."""
    attention = Attention(batch * heads * tokens * keys, width // heads, width // heads)
    matrix = (
        product_flops(batch, tokens, width, width)  # query projection [b, s, e] @ [e, e]
        + 2 * product_flops(batch, keys, width, width)  # key and value projections
        + attention.scores_flops
        + attention.values_flops
        + product_flops(batch, tokens, width, width)  # output projection
    )
    biases = batch * width * (2 * tokens + 2 * keys)
    return matrix, biases + attention.pairs * (1 + SOFTMAX + masked)


def _once(tensors: list[TensorArg]) -> int:
    """Bytes of tensors that are one and the same in self-attention, which alike shapes mean in all but rare calls."""
    return sum(size(tensor) for tensor in set(tensors))


@formula("aten::_native_multi_head_attention", "aten::_triton_multi_head_attention", category="attention")
def _multi_head(signature: Signature) -> Work:
    args = Arguments(
        signature,
        "query key value embed_dim num_heads qkv_weight qkv_bias proj_weight proj_bias mask=None need_weights=True average=True",
    )
    query, key = args.tensor("query"), args.tensor("key")
    batch, tokens, width = query.shape
    keys, heads = key.shape[1], args.integer("num_heads")
    matrix, other = _self_attention(tokens, keys, batch, width, heads, args.optional("mask") is not None)
    parameters = [args.optional(name) for name in ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "mask")]
    weights = 0
    if args.flag("need_weights", absent=False):
        weights = batch * tokens * keys * (1 if args.flag("average") else heads)
        other += batch * heads * tokens * keys if args.flag("average") else 0
    return Work(
        matrix_flops=matrix,
        other_flops=other,
        bytes_read=_once([query, key, args.tensor("value")]) + size(*parameters),
        bytes_written=(query.numel + weights) * size_of(query.dtype),
        precision=matrix_precision_of(query.dtype),
    )


@formula("aten::_transformer_encoder_layer_fwd", category="attention")
def _encoder_layer(signature: Signature) -> Work:
    """Self-attention, two residual additions, two layer norms, and two linear layers with an activation between them."""
    args = Arguments(
        signature,
        "src embed_dim num_heads qkv_weight qkv_bias proj_weight proj_bias use_gelu norm_first eps norm_weight_1 norm_bias_1"
        " norm_weight_2 norm_bias_2 ffn_weight_1 ffn_bias_1 ffn_weight_2 ffn_bias_2 mask=None mask_type=None",
    )
    src, hidden = args.tensor("src"), args.tensor("ffn_weight_1").shape[0]
    batch, tokens, width = src.shape
    matrix, other = _self_attention(tokens, tokens, batch, width, args.integer("num_heads"), args.optional("mask") is not None)
    rows = batch * tokens
    matrix += 2 * product_flops(1, rows, width, hidden)  # [r, e] @ [e, f] and [r, f] @ [f, e]
    other += rows * (hidden + width)  # their biases
    other += rows * hidden * (GELU if args.flag("use_gelu") else 1)
    other += 2 * src.numel * (1 + MEAN_AND_VARIANCE + 2 * SCALE_AND_SHIFT)  # residual and layer norm, twice
    parameters = [
        args.optional(f"{name}{suffix}")
        for name, suffixes in (
            ("qkv_", ("weight", "bias")), ("proj_", ("weight", "bias")), ("norm_", ("weight_1", "bias_1", "weight_2", "bias_2")),
            ("ffn_", ("weight_1", "bias_1", "weight_2", "bias_2")),
        )
        for suffix in suffixes
    ]  # fmt: skip
    return Work(
        matrix_flops=matrix,
        other_flops=other,
        bytes_read=size(src, *parameters, args.optional("mask")),
        bytes_written=src.numel * size_of(src.dtype),
        precision=matrix_precision_of(src.dtype),
    )


@formula("aten::_transform_bias_rescale_qkv", category="attention")
def _split_heads(signature: Signature) -> Work:
    """[b, s, 3e] plus its bias, the query third scaled, laid out by head."""
    args = Arguments(signature, "qkv bias num_heads")
    qkv, bias = args.tensor("qkv"), args.tensor("bias")
    return Work(
        other_flops=qkv.numel + qkv.numel // 3,
        bytes_read=size(qkv, bias),
        bytes_written=qkv.numel * size_of(qkv.dtype),
        precision=matrix_precision_of(qkv.dtype),
    )


composite(*aten("multi_head_attention_forward"))
