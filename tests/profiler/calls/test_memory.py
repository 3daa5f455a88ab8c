"""Memory at the peak: categories by arithmetic, and the whole against the allocator's own events in real runs."""

import functools

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import rooflines
from rooflines.profiler.calls.fakes import fake_tensors
from rooflines.profiler.calls.memory import record_with_memory
from rooflines.profiler.records import MemoryAtPeak
from tests.allocations import CUDA, NUMBER, TENSOR, allocations
from tests.marks import recent_torch

ONES_AND_LOSS = 4 + 4


def followed(step, real=False, before=0):
    """The step's memory, whose categories always sum to its peak, which is the highest point of its curve."""
    memory = record_with_memory(step, None if real else fake_tensors(), before=before).memory
    assert sum(getattr(memory.at_peak, name) for name in MemoryAtPeak.__struct_fields__) == memory.peak_bytes
    if memory.curve is not None:
        points = [dict(zip(memory.curve.parts, sizes, strict=True)) for sizes in zip(*memory.curve.parts.values(), strict=True)]
        highest = max(points, key=lambda point: sum(point.values()))
        assert sum(highest.values()) == memory.peak_bytes
        assert {name: size for name, size in highest.items() if size} == held(memory)
        assert len(points) == len(memory.curve.at) <= 200
        assert list(memory.curve.at) == sorted(memory.curve.at)
    sizes = [tensor.bytes for tensor in memory.largest]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) <= memory.peak_bytes
    return memory


def held(memory):
    """The categories that are not empty."""
    return {name: size for name in MemoryAtPeak.__struct_fields__ if (size := getattr(memory.at_peak, name))}


def place(memory):
    return memory.operator, memory.module, memory.phase


def test_the_largest_tensors_say_what_made_them():
    model = nn.Sequential(nn.Linear(8, 4, bias=False), nn.ReLU())
    inputs = torch.ones(100, 8)
    large = followed(lambda: model(inputs).sum().backward()).largest
    assert [(one.bytes, one.category, one.shape, one.operator, one.module) for one in large[:2]] == [
        (3200, "inputs", (100, 8), "", ""), (1600, "activations", (100, 4), "aten::relu", "1"),
    ]  # fmt: skip
    assert ("parameters", (4, 8), "float32", "0") in [(one.category, one.shape, one.dtype, one.module) for one in large]


def linear(rows=8, columns=4):
    return nn.Linear(rows, columns, bias=False)


WEIGHT, BATCH = 4 * 8 * 4, 4 * 3 * 8


# --- inference ---------------------------------------------------------------------------------------------------------------------


def test_a_layer_holds_what_it_reads_and_what_it_writes():
    model = nn.Sequential(linear(8, 4), nn.ReLU(), linear(4, 2))
    x = torch.rand(3, 8)
    with torch.no_grad():
        memory = followed(lambda: model(x))
    hidden = 4 * 3 * 4
    assert held(memory) == {"parameters": WEIGHT + 4 * 4 * 2, "inputs": BATCH, "activations": 2 * hidden}
    assert place(memory) == ("aten::relu", "1", "forward")
    assert memory.device == "cpu"


def shared_storage():
    flat = torch.zeros(64)
    model = nn.Sequential(linear(), linear())
    model[0].weight = nn.Parameter(flat[:32].view(4, 8))
    model[1].weight = nn.Parameter(flat[8:40].view(4, 8))
    return lambda: model[1](torch.rand(3, 8)) + model[0](torch.rand(3, 8))


def unused_parameter():
    model = nn.ModuleDict({"used": linear(), "unused": linear(100, 100)})
    model.forward = lambda x: model["used"](x)
    return lambda: model(torch.rand(3, 8))


def buffers():
    model = nn.BatchNorm1d(4).eval()  # weight, bias, mean, variance; the number of batches, int64
    return lambda: model(torch.rand(3, 4))


@pytest.mark.parametrize(
    ("made", "size"), [(buffers, 4 * 4 * 4 + 8), (shared_storage, 4 * 64), (unused_parameter, WEIGHT + 4 * 100 * 100)]
)
def test_buffers_and_what_nothing_reads_are_parameters_and_a_shared_storage_counts_once(made, size):
    with torch.no_grad():
        assert held(followed(made()))["parameters"] == size


def test_views_and_operators_in_place_allocate_nothing():
    def step():
        torch.zeros(100).add_(1).relu_().view(10, 10).t()[2:].fill_(3)

    memory = followed(step)
    assert held(memory) == {"activations": 400}
    assert memory.operator == "aten::zeros"


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_what_is_freed_makes_room(real):
    x = torch.rand(100)

    def one_after_the_other():
        x.exp()
        x.sin()

    def together():
        return x.exp(), x.sin()

    assert held(followed(one_after_the_other, real)) == {"inputs": 400, "activations": 400}
    assert held(followed(together, real)) == {"inputs": 400, "activations": 800}


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_a_storage_that_is_resized_is_followed(real):
    def step():
        grown = torch.empty(10)
        grown.resize_(1000)

    memory = followed(step, real)
    assert held(memory) == {"activations": 4000}
    assert memory.operator == "aten::resize_"


def test_a_step_that_allocates_nothing_holds_what_it_was_given():
    x = torch.rand(100)
    for step, expected in ((lambda: None, {}), (lambda: x.view(10, 10), {"inputs": 400})):
        memory = followed(step)
        assert (held(memory), memory.device, place(memory)) == (expected, "cpu", ("", "", ""))
    assert held(followed(lambda: torch.tensor([1.0, 2.0]) + 1)) == {"activations": 16}, "tensors made of Python's numbers are new"


# --- training ----------------------------------------------------------------------------------------------------------------------


def training(model, x, optimizer):
    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize(("before", "activations", "where"), [
    (0, {}, ("aten::clone", "", "optimizer")),
    (1, {"activations": ONES_AND_LOSS}, ("aten::mm", "", "backward")),
])  # fmt: skip
def test_the_first_step_makes_the_optimizers_state_and_later_ones_start_with_it(before, activations, where):
    model = linear()
    memory = followed(training(model, torch.rand(3, 8), torch.optim.SGD(model.parameters(), momentum=0.9)), before=before)
    assert held(memory) == {"parameters": WEIGHT, "gradients": WEIGHT, "optimizer": WEIGHT, "inputs": BATCH, **activations}
    assert place(memory) == where


def test_adam_has_two_moments_and_a_step_count():
    model = linear()
    memory = followed(training(model, torch.rand(3, 8), torch.optim.Adam(model.parameters())), before=1)
    assert memory.at_peak.optimizer == 2 * WEIGHT + 4
    assert memory.phase == "optimizer"
    assert memory.at_peak.workspace == 2 * WEIGHT  # sqrt(v), and that over its bias correction


@pytest.mark.parametrize("depth", [2, 3, 7])
def test_activations_are_kept_for_the_backward(depth):
    x = nn.Parameter(torch.rand(100))

    def chain():
        y = x
        for _ in range(depth):
            y = y.exp()  # keeps its result
        return y.sum()

    memory = followed(lambda: chain().backward())
    assert held(memory) == {"parameters": 400, "activations": 400 * depth + ONES_AND_LOSS, "workspace": 400}
    assert memory.phase == "backward"
    with torch.no_grad():
        assert held(followed(chain)) == {"parameters": 400, "activations": 800}


def test_gradients_of_inputs_are_gradients():
    x = torch.rand(100, requires_grad=True)
    assert held(followed(lambda: x.exp().sum().backward())) == {"inputs": 400, "activations": 400 + ONES_AND_LOSS, "gradients": 400}


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_gradients_from_before_are_added_to(real):
    model, x = linear(), torch.rand(3, 8)
    model(x).sum().backward()
    memory = followed(lambda: model(x).sum().backward(), real)
    assert held(memory) == {
        "parameters": WEIGHT, "gradients": WEIGHT, "workspace": WEIGHT, "inputs": BATCH, "activations": ONES_AND_LOSS,
    }  # fmt: skip


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_gradients_from_before_are_held_until_they_are_given_up(real):
    model, x = linear(8, 100), torch.rand(3, 8)
    model(x).sum().backward()
    weight, hidden = 4 * 8 * 100, 4 * 3 * 100

    def late():
        loss = model(x).exp().sum()
        model.zero_grad()
        loss.backward()

    memory = followed(late, real)
    # The forward ends with two activations; had the backward begun with the old gradient, its own (and one workspace) would be more.
    assert held(memory) == {"parameters": weight, "gradients": weight, "inputs": BATCH, "activations": 2 * hidden}
    assert place(memory) == ("aten::exp", "", "forward")


def test_gradients_that_meet_are_added_in_place():
    x = nn.Parameter(torch.rand(100))

    def step():
        y = x.exp()
        z = y.sin().sum() + y.cos().sum()
        del y
        z.backward()

    memory = followed(step)
    # exp(x), saved by three; of one branch its gradient, of the other sin(y) and the product. A sum of its own would be one more.
    assert held(memory) == {"parameters": 400, "activations": 400 + ONES_AND_LOSS, "workspace": 1200}


def test_recomputed_activations_are_activations():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU()) for _ in range(4)))
    x = torch.rand(2048, 64)

    def recomputing():
        y = x.detach().requires_grad_()
        for block in model:
            y = checkpoint(block, y, use_reentrant=False)
        y.sum().backward()

    tensor = 4 * 2048 * 64
    # Four a block are made, and the last two freed when the gradient reaches the last linear layer.
    assert followed(lambda: model(x).sum().backward()).at_peak.activations == (4 * 4 - 2) * tensor + ONES_AND_LOSS
    # The outputs of the first three blocks, and of the last one what its backward needs, made again.
    memory = followed(recomputing)
    assert memory.at_peak.activations == (3 + 3) * tensor + ONES_AND_LOSS
    # In the third block, the first after another one whose gradients are there by then; each block is a network of its own.
    assert place(memory) == ("aten::gelu_backward", "Sequential-2.3", "backward")


def test_nothing_of_the_callers_is_touched():
    model = nn.Sequential(linear(), nn.BatchNorm1d(4))
    x = torch.rand(3, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    followed(training(model, x, optimizer), before=1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not optimizer.state


# --- other tensors and devices -----------------------------------------------------------------------------------------------------


def test_a_gpus_allocator_rounds_to_512_bytes_and_the_host_is_apart():
    with fake_tensors() as mode, torch.no_grad():
        x = torch.empty(100, device="cuda")
        host = torch.empty(10**6)
        memory = record_with_memory(lambda: (x.exp(), host + 1, torch.empty(129, device="cuda")), mode).memory
    assert memory.device == "cuda:0"
    assert memory.peak_bytes == 512 + 512 + 1024
    assert held(memory) == {"inputs": 400, "activations": 400 + 516, "overhead": 112 + 112 + 508}


def test_a_wrapper_holds_what_it_wraps():
    def step():
        return TwoTensor(torch.zeros(100), torch.ones(100)) * 2

    memory = followed(step, real=True)
    assert held(memory) == {"activations": 2 * 800}


@recent_torch
def test_a_sparse_gradient_is_its_indices_and_values():
    table, rows = nn.Embedding(1000, 4, sparse=True), torch.tensor([1, 5, 7])
    memory = followed(lambda: (table(rows) * 2).sum().backward(), real=True)
    values, indices = 4 * 3 * 4, 8 * 3
    assert held(memory) == {
        "parameters": 4 * 4000, "gradients": values + indices, "workspace": values, "inputs": indices, "activations": ONES_AND_LOSS,
    }  # fmt: skip


def test_what_only_a_library_knows_is_named():
    model, x = nn.LSTM(8, 8), torch.rand(3, 2, 8)
    assert followed(lambda: model(x)).unknown == ("aten::mkldnn_rnn_layer",)
    assert followed(lambda: model(x), real=True).unknown == ()
    with torch.no_grad():
        assert followed(lambda: model(x)).unknown == ()
    packed = torch.ops.quantized.linear_prepack_fp16(torch.rand(4, 8), None)
    memory = followed(lambda: torch.ops.quantized.linear_dynamic_fp16(torch.rand(2, 8), packed), real=True)
    assert memory.unknown == ("quantized::linear_dynamic_fp16",)


def test_count_tells_the_memory_where_asked_also_of_a_call_that_needs_data():
    model, x = linear(), torch.rand(3, 8)
    alone, counted = rooflines.count(model, x, backward=True), rooflines.count(model, x, backward=True, memory=True)
    assert alone.memory is None
    assert counted.memory.at_peak.gradients == WEIGHT
    assert counted.to_dict()["memory"]["at_peak"]["parameters"] == WEIGHT
    assert counted.operators == alone.operators
    real = rooflines.count(lambda x: x[x > 0].exp(), torch.arange(-50, 50).float(), memory=True)
    assert real.tensors == "real"
    assert held(real.memory) == {"inputs": 400, "activations": 2 * 4 * 49}


# --- the allocator's own account ---------------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """A transformer's encoder layer, and the ways of sharing that it does not have: a tied weight, a residual read three times."""

    def __init__(self, width=64, heads=4, words=50):
        super().__init__()
        self.words, self.attention, self.heads = nn.Embedding(words, width), nn.Linear(width, 3 * width), heads
        self.out, self.wide, self.narrow = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second, self.dropout = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(0.1)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) * 8.0
        batch, length, width = x.shape
        query, key, value = self.attention(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, length, width)
        x = self.first(x + self.dropout(self.out(mixed)))
        x = self.second(x + self.dropout(self.narrow(functional.gelu(self.wide(x)))))
        return self.head(x)


class Tagger(nn.Module):
    """A recurrent network whose output is no contiguous tensor, as with most that have the batch first."""

    def __init__(self):
        super().__init__()
        self.recurrent, self.out = nn.LSTM(32, 48, num_layers=2, batch_first=True), nn.Linear(48, 10)

    def forward(self, x):
        return self.out(self.recurrent(x)[0])


def images(make):
    return lambda: (make(torchvision.models), torch.rand(2, 3, 64, 64))


WORKLOADS = {
    "resnet18": images(lambda models: models.resnet18()),
    "mobilenet_v3_small": images(lambda models: models.mobilenet_v3_small()),
    "densenet": images(lambda models: models.DenseNet(growth_rate=8, block_config=(3, 3, 3), num_init_features=16)),
    "encoder": lambda: (Encoder(), torch.randint(0, 50, (2, 16))),
    "lstm": lambda: (Tagger(), torch.rand(2, 12, 32)),
}
OPTIMIZERS = {
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters),
}
# Large networks, whose operators and optimizers the other cases have.
REPEATED = {
    ("mobilenet_v3_small", "Adam"), ("mobilenet_v3_small", "SGD with momentum"), ("resnet18", "Adam"), ("densenet", "Adam"),
    ("densenet", "SGD with momentum"),
}  # fmt: skip


def made(workload, mode):
    """A function that makes the workload and returns its step."""

    def make():
        model, x = WORKLOADS[workload]()
        if mode == "inference":
            model.eval()
            return lambda: infer(model, x)
        return training(model, x, OPTIMIZERS[mode](model.parameters()))

    return make


@torch.inference_mode()
def infer(model, x):
    model(x)


@pytest.mark.ci
@pytest.mark.parametrize(("workload", "mode"), [
    pytest.param(workload, mode, marks=pytest.mark.slow if (workload, mode) in REPEATED else ())
    for workload in WORKLOADS
    for mode in ("inference", *OPTIMIZERS)
])  # fmt: skip
def test_the_peak_of_a_real_run_is_ours_and_the_workspace_of_one_operator(workload, mode):
    """The fake recording is byte by byte what tensors hold in a real run; the allocator's peak exceeds it by what is no tensor's."""
    make = made(workload, mode)
    fake = fake_tensors()
    with fake:
        step = make()
    recordings = [record_with_memory(step, fake, before=before) for before in (0, 1)]
    operators = {call.signature.name for recording in recordings for call in recording.calls}
    real = allocations(make, 2, operators)
    for index, recording in enumerate(recordings):
        ours = recording.memory
        if ours.unknown:
            assert ours.unknown == ("aten::mkldnn_rnn_layer",)
            assert ours.peak_bytes <= real.peak(index, [TENSOR])
        else:
            assert ours.peak_bytes == real.peak(index, [TENSOR])
        upper = real.peak(index, [TENSOR]) + real.largest_workspace(index) + real.peak(index, [NUMBER])
        assert ours.peak_bytes <= real.peak(index) <= upper


@pytest.mark.parametrize("mode", OPTIMIZERS)
def test_a_recording_on_real_tensors_knows_what_libraries_keep(mode):
    make = made("lstm", mode)
    step = make()
    recordings = [record_with_memory(step, None), record_with_memory(step, None, before=1)]
    real = allocations(make, 2, {call.signature.name for recording in recordings for call in recording.calls})
    assert [recording.memory.peak_bytes for recording in recordings] == [real.peak(index, [TENSOR]) for index in (0, 1)]


# --- a GPU -------------------------------------------------------------------------------------------------------------------------


def perceptron():
    """Matrix products, normalization and residuals of a transformer, wide enough for its activations to matter."""
    blocks = [nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]
    return nn.Sequential(*blocks), torch.rand(1024, 512)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["inference", "SGD with momentum"])
@pytest.mark.parametrize("workload", [perceptron, WORKLOADS["resnet18"]], ids=["perceptron", "resnet18"])
def test_the_gpus_allocator_holds_ours_and_the_workspace_of_one_operator(workload, mode):
    """``max_memory_allocated`` is at least ours. What was requested exceeds it by what libraries keep and one operator's workspace."""
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    model, x = (thing.cuda() for thing in workload())
    optimizer = OPTIMIZERS["SGD with momentum"](model.parameters())
    step = training(model, x, optimizer)
    if mode == "inference":
        model.eval()
        step = functools.partial(infer, model, x)
    for _ in range(2):  # libraries take their workspace, the optimizer makes its state
        step()
    torch.cuda.synchronize()
    states = [value for state in optimizer.state.values() for value in state.values()]
    gradients = [parameter.grad for parameter in model.parameters()]
    held = {tensor.data_ptr(): tensor.nbytes for tensor in (*model.state_dict().values(), *states, *gradients, x) if tensor is not None}
    kept = torch.cuda.memory_stats()["requested_bytes.all.current"] - sum(held.values())
    del states, gradients
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    allocated, requested = torch.cuda.max_memory_allocated(), torch.cuda.memory_stats()["requested_bytes.all.peak"]

    ours = followed(step)
    assert ours.device == "cuda:0"
    assert ours.peak_bytes <= allocated
    assert ours.peak_bytes - ours.at_peak.overhead + kept <= requested
    if not ours.unknown:
        operators = {call.signature.name for call in record_with_memory(step, fake_tensors()).calls}
        assert requested <= ours.peak_bytes + kept + allocations(lambda: step, 1, operators, CUDA).largest_workspace(0)
