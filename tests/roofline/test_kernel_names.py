"""Short names of kernels: what they are, for every family that a trace has, and never nothing."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.communication_kernels import communicates
from rooflines.roofline.count.kernel_names import kernel_category, matrix_precision, short_kernel
from tests.roofline.real import analysis_of, every_trace
from tests.roofline.rooms import analyzed
from tests.traces import kernel, launch, op, span

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


# Category, precision and tile of real names, cut after what tells them.
NAMES = {
    # communication
    "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*)": ("communication", "", ""),
    "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*, long*, int)": ("communication", "", ""),
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int)": ("communication", "", ""),
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*)": ("communication", "", ""),
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)": ("communication", "", ""),
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": ("communication", "", ""),
    "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)": ("communication", "", ""),
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)": ("communication", "", ""),
    "nvshmemi_proxy_wait_kernel(int)": ("communication", "", ""),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("communication", "", ""),
    "rcclGenericKernel<1, false>(ncclDevComm*)": ("communication", "", ""),
    # products
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__51_cublas":
        ("matmul", "fp32", "32x32x8"),
    "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8": ("matmul", "tf32", "128x128x16"),
    "ampere_sgemm_128x64_nn": ("matmul", "fp32", "128x64"),
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN": ("matmul", "bf16", "128x256x64"),
    "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(dpsk::grouped_gemm::Params)": ("matmul", "fp8", ""),
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u, 64u, 128u>(float*)": ("matmul", "fp8", ""),
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x16x256_MI16x16x1_SN_LDSB1": ("matmul", "bf16", "64x16x256"),
    "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long)": ("matmul", "", ""),
    "_ZN2ck15kernel_gemm_xdl_cshuffle_v3INS_44GridwiseGemm_xdl_cshuffle_v3INS_13tensor_layoutDF16bDF16b": ("matmul", "bf16", ""),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(int)": ("matmul", "fp32", "128x32x8"),
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512_s6": ("moe", "mxfp8", "128x8x512"),
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>": ("matmul", "", ""),
    "triton_tem_fused_addmm_3": ("matmul", "", ""),
    # attention
    "void cutlass::device_kernel<flash::FlashAttnBwd<flash::Mainloop<2>, cutlass::bfloat16_t> >(int)": ("attention", "bf16", ""),
    "void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, 128, 12>, true>(int)": ("attention", "", ""),
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0": ("attention", "fp16", ""),
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)": ("attention", "fp32", ""),
    "attn_fwd": ("attention", "", ""),
    # experts
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)": ("moe", "", ""),
    "void moe::dev::routing::routingIndicesHistogramKernel<int>(int)": ("moe", "", ""),
    "fused_moe_kernel": ("moe", "", ""),
    "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(float const*)": ("moe", "", ""),
    # others
    "void layer_norm::ln_bwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16> >(layer_norm::BwdParams)": ("normalization", "", ""),
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi8ELb1": ("normalization", "", ""),
    "void (anonymous namespace)::groupnorm_kernel_dispatch_down<__hip_bfloat16, 1024u>(int)": ("normalization", "", ""),
    "Memcpy HtoD (Pinned -> Device)": ("copy", "", ""),
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)": ("copy", "", ""),
    "void dpsk::grouped_gemm::cuda::utils::transpose<512, 128, 4, 4>(unsigned char const*)": ("copy", "", ""),
    "void split_embedding_codegen_forward_unweighted_kernel<c10::Half, c10::Half, float>(int)": ("embedding", "", ""),
    "void rotary_embedding_kernel<c10::BFloat16, true>(long const*)": ("element-wise", "", ""),
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<4>, "
    "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, 0>, float>(int)": ("optimizer", "", ""),
    # A word inside of another is no family: nothing is guessed.
    "alloc_decode_kernel": ("", "", ""),
    "my_kernel": ("", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_tells_category_precision_and_tile(name):
    category, precision, tile = NAMES[name]
    assert kernel_category(name) == category
    assert communicates(name) == (category == "communication")
    assert matrix_precision(name) == precision
    assert tile in short_kernel(name).split() or not tile


@every_trace
def test_every_kernel_with_a_known_name_is_in_a_category(path):
    """The time without a category is at most that of kernels without a count whose names tell none, and categories add up."""
    analysis = analysis_of(path)
    if analysis.idle_breakdown is None:  # the operators of a processor launch no kernels
        return
    uncounted = [one for row in analysis.coverage.unmodeled for one in row.kernels]
    nameless_s = sum(one.time_s for one in uncounted if not kernel_category(one.name))
    others_s = sum(row.time_s for row in analysis.coverage.unmodeled if not row.kernels)  # ran during the steps of others
    assert analysis.category_breakdown.get("unknown", 0.0) <= nameless_s + others_s + 1e-9
    assert sum(analysis.category_breakdown.values()) == pytest.approx(analysis.timeline.busy_s)


@every_trace
def test_the_name_agrees_with_the_operator(path):
    """Where the operator is known, the name of its longest kernel says the same, nothing, or a part that such operators have."""
    wrong = {
        (row.name, row.kernels[0].name)
        for row in analysis_of(path).operators
        if row.category in ("matmul", "attention", "moe", "communication") and row.kernels
        if kernel_category(row.kernels[0].name) not in (row.category, "", "copy", "element-wise")
    }
    assert wrong == set()


def parts(tmp_path, *events):
    """The analysis, and the microseconds of each phase that there is."""
    analysis = analyzed(tmp_path, *chain(*events))
    found = {name: getattr(analysis.division, f"{name}_s") for name in ("forward", "backward", "optimizer", "other")}
    return analysis, {name: round(value * 1e6) for name, value in found.items() if value}


def work(ts, number, name="k", call="cudaLaunchKernel"):
    """A kernel of 5 µs that no operator launches."""
    return [{**launch(ts, 1, number), "name": call}, kernel(name, ts + 2, 5, number)]


def node(ts):
    """A backward of autograd, on its own thread."""
    return [op("autograd::engine::evaluate_function: AddBackward0", ts, 8, tid=2, seq=9, fwd=1)]


def test_ranges_are_phases_and_modules(tmp_path):
    layers = ("attn(F)", "mlp(B)", "mlp(W)", "attn fwd", "## backward ##", "## optimizer_step ##")
    ranges = [[span(name, 20 * at, 10), *work(20 * at + 1, at)] for at, name in enumerate(layers)]
    analysis, found = parts(tmp_path, [span("1F1B", 0, 130)], *ranges)
    assert found == {"forward": 10, "backward": 15, "optimizer": 5}
    times = {module.path: round(module.time_s * 1e6) for module in analysis.modules}
    assert times == {"1F1B": 30, **{f"1F1B.{name.strip('# ')}": 5 for name in layers}}


def test_a_backward_without_its_forward_belongs_to_the_range_that_waits_for_it(tmp_path):
    started, ran = work(36, 1)
    ranges = [span("step", 0, 100), span("attn(F)", 2, 10), span("attn(B)", 30, 20)]
    waits = [*ranges, *node(35), {**started, "tid": 2}, ran]
    analysis, found = parts(tmp_path, waits)
    assert found == {"backward": 5}
    assert {module.path: round(module.time_s * 1e6) for module in analysis.modules}["step.attn(B)"] == 5
    other = parts(tmp_path, waits, [span("loader", 0, 90, tid=3)])[0]
    assert {round(module.time_s * 1e6) for module in other.modules} == {0}, "which of two threads waits is not known"


def test_what_nothing_shows_is_in_no_known_phase(tmp_path):
    recorded = [op("MyFunction", 40, 9, seq=1), *work(41, 3)]
    _, found = parts(tmp_path, work(1, 1), node(20), work(60, 2), recorded)
    assert found == {"forward": 5, "other": 10}, "autograd recorded one of three kernels, and the trace has a backward"
    both = [span("forward_backward", 0, 10), *work(1, 1)]
    assert parts(tmp_path, both, node(20))[1] == {"other": 5}, "a range that says two phases says none"


def test_an_inference_is_forward_but_for_graphs_without_a_mark(tmp_path):
    graph = work(1, 1, call="cudaGraphLaunch")
    some = [op("aten::item", 50, 2)]
    assert parts(tmp_path, some, work(1, 1), work(20, 2))[1] == {"forward": 10}
    assert parts(tmp_path, some, graph)[1] == {"other": 5}, "a graph may hold a whole training step"
    assert parts(tmp_path, [span("model forward", 0, 30)], graph)[1] == {"forward": 5}
    assert parts(tmp_path, some, work(1, 1), work(20, 2, "layer_norm_bwd_kernel"))[1] == {"other": 10}, "a kernel of training"
    assert parts(tmp_path, work(1, 1))[1] == {"other": 5}, "without operators no backward would show"


def test_a_range_that_counts_its_calls_is_one_module_and_those_of_libraries_are_none(tmp_path):
    loops = [[span(f"## loop {at} ##", 20 * at, 10), *work(20 * at + 1, at)] for at in range(3)]
    library = [span("Torch-Compiled Region: 0/0", 80, 10), *work(81, 9), span("MoE[experts=8]", 100, 9), *work(101, 10)]
    analysis, _ = parts(tmp_path, *loops, library)
    assert [(module.path, module.calls) for module in analysis.modules] == [("loop", 3), ("MoE[experts=8]", 1)]


def test_modules_of_the_network_leave_no_place_for_ranges(tmp_path):
    network = [span("nn.Module: layer (Linear)", 0, 20), span("my range", 1, 10), *work(2, 1)]
    assert [module.path for module in parts(tmp_path, network)[0].modules] == ["layer"]


def test_communication_without_an_operator_is_communication_everywhere(tmp_path):
    analysis, _ = parts(tmp_path, work(1, 1), work(20, 2, "void vllm::cross_device_reduce_1stage<float, 8>(int)"))
    assert analysis.timeline.exposed_communication_s == pytest.approx(5e-6)
    assert analysis.category_breakdown["communication"] == analysis.bound_breakdown["communication"] == pytest.approx(5e-6)
    assert analysis.division.communication_s == pytest.approx(5e-6)


def test_the_verdict_gives_no_efficiency_for_kernels_without_a_bound(tmp_path):
    analysis, _ = parts(tmp_path, work(1, 1, "ampere_sgemm_128x64_nn"), work(20, 2))
    assert analysis.category_breakdown["matmul"] == analysis.category_breakdown["unknown"] == pytest.approx(5e-6)
    assert analysis.coverage.modeled_time_fraction == 0
    assert "matrix products take" in analysis.verdict
    assert "efficiency" not in analysis.verdict


def test_the_dtype_of_scales_is_not_that_of_the_numbers():
    name = "cutlass13device_kernelINS_4gemm_MainloopSm120_12float_e2m1_tENS_13float_ue4m3_tEEE_SM120_16x8x64_TN_VSISJ_16bfloat16_t"
    assert matrix_precision(name) == "nvfp4"
    assert "16x8x64" not in short_kernel(name)  # of an instruction, and not of the tile
