"""Attention of xformers.

Orders of arguments: facebookresearch/xformers 0362871 (xformers/ops/fmha/flash.py), 720adff (xformers/ops/fmha/flash3.py), ca6d2aa
(xformers/csrc/attention/attention.cpp, for Composable Kernel) and 3d947a6~1 (the same file, for CUTLASS, which is a part of PyTorch
since). Later versions take their attention from MSLK (meta-pytorch/MSLK 2a3c897: mslk/attention/fmha), which registers its flash
attention in namespaces of its own. The split-k kernels are Triton's and have no operator; what joins their partial results takes lists
of tensors.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.packed_attention import Layout, register

_PACKED: Final = "query key value cum_q cum_k"
_GRADIENT: Final = "grads_share_storage grad query key value out log_sum cum_q cum_k max_q max_k"

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
}  # fmt: skip

BACKWARD: Final = {
    "xformers_flash::flash_bwd": Layout((f"{_GRADIENT} dropout scale causal left right seed",)),
    "xformers_flash3::flash_bwd": Layout((f"{_GRADIENT} scale causal left right",)),
    "xformers::efficient_attention_backward_cutlass": Layout((
        "grad query key value bias out cum_q cum_k max_q max_k log_sum dropout seed offset mask_type bias_needs_gradient scale=None"
        " splits=None window=None",
    )),
    "xformers::efficient_attention_backward_ck": Layout((
        "grad query key value bias cum_q cum_k max_q max_k used_k log_sum out dropout seed offset mask_type scale window",
    )),
}  # fmt: skip

for _layouts in (FORWARD, BACKWARD):
    _layouts.update({name.replace("xformers", "mslk"): layout for name, layout in _layouts.items() if "_flash" in name})
register(FORWARD, BACKWARD)
