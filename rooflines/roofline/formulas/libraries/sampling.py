"""Choosing the next tokens, and the k largest scores of long rows.

Order of arguments: sgl-kernel 0.3.21 and 0.4.10; flashinfer 86d3e13~1 (``csrc/flashinfer_sampling_ops.cu``); vLLM 0.11.0, 0.19.0 and
0.33.0 (the schemas of ``_C``); ROCm/aiter 9a9f684, 6dc68e5 and e404860 (``aiter/ops/sample.py``, ``topk.py``, ``topk_plain.py``,
``sampling.py``); NVIDIA/TensorRT-LLM 00d6f28 (``_torch/custom_ops/cpp_custom_ops.py``).

Probabilities are read once, as if a row fitted into a cache: algorithms that search for a threshold read them several times.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, floating, size, size_of, written
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula, words

# --- tokens ------------------------------------------------------------------------------------------------------------------------

_COMPARE_AND_SUM: Final = 2
# e / t - the largest, its exponential over a random number, and is it the largest
_EXPONENTIAL: Final = costs.TRANSCENDENTAL + 1  # -log(u)
_RACE: Final = 1 + costs.SOFTMAX + 2
RENORMALISED: Final[dict[str, Pass]] = {
    "top_k_renorm_probs": Pass("read input, write out, read limits?", _COMPARE_AND_SUM + 1),
    "top_p_renorm_probs": Pass("read input, write out, read limits?", _COMPARE_AND_SUM + 1),
    "top_k_mask_logits": Pass("read input, write out, read limits?", _COMPARE_AND_SUM),
}
for _library in ("flashinfer", "sgl_kernel"):
    register({f"{_library}::{name}": one for name, one in RENORMALISED.items()}, "other")


@formula(*(f"{library}::{name}_sampling_from_probs" for library in ("flashinfer", "sgl_kernel")
           for name in ("top_p", "top_k_top_p", "min_p")),
         "flashinfer::top_k_sampling_from_probs", "flashinfer::sampling_from_probs", category="other")  # fmt: skip
def _chosen(signature: Signature) -> Work:
    """One token a row, perhaps of chosen rows and with limits for each. Before March 2025 random numbers were an argument."""
    args = Arguments(signature, "input out rows=None limits=None limit=None more_limits=None")
    inputs, out = args.tensor("input"), args.tensor("out")
    if floating(out.dtype):
        raise NotCounted("arguments of another version of this operator")
    return Work(
        other_flops=inputs.numel * (_COMPARE_AND_SUM + ("min_p" in signature.name)),
        bytes_read=size(inputs, *(args.optional(name) for name in ("rows", "limits", "more_limits"))),
        bytes_written=written(out),
        precision=precision_of(inputs.dtype),
    )


LOGITS: Final[dict[str, Pass]] = {
    # Gumbel's trick: a random number for each
    "flashinfer::sampling_from_logits": Pass("read input, write out, read rows?", 2 * costs.TRANSCENDENTAL + 3),
    "flashinfer::softmax": Pass("workspace, read input, write out, read temperature?", costs.SOFTMAX + 1),
    "aiter::greedy_sample": Pass("write out, read input", 1),
    **dict.fromkeys(
        ("aiter::mixed_sample_outer_exponential", "aiter::random_sample_outer_exponential"),
        Pass("write out, read input, read exponentials, read temperature", _RACE),
    ),
    **dict.fromkeys(
        words("aiter::mixed_sample aiter::_mixed_sample aiter::random_sample aiter::_random_sample"),
        Pass("write out, read input, read temperature", _RACE + _EXPONENTIAL),
    ),
    **dict.fromkeys(("aiter::exponential", "aiter::_exponential"), Pass("write out", _EXPONENTIAL, per="out")),
    # A bit says whether a token is allowed; the scores of others are overwritten.
    "sgl_kernel::apply_token_bitmask_inplace_cuda": Pass(
        "write logits, read mask, read rows?", 0, per="mask", assumption="no token is allowed"
    ),
    "_C::apply_repetition_penalties_": Pass("update input, read prompt_mask, read output_mask, read penalties", 3),
}
register(LOGITS, "other")


@formula("aiter::top_k_renorm_probs", "aiter::top_p_sampling_from_probs", "aiter::top_k_top_p_sampling_from_probs", category="other")
def _returned(signature: Signature) -> Work:
    """Returns the probabilities of the k largest, or one token a row."""
    renormalised = signature.name.endswith("_renorm_probs")
    inputs = Arguments(signature, "input").tensor("input")
    rows = inputs.numel // max(inputs.shape[-1], 1)
    return Work(
        other_flops=inputs.numel * (_COMPARE_AND_SUM + renormalised),
        bytes_read=size(*signature.tensors),
        bytes_written=written(inputs) if renormalised else rows * size_of("int32"),
        precision=precision_of(inputs.dtype),
    )


# --- the k largest -----------------------------------------------------------------------------------------------------------------

_ROWS: Final = "read input, read starts, read ends, write indices"
_LENGTHS: Final = "read input, next, read lengths, write indices"
LARGEST: Final[dict[str, str]] = {
    "_C::top_k_per_row_prefill": _ROWS,
    "_C::top_k_per_row_decode": _LENGTHS,
    "_C::persistent_topk": "read input, read lengths, write indices",
    "_C::cooperative_topk": "read input, read lengths, write indices",
    "_C::large_context_topk": "read input, write indices, read lengths, read starts?",
    **{f"aiter::{name}": f"{_ROWS}, write values?"
       for name in words("top_k_per_row_prefill _top_k_per_row_prefill top_k_per_row_prefill_fast")},
    **{f"aiter::{name}": _LENGTHS for name in words("top_k_per_row_decode _top_k_per_row_decode top_k_per_row_decode_fast")},
    "aiter::topk_plain": "read input, write indices, write values, k, largest=True, read starts?, read ends?",
    "aiter::_topk_plain": "read input, write indices, write values, k, largest=True, read starts?, read ends?",
    "sgl_kernel::fast_topk": "read input, write indices, read lengths, read starts?",
    "sgl_kernel::fast_topk_transform_fused": "read input, read lengths, write pages, table, read ends, read starts?",
    "sgl_kernel::fast_topk_transform_ragged_fused": "read input, read lengths, write indices, read offsets, read starts?",
    "trtllm::indexer_topk_prefill": _ROWS,
    "trtllm::indexer_topk_decode": "read input, read lengths, write indices",
}  # fmt: skip


# One comparison for each score. How many a row has is in a tensor.
register({name: Pass(schema, 1, assumption="every row of scores is full") for name, schema in LARGEST.items()}, "other")
