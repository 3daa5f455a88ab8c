"""Compiled runs against eager ones: the same products, the same modules, nearly the same arithmetic, and less memory traffic."""

from functools import cache

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from rooflines.profiler.options import PointOptions
from rooflines.profiler.record.collect import Recording, collect
from rooflines.profiler.records import Settings, Workload
from rooflines.profiler.workloads.prepare import from_module
from rooflines.roofline.analyze import analyze

# Takes seconds to compile, to start or to load.
pytestmark = pytest.mark.ci


class Transformer(nn.Module):
    """One causal block over embedded tokens."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(50, width)
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens):
        x = self.tokens(tokens)
        b, t, d = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.between(x))


def resnet10():
    return torchvision.models.resnet.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1]), torch.randn(2, 3, 64, 64)


def transformer():
    return Transformer(), torch.randint(0, 50, (4, 32))


def normalized():
    return nn.Sequential(nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3)), torch.randn(2, 3, 24, 24)


def mlp():
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64)), torch.randn(32, 64)


@cache
def analysis(make, mode, compiled, folder):
    """The analysis of a recorded run. Images are stored channels last, or inductor rearranges every weight in every step."""
    torch.manual_seed(0)
    network, inputs = make()
    options = PointOptions(mode=mode, compile=compiled, device="cpu", channels_last=make in (resnet10, normalized))
    prepared = from_module(network, inputs, options)
    with prepared.flags():
        directory = folder / f"{make.__name__}-{mode}-{compiled}"
        run = collect(prepared.step, Recording(directory, prepared.facts, prepared.device, settings=Settings(steps=2, warmup=1)))
    return analyze(run).analysis


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    return lambda make, mode: tuple(analysis(make, mode, compiled, folder) for compiled in (False, True))


def sums(found):
    """Matrix FLOPs of every module."""
    return {row.path: row.matrix_flops for row in found.modules if row.matrix_flops}


SLOW = ((resnet10, "inference"), (resnet10, "training"), (transformer, "inference"), (transformer, "training"))
CASES = [
    pytest.param(make, mode, id=f"{make.__name__}-{mode}", marks=pytest.mark.slow if (make, mode) in SLOW else ())
    for make in (resnet10, transformer, mlp)
    for mode in ("inference", "training")
]


@pytest.mark.parametrize(("make", "mode"), CASES)
def test_nearly_all_time_has_a_count_and_every_module_the_products_of_the_eager_run(pair, make, mode):
    eager, compiled = pair(make, mode)
    assert compiled.coverage.modeled_time_fraction >= 0.95
    fused = [row for row in compiled.operators if "cpp_fused" in row.name]
    assert {row.phase for row in fused} == ({"forward", "backward"} if mode == "training" else {"forward"})
    assert not [item.name for item in compiled.coverage.unmodeled if "cpp_fused" in item.name]
    assert compiled.totals.matrix_flops == eager.totals.matrix_flops > 0
    assert sums(compiled) == sums(eager)
    types = {row.path: row.type for row in eager.modules}
    assert all(row.type == types[row.path] for row in compiled.modules)
    # What inductor takes apart is counted part by part: a normalization, a gradient; and it computes some forwards again.
    if (make, mode) != (resnet10, "inference"):
        others = [found.totals.flops - found.totals.matrix_flops for found in (eager, compiled)]
        assert others[1] == pytest.approx(others[0], rel=0.1)


@pytest.mark.parametrize("make", [pytest.param(resnet10, marks=pytest.mark.slow), normalized])
def test_a_normalization_that_is_taken_apart_costs_what_its_parts_do(pair, make):
    """In inference batch_norm is x * a + b, 2 FLOPs; its parts are (x - m) * r * w + b, 4, and for a channel 1 / sqrt(v + eps), 2."""
    eager, compiled = pair(make, "inference")
    norms = [row for row in eager.operators if row.name == "aten::native_batch_norm"]
    values = sum(row.flops for row in norms) // 2
    channels = sum(module.num_features for module in make()[0].modules() if isinstance(module, nn.BatchNorm2d))
    assert compiled.totals.flops - eager.totals.flops == 2 * values + 2 * channels


@pytest.mark.parametrize(("make", "mode"), CASES)
def test_fusion_moves_less(pair, make, mode):
    eager, compiled = pair(make, mode)
    assert compiled.totals.bytes <= eager.totals.bytes
    # the products are not fused: their operands and results are moved in both
    products = [sum(row.bytes for row in found.operators if row.matrix_flops) for found in (eager, compiled)]
    assert compiled.totals.bytes >= products[1] >= 0.9 * products[0]
    if (make, mode) != (mlp, "inference"):  # there is one element-wise operator, and nothing to fuse it with
        assert compiled.totals.bytes < eager.totals.bytes


class Broken(nn.Module):
    """Two graphs with the user's Python between them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 32)

    def forward(self, x):
        y = torch.relu(self.first(x) * 2)
        torch._dynamo.graph_break()
        return torch.softmax(self.second(y) + 1, -1)


class Outer(nn.Module):
    """Of which one part is compiled."""

    def __init__(self):
        super().__init__()
        self.head = Broken()
        self.tail = nn.Linear(32, 4)

    def forward(self, x):
        return self.tail(self.head(x).cos())


def record(step, folder):
    workload = Workload(name="step", mode="inference", source="step")
    return analyze(collect(step, Recording(folder, workload, torch.device("cpu"), settings=Settings(steps=2, warmup=2)))).analysis


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch.compiler.reset()


def test_graphs_between_breaks_have_their_modules(tmp_path):
    torch.manual_seed(0)
    network, x = Outer(), torch.randn(8, 32)
    network.head = torch.compile(network.head, dynamic=False)

    def step():
        with torch.no_grad():
            network(x)

    found = record(step, tmp_path / "run")
    assert found.coverage.modeled_time_fraction == 1
    products = {row.module: row.matrix_flops for row in found.operators if row.matrix_flops}
    assert products == {"head.first": 2 * 8 * 32 * 64, "head.second": 2 * 8 * 64 * 32, "tail": 2 * 8 * 32 * 4}
    fused = sum(row.flops for row in found.operators if "cpp_fused" in row.name)
    assert fused == 2 * 8 * 64 + (1 + 14) * 8 * 32  # relu(y * 2); softmax(y + 1)


def test_a_graph_for_each_size_is_told_apart(tmp_path):
    function = torch.compile(lambda x: torch.relu(x) * 3, dynamic=False)
    small, large = torch.randn(4, 16), torch.randn(9, 16)

    found = record(lambda: (function(small), function(large)), tmp_path / "run")
    sizes = {row.shapes: (row.calls, row.flops) for row in found.operators if "cpp_fused" in row.name}
    assert sizes == {"4x16": (1, 2 * 4 * 16), "9x16": (1, 2 * 9 * 16)}


def test_sizes_that_vary_and_what_was_compiled_before_are_unknown_with_their_reason(tmp_path):
    varying, before = (torch.compile(function, dynamic=dynamic) for function, dynamic in ((torch.relu, True), (torch.tanh, False)))
    x = torch.randn(64, 64)
    found = record(lambda: varying(x), tmp_path / "varying")
    assert "dynamic=False" in {item.reason for item in found.coverage.unmodeled}.pop()
    before(x)
    unknown = record(lambda: before(x), tmp_path / "before").coverage.unmodeled
    assert any(item.name.startswith("Torch-Compiled Region") for item in unknown)
    assert all("not compiled by inductor in this recording" in item.reason for item in unknown)
