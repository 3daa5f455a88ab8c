"""FLOPs of everything that is not a matrix product: the cost table applied, element by element."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
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
    assert (found.matrix_flops, found.other_flops, found.precision) == (0, cost * ELEMENTS, "fp32")


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
    assert (found.other_flops, found.bytes_read, found.bytes_written) == (flops * 1024, read * 4096, written * 4096)


def test_a_fused_step_over_a_list_that_the_trace_left_out_updates_every_parameter():
    left_out = ((), (), (), (), (), (), *ADAM[6:], 0.0, 1e-8, False, False, None, None)
    assert count(Signature("aten::_fused_adam_", left_out)).reason == "shapes of 'self' not recorded"
    known = count(Signature("aten::_fused_adam_", left_out), parameter_elements=1024)
    assert known.work + Work(bytes_read=2 * 4) == work("aten::_fused_adam_", *ADAM, 0.0, 1e-8, False, False, None, None)
