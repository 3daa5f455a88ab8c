"""The recorder: exact calls on fake and real tensors, phases and modules, and nothing of the caller's touched."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import rooflines
from rooflines.profiler.calls.fakes import fake_mode_of, fake_tensors, must_be_real
from rooflines.profiler.calls.recorder import record
from rooflines.profiler.calls.signatures import call_signature
from rooflines.profiler.read.signature import MISSING, TensorArg
from rooflines.profiler.tree.tree import BACKWARD, FORWARD, OPTIMIZER


def names(recording, phase=None):
    found = Counter()
    for call, number in recording.calls.items():
        if phase is None or call.phase == phase:
            found[call.signature.name.removeprefix("aten::")] += number
    return found


def recorded(step, real=False):
    return record(step, None if real else fake_tensors())


def snapshot(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def test_arguments_of_a_signature():
    # A signature has every argument in the order of the schema.
    image, weight = torch.rand(2, 3, 8, 8), torch.rand(4, 3, 3, 3)
    found = call_signature(torch.ops.aten.conv2d.default, (image, weight), {"padding": [1, 1]})
    assert found.name == "aten::conv2d"
    assert found.args == (
        TensorArg((2, 3, 8, 8), "float32", (192, 64, 8, 1)), TensorArg((4, 3, 3, 3), "float32", (27, 9, 3, 1)),
        None, (1, 1), (1, 1), (1, 1), 1,
    )  # fmt: skip
    # What traces lose is there.
    table, indices = torch.rand(5, 4), [None, torch.tensor([1, 2])]
    assert call_signature(torch.ops.aten.index.Tensor, (table, indices), {}).args[1] == (None, TensorArg((2,), "int64", (1,)))
    assert call_signature(torch.ops.aten.gelu.default, (table,), {"approximate": "tanh"}).args[1] == "tanh"
    listed = call_signature(torch.ops.aten.cat.default, ([table.half(), table.half()],), {}).args[0]
    assert [tensor.dtype for tensor in listed] == ["float16", "float16"]
    assert call_signature(torch.ops.aten.zeros.default, ([2],), {"dtype": torch.bfloat16}).args[1] == 15
    # An object that no signature can hold is missing.
    found = call_signature(torch.ops.aten.add.Tensor, (torch.rand(2), torch.rand(2)), {"alpha": object()})
    assert found.args[2] is MISSING


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.GELU())
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.last = x * 2
        return self.body(x)


def training_step(model, optimizer, x):
    """Gradients add up: nothing before the first forward changes what the model holds."""

    def step() -> None:
        functional.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long)).backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_phases_and_modules(real):
    model = Block()
    step = training_step(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.rand(3, 6))
    recording = recorded(step, real)
    assert names(recording, FORWARD)["addmm"] == 1
    assert names(recording, BACKWARD)["mm"] == 1  # nobody asks for the gradient of the input
    assert names(recording, OPTIMIZER)["add_"] == len(list(model.parameters()))
    of = {(call.signature.name, call.phase): recording.modules[call.module].path for call in recording.calls if call.module >= 0}
    assert of["aten::addmm", FORWARD] == "body.0"
    assert of["aten::mm", BACKWARD] == "body.0"
    assert of["aten::native_batch_norm_backward", BACKWARD] == "body.1"
    assert of["aten::gelu_backward", BACKWARD] == "body.2"
    assert [module.type for module in recording.modules] == ["Block", "Sequential", "Linear", "BatchNorm1d", "GELU"]
    assert recording.module_calls == [1] * 5


def test_fake_and_real_tensors_give_the_same_calls():
    def calls(real):
        torch.manual_seed(0)
        model = Block()
        optimizer = torch.optim.AdamW(model.parameters())
        return recorded(training_step(model, optimizer, torch.rand(3, 6)), real).calls

    def plain(found):
        # a transposed view of a fake tensor may be laid out otherwise; shapes, dtypes and everything else may not differ
        return (
            Counter(
                {
                    (c.signature.name, c.signature.shapes(), tuple((t.shape, t.dtype) for t in c.outputs), c.module, c.phase): 0
                    for c in found
                }
            )
            + Counter()
        )

    assert plain(calls(False)) == plain(calls(True))
    assert sum(calls(False).values()) == sum(calls(True).values())


def test_a_recomputed_forward_is_part_of_the_backward_and_of_its_module():
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 5), nn.GELU())  # the gradient of GELU needs its input again

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Checkpointed()
    recording = recorded(lambda: model(torch.rand(2, 3)).sum().backward())
    places = [(call.phase, recording.modules[call.module].path) for call in recording.calls if call.signature.name == "aten::addmm"]
    assert places == [(FORWARD, "inner.0"), (BACKWARD, "inner.0")]


def test_inference_mode_is_decomposed_like_any_other():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2)).eval()
    image = torch.rand(2, 3, 8, 8)

    def inference() -> None:
        with torch.inference_mode():
            model(image)

    def no_grad() -> None:
        with torch.no_grad():
            model(image)

    wanted = names(recorded(no_grad))
    assert wanted["convolution"] == wanted["addmm"] == 1
    for name in ("convolution", "addmm"):
        assert names(recorded(inference))[name] == wanted[name]
    assert "conv2d" not in names(recorded(inference))


def test_compiled_modules_are_recorded_as_eager_ones():
    model = torch.compile(nn.Linear(3, 4))
    assert names(recorded(lambda: model(torch.rand(2, 3))))["addmm"] == 1


def test_lossy_calls_keep_their_order():
    table = torch.rand(9, 2)

    def step() -> None:
        for rows in (3, 5, 3):
            table[torch.arange(rows)]

    recording = recorded(step)
    assert [call.outputs[0].shape[0] for call in recording.lossy] == [3, 5, 3]


def test_declared_work_stands_for_what_is_inside():
    class Own(nn.Module):
        def forward(self, x):
            with rooflines.declare_work("own", flops=7, bytes=20):
                return x * 2 + 1

    model = nn.Sequential(Own(), nn.ReLU())
    recording = recorded(lambda: model(torch.rand(3)))
    assert {"mul", "add"}.isdisjoint(names(recording))
    (call,) = [call for call in recording.calls if call.signature.name == "own"]
    assert recording.modules[call.module].path == "0"
    counted = rooflines.count(model, torch.rand(3))
    assert (counted.flops, counted.bytes, counted.coverage) == (7 + 3, 20 + 24, 1.0)


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_a_model_is_left_as_it_was(real):
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training_step(model, optimizer, torch.rand(3, 6))()
    before, gradients = snapshot(model), [parameter.grad.clone() for parameter in model.parameters()]
    momenta = {p: state["momentum_buffer"].clone() for p, state in optimizer.state.items()}
    kept = model.last
    recorded(training_step(model, optimizer, torch.rand(3, 6)), real)
    assert model.last is kept
    assert model.calls == 1
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(type(parameter) is nn.Parameter for parameter in model.parameters())
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(model.parameters(), gradients, strict=True))
    assert all(torch.equal(optimizer.state[p]["momentum_buffer"], value) for p, value in momenta.items())


def test_what_the_step_raises_passes_through_and_everything_is_put_back():
    model = Block()

    def step() -> None:
        model(torch.rand(3, 6)).sum().backward()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        recorded(step)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.calls == 0
    assert names(recorded(lambda: torch.ones(2) + torch.ones(2)))["add"] == 1


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_tensors_of_the_step_that_a_functional_call_puts_in_do_not_stay(real):
    model = Block()
    parameters = dict(model.named_parameters())

    def step() -> None:
        torch.func.functional_call(model, {name: value.detach() * 2 for name, value in parameters.items()}, (torch.rand(3, 6),))

    recorded(step, real)
    assert all(value is parameters[name] for name, value in model.named_parameters())
    assert len(parameters) == len(list(model.parameters()))


def test_lists_and_sets_of_a_module_are_left_as_they_were():
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.shapes = [1], {"a"}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.append(x)
            self.shapes.add(x.shape)
            return x + 1

    model = Keeps()
    seen = model.seen
    recorded(lambda: model(torch.rand(2)))
    assert model.seen is seen
    assert (model.seen, model.shapes) == ([1], {"a"})


def test_fake_modules_and_inputs_bring_their_mode():
    mode = fake_tensors()
    with mode:
        model, image = nn.Linear(2, 3), torch.rand(1, 2)
    assert fake_mode_of(model) is mode
    assert fake_mode_of(torch.relu, {"x": [image]}) is mode
    assert fake_mode_of(nn.Linear(2, 3), torch.rand(1, 2)) is None


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_packed_weights_are_unpacked():
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 5)), {nn.Linear}, dtype=torch.qint8)
    assert must_be_real(model)
    assert not must_be_real(nn.Linear(8, 5))
    (call,) = recorded(lambda: model(torch.rand(2, 8)), real=True).lossy
    assert call.signature.name == "quantized::linear_dynamic"
    weight, bias = call.signature.args[1]
    assert (weight.shape, weight.dtype, bias.shape) == ((5, 8), "qint8", (5,))
