"""Optimizers: calls over lists are the calls they stand for, and every optimizer of torch is counted in each of its forms."""

from __future__ import annotations

import inspect

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import Work, costs, count
from tests.roofline.formulas.by_hand import reason, tensor, work

shapes = st.lists(st.lists(st.integers(1, 4), max_size=3).map(lambda shape: tensor(*shape)), min_size=1, max_size=4).map(tuple)
LIST = (tensor(3, 4), tensor(5))  # 17 elements


@given(shapes, st.sampled_from((1, 0.5)))
def test_a_call_over_lists_is_the_sum_of_its_calls(tensors, alpha):
    together = work("_foreach_add_", tensors, tensors, alpha)
    assert together == sum((work("add_", each, each, alpha) for each in tensors), Work())
    numbers = tuple(float(index + 2) for index in range(len(tensors)))
    scaled = work("_foreach_mul", tensors, numbers)
    assert scaled == sum((work("mul", each, number) for each, number in zip(tensors, numbers, strict=True)), Work())
    steps = work("_foreach_addcdiv_", tensors, tensors, tensors, numbers)
    assert steps == sum((work("addcdiv_", each, each, each, 1.0) for each in tensors), Work())


def test_a_tensor_beside_a_list_is_read_once():
    assert work("_foreach_mul_", LIST, tensor()) == Work(0, 17, 4 * 17 + 4, 4 * 17, "fp32")
    assert work("_foreach_pow", 2.0, LIST) == Work(0, 21 * 17, 4 * 17, 4 * 17, "fp32")


def test_a_number_for_each_tensor_of_a_list():
    assert work("_foreach_norm", LIST, 2, None) == Work(0, 34, 68, 8, "fp32")
    assert work("_foreach_norm", LIST, 3, 7) == Work(0, 23 * 17, 68, 16, "fp32")
    assert work("_foreach_powsum", LIST, 2, None) == Work(0, 34, 68, 8, "fp32")
    assert work("_foreach_max", LIST) == Work(0, 17, 68, 8, "fp32")


def test_unscaling_reads_a_scale_and_notes_infinities():
    found = work("_amp_foreach_non_finite_check_and_unscale_", LIST, tensor(), tensor())
    assert found == Work(0, 34, 68 + 4, 68 + 4, "fp32")
    update = work("_amp_update_scale_", tensor(), tensor(dtype="int32"), tensor(), 2.0, 0.5, 2000)
    assert (update.bytes_read, update.bytes_written) == (12, 8)


def test_a_functional_step_returns_the_gradients_too():
    rest = (1e-3, 0.9, 0.999, 0.0, 1e-8, False, False, None, None)
    lists = (LIST, LIST, LIST, LIST, (), (tensor(), tensor()))
    in_place, out_of_place = work("_fused_adam_", *lists, *rest), work("_fused_adam", *lists, *rest)
    assert out_of_place.bytes_written == in_place.bytes_written + 68
    by_tensor = work("_fused_adam_", *lists, tensor(), *rest[1:])  # a learning rate in a tensor
    assert by_tensor.bytes_read == in_place.bytes_read + 4


def test_an_empty_list_is_one_that_the_trace_left_out():
    assert reason("_foreach_add_", (), (), 1) == "shapes of 'self' not recorded"


PARAMETERS = (tensor(100, 10), tensor(24))  # 1024 elements
ADAM = (PARAMETERS, PARAMETERS, PARAMETERS, PARAMETERS, (), (tensor(), tensor()), 1e-3, 0.9, 0.999)


def test_fused_adam_moves_seven_tensors():
    found = work("_fused_adam_", *ADAM, 0.0, 1e-8, False, False, None, None)
    assert found.other_flops == 13 * 1024
    assert found.bytes_read == 4 * 4 * 1024 + 2 * 4  # parameters, gradients, two moments; a step counter for each of the two tensors
    assert found.bytes_written == 3 * 4 * 1024  # parameters, two moments


def test_fused_adamw_with_decay_costs_two_more():
    decayed = work("_fused_adamw_", *ADAM, 0.01, 1e-8, False, False, None, None)
    assert decayed.other_flops == (costs.ADAM + costs.WEIGHT_DECAY) * 1024


def test_fused_adam_with_a_gradient_scale_writes_the_unscaled_gradients():
    scaled = work("_fused_adam_", *ADAM, 0.0, 1e-8, False, False, tensor(), tensor())
    assert scaled.bytes_written == 4 * 4 * 1024


@pytest.mark.parametrize(("momentum", "first", "flops", "read", "written"), [((), True, 4, 2, 1), (PARAMETERS, False, 7, 3, 2),
                                                                              (PARAMETERS, True, 7, 2, 2)])  # fmt: skip
def test_fused_sgd(momentum, first, flops, read, written):
    found = work("_fused_sgd_", PARAMETERS, PARAMETERS, momentum, 1e-4, 0.9, 0.1, 0.0, False, False, first, None, None)
    assert (found.other_flops, found.bytes_read, found.bytes_written) == (flops * 1024, read * 4096, written * 4096)


def test_a_fused_step_over_a_list_that_the_trace_left_out_updates_every_parameter():
    left_out = ((), (), (), (), (), (), *ADAM[6:], 0.0, 1e-8, False, False, None, None)
    assert reason("_fused_adam_", *left_out) == "shapes of 'self' not recorded"
    known = count(Signature("aten::_fused_adam_", left_out), parameter_elements=1024)
    assert known.work + Work(bytes_read=2 * 4) == work("_fused_adam_", *ADAM, 0.0, 1e-8, False, False, None, None)


# Every optimizer of torch, found in its module, so that a new one is tried too.
OPTIMIZERS = {
    name: found
    for name, found in vars(torch.optim).items()
    if inspect.isclass(found) and issubclass(found, torch.optim.Optimizer) and found is not torch.optim.Optimizer
}
FORMS = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
VARIANTS = (
    {}, {"weight_decay": 0.1}, {"amsgrad": True}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"centered": True},
    {"maximize": True}, {"rho": 0.8}, {"line_search_fn": "strong_wolfe"},
)  # fmt: skip


def forms():
    for name, optimizer in OPTIMIZERS.items():
        known = inspect.signature(optimizer.__init__).parameters
        listed = [form for form, options in FORMS.items() if set(options) <= set(known)] or ["only"]
        yield from ((name, form) for form in listed)


def unknown(step):
    """What two steps call that has no count, by name."""
    calls = record(step, None).calls
    return {call.signature.name for call in calls if count(call.signature, outputs=call.outputs).kind != "counted"}


@pytest.mark.ci
@pytest.mark.parametrize(("name", "form"), list(forms()))
def test_every_operator_of_every_optimizer_is_counted(name, form):
    known = inspect.signature(OPTIMIZERS[name].__init__).parameters
    tried = 0
    for variant in VARIANTS:
        if not set(variant) <= set(known):
            continue
        table = torch.nn.Embedding(10, 3, sparse=name == "SparseAdam")
        parameters = list(table.parameters())
        optimizer = OPTIMIZERS[name](parameters, **FORMS.get(form, {}), **variant, **({"lr": 0.1} if "lr" in known else {}))

        def step(table=table, optimizer=optimizer):
            def loss():
                optimizer.zero_grad()
                value = table(torch.tensor([1, 2, 1])).square().sum()
                value.backward()
                return value

            optimizer.step(loss)
            optimizer.step(loss)

        # of sparse gradients how many rows there are is data
        assert unknown(step) <= ({"aten::_coalesce", "aten::sparse_mask"} if name == "SparseAdam" else set()), variant
        tried += 1
    assert tried
