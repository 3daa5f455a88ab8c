"""vLLM without attention and mixtures of experts: norms, activations, positions, conversions and products (``_C``, ``_rocm_C``), the KV
cache (``_C_cache_ops``), low-rank adapters, and operators in Python (``vllm``).

Strings, such as the dtype of a cache, are not in traces; the cache's tensor has its dtype. Weights of 4 or 8 bits are widened: the
precision is that of the activations. Which tokens have which adapter is in tensors, and the dtypes of lists of weights are not in
traces: weights of adapters have the dtype of the activations on their way to the narrow matrix. Operators in Python mostly wrap others:
what those below do not count is counted here.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted, size_of
from rooflines.roofline.formulas.costs import DEQUANTIZE, RMS_NORM, SILU
from rooflines.roofline.formulas.experts import INTEGERS
from rooflines.roofline.formulas.kv_cache import store, stored
from rooflines.roofline.formulas.matmul import layer_work
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import LAYER, formula
from rooflines.roofline.formulas.rotary import rotate_in_place
from rooflines.roofline.formulas.scaled import FOUR_BIT, SCALED, fp4_product, to_8_bits, to_fp4, widened
from rooflines.roofline.formulas.tables import table

_INTO: Final = "write out, read input"
# Queries and keys rotate in place, and the keys go into the cache beside the compressed ones.
_ROTATED_KEYS: Final = rotate_in_place(
    "read positions, view q_pe[*heads head], view k_pe, view kv_c, view table, is_neox, read slots, view cache, dtype, read scale?",
    "q_pe k_pe",
)
_NARROWED, _COMPRESSED, _ = stored("kv_c", "cache")
_HALF: Final = ("fp16", "bf16")


def _marlin(signature: Signature) -> Work:
    """The weight is repacked, so the sizes are arguments: m, n and k are the last integers before the first flag.

    The tensors before them differ between versions: activations, perhaps the result, the weight (the first one of integers or fp8),
    scales, zeros, and the workspace, which is last. Of 8-bit activations the result has the dtype of the scales.
    """
    flag = next((place for place, arg in enumerate(signature.args) if isinstance(arg, bool)), len(signature.args))
    numbers = [arg for arg in signature.args[:flag] if isinstance(arg, int)]
    tensors = [arg for arg in signature.args[:flag] if isinstance(arg, TensorArg)]
    if len(numbers) < 3 or len(tensors) < 3:
        raise NotCounted("sizes of the product not recorded")
    m, n, k = numbers[-3:]
    inputs, *others = tensors[:-1]
    if others[0].shape == (m, n) and precision_of(others[0].dtype) in _HALF:
        others = others[1:]  # the result
    weight = next((tensor for tensor in others if tensor.dtype in (*INTEGERS, *FOUR_BIT, "int8") or size_of(tensor.dtype) == 1), None)
    if weight is None or inputs.numel != m * k:
        raise NotCounted("arguments of another version")
    scales = [tensor for tensor in others if tensor is not weight]
    return layer_work(inputs, n, weight, *scales, unpack=DEQUANTIZE, dtype=marlin_dtype(inputs, scales))


formula("_C::marlin_gemm", "_C::gptq_marlin_gemm", "_C::fp8_marlin_gemm", "_C::awq_marlin_gemm", "sgl_kernel::gptq_marlin_gemm",
        category="matmul")(_marlin)  # fmt: skip
formula("vllm::marlin_gemm", category="matmul", wraps=True)(_marlin)


def marlin_dtype(inputs: TensorArg, scales: list[TensorArg]) -> str:
    """The dtype of the result: that of the activations, or of the scales where these are of 8 bits."""
    if size_of(inputs.dtype) > 1:
        return inputs.dtype
    found = next((scale.dtype for scale in scales if precision_of(scale.dtype) in _HALF), None)
    if found is None:
        raise NotCounted("dtype of the result not recorded")
    return found


_RMS: Final = "read input, read weight, eps"
_RMS_ADDED: Final = "read input, read residual, read weight, eps"
_ROTATED_BY_PARTS: Final = rotate_in_place(
    "read positions[*three tokens], view query, view key, view table, head, rotary",
    rotary="rotary", angles="positions.size + selected(table, tokens * table[-1])",
)  # fmt: skip
_TURNED: Final = rotate_in_place("view query, view key[*heads head], view value, read positions, view table")


table(f"""
[normalization _C::]
rms_norm: {_INTO}, read weight; cost = RMS_NORM
rms_norm_weightless: {_INTO}; cost = RMS_NORM - 1
fused_add_rms_norm: update input, update residual, read weight; cost = RMS_NORM + 1
fused_add_rms_norm_weightless: update input, update residual; cost = RMS_NORM
rms_norm_static_fp8_quant: {_INTO}, read weight, read scale; cost = RMS_NORM + QUANTIZE
fused_add_rms_norm_static_fp8_quant: {_INTO}, update residual, read weight, read scale; cost = RMS_NORM + 1 + QUANTIZE
rms_norm_dynamic_per_token_quant rms_norm_per_block_quant: {_INTO}, read weight, write scale, eps, read scale_ub?, update residual?;
    cost = RMS_NORM + DYNAMIC_QUANTIZE
[element-wise _C:: sgl_kernel:: flashinfer:: aiter::]
# A gate and a factor lie side by side in the input: one activation and one product for each element of the result.
silu_and_mul: {_INTO}; cost = SILU + 1; per = out
gelu_and_mul gelu_tanh_and_mul: {_INTO}; cost = GELU + 1; per = out
[element-wise _C:: sgl_kernel::]
gelu_quick: {_INTO}; cost = SIGMOID + 2; per = out
[element-wise _C::]
mul_and_silu: {_INTO}; cost = SILU + 1; per = out
fatrelu_and_mul relu_squared: {_INTO}; cost = 2; per = out
# Two clamps, 1.702 * x, (up + 1) * glu.
swigluoai_and_mul: {_INTO}; cost = SILU + 6; per = out
silu_and_mul_with_clamp: {_INTO}; cost = SILU + 4; per = out
gelu_new gelu_fast: {_INTO}; cost = GELU; per = out
# The search for a block's range is per element of the result, too.
silu_and_mul_quant: {_INTO}, read scale; cost = SILU + 1 + QUANTIZE; per = out
silu_and_mul_per_block_quant: {_INTO}, write scales, group_size, read scale_ub?; cost = SILU + 1 + DYNAMIC_QUANTIZE; per = out
static_scaled_fp8_quant: {_INTO}, read scale; cost = QUANTIZE
dynamic_scaled_fp8_quant: {_INTO}, write scale; cost = DYNAMIC_QUANTIZE
dynamic_per_token_scaled_fp8_quant: {_INTO}, write scale, read scale_ub?; cost = DYNAMIC_QUANTIZE
static_scaled_int8_quant: {_INTO}, read scale, read azp?; cost = QUANTIZE
dynamic_scaled_int8_quant: {_INTO}, write scale, write azp?; cost = DYNAMIC_QUANTIZE
per_token_group_fp8_quant per_token_group_fp8_quant_packed per_token_group_quant_int8: read input, write out, write scale;
    cost = DYNAMIC_QUANTIZE
mxfp8_experts_quant: read input, read sizes, read offsets, read scale_offsets, write out, write scale; cost = DYNAMIC_QUANTIZE
# Two numbers of 4 bits in an element of the result.
silu_and_mul_nvfp4_quant: write out, write scales, read input, read scale; cost = 2 * (SILU + 1 + DYNAMIC_QUANTIZE); per = out
[element-wise]
# The rows of all experts as NVFP4, each with its expert's scale. The result's rows and scales are padded, which is not counted.
_C::scaled_fp4_experts_quant sgl_kernel::scaled_fp4_experts_quant sglang::scaled_fp4_experts_quant: out, scales, read input,
    read scale, read offsets, read scale_offsets; cost = DYNAMIC_QUANTIZE; writes = input.n // 2 + input.n // 16
# Behind a gate half as many numbers.
_C::silu_and_mul_scaled_fp4_experts_quant like _C::scaled_fp4_experts_quant: ; cost = 0;
    other = input.n // 2 * (SILU + 1 + DYNAMIC_QUANTIZE); writes = input.n // 4 + input.n // 32
# Older versions are given the results first.
_C::scaled_fp4_quant: {to_fp4("write out, read input, write block_scale, read scale")}
    | {to_fp4("read input, read scale, swizzled, write out?, write block_scale?")}
_C::rotary_embedding _C::batched_rotary_embedding sgl_kernel::rotary_embedding sglang::rotary_embedding_with_key: {rotate_in_place()}
_C::awq_dequantize sgl_kernel::awq_dequantize: read weight[k *words], read scales[*groups n], read zeros; other = DEQUANTIZE * k * n;
    writes = k * n * scales.item; precision = scales
_C::ggml_dequantize sgl_kernel::ggml_dequantize:
    {widened("read weight, type, m, n, dtype=None", "item('dtype', 'float16')", "m * n", "dtype=float16")}
# Three positions [3, tokens], each for a part of a row of the table.
vllm::mrope: {_ROTATED_BY_PARTS}
[other]
# The same memory.
_C::weak_ref_tensor sgl_kernel::weak_ref_tensor _C::get_cuda_view_from_cpu_tensor: input
[normalization]
# Queries and keys inside [tokens, heads * head] are normalized and rotated in place; the values stay.
_C::fused_qk_norm_rope: view qkv, heads_q, heads_k, heads_v, head, eps, read q_weight, read k_weight, view table[places rotary],
    is_neox, read positions; other = positions.n * (heads_q + heads_k) * (head * RMS_NORM + min(rotary, head) * ROTARY_EMBEDDING);
    reads = positions.n * (heads_q + heads_k) * head * qkv.item + selected(table, positions.n * rotary) + q_weight.size +
    k_weight.size + positions.size; writes = positions.n * (heads_q + heads_k) * head * qkv.item; precision = qkv
[copy]
_C_cache_ops::reshape_and_cache _C_cache_ops::reshape_and_cache_flash aiter::reshape_and_cache aiter::reshape_and_cache_flash:
    {store("view key, view value, view key_cache, view value_cache, read slots, dtype, read k_scale?, read v_scale?")}
_C_cache_ops::concat_and_cache_mla_rope_fused: {_ROTATED_KEYS}; other = {_ROTATED_KEYS.other} + {_NARROWED};
    also = {_COMPRESSED} + slots.size + scale.size; writes = {_ROTATED_KEYS.writes} + slots.n * cache[-1] * cache.item
# As many blocks as the map [pairs, 2] has rows; newer versions are given the bytes of a block.
_C_cache_ops::swap_blocks aiter::swap_blocks: view source, target, read map;
    moved = map.n // 2 * (source.n // source[0] * source.item); reads = moved + map.size; writes = moved
    | ; schema = view source, target, block, read map; moved = map.n // 2 * block
_C_cache_ops::copy_blocks_mla like _C_cache_ops::swap_blocks: view source+, read map
_C_cache_ops::copy_blocks aiter::copy_blocks like _C_cache_ops::swap_blocks: view keys+, view values+, read map;
    moved = map.n // 2 * (keys.n // keys[0] * keys.item + values.n // values[0] * values.item)
_C_cache_ops::concat_mla_q sgl_kernel::concat_mla_absorb_q: read input, read rotated, write out
_C_cache_ops::convert_fp8: {_INTO}; cost = QUANTIZE; precision = input out
# The compressed keys and values and the rotated part, side by side; a row of the cache may hold scales too.
_C_cache_ops::concat_and_cache_mla aiter::concat_and_cache_mla aiter::concat_and_cache_mla_seg: read kv_c, read k_pe,
    view cache[*places width], read slots, dtype, read scale?;
    other = QUANTIZE * (first(kv_c, slots.n) * (cache.item < kv_c.item) + first(k_pe, slots.n) * (cache.item < k_pe.item));
    reads = first(kv_c, slots.n) * kv_c.item + first(k_pe, slots.n) * k_pe.item + slots.size + scale.size;
    writes = slots.n * width * cache.item
# The key [tokens, width] of a sparse attention's index as fp8, with a float32 scale for each block of it.
_C_cache_ops::indexer_k_quant_and_cache aiter::indexer_k_quant_and_cache: read k[tokens width], cache, read slots, block;
    other = slots.n * width * DYNAMIC_QUANTIZE; reads = first(k, slots.n) * k.item + slots.size;
    writes = slots.n * (width + 4 * (width // block))
# Keys of the index and their scales, from pages of both to rows of each.
_C_cache_ops::cp_gather_indexer_k_quant_cache aiter::cp_gather_indexer_k_quant_cache: cache, write keys, write scales, read table,
    read lengths; reads = keys.n * keys.item + scales.n * scales.item + table.size + lengths.size;
    assumption = every row of the result is gathered
# Pages of the cache into consecutive rows; the lengths are data.
_C_cache_ops::gather_cache _C_cache_ops::cp_gather_cache _C_cache_ops::gather_and_maybe_dequant_cache: view cache, write out,
    read table, read lengths; other = out.n * (cache.item < out.item); reads = out.n * cache.item + table.size + lengths.size;
    precision = out; assumption = every row of the result is gathered
[matmul tensors_only]
# Weight [n, k], activations [m, k]; a bias since 2025. ``KQ`` is fp8 with two scales, the result before them.
_rocm_C::wvSplitK _rocm_C::wvSplitKrc: read weight[n k], read x[*m =k], read bias?; matrix = 2 * m * k * n;
    other = m * n * bool(bias); writes = m * n * x.item; precision = x
_rocm_C::wvSplitKQ aiter::wvSplitKQ: read weight[n k], read x[*m =k], read bias, write out, read scale_a, read scale_b;
    matrix = 2 * m * k * n; other = m * n * 2; precision = x
    | ; schema = read weight[n k], read x[*m =k], write out, read scale_a, read scale_b; other = m * n
[matmul]
# Activations [m, k] with a weight of k * n numbers, which are widened: [k / 8, n] of int32,
_C::gptq_gemm sgl_kernel::gptq_gemm: read a[*m k], read weight[*depth n], read zeros, read scales, read g_idx?;
    matrix = 2 * m * k * n; other = DEQUANTIZE * k * n; writes = m * n * a.item
# or [k, n / 8] with scales [k / group, n],
_C::awq_gemm vllm::triton_w4a16_gemm like _C::gptq_gemm: read a[*m k], read weight, read scales[*groups n], read zeros?
# or [k / 8, n] repacked.
_C::machete_mm like _C::gptq_gemm: read a[*m k], read weight[*depth n], type, out_type, read group_scales?, read group_zeros?,
    group_size, read channel_scales?, read token_scales?
_C::allspark_w8a16_gemm like _C::gptq_gemm: read a[*m k], read weight, read scales, read zeros?, n
# The activations become 8-bit integers; a row of the weight is a row of blocks of bytes.
_C::ggml_mul_mat_vec_a8 _C::ggml_mul_mat_a8 sgl_kernel::ggml_mul_mat_vec_a8 sgl_kernel::ggml_mul_mat_a8: read weight, read x[*m k],
    type, n; cost = DYNAMIC_QUANTIZE; per = x; matrix = 2 * m * k * n; other = m * n; writes = m * n * x.item; precision = int8
[matmul vllm::]
# [tokens, width] to [slices, tokens, rank], with a weight [rank, width] a slice, and a scale for each result.
lora_shrink: read input[tokens width], weights, write out[slices rows rank]; cost = 1; per = out;
    matrix = 2 * slices * tokens * width * rank; reads = input.size + slices * rank * width * input.item;
    assumption = every token has an adapter, all the same
# [slices, tokens, rank] to the columns of [tokens, width] from the first one on, perhaps added to what is there.
# Newer versions are given the number of adapters.
lora_expand: read input[slices tokens rank], weights, write out[rows width], mapping, order, counts, starts, ids, none, first=0,
    adds=False; matrix = 2 * tokens * rank * width; other = out.n * adds; also = rank * width * out.item + out.size * adds;
    precision = out; assumption = every token has an adapter, all the same;
    fits = (value('adds') is True or value('adds') is False) and first == 0
    | ; schema = read input[slices tokens rank], weights, write out[rows width], mapping, order, counts, starts, ids, none, active,
    first=0, adds=False; fits = first == 0
# On processors: a weight whose numbers were put in another order; vLLM's calls SGLang's.
[matmul wraps]
_C::weight_packed_linear: read input[*m k], read weight[n =k], read bias?, packed=None; matrix = 2 * m * k * n;
    other = m * n * bool(bias); writes = m * n * input.item
[matmul]
sgl-kernel::weight_packed_linear: read input[*m k], read weight[n =k], read bias?, packed=None; matrix = 2 * m * k * n;
    other = m * n * bool(bias); writes = m * n * input.item
[matmul vllm:: wraps]
rocm_unquantized_gemm rocm_unquantized_gemm_impl: read input[*m k], read weight[n =k], read bias?; matrix = 2 * m * k * n;
    other = m * n * bool(bias); writes = m * n * input.item
# Activations become fp8 on the way to a weight of fp8.
flashinfer_fp8_blockscale_gemm dynamic_flashinfer_deepgemm_blockscale_gemm: read input[*m k], read weight[n =k], read scale;
    matrix = 2 * m * k * n; other = m * n + DYNAMIC_QUANTIZE * m * k; writes = m * n * input.item; precision = weight
# Older versions have the scales of activations in 4 bits before a flag.
gemm_with_dynamic_quant: {fp4_product("read left, read right, read scale, flag, dtype=15, read left_scale?")}; fits = flag in (0, 1)
    | {fp4_product("read left, read right, read scale, read left_scale?, flag, dtype=15")}
[normalization vllm:: wraps]
rocm_aiter_rms_norm: read input, read weight -> input; cost = RMS_NORM
rocm_aiter_rmsnorm2d_fwd_with_add: update input, read residual, read weight -> residual; cost = RMS_NORM + 1
# returns the norm, whose rows may be padded, and the sum
rocm_aiter_triton_add_rmsnorm_pad: read input, read weight, eps, read residual -> input residual; cost = RMS_NORM + 1
fla_rms_norm_gated: read input, read gate, read weight -> input; cost = RMS_NORM + SILU + 1
flashinfer_fused_add_rms_norm_nvfp4_quant: write out, write block_scale, update residual, read input, read weight, read scale;
    cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE
fused_mla_dual_rms_norm: read first[*rows width], read first_weight, read second, read second_weight -> first second;
    cost = RMS_NORM; per = first second
fused_mla_dual_rms_norm_group_quant fused_mla_dual_rms_norm_per_token_quant like fused_mla_dual_rms_norm: read first[*rows width],
    read first_weight, read second, read second_weight, first_eps, second_eps, group=0 -> second; other = first.n * DYNAMIC_QUANTIZE;
    writes = first.n + 4 * (first.n // (group or width))
rocm_aiter_rmsnorm_fp8_group_quant: {to_8_bits(f"{_RMS}, group_size", RMS_NORM)}
rocm_aiter_rmsnorm_with_add_fp8_group_quant: {to_8_bits(f"{_RMS_ADDED}, group_size", RMS_NORM + 1)}
rocm_aiter_rmsnorm_fused_dynamic_quant: {to_8_bits(f"{_RMS}, dtype", RMS_NORM)}
rocm_aiter_rmsnorm_fused_add_dynamic_quant: {to_8_bits(f"{_RMS_ADDED}, dtype", RMS_NORM + 1)}
rocm_aiter_fused_rms_fp8_per_tensor_static_quant: {to_8_bits(f"{_RMS}, read scale?, dtype", RMS_NORM)}
rocm_aiter_fused_add_rms_fp8_per_tensor_static_quant: {to_8_bits(f"{_RMS_ADDED}, read scale?, dtype", RMS_NORM + 1)}
rocm_aiter_fused_rms_gated_fp8_group_quant:
    {to_8_bits("read input, read weight, bias, read gate, eps, before, activation, group_size", RMS_NORM + SILU + 1)}
[moe vllm:: wraps]
rocm_aiter_topk_softmax: write weights, write ids, write places, read input; cost = SOFTMAX + 1
rocm_aiter_topk_gating: write weights, write ids, write places, read input; cost = SIGMOID + 2
rocm_aiter_topk_sigmoid: write weights, write ids, read input; cost = SIGMOID + 1
rocm_aiter_biased_grouped_topk: read input, read bias, write weights, write ids; cost = SIGMOID + 2
rocm_aiter_grouped_topk: read input, write weights, write ids; cost = SOFTMAX + 1
[element-wise wraps]
vllm::mxfp8_quantize vllm::flashinfer_mxfp8_quantize_8x4 sglang::flashinfer_mxfp8_quantize: read input; cost = DYNAMIC_QUANTIZE;
    writes = input.n + input.n // 32
vllm::flashinfer_mxfp4_quantize sglang::aiter_dynamic_mxfp4_quant sglang::aiter_per_1x32_f4_quant: read input;
    cost = DYNAMIC_QUANTIZE; writes = input.n // 2 + input.n // 32
vllm::dequant_mxfp4 sglang::dequant_mxfp4:
    {widened("read input, read scale, dtype", "item('dtype', 'bfloat16')", "2 * input.n", "dtype=bfloat16")}
[element-wise vllm:: wraps]
rocm_aiter_per_token_quant: {to_8_bits("read input, dtype, read scale?")}
# Older versions return the result and its scale, computed unless a scale is given.
rocm_aiter_per_tensor_quant: write out, read input, read scale; cost = QUANTIZE
    | {to_8_bits("read input, dtype, read scale?")}
rocm_aiter_group_fp8_quant triton_per_token_group_quant_fp8: {to_8_bits("read input, group_size")}
rocm_aiter_act_mul_and_fp8_group_quant: {to_8_bits("read input, group_size", SILU + 1, "(input.n // 2)")}
flashinfer_nvfp4_quantize: {to_fp4("read input, read scale, write out?, write block_scale?")}
flashinfer_rotary_embedding rocm_aiter_triton_rotary_embedding: {rotate_in_place()}
[copy wraps]
# Queries and keys [tokens, heads, head] rotate in place first.
vllm::fused_rope_and_unified_kv_cache_update: {_TURNED}; also = value.size;
    writes = {_TURNED.writes} + key.n * key.item + value.n * value.item; assumption = the cache has the dtype of the keys
# The cache is found by the layer's name; the operator below has it as an argument.
vllm::unified_kv_cache_update vllm::unified_mla_kv_cache_update: read key[tokens *rest], read value;
    reads = key.n * key.item + first(value, tokens) * value.item; writes = key.n * key.item + first(value, tokens) * value.item;
    assumption = the cache has the dtype of the keys
[matmul scaled]
_C::cutlass_scaled_mm: write out, left, right, read scale_a, read scale_b, read bias?
_C::cutlass_scaled_mm_azp: write out, left, right, read scale_a, read scale_b, read azp_adj, read azp?, read bias?
_C::cutlass_scaled_fp4_mm: write out, left, right, read scale_a, read scale_b, read alpha
_C::cutlass_w4a8_mm: left, right, read group_scales, group_size, read channel_scales, read token_scales, out_dtype
_C::dsv3_fused_a_gemm _moe_C::dsv3_router_gemm _C::fp32_router_gemm: write out, left, right
_moe_C::router_gemm_bf16_fp32: left, right, out_dtype=6
_moe_C::gpt_oss_router_gemm: write out, left, right, read bias
_C::matmul_mxf4_bf16_tn _C::matmul_nvf4_bf16_tn _C::matmul_ada_mxf4_bf16_tn _qutlass_C::matmul_mxf4_bf16_tn
    _qutlass_C::matmul_nvf4_bf16_tn _qutlass_C::matmul_ada_mxf4_bf16_tn _qutlass_C::matmul_mxf8_bf16_tn
    _qutlass_C::matmul_mxf8_bf16_nn: left, right, read scale_a, read scale_b, read alpha, out_dtype=15
_rocm_C::LLMM1: right, left
aiter::LLMM1 aiter::wvSpltK aiter::wv_splitk_small_fp16_bf16: right, left, write out
[matmul vllm:: scaled wraps]
rocm_aiter_gemm_a8w8_blockscale rocm_aiter_gemm_a8w8_blockscale_bpreshuffle rocm_aiter_gemm_a8wfp4 bmm_fp8 mm_mxfp8
    rocm_aiter_triton_gemm_a8w8_blockscale rocm_aiter_triton_gemm_a8w8_blockscale_preshuffle: {SCALED}, out_dtype
rocm_aiter_gemm_w8a8 rocm_aiter_w8a8_gemm rocm_aiter_hipb_mm_fp8 rocm_aiter_gemm_a8w8 _rocm_aiter_preshuffled_per_token_w8a8_gemm:
    {SCALED}, read bias?, out_dtype
w8a8_triton_block_scaled_mm_func w8a8_block_fp8_matmul_deepgemm rocm_aiter_gemm_w8a8_blockscale padded_cutlass: {SCALED}, block,
    out_dtype
rocm_per_tensor_float_w8a8_scaled_mm_impl rocm_per_tensor_w8a8_scaled_mm_impl: left, right, out_dtype, read scale_a, read scale_b,
    read bias?
int8_scaled_mm_func: {SCALED}, out_dtype, read bias?
fp8_gemm_nt_op: left, read scale_a, right, read scale_b, write out
flashinfer_mm_fp4: {SCALED}, read scale, out_dtype
flashinfer_mm_bf16_fp4: left, right, read scale_b, read scale
cuda_flashinfer_bf16_gemm gpt_oss_router_gemm min_latency_fused_qkv_a_proj: left, right, read bias?
matmul_mxf4_bf16 matmul_nvf4_bf16: {SCALED}, read alpha, out_dtype=15
bf16x3_router_gemm fp32_router_gemm_dispatch: left, right, more, out_dtype=6
rocm_mxfp8_block32_gemm: left, read scale_a, right, read scale_b, out_dtype
[other vllm:: dispatches]
# Layers, and choices between operators.
mamba_mixer mamba_mixer2 plamo2_mamba_mixer linear_attention short_conv gdn_attention gdn_attention_core qwen_gdn_attention_core
    apply_w8a8_block_fp8_linear _fused_mul_mat_gguf _fused_moe_gguf _apply_gguf_embedding apply_bnb_4bit kda_attention
    bailing_v3_kda_attention qwen_gdn_attention_core_fused_norm_packed olmo_hybrid_gdn_full_forward maybe_calc_kv_scales
    sequence_parallel_chunk_impl sparse_attn_indexer rocm_aiter_sparse_attn_indexer lora_linear_async
    fused_qk_norm_rope_and_unified_kv_cache_update fused_qk_norm_mrope_and_unified_kv_cache_update
    fused_rope_unified_mla_kv_cache_update: {LAYER}
""")
