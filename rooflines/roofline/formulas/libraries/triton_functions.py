"""Autograd functions around Triton kernels, which have no operator of their own: activations and gates of several libraries, modules of
flash-linear-attention and flash-attn, Liger Kernel, and Unsloth.

A gate takes the two halves of the last dimension, or two tensors. A bias or the weights of a routing follow. Where operators below
an activation are counted, these count, except below those of Liger and Mamba. What a function of Liger calls besides its kernels
(``zeros``, the sum of a loss) belongs to it. Fused linear losses compute all their gradients in the forward, chunk by chunk; their
backward only scales them, and does not where the loss is the last of the network. Products in functions of Unsloth count by
themselves.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import written
from rooflines.roofline.formulas.libraries.norms import norm_backward, norm_forward, norm_of, register_norms
from rooflines.roofline.formulas.nodes import gradients_and_forward
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.tables import table

register_norms("LigerRMSNormFunction", "LigerFusedAddRMSNormFunction", rms=True)
register_norms("LigerLayerNormFunction", rms=False)
register_norms("LayerNormFunction", "RMSNormFunction", rms=None)


def _unsloth(signature: Signature, rms: bool) -> Work:
    """Back the gradient of the input alone; of the weight it would be a product and a sum, of the bias a sum."""
    gradients, forward = gradients_and_forward(signature)
    norm = norm_of(forward.tensors, rms)
    if not gradients:
        return norm_forward(norm)
    work, saved = norm_backward(norm, gradients), norm.inputs.numel * (2 if rms else 3)
    return replace(work, other_flops=work.other_flops - saved, bytes_written=written(norm.inputs))


for _name, _rms in {"Fast_RMS_Layernorm": True, "Fast_Layernorm": False}.items():
    formula(_name, f"{_name}Backward", category="normalization")(partial(_unsloth, rms=_rms))

_EARLY: Final = "gradients computed in the forward"


table(f"""
[element-wise functions wraps]
# A gate, silu(a) * b, of two halves or two tensors; then a bias or weights. Back the activation again, a: s * (1 + a * (1 - s)) * b
# * g, b: silu(a) * g, and of a bias or a weight a product and a sum.
SwiGLUFunction BiasSwiGLUFunction WeightedSwiGLUFunction: read x[*rows k], read up[*=rows =k]?, read more*; each = SILU + 1;
    made = x.n if up else x.n // 2; other = made * (each + len(more)); writes = made * x.item; fits = up or x[-1] % 2 == 0
SwiGLUFunctionBackward BiasSwiGLUFunctionBackward WeightedSwiGLUFunctionBackward: read grad, update x[*rows k],
    update up[*=rows =k]?, update more*; each = SILU + 7; made = x.n if up else x.n // 2; other = made * (each + 2 * len(more));
    precision = x; fits = up or x[-1] % 2 == 0
# gelu(a) * b by a tanh of a polynomial of degree 3.
GeGLUFunction BiasGeGLUFunction like SwiGLUFunction: ; each = TANH + 9
GeGLUFunctionBackward BiasGeGLUFunctionBackward like SwiGLUFunctionBackward: ; each = TANH + 20
WeightedQuickGeGLUFunction WeightedBiasQuickGeGLUFunction like SwiGLUFunction: ; each = SILU + 2
WeightedQuickGeGLUFunctionBackward WeightedBiasQuickGeGLUFunctionBackward like SwiGLUFunctionBackward: ; each = SILU + 9
SigmoidGLUFunction like SwiGLUFunction: ; each = SIGMOID + 1
SigmoidGLUFunctionBackward like SwiGLUFunctionBackward: ; each = SIGMOID + 5
GeLUFunction FastGeLUFunction like SwiGLUFunction: read x, read more*; each = TANH + 8; made = x.n; fits =
GeLUFunctionBackward FastGeLUFunctionBackward like SwiGLUFunctionBackward: read grad, update x, update more*; each = TANH + 16;
    made = x.n; fits =
SwishFunction like GeLUFunction: ; each = SILU
SwishFunctionBackward like GeLUFunctionBackward: ; each = SIGMOID + 5
SigmoidFunction like GeLUFunction: ; each = SIGMOID
SigmoidFunctionBackward like GeLUFunctionBackward: ; each = SIGMOID + 3
LogSigmoidFunction like GeLUFunction: ; each = SOFTPLUS + 1
LogSigmoidFunctionBackward like GeLUFunctionBackward: ; each = SIGMOID + 2
SquaredReLUFunction WeightedSquaredReLUFunction like GeLUFunction: ; each = 2
SquaredReLUFunctionBackward WeightedSquaredReLUFunctionBackward like GeLUFunctionBackward: ; each = 3
[element-wise functions]
# Of Liger and Mamba, which own what is below them.
SwiGLU like SwiGLUFunction:
SwiGLUBackward like SwiGLUFunctionBackward:
LigerSiLUMulFunction like SwiGLUFunction: read x[*rows k], read up[*=rows =k], read more*; made = x.n; fits =
LigerSiLUMulFunctionBackward like SwiGLUFunctionBackward: read grad, update x[*rows k], update up[*=rows =k], update more*;
    made = x.n; fits =
LigerGELUMulFunction like LigerSiLUMulFunction: ; each = TANH + 9
LigerGELUMulFunctionBackward like LigerSiLUMulFunctionBackward: ; each = TANH + 20
LigerReLUSquaredFunction like GeLUFunction: ; each = 2
LigerReLUSquaredFunctionBackward like GeLUFunctionBackward: ; each = 3
# gamma * tanh(alpha * x) + beta
LigerDyTFunction: read input, read alpha, read gamma, read beta? -> input; other = input.n * (TANH + 2 + len(beta))
# t again; x: g * gamma * (1 - t²) * alpha; of alpha, gamma and beta a sum each.
LigerDyTFunctionBackward: read grad, update input, update alpha, update gamma, write beta?;
    other = input.n * (TANH + 1 + 5 + 2 + 2 + len(beta)); precision = input
# Queries and keys turned in place by tabulated angles: two multiplications and an addition an element.
LigerRopeFunction LigerQwen2VLMRopeFunction LigerLlama4RopeFunction: update queries, update keys, read angles, read more*;
    cost = ROTARY_EMBEDDING; per = queries keys
LigerRopeFunctionBackward LigerQwen2VLMRopeFunctionBackward LigerLlama4RopeFunctionBackward: update grads*, queries, keys,
    read angles, read more*; other = ROTARY_EMBEDDING * grads.n
[element-wise]
# x * cos - y * sin: into another tensor, with what does not turn, unless a flag says in place;
RotaryEmbeddingFunction ApplyRotaryEmb: view x[*rest width], read cos, read sin, interleaved=False, inplace=False;
    turned = x.n // width * min(2 * cos[-1], width); moved = (turned if value('inplace') is True else x.n) * x.item;
    other = turned * ROTARY_EMBEDDING; reads = moved + cos.size + sin.size; writes = moved; precision = x
# in place, of packed tensors [batch, steps, 2 or 3, heads, depth] those that are no values;
ApplyRotaryEmbQKV_ ApplyRotaryEmbKV_ like ApplyRotaryEmb: view x[batch steps parts heads width], read cos, read sin;
    turned = x.n // width * min(2 * cos[-1], width) * (parts - 1) // parts; moved = turned * x.item; fits = parts in (2, 3)
# or where the angle of a pair stands twice in a row of the tables.
Fast_RoPE_Embedding like ApplyRotaryEmb: view x[*rest width], read cos, read sin; turned = x.n // width * min(cos[-1], width);
    moved = turned * x.item
Fast_RoPE_Embedding_QK like Fast_RoPE_Embedding: view x[*rest width], view y, read cos, read sin;
    turned = (x.n + y.n) // width * min(cos[-1], width)
[element-wise with_gradient]
RotaryEmbeddingFunctionBackward ApplyRotaryEmbBackward like ApplyRotaryEmb: view x[*rest width], forward, read cos, read sin,
    interleaved=False, inplace=False
ApplyRotaryEmbQKV_Backward ApplyRotaryEmbKV_Backward like ApplyRotaryEmbQKV_: view x[batch steps parts heads width], forward,
    read cos, read sin
Fast_RoPE_EmbeddingBackward like Fast_RoPE_Embedding: view x[*rest width], forward, read cos, read sin
[element-wise with_gradients]
Fast_RoPE_Embedding_QKBackward like Fast_RoPE_Embedding: view x+, query, key, read cos, read sin;
    turned = x.n // x[-1] * min(cos[-1], x[-1])
[matmul functions]
# (silu(a) * b) @ weight^T, perhaps with a bias; what is between is not kept.
SwiGLULinearFunction: read gate[*rows k], read up[*=rows =k], read weight[n =k], read bias?; matrix = 2 * rows * k * n;
    other = gate.n * (SILU + 1) + rows * n * len(bias); writes = rows * n * gate.item
SwiGLULinearFunctionBackward: read grad, update gate[*rows k], update up[*=rows =k], update weight[n =k], write bias?;
    matrix = 2 * 2 * rows * k * n; other = gate.n * (SILU + 7) + grad.n * len(bias)
# [tokens, hidden] @ [vocabulary, hidden]^T, the loss of it, and the gradients of both: the logits are never kept.
FusedLinearCrossEntropyFunction: update input[*tokens k], read target, update weight[vocabulary =k], update bias[=vocabulary]?;
    matrix = 3 * 2 * tokens * k * vocabulary; other = tokens * vocabulary * (SOFTMAX + 2); writes = 4; assumption = {_EARLY}
LigerFusedLinearCrossEntropyFunction like FusedLinearCrossEntropyFunction: update input[*tokens k], update weight[vocabulary =k],
    read target, read rest*
# Logits of a student and of a teacher, their divergence, and the gradients of the student's two operands.
LigerFusedLinearJSDFunction: update student[*tokens k], update weight[vocabulary *hidden], read teacher[*rows width], read second,
    read labels*; matrix = 3 * 2 * tokens * k * vocabulary + 2 * tokens * width * vocabulary;
    other = tokens * vocabulary * (2 * SOFTMAX + (5 * TRANSCENDENTAL + 12)); writes = 4; assumption = {_EARLY}
# x [..., in], a weight [out, in] with its scales, perhaps a bias; the input becomes fp8 first.
FP8BlockQuantLinear FbgemmFp8Linear_matmul FP8_fbgemm_block_linear: read input[*rows k], read weight[n =k], read scale, read bias*;
    cost = QUANTIZE + 2; matrix = 2 * rows * k * n; other = rows * n * (1 + bool(bias)); writes = rows * n * input.item;
    precision = weight
FP8BlockQuantLinearBackward FbgemmFp8Linear_matmulBackward FP8_fbgemm_block_linearBackward: read grad, write input[*rows k],
    read weight[n =k], read scale; cost = 1; per = weight; matrix = 2 * rows * k * n
[normalization functions]
# x / |x|, and 1 / |x| of each row for the backward.
L2NormFunction: read x[*rows k] -> x; cost = WEIGHT_NORM; per = x; writes = 4 * rows
# (g - y * sum(g * y)) / |x|.
L2NormFunctionBackward: read grad[*rows k], x -> grad; cost = WEIGHT_NORM_BACKWARD; per = grad; reads = 2 * grad.size + 4 * rows
[normalization]
# A row of the norm is a group; means and deviations in float32 are kept.
LigerGroupNormFunction: read x[batch *rest], read weight, read bias, channels, groups -> x; cost = LAYER_NORM; per = x;
    writes = 8 * batch * groups
[normalization with_gradient]
LigerGroupNormFunctionBackward: read grad, update x[batch *rest], update weight, write bias, channels, groups;
    cost = LAYER_NORM_BACKWARD; per = x; also = 8 * batch * groups; precision = x
[reduction functions]
LigerSoftmaxFunction: read input -> input; cost = SOFTMAX
LigerSoftmaxFunctionBackward: read grad -> grad; cost = SOFTMAX_BACKWARD; per = grad; reads = 2 * grad.size
LigerCrossEntropyFunction: update logits, read target, read weights*; cost = SOFTMAX + 2; per = logits; writes = 4;
    assumption = {_EARLY}
LigerJSDFunction: update first, read second, read labels*; cost = 5 * TRANSCENDENTAL + 12; per = first; writes = 4;
    assumption = {_EARLY}
LigerTVDLossFunction like LigerJSDFunction: ; cost = 5
# y * (log(y) - x), summed.
LigerKLDivLossFunction: read first, read second; cost = TRANSCENDENTAL + 4; per = first; writes = 4 * first[0]
[element-wise dispatches]
# Whether the gradients are scaled depends on the value of the gradient that is given.
FusedLinearCrossEntropyFunctionBackward LigerCrossEntropyFunctionBackward LigerJSDFunctionBackward LigerTVDLossFunctionBackward
    LigerFusedLinearCrossEntropyFunctionBackward LigerFusedLinearJSDFunctionBackward:
""")
