"""Attention over packed sequences and KV caches, as libraries call it: lengths are in tensors, whose values
no trace has.

What the arguments determine is exact: tensors with a dimension for the sequence, packed sequences whose
number and longest length show that all are equally long. A server's mark gives the lengths of a step
(``Hints.sequences``). Otherwise the count is an estimate or a bound, and ``Work.assumption`` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    Dispatches,
    NotCounted,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.attention import Attention, backward_work, score_cost, sight
from rooflines.roofline.count.formulas.costs import SOFTMAX, TANH
from rooflines.roofline.count.formulas.lengths import Lengths, packed_lengths, recorded_lengths
from rooflines.roofline.count.formulas.nodes import parts
from rooflines.roofline.count.formulas.record import Work, matrix_precision_of
from rooflines.roofline.count.formulas.registry import HintedFormula, Hints

LONGEST = "KV length of every sequence is the largest that the arguments allow"
NEW_ONLY = "KV lengths not recorded: only the new tokens are counted"
DECODES = "one query per sequence: the kernel skips sequences with more"
NO_WINDOW = "no window, which is not recorded"

# --- the arguments of one operator ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttentionLayout:
    """How an operator takes its arguments: ``schemas`` of its versions, of which the first that fits a call
    is used.

    Tensors: ``query`` [b, s, h, d] or packed [total, h, d], ``query_rest`` more of its depth, ``key`` and
    ``value`` alike or a cache [pages, page, h, d], ``new_key`` and ``new_value`` that are appended to it,
    ``out``. Lengths: ``cum_q`` and ``cum_k`` (where packed sequences end), ``used_q`` and ``used_k``
    (lengths), ``max_q`` and ``max_k``; ``pages`` [b, pages of a sequence], or ``page_list`` with
    ``page_ends``, and ``page_size``; ``ends_q`` is ``cum_q`` of tensors that are not packed. ``with_log_sum``
    says whether a row's sum is returned, ``log_sum`` whether it is where no argument says. Without a
    ``value`` the values are a part of the keys, ``value_depth`` or ``out`` as deep. ``causal`` is for
    operators without such an argument. ``decodes`` says that sequences of more than one query are left out
    where ``cum_q`` is given. ``assumption`` says what an operator never records.
    """

    schemas: tuple[str, ...]
    lower_right: bool = True
    log_sum: bool = True
    causal: bool = False
    decodes: bool = False
    assumption: str = ""


_FLAGS = ("causal", "with_log_sum")
_INTEGERS = ("max_q", "max_k", "left", "right", "chunk", "page_size", "value_depth")
_TENSORS = ("query", "key", "value", "grad")


def _arguments(signature: Signature, layout: AttentionLayout) -> Arguments:
    for schema in layout.schemas:
        args = Arguments(signature, schema)
        required = sum("=" not in field for field in schema.split())
        if required <= len(signature.args) and _fits(args):
            return args
    raise NotCounted(
        "arguments of another version of this operator" if signature.tensors else "shapes not recorded"
    )


def _fits(args: Arguments) -> bool:
    """Whether the arguments are of the kinds that their names say; what was not recorded fits."""
    flags = all(isinstance(args.value(name), bool) for name in _FLAGS if args.told(name))
    integers = all(args.given(name) is None or type(args.given(name)) is int for name in _INTEGERS)
    query, rest = args.optionals("query", "query_rest")
    if query is not None and rest is not None and len(rest.shape) != len(query.shape):
        return False
    if args.has("ends_q") and query is not None and len(query.shape) != 4:
        return False
    return flags and integers and all(args.optional(name) is not None for name in _TENSORS if args.has(name))


def _positive(args: Arguments, name: str) -> int | None:
    value = args.given(name)
    return value if isinstance(value, int) and value > 0 else None


@dataclass(frozen=True, slots=True)
class _Keys:
    """``capacity`` is the number of tokens in the tensor of keys, ``total`` that of all sequences, as far as
    it is bounded.

    ``cached`` says that sequences use only a part of the tensor. ``most`` is what the lists of pages or the
    cache have room for, ``longest`` what one sequence can have.
    """

    capacity: int
    total: int
    cached: bool
    assumption: str = ""
    most: int | None = None
    longest: int | None = None


def _page_size(key: TensorArg, latent: bool) -> int:
    """Tokens of a page: [pages, page, h, d], [pages, h, d / x, page, x], [tokens, h, d], or of latent
    attention [pages, page, d]."""
    if len(key.shape) == 5:
        return key.shape[3]
    return key.shape[1] if len(key.shape) == 4 or latent else 1


def _keys(args: Arguments, count: int, tokens: int) -> _Keys:
    key = args.tensor("key")
    pages, page_list = args.optionals("pages", "page_list")
    longest = _positive(args, "max_k")
    bounds = []
    if pages is None and page_list is None:
        capacity = prod(key.shape[:-2])
        if args.optional("used_k") is None:
            return _Keys(capacity, capacity, cached=False)
        bounds.append(capacity)
    else:
        page = _positive(args, "page_size") or _page_size(key, latent=not args.has("value"))
        capacity = key.shape[0] * page
        bounds += [table.numel * page for table in (pages, page_list) if table is not None]
    most = min(bounds)
    total = most if longest is None else min(most, count * longest)
    # a graph may be captured with sequences of one token, which says nothing about those of its replays
    found = _Keys(capacity, total, cached=True, most=most, longest=None if longest == 1 else longest)
    if total == tokens:  # and each sequence has at least its new tokens
        return found
    # lists of pages and longest lengths are often those of the largest model and batch
    return (
        replace(found, assumption=LONGEST)
        if total <= capacity
        else replace(found, total=tokens, assumption=NEW_ONLY)
    )


def _count(args: Arguments) -> int:
    """The number of sequences; raises NotCounted where there is none."""
    query = args.tensor("query")
    tokens = prod(query.shape[:-2])
    for name, more in (("cum_q", 1), ("pages", 0), ("page_ends", 1), ("used_k", 0)):
        found = args.optional(name)
        if found is not None and found.shape and (name == "cum_q" or len(query.shape) == 3):
            count = min(found.shape[0] - more, tokens)  # the tables of a captured graph have room for more
            break
    else:
        count = query.shape[0]
    if count < 1 or not tokens:
        raise NotCounted("number of sequences not recorded")
    return count


def _lengths(
    args: Arguments, hints: Hints, left: int | None, right: int | None, layout: AttentionLayout
) -> tuple[Lengths, _Keys]:
    query = args.tensor("query")
    count = _count(args)
    tokens = prod(query.shape[:-2])
    decodes = layout.decodes and args.optional("cum_q") is not None
    mixed = decodes and tokens > count
    longest_query = (
        1 if decodes else -(-tokens // count) if args.optional("cum_q") is None else _positive(args, "max_q")
    )
    if longest_query is not None:
        tokens = min(tokens, count * longest_query)  # more are padding
    keys = _keys(args, count, tokens)
    known = hints.sequences
    one_each = (
        known is not None and keys.cached and known.queries == known.count
    )  # a query that sees all keys
    if right == 0 or one_each:  # the calls of language models
        total = keys.most if keys.cached else keys.total
        found = recorded_lengths(known, count, tokens, total, left, longest_query, keys.longest)
        if found is not None:
            return found, keys
    longest_key = (
        -(-keys.total // count) if args.optional("cum_k") is None or keys.cached else _positive(args, "max_k")
    )
    if keys.cached and keys.total == tokens:  # of each sequence only the new tokens
        longest_key = longest_query
    if args.optional("used_q") is not None:
        longest_query = None
    found = packed_lengths(
        count, tokens, keys.total, longest_query, longest_key, left is not None or right is not None
    )
    found = replace(found, assumption=keys.assumption) if keys.assumption else found
    return (replace(found, assumption=_both(found.assumption, DECODES)) if mixed else found), keys


# --- formulas ---------------------------------------------------------------------------------------------


def _part(tensor: TensorArg | None, some: int, of: int) -> int:
    """Bytes of ``some`` tokens of a tensor that has ``of``."""
    return size(tensor) * some // of


def _sight(args: Arguments, layout: AttentionLayout) -> tuple[int | None, int | None, bool]:
    if layout.assumption == NO_WINDOW and args.has("window") and not args.recorded("window"):
        return None, 0 if args.flag("causal") else None, layout.lower_right
    left, right, lower_right = sight(
        args, args.flag("lower_right") if args.told("lower_right") else layout.lower_right
    )
    sliding = _positive(args, "sliding_window")  # the query's own place and those before it
    return sliding - 1 if sliding else left, 0 if layout.causal else right, lower_right


def _value_depth(args: Arguments) -> int:
    query = args.tensor("query")
    value, out = args.optionals("value", "out")
    if out is not None and len(out.shape) >= len(query.shape):
        return out.shape[-1]
    return args.integer("value_depth") if value is None else value.shape[-1]


def _both(*assumptions: str) -> str:
    return "; ".join(filter(None, assumptions))


_SMALL = (
    "bias",
    "alibi",
    "sinks",
    "cum_q",
    "cum_k",
    "used_q",
    "used_k",
    "q_scale",
    "k_scale",
    "v_scale",
)


def forward(signature: Signature, hints: Hints, layout: AttentionLayout) -> Work:
    """Two products; of a KV cache, the keys and values that a query sees, and those appended to it."""
    args = _arguments(signature, layout)
    query, key = args.operands("query", "key")
    rest, out, new = args.optionals("query_rest", "out", "new_key")
    if _positive(args, "chunk"):
        raise NotCounted("no formula for attention in chunks")
    left, right, lower_right = _sight(args, layout)
    lengths, keys = _lengths(args, hints, left, right, layout)
    depth = query.shape[-1] + (rest.shape[-1] if rest is not None else 0)
    sizes = Attention(query.shape[-2] * lengths.pairs(left, right, lower_right), depth, _value_depth(args))
    appended = prod(new.shape[:-2]) if new is not None else 0
    seen = max(min(lengths.keys(left), keys.capacity) - appended, 0) if keys.cached else keys.capacity
    tokens = prod(query.shape[:-2])
    queries = min(lengths.queries, tokens)
    cost = score_cost(args)
    softcap = args.given("softcap")
    if isinstance(softcap, int | float) and softcap > 0:
        cost += TANH + 1
    item = (
        size_of(out.dtype)
        if out is not None
        else 2
        if query.dtype.startswith("float8")
        else size_of(query.dtype)
    )
    log_sum = args.flag("with_log_sum") if args.told("with_log_sum") else layout.log_sum
    appending = (new, args.optional("new_value"))
    return Work(
        matrix_flops=sizes.flops,
        other_flops=sizes.pairs * cost,
        bytes_read=_part(query, queries, tokens)
        + _part(rest, queries, tokens)
        + _part(key, seen, keys.capacity)
        + _part(args.optional("value"), seen, keys.capacity)
        + size(*appending, *args.optionals(*_SMALL)),
        bytes_written=queries * query.shape[-2] * (sizes.value_depth * item + 4 * log_sum)
        + written(*appending),
        precision=matrix_precision_of(query.dtype),
        assumption=_both(lengths.assumption, layout.assumption),
    )


def backward(signature: Signature, hints: Hints, layout: AttentionLayout) -> Work:
    """Five products, as every backward of flash attention: the scores again, and two for each of the
    forward's."""
    args = _arguments(signature, layout)
    left, right, lower_right = _sight(args, layout)
    lengths, _ = _lengths(args, hints, left, right, layout)
    query, value = args.operands("query", "value")
    meeting = query.shape[-2] * lengths.pairs(left, right, lower_right)
    return backward_work(
        args,
        Attention(
            meeting, query.shape[-1], value.shape[-1], assumption=_both(lengths.assumption, layout.assumption)
        ),
    )


def function_backward(signature: Signature, hints: Hints, layout: AttentionLayout) -> Work:
    """Backward of an autograd function, with its gradient first; it reads the result and the rows' sums."""
    given = replace(layout, schemas=tuple(f"grad {schema}" for schema in layout.schemas))
    work = backward(signature, hints, given)
    args = _arguments(signature, given)
    query, value = args.operands("query", "value")
    saved = prod(query.shape[:-1]) * (value.shape[-1] * size_of(query.dtype) + 4)
    return replace(work, bytes_read=work.bytes_read + saved)


def layout_formula(
    said: dict[str, Any], kind: str, given: Callable[[Signature], Signature] | None
) -> HintedFormula:
    """The formula of operators (``forward`` or ``backward``), or of autograd functions and their backward
    nodes (``function``). The layout is that of what ``given`` makes of a call, and of the forward call of a
    node."""
    layout = AttentionLayout(
        tuple(map(str.strip, said["schema"].split("|"))),
        **{name: said[name] for name in said if name != "schema"},
    )

    def work(signature: Signature, hints: Hints) -> Work:
        if kind == "function" and signature.name.endswith("Backward"):
            gradients, call = parts(signature)
            return function_backward(
                replace(signature, args=(gradients[0], *(given(call) if given else call).args)), hints, layout
            )
        return (backward if kind == "backward" else forward)(
            given(signature) if given else signature, hints, layout
        )

    return work


# --- layers of servers ------------------------------------------------------------------------------------

SERVED = "causal attention without a window"
ONE = "one sequence without a prefix"


def unified(signature: Signature, hints: Hints, schema: str) -> Work:
    """Causal attention of a step's tokens to themselves and to the tokens of their sequences in the KV cache.

    A cache is in 8 bits where queries are, as vLLM quantizes queries for such a cache only. ``saves_cache``
    says whether the call also appends the new keys and values to it; without such an argument it does if no
    tensor ``updated`` shows that another operator does. ``latent`` attention is that of other operators.
    """
    args = Arguments(signature, schema)
    if args.has("latent") and args.flag("latent"):
        raise Dispatches
    query, key, value = args.operands("query", "key", "value")
    out = args.optional("out")
    if len(key.shape) != 3 or len(query.shape) not in (2, 3):
        raise NotCounted("number of heads not recorded")
    depth = key.shape[-1]
    value_depth = value.shape[-1]
    tokens = query.shape[0]
    heads = prod(query.shape[1:]) // depth
    lengths = recorded_lengths(hints.sequences, tokens, tokens, None, None) or Lengths(
        ((1, tokens, tokens),), ONE
    )
    new = lengths.queries
    seen = lengths.keys(None)
    eighth = query.dtype.startswith("float8")
    cache = key.shape[-2] * (depth + value_depth) * (1 if eighth else size_of(key.dtype))
    recorded = key.shape[-2] * (depth * size_of(key.dtype) + value_depth * size_of(value.dtype))
    writes = args.flag("saves_cache") if args.has("saves_cache") else args.optional("updated") is None
    item = size_of(out.dtype) if out is not None else size_of(value.dtype)
    sizes = Attention(heads * lengths.pairs(None, 0, True), depth, value_depth)
    return Work(
        matrix_flops=sizes.flops,
        other_flops=sizes.pairs * (1 + SOFTMAX),
        bytes_read=size(query) * new // tokens
        + new * (recorded if writes else cache)
        + max(seen - new, 0) * cache,
        bytes_written=new * heads * value_depth * item + new * cache * writes,
        precision=matrix_precision_of(query.dtype),
        assumption=_both(lengths.assumption, SERVED),
    )
