"""flashinfer 0.2.2 to 0.3.1 (March to September 2025), which registered its compiled functions as operators.

Before and after, its functions leave no operator in a trace, except ``flashinfer::fp4_quantize``. ``canonical`` gives the operators one
name each: those of the released library (``flashinfer_kernels::rmsnorm``), of modules compiled on first use (``norm::rmsnorm``), and of
attention, which is a module for each combination of types and sizes (``batch_prefill_with_kv_cache_dtype_q_bf16_...::paged_run``).

Order of arguments: flashinfer-ai/flashinfer v0.2.2, v0.2.5 and 86d3e13~1 (``csrc/flashinfer_*_ops.cu``, ``csrc/*_pybind.cu``).
``sampling.py`` has the choice of tokens.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.kv_cache import stored
from rooflines.roofline.formulas.libraries.vllm_kernels import GATED
from rooflines.roofline.formulas.packed_attention import Layout, forward, merge
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.rotary import rotary_work
from rooflines.roofline.formulas.scaled import register as register_products
from rooflines.roofline.formulas.table import Hints, formula, hinted_formula

NORMS: Final[dict[str, Pass]] = {
    **dict.fromkeys(("rmsnorm", "gemma_rmsnorm"), Pass("write out, read input, read weight, eps", costs.RMS_NORM)),
    **dict.fromkeys(
        ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm"), Pass("update input, update residual, read weight, eps", costs.RMS_NORM + 1)
    ),
}
register({f"flashinfer::{name}": one for name, one in NORMS.items()}, "normalisation")
register(
    {f"flashinfer::{name}": Pass("write out, read input", GATED[name], per="out")
     for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")}, "element-wise",
)  # fmt: skip
register_products({"flashinfer::bmm_fp8": "left, right, write out, read scale_a, read scale_b"})

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


@formula("flashinfer::append_paged_kv_cache", "flashinfer::append_paged_mla_kv_cache", category="copy")
def _append(signature: Signature) -> Work:
    """Keys and values, or the two parts of latent ones, of each token into its page."""
    args = Arguments(signature, "key value sequences positions key_cache value_cache page_list page_ends last_pages")
    key, sequences = args.tensor("key"), args.tensor("sequences")
    small = [args.tensor(name) for name in ("sequences", "positions", "page_ends")]
    pages = args.tensor("page_list")
    read = min(pages.numel, sequences.numel) * size_of(pages.dtype)
    work = stored(sequences.numel, (key, args.tensor("value")), (args.tensor("key_cache"), args.tensor("value_cache")), *small)
    return work + Work(bytes_read=read)


@formula("flashinfer::apply_rope_pos_ids_cos_sin_cache", category="element-wise")
def _rotary(signature: Signature) -> Work:
    """Query and key [tokens, heads, head], read whole and written to ``q_rope`` and ``k_rope``, which may be the same memory."""
    args = Arguments(signature, "q k q_rope k_rope table positions")
    q, k = args.tensor("q"), args.tensor("k")
    rotated = rotary_work(args.tensor("positions"), (q, k), args.tensor("table"), q.shape[-1])
    return _whole(rotated, q, k, args)


@formula("flashinfer::apply_rope_pos_ids", "flashinfer::apply_llama31_rope_pos_ids", category="element-wise")
def _rotary_from_base(signature: Signature) -> Work:
    """Cosines and sines are computed from a base."""
    args = Arguments(signature, "q k q_rope k_rope positions rotary")
    q, k, rotary = args.tensor("q"), args.tensor("k"), args.integer("rotary")
    heads = (q.numel + k.numel) // q.shape[-1]
    flops = heads * min(rotary, q.shape[-1]) * costs.ROTARY_EMBEDDING
    return _whole(Work(other_flops=flops, bytes_read=size(args.tensor("positions"))), q, k, args)


def _whole(rotated: Work, q: TensorArg, k: TensorArg, args: Arguments) -> Work:
    return Work(
        other_flops=rotated.flops,
        bytes_read=rotated.bytes_read - rotated.bytes_written + size(q, k),
        bytes_written=written(args.tensor("q_rope"), args.tensor("k_rope")),
        precision=precision_of(q.dtype),
    )
