"""Mamba's selective scans and causal convolutions, and a recurrence of flash-linear-attention, as autograd functions around Triton
kernels and as operators, those of servers too.

Products that ``MambaInnerFn`` makes in between belong to it; Mamba 2's functions have no formula, and what is below them counts by
itself. Linear attention and delta rules of flash-linear-attention have none either: no trace or call has shown what their arguments
say. Servers pack sequences along the last dimension; their states lie in a cache, of which each sequence reads and writes one slot.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.libraries.norms import register_norms
from rooflines.roofline.formulas.tables import table

_STORED: Final = "every sequence has a state"
_SLOTS: Final = "(slots.n if slots else starts.n - 1 if starts else u[0]) * a.n * states.item"


_SILU: Final = "x.n * SILU * bool(silu)"
_WEIGHT: Final = "read weight[*depth taps], read bias?"
# The last steps of each sequence.
_STEPS: Final = "x[0] * weight.n * x.item"

register_norms("LayerNormFn", rms=None)  # mamba-ssm's and flash-attn's, with a residual or a gate of the input's shape


_TABLE: Final = f"""
[other functions]
# u, delta [batch, depth, steps], A [depth, states], B, C, and perhaps D [depth], a gate z like u, the bias of delta [depth]. Of each
# state and step: exp(delta * A) 11, (delta * u) * B 1, h * a + b 2, the sum of C * h 2. States are kept after 2048 steps.
SelectiveScanFn: read u[batch depth steps], read delta, read a[=depth states], read b, read c, read d[=depth]?,
    read z[=batch =depth =steps]?, read bias[=depth]?, read rest*; kept = batch * depth * up(steps, 2048) * states * 2 * 4;
    other = u.n * (states * (TRANSCENDENTAL + 6) + 2 * (len(d) + len(bias)) + (SILU + 1) * len(z));
    writes = u.n * u.item * (1 + len(z)) + kept; precision = fp32
# The states again 14; of C 2, of h 3, of B 2, of delta * u 2, of a 1, of A 3, of delta 2. Reads the result too, if there is a gate.
SelectiveScanFnBackward: read grad, update u[batch depth steps], update delta, update a[=depth states], update b, update c,
    update d[=depth]?, update z[=batch =depth =steps]?, update bias[=depth]?, update rest*;
    other = u.n * (states * (TRANSCENDENTAL + 19) + (SILU + 7) * len(z)); precision = fp32;
    also = u.n * u.item * len(z) + batch * depth * up(steps, 2048) * states * 2 * 4
[matmul functions]
# xz [batch, 2 * depth, steps], the convolution [depth, 1, taps] and its bias, the projections to (delta, B, C), of delta, and back,
# A [depth, states], and small tensors. Back two products for each of the forward's.
MambaInnerFn: read xz[batch wide steps], read taps, read bias[_]?, read in_proj[in_n in_k], read delta_proj[delta_n delta_k],
    read out_proj[out_n out_k], read out_bias[_out]?, read a[depth states], read rest*; rows = batch * steps;
    scanned = rows * taps[0]; products = 2 * rows * (in_proj.n + delta_proj.n + out_proj.n) + 2 * scanned * taps[-1];
    matrix = products; other = scanned * (states * (TRANSCENDENTAL + 6) + SOFTPLUS + 4 + 2 * SILU); writes = rows * out_n * xz.item
MambaInnerFnBackward like MambaInnerFn: read grad, update xz[batch wide steps], update taps, update bias[_]?,
    update in_proj[in_n in_k], update delta_proj[delta_n delta_k], update out_proj[out_n out_k], update out_bias[_out]?,
    update a[depth states], update rest*; matrix = 2 * products; writes = ;
    other = scanned * (states * (TRANSCENDENTAL + 19) + 14 + 2 * SILU)
[attention functions]
# h = exp(g) * h + x, channel by channel; back the same from the end, and g: that times exp(g) * h.
ChunkHGRNFunction FusedRecurrentHGRNFunction: read x, read gate, read rest*=() -> x; cost = TRANSCENDENTAL + 2; per = x
ChunkHGRNFunctionBackward FusedRecurrentHGRNFunctionBackward: read grad, update x, update gate; cost = TRANSCENDENTAL + 4; per = x;
    reads = grad.size + gate.size + x.n * x.item; precision = x
[other]
# Inputs [channels, tokens] or [batch, channels, tokens], A [channels, states]; the result replaces ``delta`` or ``z``.
_C::selective_scan_fwd: read u, read delta, read a, read b, read c, read d?, read z?, read bias?, softplus, read starts?,
    read slots?, initial, read states -> u;
    other = u.n * (a[-1] * (TRANSCENDENTAL + 6) + 1 + 2 * bool(d) + bool(bias) + (SILU + 1) * bool(z) + SOFTPLUS * bool(softplus));
    reads = u.size + delta.size + a.size + b.size + c.size + d.size + z.size + bias.size + {_SLOTS}; writes = {_SLOTS};
    assumption = {_STORED}
[convolution wraps functions]
# A tap of each channel for each step before it: [batch, depth, steps] with [depth, taps]. Up to causal-conv1d 1.4 these functions call
# their kernel; later versions have an operator, below. ``...Function`` is that of flash-linear-attention (bc3b101, fla/modules/conv).
CausalConv1dFn CausalConv1dFunction: read x, read weight[depth taps], read rest*=() -> x; matrix = 2 * x.n * taps
CausalConv1dFnBackward CausalConv1dFunctionBackward: read grads*, update x, update weight[depth taps], update bias?, read rest*=();
    matrix = 4 * x.n * taps; precision = x
[convolution]
DaoAILab::_causal_conv1d_fwd_cpp: read x, {_WEIGHT}, read seq_idx?, read initial_states?, write out?, write final_states_out?, silu;
    matrix = 2 * x.n * taps; other = {_SILU}
DaoAILab::_causal_conv1d_bwd_cpp: read x, {_WEIGHT}, read dout?, read seq_idx?, read initial_states?, read dfinal_states?, write dx?,
    write dweight?, write dbias?, write dinitial_states?, silu; matrix = 4 * x.n * taps; other = {_SILU}
# Shifts the steps that it keeps, and adds one.
DaoAILab::_causal_conv1d_update_cpp: read x, conv_state, {_WEIGHT}, write out?, silu, read cache_seqlens?, read conv_state_indices?;
    matrix = 2 * x.n * taps; other = {_SILU};
    reads = x.size + weight.size + bias.size + cache_seqlens.size + conv_state_indices.size + {_STEPS}; writes = {_STEPS}
[convolution sgl_kernel:: sglang::mamba_ trtllm::]
# Each channel with a filter of its own, [channels, width], in place; perhaps a SiLU. The last inputs are the next call's state.
causal_conv1d_update: update x, view states?, read weight[channels width], read bias?, silu, lengths=None, view slots?;
    kept = (slots.n if slots else x[0]) * channels * (width - 1) * states.item; matrix = 2 * x.n * width;
    other = x.n * (bool(bias) + SILU * bool(silu)); also = kept; writes = kept; assumption = {_STORED}; given = states
causal_conv1d_fwd like causal_conv1d_update: update x, read weight[channels width], read bias?, view states?, view starts?,
    view slots?, initial, silu;
    kept = (slots.n if slots else starts.n - 1 if starts else x[0]) * channels * (width - 1) * states.item
"""
table(_TABLE)
