"""Triton kernels of torch.compile from their names and arguments, as traces of inference on MI300X record them."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.generated_kernels import parse_name

BF16, FP32 = "bfloat16", "float32"
GELU, SILU, ADD = 24, 14, 1  # FLOPs an element, as in costs.py: erf 20 + 4, sigmoid 13 + 1


def call(name, *args):
    return count(Signature(name, args))


def t(*shape, dtype=BF16, strides=None):
    return TensorArg(shape, dtype, strides)


def numbers(found):
    work = found.work
    return work.other_flops, work.bytes_read, work.bytes_written


@pytest.mark.parametrize(
    ("name", "kind", "operators"),
    [
        ("triton_poi_fused_addmm_gelu_view_15", "poi", ("addmm", "gelu", "view")),
        ("triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1", "red", ("_unsafe_view", "add", "mean", "mul", "pow", "rsqrt")),
        ("triton_per_fused__softmax__to_copy_masked_fill_0", "per", ("_softmax", "_to_copy", "masked_fill")),
        ("triton_poi_fused_native_layer_norm_native_layer_norm_backward_3", "poi", ("native_layer_norm", "native_layer_norm_backward")),
        ("triton_poi_fused_constant_pad_nd_moe_forward_0", "poi", ("constant_pad_nd",)),  # an operator of another library
        ("triton_poi_fused_add_fmha_v3_fwd_mul_neg_13", "poi", ("add", "mul", "neg")),
        ("triton_poi_fused_0", "poi", ()),
        ("graph_0_cpp_fused_add_relu_2", "cpp", ("add", "relu")),
    ],
)
def test_names_are_divided_into_operators_though_these_contain_the_separator(name, kind, operators):
    found = parse_name(name)
    assert (found.kind, found.operators) == (kind, operators)


def test_other_names_are_no_generated_kernels():
    assert parse_name("aten::add") is None
    assert parse_name("triton_attention") is None


def test_without_a_buffer_for_the_result_the_first_argument_is_updated_in_place():
    found = call("triton_poi_fused_addmm_gelu_view_15", t(2, 37, 96), t(96), 7104)
    assert numbers(found) == ((ADD + GELU) * 7104, 7104 * 2 + 96 * 2, 7104 * 2)
    assert found.category == "element-wise"


def test_an_input_that_is_no_result_leaves_one_buffer_to_write():
    found = call("triton_poi_fused_cat_transpose_view_10", t(74, 24), t(6, 24), t(2, 3, 40, 8), 1920)
    assert numbers(found) == (0, (74 * 24 + 6 * 24) * 2, 1920 * 2)
    assert found.category == "copy"
    assert found.work.assumption == ""  # nothing was assumed


def test_each_argument_is_moved_once_where_it_is_not_known_which_is_updated():
    found = call("triton_poi_fused_add_cos_sin_0", *[t(10, 10, dtype=FP32)] * 3, 100)
    assert numbers(found) == ((1 + 10 + 10) * 100, 800, 400)
    assert "no argument is updated in place" in found.work.assumption


def test_the_result_of_a_product_is_read_where_the_kernel_works_on_its_view():
    found = call("triton_poi_fused__unsafe_view_mul_silu_2", t(2, 60, 384), t(120, 384), 46080)
    assert numbers(found) == ((1 + SILU) * 46080, 2 * 46080 * 2, 46080 * 2)
    assert "the first argument is updated in place" in found.work.assumption


def test_a_larger_argument_is_read_once_per_result_and_all_of_it_by_a_gate_or_a_pool():
    part = call("triton_poi_fused_add_slice_0", t(60, 288), t(60, 96), 5760)
    gate = call("triton_poi_fused_mul_silu_slice_0", t(60, 768), t(60, 384), 23040)
    pool = call("triton_poi_fused_max_pool2d_with_indices_0", t(2, 8, 16, 16, dtype=FP32), t(2, 8, 8, 8, dtype=FP32), 1024)
    assert part.work.bytes_read == 5760 * 2
    assert "one element of each larger argument" in part.work.assumption
    assert gate.work.bytes_read == 60 * 768 * 2
    assert pool.work.bytes_read == 4096 * 4


def test_expanded_dimensions_are_read_once():
    found = call("triton_poi_fused_mul_0", t(2, dtype=FP32, strides=(0,)), t(2, 256, dtype=FP32), 512)
    assert numbers(found) == (512, 4, 2048)


def test_a_reduction_writes_a_number_for_each_of_its_rows():
    found = call("triton_red_fused_mul_sum_0", t(512, 4096, dtype=FP32), t(256, dtype=FP32), 256, 8192)
    assert numbers(found) == (2 * 512 * 4096, 512 * 4096 * 4, 256 * 4)
    assert found.category == "reduction"


def test_a_norm_in_a_reduction_makes_the_statistics_that_a_pointwise_kernel_uses():
    rows = call("triton_red_fused_native_layer_norm_4", t(6, 37), t(37), t(37), t(6, 37), 6, 37)
    points = call("triton_poi_fused_native_layer_norm_7", t(6, 37), t(6, 1, dtype=FP32), t(6, 1, dtype=FP32), t(6, 37), 6, 37)
    assert rows.work.other_flops == 6 * 37 * (4 + 2)
    assert points.work.other_flops == 6 * 37 * 2
    assert rows.category == points.category == "normalization"


def test_sizes_of_dynamic_shapes_are_not_iterations():
    found = call("triton_poi_fused_relu_0", t(7, 5, dtype=FP32), t(7, 5, dtype=FP32), 7, 35)
    assert numbers(found) == (35, 140, 140)


def test_a_kernel_that_only_fills_reads_nothing():
    assert numbers(call("triton_poi_fused_zeros_0", t(30, dtype=FP32), 30)) == (0, 0, 120)


def test_what_scatters_reads_and_writes_as_many_elements_as_it_has_points():
    found = call("triton_poi_fused_index_add_1", t(60, dtype="int64"), t(60, 96, dtype=FP32), t(1000, 96, dtype=FP32), 5760)
    assert numbers(found) == (5760, 60 * 8 + 2 * 5760 * 4, 5760 * 4)


def test_a_template_is_a_matrix_product_with_what_is_fused_behind_it():
    found = call("triton_tem_fused_addmm_relu_0", t(33, 20), t(20, 12), t(12), t(33, 12))
    assert found.work.matrix_flops == 2 * 33 * 20 * 12
    assert numbers(found) == (2 * 33 * 12, (33 * 20 + 20 * 12 + 12) * 2, 33 * 12 * 2)
    assert (found.category, found.work.precision) == ("matmul", "bf16")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ((), "without recorded arguments"),
        ((t(32, dtype="int32"), t(1000, 64), t(32, 64)), "their sizes are not recorded"),
        ((t(9), t(9), 700), "not determined"),
    ],
)
def test_what_is_not_determined_is_not_counted(args, reason):
    found = call("triton_poi_fused_add_0", *args)
    assert found.kind == "unknown"
    assert reason in found.reason


def test_long_names_and_huge_sizes_are_read():
    assert parse_name("triton_poi_fused_" + "add_" * 1000).operators == ("add",) * 1000
    assert parse_name("triton_poi_fused_" + "_" * 4000).operators == ()
    assert call("triton_red_fused_sum_0", t(4), t(1 << 62), 1 << 62, 1 << 50).reason == "arguments not understood (invalid size)"


def test_a_template_of_something_else_is_not_counted():
    assert "template" in call("triton_tem_fused_convolution_0", t(4, 4), t(4, 4), t(4, 4)).reason


def test_a_reduction_that_fits_into_registers_reads_what_it_updates_and_one_in_loops_may_not():
    shapes = (t(2, 60, 96), t(2, 60, 96), t(120, 96), t(96))
    held = call("triton_per_fused__unsafe_view_add_mean_mul_pow_rsqrt_0", *shapes, 120, 96)
    loops = call("triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_0", *shapes, 120, 96)
    assert numbers(held)[1:] == (3 * 11520 * 2 + 96 * 2, 11520 * 2)
    assert numbers(loops)[1:] == (2 * 11520 * 2 + 96 * 2, 11520 * 2)
    assert "not read before" in loops.work.assumption
