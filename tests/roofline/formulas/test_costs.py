"""FLOPs of everything that is not a matrix product: the cost table applied, element by element."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import Work, costs, count
from tests.roofline.formulas.helpers import tensor, work

IMAGES = tensor(2, 8, 6, 6)
ELEMENTS = 2 * 8 * 6 * 6
CHANNEL = tensor(8)


@pytest.mark.parametrize(
    ("name", "args", "cost"),
    [
        ("aten::add", (IMAGES, IMAGES, 1), 1),
        ("aten::add", (IMAGES, IMAGES, 0.1), 2),  # alpha multiplies
        ("aten::relu_", (IMAGES,), 1),
        ("aten::div", (IMAGES, IMAGES), 1),
        ("aten::sqrt", (IMAGES,), 1),
        ("aten::pow", (IMAGES, 2), 1),
        ("aten::pow", (IMAGES, 0.3), 21),
        ("aten::exp", (IMAGES,), 10),
        ("aten::sigmoid", (IMAGES,), 13),
        ("aten::silu", (IMAGES,), 14),
        ("aten::gelu", (IMAGES, None), 24),
        ("aten::hardswish", (IMAGES,), 5),
        ("aten::clamp", (IMAGES, 0, 6), 2),
        ("aten::addcdiv_", (IMAGES, IMAGES, IMAGES, -0.1), 3),
        ("aten::_softmax", (IMAGES, 1, False), 14),
        ("aten::sum", (IMAGES, None), 1),
        ("aten::var", (IMAGES, (1,), 1, False), 4),
        ("aten::batch_norm", (IMAGES, CHANNEL, CHANNEL, CHANNEL, CHANNEL, True, 0.1, 1e-5, True), 6),
        ("aten::batch_norm", (IMAGES, CHANNEL, CHANNEL, CHANNEL, CHANNEL, False, 0.1, 1e-5, True), 2),
        ("aten::layer_norm", (IMAGES, (6,), tensor(6), tensor(6), 1e-5, True), 8),
        ("aten::layer_norm", (IMAGES, (6,), None, None, 1e-5, True), 6),
        ("aten::rms_norm", (IMAGES, (6,), tensor(6), None), 4),
        ("aten::adaptive_avg_pool2d", (IMAGES, (1, 1)), 1),
        ("aten::dropout", (IMAGES, 0.5, True), 2),
    ],
)
def test_cost_an_element(name, args, cost):
    found = work(name, *args)
    assert (found.matrix_flops, found.other_flops) == (0, cost * ELEMENTS)
    assert found.precision == "fp32"


def test_dropout_in_inference_is_nothing():
    assert work("aten::dropout", IMAGES, 0.5, False) == Work()


def test_a_pooling_window_of_k_costs_k():
    # 3x3 windows at stride 2 over 6x6 padded by 1: 3x3 of them
    assert work("aten::max_pool2d", IMAGES, (3, 3), (2, 2), (1, 1), (1, 1), False).other_flops == 2 * 8 * 9 * 9
    # with ceil, 3x3 windows at stride 2 over 6x6 are 3x3 instead of 2x2
    assert work("aten::avg_pool2d", IMAGES, (3, 3), (2, 2), (0, 0), True, True, None).other_flops == 2 * 8 * 9 * 9


def test_adaptive_windows_overlap_where_the_sizes_do_not_divide():
    # 6 -> 4: windows [0, 2), [1, 3), [3, 5), [4, 6) hold 8 elements
    assert work("aten::adaptive_avg_pool2d", IMAGES, (4, 4)).other_flops == 2 * 8 * 8 * 8
    # 2 -> 5: windows [0, 1), [0, 1), [0, 2), [1, 2), [1, 2) hold 6
    assert work("aten::adaptive_avg_pool2d", tensor(1, 1, 2, 2), (5, 5)).other_flops == 36


def test_integers_are_operations_without_a_precision():
    counter = tensor(10, dtype="int64")
    assert work("aten::add_", counter, 1, 1) == Work(other_flops=10, bytes_read=80, bytes_written=80)


def test_half_precision_bytes_and_precision():
    half = tensor(4, 8, dtype="float16")
    assert work("aten::mul", half, half) == Work(other_flops=32, bytes_read=128, bytes_written=64, precision="fp16")


PARAMETERS = (tensor(100, 10), tensor(24))  # 1024 elements
ADAM = (PARAMETERS, PARAMETERS, PARAMETERS, PARAMETERS, (), (tensor(), tensor()), 1e-3, 0.9, 0.999)


def test_fused_adam_moves_seven_tensors():
    found = work("aten::_fused_adam_", *ADAM, 0.0, 1e-8, False, False, None, None)
    assert found.other_flops == 13 * 1024
    assert found.bytes_read == 4 * 4 * 1024 + 2 * 4  # parameters, gradients, two moments; a step counter for each of the two tensors
    assert found.bytes_written == 3 * 4 * 1024  # parameters, two moments


def test_fused_adamw_with_decay_costs_two_more():
    decayed = work("aten::_fused_adamw_", *ADAM, 0.01, 1e-8, False, False, None, None)
    assert decayed.other_flops == (costs.ADAM + costs.WEIGHT_DECAY) * 1024


def test_fused_adam_with_a_gradient_scale_writes_the_unscaled_gradients():
    scaled = work("aten::_fused_adam_", *ADAM, 0.0, 1e-8, False, False, tensor(), tensor())
    assert scaled.bytes_written == 4 * 4 * 1024


@pytest.mark.parametrize(("momentum", "first", "flops", "read", "written"), [((), True, 4, 2, 1), (PARAMETERS, False, 7, 3, 2),
                                                                              (PARAMETERS, True, 7, 2, 2)])  # fmt: skip
def test_fused_sgd(momentum, first, flops, read, written):
    found = work("aten::_fused_sgd_", PARAMETERS, PARAMETERS, momentum, 1e-4, 0.9, 0.1, 0.0, False, False, first, None, None)
    assert found.other_flops == flops * 1024
    assert (found.bytes_read, found.bytes_written) == (read * 4096, written * 4096)


def test_a_fused_step_over_a_list_that_the_trace_left_out_updates_every_parameter():
    left_out = ((), (), (), (), (), (), *ADAM[6:], 0.0, 1e-8, False, False, None, None)
    assert count(Signature("aten::_fused_adam_", left_out)).reason == "shapes of 'self' not recorded"
    known = count(Signature("aten::_fused_adam_", left_out), parameter_elements=1024)
    assert known.work + Work(bytes_read=2 * 4) == work("aten::_fused_adam_", *ADAM, 0.0, 1e-8, False, False, None, None)


def test_foreach_adds_lists():
    found = work("aten::_foreach_addcdiv_", PARAMETERS, PARAMETERS, PARAMETERS, (-0.1, -0.1))
    assert found == Work(other_flops=3 * 1024, bytes_read=3 * 4096, bytes_written=4096, precision="fp32")
    assert work("aten::_foreach_add_", PARAMETERS, PARAMETERS, 0.1).other_flops == 2 * 1024
    assert work("aten::_foreach_norm", PARAMETERS, 2, None).bytes_written == 8


def test_overlapping_windows_are_stored_once():
    # x.unfold(0, 3, 1) of 10 elements: 8 windows of 3 show 24 elements of 10
    windows = TensorArg((8, 3), "float32", (1, 1))
    assert work("aten::clone", windows, None) == Work(bytes_read=4 * 10, bytes_written=4 * 24)
