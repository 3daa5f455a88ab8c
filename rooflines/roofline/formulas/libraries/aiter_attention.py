"""Attention of AITER.

Orders of arguments: ROCm/aiter e404860 (aiter/ops/mha.py, aiter/ops/attention.py, pa_sparse_prefill_opus.py; pa_decode_gluon.py below
triton/gluon; sage attention in fav3_sage_attention.py and sage_attention_quant.py below aiter/ops/triton/_triton_kernels), and of
earlier versions eb63ac8 (April 2025), dfe0ba8 (a branch of May 2025 with ``_flash_attn_forward``), 8f62dd1 (August 2025), 7c0e15c
(November 2025) and d04be8c (December 2025). Functions of Python that only call a kernel, such as ``paged_attention_ragged``, reach a
trace where SGLang's profiler wraps them (``sglang_profiler::attention_paged_attention_ragged_100``), with their tensors alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted, size, written
from rooflines.roofline.formulas.packed_attention import Layout, register_layouts
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

_BASE: Final = "query key value dropout scale causal left right"
_SCALES: Final = "q_scale=None k_scale=None v_scale=None"
_END: Final = "with_log_sum debug"
_RESULT: Final = "out=None bias=None alibi=None"
_PACKED: Final = "query key value cum_q cum_k max_q max_k"
_PACKED_BASE: Final = f"{_PACKED} min_q dropout scale softcap zero causal left right"
_LATENT: Final = "query key cum_q page_ends page_list last_pages"
_PAGED: Final = "query key value cum_q page_ends page_list max_q max_k dropout scale softcap zero causal left right"


def _served(*schemas: str, causal: bool = True) -> Layout:
    """An operator that returns no sums of rows; ``causal`` where no argument says it."""
    return Layout(schemas, log_sum=False, causal=causal)


_FORWARD: Final = {
    "mha_fwd": Layout((
        f"{_BASE} sink_size {_END} cum_q=None cum_k=None {_RESULT} {_SCALES} sinks=None",
        f"{_BASE} {_END} cum_q=None cum_k=None {_RESULT} {_SCALES}",
    )),
    "_flash_attn_forward": Layout(("query key value dropout scale causal left right bias alibi with_log_sum",)),
    "fmha_v3_fwd": Layout((f"{_BASE} {_END} conversion=0 {_RESULT} {_SCALES}",)),
    "mha_varlen_fwd": Layout((
        f"{_PACKED_BASE} sink_size {_END} out=None pages=None bias=None alibi=None {_SCALES}",
        f"{_PACKED_BASE} {_END} out=None pages=None bias=None alibi=None {_SCALES}",
        f"{_PACKED} dropout scale zero causal left right {_END} out=None pages=None bias=None alibi=None",
    )),
    "fmha_v3_varlen_fwd": Layout((f"{_PACKED_BASE} {_END} conversion out=None pages=None bias=None alibi=None {_SCALES}",)),
    "mha_batch_prefill": Layout((
        f"{_PAGED} sink_size {_END} {_RESULT} {_SCALES} page_scale=None last_pages=None pages=None used_k=None sinks=None",
        f"{_PAGED} {_END} out=None alibi=None",
    )),
    "mha_fwd_native_splitkv": Layout(("query key value out scale causal with_log_sum splits",)),
    "_fmha_fwd_with_sink_asm": Layout(("query key value out log_sum sinks scale causal with_log_sum",)),
    "_fmha_fwd_with_sink_varlen_asm": Layout(("query key value out log_sum sinks cum_q cum_k max_q scale causal with_log_sum",)),
    "_fmha_fwd_mxfp8_asm": Layout(("query key value q_scale k_scale v_scale out log_sum scale causal with_log_sum",)),
    "paged_attention_v1": _served(
        "out workspace query key value scale pages cum_q used_k max_k alibi cache_dtype layout softcap k_scale v_scale out_scale=None"
        " partition=256 mtp=1 sliding_window=0"
    ),
    "paged_attention_rocm": _served(
        "out sums maxima part query key value heads scale pages used_k page_size max_k alibi cache_dtype k_scale v_scale"
    ),
    "paged_attention_ragged": _served(
        "out workspace query key value scale page_ends page_list last_pages page_size parts alibi cache_dtype layout softcap k_scale"
        " v_scale"
    ),
    "pa_fwd_asm _pa_fwd_asm": _served("query key value pages used_k stride max_q=1 k_scale=None v_scale=None out=None cum_q=None"),
    "pa_ps_fwd_asm _pa_ps_fwd_asm": _served(
        "query key value page_ends page_list used_k scale max_q=1 k_scale=None v_scale=None out=None cum_q=None"
    ),
    "_pa_decode_bf16_asm": _served("query key value page_list used_k scale q_scale k_scale v_scale out cum_q page_ends"),
    "pa_decode_gluon": _served(
        "out query key value used_k pages scale max_q parts part_size=256 dtype=15 q_scale=None k_scale=None v_scale=None sums=None"
        " maxima=None part=None alibi=None sinks=None sliding_window=0"
    ),
    "_flash_attn_with_kvcache": _served(
        "query key value new_key=None new_value=None query_rest=None used_k=None scale=None causal=True left=-1 right=-1 chunk=0"
        " softcap=0.0 splits=0 pack=None margin=0 q_scale=None k_scale=None v_scale=None max_q=None with_log_sum=False pages=None"
        " batch_index=None pad_k=None cos=None sin=None rotary_lengths=None cum_q=None", causal=False,
    ),
    "_fmha_fwd_bf16_opus_fwd": _served(
        "query key value out causal scale cum_q=None cum_k=None pad_q=None pad_k=None max_q=0 max_k=0", causal=False
    ),
    "mla_decode_stage1_asm_fwd": _served(
        f"{_LATENT} split_ends work work_ends work_info max_q page_size heads scale parts part_sums out",
        f"{_LATENT} split_ends work work_ends work_info max_q scale parts part_sums out",
        f"{_LATENT} max_q scale out",
    ),
    "mla_decode_fwd_opus_stage1": _served(
        f"{_LATENT} work_ends work max_q page_size heads scale parts part_sums out log_sum=None q_scale=None k_scale=None causal=True",
        causal=False,
    ),
    "hk_mla_decode_fwd hk_mla_v32_decode_fwd_mi3xx": _served(f"{_LATENT} work_ends work max_q scale parts part_sums out"),
    "mla_prefill_ps_asm_fwd": _served(
        "query key value cum_q page_ends page_list work_ends work max_q scale causal parts part_sums out q_scale=None k_scale=None"
        " v_scale=None", causal=False,
    ),
    "mla_prefill_asm_fwd": _served(f"{_LATENT} max_q scale out"),
}  # fmt: skip
_GRADIENT: Final = "grad query key value out log_sum"
_FIXED_END: Final = "dropout scale causal left right deterministic"
_PACKED_END: Final = "cum_q cum_k max_q max_k dropout scale zero causal left right deterministic"
_BACKWARD: Final = {
    "mha_bwd": Layout((f"{_GRADIENT} {_FIXED_END} dq=None dk=None dv=None dbias=None bias=None",)),
    "fmha_v3_bwd": Layout((f"{_GRADIENT} {_FIXED_END}",)),
    "mha_varlen_bwd fmha_v3_varlen_bwd": Layout((f"{_GRADIENT} {_PACKED_END}",)),
    "_flash_attn_backward": Layout((f"{_GRADIENT} dq dk dv dbias dropout scale causal left right bias=None alibi=None",)),
}
register_layouts(*(
    {f"aiter::{name}": layout for names, layout in layouts.items() for name in names.split()} for layouts in (_FORWARD, _BACKWARD)
))  # fmt: skip
# The name of the function's module and its own: aiter.ops.attention.paged_attention_ragged.
register_layouts({"sglang_profiler::attention_paged_attention_ragged": _served(
    "out workspace query key value page_ends page_list last_pages alibi k_scale v_scale"
)}, {})  # fmt: skip

# Queries and keys in int8 are [b, h, s, d] or [b, s, h, d], the scales of queries [b, h, blocks].
_SAGE_PAIRS: Final = "batch * heads * query[2 if query[1] == heads else 1] * key[2 if query[1] == heads else 1]"
# Queries [tokens, heads, depth] to listed rows of two tensors [rows, depth], which are keys and values alike.
_LISTED: Final = "read query[tokens heads depth], view cache, read ids, read ends, view new, read new_ids, read new_ends, read sinks"
_SPARSE: Final = Row(
    f"{_LISTED}, scale, write out?",
    matrix="4 * heads * (ids.n + new_ids.n) * depth",
    other="heads * (ids.n + new_ids.n) * (1 + SOFTMAX)",
    reads="query.size + ids.size + ends.size + new_ids.size + new_ends.size + sinks.size"
    " + cache.size * min(ids.n, cache[0]) // max(cache[0], 1) + new.size * min(new_ids.n, new[0]) // max(new[0], 1)",
    writes="0 if out else query.n * query.item",
    assumption="every query has as many keys as its list can hold",
)
_ATTENTION: Final[dict[str, Row]] = {
    # Sage attention, a kernel in Triton that inductor calls, with values in 8-bit floating point. Whether it is causal is a constant of
    # the kernel, which a call does not record.
    "sage_fwd": Row(
        "read query, read key, read value, read bias?, read q_scale[batch heads blocks], read k_scale?, read v_scale?,"
        " q_scale_0, q_scale_1, q_scale_2, k_scale_0, k_scale_1, k_scale_2, v_scale_0, v_scale_1, write log_sum?, write out",
        matrix=f"2 * {_SAGE_PAIRS} * (query[-1] + value[-1])",
        other=f"{_SAGE_PAIRS} * (1 + SOFTMAX)",
        assumption="no causal mask, which is not recorded",
    ),
    "aiter::pa_sparse_prefill_opus": _SPARSE,
    "aiter::pa_sparse_prefill_opus_fwd": replace(_SPARSE, schema=f"{_LISTED}, write out, scale"),
    # Partial results [parts, heads, depth] and their rows' sums: an exponential and a weight a row, a product and a sum a number.
    "aiter::mla_reduce_v1": Row(
        "read part, read part_sums, read ends, read final_map?, read partial_map, max_q, splits, write out, write log_sum?",
        other="2 * part.n + part_sums.n * (TRANSCENDENTAL + 3) + out.n",
        precision="=fp32",
        assumption="all partial results are used",
    ),
}
register(_ATTENTION, "attention")
# Queries, scaled, and keys to int8 in blocks, whose scales it writes; values to 8-bit floating point with scales that it reads.
_SAGE_QUANTIZE: Final = Row(
    "read query, write query_out, write query_scale, read key, write key_out, write key_scale, read value, write value_out,"
    " read value_scale",
    other="query.n + (query.n + key.n) * DYNAMIC_QUANTIZE + value.n * QUANTIZE",
    precision="=fp32",
)
register({"sage_quant_kernel": _SAGE_QUANTIZE}, "element-wise")


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
