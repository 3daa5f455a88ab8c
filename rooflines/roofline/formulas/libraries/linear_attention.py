"""flash-linear-attention: linear attention, delta rules and recurrences, as autograd functions around Triton kernels.

Order of arguments: fla-org/flash-linear-attention bc3b101 (August 2026), and d1097c6 and 006d931 (2025): the ``forward`` of each
function in fla/ops; vLLM and SGLang have copies. Queries and keys are [batch, steps, heads, depth], values perhaps of more heads.
Within a chunk of 64 steps everything is a product of matrices below a diagonal; each chunk hands its state [depth, depth of the values]
on to the next. States and triangles that a function keeps for its backward are not counted. Its backward computes every product again,
and two for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, floating, size, size_of, written
from rooflines.roofline.formulas.nodes import gradients_and_forward
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

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


# h = exp(g) * h + x, channel by channel; back the same from the end, and g: that times exp(g) * h.
_GATED: Final[dict[str, Row]] = {
    "ChunkHGRNFunction FusedRecurrentHGRNFunction": Row("read x, read gate, read rest*=()", costs.TRANSCENDENTAL + 2, "x", result="x"),
    "ChunkHGRNFunctionBackward FusedRecurrentHGRNFunctionBackward": Row(
        "read grad, update x, update gate",
        costs.TRANSCENDENTAL + 4,
        "x",
        reads="grad.size + gate.size + x.n * x.item",
        precision="x",
    ),
}
register(_GATED, "attention", functions=True)
