"""AITER's kernels that join norms, rotary positions, conversions and the KV cache (``aiter``).

Order of arguments: AITER e4048607 and 6e50988 (``aiter/ops/cache.py``, ``fused_qk_norm_rope_cache_quant.py``,
``fused_qk_norm_mrope_cache_quant.py``, ``fused_mrope_rms.py``, ``fused_qk_rmsnorm_group_quant.py``, ``inverse_rope_group_quant.py``,
``triton/fusions/fused_kv_cache.py``, ``triton/kv_cache.py``).
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.kv_cache import stored
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.rotary import rotary_work
from rooflines.roofline.formulas.table import formula


def _turned(positions: TensorArg, rotated: tuple[TensorArg, ...], tables: tuple[TensorArg, ...]) -> Work:
    """The rotation of tensors whose last dimension is a head, and of what they are only its FLOPs: reads positions and tables."""
    width = sum(table.shape[-1] for table in tables)
    table = TensorArg((tables[0].numel // tables[0].shape[-1], width), tables[0].dtype)
    work = rotary_work(positions, rotated, table, rotated[0].shape[-1])
    return Work(other_flops=work.other_flops, bytes_read=work.bytes_read - work.bytes_written, precision=work.precision)


def _narrowed(source: TensorArg, made: TensorArg) -> int:
    """FLOPs of writing ``source`` as ``made``."""
    return made.numel * costs.QUANTIZE * (size_of(made.dtype) < size_of(source.dtype))


def _latent(new: tuple[TensorArg, TensorArg], cache: TensorArg, slots: TensorArg, *others: TensorArg | None) -> Work:
    """The compressed keys and values and the rotated part of each token into a row of the cache, which may hold scales too."""
    work = stored(slots.numel, new, (cache, cache), slots, *others)
    return Work(
        other_flops=work.other_flops,
        bytes_read=work.bytes_read,
        bytes_written=slots.numel * cache.shape[-1] * size_of(cache.dtype),
        precision=work.precision,
    )


# --- multi-head latent attention ---------------------------------------------------------------------------------------------------


@formula("aiter::fused_qk_rope_concat_and_cache_mla", "aiter::fused_qk_rope_concat_and_cache_mla_seg", category="copy")
def _rotate_concat_and_cache(signature: Signature) -> Work:
    """Queries [tokens, heads, ..] of both kinds rotate into one tensor, keys go into the cache."""
    args = Arguments(signature, "q q_pe kv_c k_pe cache q_out slots k_scale q_scale positions cos sin")
    q, q_pe, k_pe, q_out = (args.tensor(name) for name in ("q", "q_pe", "k_pe", "q_out"))
    rotation = _turned(args.tensor("positions"), (q_pe, k_pe), (args.tensor("cos"), args.tensor("sin")))
    queries = Work(
        other_flops=_narrowed(q, q_out),
        bytes_read=size(q, q_pe, args.optional("q_scale")),
        bytes_written=written(q_out),
        precision=precision_of(q.dtype),
    )
    return (
        rotation + queries + _latent((args.tensor("kv_c"), k_pe), args.tensor("cache"), args.tensor("slots"), args.optional("k_scale"))
    )


@formula("aiter::fused_qk_rope_cat_and_cache_mla", category="copy")
def _rotate_and_cache(signature: Signature) -> Work:
    """As above, with new tensors for the queries, the rotated keys, the rotated part of the first queries again, and zeros as large as
    their other part."""
    args = Arguments(
        signature, "q q_pe k k_pe cache slots positions cos sin k_scale is_neox firsts=0 apply=True q_out=None pe_out=None"
        " k_pe_out=None dtype=None"
    )  # fmt: skip
    q, q_pe, k, k_pe = (args.tensor(name) for name in ("q", "q_pe", "k", "k_pe"))
    rotation = _turned(args.tensor("positions"), (q_pe, k_pe), (args.tensor("cos"), args.tensor("sin")))
    out = args.optional("q_out") or TensorArg((q.numel + q_pe.numel,), args.dtype("dtype", q.dtype))
    firsts = args.integer("firsts") * q.shape[-2] * (q_pe.shape[-1] + k.shape[-1])
    queries = Work(
        other_flops=_narrowed(q, out),
        bytes_read=size(q, q_pe),
        bytes_written=written(out, k_pe) + firsts * size_of(q.dtype),
        precision=precision_of(q.dtype),
    )
    return rotation + queries + _latent((k, k_pe), args.tensor("cache"), args.tensor("slots"), args.optional("k_scale"))


@formula("aiter::cat_and_cache_mla", category="copy")
def _concat_and_cache(signature: Signature) -> Work:
    args = Arguments(signature, "k k_pe cache slots k_scale")
    return _latent((args.tensor("k"), args.tensor("k_pe")), args.tensor("cache"), args.tensor("slots"), args.optional("k_scale"))


@formula("aiter::indexer_qk_rope_quant_and_cache", category="copy")
def _index(signature: Signature) -> Work:
    """The index of a sparse attention: queries rotate and become fp8, their weights are scaled, and the normalised, rotated key of each
    token goes into the cache as fp8, with a float32 scale for each block."""
    args = Arguments(signature, "q q_out weights weights_out k cache slots weight bias positions cos sin eps block")
    q, q_out, weights, k, slots, block = (
        *(args.tensor(name) for name in ("q", "q_out", "weights", "k", "slots")),
        args.integer("block"),
    )
    tokens, width = slots.numel, k.shape[-1]
    if block <= 0 or k.numel < tokens * width:
        raise NotCounted("more tokens than keys")
    return _turned(args.tensor("positions"), (q, k), (args.tensor("cos"), args.tensor("sin"))) + Work(
        other_flops=q.numel * DYNAMIC_QUANTIZE + 2 * weights.numel
        + tokens * width * (costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT + 2 + DYNAMIC_QUANTIZE),
        bytes_read=size(q, weights, slots, args.tensor("weight"), args.tensor("bias")) + tokens * width * size_of(k.dtype),
        bytes_written=written(q_out, args.tensor("weights_out")) + tokens * (width + 4 * (width // block)),
        precision=precision_of(q.dtype),
    )  # fmt: skip


# --- norms and positions of queries and keys ---------------------------------------------------------------------------------------

_HEADS: Final = "heads_q heads_k heads_v head"
_CACHES: Final = "k_cache v_cache slots"
_PACKED: Final = "qkv q_weight k_weight table positions tokens"


@formula("aiter::fused_rope_rms", "aiter::fused_mrope_3d_rms", category="normalisation")
def _in_place(signature: Signature) -> Work:
    args = Arguments(signature, f"{_PACKED} {_HEADS}")
    return _normalised(args, _numbers(args, "heads_q", "heads_k"), 0)


def _numbers(args: Arguments, *heads: str) -> int:
    """Numbers of these heads of all tokens."""
    tokens = args.integer("tokens") if args.has("tokens") else args.tensor("positions").numel
    return tokens * sum(args.integer(name) for name in heads) * args.integer("head")


def _normalised(args: Arguments, numbers: int, copied: int) -> Work:
    """``numbers`` of queries and keys are normalised and rotated where they are, ``copied`` values only read."""
    qkv, head = args.tensor("qkv"), args.integer("head")
    rotation = _turned(args.tensor("positions"), (TensorArg((numbers // head, head), qkv.dtype),), (args.tensor("table"),))
    return rotation + Work(
        other_flops=numbers * costs.RMS_NORM,
        bytes_read=(numbers + copied) * size_of(qkv.dtype) + size(args.tensor("q_weight"), args.tensor("k_weight")),
        bytes_written=numbers * size_of(qkv.dtype),
        precision=precision_of(qkv.dtype),
    )


def _cached(args: Arguments) -> Work:
    """Keys and values of the tokens into caches, after a scale."""
    qkv, slots = args.tensor("qkv"), args.tensor("slots")
    new = tuple(TensorArg((slots.numel, args.integer(name) * args.integer("head")), qkv.dtype) for name in ("heads_k", "heads_v"))
    work = stored(
        slots.numel, new, (args.tensor("k_cache"), args.tensor("v_cache")), slots, args.optional("k_scale"), args.optional("v_scale")
    )
    return Work(
        other_flops=work.other_flops,
        bytes_read=work.bytes_read - sum(one.numel for one in new) * size_of(qkv.dtype),
        bytes_written=work.bytes_written,
        precision=work.precision,
    )


@formula(
    "aiter::fused_qk_norm_rope_cache_quant_shuffle", "aiter::_fused_qk_norm_rope_cache_quant_shuffle_hip", category="normalisation"
)
def _into_cache(signature: Signature) -> Work:
    """Queries and keys are written in place too; of newer versions the three are tensors of their own."""
    parts = "qkv k v" if signature.name.endswith("_hip") else "qkv"
    args = Arguments(signature, f"{parts} {_HEADS} eps q_weight k_weight table is_neox positions {_CACHES} dtype k_scale v_scale")
    return _normalised(args, _numbers(args, "heads_q", "heads_k"), _numbers(args, "heads_v")) + _cached(args)


@formula("aiter::fused_qk_norm_rope_cache_pts_quant_shuffle", "aiter::fused_qk_norm_mrope_3d_cache_pts_quant_shuffle",
         category="normalisation")  # fmt: skip
def _out_of_place(signature: Signature) -> Work:
    """The queries go into a tensor of their own, keys and values into the cache and where they are asked for."""
    sections = "sections interleaved " if "mrope" in signature.name else ""
    args = Arguments(
        signature, f"{_PACKED} {_HEADS} is_neox {sections}eps q_out {_CACHES} k_scale v_scale k_out=None v_out=None returns=False"
    )
    numbers = _numbers(args, "heads_q", "heads_k")
    work = _normalised(args, numbers, _numbers(args, "heads_v"))
    made = written(args.tensor("q_out"), *((args.optional("k_out"), args.optional("v_out")) if args.flag("returns") else ()))
    in_place = numbers * size_of(args.tensor("qkv").dtype)
    return Work(work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written - in_place + made, work.precision) + _cached(
        args
    )


_ONE_WAY: Final = Pass(
    "read q, read k, read q_weight, read k_weight, read table, batch, tokens, heads_q, heads_k, head, interleaved, eps, write q_out,"
    " write k_out", costs.RMS_NORM + costs.ROTARY_EMBEDDING, per="q k",
)  # fmt: skip
register({"aiter::fused_qk_norm_rope_1way": _ONE_WAY}, "normalisation")


@formula("aiter::_fused_qk_rmsnorm_kernel", "aiter::_fused_qk_rmsnorm_group_quant_kernel",
         "aiter::_fused_qk_rmsnorm_per_token_quant_kernel", category="normalisation")  # fmt: skip
def _two_norms(signature: Signature) -> Work:
    """Norms of queries and keys; of the queries also of their sum with a residual, and in 8 or 4 bits with scales."""
    narrow = "q_narrow q_scale q q_weight q_eps q_out=None k_out=None q_sum=None k=None k_weight=None k_eps=None residual=None"
    args = Arguments(signature, narrow if "quant" in signature.name else "q q_weight q_eps k k_weight k_eps q_out k_out")
    q, q_weight, k = args.tensor("q"), args.tensor("q_weight"), args.optional("k")
    residual, scale = args.optional("residual"), args.optional("q_scale")
    cost = costs.RMS_NORM + (residual is not None) + DYNAMIC_QUANTIZE * (scale is not None)
    return Work(
        other_flops=q.numel * cost + (k.numel * costs.RMS_NORM if k else 0),
        bytes_read=size(q, q_weight, k, args.optional("k_weight"), residual),
        bytes_written=written(*(args.optional(name) for name in ("q_narrow", "q_scale", "q_out", "k_out", "q_sum"))),
        precision=precision_of(q.dtype),
    )


@formula("aiter::_inverse_rope_group_quant_kernel", category="element-wise")
def _turned_back(signature: Signature) -> Work:
    args = Arguments(signature, "input out scale positions cos sin")
    inputs = args.tensor("input")
    return _turned(args.tensor("positions"), (inputs,), (args.tensor("cos"), args.tensor("sin"))) + Work(
        other_flops=inputs.numel * DYNAMIC_QUANTIZE,
        bytes_read=size(inputs),
        bytes_written=written(args.tensor("out"), args.tensor("scale")),
        precision=precision_of(inputs.dtype),
    )


# --- caches with scales ------------------------------------------------------------------------------------------------------------


@formula("aiter::reshape_and_cache_with_pertoken_quant", category="copy")
def _with_scales(signature: Signature) -> Work:
    """Keys and values [tokens, heads, head] with a scale for each token and head."""
    args = Arguments(signature, "key value key_cache value_cache k_scales v_scales slots")
    key, value, slots = args.tensor("key"), args.tensor("value"), args.tensor("slots")
    scales = args.tensor("k_scales")
    work = stored(slots.numel, (key, value), (args.tensor("key_cache"), args.tensor("value_cache")), slots)
    numbers = slots.numel * (key.numel // key.shape[0] + value.numel // value.shape[0])
    return Work(
        other_flops=numbers * DYNAMIC_QUANTIZE,
        bytes_read=work.bytes_read,
        bytes_written=work.bytes_written + 2 * slots.numel * key.shape[-2] * size_of(scales.dtype),
        precision=precision_of(key.dtype),
    )
