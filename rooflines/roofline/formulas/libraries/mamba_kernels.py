"""State-space layers in servers: the selective scan of vLLM (``_C``) and the short causal convolution of SGLang (``sgl_kernel``).

Order of arguments: the schemas in vLLM 0.11.0 and 0.33.0 and in sgl-kernel 0.3.21; SGLang 0.5.23 (``kernels/ops/mamba``); TensorRT-LLM
00d6f28 (``_torch/custom_ops/cpp_custom_ops.py``). Sequences are packed along the last dimension; their
states lie in a cache, of which each sequence reads and writes one slot.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.table import formula

# exp(delta * A), delta * u * B, h * a + b, and the sum of C * h
_STATE: Final = 1 + costs.TRANSCENDENTAL + 1 + 2 + 2
_STORED: Final = "every sequence has a state"


def _sequences(inputs: TensorArg, starts: TensorArg | None, slots: TensorArg | None) -> int:
    """Sequences of a batch: by its slots, its starts, else its first dimension."""
    return slots.numel if slots is not None else starts.numel - 1 if starts is not None else inputs.shape[0]


@formula("_C::selective_scan_fwd", category="other")
def _selective_scan(signature: Signature) -> Work:
    """Inputs [channels, tokens] or [batch, channels, tokens], A [channels, states]; the result replaces ``delta`` or ``z``."""
    args = Arguments(signature, "u delta a b c d z bias softplus starts slots initial states")
    inputs, a, states = args.tensor("u"), args.tensor("a"), args.tensor("states")
    z, d, bias = args.optional("z"), args.optional("d"), args.optional("bias")
    cost = a.shape[-1] * _STATE + 1 + 2 * (d is not None) + (bias is not None) + (costs.SILU + 1) * (z is not None)
    cost += costs.SOFTPLUS * args.flag("softplus")
    stored = _sequences(inputs, args.optional("starts"), args.optional("slots")) * a.numel * size_of(states.dtype)
    return Work(
        other_flops=inputs.numel * cost,
        bytes_read=size(inputs, args.tensor("delta"), a, args.tensor("b"), args.tensor("c"), d, z, bias) + stored,
        bytes_written=written(inputs) + stored,
        precision=precision_of(inputs.dtype),
        assumption=_STORED,
    )


@formula(*(f"{name}causal_conv1d_{step}" for name in ("sgl_kernel::", "sglang::mamba_", "trtllm::") for step in ("fwd", "update")),
         category="convolution")  # fmt: skip
def _causal_convolution(signature: Signature) -> Work:
    """Each channel with a filter of its own, [channels, width], in place; perhaps a SiLU. The last inputs are the next call's state."""
    step = signature.name.endswith("update")
    args = Arguments(signature, "x states weight bias silu lengths slots" if step else "x weight bias states starts slots initial silu")
    inputs, weight, bias, states = args.tensor("x"), args.tensor("weight"), args.optional("bias"), args.optional("states")
    count = _sequences(inputs, None if step else args.optional("starts"), args.optional("slots"))
    stored = count * weight.shape[0] * (weight.shape[1] - 1) * size_of(states.dtype) if states else 0
    return Work(
        matrix_flops=2 * inputs.numel * weight.shape[1],
        other_flops=inputs.numel * ((bias is not None) + costs.SILU * args.flag("silu")),
        bytes_read=size(inputs, weight, bias) + stored,
        bytes_written=written(inputs) + stored,
        precision=precision_of(inputs.dtype),
        assumption=_STORED if states else "",
    )
