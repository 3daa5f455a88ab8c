"""Layout conversions, copies from pageable memory, small operators, batches that are too small, slow categories, precision."""

import pytest
from msgspec.structs import replace

from rooflines.device_specs.records import Source
from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.advise import categories, copies, matrix, small_kernels
from rooflines.roofline.advise.case import MORE_WORK, Setting
from rooflines.roofline.advise.findings import find
from rooflines.roofline.analysis import HostWork, ModuleRow
from tests.roofline.advise.cases import CEILINGS, analysis, case, kernel, row, unmodeled

CK_MOE = "_ZN2ck27kernel_moe_gemm_2lds"
CHAINED = {"shapes": "8192x4096", "precision": "bf16", "bytes": 2**27, "category": "normalization"}
NCHW = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>"


@pytest.mark.parametrize("name", [NCHW, "batched_transpose_32x32_half", "SubTensorOpWithScalar1d"])
def test_layout_conversions_are_saved_by_channels_last(name):
    convolution = {"kernels": (kernel("sm80_xmma_fprop", 0.02), kernel(name, 0.006, calls=3))}
    found = copies.conversions(
        case(row("aten::conv2d", 0.026, **convolution), unmodeled("aten::cudnn_convolution", 0.026, **convolution))
    )
    assert found.saves_s == pytest.approx(0.012)
    assert found.of == {0: 0.006, 1: 0.006}
    assert "channels_last" in found.suggestion


def test_a_model_in_channels_last_is_not_told_to_be():
    workload = Workload(name="resnet50", mode="training", channels_last=True)
    convolution = row("aten::conv2d", 0.02, kernels=(kernel(NCHW, 0.01),))
    assert copies.conversions(case(convolution, workload=workload)) is None
    assert copies.conversions(case(row("aten::conv2d", 0.02, kernels=(kernel("sm80_xmma_fprop", 0.02),)))) is None


def test_images_in_channels_last_are_seen_by_the_direction_of_their_conversions():
    back = "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, float, false, true>"
    kernels = (kernel("xmma_fprop_nchw", 0.02), kernel(back, 0.004, calls=2), kernel(NCHW, 0.002, calls=1))
    inside = row("aten::convolution", 0.026, 0.01, kernels=kernels, category="convolution", shapes="8x64x56x56")
    assert copies.conversions(case(inside)) is None
    workload = Workload(name="resnet18", mode="inference", source="model", image_size=224)
    assert "channels" not in str(categories.slow("convolution")(case(inside, workload=workload)).suggestion)
    outside = row("aten::convolution", 0.026, kernels=(kernel(NCHW, 0.004, calls=2), kernel(back, 0.002, calls=1)))
    assert copies.conversions(case(outside)) is not None


def test_results_that_are_copied_to_the_host_come_from_no_loader():
    name = "Memcpy DtoH (Device -> Pageable)"
    found = copies.pageable(case(row("aten::copy_", 0.02, exposed_s=0.005, kernels=(kernel(name, 0.02),))))
    assert "DataLoader" not in found.suggestion
    assert "copy results to pinned memory" in found.suggestion


def test_a_copy_within_the_device_costs_its_whole_time_and_names_its_caller():
    rows = [
        row("aten::clone", 0.004, 0.003, category="copy", module="layer.0.attention", shapes="1x8x64x64"),
        row("aten::_to_copy", 0.002, category="copy", shapes="1024x1024"),
        row("aten::to", 0.03, category="copy", kernels=(kernel("Memcpy HtoD (Pinned -> Device)", 0.03),)),
        row("aten::copy_", 0.01, phase="optimizer"),
    ]
    found = copies.on_device(case(*rows))
    assert (found.saves_s, list(found.of)) == (pytest.approx(0.006), [0, 1])
    assert "layer.0.attention 4.00 ms, aten::_to_copy (1024x1024) 2.00 ms" in found.evidence
    assert found.suggestion.startswith("check whether the caller needs the copy")
    assert copies.on_device(case(*rows[2:])) is None
    assert copies.on_device(case(*rows, device="cpu")) is None


def test_copies_as_they_are_need_another_remedy_than_conversions():
    same = row(
        "aten::copy_", 0.004, shapes="64, 64", caller="CompiledFunction", kernels=(kernel("Memcpy DtoD (Device -> Device)", 0.004),)
    )
    converted = row("aten::_to_copy", 0.001, shapes="8", kernels=(kernel("direct_copy_kernel", 0.001),))
    found = copies.on_device(case(same, converted))
    assert "1.00 ms to another dtype or layout, 4.00 ms of the same dtype and layout" in found.evidence
    assert "aten::copy_ (64, 64) in CompiledFunction 4.00 ms" in found.evidence
    assert "mark_static_address" in found.suggestion


@pytest.mark.parametrize(("grid", "advice"), [((64, 1, 1), "channels-last images"), ((65, 1, 1), "a larger batch")])
def test_a_larger_batch_is_no_remedy_for_kernels_with_a_block_for_each_channel(grid, advice):
    kernels = (kernel("batch_norm_collect_statistics", 0.001, calls=100, grid=grid),)
    one = row("aten::native_batch_norm", 0.001, 0.0001, category="normalization", calls=100, shapes="10x64x56x56", kernels=kernels)
    assert str(categories.slow("normalization")(case(one)).suggestion) == advice


def test_what_inductor_does_not_generate_is_not_told_to_compile():
    one = row("aten::topk", 0.01, 0.001, category="reduction", calls=1000)
    assert "compile" not in str(categories.slow("reduction")(case(one)).suggestion)
    assert "compile" in str(categories.slow("reduction")(case(row("aten::sum", 0.01, 0.001, category="reduction"))).suggestion)


def test_copies_of_ddp_are_its_buckets_and_its_buffers():
    wrapper = ModuleRow(path="DistributedDataParallel_0", type="", calls=1, time_s=0.1, flops=0, matrix_flops=0, bytes=0, depth=0)
    bucket = row("aten::copy_", 0.004, phase="", caller="torch.distributed.ddp.reducer::copy_bucket_to_grad", module="other")
    buffer, packed = (row(f"aten::{name}", 0.001, module="DistributedDataParallel_0") for name in ("copy_", "cat"))
    inside = row("aten::clone", 0.03, module="DistributedDataParallel_0.layer")
    found = copies.of_ddp(case(bucket, buffer, packed, inside, modules=(wrapper,)))
    assert (found.saves_s, set(found.of)) == (pytest.approx(0.006), set(range(3)))
    assert "gradient_as_bucket_view=True, and broadcast_buffers=False" in found.suggestion
    assert "broadcast" not in copies.of_ddp(case(bucket, inside)).suggestion
    assert copies.of_ddp(case(inside)) is None


def test_a_device_that_waits_for_the_packing_of_buffers_counts_where_there_is_ddp():
    packing = (HostWork(kind="broadcast", name="aten::unflatten_dense_tensors", calls=1, idle_s=0.02),)
    bucket = unmodeled("aten::copy_", 0.004, caller="torch.distributed.ddp.reducer::copy_bucket_to_grad")
    found = copies.of_ddp(case(bucket, idle={"host_bound": 0.03}, host_work=packing))
    assert (found.saves_s, found.of) == (pytest.approx(0.024), {0: 0.004, "host_bound": 0.02})
    assert copies.of_ddp(case(row("aten::copy_", 0.004), idle={"host_bound": 0.03}, host_work=packing)) is None


def chain(**more):
    """Three operators over 64 MiB in one module: each reads and writes it."""
    each = {
        "shapes": "8192x4096",
        "precision": "bf16",
        "bytes": 2 * 2**26,
        "category": "element-wise",
        "module": "block.0.norm",
        **more,
    }
    return [row(name, 0.003, 0.001, **each) for name in ("aten::pow", "aten::mul", "aten::neg")]


@pytest.mark.parametrize(("mode", "inside"), [("inference", 4), ("training", 2)])
def test_a_fused_chain_moves_what_comes_from_outside(mode, inside):
    workload = Workload(name="step", mode=mode, source="trace")
    found = small_kernels.chained(case(*chain(), workload=workload))
    assert found.saves_s == pytest.approx(0.009 - (6 - inside) * 2**26 / 3e12)
    assert sum(found.of.values()) == pytest.approx(0.009), "nothing is left for other advice"
    assert str(found.suggestion) == "in the code: torch.compile the model"


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        (chain(), {"compiled": True}),
        (chain(), {"ceilings": ()}),
        (chain()[:1], {}),
        (chain(category="matmul"), {}),
        (chain(shapes=""), {}),
        (chain(bytes=2**40), {}),  # it cannot be faster than now
        (chain(), {"device": "cpu"}),
        ([row("_C::rms_norm", 0.003, **{**CHAINED, "module": f"block.{at}"}) for at in range(3)], {}),
    ],
)
def test_what_does_not_form_a_chain_is_not_fused(rows, more):
    assert small_kernels.chained(case(*rows, **more)) is None


def test_a_pageable_copy_costs_what_nothing_hides():
    name = "Memcpy HtoD (Pageable -> Device)"
    found = copies.pageable(case(row("aten::copy_", 0.02, shapes="64x3x224x224", exposed_s=0.005, kernels=(kernel(name, 0.02),))))
    assert found.saves_s == 0.005
    assert "tensor.pin_memory()" in found.suggestion
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
    underused = row("aten::mm", 0.04, 0.004, kernels=(kernel("gemm", 0.04, grid=(33, 1, 1)),))
    assert (small_kernels.larger_grids(case(underused, row("aten::add", 0.04), workload=workload)) is None) == (suggestion == MORE_WORK)


@pytest.mark.parametrize(
    ("category", "one", "advice"),
    [
        ("matmul", {"time_s": 20e-6}, "a larger batch"),
        ("matmul", {"time_s": 0.01, "shapes": "4096x513, 513x4096"}, "multiples of 128 instead of 513"),
        ("matmul", {"time_s": 0.01, "shapes": "4096x4096, 4096x4096"}, "max-autotune"),
        ("matmul", {"time_s": 0.01, "shapes": "8944x1024, 1024x2816"}, "max-autotune"),
        ("matmul", {"time_s": 0.01, "kernels": (kernel("Cijk_Alik_Bljk_BBS_BH_MT256x256x64"),)}, "PYTORCH_TUNABLEOP_ENABLED"),
        ("convolution", {"time_s": 0.01}, "cudnn.benchmark"),
        ("attention", {"time_s": 0.01, "name": "aten::_scaled_dot_product_flash_attention"}, "FlashAttention 3"),
        ("moe", {"time_s": 0.01, "kernels": (kernel("fused_moe_kernel"),), "bound": "compute"}, "benchmark_moe.py"),
        ("moe", {"time_s": 0.01, "kernels": (kernel(CK_MOE),), "name": "aiter::moe", "bound": "compute"}, "Composable Kernel"),
        ("moe", {"time_s": 0.01, "kernels": (kernel(CK_MOE),)}, "more tokens per step"),
        ("attention", {"time_s": 0.01, "name": "aten::_scaled_dot_product_attention_math"}, "sdpa_kernel"),
        ("optimizer", {"time_s": 0.01}, "fused=True"),
    ],
)
def test_what_helps_a_slow_category(category, one, advice):
    made = row(**{"name": "op", "bound_s": one["time_s"] / 10, **one, "bound": "memory"}, category=category)
    made = replace(made, bound=one.get("bound", "memory"))
    assert advice in found_of(category, made).suggestion


def found_of(category, *rows, device="NVIDIA H100 80GB HBM3", **more):
    environment = Environment(rooflines="0", device="cuda:0", device_name=device, device_units=132)
    return categories.slow(category)(case(*rows, environment=environment, **more))


FLASH = "aten::_scaled_dot_product_flash_attention"
FLASH_3 = "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>"


@pytest.mark.parametrize(
    ("device", "kernels", "said", "unsaid"),
    [
        ("NVIDIA H100 80GB HBM3", (), "FlashAttention 3", "AITER"),
        ("NVIDIA H100 80GB HBM3", (kernel(FLASH_3),), None, ""),
        ("NVIDIA A100-SXM4-80GB", (), "compare the fused backends", "FlashAttention 3"),
        ("NVIDIA B200", (kernel("sm90_gemm"),), "compare the fused backends", "FlashAttention 3"),
        ("AMD Instinct MI300X", (), "AITER", "FlashAttention 3"),
        ("AMD Instinct MI300X", (kernel("_ZN5aiter20fmha_fwd_hd128_bf16E"),), None, ""),
        ("", (kernel("_ZN7ck_tile6kentry_FmhaFwdKernel"),), "AITER", "FlashAttention 3"),
        ("", (), "compare the fused backends", "AITER"),
    ],
)
def test_attention_libraries_are_those_of_the_device(device, kernels, said, unsaid):
    found = found_of("attention", row(FLASH, 0.01, 0.001, category="attention", kernels=kernels), device=device)
    if said is None:
        assert found is None, "it runs already"
    else:
        assert said in found.suggestion
        assert unsaid not in found.suggestion


@pytest.mark.parametrize(
    ("category", "one", "more"),
    [
        ("optimizer", {"name": "aten::_fused_adamw_"}, {}),
        ("element-wise", {"kernels": (kernel("triton_poi_fused_add_0"),)}, {"compiled": True}),
        ("normalization", {"name": "aten::cudnn_batch_norm", "kernels": (kernel("bn_fw_inf_nhwc"),), "shapes": "8x64x56x56"}, {}),
        ("matmul", {"kernels": (kernel("triton_tem_fused_mm_0"),), "shapes": "4096x4096, 4096x4096"}, {"compiled": True}),
    ],
)
def test_what_is_in_use_already_is_not_suggested(category, one, more):
    assert found_of(category, row(**{"name": "op", "time_s": 0.01, "bound_s": 0.001, "category": category, **one}), **more) is None


def test_slow_operators_between_compiled_ones_are_graph_breaks():
    found = categories.slow("element-wise")(case(row("aten::add", 0.01, 0.001, category="element-wise"), compiled=True))
    assert "graph breaks" in found.suggestion


def test_compiled_code_is_never_told_to_be_compiled():
    eager, generated = latency("aten::add", "element-wise"), row("triton", 0.001, kernels=(kernel("triton_poi_fused_add_0", 0.001),))
    assert small_kernels.small_operators(case(eager, generated, compiled=True)).suggestion == small_kernels.COMPILED_GRAPH
    assert str(small_kernels.small_operators(case(eager, compiled=True)).suggestion) == "a larger batch"
    assert small_kernels.small_operators(case(row("aten::add", 0.01, 0.001))) is None, "none is small"


def test_mostly_unmodeled_operators_are_not_judged_by_the_rest():
    rows = (latency("aten::cat", "copy"), row("aten::cat", 0.01, 0.001, category="copy"), unmodeled("aten::mm", 0.07))
    assert small_kernels.small_operators(case(*rows)) is None
    assert categories.slow("copy")(case(*rows)) is None


def test_kernels_that_leave_the_device_idle_want_a_larger_batch():
    found = small_kernels.larger_grids(
        case(row("aten::mm", 0.04, 0.004, kernels=(kernel("gemm", 0.04, grid=(33, 1, 1)),)), row("aten::add", 0.04))
    )
    assert found.saves_s == pytest.approx(0.03)
    assert "fewer blocks than the device's 132 multiprocessors" in found.evidence


@pytest.mark.parametrize("grid", [None, (132, 1, 1), (12, 11, 1)])
def test_kernels_that_fill_the_device_do_not(grid):
    assert small_kernels.larger_grids(case(row("aten::mm", 0.04, 0.004, kernels=(kernel("gemm", 0.04, grid=grid),)))) is None


@pytest.mark.parametrize(
    ("name", "bound_s", "exposed_s"),
    [
        ("gemm", 0.03, 0.04),  # 75 % of the memory roof: a decode step that streams its weights
        ("gemm", None, 0.04),  # nothing tells how near it is
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<Sm90, Persistent>>", 0.004, 0.04),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNN", 0.004, 0.04),
        ("gemm", 0.004, 0.0),  # another kernel runs on the other multiprocessors
    ],
)
def test_few_blocks_are_no_evidence_near_a_roof_by_design_or_beside_another_kernel(name, bound_s, exposed_s):
    few = row("aten::mm", 0.04, bound_s, exposed_s=exposed_s, kernels=(kernel(name, 0.04, grid=(112, 1, 1)),))
    assert small_kernels.larger_grids(case(few, row("aten::add", 0.01))) is None


def test_a_larger_batch_is_not_for_short_calls_that_fill_the_device():
    short = {"category": "matmul", "shapes": "640x128, 128x640"}
    few, full = (row("aten::mm", 20e-6, 8e-6, kernels=(kernel("gemm", 20e-6, grid=(blocks, 1, 1)),), **short) for blocks in (8, 132))
    assert str(categories.slow("matmul")(case(few)).suggestion) == "a larger batch"
    assert "max-autotune" in categories.slow("matmul")(case(full)).suggestion


def test_time_that_another_kernel_hides_is_not_saved():
    slow = row("aten::add", 0.03, 0.01, category="element-wise", exposed_s=0.012)
    (found,) = find(analysis(slow))
    assert found.saves_s == pytest.approx(0.012)
    assert found.evidence.endswith("; 18.0 ms more, while another kernel runs, are left out")
    assert find(analysis(row("aten::add", 0.03, 0.01, category="element-wise", exposed_s=0.0))) == ()


def product(time_s, reach, **more):
    """A product that reaches this share of the compute roof."""
    judged = {"lower_bound_s": reach * time_s, "efficiency": reach, "headroom_s": (1 - reach) * time_s, "bound": "compute"}
    return row("aten::mm", time_s, category="matmul", precision="bf16", **{"shapes": "4096x4096, 4096x4096", **judged, **more})


def test_compute_savings_are_those_against_the_best_product_of_the_trace():
    found = categories.slow("matmul")(case(product(0.03, 0.4), product(0.01, 0.5)))
    assert found.saves_s == pytest.approx(0.03 - 0.4 * 0.03 / 0.5)
    assert "at 43 % efficiency, 34.0 ms at the rate that products attain here; largest loss: aten::mm" in found.evidence
    assert categories.slow("matmul")(case(product(0.03, 0.4))) is None, "the only product attains its own rate"


@pytest.mark.parametrize(("variant", "attained"), [("sustained", 0.75), ("", 1.0)])
def test_a_measured_roof_of_products_is_attained_at_its_sustained_rate(variant, attained):
    measured = Source(kind="measured", detail="GEMM", date="2026-01-01")
    roof = replace(CEILINGS[0], source=measured)
    held = replace(roof, variant=variant, value=0.75 * roof.value)
    made = case(product(0.03, 0.4), ceilings=(roof, held) if variant else (roof,))
    assert categories.slow("matmul")(made).saves_s == pytest.approx(0.03 - 0.4 * 0.03 / attained)


def test_a_slow_category_names_its_worst_operator():
    slow = row("aten::add", 0.03, 0.01, category="element-wise", module="block.1", shapes="8x64")
    found = categories.slow("element-wise")(case(slow, row("aten::mul", 0.01, 0.008, category="element-wise")))
    assert (found.title, found.saves_s) == ("Fuse element-wise operators", pytest.approx(0.022))
    assert "at 45 % efficiency" in found.evidence
    assert "aten::add in block.1 (1 × 30.0 ms at 33 %)" in found.evidence
    assert str(found.suggestion) == "in the code: torch.compile the model"


def test_a_category_near_its_bound_or_between_host_and_device_is_left_alone():
    assert categories.slow("matmul")(case(row("aten::mm", 0.01, 0.009, category="matmul"))) is None
    upload = row("aten::copy_", 0.01, 0.0001, category="copy", kernels=(kernel("Memcpy HtoD (Pinned -> Device)"),))
    assert categories.slow("copy")(case(upload)) is None


def test_slow_normalization_over_batches_and_products_are_not_compiled():
    batch_norm = row("aten::native_batch_norm", 0.01, 0.001, category="normalization")
    product = row("aten::mm", 0.01, 0.001, category="matmul")
    batch_norm = replace(batch_norm, shapes="8x64x56x56")
    assert categories.slow("normalization")(case(batch_norm)).suggestion == "channels-last images"
    assert "torch.compile the model" not in categories.slow("matmul")(case(product)).suggestion


def test_lower_precision_saves_what_the_compute_roof_explains():
    fp32 = {"category": "matmul", "precision": "tf32", "matrix_flops": 10**12, "flops": 10**12}
    rows = (row("aten::mm", 0.04, 0.03, **{**fp32, "bound": "compute"}), row("aten::mm", 0.02, 0.01, **fp32))
    workload = Workload(name="step", mode="training", precision="tf32", source="trace")
    found = matrix.lower_precision(case(*rows, workload=workload))
    assert found.saves_s == pytest.approx(0.04 - 0.03 * 0.5), "down to the bound in the other precision"
    assert "autocast" in str(found.suggestion)


def test_a_product_in_half_precision_takes_at_least_as_long_as_its_bytes():
    one = {"category": "matmul", "precision": "tf32", "matrix_flops": 10**12, "bound": "compute", "bytes": 150e9}
    workload = Workload(name="step", mode="training", precision="tf32", source="trace")
    found = matrix.lower_precision(case(row("aten::mm", 0.04, 0.03, **one), workload=workload))
    assert found.saves_s == pytest.approx(0.04 - 75e9 / 3e12)
    half = row("aten::mm", 0.04, 0.03, kernels=(kernel("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_tn", 0.04),), **one)
    assert matrix.lower_precision(case(half, workload=workload)) is None, "its kernel computes in bf16"


def test_fp32_kernels_without_a_count_save_by_the_ratio_of_the_rates():
    gap = unmodeled("cuda graph", 0.04, kernels=(kernel("ampere_sgemm_128x64_nn", 0.033), kernel("fill", 0.007)))
    found = matrix.named_in_full_precision(case(gap))
    used, half = (next(c.value for c in CEILINGS if c.kind == "compute" and c.precision == name) for name in ("fp32", "bf16"))
    assert found.saves_s == pytest.approx(0.033 * (1 - used / half))
    assert "kernels in fp32, by their names, take 33.0 ms a step (33 % of the step); the longest is GEMM fp32 128x64" in found.evidence
    assert "torch.bfloat16" in found.suggestion
    assert list(found.of.values()) == [pytest.approx(found.saves_s)]
    unknown = matrix.named_in_full_precision(case(gap, ceilings=()))
    assert unknown.saves_s is None
    assert "check that it has matrix units" in unknown.evidence


def test_fp32_kernels_are_not_named_where_a_precondition_fails():
    sgemm = (kernel("ampere_sgemm_128x64_nn", 0.033),)
    gap = unmodeled("cuda graph", 0.033, kernels=sgemm)
    assert matrix.named_in_full_precision(case(unmodeled("step", 0.033, phase="optimizer", kernels=sgemm))) is None
    assert matrix.named_in_full_precision(case(unmodeled("graph", 0.04, kernels=(kernel("nvjet_tst_128x64", 0.04),)))) is None
    small = unmodeled("graph", 0.004, kernels=(kernel("ampere_sgemm_128x64_nn", 0.004),))
    assert matrix.named_in_full_precision(case(small)) is None, "below 5 % of the step"
    vector_only = tuple(one for one in CEILINGS if one.precision != "bf16")
    assert matrix.named_in_full_precision(case(gap, ceilings=vector_only)) is None, "the device has no faster precision"
    advised = case(gap)
    advised.given.append(Setting("precision", "amp-bf16"))
    assert matrix.named_in_full_precision(advised) is None


def test_half_precision_is_low_enough():
    rows = (row("aten::mm", 0.04, 0.03, category="matmul", precision="bf16", matrix_flops=10**12, bound="compute"),)
    assert matrix.lower_precision(case(*rows)) is None
    assert analysis(*rows).ceilings == CEILINGS


@pytest.mark.parametrize(
    ("name", "category", "library"),
    [
        ("_C::rms_norm", "normalization", "vLLM"),
        ("aiter::gemm_a16w16", "matmul", "aiter"),
        ("torch::autograd::CppNode<SplitLookupFunction_sgd_Op>", "embedding", "FBGEMM"),
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
        row("aiter::rmsnorm", 0.002, 0.001, category="normalization"),
        row("aten::layer_norm", 0.02, 0.01, category="normalization"),
    )
    assert "newer release" not in str(categories.slow("normalization")(case(*rows)).suggestion)
