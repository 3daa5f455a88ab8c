"""What is known of a run that somebody else recorded."""

import json

import pytest

from rooflines.profiler.external_trace import run_of_trace
from rooflines.profiler.trace.reader import parse_trace
from tests.traces import add, kernel, launch, mm, op, trace

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9, "computeMinor": 0, "numSms": 132}

MI300X = {
    "id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 205571227648, "computeMajor": 9, "computeMinor": 4, "numSms": 304,
    "warpSize": 64,
}  # fmt: skip


def on_device(ordinal):
    return {**kernel("k", 2, 3, 1), "args": {"correlation": 1, "stream": 7, "device": ordinal}}


def facts(*events, **head):
    return run_of_trace("a/b/c.json.gz", parse_trace(json.dumps({**head, "traceEvents": list(events)}).encode())).facts


def test_a_trace_names_its_device_and_nothing_else():
    found = facts(launch(0, 1, 1), kernel("k", 2, 3, 1), deviceProperties=[H100]).environment
    assert (found.device, found.device_name) == ("cuda:0", "NVIDIA H100 80GB HBM3")
    assert (found.device_memory_bytes, found.device_units) == (85018279936, 132)
    assert (found.host, found.os, found.torch) == (None, None, None)


def test_the_device_is_the_one_that_worked():
    other = {**H100, "name": "NVIDIA L4", "id": 1}
    assert facts(on_device(1), deviceProperties=[other, H100]).environment.device_name == "NVIDIA L4"
    assert facts(on_device(0), deviceProperties=[other, H100]).environment.device_name == "NVIDIA H100 80GB HBM3"


def test_a_device_without_properties_takes_those_of_the_only_model():
    """As in traces of ROCm, whose kernels carry the number of an agent."""
    for properties in ([MI300X], [MI300X, {**MI300X, "id": 1, "totalGlobalMem": 205571227648 - 4096}]):
        found = facts(on_device(9), deviceProperties=properties).environment
        assert (found.device, found.device_name, found.device_units) == ("cuda:9", "AMD Instinct MI300X", 304)


CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4"


@pytest.mark.parametrize(("kernels", "allowed"), [
    (["cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4", "ampere_sgemm_32x128_tn"], {"matmul": True, "convolution": False}),
    (["sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32"], {"matmul": True, "convolution": False}),
    ([CONVOLUTION, "ampere_sgemm_32x128_tn"], {"matmul": False, "convolution": True}),
    ([CONVOLUTION, "cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4"], {"matmul": True, "convolution": True}),
    (["ampere_sgemm_32x128_tn", "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn"], None),
    (["ampere_bf16_s1688gemm_bf16_128x64_sliced1x2_ldg8_f2f_tn", "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_nn"], None),
])  # fmt: skip
def test_kernels_tell_where_tf32_was_allowed(kernels, allowed):
    assert facts(*(kernel(name, 2 + 2 * i, 1, i) for i, name in enumerate(kernels))).tf32 == allowed


def test_several_models_and_an_unknown_device_are_said():
    found = facts(on_device(9), deviceProperties=[MI300X, H100])
    assert found.environment.device_name == ""
    (note,) = found.notes
    assert "ran on device 9, which the trace does not describe" in note
    assert "several models: AMD Instinct MI300X, NVIDIA H100 80GB HBM3" in note


@pytest.mark.parametrize(("properties", "kernels", "name", "clue"), [
    ([{**H100, "name": ""}], "k", "NVIDIA H100 80GB HBM3", "compute capability 9.0, 132 units, 85.0 GB of memory"),
    ([{**MI300X, "name": ""}], "k", "AMD Instinct MI300X", "compute capability 9.4, 304 units, 206 GB of memory"),
    ([{**MI300X, "name": "AMD Radeon Graphics"}], "Cijk_Alik_Bljk_BBS_BH_ISA942_IU1", "AMD Instinct MI300X", "kernels of gfx942"),
    ([], "Cijk_Ailk_Bljk_HHS_BH_MI300X_GRVW8", "AMD Instinct MI300X", "kernels of MI300X"),
    ([], "triton_red_fused_gfx908", "AMD Instinct MI100", "kernels of gfx908"),
])  # fmt: skip
def test_a_name_that_is_missing_is_inferred_and_marked(properties, kernels, name, clue):
    found = facts(launch(0, 1, 1), kernel(kernels, 2, 3, 1), deviceProperties=properties)
    assert found.environment.device_name == name
    assert clue in found.environment.device_inferred
    assert f"treated as {name}, inferred from" in found.notes[-1]


def test_a_name_that_cannot_be_inferred_names_those_that_fit():
    """An H20 has the compute capability of an H100 and a seventh of its arithmetic."""
    found = facts(kernel("sm90_xmma_gemm_bf16bf16_bf16f32_tn_n_tilesize128x128x64", 2, 3, 1))
    assert (found.environment.device_name, found.environment.device_inferred) == ("", None)
    assert all(name in found.notes[-1] for name in ("kernels of sm90 fit several", "H100 SXM5 80GB", "H20"))


def test_a_name_of_its_own_is_never_replaced():
    """A product for one market may be the same but for the rates that were cut."""
    found = facts(kernel("k", 2, 3, 1), deviceProperties=[{**H100, "name": "NVIDIA H850"}])
    assert (found.environment.device_name, found.environment.device_inferred, found.notes) == ("NVIDIA H850", None, ())


@pytest.mark.parametrize(("category", "device"), [
    ("xpu_runtime", "xpu:0"), ("xpu_driver", "xpu:0"), ("mtia_runtime", "mtia:0"), ("cuda_runtime", "cuda:0"),
])  # fmt: skip
def test_the_platform_is_told_by_its_runtime(category, device):
    assert facts({**launch(0, 1, 1), "cat": category}, kernel("k", 2, 3, 1)).environment.device == device


def test_a_trace_without_device_events_is_of_a_cpu():
    assert facts(add(0, 1), deviceProperties=[H100]).environment.device == "cpu"


@pytest.mark.parametrize("name", [
    "autograd::engine::evaluate_function: MmBackward0", "MmBackward", "torch::autograd::AccumulateGrad", "Optimizer.step#SGD.step",
])  # fmt: skip
def test_what_differentiates_or_optimizes_is_training(name):
    assert facts(op(name, 0, 5)).workload.mode == "training"
    assert facts(add(0, 5)).workload.mode == "inference"


def test_the_precision_is_that_of_most_elements():
    half = op("aten::mm", 0, 1, dims=[[64, 64], [64, 64]], types=["c10::BFloat16", "c10::BFloat16"])
    assert run_of_trace("t", trace(half, mm(2, 1, 8, 8, 8))).facts.workload.precision == "bf16"
    assert run_of_trace("t", trace(half, mm(2, 1, 512, 64, 512))).facts.workload.precision == "fp32"
    assert run_of_trace("t", trace(op("aten::mm", 0, 1))).facts.workload.precision == ""
