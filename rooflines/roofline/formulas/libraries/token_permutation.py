"""Tokens put in the order of their experts and back: operators and autograd functions of TransformerEngine and Primus-Turbo, and the
routing of OpenAI's ``triton_kernels``, which vLLM and SGLang use for gpt-oss.

The products of ``triton_kernels`` (``_matmul_ogs``) have no event of their own. An index [tokens, experts of a token] makes a map of as
many int32; a mask [tokens, experts] one of [tokens, 2 * experts + 1].
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, floating, selected, size, size_of, written
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, register

_FUNCTIONS: Final = {"permute": "TokenPermuteMaskMap", "unpermute": "TokenUnpermuteMaskMap"}


def _named(kind: str, suffix: str = "") -> tuple[str, ...]:
    return tuple(f"{name}{suffix}" for name in (f"_moe_{kind}_index_map", f"_moe_{kind}_mask_map", _FUNCTIONS[kind]))


def _tensors(signature: Signature) -> tuple[TensorArg, TensorArg, TensorArg | None]:
    """Tokens or rows, an index, a mask or the map of these, and the weights of the routing, which are no integers."""
    if len(signature.tensors) < 2:
        raise NotCounted("shapes not recorded")
    first, order, *rest = signature.tensors
    return first, order, next((one for one in rest if floating(one.dtype) and one.numel), None)


def _map_bytes(name: str, index: TensorArg) -> int:
    return 4 * (index.numel if "index" in name else index.shape[0] * (2 * index.shape[-1] + 1))


def _spread(tokens: TensorArg, rows: int, others: int, results: int) -> Work:
    """A row for each expert that a token goes to."""
    width = tokens.shape[-1]
    return Work(
        bytes_read=selected(tokens, rows * width) + others,
        bytes_written=rows * width * size_of(tokens.dtype) + results,
    )


def _gathered(rows: TensorArg, tokens: int, others: int, results: int, weighted: bool = False) -> Work:
    """The rows of each token added up, perhaps weighted."""
    return Work(
        other_flops=rows.numel * (1 + weighted),
        bytes_read=size(rows) + others,
        bytes_written=tokens * rows.shape[-1] * size_of(rows.dtype) + results,
        precision=precision_of(rows.dtype),
    )


@hinted_formula("te_moe::permute_index_map", "te_moe::permute_mask_map_fwd", *_named("permute"), category="copy")
def _permute(signature: Signature, hints: Hints) -> Work:
    """[tokens, hidden] -> [rows, hidden], the map, and of a mask the weight of each row."""
    tokens, index, weights = _tensors(signature)
    rows = signature.arg(2, None)
    if type(rows) is not int or rows <= 0:
        rows = index.numel if "index" in signature.name else hints.outputs[0].shape[0] if hints.outputs else 0
    if not rows:
        raise NotCounted("number of permuted tokens not recorded")
    results = _map_bytes(signature.name, index) + (rows * size_of(weights.dtype) if weights else 0)
    return _spread(tokens, rows, size(index, weights), results)


@formula(*_named("permute", "Backward"), category="copy")
def _permute_node(signature: Signature) -> Work:
    gradients, forward = parts(signature)
    tokens, index, weights = _tensors(forward)
    of_weights = gradients[1:2] if weights else ()
    read = _map_bytes(signature.name, index) + size(*of_weights)
    return _gathered(gradients[0], tokens.shape[0], read, written(weights))


@formula(*_named("unpermute"), category="copy")
def _unpermute(signature: Signature) -> Work:
    rows, order, weights = _tensors(signature)
    return _gathered(rows, (weights or order).shape[0], size(order, weights), 0, weighted=weights is not None)


def _unpermute_gradient(grad: TensorArg, rows: TensorArg, order: TensorArg, weights: TensorArg | None) -> Work:
    """The gradient of the rows; with weights the rows times the weight, and of a weight the sum of a row times its gradient."""
    if weights is None:
        return _spread(grad, rows.shape[0], size(order), 0)
    return Work(
        other_flops=3 * rows.numel,
        bytes_read=size(grad, rows, order, weights),
        bytes_written=written(rows, weights),
        precision=precision_of(grad.dtype),
    )


@formula("te_moe::unpermute_index_map_bwd", "te_moe::unpermute_mask_map_bwd_with_probs", category="copy")
def _unpermute_operator(signature: Signature) -> Work:
    args = Arguments(signature, "grad inp map weights" if "index" in signature.name else "grad map inp weights")
    weights = args.tensor("weights")
    return _unpermute_gradient(args.tensor("grad"), args.tensor("inp"), args.tensor("map"), weights if weights.numel else None)


@formula(*_named("unpermute", "Backward"), category="copy")
def _unpermute_node(signature: Signature) -> Work:
    (grad, *_), forward = parts(signature)
    return _unpermute_gradient(grad, *_tensors(forward))


_PERMUTATIONS: Final[dict[str, Row]] = {
    # The gradient of the tokens, and of a mask those of the weights [tokens, experts].
    "te_moe::permute_index_map_bwd": Row("read grad[rows k], read map, tokens", 1, "grad", writes="tokens * k * grad.item"),
    "te_moe::permute_mask_map_bwd": Row(
        "read grad[rows k], read weights?, read map, offsets, tokens, experts",
        1,
        "grad",
        writes="tokens * k * grad.item + (tokens * experts * weights.item if weights else 0)",
    ),
    # The rows of each token added up, perhaps weighted.
    "te_moe::unpermute_index_map_fwd te_moe::unpermute_mask_map_fwd": Row(
        "read rows[_ k], read map, read weights?, tokens", other="rows.n * (1 + bool(weights.n))", writes="tokens * k * rows.item"
    ),
    "te_moe::unpermute_mask_map_bwd_no_probs": Row(
        "read grad[_ k], read map, offsets, tokens, experts, rows",
        reads="selected(grad, rows * k) + map.size",
        writes="rows * k * grad.item",
    ),
    # Whole chunks of tokens and their weights in another order; where each of them goes is kept.
    "te_moe::chunk_sort_fwd _moe_chunk_sort": Row(
        "read tokens[n k], read sizes, read more_sizes, read weights?",
        reads="tokens.size + 2 * sizes.size + weights.size",
        writes="tokens.n * tokens.item + 4 * n + weights.n * weights.item",
    ),
    "te_moe::chunk_sort_bwd": Row("update grad, update weights?, read map"),
}
register(_PERMUTATIONS, "copy")


@formula("_moe_chunk_sortBackward", category="copy")
def _sort_chunks_node(signature: Signature) -> Work:
    (grad, *rest), forward = parts(signature)
    weights = rest[:1] if _tensors(forward)[2] else ()
    return _spread(grad, grad.shape[0], 4 * grad.shape[0] + size(*weights), written(*weights))


# --- triton_kernels ----------------------------------------------------------------------------------------------------------------


# Of [tokens, experts] the k largest, a softmax over them if asked for; their places as int16, and a bit for each expert.
_TOP_K: Final = Row(
    "read scores[tokens experts], k, softmax, dim",
    other="scores.n + tokens * k * SOFTMAX * softmax",
    writes="tokens * (k * (scores.item + 2) + 4 * up(experts, 32))",
    fits="value('softmax') is True or value('softmax') is False",
)
register({"TopK": _TOP_K}, "moe")

# [tokens, k] weights and experts in the order of the experts: that order and its inverse (int32), the weights, rows of each.
register({"SortTokens": Row("read weights, read ids, experts", result="weights", writes="2 * 4 * weights.n + 4 * experts")}, "moe")
