"""flashinfer 0.2.2 to 0.3.1 (March to September 2025), which registered its compiled functions as operators.

Before and after, its functions leave no operator in a trace, except ``flashinfer::fp4_quantize``. ``canonical`` gives the operators one
name each. ``sampling.py`` has the choice of tokens.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted
from rooflines.roofline.formulas.packed_attention import Layout, forward, merge
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.tables import table

# --- attention ---------------------------------------------------------------------------------------------------------------------

_SPACE: Final = "workspace integers plan query"
_PAGES: Final = "page_ends page_list last_pages out log_sum"
# Operator -> its arguments; ``causal`` is the number of the mask, ``heads_first`` that of the layout of keys and values.
_RUNS: Final[dict[str, str]] = {
    "batch_prefill_with_paged_kv_cache_run": f"{_SPACE} key value cum_q {_PAGES} causal heads_first left",
    "batch_prefill_with_ragged_kv_cache_run": f"{_SPACE} key value cum_q cum_k out log_sum causal heads_first left",
    "batch_decode_with_paged_kv_cache_run": f"{_SPACE} key value {_PAGES} heads_first left",
    "single_prefill_with_kv_cache": "query key value workspace out log_sum causal heads_first left",
    "single_decode_with_kv_cache": "query key value workspace out log_sum heads_first left",
}


@hinted_formula(*(f"flashinfer::{name}" for name in _RUNS), category="attention")
def _attention(signature: Signature, hints: Hints) -> Work:
    """Queries are packed [tokens, heads, head], of a single sequence without a dimension for it; a decode has one a sequence.

    A mask is none (0), causal (1) or given by its values (2), which save nothing. The layout is [pages, page, heads, head] (0) or
    [pages, heads, page, head] (1), of packed keys without the first.
    """
    name = signature.name.partition("::")[2]
    decode, single = "decode" in name, name.startswith("single")
    schema = _RUNS[name]
    fields = schema.split()
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
    return forward(replace(signature, args=tuple(args)), hints, Layout((schema,), log_sum=log_sum, causal=decode))


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


_MERGED: Final = "prefix prefix_log_sum suffix suffix_log_sum out out_log_sum"
formula("flashinfer::merge_state", category="attention")(partial(merge, schema=_MERGED))


@formula("flashinfer::merge_state_in_place", category="attention")
def _merge_in_place(signature: Signature) -> Work:
    args = Arguments(signature, "out out_log_sum suffix suffix_log_sum")
    tensors = [args.tensor(name) for name in ("out", "out_log_sum", "suffix", "suffix_log_sum")]
    return merge(replace(signature, args=(*tensors, *tensors[:2])), _MERGED)


# --- the KV cache and positions ----------------------------------------------------------------------------------------------------


_HEADS: Final = "read q[*heads head], read k, write q_rope, write k_rope"


table(f"""
[normalisation flashinfer::]
rmsnorm gemma_rmsnorm: write out, read input, read weight, eps; cost = RMS_NORM
fused_add_rmsnorm gemma_fused_add_rmsnorm: update input, update residual, read weight, eps; cost = RMS_NORM + 1
[copy]
# Keys and values, or the two parts of latent ones, of each token into its page.
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
""")
