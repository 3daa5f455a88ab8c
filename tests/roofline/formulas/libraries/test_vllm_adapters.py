"""vLLM's adapters, and its operators of 2026: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from rooflines.roofline.formulas.registry import words
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, int64, reason, uint8

T, WIDTH, RANK, SLICES = 7, 48, 5, 3
LISTS = (int64(T), int64(T), int32(9), int32(10), int32(9), int32(1))
ONE = "every token has an adapter, all the same"


def test_the_product_with_the_narrow_matrix():
    work = counted("vllm::lora_shrink", bf16(T, WIDTH), None, fp32(SLICES, T, RANK), *LISTS, int32(1), 0.5).work
    assert (work.matrix_flops, work.other_flops) == (2 * SLICES * T * WIDTH * RANK, SLICES * T * RANK)
    assert work.bytes_read == 2 * T * WIDTH + 2 * SLICES * RANK * WIDTH
    assert (work.bytes_written, work.precision, work.assumption) == (4 * SLICES * T * RANK, "bf16", ONE)


@pytest.mark.parametrize("active", [(), (int32(1),), (4,)])
def test_the_product_back(active):
    args = (fp32(SLICES, T, RANK), None, bf16(T, WIDTH), *LISTS, *active)
    work = counted("vllm::lora_expand", *args, 0, True).work
    assert (work.matrix_flops, work.other_flops) == (2 * T * RANK * WIDTH, T * WIDTH)
    assert work.bytes_read == 4 * SLICES * T * RANK + 2 * RANK * WIDTH + 2 * T * WIDTH
    assert (work.bytes_written, work.assumption) == (2 * T * WIDTH, ONE)
    assert counted("vllm::lora_expand", *args, 0, False).work.bytes_read == 4 * SLICES * T * RANK + 2 * RANK * WIDTH
    assert "not understood" in reason("vllm::lora_expand", *args, 16, True)


M, N, K = 37, 19, 64
FLOPS = 2 * M * N * K


def test_products_of_quartet():
    args = (uint8(M, K // 2), uint8(N, K // 2), uint8(M, 2), uint8(N, 2), fp32(1))
    expected = (FLOPS, M * N, (M + N) * (K // 2 + 2) + 4, 2 * M * N, "fp4")
    for library in ("_C", "_qutlass_C"):
        for name in ("matmul_mxf4_bf16_tn", "matmul_nvf4_bf16_tn", "matmul_ada_mxf4_bf16_tn"):
            assert figures(f"{library}::{name}", *args) == expected
    for name in ("matmul_mxf4_bf16", "matmul_nvf4_bf16"):
        assert figures(f"vllm::{name}", *args) == expected
    eighth = (fp8(M, K), fp8(N, K), uint8(M, 2), uint8(N, 2), fp32(1))
    for name in ("matmul_mxf8_bf16_tn", "matmul_mxf8_bf16_nn"):
        assert figures(f"_qutlass_C::{name}", *eighth) == (FLOPS, M * N, (M + N) * (K + 2) + 4, 2 * M * N, "fp8")


def test_products_of_a_router():
    wide, narrow = (fp32(M, K), fp32(N, K)), (bf16(M, K), bf16(N, K))
    assert figures("vllm::bf16x3_router_gemm", *wide) == (FLOPS, 0, 4 * (M + N) * K, 4 * M * N, "fp32")
    assert figures("vllm::fp32_router_gemm_dispatch", *wide, True) == (FLOPS, 0, 4 * (M + N) * K, 4 * M * N, "fp32")
    assert figures("_moe_C::router_gemm_bf16_fp32", *narrow) == (FLOPS, 0, 2 * (M + N) * K, 4 * M * N, "bf16")
    with_bias = (FLOPS, M * N, 2 * (M + N) * K + 2 * N, 2 * M * N, "bf16")
    assert figures("vllm::gpt_oss_router_gemm", *narrow, bf16(N)) == with_bias
    assert figures("_moe_C::gpt_oss_router_gemm", bf16(M, N), *narrow, bf16(N)) == with_bias
    assert figures("vllm::min_latency_fused_qkv_a_proj", *narrow) == (FLOPS, 0, 2 * (M + N) * K, 2 * M * N, "bf16")


def test_products_whose_activations_become_narrow():
    for name, rest in (("flashinfer_fp8_blockscale_gemm", ()), ("dynamic_flashinfer_deepgemm_blockscale_gemm", (128, True))):
        made = figures(f"vllm::{name}", bf16(M, K), fp8(N, K), fp32(1, 1), *rest)
        assert made == (FLOPS, 7 * M * K + M * N, 2 * M * K + N * K + 4, 2 * M * N, "fp8")
    weight, scale = uint8(N, K // 2), uint8(N, 2)
    wide = (FLOPS, 7 * M * K + M * N, 2 * M * K + N * (K // 2 + 2), 2 * M * N, "fp4")
    assert figures("vllm::gemm_with_dynamic_quant", bf16(M, K), weight, scale, True, 15, None) == wide
    assert figures("vllm::gemm_with_dynamic_quant", bf16(M, K), weight, scale, None, True, 15) == wide
    narrow = (FLOPS, M * N, (M + N) * (K // 2 + 2), 2 * M * N, "fp4")
    assert figures("vllm::gemm_with_dynamic_quant", uint8(M, K // 2), weight, scale, True, 15, uint8(M, 2)) == narrow
    assert figures("vllm::gemm_with_dynamic_quant", uint8(M, K // 2), weight, scale, uint8(M, 2), True, 15) == narrow


def test_products_with_other_orders_of_arguments():
    scaled = (fp8(M, K), fp8(N, K), fp32(M, 1), fp32(N, 1))
    expected = (FLOPS, M * N, (M + N) * K + 4 * (M + N), 2 * M * N, "fp8")
    assert figures("vllm::rocm_aiter_gemm_a8w8", *scaled, None, 15) == expected
    assert figures("vllm::padded_cutlass", *scaled, (128, 128), 15) == expected
    assert figures("vllm::rocm_mxfp8_block32_gemm", scaled[0], scaled[2], scaled[1], scaled[3], 15) == expected
    packed = (bf16(M, K), int32(K, N // 8 + 1), bf16(2, N), None, 32, 8)
    assert figures("vllm::triton_w4a16_gemm", *packed)[:2] == (FLOPS, 2 * K * N)
    marlin = (bf16(M, K), int32(4, 99), None, bf16(2, N), None, None, None, int32(99), 7, M, N, K, False, True, False)
    outcome = counted("vllm::marlin_gemm", *marlin)
    assert (outcome.work.matrix_flops, outcome.decomposes) == (FLOPS, True)


D = 30
X, W, SIZE = bf16(T, D), bf16(D), 2 * T * D


def test_norms():
    padded = figures("vllm::rocm_aiter_triton_add_rmsnorm_pad", X, W, 1e-6, X, 256)
    assert padded == (0, 5 * T * D, 2 * SIZE + 2 * D, 2 * SIZE, "bf16")
    gated = figures("vllm::fla_rms_norm_gated", X, X, W, 1e-6, None, True, None)
    assert gated == (0, 19 * T * D, 2 * SIZE + 2 * D, SIZE, "bf16")
    narrow = (uint8(T, 15), uint8(T, 2), X, X, W, fp32(1), fp32(1), True, 1e-6)
    fused = figures("vllm::flashinfer_fused_add_rms_norm_nvfp4_quant", *narrow)
    assert fused == (0, 12 * T * D, 2 * SIZE + 2 * D + 4, T * 17 + SIZE, "bf16")
    grouped = ("vllm::rocm_aiter_fused_rms_gated_fp8_group_quant", X, W, None, X, 1e-6, True, None, 15)
    assert figures(*grouped) == (0, (4 + 14 + 1 + 7) * T * D, 2 * SIZE + 2 * D, T * D + 4 * 2 * T, "bf16")


def test_norms_of_two_tensors():
    args = (X, W, bf16(T, 20), bf16(20), 1e-6, 1e-6)
    read, second = SIZE + 2 * D + 2 * T * 20 + 40, 2 * T * 20
    assert figures("vllm::fused_mla_dual_rms_norm", *args) == (0, 4 * T * (D + 20), read, SIZE + second, "bf16")
    group = figures("vllm::fused_mla_dual_rms_norm_group_quant", X, W, bf16(T, 20), bf16(20), 1e-6, 1e-6, 15, False)
    assert group == (0, 11 * T * D + 4 * T * 20, read, T * D + 8 * T + second, "bf16")
    assert figures("vllm::fused_mla_dual_rms_norm_per_token_quant", *args)[3] == T * D + 4 * T + second


def test_conversions():
    assert figures("vllm::triton_per_token_group_quant_fp8", X, 15) == (0, 7 * T * D, SIZE, T * D + 8 * T, "bf16")
    for name in ("mxfp8_quantize", "flashinfer_mxfp8_quantize_8x4"):
        assert figures(f"vllm::{name}", bf16(T, 32), True, 0) == (0, 7 * T * 32, 2 * T * 32, T * 33, "bf16")
    assert figures("vllm::flashinfer_mxfp4_quantize", bf16(T, 32), None)[3] == T * 17
    assert figures("_C::relu_squared", X, X) == (0, 2 * T * D, SIZE, SIZE, "bf16")


def test_positions():
    query, key, table = bf16(T, 30), bf16(T, 20), bf16(99, 8)
    turned = T * 5 * 8
    made = figures("vllm::mrope", int64(3, T), query, key, table, 10, 8, 1, 1, 2, False, True)
    assert made == (0, 3 * turned, 2 * turned + 8 * 3 * T + 2 * T * 8, 2 * turned, "bf16")
    heads = (bf16(T, 3, 10), bf16(T, 2, 10), bf16(T, 2, 10), int64(T), table, True, None)
    outcome = counted("vllm::fused_rope_and_unified_kv_cache_update", *heads)
    assert (outcome.work.other_flops, outcome.decomposes) == (3 * turned, True)
    assert outcome.work.bytes_read == 2 * turned + 8 * T + 2 * T * 8 + 2 * T * 20
    assert outcome.work.bytes_written == 2 * turned + 2 * 2 * T * 20
    assert outcome.work.assumption == "the cache has the dtype of the keys"


def test_what_prepares_grouped_products():
    ids = int32(T, 2)
    sizes = (int32(7), int32(6, 3), int32(6, 3))
    order = (int32(14), int32(14))
    for name in ("_C::get_cutlass_moe_mm_data", "sgl_kernel::get_cutlass_w4a8_moe_mm_data"):
        assert figures(name, ids, *sizes, *order, 6, 8, 8)[2:4] == (4 * 14, 4 * (7 + 36 + 28))
    for name in ("get_cutlass_pplx_moe_mm_data", "get_cutlass_batched_moe_mm_data"):
        assert figures(f"_C::{name}", *sizes, int32(6), 6, 8, 8, 8)[2:4] == (4 * 6, 4 * (7 + 36))
    assert figures("_C::get_cutlass_moe_mm_problem_sizes", ids, *sizes[1:], 6, 8, 8, None)[2:4] == (4 * 14, 4 * 36)
    offsets = figures("_C::get_cutlass_moe_mm_problem_sizes_from_expert_offsets", int64(7), *sizes[1:], 8, 8, False)
    assert offsets[2:4] == (8 * 7, 4 * 36)
    blocks = (int32(99), int32(9), int32(1))
    assert figures("_moe_C::batched_moe_align_block_size", 16, 8, int32(6), *blocks)[2:4] == (4 * 6, 4 * 109)
    adapters = (ids, int32(T), 6, 8, 2, 99, 9, *blocks, int32(3), int32(3), None)
    assert figures("_moe_C::moe_lora_align_block_size", *adapters)[2:4] == (4 * (14 + T), 4 * (109 + 6))
    product = (bf16(14, 20), fp8(14, 32), fp8(6, 32, 20), fp32(14, 1), fp32(6, 1, 1), int32(6, 3), int32(7))
    made = figures("_C::cutlass_blockwise_scaled_grouped_mm", *product)
    assert made == (2 * 14 * 32 * 20, 0, 14 * 32 + 6 * 32 * 20 + 4 * 14 + 4 * 6, 2 * 14 * 20, "fp8")


@pytest.mark.parametrize(
    "name",
    words(
        "kda_attention bailing_v3_kda_attention sparse_attn_indexer rocm_aiter_sparse_attn_indexer apply_bnb_4bit lora_linear_async"
        " fused_rope_unified_mla_kv_cache_update fused_qk_norm_rope_and_unified_kv_cache_update sequence_parallel_chunk_impl"
        " fused_qk_norm_mrope_and_unified_kv_cache_update qwen_gdn_attention_core_fused_norm_packed olmo_hybrid_gdn_full_forward"
        " maybe_calc_kv_scales _apply_gguf_embedding"
    ),
)
def test_layers_only_call_others(name):
    assert count(Signature(f"vllm::{name}", (X, X, None))).kind == "composite"
