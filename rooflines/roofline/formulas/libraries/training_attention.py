"""Attention of flash-attn 2, 3 and 4 with its copies in vLLM and SGLang, of xformers, Primus-Turbo, TransformerEngine, FBGEMM, MSLK and
NATTEN.

Masks of flash-attn are aligned with the last query and key. A window holds ``left`` keys before a query's own place and ``right`` after
it. Forwards return the rows' log-sum-exp. A backward computes the scores again: 5 products, 2.5 times the forward's
(benchmarks/benchmark_flash_attention.py). The functions of flash-attn 2 that Python calls through pybind leave no event: in a trace of
a version before 2.7 there is only autograd's ``FlashAttnFunc``. Primus-Turbo's is that of flash-attn with a bias before the slopes of
ALiBi; where an operator of AITER is below, that one counts. TransformerEngine's ``FusedAttnFunc`` names mask and layout by strings,
which traces leave out: tensors are [b, s, h, d] or [s, b, h, d], told apart by the number of sequences, or packed. FBGEMM's attention
of HSTU has no softmax; how many of a sequence's last items are targets, which do not see one another, is data. A neighborhood of NATTEN
is moved inside at the borders, so that every token has a whole one, except along causal dimensions; the kernels of Hopper and Blackwell
take tokens in tiles, padded, and with the groups of a dilation as more batches.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.attention import Attention, backward_work
from rooflines.roofline.formulas.costs import SILU, SOFTMAX
from rooflines.roofline.formulas.nodes import with_gradient
from rooflines.roofline.formulas.packed_attention import (
    NO_WINDOW,
    Layout,
    backward,
    forward,
    function_backward,
    register_layouts,
)
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula

_OPTIONS: Final = "dropout scale causal left right softcap alibi"
_FORWARD: Final = f"query key value {_OPTIONS} debug"
_VARLEN: Final = (
    "query key value cum_q cum_k max_q max_k dropout scale causal left=-1 right=-1 softcap=0.0 alibi=None debug=False pages=None"
    " pad_k=None used_k=None zero=False splits=0"
)
_GRADIENT: Final = "grad query key value out log_sum"

# Version 2 below its functions in Python: operators in vLLM and in the kernels of Hugging Face's hub.
_TWO_VARLEN: Final = Layout((
    "query key value out cum_q cum_k used_k pad_k pages alibi max_q max_k dropout scale zero causal left right softcap debug",
))  # fmt: skip
_TWO_CACHE: Final = Layout((
    "query key value new_key new_value used_k cos sin batch_index pad_k pages alibi out scale causal left right softcap interleaved",
))  # fmt: skip

# Version 3: one operator for fixed, packed and paged tensors, of which every version has added arguments.
_THREE: Final = (
    "query key value new_key=None new_value=None query_rest=None out=None cum_q=None cum_k=None cum_new=None used_q=None used_k=None"
    " max_q=None max_k=None pages=None batch_index=None pad_k=None cos=None sin=None rotary_lengths=None"
    " q_scale=None k_scale=None v_scale=None"
)
_END: Final = "interleaved=False schedule=None splits=0 pack=None margin=0"
_THREE_FORWARD: Final = Layout((
    f"{_THREE} scale=None causal=False left=-1 right=-1 chunk=0 softcap=0.0 {_END}",
    f"{_THREE} scale=None causal=False left=-1 right=-1 softcap=0.0 {_END} sinks=None",
))  # fmt: skip
# vLLM has a scale of the result before the others since 2025.
_THREE_VLLM: Final = Layout((
    f"{_THREE} o_scale scale causal left right softcap {_END} sinks=None",
    f"{_THREE} scale causal left right softcap {_END} sinks=None",
))  # fmt: skip
_LENGTHS: Final = "cum_q=None cum_k=None used_q=None used_k=None max_q=None max_k=None"
_RESULTS: Final = "dq=None dk=None dv=None"
_THREE_OPTIONS: Final = "scale=None causal=False left=-1 right=-1 softcap=0.0 deterministic=False margin=0"

FORWARD: Final = {
    "flash_attn::_flash_attn_forward": Layout((_FORWARD,)),
    "flash_attn::_flash_attn_varlen_forward": Layout((_VARLEN,)),
    "flash_attn_3::fwd": _THREE_FORWARD,
    "flash_attn_3::_flash_attn_forward": _THREE_FORWARD,
    "flash_attn_2_cuda::fwd": Layout(("query key value out alibi dropout scale causal left right softcap debug",)),
    "flash_attn_2_cuda::varlen_fwd": _TWO_VARLEN,
    "flash_attn_2_cuda::fwd_kvcache": _TWO_CACHE,
    "_diffusers_flash_attn_3::_flash_attn_forward": Layout((
        "query key value scale=None causal=False query_rest=None q_scale=None k_scale=None v_scale=None chunk=0 softcap=0.0",
    )),
    "_vllm_fa2_C::varlen_fwd": _TWO_VARLEN,
    "_vllm_fa2_C::fwd_kvcache": _TWO_CACHE,
    "_vllm_fa3_C::fwd": _THREE_VLLM,
    "sgl_kernel::fwd": _THREE_FORWARD,
}  # fmt: skip

BACKWARD: Final = {
    "flash_attn_2_cuda::bwd": Layout((f"{_GRADIENT} dq dk dv alibi dropout scale causal left right softcap deterministic",)),
    "flash_attn_2_cuda::varlen_bwd": Layout((
        f"{_GRADIENT} dq dk dv cum_q cum_k alibi max_q max_k dropout scale zero causal left right softcap deterministic",
    )),
    "flash_attn::_flash_attn_backward": Layout((f"{_GRADIENT} dq dk dv {_OPTIONS} deterministic seed=None",)),
    "flash_attn::_flash_attn_varlen_backward": Layout((
        f"{_GRADIENT} dq dk dv cum_q cum_k max_q max_k {_OPTIONS} deterministic seed=None zero=False",
    )),
    "flash_attn_3::bwd": Layout((f"{_GRADIENT} {_RESULTS} {_LENGTHS} {_THREE_OPTIONS}",)),
    "flash_attn_3::_flash_attn_backward": Layout((f"{_GRADIENT} {_LENGTHS} {_RESULTS} {_THREE_OPTIONS}",)),
}  # fmt: skip

# Functions of autograd: a window, which is a tuple, is not recorded. Those of version 4 (flash_attn/cute) follow those of 2 and 3.
_FOUR: Final = "scale causal window sinks=None softcap=0.0"
FUNCTIONS: Final = {
    "FlashAttnFunc": Layout((
        "query key value dropout scale causal window softcap=0.0 alibi=None",
        "query key value scale causal query_rest=None q_scale=None k_scale=None v_scale=None window=None",
        f"query key value {_FOUR}",
        f"query key value query_rest gather {_FOUR}",
    ), assumption=NO_WINDOW),
    "FlashAttnVarlenFunc": Layout((
        "query key value cum_q cum_k max_q max_k dropout scale causal window softcap=0.0 alibi=None deterministic=False debug=False"
        " pages=None",
        "query key value cum_q cum_k used_q used_k max_q max_k scale causal query_rest=None",
        f"query key value cum_q cum_k used_q used_k pages {_FOUR}",
        f"query key value cum_q cum_k used_q used_k max_q max_k pages {_FOUR}",
        f"query key value query_rest cum_q cum_k used_q used_k max_q max_k min_k gather pages {_FOUR}",
    ), assumption=NO_WINDOW),
}  # fmt: skip

register_layouts(FORWARD | FUNCTIONS, BACKWARD)


def _node(signature: Signature, hints: Hints, layout: Layout) -> Work:
    return function_backward(with_gradient(signature), hints, layout)


for _name, _layout in FUNCTIONS.items():
    hinted_formula(f"{_name}Backward", category="attention")(partial(_node, layout=_layout))

# Functions of packed queries, keys and values: how many tensors are in one, and whether one tensor of lengths is for queries and keys.
_TOGETHER: Final = {
    "FlashAttnQKVPackedFunc": ("FlashAttnFunc", 3, False),
    "FlashAttnKVPackedFunc": ("FlashAttnFunc", 2, False),
    "FlashAttnVarlenQKVPackedFunc": ("FlashAttnVarlenFunc", 3, True),
    "FlashAttnVarlenKVPackedFunc": ("FlashAttnVarlenFunc", 2, False),
}


def _apart(signature: Signature, name: str) -> Signature:
    """The call with a tensor [.., heads, depth] for each in the packed one [.., 2 or 3, heads, depth]."""
    _, count, once = _TOGETHER[name]
    before, packed, rest = signature.args[: 3 - count], signature.arg(3 - count), signature.args[4 - count :]
    if not isinstance(packed, TensorArg) or packed.shape[-3:-2] != (count,):
        raise NotCounted("shapes not recorded")
    one = TensorArg((*packed.shape[:-3], *packed.shape[-2:]), packed.dtype)
    lengths = (rest[0], rest[0], rest[1], rest[1]) if once else rest[:2]
    return replace(signature, args=(*before, *(one,) * count, *lengths, *rest[2:]))


def _together(signature: Signature, hints: Hints, name: str) -> Work:
    return forward(_apart(signature, name), hints, FUNCTIONS[_TOGETHER[name][0]])


def _together_node(signature: Signature, hints: Hints, name: str) -> Work:
    node = with_gradient(signature)
    apart = _apart(replace(node, args=node.args[1:]), name)
    return function_backward(replace(node, args=(node.args[0], *apart.args)), hints, FUNCTIONS[_TOGETHER[name][0]])


for _name in _TOGETHER:
    hinted_formula(_name, category="attention")(partial(_together, name=_name))
    hinted_formula(f"{_name}Backward", category="attention")(partial(_together_node, name=_name))

_PACKED: Final = "query key value cum_q cum_k"
_SHARED: Final = "grads_share_storage grad query key value out log_sum cum_q cum_k max_q max_k"
_WINDOW: Final = "dropout scale causal left right"
_SCALES: Final = "q_scale k_scale v_scale"
_ENDING: Final = "bias alibi with_log_sum debug"

_TRAINED: Final = {
    "xformers_flash::flash_fwd": Layout((f"{_PACKED} used_k max_q max_k dropout scale causal left right debug pages=None",)),
    "xformers_flash3::flash_fwd": Layout((
        f"{_PACKED} used_k pad_k max_q max_k dropout scale causal q_scale=None k_scale=None v_scale=None pages=None split=False"
        " left=-1 right=-1",
    )),
    "xformers::efficient_attention_forward_cutlass": Layout((
        "query key value bias cum_q cum_k max_q max_k dropout mask_type with_log_sum=False scale=None used_k=None window=None",
    )),
    "xformers::efficient_attention_forward_ck": Layout((
        "query key value bias cum_q cum_k max_q dropout with_log_sum mask_type scale used_k window pages=None page_size=None",
    )),
    "primus_turbo::attention_aiter_forward_impl": Layout((f"query key value {_WINDOW} {_ENDING} max_q=None max_k=None sinks=None",)),
    "primus_turbo::attention_aiter_csrc_forward_impl": Layout((f"query key value {_WINDOW} {_ENDING}",)),
    "primus_turbo::attention_aiter_varlen_forward_impl": Layout((f"{_PACKED} max_q max_k {_WINDOW} {_ENDING}",)),
    "primus_turbo::attention_triton_forward_impl": Layout((f"query key value p_scale {_SCALES} {_WINDOW} bias alibi debug fp8",)),
    "primus_turbo::flash_attn_varlen_flydsl_forward": Layout((f"{_PACKED} max_q max_k left with_log_sum sinks",), causal=True),
}  # fmt: skip
_TRAINED_BACKWARD: Final = {
    "xformers_flash::flash_bwd": Layout((f"{_SHARED} dropout scale causal left right seed",)),
    "xformers_flash3::flash_bwd": Layout((f"{_SHARED} scale causal left right",)),
    "xformers::efficient_attention_backward_cutlass": Layout((
        "grad query key value bias out cum_q cum_k max_q max_k log_sum dropout seed offset mask_type bias_needs_gradient scale=None"
        " splits=None window=None",
    )),
    "xformers::efficient_attention_backward_ck": Layout((
        "grad query key value bias cum_q cum_k max_q max_k used_k log_sum out dropout seed offset mask_type scale window",
    )),
    "primus_turbo::attention_aiter_backward_impl": Layout((f"{_GRADIENT} dq dk dv {_WINDOW} bias alibi deterministic seed",)),
    "primus_turbo::attention_aiter_csrc_backward_impl": Layout((f"{_GRADIENT} dq dk dv dbias {_WINDOW} bias alibi deterministic",)),
    "primus_turbo::attention_aiter_varlen_backward_impl": Layout((
        f"{_GRADIENT} dq dk dv cum_q cum_k max_q max_k {_WINDOW} alibi deterministic seed",
    )),
    "primus_turbo::attention_triton_backward_impl": Layout((
        f"grad query key value out {_SCALES} p_scale log_sum dq dk dv cum_q cum_k max_q max_k scale causal left right alibi fp8",
    )),
    "primus_turbo::flash_attn_varlen_flydsl_backward": Layout((f"{_GRADIENT} cum_q cum_k max_q max_k scale left",), causal=True),
}  # fmt: skip

for _layouts in (_TRAINED, _TRAINED_BACKWARD):
    _layouts.update({name.replace("xformers", "mslk"): layout for name, layout in _layouts.items() if "xformers_flash" in name})
register_layouts(_TRAINED, _TRAINED_BACKWARD)


def _batch_first(arg: Argument) -> Argument:
    """[s, b, h, d] as [b, s, h, d]."""
    if not isinstance(arg, TensorArg) or len(arg.shape) != 4:
        return arg
    sequence, batch, *rest = arg.shape
    return TensorArg((batch, sequence, *rest), arg.dtype)


# --- Primus-Turbo where the sequence comes first -----------------------------------------------------------------------------------

_SEQUENCE_FIRST: Final = Layout(("query key value left with_log_sum sinks",), causal=True)
_SEQUENCE_FIRST_BACKWARD: Final = Layout((f"{_GRADIENT} scale left",), causal=True)


@hinted_formula("primus_turbo::flash_attn_sbhd_flydsl_forward", category="attention")
def _sequence_first(signature: Signature, hints: Hints) -> Work:
    return forward(replace(signature, args=tuple(map(_batch_first, signature.args))), hints, _SEQUENCE_FIRST)


@hinted_formula("primus_turbo::flash_attn_sbhd_flydsl_backward", category="attention")
def _sequence_first_backward(signature: Signature, hints: Hints) -> Work:
    return backward(replace(signature, args=tuple(map(_batch_first, signature.args))), hints, _SEQUENCE_FIRST_BACKWARD)


# --- TransformerEngine -------------------------------------------------------------------------------------------------------------

_FIRST: Final = "training max_q max_k ends_q ends_k padded_q padded_k"
_REST: Final = "query key value bias=None scale=None dropout=0.0"
_SCHEMAS: Final = (f"{_FIRST} pages value_pages {_REST}", f"{_FIRST} {_REST}")  # the second before paged caches
_FIXED: Final = Layout(_SCHEMAS, causal=True, assumption=f"a causal mask, {NO_WINDOW}")
_OF_ENDS: Final = replace(_FIXED, schemas=tuple(schema.replace("ends_", "cum_") for schema in _SCHEMAS))
_ENDS: Final = 3


@hinted_formula("FusedAttnFunc", category="attention")
def _fused(signature: Signature, hints: Hints) -> Work:
    """Forward: two products, and the rows' log-sum-exp for the backward."""
    return forward(*_told_apart(signature, hints, signature.arg(_ENDS)))


@hinted_formula("FusedAttnFuncBackward", category="attention")
def _fused_backward(signature: Signature, hints: Hints) -> Work:
    """Five products; the gradient is that of the result."""
    signature = with_gradient(signature)
    return function_backward(*_told_apart(signature, hints, signature.arg(1 + _ENDS)))


def _told_apart(signature: Signature, hints: Hints, ends: Argument) -> tuple[Signature, Hints, Layout]:
    """The call with the batch first, and its layout; ``ends`` has one number more than there are sequences."""

    def other(arg: Argument) -> bool:
        return isinstance(arg, TensorArg) and isinstance(ends, TensorArg) and arg.shape[:1] != (ends.numel - 1,)

    args = tuple(_batch_first(arg) if other(arg) else arg for arg in signature.args)
    fixed = any(isinstance(arg, TensorArg) and len(arg.shape) == 4 for arg in args)
    return replace(signature, args=args), hints, _FIXED if fixed else _OF_ENDS


_FBGEMM_FORWARD: Final = (
    "query key value cum_q=None cum_k=None max_q=None max_k=None scale=None causal=False used_k=None pages=None longest=None left=-1"
    " right=-1 lower_right=True"
)
_FBGEMM_BACKWARD: Final = (
    "grad query key value out log_sum cum_q=None cum_k=None max_q=None max_k=None scale=None causal=False left=-1 right=-1"
    " lower_right=True deterministic=False"
)
_CACHE: Final = "query key value used_k scale"

register_layouts(
    {
        **dict.fromkeys(
            ("fbgemm::fmha_fwd", "fbgemm::cutlass_blackwell_fmha_fwd", "blackwell_fmha::fmha_fwd"), Layout((_FBGEMM_FORWARD,))
        ),
        "fbgemm::fmha_gen_fwd": Layout(("query key value used_k batch=None kernel=0 left=-1 right=-1 split=1024",)),
        "fbgemm::gqa_attn_splitk": Layout((f"{_CACHE} splits groups=1 tensor_cores=True dtype=0",), log_sum=False),
        "fbgemm::mqa_attn": Layout((f"{_CACHE} groups=1 dtype=0 k_parameters=None v_parameters=None",), log_sum=False),
    },
    {
        **dict.fromkeys(
            ("fbgemm::fmha_bwd", "fbgemm::cutlass_blackwell_fmha_bwd", "blackwell_fmha::fmha_bwd"), Layout((_FBGEMM_BACKWARD,))
        ),
        "mslk_flydsl::fmha_bwd": Layout(("query key value out log_sum grad scale causal cum_q=None cum_k=None",)),
    },
)

# --- HSTU --------------------------------------------------------------------------------------------------------------------------

_FBGEMM_LENGTHS: Final = "cum_q cum_k used_q used_k max_q max_k length=-1"
_MASK: Final = "contexts=None targets=None targets_of_group=1 left=-1 right=-1 alpha=1.0"
_GRADIENTS: Final = "dq=None dk=None dv=None"
_HSTU: Final = {
    "fbgemm::hstu_varlen_fwd_80": f"query key value {_FBGEMM_LENGTHS} {_MASK} bias=None func=None cache=None",
    "fbgemm::hstu_varlen_fwd_90": f"query key value {_FBGEMM_LENGTHS} {_MASK} bias=None func=None",
    "fbgemm::hstu_varlen_bwd_80": f"grad query key value {_FBGEMM_LENGTHS} {_GRADIENTS} {_MASK} bias=None bias_needs_gradient=False"
    " func=None",
    "fbgemm::hstu_varlen_bwd_90": f"grad grad_t query query_t key key_t value {_FBGEMM_LENGTHS} {_GRADIENTS} {_MASK} mode=-1 bias=None"
    " bias_needs_gradient=False func=None",
}
_TARGETS: Final = "no context and no targets apart from the sequence"
_BACKWARD_COST: Final = 6  # divide the gradient, s + y * (1 - s) times it, scale


def _hstu(signature: Signature, hints: Hints, schema: str) -> Work:
    """silu(q @ k^T * alpha + bias) / length @ v; nothing is kept for the backward, which makes the scores again."""
    args = Arguments(signature, schema)
    if args.optional("func") is not None or args.optional("cache") is not None:
        raise NotCounted("no formula for attention in a form that a tensor says, or over pages")
    back = args.has("grad")
    work = (backward if back else forward)(signature, hints, Layout((schema,), log_sum=False))
    depth, value_depth = args.tensor("query").shape[-1], args.tensor("value").shape[-1]
    pairs = work.matrix_flops // (2 * (3 * depth + 2 * value_depth) if back else 2 * (depth + value_depth))
    cost = 2 + SILU + (args.optional("bias") is not None) + back * _BACKWARD_COST
    masked = any(args.optional(name) is not None for name in ("contexts", "targets"))
    assumption = "; ".join(filter(None, (work.assumption, _TARGETS * masked)))
    return replace(work, other_flops=pairs * cost, assumption=assumption)


for _name, _schema in _HSTU.items():
    hinted_formula(_name, category="attention")(partial(_hstu, schema=_schema))

_TILES: Final = "q_tile k_tile"
_NATTEN_PACKED: Final = "cum_q cum_k max_q max_k"
_SAVED: Final = "query key value out grad log_sum"

register_layouts(
    {
        "natten::fmha_forward": Layout((f"query key value causal scale {_TILES} {_NATTEN_PACKED}",)),
        "natten::hopper_fmha_forward": Layout((f"query key value causal scale {_TILES} schedule {_NATTEN_PACKED}",)),
        "natten::blackwell_fmha_forward": Layout((f"query key value causal scale {_TILES} persistent {_NATTEN_PACKED}",)),
    },
    {
        "natten::fmha_backward": Layout((f"{_SAVED} causal scale {_TILES} splits delta {_NATTEN_PACKED}",)),
        "natten::hopper_fmha_backward": Layout((f"{_SAVED} causal scale {_TILES} {_NATTEN_PACKED}",)),
        "natten::blackwell_fmha_backward": Layout((f"{_SAVED} causal scale {_TILES} {_NATTEN_PACKED}",)),
    },
)

_NEIGHBORS: Final = "kernel stride dilation causal scale"
_TILED: Final = f"{_NEIGHBORS} q_shape k_shape layout"


def _along(extent: int, kernel: int, stride: int, dilation: int, causal: bool) -> int:
    """Pairs along one dimension: each token with its neighborhood, or with as much of it as is before it among the tokens of its
    dilation."""
    if not causal:
        return extent * kernel
    if stride != 1:
        raise NotCounted("a causal neighborhood that several tokens share")
    whole = 0
    for first in range(min(dilation, extent)):
        tokens = -(-(extent - first) // dilation)
        some = min(tokens, kernel)
        whole += some * (some + 1) // 2 + (tokens - some) * kernel
    return whole


def _sizes(args: Arguments, rank: int) -> Attention:
    query, value = args.tensor("query"), args.tensor("value")
    kernel, stride, dilation = (args.integers(name, rank) for name in ("kernel", "stride", "dilation"))
    causal = args.mask("causal", rank)
    if args.has("layout"):
        layout, batch = args.sizes("layout"), query.shape[0] // prod(dilation)
    else:
        layout, batch = query.shape[1:-2], query.shape[0]
    if len(layout) != rank:
        raise NotCounted("shapes not understood")
    pairs = prod(_along(*sizes) for sizes in zip(layout, kernel, stride, dilation, causal, strict=True))
    return Attention(batch * query.shape[-2] * pairs, query.shape[-1], value.shape[-1])


def _forward(signature: Signature, rank: int, schema: str) -> Work:
    """[batch, tokens of each dimension, heads, depth], or in tiles [batches, tokens, heads, depth]."""
    args = Arguments(signature, f"query key value {schema}")
    query, key, value = args.tensor("query"), args.tensor("key"), args.tensor("value")
    sizes = _sizes(args, rank)
    return Work(
        matrix_flops=sizes.flops,
        other_flops=sizes.pairs * (1 + SOFTMAX),
        bytes_read=size(query, key, value),
        bytes_written=prod(query.shape[:-1]) * (value.shape[-1] * size_of(query.dtype) + 4),
        precision=matrix_precision_of(query.dtype),
    )


def _backward(signature: Signature, rank: int, schema: str) -> Work:
    args = Arguments(signature, f"{_SAVED} {schema}")
    return backward_work(args, _sizes(args, rank))


def _permute(signature: Signature, rank: int) -> Work:
    """Into whole tiles of each group of the dilation, the rest of which is padding."""
    args = Arguments(signature, "self tile dilation flip")
    inputs, tile, dilation = args.tensor("self"), args.integers("tile", rank), args.integers("dilation", rank)
    tiles = [-(-extent // one) for extent, one in zip(inputs.shape[1:-2], tile, strict=True)]
    padded = prod(-(-count // group) * group * one for count, group, one in zip(tiles, dilation, tile, strict=True))
    return Work(bytes_read=size(inputs), bytes_written=written(inputs) // max(prod(inputs.shape[1:-2]), 1) * padded)


def _unpermute(signature: Signature, rank: int) -> Work:
    args = Arguments(signature, "self layout tile dilation")
    inputs, dilation = args.tensor("self"), args.integers("dilation", rank)
    tokens = inputs.shape[0] // prod(dilation) * prod(args.sizes("layout"))
    moved = tokens * prod(inputs.shape[-2:]) * size_of(inputs.dtype)
    return Work(bytes_read=moved, bytes_written=moved)


for _rank in (1, 2, 3):
    for _kind, _schema in (("", _NEIGHBORS), ("hopper_", _TILED), ("blackwell_", _TILED)):
        formula(f"natten::{_kind}na{_rank}d_forward", category="attention")(partial(_forward, rank=_rank, schema=_schema))
        formula(f"natten::{_kind}na{_rank}d_backward", category="attention")(partial(_backward, rank=_rank, schema=_schema))
    formula(f"natten::token_permute_{_rank}d", category="copy")(partial(_permute, rank=_rank))
    formula(f"natten::token_unpermute_{_rank}d", category="copy")(partial(_unpermute, rank=_rank))
