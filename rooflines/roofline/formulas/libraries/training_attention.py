"""Attention of flash-attn 2, 3 and 4 with its copies in vLLM and SGLang, of xformers, TransformerEngine, FBGEMM and MSLK.

Masks of flash-attn are aligned with the last query and key. A window holds ``left`` keys before a query's own place and ``right`` after
it. Forwards return the rows' log-sum-exp. A backward computes the scores again: 5 products, 2.5 times the forward's
(benchmarks/benchmark_flash_attention.py). The functions of flash-attn 2 that Python calls through pybind leave no event: in a trace of
a version before 2.7 there is only autograd's ``FlashAttnFunc``. TransformerEngine's ``FusedAttnFunc`` names mask and layout by
strings, which traces leave out: tensors are [b, s, h, d] or [s, b, h, d], told apart by the number of sequences, or packed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.packed_attention import NO_WINDOW
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


def _batch_first(arg: Argument) -> Argument:
    """[s, b, h, d] as [b, s, h, d]."""
    if not isinstance(arg, TensorArg) or len(arg.shape) != 4:
        return arg
    sequence, batch, *rest = arg.shape
    return TensorArg((batch, sequence, *rest), arg.dtype)


def told_apart(signature: Signature) -> Signature:
    """The call of TransformerEngine with the batch first. Where sequences end is a tensor with one number more than there are."""
    ends = signature.arg(3)

    def other(arg: Argument) -> bool:
        return isinstance(arg, TensorArg) and isinstance(ends, TensorArg) and arg.shape[:1] != (ends.numel - 1,)

    return replace(signature, args=tuple(_batch_first(arg) if other(arg) else arg for arg in signature.args))


_FIRST: Final = "training max_q max_k {0}_q {0}_k padded_q padded_k"
_REST: Final = "query key value bias=None scale=None dropout=0.0"


_TABLE: Final = f"""
[attention forward]
fbgemm::fmha_fwd fbgemm::cutlass_blackwell_fmha_fwd blackwell_fmha::fmha_fwd: query key value cum_q=None cum_k=None max_q=None
    max_k=None scale=None causal=False used_k=None pages=None longest=None left=-1 right=-1 lower_right=True
fbgemm::fmha_gen_fwd: query key value used_k batch=None kernel=0 left=-1 right=-1 split=1024
fbgemm::gqa_attn_splitk: query key value used_k scale splits groups=1 tensor_cores=True dtype=0; log_sum = False
fbgemm::mqa_attn: query key value used_k scale groups=1 dtype=0 k_parameters=None v_parameters=None; log_sum = False
[attention backward]
fbgemm::fmha_bwd fbgemm::cutlass_blackwell_fmha_bwd blackwell_fmha::fmha_bwd: grad query key value out log_sum cum_q=None cum_k=None
    max_q=None max_k=None scale=None causal=False left=-1 right=-1 lower_right=True deterministic=False
mslk_flydsl::fmha_bwd: query key value out log_sum grad scale causal cum_q=None cum_k=None
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
"""
table(_TABLE, apart=apart, told_apart=told_apart)
