"""Attention of vLLM, SGLang, AITER and flashinfer, and FlashMLA as servers call it: multi-head latent attention, whose values are a
part of its keys. Their copies of flash-attn are in ``training_attention.py``.

``vllm::unified_attention`` finds KV cache, lengths, window and mask by the name of its layer. An operator of attention below it is
counted in its place. ``_rocm_C::paged_attention`` returns at once for sequences with more than one query, where it is told their starts
(csrc/rocm/attention.cu). Where the cache is written by ``vllm::unified_kv_cache_update``, its result is the last argument. AITER's
functions of Python that only call a kernel, such as ``paged_attention_ragged``, reach a trace where SGLang's profiler wraps them, with
their tensors alone. flashinfer 0.2.2 to 0.3.1 (March to September 2025) registered its compiled functions as operators; others leave
none in a trace, except ``flashinfer::fp4_quantize``. ``canonical`` gives them one name each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted
from rooflines.roofline.formulas.packed_attention import AttentionLayout, forward, merge, unified
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints
from rooflines.roofline.formulas.rows import ROWS, row_work
from rooflines.roofline.formulas.tables import table

_CACHE: Final = "query key value heads scale pages used_k page_size max_k alibi"


def paged(signature: Signature, hints: Hints, text: str) -> Work:
    """Of each sequence all tokens in the cache, or those that an index chose."""
    chosen = Arguments(signature, f"{text} is_fp8 indices=None").optional("indices") is not None
    if signature.name.endswith("fp8") or not chosen:
        return forward(signature, hints, AttentionLayout((text,)))
    schema = f"read query[*rows heads d], read key[*held one width], {', '.join(text.split()[2:])}, is_fp8, read indices[*lists top]"
    return row_work(signature, replace(ROWS["_flashmla_C::sparse_prefill_fwd"][0], schema=schema))


def masked(signature: Signature) -> Signature:
    """The call with a flag for the number of the mask, which is 1 for a causal one."""
    mask = signature.arg(8)
    return replace(signature, args=(*signature.args[:8], mask == 1 if isinstance(mask, int) else mask, *signature.args[9:]))


_BASE: Final = "query key value dropout scale causal left right"
_SCALES: Final = "q_scale=None k_scale=None v_scale=None"
_END: Final = "with_log_sum debug"
_RESULT: Final = "out=None bias=None alibi=None"
_PACKED: Final = "query key value cum_q cum_k max_q max_k"
_PACKED_BASE: Final = f"{_PACKED} min_q dropout scale softcap zero causal left right"
_PAGED_RESULT: Final = "out=None pages=None bias=None alibi=None"
_LATENT: Final = "query key cum_q page_ends page_list last_pages"
_PREFILL: Final = "query key value cum_q page_ends page_list max_q max_k dropout scale softcap zero causal left right"
# Queries and keys in int8 are [b, h, s, d] or [b, s, h, d], the scales of queries [b, h, blocks].
_SAGE_PAIRS: Final = "batch * heads * query[2 if query[1] == heads else 1] * key[2 if query[1] == heads else 1]"
# Queries [tokens, heads, depth] to listed rows of two tensors [rows, depth], which are keys and values alike.
_LISTED: Final = "read query[tokens heads depth], view cache, read ids, read ends, view new, read new_ids, read new_ends, read sinks"


_SPACE: Final = "workspace integers plan query"
_PAGES: Final = "page_ends page_list last_pages out log_sum"


def run(signature: Signature, hints: Hints, text: str) -> Work:
    """Queries are packed [tokens, heads, head], of a single sequence without a dimension for it; a decode has one a sequence.

    A mask is none (0), causal (1) or given by its values (2), which save nothing. The layout is [pages, page, heads, head] (0) or
    [pages, heads, page, head] (1), of packed keys without the first.
    """
    name = signature.name.partition("::")[2]
    decode, single = "decode" in name, name.startswith("single")
    fields = text.split()
    args = list(signature.args)
    mask = 1 if decode else _code(args, fields, "causal")
    if _code(args, fields, "heads_first") == 1:
        for field in ("key", "value"):
            args[fields.index(field)] = _tokens_first(args[fields.index(field)])
    if not decode:
        args[fields.index("causal")] = mask == 1
    if single:  # as a batch of one
        for field in ("query", "key", "value"):
            one = args[fields.index(field)]
            if not isinstance(one, TensorArg):
                raise NotCounted(f"shape of '{field}' not recorded")
            args[fields.index(field)] = TensorArg((1, *((1,) if decode and field == "query" else ()), *one.shape), one.dtype)
    log_sum = isinstance(args[fields.index("log_sum")], TensorArg)
    return forward(replace(signature, args=tuple(args)), hints, AttentionLayout((text,), log_sum=log_sum, causal=decode))


def _code(args: list[object], fields: list[str], name: str) -> int:
    value = args[fields.index(name)] if fields.index(name) < len(args) else None
    if not isinstance(value, int):
        raise NotCounted(f"argument '{name}' not recorded")
    return value


def _tokens_first(tensor: object) -> TensorArg:
    if not isinstance(tensor, TensorArg) or len(tensor.shape) < 3:
        raise NotCounted("shape of the keys not recorded")
    *pages, heads, tokens, head = tensor.shape
    return TensorArg((*pages, tokens, heads, head), tensor.dtype)


_HEADS: Final = "read q[*heads head], read k, write q_rope, write k_rope"


_TABLE: Final = f"""
[attention]
# Each query sees ``indices`` [..., top k] of the keys [..., 1, d]: of [s_k, 1, d],
_flashmla_C::sparse_prefill_fwd sgl_kernel::sparse_prefill_fwd: read query[*rows heads d], read key[*held one width],
    read indices[*lists top], scale, value_depth; pairs = rows * heads * top; more = 0; matrix = 2 * pairs * (d + value_depth);
    other = pairs * (1 + SOFTMAX); reads = query.size + indices.size + key.size * min(indices.n, held) // held + more;
    writes = rows * heads * (value_depth * query.item + 4); assumption = every query has as many keys as its index can hold
# or of [blocks, block, 1, d], and of a second cache by an index of its own.
_flashmla_C::sparse_decode_fwd sgl_kernel::sparse_decode_fwd like _flashmla_C::sparse_prefill_fwd: read query[*rows heads d],
    read key[*held one width], read indices[*lists top], lengths, sinks, schedule, splits,
    read more_key[*more_held more_one more_width]?, read more_indices[*more_lists more_top]?, more_lengths, value_depth, scale;
    pairs = rows * heads * (top + more_top);
    more = more_indices.size + more_key.size * min(more_indices.n, more_held) // max(more_held, 1)
# Sage attention, a kernel in Triton that inductor calls, with values in 8-bit floating point. Whether it is causal is a constant of
# the kernel, which a call does not record.
sage_fwd: read query, read key, read value, read bias?, read q_scale[batch heads blocks], read k_scale?, read v_scale?, q_scale_0,
    q_scale_1, q_scale_2, k_scale_0, k_scale_1, k_scale_2, v_scale_0, v_scale_1, write log_sum?, write out;
    matrix = 2 * {_SAGE_PAIRS} * (query[-1] + value[-1]); other = {_SAGE_PAIRS} * (1 + SOFTMAX); assumption = no causal mask,
    which is not recorded
aiter::pa_sparse_prefill_opus: {_LISTED}, scale, write out?; matrix = 4 * heads * (ids.n + new_ids.n) * depth;
    other = heads * (ids.n + new_ids.n) * (1 + SOFTMAX); reads = query.size + ids.size + ends.size + new_ids.size + new_ends.size +
    sinks.size + cache.size * min(ids.n, cache[0]) // max(cache[0], 1) + new.size * min(new_ids.n, new[0]) // max(new[0], 1);
    writes = 0 if out else query.n * query.item; assumption = every query has as many keys as its list can hold
aiter::pa_sparse_prefill_opus_fwd like aiter::pa_sparse_prefill_opus: {_LISTED}, write out, scale
# Partial results [parts, heads, depth] and their rows' sums: an exponential and a weight a row, a product and a sum a number.
aiter::mla_reduce_v1: read part, read part_sums, read ends, read final_map?, read partial_map, max_q, splits, write out,
    write log_sum?; other = 2 * part.n + part_sums.n * (TRANSCENDENTAL + 3) + out.n; precision = fp32;
    assumption = all partial results are used
[element-wise]
# Queries, scaled, and keys to int8 in blocks, whose scales it writes; values to 8-bit floating point with scales that it reads.
sage_quant_kernel: read query, write query_out, write query_scale, read key, write key_out, write key_scale, read value,
    write value_out, read value_scale; other = query.n + (query.n + key.n) * DYNAMIC_QUANTIZE + value.n * QUANTIZE; precision = fp32
[attention forward]
_C::paged_attention_v1: out {_CACHE}; log_sum = False; causal = True
_C::paged_attention_v2: out sums maxima part {_CACHE}; log_sum = False; causal = True
_rocm_C::paged_attention: out sums maxima part query key value heads scale pages used_k cum_q page_size max_k alibi cache_dtype
    k_scale v_scale
    | out sums maxima part {_CACHE}; log_sum = False; causal = True; decodes = True
sgl_kernel::cutlass_mla_decode: out query query_rest key used_k pages; log_sum = False; causal = True
_C::sm100_cutlass_mla_decode: out log_sum query query_rest key used_k pages; causal = True
vllm::rocm_aiter_mla_decode_fwd_lse: query key out cum_q max_q page_ends=None page_list=None; causal = True
vllm::rocm_aiter_mla_decode_fwd: query key out cum_q max_q page_ends=None page_list=None; log_sum = False; causal = True
sglang_profiler::attention_paged_attention_ragged: out workspace query key value page_ends page_list last_pages alibi k_scale
    v_scale; log_sum = False; causal = True
[attention dispatches]
# Projections from and to the latent space, and attention in it, all of them operators of their own.
vllm::unified_mla_attention vllm::unified_mla_attention_with_output:
# Attention of encoders of images, by one of several libraries.
vllm::flash_attn_maxseqlen_wrapper vllm::flashinfer_wrapper vllm::torch_sdpa_wrapper vllm::triton_attn_wrapper
    vllm::aiter_fp8_attn_wrapper: the longest sequence is the value of a tensor
[attention by=paged]
_flashmla_C::fwd_kvcache_mla _flashmla_C::fwd_kvcache_mla_fp8 _flashmla_C::dense_decode_fwd sgl_kernel::fwd_kvcache_mla
    sgl_kernel::fwd_kvcache_mla_fp8 sgl_kernel::dense_decode_fwd _flashmla_extension_C::fwd_kvcache_mla_fp8: query key value_depth
    used_k pages scale causal schedule splits
[attention by=merge]
_C::merge_attn_states: out out_log_sum prefix prefix_log_sum suffix suffix_log_sum
sgl_kernel::merge_state sgl_kernel::merge_state_v2 flashinfer::merge_state: prefix prefix_log_sum suffix suffix_log_sum out
    out_log_sum
flashinfer::merge_state_in_place: out out_log_sum suffix suffix_log_sum
[attention by=unified]
vllm::unified_attention_with_output: query key value out layer scale=None block_scale=None updated=None
vllm::unified_attention: query key value layer updated=None
sglang::unified_attention_with_output: query key value out saves_cache layer
[attention flashinfer:: by=run]
# ``causal`` is the number of the mask, ``heads_first`` that of the layout of keys and values.
batch_prefill_with_paged_kv_cache_run: {_SPACE} key value cum_q {_PAGES} causal heads_first left
batch_prefill_with_ragged_kv_cache_run: {_SPACE} key value cum_q cum_k out log_sum causal heads_first left
batch_decode_with_paged_kv_cache_run: {_SPACE} key value {_PAGES} heads_first left
single_prefill_with_kv_cache: query key value workspace out log_sum causal heads_first left
single_decode_with_kv_cache: query key value workspace out log_sum heads_first left
[attention forward masked]
_flashmla_C::dense_prefill_fwd sgl_kernel::dense_prefill_fwd: workspace query key value cum_q cum_k out log_sum causal scale max_q
    max_k
[attention forward aiter::]
mha_fwd: {_BASE} sink_size {_END} cum_q=None cum_k=None {_RESULT} {_SCALES} sinks=None
    | {_BASE} {_END} cum_q=None cum_k=None {_RESULT} {_SCALES}
_flash_attn_forward: query key value dropout scale causal left right bias alibi with_log_sum
fmha_v3_fwd: {_BASE} {_END} conversion=0 {_RESULT} {_SCALES}
mha_varlen_fwd: {_PACKED_BASE} sink_size {_END} {_PAGED_RESULT} {_SCALES}
    | {_PACKED_BASE} {_END} {_PAGED_RESULT} {_SCALES}
    | {_PACKED} dropout scale zero causal left right {_END} {_PAGED_RESULT}
fmha_v3_varlen_fwd: {_PACKED_BASE} {_END} conversion {_PAGED_RESULT} {_SCALES}
mha_batch_prefill: {_PREFILL} sink_size {_END} {_RESULT} {_SCALES} page_scale=None last_pages=None pages=None used_k=None sinks=None
    | {_PREFILL} {_END} out=None alibi=None
mha_fwd_native_splitkv: query key value out scale causal with_log_sum splits
_fmha_fwd_with_sink_asm: query key value out log_sum sinks scale causal with_log_sum
_fmha_fwd_with_sink_varlen_asm: query key value out log_sum sinks cum_q cum_k max_q scale causal with_log_sum
_fmha_fwd_mxfp8_asm: query key value q_scale k_scale v_scale out log_sum scale causal with_log_sum
paged_attention_v1: out workspace query key value scale pages cum_q used_k max_k alibi cache_dtype layout softcap k_scale v_scale
    out_scale=None partition=256 mtp=1 sliding_window=0; log_sum = False; causal = True
paged_attention_rocm: out sums maxima part query key value heads scale pages used_k page_size max_k alibi cache_dtype k_scale
    v_scale; log_sum = False; causal = True
paged_attention_ragged: out workspace query key value scale page_ends page_list last_pages page_size parts alibi cache_dtype layout
    softcap k_scale v_scale; log_sum = False; causal = True
pa_fwd_asm _pa_fwd_asm: query key value pages used_k stride max_q=1 k_scale=None v_scale=None out=None cum_q=None; log_sum = False;
    causal = True
pa_ps_fwd_asm _pa_ps_fwd_asm: query key value page_ends page_list used_k scale max_q=1 k_scale=None v_scale=None out=None cum_q=None;
    log_sum = False; causal = True
_pa_decode_bf16_asm: query key value page_list used_k scale q_scale k_scale v_scale out cum_q page_ends; log_sum = False;
    causal = True
pa_decode_gluon: out query key value used_k pages scale max_q parts part_size=256 dtype=15 q_scale=None k_scale=None v_scale=None
    sums=None maxima=None part=None alibi=None sinks=None sliding_window=0; log_sum = False; causal = True
_flash_attn_with_kvcache: query key value new_key=None new_value=None query_rest=None used_k=None scale=None causal=True left=-1
    right=-1 chunk=0 softcap=0.0 splits=0 pack=None margin=0 q_scale=None k_scale=None v_scale=None max_q=None with_log_sum=False
    pages=None batch_index=None pad_k=None cos=None sin=None rotary_lengths=None cum_q=None; log_sum = False
_fmha_fwd_bf16_opus_fwd: query key value out causal scale cum_q=None cum_k=None pad_q=None pad_k=None max_q=0 max_k=0;
    log_sum = False
mla_decode_stage1_asm_fwd: {_LATENT} split_ends work work_ends work_info max_q page_size heads scale parts part_sums out
    | {_LATENT} split_ends work work_ends work_info max_q scale parts part_sums out
    | {_LATENT} max_q scale out; log_sum = False; causal = True
mla_decode_fwd_opus_stage1: {_LATENT} work_ends work max_q page_size heads scale parts part_sums out log_sum=None q_scale=None
    k_scale=None causal=True; log_sum = False
hk_mla_decode_fwd hk_mla_v32_decode_fwd_mi3xx: {_LATENT} work_ends work max_q scale parts part_sums out; log_sum = False;
    causal = True
mla_prefill_ps_asm_fwd: query key value cum_q page_ends page_list work_ends work max_q scale causal parts part_sums out q_scale=None
    k_scale=None v_scale=None; log_sum = False
mla_prefill_asm_fwd: {_LATENT} max_q scale out; log_sum = False; causal = True
[attention backward aiter::]
mha_bwd: grad query key value out log_sum dropout scale causal left right deterministic dq=None dk=None dv=None dbias=None bias=None
fmha_v3_bwd: grad query key value out log_sum dropout scale causal left right deterministic
mha_varlen_bwd fmha_v3_varlen_bwd: grad query key value out log_sum cum_q cum_k max_q max_k dropout scale zero causal left right
    deterministic
_flash_attn_backward: grad query key value out log_sum dq dk dv dbias dropout scale causal left right bias=None alibi=None
[normalization flashinfer::]
rmsnorm gemma_rmsnorm: write out, read input, read weight, eps; cost = RMS_NORM
fused_add_rmsnorm gemma_fused_add_rmsnorm: update input, update residual, read weight, eps; cost = RMS_NORM + 1
[copy]
flashinfer::append_paged_kv_cache flashinfer::append_paged_mla_kv_cache: view key, view value, read sequences, read positions,
    view key_cache, view value_cache, view page_list, read page_ends; other = QUANTIZE * (first(key, sequences.n) * (key_cache.item <
    key.item) + first(value, sequences.n) * (value_cache.item < value.item)); reads = first(key, sequences.n) * key.item +
    first(value, sequences.n) * value.item + sequences.size + positions.size + page_ends.size + min(page_list.n, sequences.n) *
    page_list.item; writes = first(key, sequences.n) * key_cache.item + first(value, sequences.n) * value_cache.item; precision = key
[element-wise flashinfer::]
# Query and key [tokens, heads, head], read whole and written to other tensors, which may be the same memory.
apply_rope_pos_ids_cos_sin_cache: {_HEADS}, read table, read positions;
    other = (q.n + k.n) // head * min(table[-1], head) * ROTARY_EMBEDDING;
    reads = q.size + k.size + positions.size + selected(table, positions.n * table[-1])
# Cosines and sines are computed from a base.
apply_rope_pos_ids apply_llama31_rope_pos_ids: {_HEADS}, read positions, rotary;
    other = (q.n + k.n) // head * min(rotary, head) * ROTARY_EMBEDDING
[matmul scaled]
flashinfer::bmm_fp8: left, right, write out, read scale_a, read scale_b
"""
table(_TABLE, masked=masked, paged=paged, merge=merge, unified=unified, run=run)
