"""TensorRT-LLM's operators for PyTorch (``trtllm``, ``tensorrt_llm``): products, norms, activations, positions, conversions and
mixtures of experts.

Operators that choose between kernels, and those around flashinfer, count where nothing below them is counted. Of layers of experts,
versions differ in what follows the weights.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments
from rooflines.roofline.formulas.experts import fused_experts
from rooflines.roofline.formulas.libraries.experts import trtllm_experts
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rotary import rotate_in_place
from rooflines.roofline.formulas.scaled import SCALED, scaled_work, to_8_bits, to_blocks
from rooflines.roofline.formulas.tables import table


@formula("trtllm::nvfp4_gemm", category="matmul", wraps=True)
def _fp4_product(signature: Signature) -> Work:
    """Versions of early 2025 have a flag for the scales before the dtype."""
    flag = "e8m0, " if isinstance(signature.arg(5), bool) else ""
    return scaled_work(signature, f"{SCALED}, read alpha, {flag}out_dtype")


# NVFP4 with a scale of a byte for each 16, the sum with the residual, and the norm itself if a flag is set
_FP4: Final = "input.n // 2 + input.n // 16 + bool(both) * input.n * input.item"


@formula("trtllm::fused_moe", category="moe", wraps=True)
def _fused(signature: Signature) -> Work:
    """Weights [experts, 2 * inner, width] and [experts, width, inner], since August 2025 each with a bias, then the dtype of the result
    and scales. Ids may be of experts on other ranks."""
    args = Arguments(signature, "hidden ids weights first first_bias second second_bias dtype scales")
    if not isinstance(signature.arg(6), TensorArg | None):  # a dtype is a number
        args = Arguments(signature, "hidden ids weights first second dtype scales")
    hidden, first, second = args.tensor("hidden"), args.tensor("first"), args.tensor("second")
    others = [args.optional("first_bias"), args.optional("second_bias"), *args.tensors("scales")]
    return fused_experts(
        hidden, first, second, (args.tensor("weights"), args.tensor("ids")), others, widened=first.dtype == "int8",
        out=args.dtype("dtype", hidden.dtype), ranks=True,
    )  # fmt: skip


_TABLE: Final = f"""
[matmul trtllm::]
# A repacked weight of 4 or 8 bits with a scale for each column, or for each group of a column [k / group, n].
finegrained_mixed_dtype_gemm: read input[*m k], read weight, read scales[*groups n], group, zero_point, dtype, alpha=None,
    read bias?, read zeros?; matrix = 2 * m * k * n; other = m * n * bool(bias) + DEQUANTIZE * k * n;
    writes = m * n * item('dtype', input.dtype)
# Activations become fp8 on the way to a weight of fp8.
fp8_swap_ab_gemm: read input[*m k], read weight[n =k], read scale, dtype=15; matrix = 2 * m * k * n;
    other = m * n + DYNAMIC_QUANTIZE * m * k; writes = m * n * item('dtype', 'bfloat16'); precision = weight
weight_only_quant_gemm: read input[*m k], read weight, type, read scales[*groups n], dtype; matrix = 2 * m * k * n; other = m * n;
    writes = m * n * item('dtype', input.dtype)
[normalization trtllm:: wraps]
flashinfer_rmsnorm flashinfer_gemma_rmsnorm: read input, read weight, eps -> input; cost = RMS_NORM
flashinfer_fused_add_rmsnorm flashinfer_gemma_fused_add_rmsnorm: update input, update residual, read weight, eps; cost = RMS_NORM + 1
flashinfer_fused_add_add_rmsnorm: update input, read more, update residual, read weight, eps; cost = RMS_NORM + 2
flashinfer_fused_add_rmsnorm_quant: write out, read input, update residual, read weight, read scale, eps;
    cost = RMS_NORM + 1 + QUANTIZE
[normalization trtllm::]
fused_rmsnorm_fp4_quantize: read input, read weight, read scale, eps, both; cost = RMS_NORM + DYNAMIC_QUANTIZE; writes = {_FP4}
fused_add_rmsnorm_fp4_quantize: read input, update residual, read weight, read scale, eps, both;
    cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE; writes = {_FP4}
[element-wise]
# Half as many numbers, narrow ones after a scale.
trtllm::flashinfer_silu_and_mul trtllm::silu_and_mul: read input, read scale?, dtype=None; each = SILU;
    other = input.n // 2 * (each + 1 + QUANTIZE * bool(scale)); writes = input.n // 2 * item('dtype', input.dtype)
trtllm::flashinfer_gelu_tanh_and_mul like trtllm::silu_and_mul: ; each = GELU
# the scale is returned too, one number, which a static conversion is given
tensorrt_llm::quantize_e4m3_per_tensor tensorrt_llm::static_quantize_e4m3_per_tensor: read input, read scale?;
    other = input.n * (QUANTIZE if scale else QUANTIZE + 2); writes = input.n + (scale.item or input.item)
trtllm::mxfp8_quantize: {to_blocks(8, 32)}
trtllm::fp8_quantize_1x128_packed_ue8m0: {to_blocks(8, 128)}
trtllm::fp8_quantize_1x128: {to_8_bits("read input, e8m0=False, group_size=128")}
tensorrt_llm::quantize_e4m3_activation: {to_8_bits("read input")}
trtllm::flashinfer_apply_rope_with_cos_sin_cache_inplace: {rotate_in_place("read positions, view query, view key, head, view table")}
# the last ``rope`` numbers of each head rotate in place
trtllm::mla_rope_inplace:
    {rotate_in_place("view data, read positions, view table, heads, nope, rope", "data", "(nope + rope)", "rope")}
# two parts of each head side by side in fp8, with a scale for each head
trtllm::fused_cat_fp8: read first[*heads size], read second; cost = DYNAMIC_QUANTIZE; per = first second;
    writes = first.n + second.n + 4 * heads
[moe trtllm::]
renorm_moe_routing_op default_moe_routing_op: read scores, kept, dtype=None; cost = SOFTMAX + 1; per = scores;
    writes = scores[0] * kept * (4 + item('dtype', 'float32'))
# scores and scores with a bias, one comparison each; weights and ids are returned
noaux_tc_op: read scores, read biased, groups, groups_kept, kept; other = scores.n + 2 * scores[0] * kept;
    writes = scores[0] * kept * (4 + biased.item)
moe_unpermute: read rows, read places, read weights; other = 2 * places.n * rows[-1];
    reads = places.n * rows[-1] * rows.item + places.size + weights.size; writes = places[0] * rows[-1] * rows.item
[matmul trtllm:: scaled]
cublas_scaled_mm cuda_scaled_mm: {SCALED}, read bias?, out_dtype
cublas_mm dsv3_router_gemm_op dsv3_fused_a_gemm_op: left, right, read bias?, out_dtype=None
fp4_gemm: {SCALED}, read alpha, e8m0, out_dtype
cuda_core_nvfp4_gemm: {SCALED}, read alpha, read bias?, out_dtype
mxfp8_mxfp8_gemm: left, read scale_a, right, read scale_b, read alpha, out_dtype=15
fp8_block_scaling_gemm_impl: {SCALED}, out_dtype=15
tinygemm2: left, right, read bias
[matmul trtllm:: scaled wraps]
fp8_block_scaling_gemm: {SCALED}, tokens, out_dtype=15
fp8_rowwise_gemm: {SCALED}, out_dtype
nvfp4_gemm_cublaslt: {SCALED}, read alpha, out_dtype
[attention dispatches]
# The layer is found by its number; attention itself is a function without an operator.
trtllm::attn_custom_op_inplace trtllm::mla_custom_op_inplace: weights and the KV cache of the layer are not arguments
[moe trtllm:: by=experts wraps]
fp8_block_scale_moe_runner fp4_block_scale_moe_runner bf16_mxe2m1_block_scale_moe_runner mxe4m3_mxe2m1_block_scale_moe_runner
    e4m3_mxe2m1_block_scale_moe_runner: scores
"""
table(_TABLE, experts=trtllm_experts)
