"""The first operator that makes a non-finite number, and what is not one: masks, memory that nothing was written to."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from rooflines.profiler.dispatch.nonfinite import first_nonfinite


def training(model, x, loss=lambda outputs: outputs.pow(2).mean(), optimizer=None, scaler=None):
    """A training step that returns its loss."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        found = loss(model(x))
        if scaler is None:
            found.backward()
            optimizer.step()
        else:
            scaler.scale(found).backward()
            scaler.step(optimizer)
            scaler.update()
        return found.detach()

    return step


def place(found):
    return found.operator, found.module, found.phase, found.what


# --- found -------------------------------------------------------------------------------------------------------------------------


def test_a_product_that_overflows_fp16_in_the_forward_pass():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False)).half()
    nn.init.constant_(model[0].weight, 1.0)
    nn.init.constant_(model[2].weight, 40000.0)
    x = torch.ones(5, 8).half()
    with torch.no_grad():
        expected = (model[1](model[0](x)).float() @ model[2].weight.float().T).max().item()
    found = first_nonfinite(training(model, x), model)
    assert place(found) == ("aten::mm", "2", "forward", "inf")
    assert (found.module_type, found.dtype, found.share, found.step) == ("Linear", "float16", 1.0, 1)
    assert (found.inputs, found.input_magnitude, found.given) == ("finite", 40000.0, "")
    assert (found.wider, found.wider_finite) == ("float32", True)
    assert found.wider_magnitude == pytest.approx(expected)
    assert found.reaches == ("result", "gradients", "parameters")


def test_a_gradient_that_overflows_fp16():
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)).half()
    nn.init.constant_(model[1].weight, 100.0)
    found = first_nonfinite(training(model, torch.ones(5, 8).half(), lambda out: (out - out.detach()).sum() * 2000), model)
    assert place(found) == ("aten::mm", "1", "backward", "inf")
    assert found.inputs == "finite"
    assert found.wider_magnitude == 4 * 100 * 2000
    assert found.reaches == ("gradients", "parameters")


@pytest.mark.parametrize("kind", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_an_optimizer_whose_second_moment_overflows_fp16(kind):
    """Adam holds the squares of gradients: 10,000 squared is beyond fp16, and so is a thousandth of it."""
    model = nn.Linear(8, 4).half()
    optimizer = torch.optim.Adam(model.parameters(), **kind)
    found = first_nonfinite(training(model, torch.ones(5, 8).half(), lambda out: out.sum() * 2000, optimizer), model)
    assert (found.phase, found.dtype, found.inputs) == ("optimizer", "float16", "finite")
    assert found.reaches == ("parameters",)
    if "fused" not in kind:
        assert found.wider_magnitude == pytest.approx(1e-3 * 10000.0**2, rel=0.01)


def test_where_a_value_becomes_infinite():
    # The logarithm of zero a quotient of zeros and the slope of a root at zero.
    def of(loss):
        model = nn.Linear(8, 4)
        return first_nonfinite(training(model, torch.rand(5, 8), loss), model)

    logarithm = of(lambda out: (out * 0).abs().log().mean())
    assert place(logarithm) == ("aten::log", "", "forward", "inf")
    assert (logarithm.input_magnitude, logarithm.wider, logarithm.wider_finite) == (0.0, "float64", False)
    assert logarithm.wider_magnitude is None
    assert place(of(lambda out: (out * 0 / (out.sum() * 0)).sum())) == ("aten::div", "", "forward", "nan")
    assert place(of(lambda out: (out * 0).sqrt().sum())) == ("aten::div", "", "backward", "inf")
    # Results written to out and lists.
    total, values = torch.full((3,), math.nan), torch.tensor([3e38, 1.0, 2.0])
    found = first_nonfinite(lambda: torch.add(values, values, out=total))
    assert (found.operator, found.inputs, found.share) == ("aten::add", "finite", pytest.approx(1 / 3))
    assert found.wider_magnitude == pytest.approx(6e38)
    found = first_nonfinite(lambda: torch._foreach_mul([torch.ones(2), values], 10.0))
    assert (found.operator, found.share) == ("aten::_foreach_mul", pytest.approx(1 / 3))
    # A number that the step reads itself.
    found = first_nonfinite(lambda: torch.zeros(3).log().sum().item())
    assert (found.operator, found.reaches) == ("aten::log", ("result",))
    # Sparse and complex numbers.
    table = nn.Embedding(5, 2, sparse=True)
    found = first_nonfinite(training(table, torch.tensor([1, 3]), lambda out: (out * 0).sqrt().sum()), table)
    assert found.reaches == ("gradients", "parameters")
    assert first_nonfinite(lambda: torch.fft.fft(torch.rand(8)) / 0).operator == "aten::div"


def test_the_step_that_fails_is_counted():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    step = training(model, torch.ones(1, 1), optimizer=torch.optim.SGD(model.parameters(), lr=1e13))
    found = first_nonfinite(step, model, steps=10)
    assert found.step == 3  # the weight is -2e13 after the first step and 4e26 after the second: its square is beyond fp32
    assert found.wider_magnitude == pytest.approx(1.6e53, rel=0.01)
    assert first_nonfinite(training(nn.Linear(1, 1), torch.ones(1, 1)), steps=3) is None


def test_what_was_not_finite_before():
    # What was not finite before the step is named.
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    batch = torch.tensor([[1, 2, math.nan], [1, 2, 3.0]])
    of_batch = first_nonfinite(training(model, batch), model)
    assert (of_batch.operator, of_batch.given, of_batch.inputs, of_batch.what) == ("aten::addmm", "input", "nan", "nan")
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan  # a view of it is what the product is given
    assert first_nonfinite(training(model, torch.rand(5, 3)), model).given == "0.weight"
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    model[1].running_mean[2] = math.inf
    assert first_nonfinite(lambda: model(torch.rand(5, 3)), model).given == "1.running_mean"
    # An infinite batch that becomes nan later is still the batch.
    model = nn.Linear(3, 4)
    found = first_nonfinite(training(model, torch.tensor([[1.0, 2.0, math.inf]]), lambda out: (out - out).sum()), model)
    assert (found.given, found.inputs, found.what) == ("input", "inf", "nan")


def test_random_numbers_stay_those_of_the_step():
    def step():
        (torch.zeros(2).log() * torch.rand(2)).sum()
        return torch.rand(3)

    torch.manual_seed(1)
    expected = step()
    seen = []
    torch.manual_seed(1)
    assert first_nonfinite(lambda: seen.append(step())) is None
    assert torch.equal(seen[0], expected)


# --- not found ---------------------------------------------------------------------------------------------------------------------


def masks():
    causal = torch.ones(6, 6).tril().bool()
    yield "filled", lambda scores: scores.masked_fill(~causal, -math.inf)
    yield "filled in place", lambda scores: scores.masked_fill_(~causal, -math.inf)
    yield "filled with a tensor", lambda scores: torch.where(causal, scores, torch.tensor(-math.inf))
    yield "added", lambda scores: scores + torch.full((6, 6), -math.inf).triu(1)
    yield "of zeros", lambda scores: scores + causal.float().log()
    given = torch.full((6, 6), -math.inf).triu(1)
    yield "given to the step", lambda scores: scores + given


@pytest.mark.parametrize("mask", [pytest.param(mask, id=name) for name, mask in masks()])
def test_masks_of_attention_are_meant(mask):
    model = nn.Linear(8, 8)

    def attention(out):
        return (mask(out @ out.transpose(1, 2)).softmax(-1) @ out).pow(2).mean()

    assert first_nonfinite(training(model, torch.rand(2, 6, 8), attention), model, steps=2) is None


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_transformer_with_masks_is_fine(norm_first):
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=norm_first)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    step = training(lambda x: model(x, src_mask=mask), torch.rand(2, 6, 16), optimizer=torch.optim.AdamW(model.parameters()))
    assert first_nonfinite(step, model, steps=2) is None


def test_masks_and_filled_infinities():
    # A row that is masked whole is found at its softmax.
    model = nn.Linear(8, 6)
    found = first_nonfinite(training(model, torch.rand(2, 8), lambda out: (out - math.inf).softmax(-1).sum()), model)
    assert (found.operator, found.what, found.inputs, found.given) == ("aten::_softmax", "nan", "inf", "")
    # An overflow in attention is not lost in its mask.
    query = torch.full((4, 8), 200.0, dtype=torch.half)
    mask = torch.full((4, 4), -math.inf, dtype=torch.half).triu(1)
    found = first_nonfinite(lambda: (query @ query.T + mask).softmax(-1))
    assert (found.operator, found.wider_magnitude) == ("aten::mm", 8 * 200.0**2)
    # A filled infinity that reaches the loss is found.
    found = first_nonfinite(
        lambda: functional.cross_entropy(torch.zeros(2, 3).index_fill(1, torch.tensor([1]), -math.inf), torch.tensor([1, 1]))
    )
    assert (found.operator, found.reaches) == ("aten::index_fill", ("result",))


@pytest.fixture
def empty_holds_nan():
    """torch then fills memory that nothing was written to with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_memory_that_nothing_was_written_to_is_ignored(empty_holds_nan):
    assert torch.empty(3).isnan().all()

    def step():
        torch.empty(64).view(8, 8).t()[1:].contiguous()
        half = torch.empty(64)
        half.view(8, 8)[:4].fill_(1.0)
        whole = torch.empty(64)
        return torch.add(half[:32], whole.zero_()[:32], out=torch.empty(32)).sum()

    assert first_nonfinite(step) is None
    found = first_nonfinite(lambda: torch.empty(3).normal_().mul_(0).log_().sum())
    assert (found.operator, found.inputs) == ("aten::log_", "finite")


def test_convolutions_with_padding_pooling_and_normalization_are_fine():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), nn.Flatten())
    assert first_nonfinite(training(model, torch.rand(4, 3, 8, 8)), model, steps=2) is None


def test_a_scaler_that_skips_a_step_leaves_the_parameters():
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=10_000)
    step = training(model, torch.rand(5, 8), scaler=scaler)

    def half():
        with torch.autocast("cpu", dtype=torch.float16):
            return step()

    found = first_nonfinite(half, model)
    assert (found.phase, found.reaches) == ("backward", ("gradients",))
    assert found.wider_magnitude > 65504
    scaler.update(new_scale=128.0)
    assert first_nonfinite(half, model) is None


def test_a_skipped_step_is_not_taken_for_a_later_failure():
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=10_000)
    taken = []

    def loss(out):
        taken.append(out)
        return out.pow(2).mean() + (torch.zeros(()).log() if len(taken) == 3 else 0)

    step = training(model, torch.rand(5, 8), loss, scaler=scaler)

    def half():
        with torch.autocast("cpu", dtype=torch.float16):
            return step()

    found = first_nonfinite(half, model, steps=5)
    assert (found.step, found.operator) == (3, "aten::log")
    assert first_nonfinite(half, model, steps=2).reaches == ("gradients",), "both skipped"
