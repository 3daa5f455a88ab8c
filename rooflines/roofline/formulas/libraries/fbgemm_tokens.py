"""FBGEMM's and MSLK's moves of tokens to the experts of a mixture and back.

Order of arguments: FBGEMM 71d6f8b22 (``fbgemm_gpu/experimental/gen_ai/gen_ai/moe``, ``gen_ai/src/gather_scatter``); MSLK 2a3c897
(``mslk/moe``, ``csrc/moe/moe_ops.cpp``) has the same operators in its namespace ``mslk``. An argument may say how many rows are no
padding.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.costs import SILU
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula

PADDING: Final = "no row is padding"
_INT32: Final = 4


def _assumed(args: Arguments) -> str:
    return PADDING if args.optional("valid") is not None else ""


_GATHERS: Final = {
    "gather_along_first_dim": "source index",
    "gather_scale_dense_tokens": "source index experts scores valid=None",
    "gather_scale_quant_dense_tokens": "source index experts scores bound=None valid=None",
}


@formula(*(f"fbgemm::{name}" for name in _GATHERS), category="copy")
def _gather(signature: Signature) -> Work:
    """Rows of [tokens, k], perhaps times a score of [tokens, experts] each, perhaps as fp8 with a scale for each row."""
    args = Arguments(signature, _GATHERS[signature.name.rpartition("::")[2]])
    source, index, scores = args.tensor("source"), args.tensor("index"), args.optional("scores")
    rows, elements = index.numel, index.numel * source.shape[-1]
    quantized = "quant" in signature.name
    return Work(
        other_flops=elements * ((scores is not None) + DYNAMIC_QUANTIZE * quantized),
        bytes_read=selected(source, elements) + size(index, args.optional("experts")) + (selected(scores, rows) if scores else 0),
        bytes_written=elements + 4 * rows if quantized else elements * size_of(source.dtype),
        precision=precision_of(source.dtype) if scores else None,
        assumption=_assumed(args),
    )


_SCATTERS: Final = {
    "scatter_add_along_first_dim": "target source index",
    "scatter_add_dense_tokens": "target source index valid=None",
    "scatter_add_padded_tokens": "source counts index target",
}


@formula(*(f"fbgemm::{name}" for name in _SCATTERS), category="copy")
def _scatter(signature: Signature) -> Work:
    """Rows added to those of [tokens, k]; of [ranks, rows, k] each row is of one rank, and the others' is padding."""
    args = Arguments(signature, _SCATTERS[signature.name.rpartition("::")[2]])
    source, index, target = args.tensor("source"), args.tensor("index"), args.tensor("target")
    elements = index.numel * source.shape[-1]
    changed = selected(target, elements)
    return Work(
        other_flops=elements,
        bytes_read=elements * size_of(source.dtype) + size(index, args.optional("counts")) + changed,
        bytes_written=changed,
        precision=precision_of(target.dtype),
        assumption=_assumed(args),
    )


@formula("fbgemm::combine_shuffling", "fbgemm::split_shuffling", category="copy")
def _shuffle(signature: Signature) -> Work:
    """Rows of [tokens, k] from the order of ranks to that of experts, or back; [ranks, experts] says how many each has."""
    args = Arguments(signature, "tokens counts first=None last=None padded=False zeros=False")
    tokens, counts = args.tensor("tokens"), args.tensor("counts")
    made = counts.shape[-1] + 1 if signature.name.endswith("combine_shuffling") else 0  # how many each expert has
    return Work(
        bytes_read=size(tokens, counts),
        bytes_written=written(tokens) + made * size_of(counts.dtype),
        assumption=PADDING if args.flag("padded") else "",
    )


@formula("fbgemm::index_shuffling", category="moe")
def _route(signature: Signature) -> Work:
    """The best experts of each token, sorted by expert: for each of the pairs an expert and a token, and how many each expert has."""
    args = Arguments(signature, "scores first=None last=None valid=None top_k=1")
    scores = args.tensor("scores")
    pairs = scores.shape[0] * args.integer("top_k")
    return Work(
        other_flops=scores.numel,
        bytes_read=size(scores),
        bytes_written=_INT32 * (2 * pairs + scores.shape[-1] + 2),
        precision=precision_of(scores.dtype),
        assumption=_assumed(args),
    )


@formula("fbgemm::silu_mul", "fbgemm::silu_mul_quant", category="element-wise")
def _gated(signature: Signature) -> Work:
    quantized = signature.name.endswith("quant")
    args = Arguments(signature, "gate up bound=None valid=None" if quantized else "gate up valid=None")
    gate, up = args.tensor("gate"), args.tensor("up")
    return Work(
        other_flops=gate.numel * (SILU + 1 + DYNAMIC_QUANTIZE * quantized),
        bytes_read=size(gate, up),
        bytes_written=gate.numel + 4 * gate.shape[0] if quantized else written(gate),
        precision=precision_of(gate.dtype),
        assumption=_assumed(args),
    )
