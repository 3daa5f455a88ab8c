"""DeepSpeed and Megatron-LM: linear layers of sharded weights, and tokens sent to experts on other ranks.

Order of arguments: DeepSpeed 00f1f6b: deepspeed/runtime/zero/linear.py, an autograd function around torch's products, which count
where the trace has them; NVIDIA/Megatron-LM d98e8a6: megatron/core/tensor_parallel/layers.py,
megatron/core/transformer/moe/fused_a2a.py (around DeepEP, whose own calls are no operators); AMD-AGI/Primus-Turbo a6a16cd (``MoE...``):
primus_turbo/pytorch/ops/moe. Megatron's activations are in ``activations.py``, its softmaxes in ``apex.py``.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import NotCounted, size, written
from rooflines.roofline.formulas.nodes import tensors_only, with_gradient, with_gradients
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, hinted_formula
from rooflines.roofline.formulas.rows import Row, register

_LINEAR: Final = Row(
    "read x[*rows k], read weight[n k], read bias?",
    matrix="2 * rows * k * n",
    other="rows * n * bool(bias)",
    writes="rows * n * x.item",
)
# A product for the gradient of the input and one for that of the weight.
_GRADIENT: Final = Row(
    "read grad, update x[*rows k], update weight[n k], write bias?", matrix="4 * rows * k * n", other="rows * n * bool(bias)"
)
# The same for as many rows as the result has: with sequence parallelism those of all ranks. The fourth argument of the forward says
# that the weight's is added to one in float32, by a kernel that is no operator. The forward is an operator of PyTorch.
_ACCUMULATED: Final = Row(
    "read grad[*rows n], read x, read weight[outputs k], read bias?, added=False",
    matrix="4 * rows * k * n",
    other="grad.n * bool(bias) + weight.n * (recorded('added') and added)",
    reads="grad.size + weight.size + rows * k * x.item + 4 * weight.n * (recorded('added') and added)",
    writes="rows * k * x.item + weight.n * (4 if recorded('added') and added else weight.item) + bias.n * bias.item",
)
register({"LinearFunctionForZeroStage3": _LINEAR}, "matmul", wraps=True, given=tensors_only)
register({"LinearFunctionForZeroStage3Backward": _GRADIENT}, "matmul", wraps=True, given=with_gradient)
register({"LinearWithGradAccumulationAndAsyncCommunicationBackward": _ACCUMULATED}, "matmul", given=with_gradient)


# --- experts on other ranks --------------------------------------------------------------------------------------------------------

_EXCHANGES: Final = ("FusedDispatch", "FusedCombine", "HybridEPDispatch", "HybridEPCombine", "MoEDispatch", "MoECombine")


@hinted_formula(*_EXCHANGES, category="communication")
def _exchange(signature: Signature, hints: Hints) -> Work:
    """Tokens to the ranks of their experts, or results back; how many arrive is data, which the gradient shows."""
    if not hints.outputs:
        raise NotCounted("number of received tokens not recorded")
    return Work(bytes_read=size(*signature.tensors), bytes_written=written(hints.outputs[0]))


register({f"{name}Backward": Row("read gradients*, write x") for name in _EXCHANGES}, "communication", given=with_gradients)
