"""Mamba's selective scans and the causal convolution before them, with their norms, as autograd functions and operators.

Order of arguments: mamba-ssm 2.3.2 (commit e9594ce): ``mamba_ssm/ops/selective_scan_interface.py``, ``ops/triton/ssd_combined.py``,
``ops/triton/layer_norm.py``, ``ops/triton/layernorm_gated.py``, ``ops/triton/k_activations.py``; causal-conv1d 1.6.1 (commit 0d2252d):
``causal_conv1d/causal_conv1d_interface.py``, ``causal_conv1d/cpp_functions.py``. The functions call their kernels through extensions
that are no operators; products that ``MambaInnerFn`` and ``MambaSplitConv1dScanCombinedFn`` make in between belong to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.libraries.norms import register
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import formula

# Of each state and step: exp(delta * A) 11, (delta * u) * B 1, h * a + b 2, the sum of C * h 2.
_SCAN: Final = costs.TRANSCENDENTAL + 6
# The states again 14; of C 2, of h 3, of B 2, of delta * u 2, of a 1, of A 3, of delta 2.
_SCAN_BACKWARD: Final = costs.TRANSCENDENTAL + 4 + 15
_SPLIT: Final = 2048  # steps after which a scan keeps its states for the backward


# --- selective scan ----------------------------------------------------------------------------------------------------------------


def _scan_sizes(tensors: tuple[TensorArg, ...]) -> tuple[TensorArg, int]:
    """The input [batch, depth, steps] of a scan and how many states each of its channels has."""
    if len(tensors) < 5 or len(tensors[0].shape) != 3 or tensors[2].shape[:1] != tensors[0].shape[1:2]:
        raise NotCounted("shapes not recorded")
    return tensors[0], tensors[2].shape[-1]


@formula("SelectiveScanFn", category="other")
def _selective_scan(signature: Signature) -> Work:
    """u, delta [batch, depth, steps], A [depth, states], B, C, and perhaps D [depth], a gate z like u, the bias of delta [depth]."""
    tensors = signature.tensors
    inputs, states = _scan_sizes(tensors)
    batch, depth, steps = inputs.shape
    gated = any(one.shape == inputs.shape for one in tensors[5:])
    small = sum(len(one.shape) == 1 for one in tensors[5:])
    kept = batch * depth * -(-steps // _SPLIT) * states * 2 * 4
    return Work(
        other_flops=inputs.numel * (states * _SCAN + 2 * small + (costs.SILU + 1) * gated),
        bytes_read=size(*tensors),
        bytes_written=written(inputs) * (2 if gated else 1) + kept,
        precision="fp32",
    )


@formula("SelectiveScanFnBackward", category="other")
def _selective_scan_gradient(signature: Signature) -> Work:
    """Reads what the forward did, the states that it kept and its result; writes a gradient of each operand."""
    (grad, *_), forward = parts(signature)
    tensors = forward.tensors
    inputs, states = _scan_sizes(tensors)
    batch, depth, steps = inputs.shape
    gated = any(one.shape == inputs.shape for one in tensors[5:])
    kept = batch * depth * -(-steps // _SPLIT) * states * 2 * 4
    return Work(
        other_flops=inputs.numel * (states * _SCAN_BACKWARD + (costs.SILU + 7) * gated),
        bytes_read=size(grad, *tensors) + written(inputs) * gated + kept,
        bytes_written=written(*tensors),
        precision="fp32",
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """A whole block of Mamba: projections of ``rows`` tokens and a scan of ``depth`` channels."""

    rows: int
    depth: int
    states: int
    products: int
    taps: int
    tensors: tuple[TensorArg, ...]
    out: int


def _block(tensors: tuple[TensorArg, ...]) -> _Block:
    """xz [batch, 2 * depth, steps], the convolution [depth, 1, taps] and its bias, the projections to (delta, B, C), of delta, and
    back, A [depth, states], and small tensors."""
    matrices = [one for one in tensors[1:] if len(one.shape) == 2]
    if len(tensors) < 6 or len(tensors[0].shape) != 3 or len(matrices) < 4:
        raise NotCounted("shapes not recorded")
    (batch, _, steps), convolution = tensors[0].shape, tensors[1]
    inner, of_delta, back, decay = matrices[:4]
    rows = batch * steps
    products = sum(product_flops(1, rows, one.shape[1], one.shape[0]) for one in (inner, of_delta, back))
    return _Block(rows, convolution.shape[0], decay.shape[-1], products, convolution.shape[-1], tensors, back.shape[0])


@formula("MambaInnerFn", category="matmul")
def _inner(signature: Signature) -> Work:
    found = _block(signature.tensors)
    inputs = found.tensors[0]
    scanned = found.rows * found.depth
    return Work(
        matrix_flops=found.products + 2 * scanned * found.taps,
        other_flops=scanned * (found.states * _SCAN + 2 * costs.SILU + costs.SOFTPLUS + 4),
        bytes_read=size(*found.tensors),
        bytes_written=found.rows * found.out * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


@formula("MambaInnerFnBackward", category="matmul")
def _inner_gradient(signature: Signature) -> Work:
    """Two products for each of the forward's, and one of the convolution's for each operand."""
    (grad, *_), forward = parts(signature)
    found = _block(forward.tensors)
    scanned = found.rows * found.depth
    return Work(
        matrix_flops=2 * found.products + 4 * scanned * found.taps,
        other_flops=scanned * (found.states * _SCAN_BACKWARD + 2 * costs.SILU + 14),
        bytes_read=size(grad, *found.tensors),
        bytes_written=written(*found.tensors),
        precision=matrix_precision_of(grad.dtype),
    )


# --- state space duality: scans as products of chunks ------------------------------------------------------------------------------


def _duality_flops(batch: int, steps: int, heads: int, depth: int, groups: int, states: int, chunk: int) -> int:
    """Within a chunk C B^T and its product with x, on and below the diagonal; the states of each chunk; their product with C."""
    chunks, rest = divmod(steps, chunk)
    pairs = batch * (chunks * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2)
    return 2 * pairs * (groups * states + heads * depth) + 4 * batch * steps * heads * depth * states


_RECURRENCE: Final = "chunk size not recorded: counted as a recurrence"


def _combined(signature: Signature) -> tuple[Work, tuple[TensorArg, ...]]:
    """x [batch, steps, heads, depth], dt [batch, steps, heads], A [heads], B, C [batch, steps, groups, states], D, z, ..."""
    tensors = signature.tensors
    if len(tensors) < 5 or len(tensors[0].shape) != 4 or len(tensors[3].shape) != 4:
        raise NotCounted("shapes not recorded")
    inputs, key = tensors[0], tensors[3]
    batch, steps, heads, depth = inputs.shape
    groups, states = key.shape[2:]
    chunk = signature.arg(5, None)
    known = isinstance(chunk, int) and not isinstance(chunk, bool)
    gated = any(one.shape == inputs.shape for one in tensors[5:])
    flops = _duality_flops(batch, steps, heads, depth, groups, states, int(chunk)) if known else 4 * inputs.numel * states
    work = Work(
        matrix_flops=flops,
        other_flops=batch * steps * heads * (costs.SOFTPLUS + costs.TRANSCENDENTAL + 2) + inputs.numel * (2 + (costs.SILU + 1) * gated),
        bytes_read=size(*tensors),
        bytes_written=written(inputs) * (2 if gated else 1),
        precision=matrix_precision_of(inputs.dtype),
        assumption="" if known else _RECURRENCE,
    )
    return work, tensors


@formula("MambaChunkScanCombinedFn", category="matmul")
def _chunk_scan(signature: Signature) -> Work:
    return _combined(signature)[0]


@formula("MambaChunkScanCombinedFnBackward", category="matmul")
def _chunk_scan_gradient(signature: Signature) -> Work:
    """Every product again, and two for each: its operands' gradients."""
    gradients, forward = parts(signature)
    work, tensors = _combined(forward)
    return Work(
        matrix_flops=3 * work.matrix_flops,
        other_flops=3 * work.other_flops,
        bytes_read=size(*gradients, *tensors) + written(tensors[0]),
        bytes_written=written(*tensors),
        precision=work.precision,
        assumption=work.assumption,
    )


@dataclass(frozen=True, slots=True)
class _Split:
    """A block of Mamba 2 behind its first projection: sizes of its convolution, scan, gates and last projection."""

    tokens: int
    channels: int  # of the convolution: those of the scan, B and C
    taps: int
    scanned: int
    beside: int  # channels that a gate takes past the scan
    scan: int  # FLOPs of the scan's products
    heads: int
    normed: bool
    projection: TensorArg | None
    biased: bool
    tensors: tuple[TensorArg, ...]
    assumption: str

    @property
    def convolution(self) -> int:
        """FLOPs of the convolution's products."""
        return 2 * self.tokens * self.channels * self.taps

    @property
    def projected(self) -> int:
        """FLOPs of the last projection's products."""
        return product_flops(1, self.tokens, self.projection.shape[1], self.projection.shape[0]) if self.projection else 0

    @property
    def other(self) -> int:
        """FLOPs besides products, without the projection's bias."""
        gate = (costs.SILU + 1) * (self.scanned + self.beside) + costs.RMS_NORM * self.normed * self.scanned
        steps = self.heads * (costs.SOFTPLUS + costs.TRANSCENDENTAL + 2)
        return self.tokens * (steps + 2 * self.scanned + gate + costs.SILU * self.channels)


_GROUP: Final = "one group of B and C"
_PLAIN: Final = "no channels beside the scan"


def _split(signature: Signature) -> _Split:
    """zxbcdt [batch, steps, 2 * beside + scanned + channels + heads], the convolution [channels, taps] and its bias, the bias of dt
    [heads], A [heads], D [heads] or [heads, depth], and perhaps states, a norm [scanned], and a projection [out, beside + scanned]."""
    tensors = signature.tensors
    if len(tensors) < 5 or len(tensors[0].shape) != 3 or len(tensors[1].shape) != 2:
        raise NotCounted("shapes not recorded")
    (batch, steps, width), (channels, taps) = tensors[0].shape, tensors[1].shape
    rest = tensors[3:] if tensors[2].shape == (channels,) else tensors[2:]
    if len(rest) < 3 or rest[0].shape != rest[1].shape or rest[2].shape[:1] != rest[0].shape:
        raise NotCounted("shapes not recorded")
    (heads,), skip, more = rest[0].shape, rest[2], rest[3:]
    matrices = [one for one in more if len(one.shape) == 2 and not one.dtype.startswith(("int", "uint"))]
    vectors = [one for one in more if len(one.shape) == 1]
    start = next((one for one in more if len(one.shape) == 4), None)
    projection = matrices[0] if matrices else None
    assumptions = []
    if len(skip.shape) == 2:
        scanned = skip.numel
    elif start is not None:
        scanned = heads * start.shape[2]
    elif projection is not None:
        scanned = 2 * projection.shape[1] + channels + heads - width
    elif vectors:
        scanned = vectors[0].numel
    else:
        scanned = width - channels - heads
        assumptions.append(_PLAIN)
    beside, odd = divmod(width - scanned - channels - heads, 2)
    grouped, uneven = divmod(channels - scanned, 2)
    if odd or uneven or beside < 0 or grouped <= 0 or scanned <= 0 or scanned % heads:
        raise NotCounted("shapes not understood")
    groups = signature.arg(17, None)
    if start is not None:
        states = start.shape[3]
    elif isinstance(groups, int) and groups > 0:
        states = grouped // groups
    else:
        states = grouped
        assumptions.append(_GROUP)
    chunk = signature.arg(6, None)
    if isinstance(chunk, int) and not isinstance(chunk, bool):
        scan = _duality_flops(batch, steps, heads, scanned // heads, grouped // states, states, chunk)
    else:
        scan = 4 * batch * steps * scanned * states
        assumptions.append(_RECURRENCE)
    normed = any(one.numel == scanned for one in (vectors[:1] if projection is None else _before(more, projection)))
    return _Split(
        batch * steps, channels, taps, scanned, beside, scan, heads, normed, projection,
        projection is not None and len(vectors) > normed, tensors, "; ".join(assumptions),
    )  # fmt: skip


def _before(tensors: tuple[TensorArg, ...], last: TensorArg) -> list[TensorArg]:
    """The vectors in front of ``last``."""
    return [one for one in tensors[: tensors.index(last)] if len(one.shape) == 1]


def _split_results(found: _Split) -> int:
    """Elements that the block returns."""
    return found.tokens * (found.projection.shape[0] if found.projection else found.beside + found.scanned)


@formula("MambaSplitConv1dScanCombinedFn", category="matmul")
def _split_block(signature: Signature) -> Work:
    """Writes its result, and the scan's for the backward."""
    found = _split(signature)
    inputs, results = found.tensors[0], _split_results(found)
    return Work(
        matrix_flops=found.convolution + found.scan + found.projected,
        other_flops=found.other + results * found.biased,
        bytes_read=size(*found.tensors),
        bytes_written=(results + found.tokens * found.scanned) * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
        assumption=found.assumption,
    )


@formula("MambaSplitConv1dScanCombinedFnBackward", category="matmul")
def _split_gradient(signature: Signature) -> Work:
    """The convolution and the scan again, and two products for each; of the projection two."""
    gradients, forward = parts(signature)
    found = _split(forward)
    inputs = found.tensors[0]
    return Work(
        matrix_flops=3 * (found.convolution + found.scan) + 2 * found.projected,
        other_flops=3 * found.other + _split_results(found) * found.biased,
        bytes_read=size(*gradients, *found.tensors) + found.tokens * found.scanned * size_of(inputs.dtype),
        bytes_written=written(*(one for one in found.tensors if not one.dtype.startswith(("int", "uint")))),
        precision=matrix_precision_of(inputs.dtype),
        assumption=found.assumption,
    )


# --- causal convolution ------------------------------------------------------------------------------------------------------------


def _convolved(inputs: TensorArg, weight: TensorArg, silu: bool, read: int, results: int, cost: int = 1) -> Work:
    """A tap of each channel for each step before it: [batch, depth, steps] with [depth, taps]."""
    return Work(
        matrix_flops=cost * 2 * inputs.numel * weight.shape[-1],
        other_flops=inputs.numel * (costs.SILU if silu else 0),
        bytes_read=read,
        bytes_written=results,
        precision=precision_of(inputs.dtype),
    )


@formula("CausalConv1dFn", "CausalConv1dFunction", category="convolution", wraps=True)
def _causal(signature: Signature) -> Work:
    """Up to causal-conv1d 1.4 this calls its kernel directly; later versions have an operator, below. ``...Function`` is that of
    flash-linear-attention (bc3b101, fla/modules/conv)."""
    tensors = signature.tensors
    if len(tensors) < 2 or len(tensors[1].shape) != 2:
        raise NotCounted("shapes not recorded")
    return _convolved(tensors[0], tensors[1], False, size(*tensors), written(tensors[0]))


@formula("CausalConv1dFnBackward", "CausalConv1dFunctionBackward", category="convolution", wraps=True)
def _causal_gradient(signature: Signature) -> Work:
    gradients, forward = parts(signature)
    tensors = forward.tensors
    if len(tensors) < 2 or len(tensors[1].shape) != 2:
        raise NotCounted("shapes not recorded")
    return _convolved(tensors[0], tensors[1], False, size(*gradients, *tensors), written(*tensors[:3]), cost=2)


_CAUSAL: Final[dict[str, str]] = {
    "fwd": "x weight bias seq_idx initial_states out final_states_out silu",
    "bwd": "x weight bias dout seq_idx initial_states dfinal_states dx dweight dbias dinitial_states silu",
    "update": "x conv_state weight bias out silu cache_seqlens conv_state_indices",
}
_WRITTEN: Final = ("out", "final_states_out", "dx", "dweight", "dbias", "dinitial_states")


def _causal_operator(signature: Signature, kind: str) -> Work:
    """``update`` shifts the last steps of each sequence, which it keeps, and adds a step."""
    args = Arguments(signature, _CAUSAL[kind])
    results = [one for name in _WRITTEN if (one := args.optional(name)) is not None]
    names = ("x", "weight", "bias", "dout", "seq_idx", "initial_states", "dfinal_states", "cache_seqlens", "conv_state_indices")
    read = size(*(args.optional(name) for name in names))
    inputs, weight = args.tensor("x"), args.tensor("weight")
    state = inputs.shape[0] * weight.numel * size_of(inputs.dtype) if kind == "update" else 0
    return _convolved(inputs, weight, args.flag("silu"), read + state, written(*results) + state, cost=2 if kind == "bwd" else 1)


for _kind in _CAUSAL:
    formula(f"DaoAILab::_causal_conv1d_{_kind}_cpp", category="convolution")(partial(_causal_operator, kind=_kind))


# --- norms and gates ---------------------------------------------------------------------------------------------------------------

register("LayerNormFn", rms=None)  # mamba-ssm's and flash-attn's, with a residual or a gate of the input's shape
