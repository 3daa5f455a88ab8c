"""Matrix products on fallback kernels, and attention written as products and a softmax."""

import pytest
from msgspec.structs import replace

from rooflines.device_specs import catalog
from rooflines.device_specs.records import Ceiling
from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.advise import matrix
from rooflines.roofline.advise.findings import find
from rooflines.roofline.advise.matrix import is_fallback
from rooflines.roofline.advise.verdict import verdict
from tests.roofline.advise.cases import CEILINGS, SHEET, analysis, case, kernel, row, unmodeled

ALIGN1 = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x1_tn_align1>"
ALIGN2 = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>"


def product(name, shapes="512x3137, 3137x64", time_s=0.04, bound_s=0.001, precision="fp16", **more):
    return row(
        "aten::mm", time_s, bound_s, shapes=shapes, category="matmul", precision=precision, kernels=(kernel(name, time_s),), **more
    )


def test_an_odd_size_is_named_and_padded():
    found = matrix.fallback(case(product(ALIGN1)))
    assert found.saves_s == pytest.approx(0.04 - 0.001 * 3144 / 3137)
    assert "pad 3137 to a multiple of 8" in found.suggestion
    assert "40 % of the step" in found.evidence


def test_the_size_is_the_one_that_fits_the_kernel():
    found = matrix.fallback(case(product(ALIGN2, "30522, 141x512, 512x30522", precision="bf16")))
    assert "pad 30522 to a multiple of 8" in found.suggestion
    assert "141" not in found.suggestion


@pytest.mark.parametrize(
    ("name", "precision", "device", "slow"),
    [
        ("volta_sgemm_128x64_nn", "fp16", "NVIDIA A100", True),
        ("volta_sgemm_128x64_nn", "fp32", "NVIDIA A100", False),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align4", "bf16", "NVIDIA A100", True),
        ("cutlass_75_tensorop_s1688gemm_f16_256x128_32x2_nn_align8", "fp16", "NVIDIA H100 80GB HBM3", True),
        ("cutlass_75_tensorop_s1688gemm_f16_256x128_32x2_nn_align8", "fp16", "NVIDIA A100", False),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "tf32", "NVIDIA H100 80GB HBM3", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_cublas", "bf16", "NVIDIA H100 80GB HBM3", False),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_tn", "fp16", "NVIDIA A100", False),
    ],
)
def test_which_kernels_are_fallbacks(name, precision, device, slow):
    made = analysis(product(name, precision=precision))
    made = replace(made, environment=Environment(rooflines="0", device="cuda:0", device_name=device))
    assert (matrix.fallback(matrix.Case(made)) is not None) == slow


def test_sizes_that_are_aligned_are_not_padded():
    assert matrix.fallback(case(product("volta_sgemm_128x64_nn", "512x1024, 1024x64"))) is None
    assert matrix.fallback(case(product(ALIGN1, "512x1024, 1024x64"))) is None


def test_without_shapes_a_saving_is_not_stated_and_only_much_time_is_worth_it():
    found = matrix.fallback(case(unmodeled("aten::bmm", 0.04, kernels=(kernel(ALIGN1, 0.04),))))
    assert found.saves_s is None
    assert "shapes are not recorded" in found.evidence
    assert matrix.fallback(case(unmodeled("aten::bmm", 0.004, kernels=(kernel(ALIGN1, 0.004),)))) is None


def test_fallback_kernels_inside_a_compiled_function():
    compiled = unmodeled("CompiledFunction", 0.03, kernels=(kernel(ALIGN1, 0.02), kernel("triton_poi_fused_add_0", 0.01)))
    found = matrix.fallback(case(compiled))
    assert (found.saves_s, found.of) == (None, {0: 0.02})
    assert "inside compiled functions" in found.evidence
    small = unmodeled("CompiledFunction", 0.03, kernels=(kernel(ALIGN1, 0.001), kernel("triton_poi_fused_add_0", 0.029)))
    assert matrix.fallback(case(small)) is None


SCORES = "8x12x513x513"


def written(module="layer.0.attention", phase="forward", softmax="layer.0.attention.softmax"):
    """Products, softmax and a scaling over 8 x 12 x 513 x 513 scores."""
    common = {"phase": phase, "precision": "bf16"}
    return [
        row("aten::bmm", 0.004, shapes="96x513x64, 96x64x513", category="matmul", module=module, **common),
        row("aten::div", 0.003, shapes=f"{SCORES}, scalar", category="element-wise", module=module, **common),
        row("aten::softmax", 0.005, shapes=SCORES, category="reduction", module=softmax, **common),
        row("aten::bmm", 0.004, shapes="96x513x513, 96x513x64", category="matmul", module=module, **common),
    ]


def test_products_and_softmax_in_one_module_are_one_fused_attention():
    other = row("aten::bmm", 0.02, shapes="96x513x64, 96x64x513", category="matmul", module="layer.1.attention")
    found = matrix.hand_written(case(*written(), other))
    assert "scaled_dot_product_attention" in found.suggestion
    # 4 x 96 x 513 x 513 x 64 FLOPs at 900 TFLOP/s are less than the traffic of q, k, v and the result at 3 TB/s.
    flops_s, bytes_s = 4 * 96 * 513 * 513 * 64 / 900e12, 4 * 96 * 513 * 64 * 2 / 3e12
    assert found.saves_s == pytest.approx(0.016 - max(flops_s, bytes_s))
    assert sum(found.of.values()) == pytest.approx(0.016)
    assert "layer.0.attention" in found.evidence


def test_fused_attention_is_measured_against_the_rate_of_other_products():
    slow = row("aten::mm", 0.01, 0.005, category="matmul", precision="bf16", shapes="64x64, 64x64")
    best = replace(slow, bound="compute", efficiency=0.5)
    long = [replace(one, shapes=one.shapes.replace("513", "1026")) for one in written()]
    at_roof, attained = (matrix.hand_written(case(*long, *more)) for more in ((), (best,)))
    flops_s = 4 * 96 * 1026 * 1026 * 64 / 900e12
    assert at_roof.saves_s == pytest.approx(0.016 - flops_s)
    assert attained.saves_s == pytest.approx(0.016 - flops_s / 0.5)


def test_products_on_a_fallback_kernel_are_named():
    rows = written()
    bmm = row("aten::bmm", 0.004, shapes="96x513x64, 96x64x513", category="matmul", module="layer.0.attention", precision="bf16",
              kernels=(kernel("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align1"),))  # fmt: skip
    assert "because 513 is not a multiple of 8" in matrix.hand_written(case(bmm, *rows[1:])).evidence


def test_without_ceilings_only_the_passes_over_the_scores_are_saved():
    found = matrix.hand_written(case(*written(), ceilings=()))
    assert found.saves_s == pytest.approx(0.008)


def test_the_backward_pass_counts_as_well():
    common = {"phase": "backward", "category": "matmul", "module": "a", "precision": "bf16"}
    backward = [
        row("aten::bmm", 0.004, shapes="96x513x513, 96x513x64", **common),
        row("aten::bmm", 0.004, shapes="96x513x64, 96x64x513", **common),
        row("aten::_softmax_backward_data", 0.004, shapes=f"{SCORES}, {SCORES}", **{**common, "category": "reduction"}),
        row("aten::bmm", 0.004, shapes="96x64x513, 96x513x513", **common),
    ]
    assert matrix.hand_written(case(*backward)).saves_s > 0.015


@pytest.mark.parametrize(
    "rows",
    [
        written()[2:3],  # a softmax alone: a classifier
        written()[:3],  # no product reads the scores
        written(softmax="layer.1.attention.softmax"),  # products of another module
        [row("aten::bmm", 0.01, category="matmul"), row("aten::softmax", 0.01), row("aten::bmm", 0.01, category="matmul")],  # no shapes
        [
            row("aten::linear", 0.01, shapes="64x512, 512x512", category="matmul"),
            row("aten::softmax", 0.01, shapes="64x512", category="reduction"),
            row("aten::linear", 0.01, shapes="64x512, 512x10", category="matmul"),
        ],
    ],
)
def test_what_is_not_attention_is_left_alone(rows):
    assert matrix.hand_written(case(*rows)) is None


def test_a_product_whose_last_argument_is_no_matrix():
    biased = row("aten::baddbmm", 0.004, shapes="96x513x64, 96x64x513, 513", category="matmul", module="layer.0.attention")
    assert matrix.hand_written(case(biased, *written()[1:])) is not None


@pytest.mark.parametrize(("name", "half", "is_one"), [("cutlass_80_simt_sgemm_128x32_8x5_tn_align1", False, False),
                                                      ("cutlass_80_tensorop_s1688gemm_128x128_tn_align1", False, True),
                                                      ("cutlass_80_simt_hgemm_128x32_8x5_tn_align1", True, True)])  # fmt: skip
def test_kernels_without_tensor_cores_name_an_alignment_that_says_nothing(name, half, is_one):
    assert is_fallback(name, half=half, hopper=False) == is_one


def test_a_precision_that_the_processor_emulates_is_advised_against():
    """Down to the bound of the products in fp32, and without the casts; the casts of others stay."""
    slow = Ceiling(
        kind="compute", name="GEMM fp16", value=1e9, unit="FLOP/s", source=SHEET, precision="fp16", engine="matrix", variant="emulated"
    )
    rows = product("", time_s=0.04, matrix_flops=10**8, flops=10**8, nearest_roof="compute"), row("aten::_to_copy", 0.02)
    autocast = Workload(name="net", mode="inference", precision="amp-fp16", source="model")
    ceilings = (*CEILINGS[2:], slow)
    found = matrix.emulated(case(*rows, ceilings=ceilings, workload=autocast))
    assert matrix.emulated(case(*rows, ceilings=ceilings)).saves_s == pytest.approx(0.04 - 0.001), "whose casts, is not known"
    assert found.title == "Compute in fp32: NVIDIA H100 80GB HBM3 emulates fp16"
    assert found.saves_s == pytest.approx(0.04 - 0.001 + 0.02)
    assert found.suggestion.value == "fp32"
    assert "they reach 2.50 GFLOP/s, and in fp32 up to 60.0 TFLOP/s" in found.evidence
    assert matrix.emulated(case(*rows)) is None
    assert matrix.emulated(case(row("aten::_to_copy", 0.02), ceilings=ceilings)) is None, "no products in it"
    other = matrix.emulated(case(*rows, ceilings=(*CEILINGS, slow), workload=autocast))
    assert other.title.startswith("Compute in bf16"), "whose roof is higher, and whose casts stay"
    assert other.suggestion.value == "amp-bf16"
    assert other.saves_s == pytest.approx(0.04 - 0.001 * 60 / 900)
    pure = matrix.emulated(case(*rows, ceilings=(*CEILINGS, slow), workload=replace(autocast, precision="fp16")))
    assert pure.suggestion.value == "bf16", "its parameters are in half precision and stay so"
    by_memory = replace(rows[0], nearest_roof=None)
    assert matrix.emulated(case(by_memory, ceilings=ceilings)) is None, "wider numbers only move more bytes"


def test_one_product_in_fp32_does_not_hide_that_a_precision_is_emulated():
    slow = Ceiling(
        kind="compute", name="GEMM bf16", value=1e9, unit="FLOP/s", source=SHEET, precision="bf16", engine="matrix", variant="emulated"
    )
    half = product("", time_s=0.06, precision="bf16", matrix_flops=10**8, flops=10**8, nearest_roof="compute")
    full = product("", time_s=0.01, precision="fp32", matrix_flops=10**8, flops=10**8, nearest_roof="compute")
    autocast = Workload(name="net", mode="inference", precision="amp-bf16", source="model")
    made = analysis(half, full, ceilings=(*CEILINGS[2:], slow), workload=autocast)
    assert find(made)[0].title.startswith("Compute in fp32")


def test_bf16_on_a_gpu_before_ampere_and_fp16_on_consumer_pascal():
    """By their data sheets: torch computes bf16 in fp32 there, and a GTX 1080 has few units for fp16."""
    t4, gtx = catalog.look_up("Tesla T4"), catalog.look_up("NVIDIA GeForce GTX 1080")
    assert t4.compute("bf16", "matrix") == t4.compute("fp32", "matrix")
    assert gtx.compute("fp16", "matrix") == gtx.compute("fp16", "vector") == gtx.compute("fp32", "vector")
    assert t4.emulated("fp16") is None
    one = product("", time_s=0.04, bound_s=0.01, precision="bf16", matrix_flops=10**10, flops=10**10)
    found = matrix.emulated(case(replace(one, bound="compute"), ceilings=t4.ceilings))
    assert found.title.startswith("Compute in fp16")
    assert "GradScaler" in found.suggestion.in_code
    assert found.suggestion.value == "amp-fp16"
    assert t4.emulated("bf16").source.kind == "derived"
    assert found.saves_s == pytest.approx(0.04 - 0.01 * t4.compute("fp32", "matrix").value / t4.compute("fp16", "matrix").value)
    half = product("", time_s=0.04, precision="fp16", matrix_flops=10**9, flops=10**9, nearest_roof="compute")
    assert matrix.emulated(case(half, ceilings=gtx.ceilings)).title.startswith("Compute in fp32")
    in_fp32 = replace(half, matrix_flops=10**11)
    assert matrix.emulated(case(in_fp32, ceilings=gtx.ceilings)) is None, "2.5 TFLOP/s: cuBLAS computed in fp32"


def test_int8_that_is_far_slower_than_fp32_has_no_instructions():
    slow = Ceiling(kind="compute", name="GEMM int8", value=1e12, unit="OP/s", source=SHEET, precision="int8", engine="matrix")
    one = product("", precision="int8", matrix_flops=10**8, flops=10**8, nearest_roof="compute")
    found = matrix.emulated(case(one, ceilings=(*CEILINGS, slow)))
    assert (found.title, found.suggestion) == (
        "Compute in bf16: NVIDIA H100 80GB HBM3 emulates int8", "the network in bf16, without quantization",
    )  # fmt: skip
    assert "they reach 2.50 GOP/s, and in bf16 up to 900 TFLOP/s" in found.evidence
    assert matrix.emulated(case(one, ceilings=(*CEILINGS[2:], replace(slow, value=40e12)))) is None


def test_work_in_double_precision():
    """Compute-bound by the ratio of the roofs, memory-bound by half of the bytes, and nothing of what neither limits."""
    fp64 = replace(CEILINGS[2], name="FMA fp64", precision="fp64", value=60e12 / 64)
    products = product("", time_s=0.06, bound_s=0.04, precision="fp64", matrix_flops=10**9, bytes=3 * 10**6)
    relu = row("aten::relu", 0.02, 0.01, precision="fp64", category="element-wise")
    small = replace(relu, bound="latency"), replace(relu, name="aten::neg", bound="inefficient")
    found = matrix.double(case(replace(products, bound="compute"), relu, *small, ceilings=(*CEILINGS, fp64)))
    assert found.saves_s == pytest.approx(0.06 - 0.04 / 64 + 0.02 - 0.005)
    assert "operators in fp64 that a roof limits take 80.0 ms" in found.evidence
    assert "torch.float32" in found.suggestion
    assert matrix.double(case(*small, ceilings=(*CEILINGS, fp64))) is None
    assert matrix.double(case(product("", precision="fp32"), ceilings=(*CEILINGS, fp64))) is None
    assert matrix.double(case(products)) is None, "the fp64 roof is not known"


def test_tf32_is_named_where_it_is_off():
    fp32 = product("", time_s=0.06, bound_s=0.05, precision="fp32", matrix_flops=10**9, bytes=3 * 10**6)
    fp32 = replace(fp32, bound="compute")
    script = Workload(name="train.py", mode="training", precision="fp32", source="script")
    found = matrix.lower_precision(case(fp32, workload=script))
    assert (
        "TF32 is off: torch.set_float32_matmul_precision('high') keeps tensors in fp32 and has a roof of 450 TFLOP/s" in found.evidence
    )
    model = matrix.lower_precision(case(fp32, workload=replace(script, source="model")))
    assert "--precision tf32 keeps" in model.evidence
    on = matrix.lower_precision(case(replace(fp32, precision="tf32"), workload=script))
    assert "TF32 is off" not in on.evidence
    asked = replace(script, source="model", precision="tf32")
    assert "TF32" not in matrix.lower_precision(case(fp32, workload=asked)).evidence, "a kernel may compute in fp32 all the same"
    convolution = replace(fp32, category="convolution")
    assert "TF32" not in matrix.lower_precision(case(convolution, workload=script)).evidence, "which have another switch"
    without = (*(one for one in CEILINGS if one.precision != "tf32"),)
    assert "TF32" not in matrix.lower_precision(case(fp32, workload=script, ceilings=without)).evidence


def test_products_in_an_emulated_precision_are_not_called_badly_shaped():
    slow = Ceiling(
        kind="compute", name="GEMM fp16", value=1e9, unit="FLOP/s", source=SHEET, precision="fp16", engine="matrix", variant="emulated"
    )
    rows = product("", time_s=0.09, matrix_flops=10**8, bound="inefficient"), row("aten::relu", 0.01, bound="inefficient")
    classes = {"inefficient": 0.1}
    emulating = verdict(analysis(*rows, ceilings=(*CEILINGS, slow), bound_breakdown=classes))
    assert "mostly products in fp16, which the device emulates" in emulating
    assert "badly shaped" not in emulating
    assert "badly shaped" in verdict(analysis(*rows, bound_breakdown=classes))
