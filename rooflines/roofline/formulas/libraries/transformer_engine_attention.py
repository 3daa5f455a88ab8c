"""Fused attention of TransformerEngine (cuDNN): autograd's ``FusedAttnFunc``, below which pybind leaves no event.

Order of arguments: NVIDIA/TransformerEngine d0067d0 (transformer_engine/pytorch/attention/dot_product_attention/backends.py). Kind of
mask and layout are strings, which traces leave out: tensors are [b, s, h, d] or [s, b, h, d], told apart by the number of sequences,
or packed. Its attention through flash-attn is counted by the operators of that library.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas.packed_attention import NO_WINDOW, Layout, forward, function_backward, gradient_first
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.table import Hints, hinted_formula

_FIRST: Final = "training max_q max_k ends_q ends_k padded_q padded_k"
_REST: Final = "query key value bias=None scale=None dropout=0.0"
_SCHEMAS: Final = (f"{_FIRST} pages value_pages {_REST}", f"{_FIRST} {_REST}")  # the second before paged caches
_FIXED: Final = Layout(_SCHEMAS, causal=True, assumption=f"a causal mask, {NO_WINDOW}")
_PACKED: Final = replace(_FIXED, schemas=tuple(schema.replace("ends_", "cum_") for schema in _SCHEMAS))
_ENDS: Final = 3


@hinted_formula("FusedAttnFunc", category="attention")
def _fused(signature: Signature, hints: Hints) -> Work:
    """Forward: two products, and the rows' log-sum-exp for the backward."""
    return forward(*_batch_first(signature, hints, signature.arg(_ENDS)))


@hinted_formula("FusedAttnFuncBackward", category="attention")
def _fused_backward(signature: Signature, hints: Hints) -> Work:
    """Five products; the gradient is that of the result."""
    signature = gradient_first(signature)
    return function_backward(*_batch_first(signature, hints, signature.arg(1 + _ENDS)))


def _batch_first(signature: Signature, hints: Hints, ends: Argument) -> tuple[Signature, Hints, Layout]:
    args = tuple(_sequence_first(arg, ends) for arg in signature.args)
    fixed = any(isinstance(arg, TensorArg) and len(arg.shape) == 4 for arg in args)
    return replace(signature, args=args), hints, _FIXED if fixed else _PACKED


def _sequence_first(arg: Argument, ends: Argument) -> Argument:
    """[s, b, h, d] as [b, s, h, d]; ``ends`` has one number more than there are sequences."""
    if not isinstance(arg, TensorArg) or len(arg.shape) != 4 or not isinstance(ends, TensorArg) or arg.shape[0] == ends.numel - 1:
        return arg
    sequence, batch, *rest = arg.shape
    return TensorArg((batch, sequence, *rest), arg.dtype)
