"""Mixtures of experts of vLLM, SGLang and AITER: routing, sorting, products and whole layers; and tokens put in the order of their
experts and back: TransformerEngine, and the routing of OpenAI's ``triton_kernels`` (gpt-oss in vLLM and SGLang).

SGLang's ``sglang::*_fused_experts`` come from the same source as vLLM's. Versions differ in what follows the first five arguments, so
that is recognized by its kind. The products of ``triton_kernels`` (``_matmul_ogs``) have no event of their own. An index [tokens,
experts of a token] makes a map of as many int32; a mask [tokens, experts] one of [tokens, 2 * experts + 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import SCALAR_TYPES, Argument, Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, floating, size, size_of
from rooflines.roofline.formulas.costs import SIGMOID
from rooflines.roofline.formulas.experts import INTEGERS, SPREAD, assumed, fused_experts, product_of_experts
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints
from rooflines.roofline.formulas.scaled import FOUR_BIT, operand_precision
from rooflines.roofline.formulas.tables import table

# The largest of the scores of all experts are searched once for each token.
_ROUTED: Final = "write weights, write ids, write places, read input, renormalize"
_ALIGNED: Final = "write sorted_ids, write expert_ids, write count"


def _integers(args: Sequence[Argument]) -> list[int]:
    return [arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)]


def grouped(signature: Signature, _: Hints, text: str) -> Work:
    """Rows [m, k], sorted by expert, weight [experts, n, k] or [experts, k, n], scales. The result comes first, or has m rows."""
    out, inputs, weight, *others = signature.tensors
    if text == "result later":
        inputs, weight, *others = signature.tensors
        out = next((other for other in others if len(other.shape) == 2 and other.shape[0] == inputs.shape[0]
                    and precision_of(other.dtype) in ("bf16", "fp16")), out)  # fmt: skip
    return grouped_work(out, inputs, weight, others[:2])


def grouped_work(out: TensorArg, inputs: TensorArg, weight: TensorArg, scales: list[TensorArg]) -> Work:
    """``inputs`` [m, k] with ``weight`` [experts, .., ..] into ``out`` [m, n]: k counts numbers, two an element of 4-bit operands.

    The rows of each expert are told by offsets, perhaps none for rows of experts on other ranks.
    """
    if len(inputs.shape) != 2 or len(weight.shape) != 3:
        raise NotCounted("shapes of the experts not understood")
    precision = operand_precision(inputs, weight)
    inner = inputs.shape[-1] * (2 if precision == "fp4" else 1)
    rows = inputs.shape[0]
    made = rows * out.shape[-1] * size_of(out.dtype)
    return product_of_experts(rows, inner, out.shape[-1], inputs, weight, scales, made, precision, ranks=True)


def fused(signature: Signature, _: Hints, text: str) -> Work:
    """Both products, the activation and the sum over the experts of a token.

    Of integers among the later tensors, one with one dimension is the map of experts to ranks; the others are scales and biases.
    SGLang has no such map: ids of experts on other ranks are -1.
    """
    args = Arguments(signature, text)
    later = [arg for arg in signature.args[5:] if isinstance(arg, TensorArg)]
    maps = [tensor for tensor in later if tensor.dtype in INTEGERS and len(tensor.shape) == 1]
    hidden, first = args.tensor("hidden"), args.tensor("w1")
    return fused_experts(
        hidden, first, args.tensor("w2"), (args.tensor("topk_weights"), args.tensor("topk_ids")),
        [tensor for tensor in later if tensor not in maps], widened=first.dtype == "int8" and not _activations_are_int8(signature),
        global_experts=maps[0].numel if maps else None, ranks=signature.name.startswith("sglang::"),
    )  # fmt: skip


def _activations_are_int8(signature: Signature) -> bool:
    """The flags are, in order: weight on the input, fp8, int8 of both, int8 of the weights, ... SGLang has one for the gate before,
    after the activation's number."""
    place = next((place for place, arg in enumerate(signature.args) if isinstance(arg, bool)), None)
    if place is None or len(signature.args) < place + 4:
        raise NotCounted("dtype of the activations (int8 or not) not recorded")
    gated = isinstance(signature.args[place - 1], int)
    return bool(signature.args[place + 2 + gated])


def aiter_experts(signature: Signature, _: Hints, text: str) -> Work:
    """AITER's whole layer: hidden, w1, w2, weights and ids of the experts, perhaps the mask of those on this rank, and scales."""
    args = Arguments(signature, text)
    later = [arg for arg in signature.args[5:] if isinstance(arg, TensorArg)]
    first = args.tensor("w1")
    masks = [tensor for tensor in later if tensor.dtype in INTEGERS and len(tensor.shape) == 1 and tensor.numel >= first.shape[0]]
    scales = [tensor for tensor in later if tensor.dtype not in INTEGERS]
    # With a scale for each 32 (QuantType 3) the activations may become fp4 too.
    narrow = first.dtype in FOUR_BIT and signature.arg(7) == 3
    # The place of the result's dtype differs; 5 and 15 (float16, bfloat16) are no size of a block.
    dtypes = [SCALAR_TYPES[arg] for arg in signature.args[13:18] if isinstance(arg, int) and arg in (5, 15)]
    return fused_experts(
        args.tensor("hidden"), first, args.tensor("w2"), (args.tensor("topk_weights"), args.tensor("topk_ids")), scales,
        global_experts=masks[0].numel if masks else None, out=dtypes[0] if dtypes else "", precision="fp4" if narrow else None,
    )  # fmt: skip


def trtllm_experts(signature: Signature, _: Hints, text: str) -> Work:
    """TensorRT-LLM's layer with its routing: scores [tokens, experts], or the experts that were chosen, a bias, the activations (with a
    scale if they are narrow), then the weights, which may lie in blocks [experts, k / block, n, block].

    The first two numbers are the experts on all ranks and those of a token. Where the text is "scores", the chosen experts of a call
    without these are among its last arguments.
    """
    if text == "scores" and not isinstance(signature.arg(0), TensorArg):
        raise NotCounted("scores of the experts not recorded")
    logits, *others = signature.tensors
    rows = [tensor for tensor in others if len(tensor.shape) == 2 and tensor.shape[0] == logits.shape[0]]
    large = sorted((tensor for tensor in others if len(tensor.shape) > 2), key=lambda tensor: tensor.numel)[-2:]
    weights = [tensor for tensor in others if tensor in large]
    numbers = _integers(signature.args)
    if not rows or len(weights) != 2 or len(numbers) < 2:
        raise NotCounted("shapes of the experts not understood")
    hidden = max(rows, key=lambda tensor: tensor.numel)
    routing = TensorArg((hidden.shape[0], numbers[1])), TensorArg((hidden.shape[0], numbers[1]), "int32")
    scales = [tensor for tensor in others if tensor is not hidden and tensor not in weights]
    first, second = (
        TensorArg((one.shape[0], one.shape[2], one.shape[1] * one.shape[3]), one.dtype) if len(one.shape) == 4 else one
        for one in weights
    )
    work = fused_experts(hidden, first, second, routing, scales, global_experts=numbers[0], out="bfloat16")
    scored = floating(logits.dtype)
    return work + Work(other_flops=logits.numel * (SIGMOID + 2) * scored, bytes_read=size(logits) - size(*routing))


_AITER_CHOSEN: Final = "write weights, write ids"


def layer(signature: Signature, _: Hints, text: str) -> Work:
    """One kernel for the whole layer. It is given the sorted rows with padding, and the number of experts of a token."""
    args = Arguments(signature, text)
    hidden, gate, down, top_k = args.tensor("input"), args.tensor("gate"), args.tensor("down"), args.integer("top_k")
    routing = TensorArg((hidden.shape[0], top_k), "float32"), TensorArg((hidden.shape[0], top_k), "int32")
    scales = [tensor for tensor in signature.tensors[8:] if len(tensor.shape) > 1]
    return fused_experts(hidden, gate, down, routing, scales, widened=signature.name.endswith("_a16"), out=args.tensor("out").dtype)


_CHOICE: Final = "sorted_ids expert_ids count out"
_PADDED: Final = "input weight out sorted_ids expert_ids count top_k n_pad k_pad topk_weight=None a_scale=None w_scale=None bias=None"


def _product(signature: Signature, _: Hints, text: str, gated: bool) -> Work:
    """Rows with weight [experts, n, k]; after the first product comes the activation, which halves the width."""
    args = Arguments(signature, text)
    inputs, weight, out = args.tensor("input"), args.tensor("weight"), args.tensor("out")
    if not args.has("top_k") and len(out.shape) != 3:
        raise NotCounted("number of experts of a token not recorded")
    if len(weight.shape) != 3 or not inputs.shape:
        raise NotCounted("shapes of the experts not understood")
    tokens = args.integer("tokens") if args.has("tokens") else inputs.shape[0]
    top_k = args.integer("top_k") if args.has("top_k") else out.shape[1]
    rows = tokens * top_k if gated or args.has("tokens") else inputs.numel // inputs.shape[-1]
    inner = inputs.shape[-1] * (2 if inputs.dtype in FOUR_BIT else 1)
    others = [args.optional(name) for name in ("w_scale", "a_scale", "bias")]
    made = rows * out.shape[-1] * size_of(out.dtype) if gated else size(out)
    work = product_of_experts(rows, inner, weight.shape[1], inputs, weight, others, made)
    return work + Work(other_flops=rows * weight.shape[1] // 2 * (costs.SILU + 1) if gated else 0)


_TABLE: Final = f"""
[moe]
_moe_C::topk_softmax: {_ROUTED}, read bias?; cost = SOFTMAX + 1
_moe_C::topk_sigmoid: {_ROUTED}, read bias?; cost = SIGMOID + 1
_moe_C::topk_softplus_sqrt: {_ROUTED}, factor, read bias?; cost = SOFTPLUS + 2
_moe_C::moe_align_block_size _moe_C::sgl_moe_align_block_size: read input, experts, block, {_ALIGNED}
_moe_C::batched_moe_align_block_size: most, block, read input, {_ALIGNED}
_moe_C::moe_lora_align_block_size: read input, read mapping, experts, block, adapters, rows, blocks, {_ALIGNED}, write enabled,
    write adapter_ids, read map?
_moe_C::moe_sum: read input, write out; cost = 1
# The rows that the map names, once for each row of the result.
_moe_C::shuffle_rows sgl_kernel::shuffle_rows: read input, read map, write out;
    reads = min(input.size, out.n * input.item) + map.size
_C::get_cutlass_moe_mm_data sgl_kernel::get_cutlass_w4a8_moe_mm_data: read input, write offsets, write sizes1, write sizes2,
    write order, write back
_C::get_cutlass_moe_mm_problem_sizes _C::get_cutlass_moe_mm_problem_sizes_from_expert_offsets: read input, write sizes1, write sizes2
_C::get_cutlass_pplx_moe_mm_data _C::get_cutlass_batched_moe_mm_data: write offsets, write sizes1, write sizes2, read input
_moe_C::grouped_topk sgl_kernel::moe_fused_gate: read scores[tokens *experts], read bias, groups, groups_kept, kept;
    cost = SIGMOID + 2; per = scores; writes = tokens * kept * (4 + 4)
    | read scores[tokens *experts], groups, groups_kept, kept, renormalize=None, factor=None, read bias?; cost = SIGMOID + 2;
    per = scores; writes = tokens * kept * (4 + 4)
# Activations [m, k], of which each row meets ``top_k`` experts; weight [experts, n, k / numbers] of uint8.
_moe_C::moe_wna16_gemm: read input[m k], view out, view weight[experts n packed], view scales?, view zeros?, view topk_weights?,
    sorted_ids, expert_ids, count, top_k; rows = m * top_k; matrix = 2 * rows * k * n;
    reads = input.size + share(experts, rows, weight, scales, zeros, topk_weights); writes = rows * n * out.item;
    assumption = {SPREAD}; given = experts > 1
# Activations [tokens, k] in 8 bits, weight [experts, n, bytes of a row].
_C::ggml_moe_a8 sgl_kernel::ggml_moe_a8 like _moe_C::moe_wna16_gemm: read input[*m k], view weight[experts outputs bytes],
    sorted_ids, expert_ids, count, type, n, top_k, tokens; rows = tokens * top_k; other = input.n * DYNAMIC_QUANTIZE + rows * n;
    reads = input.size + share(experts, rows, weight); writes = rows * n * input.item; precision = int8
_C::ggml_moe_a8_vec sgl_kernel::ggml_moe_a8_vec like _C::ggml_moe_a8: read input[*m k], view weight[experts outputs bytes], ids,
    top_k, type, n, tokens
# Rows of 8-bit numbers sorted by expert, weight [experts, k, n]; pointers to each expert's operands may come before them.
sgl_kernel::fp8_blockwise_scaled_grouped_mm: view out[m n], a_ptrs, b_ptrs, out_ptrs, a_scales_ptrs, b_scales_ptrs, read a[=m k],
    view b[experts rows columns], view scales_a, view scales_b; matrix = 2 * m * k * n;
    reads = a.size + share(experts, m, b, scales_a, scales_b); writes = m * n * out.item; precision = a;
    assumption = {assumed(2, ranks=True)}
sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_mm like sgl_kernel::fp8_blockwise_scaled_grouped_mm: read a[m k],
    view b[experts rows columns], view scales_a, view scales_b, view out[=m n]
[moe functions]
# The rows of each token, weighted and added into the last tensor.
_moe_C::moe_unpermute: read rows, read others*; other = 2 * rows.n; reads = rows.size + size(*others.tensors[:-1]);
    writes = written(others.tensors[-1])
[moe by=grouped]
_C::cutlass_moe_mm _C::cutlass_fp4_group_mm _C::cutlass_mxfp4_group_mm _C::cutlass_w4a8_moe_mm sgl_kernel::cutlass_fp4_group_mm
    sgl_kernel::cutlass_w4a8_moe_mm sgl_kernel::es_fp8_blockwise_scaled_grouped_mm _C::cutlass_blockwise_scaled_grouped_mm
    sglang::cutlass_fp4_group_mm: result first
_C::cutlass_mxfp8_grouped_mm: result later
[moe by=fused]
vllm::inplace_fused_experts vllm::outplace_fused_experts vllm::fused_experts sglang::inplace_fused_experts
    sglang::outplace_fused_experts: hidden w1 w2 topk_weights topk_ids
[moe by=aiter wraps]
# ATOM's has the same arguments (atom/model_ops/moe.py, ffdf3bb).
vllm::rocm_aiter_fused_moe vllm::rocm_aiter_asm_moe_tkw1 sglang::rocm_aiter_asm_moe_tkw1 aiter::rocm_aiter_fused_moe: hidden w1 w2
    topk_weights topk_ids
[moe aiter:: by=aiter]
fused_moe_ fused_moe asm_moe_tkw1: hidden w1 w2 topk_weights topk_ids
[moe vllm:: by=trtllm]
flashinfer_fused_moe_blockscale_fp8 flashinfer_fused_moe_per_tensor_scale_fp8 flashinfer_fused_moe_bf16 fi_trtllm_fp8_per_tensor_moe:
    scores or experts
[moe sglang:: by=trtllm]
trtllm_fp8_block_scale_moe_wrapper trtllm_fp8_block_scale_routed_moe_wrapper trtllm_fp8_block_scale_moe_out_wrapper
    trtllm_fp8_block_scale_routed_moe_out_wrapper trtllm_fp8_per_tensor_scale_moe_wrapper
    trtllm_fp8_per_tensor_scale_routed_moe_out_wrapper sgl_trtllm_fp8_block_scale_moe_wrapper
    sgl_trtllm_fp8_block_scale_routed_moe_wrapper: scores or experts
[moe aiter:: by=layer]
fmoe fmoe_int8_g1u0 fmoe_g1u1 fmoe_g1u1_tkw1 fmoe_int8_g1u0_a16 fmoe_g1u1_a16 fmoe_fp8_blockscale_g1u1: out input gate down
    sorted_ids sorted_weights expert_ids count top_k
[moe aiter:: by=first]
# The products of a layer: rows [tokens, k] meet ``top_k`` experts each, or [tokens, top_k, inner] one each.
ck_moe_stage1: input weight w2 {_CHOICE} top_k kernel w_scale=None a_scale=None
moe_cktile2stages_gemm1_ck: {_PADDED}
# With the result [tokens, top_k, inner] before the width.
moe_stage1_g1u1: input weight w2 {_CHOICE} inner kernel block splits=0 activation=0 type=0 a_scale=None w_scale=None
_opus_moe_stage1_a8w4_fwd_raw: input weight a_scale w_scale bias {_CHOICE} out_scale top_k
[moe aiter:: by=second]
ck_moe_stage2: input w1 weight {_CHOICE} top_k kernel w_scale=None a_scale=None
moe_cktile2stages_gemm2_ck: {_PADDED}
_opus_moe_stage2_a8w4_decode_fwd_raw: input weight a_scale w_scale sorted_ids sorted_weights expert_ids count out tokens top_k
[moe aiter::]
topk_softmax _topk_softmax topk_softmax_asm: {_AITER_CHOSEN}, write places, read input; cost = SOFTMAX + 1
topk_sigmoid: {_AITER_CHOSEN}, read input; cost = SIGMOID + 1
topk_gating_fwd: {_AITER_CHOSEN}, read input, read bias?; cost = SIGMOID + 2
# sqrt(softplus(x)) + bias
topk_softplus: {_AITER_CHOSEN}, read input, read bias?; cost = SOFTPLUS + 3
biased_grouped_topk biased_grouped_topk_hip moe_fused_gate _moe_fused_gate: read input, read bias, {_AITER_CHOSEN};
    cost = SIGMOID + 2
grouped_topk: read input, {_AITER_CHOSEN}; cost = SOFTMAX + 1
moe_sum _moe_sum _opus_moe_stage2_reduce_token_slot_route_output_fwd_raw: read input, write out; cost = 1
moe_align_block_size: read input, experts, block, write sorted_ids, write expert_ids, write token_nums, write count
moe_sorting_fwd moe_sorting_opus_fwd: read input, read weights, write sorted_ids, write sorted_weights, write expert_ids,
    write count, write buffer
# activations in 4 or 8 bits, with a scale for each 32 in the order of the sorted rows
fused_dynamic_mx_quant_moe_sort_hip fused_dynamic_mxfp4_quant_moe_sort_hip: write out, write scale, read input, read sorted_ids,
    read count; cost = DYNAMIC_QUANTIZE
mxfp4_moe_sort_hip: write out, read input, read sorted_ids, read count
mxfp4_moe_quant: read input, write out, write scale, write zeros; cost = DYNAMIC_QUANTIZE
mxfp4_moe_scatter_reduce: read input, read places, read weights, write out; cost = 2
[moe dispatches]
# The layer is found by its name. What it calls has the work.
vllm::moe_forward vllm::moe_forward_shared vllm::transformers_moe_forward sglang::transformers_moe_forward
    sglang::moe_forward_piecewise_cuda_graph_impl sglang::fused_moe_bypassed_piecewise_cuda_graph_impl
    sglang::flashinfer_fp4_moe_forward_piecewise_cuda_graph_impl sglang::moe_impl sglang::humming_moe_runner_core_run
    sglang::dsv2_flashinfer_moe_dual_stream_graph sglang::dsv4_flashinfer_moe_dual_stream_outputs: the layer's weights are not
    arguments
[copy]
# The gradient of the tokens, and of a mask those of the weights [tokens, experts].
te_moe::permute_index_map_bwd: read grad[rows k], read map, tokens; cost = 1; per = grad; writes = tokens * k * grad.item
te_moe::permute_mask_map_bwd: read grad[rows k], read weights?, read map, offsets, tokens, experts; cost = 1; per = grad;
    writes = tokens * k * grad.item + (tokens * experts * weights.item if weights else 0)
# The rows of each token added up, perhaps weighted.
te_moe::unpermute_index_map_fwd te_moe::unpermute_mask_map_fwd: read rows[_ k], read map, read weights?, tokens;
    other = rows.n * (1 + bool(weights.n)); writes = tokens * k * rows.item
te_moe::unpermute_mask_map_bwd_no_probs: read grad[_ k], read map, offsets, tokens, experts, rows;
    reads = selected(grad, rows * k) + map.size; writes = rows * k * grad.item
# Whole chunks of tokens and their weights in another order; where each of them goes is kept.
te_moe::chunk_sort_fwd _moe_chunk_sort: read tokens[n k], read sizes, read more_sizes, read weights?;
    reads = tokens.size + 2 * sizes.size + weights.size; writes = tokens.n * tokens.item + 4 * n + weights.n * weights.item
te_moe::chunk_sort_bwd: update grad, update weights?, read map
[moe]
# Of [tokens, experts] the k largest, a softmax over them if asked for; their places as int16, and a bit for each expert.
TopK: read scores[tokens experts], k, softmax, dim; other = scores.n + tokens * k * SOFTMAX * softmax;
    writes = tokens * (k * (scores.item + 2) + 4 * up(experts, 32)); fits = value('softmax') is True or value('softmax') is False
# [tokens, k] weights and experts in the order of the experts: that order and its inverse (int32), the weights, rows of each.
SortTokens: read weights, read ids, experts -> weights; writes = 2 * 4 * weights.n + 4 * experts
"""
table(
    _TABLE, grouped=grouped, fused=fused, aiter=aiter_experts, trtllm=trtllm_experts, layer=layer,
    first=partial(_product, gated=True), second=partial(_product, gated=False),
)  # fmt: skip
