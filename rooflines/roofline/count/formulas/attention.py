"""Scaled dot-product attention in all its backends, forward and backward, and the fused encoder layers built
on it.

What counts is how many (query, key) pairs meet. Flash attention's own operators align a causal or windowed
mask with the last query and the last key ("lower right"), every other operator with the first ("upper left");
for equally long sequences they are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from rooflines.profiler.read.signature import Argument, Signature
from rooflines.roofline.count.formulas.arguments import Arguments, Ints, NotCounted, size, size_of, written
from rooflines.roofline.count.formulas.costs import SOFTMAX, SOFTMAX_FROM_LOG_SUM
from rooflines.roofline.count.formulas.lengths import Lengths, packed_lengths, pairs, recorded_lengths
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.rows import Tensors, named

_NO_MASK = 1 << 30  # the block size of flex attention's mask that masks nothing


# --- one attention ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attention:
    """The sizes of one attention: ``pairs`` is how many (query, key) pairs meet, over all batches and query
    heads.

    ``rows`` are those that a forward keeps statistics of: [b, h, s_q], or [h, total] where sequences are
    packed. ``assumption`` says what was assumed about the lengths of these.
    """

    pairs: int
    query_depth: int
    value_depth: int
    rows: Ints = ()
    assumption: str = ""

    @property
    def flops(self) -> int:
        """FLOPs of q [b, h, s_q, d] @ k [b, h, d, s_k] -> scores [b, h, s_q, s_k], or as much of it as is not
        masked, and of scores @ v [b, h, s_k, d_v] -> out [b, h, s_q, d_v]."""
        return 2 * self.pairs * (self.query_depth + self.value_depth)

    @property
    def gradient_flops(self) -> int:
        """The scores again, then two products for each of the forward's two: 5 where the forward has 2."""
        return 2 * self.pairs * self.query_depth + 2 * self.flops


@dataclass(frozen=True, slots=True)
class Backend:
    """The arguments of one operator: ``schema``, and ``eighths`` over 8-bit floating-point numbers, where
    these take scales.

    ``sequence_axis`` is the dimension of its tensors that is the sequence, ``lower_right`` the alignment of
    its causal mask. A forward may keep the log-sum-exp of each row for its backward, and ``state`` bytes
    besides (None: neither); ``pads`` says that each sequence's sums are padded to a multiple of 32.
    """

    schema: str
    sequence_axis: int = -2
    lower_right: bool = False
    state: int | None = None
    pads: bool = False
    eighths: str = ""


# --- one attention ----------------------------------------------------------------------------------------


def sight(args: Arguments, lower_right: bool) -> tuple[int | None, int | None, bool]:
    """How far a query sees to its left and right (None: to the end), and whether places count from the end.

    ``lower_right`` is the alignment where no argument states it.
    """
    if args.has(
        "mask_type"
    ):  # memory-efficient attention: 1 is causal from the upper left, 2 from the lower right
        kind = args.value("mask_type")
        window = _bound(args.value("window"))
        if isinstance(kind, bool) or kind not in (0, 1, 2):
            raise NotCounted("arguments of another version of this operator")
        if window and not kind:
            raise NotCounted("a window without a causal mask")
        # a window of w is the query's own place and the w - 1 before it
        return window - 1 if window else None, 0 if kind else None, kind == 2
    window = args.value("window", absent=None)
    if isinstance(window, tuple):
        left, right = map(_bound, window)
    else:
        left, right = (_bound(args.value(name, absent=None)) for name in ("left", "right"))
    return left, 0 if args.flag("causal", absent=False) else right, lower_right


def _bound(value: Argument) -> int | None:
    """A window's size; None and negative sizes mean unbounded."""
    return value if isinstance(value, int) and value >= 0 else None


def _sizes(args: Arguments, hints: Hints, backend: Backend) -> Attention:
    query, key, value = args.operands("query", "key", "value")
    if query.dtype.startswith("complex"):
        raise NotCounted("no formula for attention over complex numbers")
    if args.optional("used_k") is not None:
        raise NotCounted("number of keys per sequence not recorded")
    if args.optional("pages") is not None:
        raise NotCounted("use of paged keys and values not recorded")
    if len(query.shape) < -backend.sequence_axis or len(query.shape) != len(key.shape):
        raise NotCounted("query and key differ in dimensions")
    bounds = sight(args, backend.lower_right)
    if args.optional("cum_q") is not None or args.optional("cum_k") is not None:  # [total, h, d]
        rows: Ints = (query.shape[-2], query.shape[-3])
        lengths = _packed(args, hints, *bounds)
        return Attention(
            query.shape[-2] * lengths.pairs(*bounds),
            query.shape[-1],
            value.shape[-1],
            rows,
            lengths.assumption,
        )
    if backend.sequence_axis == -2:
        rows = query.shape[:-1]
        keys = key.shape[-2]
    else:
        rows = (*query.shape[:-3], query.shape[-2], query.shape[-3])
        keys = key.shape[-3]
    return Attention(prod(rows[:-1]) * pairs(rows[-1], keys, *bounds), query.shape[-1], value.shape[-1], rows)


def _packed(args: Arguments, hints: Hints, left: int | None, right: int | None, lower_right: bool) -> Lengths:
    """The lengths of sequences packed into [total, h, d], which end where ``cum_q`` and ``cum_k`` say: values
    that no trace has."""
    batch = (args.optional("cum_q") or args.tensor("cum_k")).numel - 1
    queries = args.tensor("query").shape[-3]
    keys = args.tensor("key").shape[-3]
    if batch < 1:
        raise NotCounted("number of sequences not recorded")
    found = (
        recorded_lengths(hints.sequences, batch, queries, keys, left) if right == 0 and lower_right else None
    )
    masked = left is not None or right is not None
    return found or packed_lengths(batch, queries, keys, args.integer("max_q"), args.integer("max_k"), masked)


def has_dropout(args: Arguments) -> bool:
    """Whether the call drops probabilities."""
    value = args.given("dropout")
    return isinstance(value, int | float) and value > 0


def score_cost(args: Arguments) -> int:
    """FLOPs of a pair besides the products: scale, softmax; add the mask; add slope * distance; draw,
    multiply."""
    bias, alibi = args.optionals("bias", "alibi")
    return 1 + SOFTMAX + (bias is not None) + 2 * (alibi is not None) + 2 * has_dropout(args)


def _kept(args: Arguments, backend: Backend, rows: Ints) -> int:
    """Bytes that a forward leaves for its backward: one number a row, float32 or wider, and the state of the
    random numbers."""
    if backend.state is None:
        return 0
    if backend.pads:
        if args.optional("cum_q") is not None:  # [total, h] rows, but [b, h, longest] numbers
            rows = (args.tensor("cum_q").numel - 1, rows[0], args.integer("max_q"))
        rows = (*rows[:-1], -(-rows[-1] // 32) * 32)
    return (
        prod(rows) * max(4, size_of(args.tensor("query").dtype)) * args.flag("log_sum", absent=True)
        + backend.state
    )


def forward(signature: Signature, hints: Hints, **options: Any) -> Work:
    """The fields of a ``Backend`` are the options."""
    backend = Backend(**options)
    query = Arguments(signature, backend.schema).tensor("query")
    eighth = query.dtype.startswith("float8")
    args = Arguments(signature, (eighth and backend.eighths) or backend.schema)
    sizes = _sizes(args, hints, backend)
    key, value = args.operands("key", "value")
    others = args.optionals("bias", "alibi", "cum_q", "cum_k", "q_scale", "k_scale", "v_scale")
    itemsize = 2 if eighth else size_of(query.dtype)  # of 8-bit inputs the result is bfloat16
    return Work(
        matrix_flops=sizes.flops,
        other_flops=sizes.pairs * score_cost(args),
        bytes_read=size(query, key, value, *others),
        bytes_written=prod(sizes.rows) * value.shape[-1] * itemsize + _kept(args, backend, sizes.rows),
        precision=matrix_precision_of(query.dtype),
        assumption=sizes.assumption,
    )


def backward(signature: Signature, hints: Hints, **options: Any) -> Work:
    """The fields of a ``Backend`` are the options."""
    backend = Backend(**options)
    args = Arguments(signature, backend.schema)
    return backward_work(args, _sizes(args, hints, backend))


def backward_work(args: Arguments, sizes: Attention) -> Work:
    """p = exp(scores - log_sum); the gradient of p is grad @ v^T, that of the scores p * (that - the row's
    sum of grad * out)."""
    grad, *inputs = args.operands("grad", "query", "key", "value")
    bias = args.optional("bias")
    random = has_dropout(args)
    # scale, add the mask, p; its gradient (2), scale; of p and its gradient what was dropped
    cost = 1 + (bias is not None) + SOFTMAX_FROM_LOG_SUM + 3 + 4 * random
    saved = args.optionals("out", "log_sum", "cum_q", "cum_k")
    state = args.optionals("seed", "offset") if random else ()
    asked = args.flag("bias_needs_gradient", absent=False) or (
        args.has("output_mask") and args.mask("output_mask", 4)[3]
    )
    return Work(
        matrix_flops=sizes.gradient_flops,
        other_flops=sizes.pairs * cost + 2 * grad.numel,
        bytes_read=size(grad, *inputs, bias, *saved, *state),
        bytes_written=written(*inputs, bias if bias is not None and asked else None),
        precision=matrix_precision_of(inputs[0].dtype),
        assumption=sizes.assumption,
    )


# --- all scores -------------------------------------------------------------------------------------------


@named
def unmasked(mask: Argument) -> bool:
    """True for flex attention without a mask. Which blocks of scores one leaves out is in its values, and
    raises NotCounted."""
    # (..., query block, key block, function); a call without a mask has one block for everything
    if not isinstance(mask, tuple) or len(mask) < 3 or mask[-3:-1] != (_NO_MASK, _NO_MASK):
        raise NotCounted("blocks skipped by the mask not recorded")
    return True


# --- fused layers -----------------------------------------------------------------------------------------


@named
def once(*tensors: Tensors) -> int:
    """Bytes of tensors that are the same in self-attention, which equal shapes nearly always mean."""
    return sum(size(tensor) for tensor in {each for tensor in tensors for each in tensor.tensors})
