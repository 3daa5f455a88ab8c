"""Attention of FBGEMM and MSLK: on Blackwell, over KV caches, and the attention of HSTU, which has no softmax.

Order of arguments: FBGEMM 71d6f8b22 (``fbgemm_gpu/experimental/gen_ai/src/attention/cuda``, ``fbgemm_gpu/experimental/hstu/src``), MSLK
2a3c897 (``csrc/attention/cuda/cutlass_blackwell_fmha``, ``mslk/attention``); a layer of MSLK in Python calls the same operators in the
namespace ``mslk``. How many of a sequence's last items are targets, which do not see one another, is data.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted
from rooflines.roofline.formulas.costs import SILU
from rooflines.roofline.formulas.packed_attention import Layout, backward, forward, register_layouts
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, hinted_formula

_FORWARD: Final = (
    "query key value cum_q=None cum_k=None max_q=None max_k=None scale=None causal=False used_k=None pages=None longest=None left=-1"
    " right=-1 lower_right=True"
)
_BACKWARD: Final = (
    "grad query key value out log_sum cum_q=None cum_k=None max_q=None max_k=None scale=None causal=False left=-1 right=-1"
    " lower_right=True deterministic=False"
)
_CACHE: Final = "query key value used_k scale"

register_layouts(
    {
        **dict.fromkeys(("fbgemm::fmha_fwd", "fbgemm::cutlass_blackwell_fmha_fwd", "blackwell_fmha::fmha_fwd"), Layout((_FORWARD,))),
        "fbgemm::fmha_gen_fwd": Layout(("query key value used_k batch=None kernel=0 left=-1 right=-1 split=1024",)),
        "fbgemm::gqa_attn_splitk": Layout((f"{_CACHE} splits groups=1 tensor_cores=True dtype=0",), log_sum=False),
        "fbgemm::mqa_attn": Layout((f"{_CACHE} groups=1 dtype=0 k_parameters=None v_parameters=None",), log_sum=False),
    },
    {
        **dict.fromkeys(("fbgemm::fmha_bwd", "fbgemm::cutlass_blackwell_fmha_bwd", "blackwell_fmha::fmha_bwd"), Layout((_BACKWARD,))),
        "mslk_flydsl::fmha_bwd": Layout(("query key value out log_sum grad scale causal cum_q=None cum_k=None",)),
    },
)

# --- HSTU --------------------------------------------------------------------------------------------------------------------------

_LENGTHS: Final = "cum_q cum_k used_q used_k max_q max_k length=-1"
_MASK: Final = "contexts=None targets=None targets_of_group=1 left=-1 right=-1 alpha=1.0"
_GRADIENTS: Final = "dq=None dk=None dv=None"
_HSTU: Final = {
    "fbgemm::hstu_varlen_fwd_80": f"query key value {_LENGTHS} {_MASK} bias=None func=None cache=None",
    "fbgemm::hstu_varlen_fwd_90": f"query key value {_LENGTHS} {_MASK} bias=None func=None",
    "fbgemm::hstu_varlen_bwd_80": f"grad query key value {_LENGTHS} {_GRADIENTS} {_MASK} bias=None bias_needs_gradient=False func=None",
    "fbgemm::hstu_varlen_bwd_90": f"grad grad_t query query_t key key_t value {_LENGTHS} {_GRADIENTS} {_MASK} mode=-1 bias=None"
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
