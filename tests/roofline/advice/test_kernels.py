"""Layout conversions, copies from pageable memory, small operators, batches that are too small, slow categories, precision."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooflines
from rooflines.profiler.records import Workload
from rooflines.roofline.advice import categories, copies, layout, precision, small_kernels
from rooflines.roofline.advice.setting import MORE_WORK, Setting
from tests.roofline.advice.cases import CEILINGS, analysis, case, kernel, row, unmodelled

DATA = Path(__file__).parents[2] / "data" / "traces"

NCHW = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>"


@pytest.mark.parametrize("name", [NCHW, "batched_transpose_32x32_half", "SubTensorOpWithScalar1d", "nhwcToNchwKernel"])
def test_layout_conversions_are_saved_by_channels_last(name):
    convolution = {"kernels": (kernel("sm80_xmma_fprop", 0.02), kernel(name, 0.006, calls=3))}
    found = layout.conversions(
        case(row("aten::conv2d", 0.026, **convolution), unmodelled("aten::cudnn_convolution", 0.026, **convolution))
    )
    assert found.saves_s == pytest.approx(0.012)
    assert found.of == {("operator", 0): 0.006, ("unmodelled", 0): 0.006}
    assert "channels_last" in found.suggestion


def test_a_model_in_channels_last_is_not_told_to_be():
    workload = Workload(name="resnet50", mode="training", channels_last=True)
    convolution = row("aten::conv2d", 0.02, kernels=(kernel(NCHW, 0.01),))
    assert layout.conversions(case(convolution, workload=workload)) is None
    assert layout.conversions(case(row("aten::conv2d", 0.02, kernels=(kernel("sm80_xmma_fprop", 0.02),)))) is None


def test_a_pageable_copy_costs_what_nothing_hides():
    name = "Memcpy HtoD (Pageable -> Device)"
    found = copies.pageable(case(row("aten::copy_", 0.02, shapes="64x3x224x224", exposed_s=0.005, kernels=(kernel(name, 0.02),))))
    assert found.saves_s == 0.005
    assert "pin_memory=True" in found.suggestion
    assert "non_blocking=True" in found.suggestion
    assert "20.0 ms a step, of which 5.00 ms (5 % of the step)" in found.evidence


def test_pinned_and_hidden_copies_are_left_alone():
    pinned = row("aten::copy_", 0.02, exposed_s=0.02, kernels=(kernel("Memcpy HtoD (Pinned -> Device)", 0.02),))
    hidden = row("aten::copy_", 0.02, exposed_s=0.0, kernels=(kernel("Memcpy HtoD (Pageable -> Device)", 0.02),))
    assert copies.pageable(case(pinned, hidden)) is None


def latency(name, category, time_s=0.01, **more):
    """An operator whose work is less than starting it."""
    judged = {"lower_bound_s": 0.001, "efficiency": 0.001 / time_s, "headroom_s": time_s - 0.001, "bound": "latency"}
    return row(name, time_s, category=category, calls=100, **{**judged, **more})


def test_small_operators_that_can_be_fused_are_compiled():
    found = small_kernels.small_operators(
        case(latency("aten::add", "element-wise", module="block.0"), latency("aten::mm", "matmul", 0.002))
    )
    assert str(found.suggestion) == "in the code: torch.compile the model"
    assert found.saves_s == pytest.approx(0.01)
    assert "most of them in block.0" in found.evidence


def test_small_operators_that_cannot_be_fused_want_a_larger_batch():
    found = small_kernels.small_operators(case(latency("aten::mm", "matmul")))
    assert str(found.suggestion) == "a larger batch"


@pytest.mark.parametrize(("source", "batch_size", "suggestion"), [
    ("step", None, MORE_WORK),
    ("model", None, MORE_WORK),
    ("step", 8, "a larger batch"),
    ("model", 8, "batch_size=16"),
    ("loop", None, "a larger batch"),
])  # fmt: skip
def test_a_larger_batch_is_suggested_only_where_there_can_be_one(source, batch_size, suggestion):
    workload = Workload(name="step", mode="inference", source=source, batch_size=batch_size)
    assert str(small_kernels.small_operators(case(latency("aten::mm", "matmul"), workload=workload)).suggestion) == suggestion
    underused = row("aten::mm", 0.04, kernels=(kernel("gemm", 0.04, grid=(33, 1, 1)),))
    assert (small_kernels.larger_grids(case(underused, row("aten::add", 0.04), workload=workload)) is None) == (suggestion == MORE_WORK)


@pytest.mark.parametrize(
    ("category", "one", "advice"),
    [
        ("matmul", {"time_s": 20e-6}, "a larger batch"),
        ("matmul", {"time_s": 0.01}, "multiples of 128"),
        ("matmul", {"time_s": 0.01, "kernels": (kernel("Cijk_Alik_Bljk_BBS_BH_MT256x256x64"),)}, "PYTORCH_TUNABLEOP_ENABLED"),
        ("convolution", {"time_s": 0.01}, "cudnn.benchmark"),
        ("attention", {"time_s": 0.01, "name": "aten::_scaled_dot_product_flash_attention"}, "it runs fused already"),
        ("attention", {"time_s": 0.01, "name": "aten::_scaled_dot_product_attention_math"}, "sdpa_kernel"),
        ("optimizer", {"time_s": 0.01}, "fused=True"),
        ("copy", {"time_s": 0.01, "module": "DistributedDataParallel_0"}, "gradient_as_bucket_view"),
    ],
)
def test_what_helps_a_slow_category(category, one, advice):
    found = categories.slow(category)(case(row(**{"name": "op", **one}, bound_s=one["time_s"] / 10, category=category)))
    assert advice in found.suggestion


def test_slow_operators_between_compiled_ones_are_graph_breaks():
    found = categories.slow("element-wise")(case(row("aten::add", 0.01, 0.001, category="element-wise"), compiled=True))
    assert "graph breaks" in found.suggestion


def test_compiled_code_is_never_told_to_be_compiled():
    found = small_kernels.small_operators(case(latency("aten::add", "element-wise"), compiled=True))
    assert found.suggestion == small_kernels.COMPILED_GRAPH
    assert small_kernels.small_operators(case(row("aten::add", 0.01, 0.001))) is None, "none is small"


def test_mostly_unmodelled_operators_are_not_judged_by_the_rest():
    rows = (latency("aten::cat", "copy"), row("aten::cat", 0.01, 0.001, category="copy"), unmodelled("aten::mm", 0.07))
    assert small_kernels.small_operators(case(*rows)) is None
    assert categories.slow("copy")(case(*rows)) is None


def test_kernels_that_leave_the_device_idle_want_a_larger_batch():
    found = small_kernels.larger_grids(
        case(row("aten::mm", 0.04, kernels=(kernel("gemm", 0.04, grid=(33, 1, 1)),)), row("aten::add", 0.04))
    )
    assert found.saves_s == pytest.approx(0.03)
    assert "fewer blocks than the device's 132 multiprocessors" in found.evidence


@pytest.mark.parametrize("grid", [None, (132, 1, 1), (12, 11, 1)])
def test_kernels_that_fill_the_device_do_not(grid):
    assert small_kernels.larger_grids(case(row("aten::mm", 0.04, kernels=(kernel("gemm", 0.04, grid=grid),)))) is None


def test_a_slow_category_names_its_worst_operator():
    slow = row("aten::add", 0.03, 0.01, category="element-wise", module="block.1", shapes="8x64")
    found = categories.slow("element-wise")(case(slow, row("aten::mul", 0.01, 0.008, category="element-wise")))
    assert found.title == "Element-wise operators run at 45 % of the bound"
    assert found.saves_s == pytest.approx(0.022)
    assert "aten::add in block.1 (8x64)" in found.evidence
    assert str(found.suggestion) == "in the code: torch.compile the model"


def test_a_category_near_its_bound_or_between_host_and_device_is_left_alone():
    assert categories.slow("matmul")(case(row("aten::mm", 0.01, 0.009, category="matmul"))) is None
    upload = row("aten::copy_", 0.01, 0.0001, category="copy", kernels=(kernel("Memcpy HtoD (Pinned -> Device)"),))
    assert categories.slow("copy")(case(upload)) is None


def test_slow_normalisation_over_batches_and_products_are_not_compiled():
    batch_norm = row("aten::native_batch_norm", 0.01, 0.001, category="normalisation")
    product = row("aten::mm", 0.01, 0.001, category="matmul")
    assert "compile" not in categories.slow("normalisation")(case(batch_norm)).suggestion
    assert "torch.compile" not in categories.slow("matmul")(case(product)).suggestion


def test_lower_precision_saves_what_the_compute_roof_explains():
    fp32 = {"category": "matmul", "precision": "tf32", "matrix_flops": 10**12, "flops": 10**12}
    rows = (row("aten::mm", 0.04, 0.03, **{**fp32, "bound": "compute"}), row("aten::mm", 0.02, 0.01, **fp32))
    workload = Workload(name="step", mode="training", precision="tf32", source="trace")
    found = precision.lower_precision(case(*rows, workload=workload))
    assert found.saves_s == pytest.approx(0.04 * 0.5)
    assert "autocast" in str(found.suggestion)


def test_fp32_kernels_without_a_count_are_named_without_a_saving():
    gap = unmodelled("cuda graph", 0.04, kernels=(kernel("ampere_sgemm_128x64_nn", 0.033), kernel("fill", 0.007)))
    found = precision.named_in_full_precision(case(gap))
    assert found.saves_s is None
    assert "take 33.0 ms a step (33 % of the step); the longest is GEMM fp32 128x64 (cuBLAS)" in found.evidence
    assert "torch.bfloat16" in found.suggestion
    assert list(found.of.values()) == [0.033]
    unknown = precision.named_in_full_precision(case(gap, ceilings=()))
    assert "check that it has matrix units" in unknown.evidence


def test_fp32_kernels_are_not_named_where_a_precondition_fails():
    sgemm = (kernel("ampere_sgemm_128x64_nn", 0.033),)
    gap = unmodelled("cuda graph", 0.033, kernels=sgemm)
    assert precision.named_in_full_precision(case(unmodelled("step", 0.033, phase="optimizer", kernels=sgemm))) is None
    assert precision.named_in_full_precision(case(unmodelled("graph", 0.04, kernels=(kernel("nvjet_tst_128x64", 0.04),)))) is None
    small = unmodelled("graph", 0.004, kernels=(kernel("ampere_sgemm_128x64_nn", 0.004),))
    assert precision.named_in_full_precision(case(small)) is None, "below 5 % of the step"
    vector_only = tuple(one for one in CEILINGS if one.precision != "bf16")
    assert precision.named_in_full_precision(case(gap, ceilings=vector_only)) is None, "the device has no faster precision"
    advised = case(gap)
    advised.given.append(Setting("precision", "amp-bf16"))
    assert precision.named_in_full_precision(advised) is None


def test_real_traces_are_told_to_lower_the_precision_where_it_is_not_low():
    told = {
        name: any("by their names" in finding.evidence for finding in rooflines.analyze(DATA / f"{name}.json.gz").findings)
        for name in ("nccl_collectives", "gpt-oss_b200_prefill")
    }
    assert told == {"nccl_collectives": True, "gpt-oss_b200_prefill": False}


def test_half_precision_is_low_enough():
    rows = (row("aten::mm", 0.04, 0.03, category="matmul", precision="bf16", matrix_flops=10**12, bound="compute"),)
    assert precision.lower_precision(case(*rows)) is None
    assert analysis(*rows).ceilings == CEILINGS


@pytest.mark.parametrize(
    ("name", "category", "library"),
    [
        ("_C::rms_norm", "normalisation", "vLLM"),
        ("aiter::gemm_a16w16", "matmul", "aiter"),
        ("torch::autograd::CppNode<SplitLookupFunction_sgd_Op>", "copy", "the library"),
    ],
)
def test_operators_of_another_library_are_not_for_torch_compile(name, category, library):
    found = categories.slow(category)(case(row(name, 0.02, 0.002, category=category)))
    assert f"a newer release of {library}, or tune {library}" in found.suggestion
    small = small_kernels.small_operators(case(row(name, 0.02, 0.002, category=category, bound="latency")))
    assert small.title == "Run fewer small operators"
    assert "compile" not in str(small.suggestion)


def test_operators_of_pytorch_decide_where_they_lose_more():
    rows = (
        row("aiter::rmsnorm", 0.002, 0.001, category="normalisation"),
        row("aten::layer_norm", 0.02, 0.01, category="normalisation"),
    )
    assert "newer release" not in str(categories.slow("normalisation")(case(*rows)).suggestion)
