"""flash-attn 2, 3 and 4, and the copies of them in vLLM and SGLang.

Orders of arguments: Dao-AILab/flash-attention 0251105 (flash_attn/flash_attn_interface.py of version 2, hopper/flash_api.cpp and
hopper/flash_attn_interface.py of version 3, flash_attn/cute/interface.py of version 4, which registers no operator, and f8b4f15 and
9aadb8b of the latter); vllm-project/flash-attention 1ed425a (csrc/flash_attn/flash_api_torch_lib.cpp) and
19e0e74 (hopper/flash_api_torch_lib.cpp); sgl-project/sglang 150ab2c (sgl-kernel/csrc/flash_extension.cc);
huggingface/kernels-community 0774fcc (flash-attn2/torch-ext/torch_binding.cpp); huggingface/diffusers
(src/diffusers/models/attention_dispatch.py). The functions of version 2 that Python calls through pybind leave no event: in a trace of
a version before 2.7 there is only autograd's ``FlashAttnFunc``.

Masks are aligned with the last query and key. A window holds ``left`` keys before a query's own place and ``right`` after it. Both
versions return the rows' log-sum-exp. Their backward computes the scores again: 5 products, 2.5 times the forward's
(benchmarks/benchmark_flash_attention.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.packed_attention import NO_WINDOW, Layout, forward, function_backward, gradient_first, register_layouts
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, hinted_formula

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
    return function_backward(gradient_first(signature), hints, layout)


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
    node = gradient_first(signature)
    apart = _apart(replace(node, args=node.args[1:]), name)
    return function_backward(replace(node, args=(node.args[0], *apart.args)), hints, FUNCTIONS[_TOGETHER[name][0]])


for _name in _TOGETHER:
    hinted_formula(_name, category="attention")(partial(_together, name=_name))
    hinted_formula(f"{_name}Backward", category="attention")(partial(_together_node, name=_name))
