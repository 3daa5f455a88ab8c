"""Each cause of a failed training, shown by a small model that has it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from rooflines.roofline.failures import TrainingFacts, explain, explain_step
from tests.profiler.dispatch.test_nonfinite import training


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield


def trained(step, steps):
    """The losses of some steps."""
    return tuple(float(step()) for _ in range(steps))


def network(*last):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), *last)


LABELS = torch.arange(16) % 4


def classification(out):
    return functional.cross_entropy(out.float(), LABELS)


# --- not finite --------------------------------------------------------------------------------------------------------------------


def test_fp16_overflow_in_the_forward_pass():
    model = network().half()
    nn.init.constant_(model[2].weight, 40000.0)
    found = explain_step(training(model, torch.rand(16, 8).half(), classification), model, TrainingFacts())
    assert (found.cause, found.operator, found.module, found.step) == ("fp16 overflow", "aten::addmm", "2", 1)
    assert found.evidence.startswith("aten::addmm in 2 (Linear) gives inf for ")
    assert " in fp32, and fp16 ends at 65,504." in found.evidence
    assert found.suggestion.startswith("Use amp-bf16, or compute 2 in fp32: a gradient scaler scales gradients, not the forward pass.")


def test_fp16_overflow_in_the_backward_pass_without_a_scaler():
    model = network().half()
    nn.init.constant_(model[2].weight, 100.0)
    step = training(model, torch.rand(16, 8).half(), lambda out: (out - out.detach()).sum() * 2000)
    found = explain_step(step, model, TrainingFacts())
    assert (found.cause, found.operator, found.module) == ("fp16 overflow", "aten::mm", "2")
    assert found.evidence.startswith("aten::mm in the backward pass of 2 (Linear) gives inf for 100 % of its elements in fp16; ")
    assert "the same call gives 8e+05 in fp32" in found.evidence
    assert found.suggestion.startswith("Use amp-bf16, or amp-fp16 with a gradient scaler, which")


def test_overflow_in_the_forward_pass_of_autocast_is_not_for_a_scaler():
    model = network()
    nn.init.constant_(model[2].weight, 40000.0)
    step = training(model, torch.rand(16, 8), classification)

    def half():
        with torch.autocast("cpu", dtype=torch.float16):
            return step()

    found = explain_step(half, model, TrainingFacts(losses=(math.inf,), skipped_steps=0))
    assert (found.cause, found.module) == ("fp16 overflow", "2")
    assert "compute 2 in fp32" in found.suggestion


def test_a_number_too_large_for_fp32():
    model = network()
    found = explain_step(training(model, torch.rand(16, 8), lambda out: (out + 90).exp().sum()), model, TrainingFacts())
    assert (found.cause, found.operator) == ("fp32 overflow", "aten::exp")
    assert " in fp64, and fp32 ends at 3.4028e+38." in found.evidence
    assert "logsumexp" in found.suggestion


@pytest.fixture
def half_precision_kernel():
    """An operator like the convolution of a chip whose half-precision kernel gives NaN from finite inputs; correct otherwise."""
    with torch.library._scoped_library("chip", "DEF") as library:
        library.define("convolution(Tensor x, Tensor weight) -> Tensor")

        def convolution(x, weight):
            result = functional.conv2d(x, weight)
            if x.dtype == torch.float16:
                result[..., 0] = math.nan
            return result

        library.impl("convolution", convolution, "CPU")

        class Convolution(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return torch.ops.chip.convolution(x, weight)

            @staticmethod
            def backward(ctx, gradient):
                x, weight = ctx.saved_tensors
                _, grad, _ = torch.ops.aten.convolution_backward(
                    gradient, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]
                )
                return None, grad

        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.rand(4, 3, 3, 3))

            def forward(self, x):
                return Convolution.apply(x.half(), self.weight.half()).float().mean((2, 3))

        yield Module


def test_half_precision_convolutions_that_give_nan_and_a_scaler_that_skips_every_step(half_precision_kernel):
    model = nn.Sequential(half_precision_kernel())
    scaler = torch.amp.GradScaler("cpu")
    step = training(model, torch.rand(16, 3, 6, 6), classification, scaler=scaler)
    before = model[0].weight.detach().clone()
    losses = trained(step, 3)
    assert torch.equal(model[0].weight, before)
    assert scaler.get_scale() == 2.0**13
    facts = TrainingFacts(losses=losses, skipped_steps=3, classes=4)
    found = explain_step(step, model, facts)
    assert found.cause == "The gradient scaler skips every step"
    assert (found.operator, found.module, found.step) == ("chip::convolution", "0", 3)
    assert "gives NaN for 25 % of its elements in fp16 from finite inputs" in found.evidence
    assert "no parameter changed" in found.evidence
    assert "cuDNN" in found.suggestion
    without = explain_step(step, model, TrainingFacts(losses=(math.nan,)))
    assert (without.cause, without.operator) == ("Wrong result in fp16", "chip::convolution")


def test_gradients_that_overflow_at_any_scale():
    """The derivative alone is beyond fp16, whatever the scale; only the first steps could be those of a scale that is still falling."""
    model = nn.Linear(8, 4, bias=False)
    scaler = torch.amp.GradScaler("cpu", growth_interval=10_000)
    step = training(
        model,
        torch.rand(16, 8),
        lambda out: (out.half() * 0).float().sum() + (out - out.detach()).half().sum().float() * 1e12,
        scaler=scaler,
    )
    losses = trained(step, 20)
    facts = TrainingFacts(losses=losses, skipped_steps=20)
    found = explain_step(step, model, facts)
    assert (found.cause, found.operator) == ("The gradient scaler skips every step", "aten::_to_copy")
    assert "amp-bf16" in found.suggestion
    few = TrainingFacts(losses=losses[:3], skipped_steps=3)
    assert explain_step(step, model, few) is None


def test_a_scaler_that_skips_some_steps_is_no_failure():
    model = network()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30, growth_interval=10_000)
    step = training(model, torch.rand(16, 8), classification, torch.optim.SGD(model.parameters(), lr=1.0), scaler)

    def half():
        with torch.autocast("cpu", dtype=torch.float16):
            return step()

    losses = trained(half, 1)
    assert explain_step(half, model, TrainingFacts(losses=losses * 2, skipped_steps=1)) is None


def test_divergence():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    step = training(model, torch.rand(16, 8), optimizer=optimizer)
    losses, states = [], []
    while not losses or math.isfinite(losses[-1]):
        states.append({name: value.clone() for name, value in model.state_dict().items()})
        losses.append(float(step()))
    model.load_state_dict(states[-1])
    found = explain_step(step, model, TrainingFacts(losses=tuple(losses), learning_rate=5.0))
    assert (found.cause, found.step) == ("Divergence", len(losses))
    assert found.operator.startswith("aten::")
    assert f"over {len(losses) - 1} steps at a learning rate of 5; then aten::" in found.evidence
    assert "(for example to 0.5)" in found.suggestion
    assert explain(TrainingFacts(losses=(1.0, 2.0, 30.0))).cause == "Divergence", "still finite"
    assert explain(TrainingFacts(losses=(1.0, 0.2, 0.3))) is None


@pytest.mark.parametrize(
    ("loss", "operator"),
    [
        pytest.param(lambda out: (out * 0).abs().log().mean(), "aten::log", id="log"),
        pytest.param(lambda out: (out * 0 / (out.sum() * 0)).sum(), "aten::div", id="quotient"),
        pytest.param(lambda out: (out * 0).sqrt().sum(), "aten::div", id="slope of a root"),
        pytest.param(lambda out: out[:0].mean(), "aten::mean", id="mean of nothing"),
        pytest.param(lambda out: (out - math.inf).softmax(1).sum(), "aten::_softmax", id="masked row"),
        pytest.param(
            lambda out: functional.cross_entropy(out.masked_fill(functional.one_hot(LABELS, 4).bool(), -math.inf), LABELS),
            "aten::masked_fill",
            id="constant",
        ),
    ],
)
def test_results_that_no_precision_has(loss, operator):
    model = network()
    found = explain_step(training(model, torch.rand(16, 8), loss), model, TrainingFacts())
    assert (found.cause, found.operator) == ("Undefined result", operator)
    assert operator in found.evidence
    assert found.suggestion.endswith(".")


def test_a_batch_and_parameters_that_hold_nan():
    model = network()
    batch = torch.rand(16, 8)
    batch[3, 1] = math.nan
    found = explain_step(training(model, batch, classification), model, TrainingFacts())
    assert (found.cause, found.operator, found.module) == ("Non-finite input data", "aten::addmm", "0")
    assert "holds NaN before the step" in found.evidence
    found = explain_step(training(model, torch.rand(16, 8), classification), model, TrainingFacts(losses=(1.4, math.nan, math.nan)))
    assert found.cause == "Parameters that were not finite before the step"  # the step before has changed them
    assert found.evidence.startswith("0.bias holds NaN before the step")
    assert found.step == 3


# --- finite, and stuck -------------------------------------------------------------------------------------------------------------


def test_dead_relus():
    model = network()
    nn.init.constant_(model[0].bias, -100.0)
    step = training(model, torch.rand(16, 8), classification)
    found = explain_step(step, model, TrainingFacts(losses=trained(step, 40), learning_rate=0.1, classes=4))
    assert (found.cause, found.module) == ("Dead ReLUs", "1")
    assert "(1.39 is chance for 4 classes)" in found.evidence


def test_a_learning_rate_that_is_too_small():
    model = network()
    step = training(model, torch.rand(16, 8), classification, torch.optim.SGD(model.parameters(), lr=1e-6))
    found = explain_step(step, model, TrainingFacts(losses=trained(step, 8), learning_rate=1e-6, classes=4))
    assert found.cause == "Steps too small"
    assert "at a learning rate of 1e-06" in found.evidence


def test_a_training_that_learns_has_no_explanation():
    model = network()
    step = training(model, torch.rand(16, 8), classification, torch.optim.Adam(model.parameters(), lr=0.01))
    assert explain_step(step, model, TrainingFacts(losses=trained(step, 40), learning_rate=0.01, classes=4)) is None
