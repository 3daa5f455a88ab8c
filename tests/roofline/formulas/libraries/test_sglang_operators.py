"""SGLang's operators in Python: closed forms at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from rooflines.roofline.formulas.registry import words
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp8, fp32, int32, int64, reason, uint8

T, D = 7, 30
SIZE = 2 * T * D
M, N, K = 37, 19, 64
FLOPS = 2 * M * N * K
WIDE = (FLOPS, 0, 2 * (M + N) * K, 2 * M * N, "bf16")


def test_products_of_16_bits():
    left, right, out = bf16(M, K), bf16(N, K), bf16(M, N)
    for name in ("tiny_gemm_bf16", "n128k512_gemm_bf16", "n32k5120_gemm_bf16", "dsv3_router_gemm"):
        assert figures(f"sglang::{name}", left, right, out, 16, 4) == WIDE
    for name in ("jit_dsv3_fused_a_gemm", "cutedsl_dsv3_fused_a_gemm"):
        assert figures(f"sglang::{name}", left, right) == WIDE
    for name in ("cutedsl_tgv_bf16_gemm", "bf16_gemm_dispatch"):
        assert figures(f"sglang::{name}", left, right, bf16(N)) == (FLOPS, M * N, 2 * (M + N) * K + 2 * N, 2 * M * N, "bf16")
    assert figures("sglang::cutedsl_tgv_bf16_gemm_out", left, right, out, None) == WIDE
    assert figures("sglang::flashinfer_dsv3_router_gemm", fp32(M, N), left, right) == (*WIDE[:3], 4 * M * N, "bf16")
    gated = figures("sglang::cutedsl_dual_gemm_swiglu", left, bf16(2 * N, K), -1)
    assert gated == (2 * FLOPS, 15 * M * N, 2 * (M + 2 * N) * K, 2 * M * N, "bf16")


def test_products_with_scales():
    scaled = (fp8(M, K), fp8(N, K), fp32(M, 1), fp32(N, 1))
    expected = (FLOPS, M * N, (M + N) * K + 4 * (M + N), 2 * M * N, "fp8")
    for name in ("flashinfer_bmm_fp8", "flashinfer_gemm_fp8_nt_groupwise", "flashinfer_mm_mxfp8"):
        assert figures(f"sglang::{name}", *scaled, 15) == expected
    assert figures("sglang::fp8_blockwise_scaled_mm", bf16(M, N), *scaled) == expected
    left, right, scale_a, scale_b = scaled
    assert figures("sglang::triton_mxfp8_block_scaled_matmul", left, scale_a, right, scale_b, 15, 128) == expected
    assert figures("sglang::deep_gemm_mxfp8_fp8_bf16_nt", left, scale_a, right, scale_b, bf16(M, N)) == expected
    batched = (fp8(3, M, K), fp8(3, K, N), bf16(3, M, N), fp32(1), fp32(1))
    for name in ("flashinfer_bmm_fp8_batched", "_bmm_fp8_op"):
        assert figures(f"sglang::{name}", *batched) == (3 * FLOPS, 3 * M * N, 3 * (M + N) * K + 8, 6 * M * N, "fp8")


def test_products_of_4_bits():
    args = (uint8(M, K // 2), uint8(N, K // 2), uint8(M, 2), uint8(N, 2))
    expected = (FLOPS, M * N, (M + N) * (K // 2 + 2), 2 * M * N, "fp4")
    assert figures("sglang::aiter_gemm_a4w4", *args, bf16(0)) == expected
    assert figures("sglang::aiter_gemm_afp4wfp4", *args, bf16(M, N)) == expected
    assert figures("sglang::fp4_gemm", *args, fp32(1), 15, N, None)[:3] == (FLOPS, M * N, expected[2] + 4)
    wide = (FLOPS, 7 * M * K + M * N, 2 * M * K + N * (K // 2 + 2), 2 * M * N, "fp4")
    assert figures("sglang::aiter_gemm_afp4wfp4_pre_quant", bf16(M, K), args[1], args[3], bf16(M, N)) == wide
    assert figures("sglang::mxfp4_diffusion_quant_gemm", bf16(M, K), args[1], args[3]) == wide


@pytest.mark.parametrize(
    ("name", "args", "scales"),
    [
        ("apply_fp8_marlin_linear", (bf16(M, K), int32(4, N), bf16(1, N), int32(99), N, K, None, True), 2 * N),
        ("apply_fp4_marlin_linear", (bf16(M, K), int32(4, N), uint8(4, N), fp32(1), int32(99), N, K, None, True), 4 * N + 4),
        ("unified_apply_gptq_marlin_gemm", (bf16(M, K), int32(4, N), bf16(1, N), int32(1, 2), None, None, int32(99), N, K), 2 * N + 8),
        ("unified_apply_gptq_marlin_gemm_with_wtype",
         (bf16(M, K), int32(4, N), bf16(1, N), int32(1, 2), None, None, int32(99), 7, N, K), 2 * N + 8),
    ],
)  # fmt: skip
def test_products_with_repacked_weights(name, args, scales):
    assert figures(f"sglang::{name}", *args) == (FLOPS, 2 * K * N, 2 * M * K + 16 * N + scales, 2 * M * N, "bf16")
    assert "differ" in reason(f"sglang::{name}", bf16(M, K + 2), *args[1:])


def test_norms_and_activations():
    x, w = bf16(T, D), bf16(D)
    assert figures("sglang::layernorm", x, w, w, 1e-6) == (0, 8 * T * D, SIZE + 4 * D, SIZE, "bf16")
    assert figures("sglang::triton_one_pass_rms_norm_cuda", x, w, 1e-6) == (0, 4 * T * D, SIZE + 2 * D, SIZE, "bf16")
    image = bf16(2, 6, 5, 7)
    assert figures("sglang::triton_group_norm_silu_cuda", image, bf16(6), bf16(6), 3, 1e-5) == (
        0,
        22 * 420,
        2 * 420 + 24,
        2 * 420,
        "bf16",
    )
    assert figures("sglang::_bias_gelu_tanh", x, w, x) == (0, 25 * T * D, SIZE + 2 * D, SIZE, "bf16")
    assert figures("sglang::diffusion_modulate_scale_shift", x, w, w) == (0, 3 * T * D, SIZE + 4 * D, SIZE, "bf16")
    for name in ("diffusion_residual_gate_add", "diffusion_residual_gate_fp32"):
        assert figures(f"sglang::{name}", x, x, w, 0) == (0, 2 * T * D, 2 * SIZE + 2 * D, SIZE, "bf16")
    assert figures("sglang::triton_fused_silu_mul_bitexact", x, x) == (0, 15 * T * D, 2 * SIZE, SIZE, "bf16")
    for name in ("_run_activation_inplace", "_run_activation_filtered_inplace", "_run_activation_with_rounding_inplace"):
        outcome = counted(f"sglang::{name}", None, bf16(T, 2 * D), x, None)
        assert (outcome.work.other_flops, outcome.work.bytes_read, outcome.work.bytes_written) == (15 * T * D, 2 * SIZE, SIZE)
        assert outcome.work.assumption == "the activation is SiLU"


def test_conversions():
    x = bf16(T, D)
    for name in ("per_token_quant_fp8", "fp8_wo_a_group_major_quant_ue8m0", "per_token_group_quant_8bit"):
        assert figures(f"sglang::{name}", x, fp8(T, D), fp32(T, 2)) == (0, 7 * T * D, SIZE, T * D + 8 * T, "bf16")
    for name in ("per_token_group_quant_8bit_v2", "per_token_group_quant"):
        assert figures(f"sglang::{name}", bf16(T, 2 * D), fp8(T, D), fp32(T, 2), 15)[1:4] == (22 * T * D, 2 * SIZE, T * D + 8 * T)
    assert figures("sglang::per_tensor_quant_fp8", x, fp8(T, D), fp32(1), False)[1:4] == (7 * T * D, SIZE, T * D + 4)
    assert figures("sglang::per_tensor_absmax_fp8", x, fp32(1)) == (0, 2 * T * D, SIZE, 4, "bf16")
    fourth = figures("sglang::scaled_fp4_quant", bf16(T, 32), uint8(T, 16), int32(128), fp32(1))
    assert fourth == (0, 7 * T * 32, 2 * T * 32 + 4, T * 16 + 4 * 128, "bf16")
    experts = (uint8(99, 16), int32(99), bf16(T, 32), fp32(3), int32(4), int32(4))
    assert figures("sglang::scaled_fp4_experts_quant", *experts)[3] == T * 16 + T * 2
    assert figures("sglang::flashinfer_mxfp8_quantize", bf16(T, 32), True, 32) == (0, 7 * T * 32, 2 * T * 32, T * 33, "bf16")
    for name in ("aiter_dynamic_mxfp4_quant", "aiter_per_1x32_f4_quant"):
        assert figures(f"sglang::{name}", bf16(T, 32)) == (0, 7 * T * 32, 2 * T * 32, T * 17, "bf16")
    for library in ("sglang", "vllm"):
        assert figures(f"{library}::dequant_mxfp4", uint8(T, 16), uint8(T, 1), 15) == (0, 2 * T * 32, T * 17, 2 * T * 32, "bf16")
        assert figures(f"{library}::quant_dequant_mxfp4", bf16(T, 32), None) == (0, 9 * T * 32, 2 * T * 32, 2 * T * 32, "bf16")


E, TOP = 6, 2
ROWS = T * TOP


def test_routing():
    scores, weights, ids = fp32(T, E), fp32(T, TOP), int32(T, TOP)
    soft = figures("sglang::moe_topk_softmax_out", weights, ids, scores, fp32(9), True, 0.0, fp32(E))
    assert soft == (0, 15 * T * E, 4 * T * E + 4 * E, 8 * ROWS, "fp32")
    sigmoid = figures("sglang::moe_topk_sigmoid_out", scores, weights, ids, fp32(9), True, None, 1.0, 0)
    assert sigmoid == (0, 14 * T * E, 4 * T * E, 8 * ROWS, "fp32")
    grouped = figures("sglang::_jit_grouped_topk_op", scores, fp32(E), weights, ids, 2, 1, TOP, True, 1.0)
    assert grouped == (0, 15 * T * E, 4 * T * E + 4 * E, 8 * ROWS, "fp32")
    assert figures("sglang::fused_topk_deepseek", scores, fp32(E), 2, 1, TOP, 1.0, weights, ids, False) == grouped
    prepared = (ids, int32(E + 1), int32(E, 3), int32(E, 3), int32(ROWS), int32(ROWS), E, 8, 8)
    assert figures("sglang::cutlass_prepare_moe_input", *prepared)[2:4] == (4 * ROWS, 4 * (E + 1 + 6 * E + 2 * ROWS))
    added = figures("sglang::shuffle_weighted_sum", bf16(ROWS, D), bf16(T, D), int32(ROWS), fp32(T, TOP))
    assert added == (0, 2 * ROWS * D, 2 * ROWS * D + 8 * ROWS, SIZE, "bf16")
    grouped_product = (bf16(ROWS, 20), uint8(ROWS, 16), uint8(E, 20, 16), uint8(ROWS, 2), uint8(E, 20, 2), fp32(E))
    assert figures("sglang::cutlass_fp4_group_mm", *grouped_product)[0] == 2 * ROWS * 32 * 20


def test_grouped_products_of_blackwell():
    args = (fp8(ROWS, 32), fp8(E, 20, 32), uint8(ROWS, 1), uint8(E, 20, 1), bf16(ROWS, 20), int32(E, 3), int32(E), int32(E))
    made = figures("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_mm", *args)
    assert made == (2 * ROWS * 32 * 20, 0, ROWS * 33 + E * 20 * 33, 2 * ROWS * 20, "fp8")
    converted = (bf16(ROWS, 32), int32(E, 3), int32(E), int32(E), fp8(ROWS, 32), uint8(ROWS, 1))
    expected = (0, 7 * ROWS * 32, 2 * ROWS * 32 + 4 * 5 * E, ROWS * 33, "bf16")
    assert figures("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_quant", *converted) == expected
    assert figures("_C::mxfp8_experts_quant", *converted) == expected


H, KV, HD, ROT = 3, 2, 10, 8
Q, KEY = bf16(T, H, HD), bf16(T, KV, HD)
NUMBERS = T * (H + KV) * HD
PLACES = (bf16(99, ROT), int64(T))
TURNED, READ = 3 * T * (H + KV) * ROT, 8 * T + 2 * T * ROT


def test_norms_and_positions_of_heads():
    normed = figures("sglang::fused_inplace_qknorm", Q, KEY, bf16(HD), bf16(HD), 1e-6, 0)
    assert normed == (0, 4 * NUMBERS, 2 * NUMBERS + 4 * HD, 2 * NUMBERS, "bf16")
    both = (0, 4 * NUMBERS + TURNED, 2 * NUMBERS + 4 * HD + READ, 2 * NUMBERS, "bf16")
    assert figures("sglang::fused_inplace_qknorm_rope", Q, KEY, bf16(HD), bf16(HD), *PLACES, True) == both
    assert figures("sglang::fused_qknorm_rope_out_of_place", Q, KEY, Q, KEY, bf16(HD), bf16(HD), *PLACES, True) == both
    turned = T * (H + KV) * ROT
    assert figures("sglang::apply_rope_inplace", Q, KEY, *PLACES, True, ROT) == (0, TURNED, 2 * turned + READ, 2 * turned, "bf16")
    inside = (bf16(T, (H + 2 * KV) * HD), bf16(HD), bf16(HD), int64(T), H, KV, KV, HD, 1e-6, 1e4, True, 1.0, 1.0, 1.0, 1.0, HD)
    assert figures("sglang::fused_qk_norm_rope_out", *inside) == (0, 7 * NUMBERS, 2 * NUMBERS + 4 * HD + 8 * T, 2 * NUMBERS, "bf16")


def test_positions_and_the_cache():
    cache = fp8(99, KV, HD)
    args = (Q, KEY, KEY, cache, cache, *PLACES, int64(T), True, ROT)
    turned, keys = T * (H + KV) * ROT, T * KV * HD
    made = figures("sglang::apply_rope_inplace_with_kvcache", *args)
    assert made == (0, TURNED + 5 * 2 * keys, 2 * turned + READ + 2 * keys + 8 * T, 2 * turned + 2 * keys, "bf16")


def test_positions_as_vllm_has_them():
    args = (int64(T), bf16(T, 30), bf16(T, 20), 10, bf16(99, 10), True)
    assert figures("sglang::rotary_embedding_with_key", *args) == figures("_C::rotary_embedding", *args)
    alone = figures("sglang::rotary_embedding_without_key", int64(T), bf16(T, 30), 10, bf16(99, 10), True)
    assert alone == (0, 3 * T * 30, 2 * T * 30 + 8 * T + 2 * T * 10, 2 * T * 30, "bf16")


def test_short_convolutions_are_those_of_the_library():
    args = (bf16(30, T), bf16(30, 4), None, None, None, None, None, True, -1)
    assert figures("sglang::mamba_causal_conv1d_fwd", *args) == figures("sgl_kernel::causal_conv1d_fwd", *args)
    step = (bf16(T, 30), bf16(T, 30, 3), bf16(30, 4), None, True, None, None, -1)
    assert figures("sglang::mamba_causal_conv1d_update", *step)[0] == 2 * 30 * T * 4


@pytest.mark.parametrize(
    ("name", "tensors", "numbers", "moved"),
    [
        ("per_layer", 4, (64, 2, 8), 2 * 5 * 64), ("per_layer_pf_lf", 4, (3, 64, 999, 2, 8), 2 * 5 * 64),
        ("per_layer_ph_lf", 4, (3, 64, 999, 1, 2, 2, 8), 2 * 5 * 64), ("all_layer", 4, (64, 11, 2, 8), 11 * 2 * 5 * 64),
        ("all_layer_lf_pf", 4, (64, 999, 11, 2, 8), 11 * 2 * 5 * 64),
        ("all_layer_lf_ph", 4, (64, 999, 11, 1, 2, 2, 8), 11 * 2 * 5 * 64),
        ("per_layer_mla", 2, (64, 2, 8), 5 * 64), ("per_layer_mla_pf_lf", 2, (3, 64, 999, 2, 8), 5 * 64),
        ("all_layer_mla", 2, (64, 11, 2, 8), 11 * 5 * 64), ("all_layer_mla_lf_pf", 2, (64, 999, 11, 2, 8), 11 * 5 * 64),
    ],
)  # fmt: skip
def test_transfers_of_the_cache(name, tensors, numbers, moved):
    made = figures(f"sgl_kernel::transfer_kv_{name}", *(bf16(99, 8),) * tensors, int64(5), int64(5), *numbers)
    assert made == (0, 0, moved + 8 * 10, moved, None)


@pytest.mark.parametrize(
    "name",
    words(
        "unified_linear_attention_with_output apply_bnb_4bit moe_forward_piecewise_cuda_graph_impl broadcast_indexer_topk_from_rank0_"
        " deepseek_v4_attention_with_output flash_attn_varlen_func_op flash_attn_varlen_func_op_lse gdn_with_output"
        " mla_bmm_then_unified_attention nemotron_mamba2_with_output pcg_dsa_indexer_prefill_split"
        " unified_attention_with_output_and_lse unified_sparse_attention_with_output triton_mxfp8_blockscaled_linear"
        " transformers_moe_forward moe_impl"
        " fused_moe_bypassed_piecewise_cuda_graph_impl flashinfer_fp4_moe_forward_piecewise_cuda_graph_impl"
        " humming_moe_runner_core_run dsv2_flashinfer_moe_dual_stream_graph dsv4_flashinfer_moe_dual_stream_outputs"
    ),
)
def test_layers_only_call_others(name):
    assert count(Signature(f"sglang::{name}", (bf16(T, D), None))).kind == "composite"
