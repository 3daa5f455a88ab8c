"""Attention of Primus-Turbo, around the kernels of AITER, Triton and FlyDSL.

Order of arguments: AMD-AGI/Primus-Turbo a6a16cd (primus_turbo/pytorch/kernels/attention), of earlier versions 8402031 (September
2025). Its ``FlashAttnFunc`` is that of flash-attn with a bias before the slopes of ALiBi. Where an operator of AITER is below, that one
counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas.packed_attention import Layout, backward, forward, register
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.table import Hints, hinted_formula

_OPTIONS: Final = "dropout scale causal left right"
_PACKED: Final = "query key value cum_q cum_k max_q max_k"
_GRADIENT: Final = "grad query key value out log_sum"
_SCALES: Final = "q_scale k_scale v_scale"
_END: Final = "bias alibi with_log_sum debug"

FORWARD: Final = {
    "primus_turbo::attention_aiter_forward_impl": Layout((f"query key value {_OPTIONS} {_END} max_q=None max_k=None sinks=None",)),
    "primus_turbo::attention_aiter_csrc_forward_impl": Layout((f"query key value {_OPTIONS} {_END}",)),
    "primus_turbo::attention_aiter_varlen_forward_impl": Layout((f"{_PACKED} {_OPTIONS} {_END}",)),
    "primus_turbo::attention_triton_forward_impl": Layout((f"query key value p_scale {_SCALES} {_OPTIONS} bias alibi debug fp8",)),
    "primus_turbo::flash_attn_varlen_flydsl_forward": Layout((f"{_PACKED} left with_log_sum sinks",), causal=True),
}
BACKWARD: Final = {
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

register(FORWARD, BACKWARD)

# Tensors are [s, b, h, d].
_FORWARD: Final = Layout(("query key value left with_log_sum sinks",), causal=True)
_BACKWARD: Final = Layout((f"{_GRADIENT} scale left",), causal=True)


def _batch_first(arg: Argument) -> Argument:
    if not isinstance(arg, TensorArg) or len(arg.shape) != 4:
        return arg
    sequence, batch, *rest = arg.shape
    return TensorArg((batch, sequence, *rest), arg.dtype)


@hinted_formula("primus_turbo::flash_attn_sbhd_flydsl_forward", category="attention")
def _sequence_first(signature: Signature, hints: Hints) -> Work:
    return forward(replace(signature, args=tuple(map(_batch_first, signature.args))), hints, _FORWARD)


@hinted_formula("primus_turbo::flash_attn_sbhd_flydsl_backward", category="attention")
def _sequence_first_backward(signature: Signature, hints: Hints) -> Work:
    return backward(replace(signature, args=tuple(map(_batch_first, signature.args))), hints, _BACKWARD)
