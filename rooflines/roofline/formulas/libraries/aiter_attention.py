"""Attention of AITER.

Orders of arguments: ROCm/aiter e404860 (aiter/ops/mha.py, aiter/ops/attention.py, pa_sparse_prefill_opus.py; pa_decode_gluon.py below
triton/gluon; sage attention in fav3_sage_attention.py and sage_attention_quant.py below aiter/ops/triton/_triton_kernels), and of
earlier versions eb63ac8 (April 2025), dfe0ba8 (a branch of May 2025 with ``_flash_attn_forward``), 8f62dd1 (August 2025), 7c0e15c
(November 2025) and d04be8c (December 2025). Functions of Python that only call a kernel, such as ``paged_attention_ragged``, reach a
trace where SGLang's profiler wraps them (``sglang_profiler::attention_paged_attention_ragged_100``), with their tensors alone.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, written
from rooflines.roofline.formulas.attention import Attention
from rooflines.roofline.formulas.costs import QUANTIZE, SOFTMAX, TRANSCENDENTAL
from rooflines.roofline.formulas.packed_attention import Layout, register
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.table import formula

_BASE: Final = "query key value dropout scale causal left right"
_SCALES: Final = "q_scale=None k_scale=None v_scale=None"
_END: Final = "with_log_sum debug"
_RESULT: Final = "out=None bias=None alibi=None"
_PACKED: Final = "query key value cum_q cum_k max_q max_k"
_PACKED_BASE: Final = f"{_PACKED} min_q dropout scale softcap zero causal left right"
_LATENT: Final = "query key cum_q page_ends page_list last_pages"
_PAGED: Final = "query key value cum_q page_ends page_list max_q max_k dropout scale softcap zero causal left right"

FORWARD: Final = {
    "aiter::mha_fwd": Layout((
        f"{_BASE} sink_size {_END} cum_q=None cum_k=None {_RESULT} {_SCALES} sinks=None",
        f"{_BASE} {_END} cum_q=None cum_k=None {_RESULT} {_SCALES}",
    )),
    "aiter::_flash_attn_forward": Layout(("query key value dropout scale causal left right bias alibi with_log_sum",)),
    "aiter::fmha_v3_fwd": Layout((f"{_BASE} {_END} conversion=0 {_RESULT} {_SCALES}",)),
    "aiter::mha_varlen_fwd": Layout((
        f"{_PACKED_BASE} sink_size {_END} out=None pages=None bias=None alibi=None {_SCALES}",
        f"{_PACKED_BASE} {_END} out=None pages=None bias=None alibi=None {_SCALES}",
        f"{_PACKED} dropout scale zero causal left right {_END} out=None pages=None bias=None alibi=None",
    )),
    "aiter::fmha_v3_varlen_fwd": Layout((f"{_PACKED_BASE} {_END} conversion out=None pages=None bias=None alibi=None {_SCALES}",)),
    "aiter::mha_batch_prefill": Layout((
        f"{_PAGED} sink_size {_END} {_RESULT} {_SCALES} page_scale=None last_pages=None pages=None used_k=None sinks=None",
        f"{_PAGED} {_END} out=None alibi=None",
    )),
    "aiter::mha_fwd_native_splitkv": Layout(("query key value out scale causal with_log_sum splits",)),
    "aiter::paged_attention_v1": Layout((
        "out workspace query key value scale pages cum_q used_k max_k alibi cache_dtype layout softcap k_scale v_scale out_scale=None"
        " partition=256 mtp=1 sliding_window=0",
    ), log_sum=False, causal=True),
    "aiter::paged_attention_rocm": Layout((
        "out sums maxima part query key value heads scale pages used_k page_size max_k alibi cache_dtype k_scale v_scale",
    ), log_sum=False, causal=True),
    **dict.fromkeys(("aiter::pa_fwd_asm", "aiter::_pa_fwd_asm"), Layout((
        "query key value pages used_k stride max_q=1 k_scale=None v_scale=None out=None cum_q=None",
    ), log_sum=False, causal=True)),
    **dict.fromkeys(("aiter::pa_ps_fwd_asm", "aiter::_pa_ps_fwd_asm"), Layout((
        "query key value page_ends page_list used_k scale max_q=1 k_scale=None v_scale=None out=None cum_q=None",
    ), log_sum=False, causal=True)),
    "aiter::_pa_decode_bf16_asm": Layout((
        "query key value page_list used_k scale q_scale k_scale v_scale out cum_q page_ends",
    ), log_sum=False, causal=True),
    "aiter::pa_decode_gluon": Layout((
        "out query key value used_k pages scale max_q parts part_size=256 dtype=15 q_scale=None k_scale=None v_scale=None sums=None"
        " maxima=None part=None alibi=None sinks=None sliding_window=0",
    ), log_sum=False, causal=True),
    "aiter::paged_attention_ragged": Layout((
        "out workspace query key value scale page_ends page_list last_pages page_size parts alibi cache_dtype layout softcap k_scale"
        " v_scale",
    ), log_sum=False, causal=True),
    "aiter::_flash_attn_with_kvcache": Layout((
        "query key value new_key=None new_value=None query_rest=None used_k=None scale=None causal=True left=-1 right=-1 chunk=0"
        " softcap=0.0 splits=0 pack=None margin=0 q_scale=None k_scale=None v_scale=None max_q=None with_log_sum=False pages=None"
        " batch_index=None pad_k=None cos=None sin=None rotary_lengths=None cum_q=None",
    ), log_sum=False),
    "aiter::_fmha_fwd_bf16_opus_fwd": Layout((
        "query key value out causal scale cum_q=None cum_k=None pad_q=None pad_k=None max_q=0 max_k=0",
    ), log_sum=False),
    "aiter::_fmha_fwd_with_sink_asm": Layout(("query key value out log_sum sinks scale causal with_log_sum",)),
    "aiter::_fmha_fwd_with_sink_varlen_asm": Layout((
        "query key value out log_sum sinks cum_q cum_k max_q scale causal with_log_sum",
    )),
    "aiter::_fmha_fwd_mxfp8_asm": Layout(("query key value q_scale k_scale v_scale out log_sum scale causal with_log_sum",)),
    "aiter::mla_decode_stage1_asm_fwd": Layout((
        f"{_LATENT} split_ends work work_ends work_info max_q page_size heads scale parts part_sums out",
        f"{_LATENT} split_ends work work_ends work_info max_q scale parts part_sums out",
        f"{_LATENT} max_q scale out",
    ), log_sum=False, causal=True),
    "aiter::mla_decode_fwd_opus_stage1": Layout((
        f"{_LATENT} work_ends work max_q page_size heads scale parts part_sums out log_sum=None q_scale=None k_scale=None causal=True",
    ), log_sum=False),
    **dict.fromkeys(("aiter::hk_mla_decode_fwd", "aiter::hk_mla_v32_decode_fwd_mi3xx"), Layout((
        f"{_LATENT} work_ends work max_q scale parts part_sums out",
    ), log_sum=False, causal=True)),
    "aiter::mla_prefill_ps_asm_fwd": Layout((
        "query key value cum_q page_ends page_list work_ends work max_q scale causal parts part_sums out q_scale=None k_scale=None"
        " v_scale=None",
    ), log_sum=False),
    "aiter::mla_prefill_asm_fwd": Layout((
        f"{_LATENT} max_q scale out",
    ), log_sum=False, causal=True),
    # The name of the function's module and its own: aiter.ops.attention.paged_attention_ragged.
    "sglang_profiler::attention_paged_attention_ragged": Layout((
        "out workspace query key value page_ends page_list last_pages alibi k_scale v_scale",
    ), log_sum=False, causal=True),
}  # fmt: skip

_GRADIENT: Final = "grad query key value out log_sum"
_FIXED_END: Final = "dropout scale causal left right deterministic"
_PACKED_END: Final = "cum_q cum_k max_q max_k dropout scale zero causal left right deterministic"

BACKWARD: Final = {
    "aiter::mha_bwd": Layout((f"{_GRADIENT} {_FIXED_END} dq=None dk=None dv=None dbias=None bias=None",)),
    "aiter::fmha_v3_bwd": Layout((f"{_GRADIENT} {_FIXED_END}",)),
    "aiter::mha_varlen_bwd": Layout((f"{_GRADIENT} {_PACKED_END}",)),
    "aiter::fmha_v3_varlen_bwd": Layout((f"{_GRADIENT} {_PACKED_END}",)),
    "aiter::_flash_attn_backward": Layout((
        f"{_GRADIENT} dq dk dv dbias dropout scale causal left right bias=None alibi=None",
    )),
}  # fmt: skip

register(FORWARD, BACKWARD)


@formula("sage_fwd", category="attention")
def _sage(signature: Signature) -> Work:
    """Sage attention, a kernel in Triton that inductor calls: queries and keys in int8, values in 8-bit floating point.

    Whether it is causal is a constant of the kernel, which a call does not record.
    """
    args = Arguments(
        signature,
        "query key value bias q_scale k_scale v_scale q_scale_0 q_scale_1 q_scale_2 k_scale_0 k_scale_1 k_scale_2 v_scale_0 v_scale_1"
        " log_sum out",
    )
    query, key, value, out = (args.tensor(name) for name in ("query", "key", "value", "out"))
    batch, heads, _ = args.tensor("q_scale").shape  # [b, h, blocks], where queries are [b, h, s, d] or [b, s, h, d]
    queries, keys = (tensor.shape[2 if query.shape[1] == heads else 1] for tensor in (query, key))
    sizes = Attention(batch * heads * queries * keys, query.shape[-1], value.shape[-1])
    scales = [args.optional(name) for name in ("bias", "q_scale", "k_scale", "v_scale")]
    return Work(
        matrix_flops=sizes.scores_flops + sizes.values_flops,
        other_flops=sizes.pairs * (1 + SOFTMAX),
        bytes_read=size(query, key, value, *scales),
        bytes_written=written(out, args.optional("log_sum")),
        precision=matrix_precision_of(query.dtype),
        assumption="no causal mask, which is not recorded",
    )


_RANGE: Final = 2  # the largest absolute value


@formula("sage_quant_kernel", category="element-wise")
def _sage_quantize(signature: Signature) -> Work:
    """Queries, scaled, and keys to int8 in blocks, whose scales it writes; values to 8-bit floating point with scales that it reads."""
    args = Arguments(signature, "query query_out query_scale key key_out key_scale value value_out value_scale")
    query, key, value = (args.tensor(name) for name in ("query", "key", "value"))
    results = [args.tensor(name) for name in ("query_out", "query_scale", "key_out", "key_scale", "value_out")]
    return Work(
        other_flops=(1 + _RANGE + QUANTIZE) * query.numel + (_RANGE + QUANTIZE) * key.numel + QUANTIZE * value.numel,
        bytes_read=size(query, key, value, args.tensor("value_scale")),
        bytes_written=written(*results),
        precision="fp32",
    )


# --- keys that an index chose ------------------------------------------------------------------------------------------------------


@formula("aiter::pa_sparse_prefill_opus", "aiter::pa_sparse_prefill_opus_fwd", category="attention")
def _sparse(signature: Signature) -> Work:
    """Queries [tokens, heads, width] to listed rows of two tensors [rows, width], which are keys and values alike."""
    end = "out scale" if signature.name.endswith("_fwd") else "scale out=None"
    args = Arguments(signature, f"query cache cached_ids cached_ends new new_ids new_ends sinks {end}")
    query, out = args.tensor("query"), args.optional("out")
    _, heads, depth = query.shape
    rows = [(args.tensor(f"{name}"), args.tensor(f"{ids}")) for name, ids in (("cache", "cached_ids"), ("new", "new_ids"))]
    sizes = Attention(heads * sum(ids.numel for _, ids in rows), depth, depth)
    return Work(
        matrix_flops=sizes.scores_flops + sizes.values_flops,
        other_flops=sizes.pairs * (1 + SOFTMAX),
        bytes_read=size(query, args.tensor("cached_ends"), args.tensor("new_ends"), args.tensor("sinks"))
        + sum(size(ids) + size(one) * min(ids.numel, one.shape[0]) // max(one.shape[0], 1) for one, ids in rows),
        bytes_written=written(out or query),
        precision=matrix_precision_of(query.dtype),
        assumption="every query has as many keys as its list can hold",
    )


# --- before and after a decode -----------------------------------------------------------------------------------------------------


@formula("aiter::get_mla_metadata_v1", "aiter::_get_mla_metadata_v1_impl", "aiter::get_pa_metadata_v1", "aiter::get_ps_metadata_v1",
         category="other")  # fmt: skip
def _plan(signature: Signature) -> Work:
    """Lengths come before the numbers of heads, and the plan of the work after them."""
    heads = next((place for place, arg in enumerate(signature.args) if not isinstance(arg, TensorArg)), 0)
    lengths = [arg for arg in signature.args[:heads] if isinstance(arg, TensorArg)]
    plan = [arg for arg in signature.args[heads:] if isinstance(arg, TensorArg)]
    if not lengths or not plan:
        raise NotCounted("shapes not recorded")
    return Work(bytes_read=size(*lengths), bytes_written=written(*plan), assumption="the plan fills its tensors")


@formula("aiter::mla_reduce_v1", category="attention")
def _join(signature: Signature) -> Work:
    """Partial results [parts, heads, depth] and their rows' sums: an exponential and a weight a row, a product and a sum a number."""
    args = Arguments(signature, "part part_sums ends final_map partial_map max_q splits out log_sum=None")
    part, sums, out = args.tensor("part"), args.tensor("part_sums"), args.tensor("out")
    return Work(
        other_flops=2 * part.numel + sums.numel * (TRANSCENDENTAL + 3) + out.numel,
        bytes_read=size(part, sums, args.tensor("ends"), args.optional("final_map"), args.tensor("partial_map")),
        bytes_written=written(out, args.optional("log_sum")),
        precision="fp32",
        assumption="all partial results are used",
    )
