"""Choosing the next tokens, and the k largest scores of long rows.

Probabilities are read once, as if a row fitted into a cache: algorithms that search for a threshold read them several times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.roofline.formulas.costs import SOFTMAX, TRANSCENDENTAL
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.tables import table

# --- tokens ------------------------------------------------------------------------------------------------------------------------

_COMPARE_AND_SUM: Final = 2
# e / t - the largest, its exponential over a random number, and is it the largest
_EXPONENTIAL: Final = TRANSCENDENTAL + 1  # -log(u)
_RACE: Final = 1 + SOFTMAX + 2
_LIMITED: Final = "read input, write out, read limits?"
RENORMALISED: Final[dict[str, Row]] = {
    "top_k_renorm_probs top_p_renorm_probs": Row(_LIMITED, _COMPARE_AND_SUM + 1),
    "top_k_mask_logits": Row(_LIMITED, _COMPARE_AND_SUM),
}
register(RENORMALISED, "other", namespace="flashinfer::")
register(RENORMALISED, "other", namespace="sgl_kernel::")

# One token a row, perhaps of chosen rows and with limits for each. Before March 2025 random numbers were an argument.
_CHOSEN: Final = Row(
    "read input, write out, read rows?, read limits?, limit=None, read more_limits?", _COMPARE_AND_SUM, fits="not floating(out)"
)
_FROM_PROBABILITIES: Final[dict[str, Row]] = {
    "top_p_sampling_from_probs top_k_top_p_sampling_from_probs": _CHOSEN,
    "min_p_sampling_from_probs": replace(_CHOSEN, cost=_COMPARE_AND_SUM + 1),
}
register(_FROM_PROBABILITIES, "other", namespace="sgl_kernel::")


# --- the k largest -----------------------------------------------------------------------------------------------------------------

_ROWS: Final = "read input, read starts, read ends, write indices"
_LENGTHS: Final = "read input, next, read lengths, write indices"
_PLAIN: Final = "read input, write indices, write values, k, largest=True, read starts?, read ends?"
_PREFILL: Final = "aiter::top_k_per_row_prefill aiter::_top_k_per_row_prefill aiter::top_k_per_row_prefill_fast"
_DECODE: Final = "aiter::top_k_per_row_decode aiter::_top_k_per_row_decode aiter::top_k_per_row_decode_fast"
LARGEST: Final[dict[str, str]] = {
    "_C::top_k_per_row_prefill trtllm::indexer_topk_prefill": _ROWS,
    f"_C::top_k_per_row_decode {_DECODE}": _LENGTHS,
    "_C::persistent_topk _C::cooperative_topk trtllm::indexer_topk_decode": "read input, read lengths, write indices",
    "_C::large_context_topk sgl_kernel::fast_topk": "read input, write indices, read lengths, read starts?",
    _PREFILL: f"{_ROWS}, write values?",
    "aiter::topk_plain aiter::_topk_plain": _PLAIN,
    "sgl_kernel::fast_topk_transform_fused": "read input, read lengths, write pages, table, read ends, read starts?",
    "sgl_kernel::fast_topk_transform_ragged_fused": "read input, read lengths, write indices, read offsets, read starts?",
}
# One comparison for each score. How many a row has is in a tensor.
register({names: Row(schema, 1, assumption="every row of scores is full") for names, schema in LARGEST.items()}, "other")


table(f"""
[other flashinfer::]
# One token a row, perhaps of chosen rows and with limits for each. Before March 2025 random numbers were an argument.
top_k_sampling_from_probs sampling_from_probs: read input, write out, read rows?, read limits?, limit=None, read more_limits?;
    cost = {_COMPARE_AND_SUM}; fits = not floating(out)
[other]
# Gumbel's trick: a random number for each
flashinfer::sampling_from_logits: read input, write out, read rows?; cost = 2 * TRANSCENDENTAL + 3
flashinfer::softmax: workspace, read input, write out, read temperature?; cost = SOFTMAX + 1
aiter::greedy_sample: write out, read input; cost = 1
aiter::mixed_sample_outer_exponential aiter::random_sample_outer_exponential: write out, read input, read exponentials,
    read temperature; cost = {_RACE}
aiter::mixed_sample aiter::_mixed_sample aiter::random_sample aiter::_random_sample: write out, read input, read temperature;
    cost = {_RACE} + {_EXPONENTIAL}
aiter::exponential aiter::_exponential: write out; cost = {_EXPONENTIAL}; per = out
# the probabilities of the k largest, or one token a row, are returned
aiter::top_k_renorm_probs: read input, read limits? -> input; cost = {_COMPARE_AND_SUM} + 1
aiter::top_p_sampling_from_probs: read input[*rows k], read indices?, read limits?; cost = {_COMPARE_AND_SUM}; writes = 4 * rows
aiter::top_k_top_p_sampling_from_probs: read input[*rows k], read indices?, read limits?, limit, read more_limits?;
    cost = {_COMPARE_AND_SUM}; writes = 4 * rows
# A bit says whether a token is allowed; the scores of others are overwritten.
sgl_kernel::apply_token_bitmask_inplace_cuda: write logits, read mask, read rows?; per = mask; assumption = no token is allowed
_C::apply_repetition_penalties_: update input, read prompt_mask, read output_mask, read penalties; cost = 3
""")
register({**_FROM_PROBABILITIES}, "other", namespace="flashinfer::")
