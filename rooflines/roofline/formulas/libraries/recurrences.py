"""Linear attention, delta rules and recurrences of flash-linear-attention, and Mamba's selective scans and causal convolutions, as
autograd functions around Triton kernels and as operators, those of servers too.

Queries and keys are [batch, steps, heads, depth], values perhaps of more heads. Within a chunk of 64 steps everything is a product of
matrices below a diagonal; each chunk hands its state [depth, depth of the values] on to the next. States and triangles that a function
keeps for its backward are not counted. Its backward computes every product again, and two for each. Products that ``MambaInnerFn``
makes in between belong to it; Mamba 2's functions have no formula, and what is below them counts by itself. ``FusedRecurrentFunction``
has none: it is the name of three recurrences, and no trace or call has shown how to tell them apart.
Servers pack sequences along the last dimension; their states lie in a cache, of which each sequence reads and writes one slot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted
from rooflines.roofline.formulas.libraries.norms import register_norms
from rooflines.roofline.formulas.nodes import gradients_and_forward
from rooflines.roofline.formulas.tables import table


def _told(tensors: tuple[TensorArg, ...]) -> TensorArg | None:
    """Where packed sequences end, an integer tensor behind queries, keys and values, which come first."""
    if len(tensors) < 3 or any(len(one.shape) != 4 for one in tensors[:3]):
        raise NotCounted("shapes not recorded")
    return next((one for one in tensors[3:] if one.dtype.startswith("int") and len(one.shape) == 1), None)


def chunks(signature: Signature) -> Signature:
    """The gradients of a node as a list, the steps of a chunk, which recent versions have as their last argument, whether the last
    state is asked for, where packed sequences end, queries, keys, values, and a list of the rest."""
    gradients, call = gradients_and_forward(signature)
    tensors, last = call.tensors, call.args[-1]
    packed = _told(tensors)
    if packed is None and tensors[2].shape[1] < tensors[2].shape[2]:
        raise NotCounted("fewer steps than heads: the heads may be before the steps")
    chunk = last if type(last) is int and 16 <= last <= 256 else 64
    asked = next((one for one in call.args if isinstance(one, bool)), False)
    return replace(signature, args=(gradients, chunk, asked, packed, *tensors[:3], tensors[3:]))


_STORED: Final = "every sequence has a state"
_SLOTS: Final = "(slots.n if slots else starts.n - 1 if starts else u[0]) * a.n * states.item"


_SILU: Final = "x.n * SILU * bool(silu)"
_WEIGHT: Final = "read weight[*depth taps], read bias?"
# The last steps of each sequence.
_STEPS: Final = "x[0] * weight.n * x.item"

register_norms("LayerNormFn", rms=None)  # mamba-ssm's and flash-attn's, with a residual or a gate of the input's shape


_TABLE: Final = f"""
[attention chunks]
# Within a chunk, triangles of pairs meet the depth of the keys (q k^T) and of the values (that times v); products with the state: q h,
# k^T v; triangles that are inverted or multiplied; FLOPs for each pair and for each number of the keys. Back all of it again, and two
# products for each.
ChunkLinearAttentionFunction ChunkLinearAttentionFunctionBackward FusedChunkLinearAttentionFunction
    FusedChunkLinearAttentionFunctionBackward: read grads*, chunk, asked, view packed?, read q, read k,
    read v[batch steps heads depth], read rest*; keys = 1; values = 1; states = 2; inverses = 0; gate = 0; channel_gate = 0;
    whole = steps // chunk; left = steps % chunk; times = 3 if grads else 1; tokens = batch * steps * heads;
    pairs = batch * heads * (whole * (chunk * (chunk + 1) // 2) + left * (left + 1) // 2);
    inverted = batch * heads * (whole * (chunk * (chunk - 1) * (chunk - 2) // 3) + left * (left - 1) * (left - 2) // 3);
    products = 2 * pairs * (keys * k[-1] + values * depth) + inverses * inverted + states * 2 * tokens * k[-1] * depth;
    matrix = times * products; other = times * (pairs * gate + tokens * k[-1] * channel_gate); precision = q;
    last = asked * (packed.n - 1 if packed else batch) * heads * k[-1] * depth;
    gradients = sum(written(one) for one in rest.tensors if floating(one)) + q.n * q.item + k.n * k.item + v.n * v.item;
    writes = gradients if grads else tokens * depth * q.item + 4 * last; assumption = packed sequences fill their chunks;
    given = packed
# exp(g_i - g_j), and the product with it.
ChunkRetentionFunction FusedChunkRetentionFunction ChunkSimpleGLAFunction FusedChunkFunction ChunkRetentionFunctionBackward
    FusedChunkRetentionFunctionBackward ChunkSimpleGLAFunctionBackward FusedChunkFunctionBackward like ChunkLinearAttentionFunction:
    ; gate = TRANSCENDENTAL + 2
# q * exp(g), k * exp(-g).
ChunkGLAFunction FusedChunkGLAFunction ChunkRWKV6Function ChunkGLAFunctionBackward FusedChunkGLAFunctionBackward
    ChunkRWKV6FunctionBackward like ChunkLinearAttentionFunction: ; channel_gate = 2 * (TRANSCENDENTAL + 1)
# k k^T, its inverse times k and v, and what a chunk takes back from the state: w h.
ChunkDeltaRuleFunction ChunkDeltaRuleFunctionBackward like ChunkLinearAttentionFunction: ; keys = 3; values = 2; states = 3;
    inverses = 1
ChunkGatedDeltaRuleFunction ChunkGatedDeltaRuleFunctionBackward like ChunkDeltaRuleFunction: ; gate = 2 * (TRANSCENDENTAL + 2)
ChunkKDAFunction ChunkKDAFunctionBackward like ChunkDeltaRuleFunction: ; channel_gate = 2 * (TRANSCENDENTAL + 1)
# RWKV 7: triangles of q and a with k and b; those of a inverted and multiplied.
ChunkDPLRDeltaRuleFunction ChunkDPLRDeltaRuleFunctionBackward like ChunkLinearAttentionFunction: ; keys = 5; values = 3; states = 4;
    inverses = 2; channel_gate = 4 * (TRANSCENDENTAL + 1)
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
table(_TABLE, chunks=chunks)
