"""Attention of xformers, Primus-Turbo and TransformerEngine (that of flash-attn itself is in ``flash_attention.py``).

Orders of arguments of xformers: facebookresearch/xformers 0362871 (xformers/ops/fmha/flash.py), 720adff (xformers/ops/fmha/flash3.py),
ca6d2aa (xformers/csrc/attention/attention.cpp, for Composable Kernel) and 3d947a6~1 (the same file, for CUTLASS, which is a part of
PyTorch since). Later versions take their attention from MSLK (meta-pytorch/MSLK 2a3c897: mslk/attention/fmha), which registers its
flash attention in namespaces of its own. The split-k kernels are Triton's and have no operator; what joins their partial results takes
lists of tensors.

Primus-Turbo, around the kernels of AITER, Triton and FlyDSL: AMD-AGI/Primus-Turbo a6a16cd (primus_turbo/pytorch/kernels/attention), of
earlier versions 8402031 (September 2025). Its ``FlashAttnFunc`` is that of flash-attn with a bias before the slopes of ALiBi. Where an
operator of AITER is below, that one counts.

TransformerEngine (cuDNN), autograd's ``FusedAttnFunc``, below which pybind leaves no event: NVIDIA/TransformerEngine d0067d0
(transformer_engine/pytorch/attention/dot_product_attention/backends.py). Kind of mask and layout are strings, which traces leave out:
tensors are [b, s, h, d] or [s, b, h, d], told apart by the number of sequences, or packed. Its attention through flash-attn is counted
by the operators of that library.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas.packed_attention import (
    NO_WINDOW,
    Layout,
    backward,
    forward,
    function_backward,
    gradient_first,
    register_layouts,
)
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, hinted_formula

_PACKED: Final = "query key value cum_q cum_k"
_SHARED: Final = "grads_share_storage grad query key value out log_sum cum_q cum_k max_q max_k"
_GRADIENT: Final = "grad query key value out log_sum"
_OPTIONS: Final = "dropout scale causal left right"
_SCALES: Final = "q_scale k_scale v_scale"
_END: Final = "bias alibi with_log_sum debug"

FORWARD: Final = {
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
    "primus_turbo::attention_aiter_forward_impl": Layout((f"query key value {_OPTIONS} {_END} max_q=None max_k=None sinks=None",)),
    "primus_turbo::attention_aiter_csrc_forward_impl": Layout((f"query key value {_OPTIONS} {_END}",)),
    "primus_turbo::attention_aiter_varlen_forward_impl": Layout((f"{_PACKED} max_q max_k {_OPTIONS} {_END}",)),
    "primus_turbo::attention_triton_forward_impl": Layout((f"query key value p_scale {_SCALES} {_OPTIONS} bias alibi debug fp8",)),
    "primus_turbo::flash_attn_varlen_flydsl_forward": Layout((f"{_PACKED} max_q max_k left with_log_sum sinks",), causal=True),
}  # fmt: skip
BACKWARD: Final = {
    "xformers_flash::flash_bwd": Layout((f"{_SHARED} dropout scale causal left right seed",)),
    "xformers_flash3::flash_bwd": Layout((f"{_SHARED} scale causal left right",)),
    "xformers::efficient_attention_backward_cutlass": Layout((
        "grad query key value bias out cum_q cum_k max_q max_k log_sum dropout seed offset mask_type bias_needs_gradient scale=None"
        " splits=None window=None",
    )),
    "xformers::efficient_attention_backward_ck": Layout((
        "grad query key value bias cum_q cum_k max_q max_k used_k log_sum out dropout seed offset mask_type scale window",
    )),
    "primus_turbo::attention_aiter_backward_impl": Layout((f"{_GRADIENT} dq dk dv {_OPTIONS} bias alibi deterministic seed",)),
    "primus_turbo::attention_aiter_csrc_backward_impl": Layout((f"{_GRADIENT} dq dk dv dbias {_OPTIONS} bias alibi deterministic",)),
    "primus_turbo::attention_aiter_varlen_backward_impl": Layout((
        f"{_GRADIENT} dq dk dv cum_q cum_k max_q max_k {_OPTIONS} alibi deterministic seed",
    )),
    "primus_turbo::attention_triton_backward_impl": Layout((
        f"grad query key value out {_SCALES} p_scale log_sum dq dk dv cum_q cum_k max_q max_k scale causal left right alibi fp8",
    )),
    "primus_turbo::flash_attn_varlen_flydsl_backward": Layout((f"{_GRADIENT} cum_q cum_k max_q max_k scale left",), causal=True),
}  # fmt: skip

for _layouts in (FORWARD, BACKWARD):
    _layouts.update({name.replace("xformers", "mslk"): layout for name, layout in _layouts.items() if "xformers_flash" in name})
register_layouts(FORWARD, BACKWARD)


def _batch_first(arg: Argument) -> Argument:
    """[s, b, h, d] as [b, s, h, d]."""
    if not isinstance(arg, TensorArg) or len(arg.shape) != 4:
        return arg
    sequence, batch, *rest = arg.shape
    return TensorArg((batch, sequence, *rest), arg.dtype)


# --- Primus-Turbo where the sequence comes first -----------------------------------------------------------------------------------

_FORWARD: Final = Layout(("query key value left with_log_sum sinks",), causal=True)
_BACKWARD: Final = Layout((f"{_GRADIENT} scale left",), causal=True)


@hinted_formula("primus_turbo::flash_attn_sbhd_flydsl_forward", category="attention")
def _sequence_first(signature: Signature, hints: Hints) -> Work:
    return forward(replace(signature, args=tuple(map(_batch_first, signature.args))), hints, _FORWARD)


@hinted_formula("primus_turbo::flash_attn_sbhd_flydsl_backward", category="attention")
def _sequence_first_backward(signature: Signature, hints: Hints) -> Work:
    return backward(replace(signature, args=tuple(map(_batch_first, signature.args))), hints, _BACKWARD)


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
    signature = gradient_first(signature)
    return function_backward(*_told_apart(signature, hints, signature.arg(1 + _ENDS)))


def _told_apart(signature: Signature, hints: Hints, ends: Argument) -> tuple[Signature, Hints, Layout]:
    """The call with the batch first, and its layout; ``ends`` has one number more than there are sequences."""

    def other(arg: Argument) -> bool:
        return isinstance(arg, TensorArg) and isinstance(ends, TensorArg) and arg.shape[:1] != (ends.numel - 1,)

    args = tuple(_batch_first(arg) if other(arg) else arg for arg in signature.args)
    fixed = any(isinstance(arg, TensorArg) and len(arg.shape) == 4 for arg in args)
    return replace(signature, args=args), hints, _FIXED if fixed else _OF_ENDS
