"""vLLM's low-rank adapters (LoRA): the product with the narrow matrix, and the one back to the width of a layer.

Order of arguments: vLLM 0.11.0 to 0.33.0, ``vllm/lora/ops/triton_ops/lora_shrink_op.py`` and ``lora_expand_op.py``.

Which tokens have which adapter is in tensors, and the dtypes of lists of weights are not in traces: weights have the dtype of the
activations on their way to the narrow matrix.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.table import formula

_ONE: Final = "every token has an adapter, all the same"


@formula("vllm::lora_shrink", category="matmul")
def _shrink(signature: Signature) -> Work:
    """[tokens, width] to [slices, tokens, rank], with a weight [rank, width] a slice, and a scale for each result."""
    args = Arguments(signature, "input weights out mapping")
    inputs, out = args.tensor("input"), args.tensor("out")
    if len(inputs.shape) != 2 or len(out.shape) != 3:
        raise NotCounted("shapes of the adapter not understood")
    (tokens, width), (slices, _, rank) = inputs.shape, out.shape
    return Work(
        matrix_flops=product_flops(slices, tokens, width, rank),
        other_flops=out.numel,
        bytes_read=size(inputs) + slices * rank * width * size_of(inputs.dtype),
        bytes_written=written(out),
        precision=matrix_precision_of(inputs.dtype),
        assumption=_ONE,
    )


@formula("vllm::lora_expand", category="matmul")
def _expand(signature: Signature) -> Work:
    """[slices, tokens, rank] to the columns of [tokens, width] from the first one on, perhaps added to what is there."""
    active = "" if isinstance(signature.arg(10, None), bool) else "active "  # the number of adapters, which older versions lack
    args = Arguments(signature, f"input weights out mapping order counts starts ids none {active}first=0 adds=False")
    inputs, out = args.tensor("input"), args.tensor("out")
    if len(inputs.shape) != 3 or len(out.shape) != 2 or args.integer("first"):
        raise NotCounted("shapes of the adapter not understood")
    _, tokens, rank = inputs.shape
    width = out.shape[-1]
    return Work(
        matrix_flops=product_flops(1, tokens, rank, width),
        other_flops=out.numel * args.flag("adds"),
        bytes_read=size(inputs) + rank * width * size_of(out.dtype) + (size(out) if args.flag("adds") else 0),
        bytes_written=written(out),
        precision=matrix_precision_of(out.dtype),
        assumption=_ONE,
    )
