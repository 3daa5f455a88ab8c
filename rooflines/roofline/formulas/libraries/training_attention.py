"""Attention of flash-attn 2, 3 and 4 with its copies in vLLM and SGLang, of xformers, Primus-Turbo, TransformerEngine, FBGEMM, MSLK and
NATTEN.

Masks of flash-attn are aligned with the last query and key. A window holds ``left`` keys before a query's own place and ``right`` after
it. Forwards return the rows' log-sum-exp. A backward computes the scores again: 5 products, 2.5 times the forward's
(benchmarks/benchmark_flash_attention.py). The functions of flash-attn 2 that Python calls through pybind leave no event: in a trace of
a version before 2.7 there is only autograd's ``FlashAttnFunc``. Primus-Turbo's is that of flash-attn with a bias before the slopes of
ALiBi; where an operator of AITER is below, that one counts. TransformerEngine's ``FusedAttnFunc`` names mask and layout by strings,
which traces leave out: tensors are [b, s, h, d] or [s, b, h, d], told apart by the number of sequences, or packed. FBGEMM's attention
of HSTU has no softmax; how many of a sequence's last items are targets, which do not see one another, is data. A neighborhood of NATTEN
is moved inside at the borders, so that every token has a whole one, except along causal dimensions; the kernels of Hopper and Blackwell
take tokens in tiles, padded, and with the groups of a dilation as more batches.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.attention import Attention, backward_work
from rooflines.roofline.formulas.costs import SILU, SOFTMAX
from rooflines.roofline.formulas.packed_attention import NO_WINDOW, Layout, backward, forward
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints
from rooflines.roofline.formulas.tables import table

_OPTIONS: Final = "dropout scale causal left right softcap alibi"
_GRADIENT: Final = "grad query key value out log_sum"
# Version 3: one operator for fixed, packed and paged tensors, of which every version has added arguments.
_THREE: Final = (
    "query key value new_key=None new_value=None query_rest=None out=None cum_q=None cum_k=None cum_new=None used_q=None used_k=None"
    " max_q=None max_k=None pages=None batch_index=None pad_k=None cos=None sin=None rotary_lengths=None"
    " q_scale=None k_scale=None v_scale=None"
)
_END: Final = "interleaved=False schedule=None splits=0 pack=None margin=0"
_LENGTHS: Final = "cum_q=None cum_k=None used_q=None used_k=None max_q=None max_k=None"
_RESULTS: Final = "dq=None dk=None dv=None"
_THREE_OPTIONS: Final = "scale=None causal=False left=-1 right=-1 softcap=0.0 deterministic=False margin=0"
_FOUR: Final = "scale causal window sinks=None softcap=0.0"


def apart(signature: Signature) -> Signature:
    """The call with a tensor [.., heads, depth] for each in the packed one [.., 2 or 3, heads, depth], of which all or the last two
    are one tensor, and perhaps one tensor of lengths for queries and keys."""
    count = 3 if "QKV" in signature.name else 2
    before, packed, rest = signature.args[: 3 - count], signature.arg(3 - count), signature.args[4 - count :]
    if not isinstance(packed, TensorArg) or packed.shape[-3:-2] != (count,):
        raise NotCounted("shapes not recorded")
    one = TensorArg((*packed.shape[:-3], *packed.shape[-2:]), packed.dtype)
    lengths = (rest[0], rest[0], rest[1], rest[1]) if "VarlenQKV" in signature.name else rest[:2]
    return replace(signature, args=(*before, *(one,) * count, *lengths, *rest[2:]))


_PACKED: Final = "query key value cum_q cum_k"
_SHARED: Final = "grads_share_storage grad query key value out log_sum cum_q cum_k max_q max_k"
_WINDOW: Final = "dropout scale causal left right"
_SCALES: Final = "q_scale k_scale v_scale"
_ENDING: Final = "bias alibi with_log_sum debug"


def _batch_first(arg: Argument) -> Argument:
    """[s, b, h, d] as [b, s, h, d]."""
    if not isinstance(arg, TensorArg) or len(arg.shape) != 4:
        return arg
    sequence, batch, *rest = arg.shape
    return TensorArg((batch, sequence, *rest), arg.dtype)


def batch_first(signature: Signature) -> Signature:
    """The call with [b, s, h, d] for each [s, b, h, d]."""
    return replace(signature, args=tuple(map(_batch_first, signature.args)))


def told_apart(signature: Signature) -> Signature:
    """The call of TransformerEngine with the batch first. Where sequences end is a tensor with one number more than there are."""
    ends = signature.arg(3)

    def other(arg: Argument) -> bool:
        return isinstance(arg, TensorArg) and isinstance(ends, TensorArg) and arg.shape[:1] != (ends.numel - 1,)

    return replace(signature, args=tuple(_batch_first(arg) if other(arg) else arg for arg in signature.args))


_FIRST: Final = "training max_q max_k {0}_q {0}_k padded_q padded_k"
_REST: Final = "query key value bias=None scale=None dropout=0.0"
_FBGEMM_LENGTHS: Final = "cum_q cum_k used_q used_k max_q max_k length=-1"
_MASK: Final = "contexts=None targets=None targets_of_group=1 left=-1 right=-1 alpha=1.0"
_GRADIENTS: Final = "dq=None dk=None dv=None"
_TARGETS: Final = "no context and no targets apart from the sequence"
_BACKWARD_COST: Final = 6  # divide the gradient, s + y * (1 - s) times it, scale


def hstu(signature: Signature, hints: Hints, text: str) -> Work:
    """silu(q @ k^T * alpha + bias) / length @ v; nothing is kept for the backward, which makes the scores again."""
    args = Arguments(signature, text)
    if args.optional("func") is not None or args.optional("cache") is not None:
        raise NotCounted("no formula for attention in a form that a tensor says, or over pages")
    back = args.has("grad")
    work = (backward if back else forward)(signature, hints, Layout((text,), log_sum=False))
    depth, value_depth = args.tensor("query").shape[-1], args.tensor("value").shape[-1]
    pairs = work.matrix_flops // (2 * (3 * depth + 2 * value_depth) if back else 2 * (depth + value_depth))
    cost = 2 + SILU + (args.optional("bias") is not None) + back * _BACKWARD_COST
    masked = any(args.optional(name) is not None for name in ("contexts", "targets"))
    assumption = "; ".join(filter(None, (work.assumption, _TARGETS * masked)))
    return replace(work, other_flops=pairs * cost, assumption=assumption)


_TILES: Final = "q_tile k_tile"
_NATTEN_PACKED: Final = "cum_q cum_k max_q max_k"
_SAVED: Final = "query key value out grad log_sum"
_NEIGHBORS: Final = "kernel stride dilation causal scale"


def _along(extent: int, kernel: int, stride: int, dilation: int, causal: bool) -> int:
    """Pairs along one dimension: each token with its neighborhood, or with as much of it as is before it among the tokens of its
    dilation."""
    if not causal:
        return extent * kernel
    if stride != 1:
        raise NotCounted("a causal neighborhood that several tokens share")
    whole = 0
    for first in range(min(dilation, extent)):
        tokens = -(-(extent - first) // dilation)
        some = min(tokens, kernel)
        whole += some * (some + 1) // 2 + (tokens - some) * kernel
    return whole


def _sizes(args: Arguments, rank: int) -> Attention:
    query, value = args.tensor("query"), args.tensor("value")
    kernel, stride, dilation = (args.integers(name, rank) for name in ("kernel", "stride", "dilation"))
    causal = args.mask("causal", rank)
    if args.has("layout"):
        layout, batch = args.sizes("layout"), query.shape[0] // prod(dilation)
    else:
        layout, batch = query.shape[1:-2], query.shape[0]
    if len(layout) != rank:
        raise NotCounted("shapes not understood")
    pairs = prod(_along(*sizes) for sizes in zip(layout, kernel, stride, dilation, causal, strict=True))
    return Attention(batch * query.shape[-2] * pairs, query.shape[-1], value.shape[-1])


def _rank(signature: Signature) -> int:
    """Dimensions, by the name: ``na2d_forward``, ``token_permute_2d``."""
    return next(rank for rank in (1, 2, 3) if f"{rank}d" in signature.name)


def neighborhood(signature: Signature, _: Hints, text: str) -> Work:
    """[batch, tokens of each dimension, heads, depth], or in tiles [batches, tokens, heads, depth]."""
    args = Arguments(signature, f"query key value {text}")
    query, key, value = args.tensor("query"), args.tensor("key"), args.tensor("value")
    sizes = _sizes(args, _rank(signature))
    return Work(
        matrix_flops=sizes.flops,
        other_flops=sizes.pairs * (1 + SOFTMAX),
        bytes_read=size(query, key, value),
        bytes_written=prod(query.shape[:-1]) * (value.shape[-1] * size_of(query.dtype) + 4),
        precision=matrix_precision_of(query.dtype),
    )


def neighborhood_back(signature: Signature, _: Hints, text: str) -> Work:
    """The gradient of a neighborhood."""
    args = Arguments(signature, f"{_SAVED} {text}")
    return backward_work(args, _sizes(args, _rank(signature)))


def permute(signature: Signature, _: Hints, text: str) -> Work:
    """Into whole tiles of each group of the dilation, the rest of which is padding."""
    args, rank = Arguments(signature, text), _rank(signature)
    inputs, tile, dilation = args.tensor("self"), args.integers("tile", rank), args.integers("dilation", rank)
    tiles = [-(-extent // one) for extent, one in zip(inputs.shape[1:-2], tile, strict=True)]
    padded = prod(-(-count // group) * group * one for count, group, one in zip(tiles, dilation, tile, strict=True))
    return Work(bytes_read=size(inputs), bytes_written=written(inputs) // max(prod(inputs.shape[1:-2]), 1) * padded)


_TABLE: Final = f"""
[attention forward]
fbgemm::fmha_fwd fbgemm::cutlass_blackwell_fmha_fwd blackwell_fmha::fmha_fwd: query key value cum_q=None cum_k=None max_q=None
    max_k=None scale=None causal=False used_k=None pages=None longest=None left=-1 right=-1 lower_right=True
fbgemm::fmha_gen_fwd: query key value used_k batch=None kernel=0 left=-1 right=-1 split=1024
fbgemm::gqa_attn_splitk: query key value used_k scale splits groups=1 tensor_cores=True dtype=0; log_sum = False
fbgemm::mqa_attn: query key value used_k scale groups=1 dtype=0 k_parameters=None v_parameters=None; log_sum = False
natten::fmha_forward: query key value causal scale {_TILES} {_NATTEN_PACKED}
natten::hopper_fmha_forward: query key value causal scale {_TILES} schedule {_NATTEN_PACKED}
natten::blackwell_fmha_forward: query key value causal scale {_TILES} persistent {_NATTEN_PACKED}
[attention backward]
fbgemm::fmha_bwd fbgemm::cutlass_blackwell_fmha_bwd blackwell_fmha::fmha_bwd: grad query key value out log_sum cum_q=None cum_k=None
    max_q=None max_k=None scale=None causal=False left=-1 right=-1 lower_right=True deterministic=False
mslk_flydsl::fmha_bwd: query key value out log_sum grad scale causal cum_q=None cum_k=None
natten::fmha_backward: {_SAVED} causal scale {_TILES} splits delta {_NATTEN_PACKED}
natten::hopper_fmha_backward: {_SAVED} causal scale {_TILES} {_NATTEN_PACKED}
natten::blackwell_fmha_backward: {_SAVED} causal scale {_TILES} {_NATTEN_PACKED}
[attention forward]
flash_attn::_flash_attn_forward: query key value {_OPTIONS} debug
flash_attn::_flash_attn_varlen_forward: query key value cum_q cum_k max_q max_k dropout scale causal left=-1 right=-1 softcap=0.0
    alibi=None debug=False pages=None pad_k=None used_k=None zero=False splits=0
# Version 2 below its functions in Python: operators in vLLM and in the kernels of Hugging Face's hub.
flash_attn_2_cuda::fwd: query key value out alibi dropout scale causal left right softcap debug
flash_attn_2_cuda::varlen_fwd _vllm_fa2_C::varlen_fwd: query key value out cum_q cum_k used_k pad_k pages alibi max_q max_k dropout
    scale zero causal left right softcap debug
flash_attn_2_cuda::fwd_kvcache _vllm_fa2_C::fwd_kvcache: query key value new_key new_value used_k cos sin batch_index pad_k pages
    alibi out scale causal left right softcap interleaved
flash_attn_3::fwd flash_attn_3::_flash_attn_forward sgl_kernel::fwd: {_THREE} scale=None causal=False left=-1 right=-1 chunk=0
    softcap=0.0 {_END}
    | {_THREE} scale=None causal=False left=-1 right=-1 softcap=0.0 {_END} sinks=None
# vLLM has a scale of the result before the others since 2025.
_vllm_fa3_C::fwd: {_THREE} o_scale scale causal left right softcap {_END} sinks=None
    | {_THREE} scale causal left right softcap {_END} sinks=None
_diffusers_flash_attn_3::_flash_attn_forward: query key value scale=None causal=False query_rest=None q_scale=None k_scale=None
    v_scale=None chunk=0 softcap=0.0
xformers_flash::flash_fwd mslk_flash::flash_fwd: {_PACKED} used_k max_q max_k dropout scale causal left right debug pages=None
xformers_flash3::flash_fwd mslk_flash3::flash_fwd: {_PACKED} used_k pad_k max_q max_k dropout scale causal q_scale=None k_scale=None
    v_scale=None pages=None split=False left=-1 right=-1
xformers::efficient_attention_forward_cutlass: query key value bias cum_q cum_k max_q max_k dropout mask_type with_log_sum=False
    scale=None used_k=None window=None
xformers::efficient_attention_forward_ck: query key value bias cum_q cum_k max_q dropout with_log_sum mask_type scale used_k window
    pages=None page_size=None
primus_turbo::attention_aiter_forward_impl: query key value {_WINDOW} {_ENDING} max_q=None max_k=None sinks=None
primus_turbo::attention_aiter_csrc_forward_impl: query key value {_WINDOW} {_ENDING}
primus_turbo::attention_aiter_varlen_forward_impl: {_PACKED} max_q max_k {_WINDOW} {_ENDING}
primus_turbo::attention_triton_forward_impl: query key value p_scale {_SCALES} {_WINDOW} bias alibi debug fp8
primus_turbo::flash_attn_varlen_flydsl_forward: {_PACKED} max_q max_k left with_log_sum sinks; causal = True
[attention forward batch_first]
primus_turbo::flash_attn_sbhd_flydsl_forward: query key value left with_log_sum sinks; causal = True
[attention backward]
flash_attn_2_cuda::bwd: {_GRADIENT} dq dk dv alibi dropout scale causal left right softcap deterministic
flash_attn_2_cuda::varlen_bwd: {_GRADIENT} dq dk dv cum_q cum_k alibi max_q max_k dropout scale zero causal left right softcap
    deterministic
flash_attn::_flash_attn_backward: {_GRADIENT} dq dk dv {_OPTIONS} deterministic seed=None
flash_attn::_flash_attn_varlen_backward: {_GRADIENT} dq dk dv cum_q cum_k max_q max_k {_OPTIONS} deterministic seed=None zero=False
flash_attn_3::bwd: {_GRADIENT} {_RESULTS} {_LENGTHS} {_THREE_OPTIONS}
flash_attn_3::_flash_attn_backward: {_GRADIENT} {_LENGTHS} {_RESULTS} {_THREE_OPTIONS}
xformers_flash::flash_bwd mslk_flash::flash_bwd: {_SHARED} dropout scale causal left right seed
xformers_flash3::flash_bwd mslk_flash3::flash_bwd: {_SHARED} scale causal left right
xformers::efficient_attention_backward_cutlass: grad query key value bias out cum_q cum_k max_q max_k log_sum dropout seed offset
    mask_type bias_needs_gradient scale=None splits=None window=None
xformers::efficient_attention_backward_ck: grad query key value bias cum_q cum_k max_q max_k used_k log_sum out dropout seed offset
    mask_type scale window
primus_turbo::attention_aiter_backward_impl: {_GRADIENT} dq dk dv {_WINDOW} bias alibi deterministic seed
primus_turbo::attention_aiter_csrc_backward_impl: {_GRADIENT} dq dk dv dbias {_WINDOW} bias alibi deterministic
primus_turbo::attention_aiter_varlen_backward_impl: {_GRADIENT} dq dk dv cum_q cum_k max_q max_k {_WINDOW} alibi deterministic seed
primus_turbo::attention_triton_backward_impl: grad query key value out {_SCALES} p_scale log_sum dq dk dv cum_q cum_k max_q max_k
    scale causal left right alibi fp8
primus_turbo::flash_attn_varlen_flydsl_backward: {_GRADIENT} cum_q cum_k max_q max_k scale left; causal = True
[attention backward batch_first]
primus_turbo::flash_attn_sbhd_flydsl_backward: {_GRADIENT} scale left; causal = True
[attention function]
# A window, which is a tuple, is not recorded. Functions of version 4 (flash_attn/cute) follow those of 2 and 3.
FlashAttnFunc: query key value dropout scale causal window softcap=0.0 alibi=None
    | query key value scale causal query_rest=None q_scale=None k_scale=None v_scale=None window=None
    | query key value {_FOUR}
    | query key value query_rest gather {_FOUR}; assumption = {NO_WINDOW}
FlashAttnVarlenFunc: query key value cum_q cum_k max_q max_k dropout scale causal window softcap=0.0 alibi=None deterministic=False
    debug=False pages=None
    | query key value cum_q cum_k used_q used_k max_q max_k scale causal query_rest=None
    | query key value cum_q cum_k used_q used_k pages {_FOUR}
    | query key value cum_q cum_k used_q used_k max_q max_k pages {_FOUR}
    | query key value query_rest cum_q cum_k used_q used_k max_q max_k min_k gather pages {_FOUR}; assumption = {NO_WINDOW}
[attention function apart]
FlashAttnQKVPackedFunc FlashAttnKVPackedFunc like FlashAttnFunc:
FlashAttnVarlenQKVPackedFunc FlashAttnVarlenKVPackedFunc like FlashAttnVarlenFunc:
[attention function told_apart]
# Tensors that are not packed, or packed ones; both with paged caches, or before these.
FusedAttnFunc: {_FIRST.format("ends")} pages value_pages {_REST}
    | {_FIRST.format("ends")} {_REST}
    | {_FIRST.format("cum")} pages value_pages {_REST}
    | {_FIRST.format("cum")} {_REST}; causal = True; assumption = a causal mask, {NO_WINDOW}
[attention by=hstu]
fbgemm::hstu_varlen_fwd_80: query key value {_FBGEMM_LENGTHS} {_MASK} bias=None func=None cache=None
fbgemm::hstu_varlen_fwd_90: query key value {_FBGEMM_LENGTHS} {_MASK} bias=None func=None
fbgemm::hstu_varlen_bwd_80: grad query key value {_FBGEMM_LENGTHS} {_GRADIENTS} {_MASK} bias=None bias_needs_gradient=False func=None
fbgemm::hstu_varlen_bwd_90: grad grad_t query query_t key key_t value {_FBGEMM_LENGTHS} {_GRADIENTS} {_MASK} mode=-1 bias=None
    bias_needs_gradient=False func=None
[attention natten:: by=neighborhood]
na1d_forward na2d_forward na3d_forward: {_NEIGHBORS}
hopper_na1d_forward hopper_na2d_forward hopper_na3d_forward blackwell_na1d_forward blackwell_na2d_forward blackwell_na3d_forward:
    {_NEIGHBORS} q_shape k_shape layout
[attention natten:: by=neighborhood_back]
na1d_backward na2d_backward na3d_backward: {_NEIGHBORS}
hopper_na1d_backward hopper_na2d_backward hopper_na3d_backward blackwell_na1d_backward blackwell_na2d_backward
    blackwell_na3d_backward: {_NEIGHBORS} q_shape k_shape layout
[copy natten:: by=permute]
token_permute_1d token_permute_2d token_permute_3d: self tile dilation flip
[copy]
natten::token_unpermute_1d natten::token_unpermute_2d natten::token_unpermute_3d: view self, layout*, tile*, dilation*;
    moved = self[0] // prod(dilation) * prod(layout) * self[-2] * self[-1] * self.item; reads = moved; writes = moved
"""
table(
    _TABLE, apart=apart, batch_first=batch_first, told_apart=told_apart, hstu=hstu, neighborhood=neighborhood,
    neighborhood_back=neighborhood_back, permute=permute,
)  # fmt: skip
