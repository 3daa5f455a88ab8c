"""Short names of kernels: what they are, for every family that a trace has, and never nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.roofline.kernel_names import matrix_precision, short_kernel

NATIVE = "void at::native::"
FAMILIES = {
    # products
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn": "GEMM bf16 128x128x64 (cuBLAS)",
    "ampere_sgemm_128x64_nn": "GEMM fp32 128x64 (cuBLAS)",
    "volta_h884gemm_128x64_ldg8_nn": "GEMM fp16 128x64 (cuBLAS)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas":
        "GEMM bf16 64x64x64 (cuBLAS)",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN": "GEMM bf16 128x256x64 (cuBLAS)",
    "nvjet_sm103_tst_256x16_64x6_4x1_v_bz_TNT": "GEMM bf16 256x16x64 (cuBLAS)",
    "void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<ck::tensor_layout::gemm::RowMajor, unsigned short, unsigned short, float>, true>":
        "grouped GEMM bf16 (CK)",
    "void ck_tile::kentry<2, ck_tile::MoeSortingKernel<ck_tile::MoeSortingProblemEx<int, float, 2, true> >":
        "sorting of tokens by expert (CK)",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(cutlass_80_tensorop_bf16_s16816gemm"
    "_bf16_256x128_64x3_tn_align2::Params)": "GEMM bf16 256x128x64 (CUTLASS, align 2)",
    "void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(cutlass_80_simt_sgemm_128x32_8x5_nn_align1::Params)":
        "GEMM fp32 128x32x8 SIMT (CUTLASS, align 1)",
    "Cijk_Ailk_Bjlk_BBS_BH_MT128x128x32_MI16x16x16x1_SN_1LDSB0": "GEMM bf16 128x128x32 NT (Tensile)",
    "Cijk_Alik_Bljk_HHS_BH_Bias_MT64x32x256_MI16x16x1": "GEMM fp16 64x32x256 TN (Tensile)",
    "Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1": "GEMM fp32 64x16x16 NT (Tensile)",
    "void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, cublasGemvParams<float> >(float)": "GEMV fp32 (cuBLAS)",
    "void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>)": "split-K reduction (cuBLAS)",
    # convolutions
    "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4_warpsize2x2x1":
        "convolution backward weight tf32 64x64x64 (cuDNN)",
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": "convolution fp32 Winograd (cuDNN)",
    "volta_scudnn_128x64_relu_small_nn_v1": "convolution fp32 128x64 (cuDNN)",
    "void implicit_convolve_sgemm<float, float, 128, 5, 5>(int)": "convolution fp32 (cuDNN)",
    "void nchwToNhwcKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(int)": "layout NCHW to NHWC (cuDNN)",
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x16_wt16x16x4": "convolution forward bf16 64x64x16 (MIOpen)",
    "batched_transpose_32x16_half": "layout transpose (MIOpen)",
    "void cudnn::bn_bw_1C11_singleread<float, 512, true, 1, 2, 0>(float)": "batch norm backward fp32 (cuDNN)",
    "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemmMultiD_xdl_cshuffle_v3"
    "INS_13tensor_layout4gemm8RowMajorENS6_11ColumnMajorENS_5TupleIJEEES7_ttftSA_t": "convolution forward bf16 (CK)",
    # attention
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_36BlockFmhaBatchPrefillPipelineProblemIDF16bDF16b":
        "attention forward bf16 (CK)",
    "aiter::fmha_fwd_hd128_bf16_rtz": "attention forward bf16 (AITER)",
    "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext": "attention fp8 (TensorRT-LLM)",
    "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, 1, ck_tile::ComposedAttention<0>>": "paged attention bf16 (vLLM)",
    "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16>": "paged attention reduction bf16 (vLLM)",
    "kernel_unified_attention_2d": "paged attention (vLLM)",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2, __nv_bfloat16>":
        "paged attention bf16 (FlashInfer)",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<cutlass::bfloat16_t> > >":
        "flash attention forward bf16 (version 3)",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, cutlass::bfloat16_t> >(int)":
        "flash attention forward bf16",
    "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)": "memory-efficient attention forward fp16 (CUTLASS)",
    # element-wise, reductions
    f"{NATIVE}vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int)":
        "element-wise fill (vectorized x4)",
    f"{NATIVE}elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&)>":
        "element-wise add",
    f"{NATIVE}vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{{lambda()#2}}>(int)":
        "element-wise gelu (vectorized x8)",
    f"{NATIVE}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#2}}>(int)":
        "element-wise copy",
    f"{NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, "
    "at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>(int)": "foreach add",
    f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float>"
    " > > >(int)": "reduce sum",
    f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, unsigned int> >(int)": "reduce mean",
    # communication and copies
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "NCCL AllReduce sum fp32 (ring)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": "NCCL AllReduce sum fp32 (ring)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)": "NCCL SendRecv (ring)",
    "Memcpy HtoD (Pinned -> Device)": "Memcpy HtoD (Pinned -> Device)",
    # readable as they are, and the heart of all others
    "triton_poi_fused_add_relu_0": "triton_poi_fused_add_relu_0",
    "void at::native::(anonymous namespace)::LayerNormForwardCUDAKernel<float, float>(long)": "LayerNormForwardCUDAKernel",
    "std::enable_if<!(false), void>::type mine::special::kernel<int>(int)": "special::kernel",
    "_ZN4mine7specialIfEEvPT_": "special",
    "attn_fwd": "attn_fwd",
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_a_kernel_is_named_by_what_it_is(name):
    assert short_kernel(name) == FAMILIES[name]


@given(st.text(min_size=1, max_size=300) | st.text("<>(){}:_Z019 abKkernel", min_size=1, max_size=300))
def test_a_name_is_never_empty_or_long(name):
    found = short_kernel(name)
    assert found
    assert len(found) <= 60


def test_the_precision_of_matrix_work_is_in_the_name_and_other_kernels_have_none():
    precisions = {
        "nvjet_sm103_tst_256x16_64x6_4x1_v_bz_TNT": "bf16",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512_s6": "mxfp8",
        "aiter::fmha_fwd_hd128_bf16_rtz": "bf16",
        "kernel_unified_attention_2d": "",
        f"{NATIVE}elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<float> >": "",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>": "",
    }
    assert {name: matrix_precision(name) for name in precisions} == precisions
