"""Linear attention, delta rules and recurrences of flash-linear-attention, and Mamba's selective scans and causal convolutions, as
autograd functions around Triton kernels and as operators, those of servers too.

Queries and keys are [batch, steps, heads, depth], values perhaps of more heads. Within a chunk of 64 steps everything is a product of
matrices below a diagonal; each chunk hands its state [depth, depth of the values] on to the next. States and triangles that a function
keeps for its backward are not counted. Its backward computes every product again, and two for each. Products that ``MambaInnerFn`` and
``MambaSplitConv1dScanCombinedFn`` make in between belong to them. Servers pack sequences along the last dimension; their states lie in
a cache, of which each sequence reads and writes one slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, floating, size, size_of, written
from rooflines.roofline.formulas.libraries.norms import register_norms
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import gradients_and_forward
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.tables import table

_CHUNK: Final = 64
_FULL: Final = "packed sequences fill their chunks"


@dataclass(frozen=True, slots=True)
class _Kind:
    """Products of a chunk: ``keys`` and ``values`` are how many of its triangles meet their depth, ``states`` how many products with
    the state there are, ``inverses`` how many triangles are inverted or multiplied."""

    keys: int = 1  # q k^T
    values: int = 1  # that times v
    states: int = 2  # q h, k^T v
    inverses: int = 0
    gate: int = 0  # FLOPs for each pair
    channel_gate: int = 0  # FLOPs for each number of the keys


_DECAY: Final = costs.TRANSCENDENTAL + 2  # exp(g_i - g_j), and the product with it
_DECAYED: Final = 2 * (costs.TRANSCENDENTAL + 1)  # q * exp(g), k * exp(-g)
# k k^T, its inverse times k and v, and what a chunk takes back from the state: w h.
_DELTA: Final = {"keys": 3, "values": 2, "states": 3, "inverses": 1}

_CHUNKED: Final[dict[str, _Kind]] = {
    **dict.fromkeys(("ChunkLinearAttentionFunction", "FusedChunkLinearAttentionFunction"), _Kind()),
    **dict.fromkeys(("ChunkRetentionFunction", "FusedChunkRetentionFunction", "ChunkSimpleGLAFunction", "FusedChunkFunction"),
                    _Kind(gate=_DECAY)),
    **dict.fromkeys(("ChunkGLAFunction", "FusedChunkGLAFunction", "ChunkRWKV6Function"), _Kind(channel_gate=_DECAYED)),
    "ChunkDeltaRuleFunction": _Kind(**_DELTA),
    "ChunkGatedDeltaRuleFunction": _Kind(**_DELTA, gate=2 * _DECAY),
    "ChunkKDAFunction": _Kind(**_DELTA, channel_gate=_DECAYED),
    # RWKV 7: triangles of q and a with k and b; those of a inverted and multiplied.
    "ChunkDPLRDeltaRuleFunction": _Kind(keys=5, values=3, states=4, inverses=2, channel_gate=2 * _DECAYED),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: int
    steps: int
    heads: int
    key_depth: int
    value_depth: int
    packed: TensorArg | None

    @property
    def tokens(self) -> int:
        """Steps of all heads."""
        return self.batch * self.steps * self.heads

    @property
    def sequences(self) -> int:
        """Sequences, perhaps packed."""
        return self.packed.numel - 1 if self.packed else self.batch


def _sizes(tensors: tuple[TensorArg, ...], recurrent: bool = False) -> _Sizes:
    """Queries, keys and values come first; where sequences end is an integer tensor behind them."""
    if len(tensors) < 3 or any(len(one.shape) != 4 for one in tensors[:3]):
        raise NotCounted("shapes not recorded")
    keys, values = tensors[1], tensors[2]
    packed = next((one for one in tensors[3:] if one.dtype.startswith("int") and len(one.shape) == 1), None)
    if packed is None and not recurrent and values.shape[1] < values.shape[2]:
        raise NotCounted("fewer steps than heads: the heads may be before the steps")
    batch, steps, heads, depth = values.shape
    return _Sizes(batch, steps, heads, keys.shape[-1], depth, packed)


def _chunk(signature: Signature) -> int:
    """Steps of a chunk: recent versions have it as their last argument."""
    last = signature.args[-1]
    return last if type(last) is int and 16 <= last <= 256 else _CHUNK


def _triangle(rows: int) -> int:
    """Pairs on and below the diagonal."""
    return rows * (rows + 1) // 2


def _inverse(rows: int) -> int:
    """FLOPs of inverting a triangle with ones on its diagonal."""
    return rows * (rows - 1) * (rows - 2) // 3


def _results(signature: Signature, sizes: _Sizes) -> int:
    """Bytes of the result and the last state, which is float32 if it is returned."""
    result = sizes.tokens * sizes.value_depth * size_of(signature.tensors[0].dtype)
    asked = next((one for one in signature.args if isinstance(one, bool)), False)
    return result + 4 * asked * sizes.sequences * sizes.heads * sizes.key_depth * sizes.value_depth


def _chunked(signature: Signature, kind: _Kind) -> Work:
    gradients, forward = gradients_and_forward(signature)
    tensors = forward.tensors
    sizes, chunk = _sizes(tensors), _chunk(forward)
    chunks, rest = divmod(sizes.steps, chunk)
    heads = sizes.batch * sizes.heads
    pairs = heads * (chunks * _triangle(chunk) + _triangle(rest))
    products = 2 * pairs * (kind.keys * sizes.key_depth + kind.values * sizes.value_depth)
    products += kind.inverses * heads * (chunks * _inverse(chunk) + _inverse(rest))
    products += kind.states * 2 * sizes.tokens * sizes.key_depth * sizes.value_depth
    times = 3 if gradients else 1
    return Work(
        matrix_flops=times * products,
        other_flops=times * (pairs * kind.gate + sizes.tokens * sizes.key_depth * kind.channel_gate),
        bytes_read=size(*gradients, *tensors),
        bytes_written=written(*(one for one in tensors if floating(one.dtype))) if gradients else _results(forward, sizes),
        precision=matrix_precision_of(tensors[0].dtype),
        assumption=_FULL if sizes.packed else "",
    )


for _name, _one in _CHUNKED.items():
    formula(_name, f"{_name}Backward", category="attention")(partial(_chunked, kind=_one))

# --- step by step ------------------------------------------------------------------------------------------------------------------

_STEP: Final = 5  # of each number of the state: the decay, k * v added, q * h summed
_TAKEN: Final = 2  # k * h summed


def _is_delta(signature: Signature) -> bool:
    """Three functions are ``FusedRecurrentFunction``: linear attention, the delta rule and the gated one. The place of the scale, their
    first number, tells them apart, and whether a beta [batch, steps, heads] is before it or the gates of the values."""
    place = next((place for place, one in enumerate(signature.args) if isinstance(one, float)), None)
    if place is None:
        raise NotCounted("which of the recurrences this is, is not recorded")
    before = signature.arg(6, None)
    return place in (4, 5, 9) or (place == 7 and isinstance(before, TensorArg) and len(before.shape) == 3)


@formula("FusedRecurrentFunction", category="attention")
def _recurrence(signature: Signature) -> Work:
    """A state [.., depth, depth of the values] for each sequence is read, where one is given, and written; servers keep those of more
    sequences in one tensor."""
    tensors, sizes = signature.tensors, _sizes(signature.tensors, recurrent=True)
    depths = {sizes.key_depth, sizes.value_depth}
    state = next((one for one in tensors[3:] if len(one.shape) == 4 and set(one.shape[2:]) == depths), None)
    numbers = sizes.key_depth * sizes.value_depth
    states = sizes.sequences * sizes.heads * numbers * (size_of(state.dtype) if state else 4)
    return Work(
        other_flops=sizes.tokens * numbers * (_STEP + _TAKEN * _is_delta(signature)),
        bytes_read=size(*(one for one in tensors if one is not state)) + (states if state else 0),
        bytes_written=sizes.tokens * sizes.value_depth * size_of(tensors[0].dtype) + states,
        precision="fp32",
    )


_STORED: Final = "every sequence has a state"


_SLOTS: Final = "(slots.n if slots else starts.n - 1 if starts else u[0]) * a.n * states.item"

# --- state space duality: scans as products of chunks ------------------------------------------------------------------------------

_MAMBA_DELTA: Final = costs.SOFTPLUS + costs.TRANSCENDENTAL + 2  # for each step of a head
_RECURRENCE: Final = "chunk size not recorded: counted as a recurrence"


def _duality(batch: int, steps: int, heads: int, depth: int, groups: int, states: int, chunk: Argument) -> tuple[int, str]:
    """FLOPs, and what they assume. Within a chunk C B^T and its product with x, on and below the diagonal; the states of each chunk;
    their product with C."""
    scan = 4 * batch * steps * heads * depth * states
    if not isinstance(chunk, int) or isinstance(chunk, bool):
        return scan, _RECURRENCE
    chunks, rest = divmod(steps, chunk)
    pairs = batch * (chunks * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2)
    return 2 * pairs * (groups * states + heads * depth) + scan, ""


@formula("MambaChunkScanCombinedFn", "MambaChunkScanCombinedFnBackward", category="matmul")
def _chunk_scan(signature: Signature) -> Work:
    """x [batch, steps, heads, depth], dt [batch, steps, heads], A [heads], B, C [batch, steps, groups, states], D, z, ...

    Back every product again, and two for each: its operands' gradients.
    """
    gradients, forward = gradients_and_forward(signature)
    tensors = forward.tensors
    if len(tensors) < 5 or len(tensors[0].shape) != 4 or len(tensors[3].shape) != 4:
        raise NotCounted("shapes not recorded")
    inputs = tensors[0]
    (batch, steps, heads, depth), (groups, states) = inputs.shape, tensors[3].shape[2:]
    flops, assumption = _duality(batch, steps, heads, depth, groups, states, forward.arg(5, None))
    gated = any(one.shape == inputs.shape for one in tensors[5:])
    other = batch * steps * heads * _MAMBA_DELTA + inputs.numel * (2 + (costs.SILU + 1) * gated)
    times, again = (3, written(inputs)) if gradients else (1, 0)
    return Work(
        matrix_flops=times * flops,
        other_flops=times * other,
        bytes_read=size(*gradients, *tensors) + again,
        bytes_written=written(*tensors) if gradients else written(inputs) * (1 + gated),
        precision=matrix_precision_of(inputs.dtype),
        assumption=assumption,
    )


_GROUP: Final = "one group of B and C"
_PLAIN: Final = "no channels beside the scan"


def _scanned(
    columns: int, heads: int, skip: TensorArg, start: TensorArg | None, projection: TensorArg | None, vectors: Sequence[TensorArg]
) -> tuple[int, str]:
    """Channels of the scan, and what that assumes; ``columns`` has these and twice those beside it."""
    if len(skip.shape) == 2:
        return skip.numel, ""
    if start is not None:
        return heads * start.shape[2], ""
    if projection is not None:
        return 2 * projection.shape[1] - columns, ""
    return (vectors[0].numel, "") if vectors else (columns, _PLAIN)


def _states(grouped: int, start: TensorArg | None, groups: Argument) -> tuple[int, str]:
    """States of each channel, and what that assumes; ``grouped`` are those of all groups."""
    if start is not None:
        return start.shape[3], ""
    return (grouped // groups, "") if isinstance(groups, int) and groups > 0 else (grouped, _GROUP)


@formula("MambaSplitConv1dScanCombinedFn", "MambaSplitConv1dScanCombinedFnBackward", category="matmul")
def _split_block(signature: Signature) -> Work:
    """A block of Mamba 2 behind its first projection: convolution, scan, gates and last projection.

    zxbcdt [batch, steps, 2 * beside + scanned + channels + heads], the convolution [channels, taps] and its bias, the bias of dt
    [heads], A [heads], D [heads] or [heads, depth], and perhaps states, a norm [scanned], and a projection [out, beside + scanned].
    Writes its result, and the scan's for the backward. That has the convolution and the scan again, and two products for each; of the
    projection two.
    """
    gradients, forward = gradients_and_forward(signature)
    tensors = forward.tensors
    if len(tensors) < 5 or len(tensors[0].shape) != 3 or len(tensors[1].shape) != 2:
        raise NotCounted("shapes not recorded")
    (batch, steps, width), (channels, taps) = tensors[0].shape, tensors[1].shape
    rest = tensors[3:] if tensors[2].shape == (channels,) else tensors[2:]
    if len(rest) < 3 or rest[0].shape != rest[1].shape or rest[2].shape[:1] != rest[0].shape:
        raise NotCounted("shapes not recorded")
    (heads,), skip, more = rest[0].shape, rest[2], rest[3:]
    integers = tuple(one for one in tensors if one.dtype.startswith(("int", "uint")))
    projection = next((one for one in more if len(one.shape) == 2 and one not in integers), None)
    vectors = [one for one in more if len(one.shape) == 1]
    start = next((one for one in more if len(one.shape) == 4), None)
    columns = width - channels - heads
    scanned, plain = _scanned(columns, heads, skip, start, projection, vectors)
    beside, odd = divmod(columns - scanned, 2)  # channels that a gate takes past the scan
    grouped, uneven = divmod(channels - scanned, 2)
    if odd or uneven or beside < 0 or grouped <= 0 or scanned <= 0 or scanned % heads:
        raise NotCounted("shapes not understood")
    states, group = _states(grouped, start, forward.arg(17, None))
    scan, recurrence = _duality(batch, steps, heads, scanned // heads, grouped // states, states, forward.arg(6, None))
    before = vectors[:1] if projection is None else [one for one in more[: more.index(projection)] if len(one.shape) == 1]
    normed = any(one.numel == scanned for one in before)
    biased = projection is not None and len(vectors) > normed
    tokens = batch * steps
    outputs = projection.shape[0] if projection else beside + scanned
    projected = product_flops(1, tokens, projection.shape[1], outputs) if projection else 0
    gate = (costs.SILU + 1) * (scanned + beside) + costs.RMS_NORM * normed * scanned
    other = tokens * (heads * _MAMBA_DELTA + 2 * scanned + gate + costs.SILU * channels)
    kept, results = (tokens * numbers * size_of(tensors[0].dtype) for numbers in (scanned, outputs))
    times = 3 if gradients else 1
    return Work(
        matrix_flops=times * (2 * tokens * channels * taps + scan) + (2 if gradients else 1) * projected,
        other_flops=times * other + tokens * outputs * biased,
        bytes_read=size(*gradients, *tensors) + (kept if gradients else 0),
        bytes_written=written(*tensors) - written(*integers) if gradients else results + kept,
        precision=matrix_precision_of(tensors[0].dtype),
        assumption="; ".join(filter(None, (plain, group, recurrence))),
    )


# --- causal convolution ------------------------------------------------------------------------------------------------------------

_SILU: Final = "x.n * SILU * bool(silu)"
_WEIGHT: Final = "read weight[*depth taps], read bias?"
# The last steps of each sequence.
_STEPS: Final = "x[0] * weight.n * x.item"

# Each channel with a filter of its own, [channels, width], in place; perhaps a SiLU. The last inputs are the next call's state.
_SERVED_STEP: Final = Row(
    "update x, view states?, read weight[channels width], read bias?, silu, lengths=None, view slots?",
    where="kept = (slots.n if slots else x[0]) * channels * (width - 1) * states.item",
    matrix="2 * x.n * width",
    other="x.n * (bool(bias) + SILU * bool(silu))",
    also="kept",
    writes="kept",
    assumption=_STORED,
    given="states",
)
_SERVED_CONVOLUTION: Final = replace(
    _SERVED_STEP,
    schema="update x, read weight[channels width], read bias?, view states?, view starts?, view slots?, initial, silu",
    where=_SERVED_STEP.where.replace("x[0]", "starts.n - 1 if starts else x[0]"),
)
for _library in ("sgl_kernel::", "sglang::mamba_", "trtllm::"):
    register({"causal_conv1d_fwd": _SERVED_CONVOLUTION, "causal_conv1d_update": _SERVED_STEP}, "convolution", namespace=_library)

# --- norms and gates ---------------------------------------------------------------------------------------------------------------

register_norms("LayerNormFn", rms=None)  # mamba-ssm's and flash-attn's, with a residual or a gate of the input's shape


table(f"""
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
""")
