"""What servers do around attention, products and experts: the choice of tokens, collectives, alone and fused with the norm behind them,
and manifold-constrained hyper-connections (DeepSeek-V4).

Probabilities are read once, as if a row fitted into a cache: algorithms that search for a threshold read them several times.
Hyper-connections are n residual streams [tokens, n, width] instead of one. Before a layer, a product of the flat streams with ``fn``
[n + n + n * n, n * width] gives for each token the weights of the streams in the layer's input, those of its output in the streams, and
an n x n matrix that mixes the streams, doubly stochastic by Sinkhorn's iteration. After it, its output and the mixed streams are added.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.rotary import rotation
from rooflines.roofline.formulas.tables import table

# The sum with the residual takes its place, and the norm that of the input, or results of its own, perhaps narrow. Five numbers and
# flags come before these, in newer versions eight.
_ADDED_AND_NORMED: Final = "read input, update residual, read weight, eps, n4, n5, n6, n7, n8"
_RESULTS: Final = "write norm?, write narrow?, write scales?"
_ADDED: Final = "handle, read input, read residual, write residual_out, write out"
# Operators that return the norm, the sum with the residual, and the scales of narrow results; "bf16" has the norm as well.
_SUMMED: Final = "read input[*rows k], update residual, read weight, eps"
_GROUPS: Final = "input.n + 4 * (input.n // group)"
_OPERANDS: Final = "read input, read residual?, read weight?, read scale?, read bias?, workspace, ranks"
# The norms of queries and keys whose sum of squares is that of all ranks; values are copied. Positions may follow.
_HEADS: Final = "handle, read qkv, read q_weight, read k_weight, write q, write k, write v"
# A comparison and a sum for each score; e / t - the largest, its exponential over a random number, and is it the largest.
_RACE: Final = "1 + SOFTMAX + 2"
_EXPONENTIAL: Final = "TRANSCENDENTAL + 1"  # -log(u)
# n streams of w numbers for each of batch * steps tokens.
_STREAMS: Final = "read residual[batch *steps n w]"
_LAYER: Final = f"read x, {_STREAMS}, read post, read comb"
_EPSILONS: Final = "rms_eps, pre_eps, sinkhorn_eps"
# The product with ``fn``, in whose dtype it is, and the sum of squares.
_PRODUCT: Final = "2 * residual.n * outputs"
_SQUARES: Final = "2 * residual.n"
# Partial sums of the product and of the squares, added.
_SUMS: Final = "batch * steps * (parts - 1) * (n * (n + 2) + 1)"
# For each token a scale and a base of each of the 2 n + n * n numbers, sigmoids, a softmax, and in each iteration of Sinkhorn sums and
# quotients of the rows and columns of the matrix; the layer's input is a weighted sum of the streams.
_WEIGHTS: Final = (
    "batch * steps * (2 * n * (n + 2 + SIGMOID) + n * n * (SOFTMAX + 4 * iterations)) + residual.n // n * (2 * n - 1 + {norm})"
)
_PLAIN, _NORMED = _WEIGHTS.format(norm=0), _WEIGHTS.format(norm="RMS_NORM * bool(weight)")
# Each new stream is a sum of n streams and of the layer's output, all with weights.
_MIXED: Final = "residual.n * (2 * n + 1)"
# The layer's input, and in float32 the weights of its output and the mixing matrix.
_RESULTS_HYPER: Final = "residual.n // n * residual.item + batch * steps * (n + n * n) * 4"
_PARTIAL: Final = "read product[*parts tokens numbers], read squares"
_MADE: Final = "write post, write comb, write out"
_SMALL: Final = "read scale, read base"
_END: Final = f"read fn[outputs inner], {_SMALL}, {_EPSILONS}, post_mult, iterations, splits=1"


table(f"""
[communication wraps]
vllm::all_reduce vllm::all_reduce_symmetric_with_copy sglang::outplace_all_reduce sglang::inplace_all_reduce
    sglang::flashinfer_allreduce sglang::diffusion_all_reduce aiter::all_reduce_ aiter::tbo_all_reduce
    trtllm::userbuffers_allreduce_finalize: read input -> input
vllm::all_gather: read input, dim, world_size; writes = world_size * input.n * input.item
vllm::reduce_scatter: read input, dim, world_size; writes = input.n * input.item // world_size
sglang::reg_all_gather_into_tensor sglang::reg_reduce_scatter_tensor sglang::reg_all_to_all_single: write out, read input
aiter::fused_allreduce_rmsnorm_ sglang::flashinfer_allreduce_residual_rmsnorm vllm::rocm_aiter_fused_allreduce_rmsnorm: {_SUMMED} ->
    input; cost = RMS_NORM + 1
aiter::fused_allreduce_rmsnorm_quant_: {_SUMMED}; cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE; writes = input.n + 4 * rows
aiter::fused_allreduce_rmsnorm_quant_per_group_: {_SUMMED}, name, group=128; cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE;
    writes = {_GROUPS}
vllm::rocm_aiter_fused_allreduce_rmsnorm_quant_per_group: {_SUMMED}, group; cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE;
    writes = {_GROUPS}
aiter::fused_allreduce_rmsnorm_quant_emit_bf16_: {_SUMMED} -> input; cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE;
    writes = input.n + 4 * rows
aiter::fused_allreduce_rmsnorm_quant_per_group_emit_bf16_: {_SUMMED}, name, group=128 -> input;
    cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE; writes = {_GROUPS}
vllm::rocm_aiter_fused_allreduce_rmsnorm_quant_per_group_with_bf16_norm: {_SUMMED}, group -> input;
    cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE; writes = {_GROUPS}
[communication trtllm::]
# The rows of each rank where they differ, and the ranks of the group.
allgather allgather_pg: read input, rows*, ranks*;
    writes = input.n * input.item // max(input[0], 1) * (sum(rows) if rows else len(ranks) * input[0])
reducescatter reducescatter_pg: read input, rows*, ranks*; writes = input.n * input.item // len(ranks);
    assumption = each rank keeps equally many rows; given = rows
# A number says what follows: 1 is the sum with the residual and its norm, 4 and 6 in fp8, 5 and 7 in NVFP4, of which 6 and 7 return the
# norm too; 3 has a norm before the sum.
allreduce autotuned_allreduce: {_OPERANDS}, strategy, fusion, eps; kind = fusion; biased = bool(bias); of_bias = bias.size;
    fp8 = kind in (4, 6); fp4 = kind in (5, 7); wide = input.n * input.item;
    other = input.n * bool(kind) * (RMS_NORM * (1 + (kind == 3)) + 1 + QUANTIZE * fp8 + DYNAMIC_QUANTIZE * fp4 + biased);
    reads = input.size + bool(kind) * (residual.size + weight.size + scale.size + of_bias);
    writes = wide + bool(kind) * (input.n * fp8 + (input.n // 2 + input.n // 16) * fp4 + wide * (kind not in (4, 5)));
    fits = kind == 0 or residual and kind in (1, 3, 4, 5, 6, 7)
allreduce_pg allreduce_pg_by_name like allreduce: {_OPERANDS}, rank, group, strategy, fusion, eps
# A flag says that the norm follows, in newer versions a number what does.
mnnvl_fusion_allreduce like allreduce: read input, read weight?, read residual?, eps, buffer, flags, norm, read scale?, fusion=0;
    kind = fusion or bool(norm); biased = 0; of_bias = 0
[communication trtllm:: wraps]
# Calls trtllm::allreduce with the fastest strategy.
tunable_allreduce like allreduce:
[communication]
aiter::all_reduce aiter::all_reduce_reg aiter::all_reduce_gfx1250 aiter::qr_all_reduce aiter::all_gather_reg
    aiter::all_gather_gfx1250 aiter::reduce_scatter aiter::reduce_scatter_gfx1250: handle, read input, write out
aiter::all_reduce_unreg aiter::all_gather_unreg: handle, read input, buffer, write out
vllm::flashinfer_trtllm_fused_allreduce_norm: {_ADDED_AND_NORMED}, n9, n10, n11, {_RESULTS}; cost = RMS_NORM + 1; number = n9;
    other = input.n * QUANTIZE * bool(narrow); writes = 0 if norm or narrow else input.n * input.item
    | {_ADDED_AND_NORMED}, {_RESULTS}; cost = RMS_NORM + 1; other = input.n * QUANTIZE * bool(narrow);
    writes = 0 if norm or narrow else input.n * input.item
# The rows of each token's experts, weighted and added, the row of a shared expert, the sum with the residual and its norm.
trtllm::moe_finalize_allreduce: read input, read residual[*tokens k], read weight, read places, read shared?,
    read scale? -> residual residual; cost = RMS_NORM + 1; per = residual;
    other = places.n * k * (1 + bool(scale)) + residual.n * bool(shared);
    reads = places.n * k * input.item + residual.size + weight.size + places.size + shared.size + scale.size
[communication _C_custom_ar:: tensors_only]
# A handle, what this rank has, perhaps a buffer that all ranks see, and the result.
all_reduce qr_all_reduce custom_all_gather custom_reduce_scatter mnnvl_lamport_all_gather mnnvl_lamport_reduce_scatter
    mnnvl_multimem_reduce_scatter: read input, buffer, write out
    | read input, write out
[communication sgl_kernel:: tensors_only]
all_reduce all_reduce_reg all_reduce_unreg mscclpp_allreduce qr_all_reduce deterministic_all_reduce_reg
    deterministic_all_reduce_unreg like _C_custom_ar::all_reduce:
    | read input, write out
[communication aiter::]
fused_allreduce_rmsnorm fused_allreduce_rmsnorm_pad qr_all_reduce_rmsnorm: {_ADDED}, read weight, eps; cost = RMS_NORM + 1
fused_allreduce_rmsnorm_quant fused_allreduce_rmsnorm_quant_per_group fused_allreduce_rmsnorm_mxfp4_quant: {_ADDED}, write scale,
    read weight, eps; cost = RMS_NORM + 1 + DYNAMIC_QUANTIZE
fused_qknorm_allreduce: {_HEADS}; cost = RMS_NORM; per = q k
fused_qknorm_allreduce_rope: {_HEADS}, view table, read positions, head; cost = RMS_NORM; per = q k; other = {rotation("q k")};
    also = selected(table, positions.n * table[-1])
[other flashinfer:: sgl_kernel::]
top_k_renorm_probs top_p_renorm_probs: read input, write out, read limits?; cost = 2 + 1
top_k_mask_logits: read input, write out, read limits?; cost = 2
# One token a row, perhaps of chosen rows and with limits for each. Before March 2025 random numbers were an argument.
top_p_sampling_from_probs top_k_top_p_sampling_from_probs: read input, write out, read rows?, read limits?, limit=None,
    read more_limits?; cost = 2; fits = not floating(out)
min_p_sampling_from_probs like top_p_sampling_from_probs: ; cost = 2 + 1
[other]
flashinfer::top_k_sampling_from_probs flashinfer::sampling_from_probs like flashinfer::top_p_sampling_from_probs:
# Gumbel's trick: a random number for each
flashinfer::sampling_from_logits: read input, write out, read rows?; cost = 2 * TRANSCENDENTAL + 3
flashinfer::softmax: workspace, read input, write out, read temperature?; cost = SOFTMAX + 1
aiter::greedy_sample: write out, read input; cost = 1
aiter::mixed_sample_outer_exponential aiter::random_sample_outer_exponential: write out, read input, read exponentials,
    read temperature; cost = {_RACE}
aiter::mixed_sample aiter::_mixed_sample aiter::random_sample aiter::_random_sample: write out, read input, read temperature;
    cost = {_RACE} + {_EXPONENTIAL}
aiter::exponential aiter::_exponential: write out; cost = {_EXPONENTIAL}; per = out
# the probabilities of the k largest, or one token a row, are returned
aiter::top_k_renorm_probs: read input, read limits? -> input; cost = 2 + 1
aiter::top_p_sampling_from_probs: read input[*rows k], read indices?, read limits?; cost = 2; writes = 4 * rows
aiter::top_k_top_p_sampling_from_probs: read input[*rows k], read indices?, read limits?, limit, read more_limits?; cost = 2;
    writes = 4 * rows
# A bit says whether a token is allowed; the scores of others are overwritten.
sgl_kernel::apply_token_bitmask_inplace_cuda: write logits, read mask, read rows?; per = mask; assumption = no token is allowed
_C::apply_repetition_penalties_: update input, read prompt_mask, read output_mask, read penalties; cost = 3
# The k largest: one comparison for each score. How many a row has is in a tensor.
_C::top_k_per_row_prefill trtllm::indexer_topk_prefill: read input, read starts, read ends, write indices; cost = 1;
    assumption = every row of scores is full
_C::top_k_per_row_decode aiter::top_k_per_row_decode aiter::_top_k_per_row_decode aiter::top_k_per_row_decode_fast like
    _C::top_k_per_row_prefill: read input, next, read lengths, write indices
_C::persistent_topk _C::cooperative_topk trtllm::indexer_topk_decode like _C::top_k_per_row_prefill: read input, read lengths,
    write indices
_C::large_context_topk sgl_kernel::fast_topk like _C::top_k_per_row_prefill: read input, write indices, read lengths, read starts?
aiter::top_k_per_row_prefill aiter::_top_k_per_row_prefill aiter::top_k_per_row_prefill_fast like _C::top_k_per_row_prefill: read
    input, read starts, read ends, write indices, write values?
aiter::topk_plain aiter::_topk_plain like _C::top_k_per_row_prefill: read input, write indices, write values, k, largest=True,
    read starts?, read ends?
sgl_kernel::fast_topk_transform_fused like _C::top_k_per_row_prefill: read input, read lengths, write pages, table, read ends,
    read starts?
sgl_kernel::fast_topk_transform_ragged_fused like _C::top_k_per_row_prefill: read input, read lengths, write indices, read offsets,
    read starts?
[matmul]
aiter::mhc_pre_gemm_sqrsum: write out, write squares, read residual, read fn[outputs inner]; matrix = {_PRODUCT}; other = {_SQUARES};
    precision = fn
aiter::mhc_fused_post_pre_gemm_sqrsum: write product, write squares, write next, {_LAYER}, read fn[outputs inner];
    matrix = {_PRODUCT}; other = {_SQUARES} + {_MIXED}; precision = fn residual
# All of it in one call, whose partial sums are not its results.
vllm::mhc_pre_tilelang: {_STREAMS}, {_END}, read weight?; matrix = {_PRODUCT}; other = {_SQUARES} + {_NORMED};
    writes = {_RESULTS_HYPER}; precision = fn residual
vllm::mhc_fused_post_pre_tilelang: {_LAYER}, {_END}, tile=1, read weight? -> residual; matrix = {_PRODUCT};
    other = {_SQUARES} + {_NORMED} + {_MIXED}; writes = {_RESULTS_HYPER}; precision = fn residual
[element-wise]
aiter::mhc_pre_big_fuse: {_MADE}, {_PARTIAL}, {_SMALL}, {_STREAMS}, {_EPSILONS}, post_mult=1.0, iterations=20;
    other = {_SUMS} + {_PLAIN}; precision = residual
aiter::mhc_pre_big_fuse_rmsnorm: {_MADE}, {_PARTIAL}, {_SMALL}, {_STREAMS}, read weight?, {_EPSILONS}, eps, post_mult=1.0,
    iterations=20; other = {_SUMS} + {_NORMED}; precision = residual
trtllm::mhc_big_fuse: {_PARTIAL}, {_STREAMS}, {_SMALL}, {_MADE}, m, k, width, {_EPSILONS}, post_mult, iterations;
    other = {_SUMS} + {_PLAIN}; precision = residual
vllm::mhc_post_tilelang: read x, read residual[*tokens n w], read post, read comb -> residual; other = {_MIXED};
    precision = residual; fits = residual.rank > 2
aiter::mhc_post like vllm::mhc_post_tilelang: out, read x, read residual[*tokens n w], read post, read comb
trtllm::mhc_post_mapping like vllm::mhc_post_tilelang: read residual[*tokens n w], read x, read post, read comb
[element-wise dispatches]
# Each of their parts is an operator of AITER.
aiter::mhc_pre aiter::mhc_fused_post_pre aiter::mhc_fused_post_pre_large_m vllm::mhc_pre_aiter vllm::mhc_post_aiter
    vllm::mhc_fused_post_pre_aiter:
""")
