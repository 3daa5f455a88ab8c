"""What a step does to its gradients: zeros, underflow in fp16, silent layers, the change of the loss; and nothing is left changed."""

import pytest
import torch
from torch import nn

from rooflines.profiler.dispatch.gradients import gradients_of
from tests.profiler.dispatch.test_nonfinite import training


def test_norm_and_change_of_the_loss_of_a_step():
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    found = gradients_of(training(model, torch.tensor([[1.0, 0.0]])), model)  # (w x)^2: gradient 2 x w, learning rate 0.1
    assert (found.elements, found.trainable, found.zero_share) == (2, 2, 0.5)
    assert found.norm == 2.0
    assert found.loss_change == pytest.approx(-0.1 * 2.0**2)
    assert (found.underflow_share, found.silent) == (None, ())


def test_parameters_and_the_state_of_the_optimizer_are_as_before():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    step = training(model, torch.rand(5, 3), optimizer=optimizer)
    step()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients_of(step, model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(float(state["step"]) == 1 for state in optimizer.state.values())


def test_gradients_of_frozen_unreached_and_zeroed_parts():
    # Gradients that are zeroed after the step are seen.
    model = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = training(model, torch.rand(5, 3), optimizer=optimizer)

    def zeroing():
        step()
        optimizer.zero_grad()

    assert gradients_of(zeroing, model).norm == gradients_of(step, model).norm > 0
    # A part that is frozen and one that the loss does not reach.
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    model.unused = nn.Linear(5, 2, bias=False)
    step = training(lambda x: model[1](model[0](x)), torch.rand(5, 3), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    found = gradients_of(step, model)
    assert (found.elements, found.trainable) == (16 + 10 + 10, 20)
    assert found.zero_share == 0.5


def small_loss(scale):
    return lambda out: (out * 1e-3).pow(2).mean() * scale


def test_gradients_underflow_in_fp16_and_not_with_a_larger_loss():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.rand(64, 8)

    def gradients(scale, dtype):
        def half():
            with torch.autocast("cpu", dtype=dtype):
                out = model(x)
            return small_loss(scale)(out.float()).backward()

        model.zero_grad()
        return gradients_of(half, model)

    lost = gradients(1.0, torch.float16)
    assert lost.underflow_share == 1.0
    assert (lost.underflow_operator, lost.underflow_module) == ("aten::_to_copy", "")
    assert lost.zero_share == 1.0
    kept = gradients(1e5, torch.float16)
    assert kept.underflow_share < 0.01
    assert kept.zero_share < 0.5
    assert gradients(1.0, torch.bfloat16).underflow_share is None


def test_a_layer_that_outputs_zeros():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU6())
    nn.init.constant_(model[0].bias, -100.0)
    found = gradients_of(training(model, torch.rand(5, 3)), model)
    assert found.silent == ("1",)
    nn.init.constant_(model[2].bias, -100.0)
    found = gradients_of(training(model, torch.rand(5, 3)), model)
    assert found.silent == ("1", "3")
    assert (found.zero_share, found.norm, found.loss_change) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("fused", [False, True])
def test_the_scale_of_a_scaler_is_not_in_the_gradients(fused):
    """A fused optimizer divides by the scale itself, after the gradients were read."""
    model, x = nn.Linear(3, 4), torch.rand(5, 3)

    def gradients(scaler):
        return gradients_of(
            training(model, x, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, fused=fused), scaler=scaler), model
        )

    plain, scaled = gradients(None), gradients(torch.amp.GradScaler("cpu", init_scale=2.0**10))
    assert scaled.norm == pytest.approx(plain.norm)
    assert scaled.loss_change == pytest.approx(plain.loss_change) == pytest.approx(-0.1 * plain.norm**2)
