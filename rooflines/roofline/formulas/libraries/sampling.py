"""Choosing the next tokens, and the k largest scores of long rows.

Probabilities are read once, as if a row fitted into a cache: algorithms that search for a threshold read them several times.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.tables import table

# A comparison and a sum for each score; e / t - the largest, its exponential over a random number, and is it the largest.
_RACE: Final = "1 + SOFTMAX + 2"
_EXPONENTIAL: Final = "TRANSCENDENTAL + 1"  # -log(u)


table(f"""
[other flashinfer:: sgl_kernel::]
top_k_renorm_probs top_p_renorm_probs: read input, write out, read limits?; cost = 2 + 1
top_k_mask_logits: read input, write out, read limits?; cost = 2
# One token a row, perhaps of chosen rows and with limits for each. Before March 2025 random numbers were an argument.
top_p_sampling_from_probs top_k_top_p_sampling_from_probs: read input, write out, read rows?, read limits?, limit=None,
    read more_limits?; cost = 2; fits = not floating(out)
min_p_sampling_from_probs like top_p_sampling_from_probs: ; cost = 2 + 1
[other]
flashinfer::top_k_sampling_from_probs flashinfer::sampling_from_probs like flashinfer::top_p_sampling_from_probs:
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
aiter::top_k_renorm_probs: read input, read limits? -> input; cost = 2 + 1
aiter::top_p_sampling_from_probs: read input[*rows k], read indices?, read limits?; cost = 2; writes = 4 * rows
aiter::top_k_top_p_sampling_from_probs: read input[*rows k], read indices?, read limits?, limit, read more_limits?; cost = 2;
    writes = 4 * rows
# A bit says whether a token is allowed; the scores of others are overwritten.
sgl_kernel::apply_token_bitmask_inplace_cuda: write logits, read mask, read rows?; per = mask; assumption = no token is allowed
_C::apply_repetition_penalties_: update input, read prompt_mask, read output_mask, read penalties; cost = 3
# The k largest: one comparison for each score. How many a row has is in a tensor.
_C::top_k_per_row_prefill trtllm::indexer_topk_prefill: read input, read starts, read ends, write indices; cost = 1;
    assumption = every row of scores is full
_C::top_k_per_row_decode aiter::top_k_per_row_decode aiter::_top_k_per_row_decode aiter::top_k_per_row_decode_fast like
    _C::top_k_per_row_prefill: read input, next, read lengths, write indices
_C::persistent_topk _C::cooperative_topk trtllm::indexer_topk_decode like _C::top_k_per_row_prefill: read input, read lengths,
    write indices
_C::large_context_topk sgl_kernel::fast_topk like _C::top_k_per_row_prefill: read input, write indices, read lengths, read starts?
aiter::top_k_per_row_prefill aiter::_top_k_per_row_prefill aiter::top_k_per_row_prefill_fast like _C::top_k_per_row_prefill: read
    input, read starts, read ends, write indices, write values?
aiter::topk_plain aiter::_topk_plain like _C::top_k_per_row_prefill: read input, write indices, write values, k, largest=True,
    read starts?, read ends?
sgl_kernel::fast_topk_transform_fused like _C::top_k_per_row_prefill: read input, read lengths, write pages, table, read ends,
    read starts?
sgl_kernel::fast_topk_transform_ragged_fused like _C::top_k_per_row_prefill: read input, read lengths, write indices, read offsets,
    read starts?
""")
