"""What is noted of compiled code, on graphs that inductor really compiles: the arithmetic of each kernel is written beside it."""

import contextlib
import re
import subprocess
import sys
import textwrap

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch.nn import functional as F

from rooflines.errors import RunError
from rooflines.profiler.compiled import inductor
from rooflines.profiler.compiled.inductor import VARYING, GraphReader, InductorWatch, call_of
from rooflines.profiler.compiled.records import (
    COMPILED_FILE,
    Access,
    Buffer,
    CompiledCode,
    CompiledKernel,
    Graph,
    read_compiled,
    write_compiled,
)
from rooflines.profiler.read.signature import MISSING, Signature, StoredCall, TensorArg
from rooflines.roofline.count.formulas.costs import MEAN_AND_VARIANCE, SOFTMAX
from rooflines.roofline.count.formulas.graph import count_kernel, count_node

# Takes seconds to compile or to start.
pytestmark = pytest.mark.ci

R, C = 64, 48
N = R * C


def compile_and_run(function, *inputs, backward=False, **options):
    """What inductor made of ``function``, and what the compiled function returned."""
    torch.compiler.reset()
    with InductorWatch() as watch:
        result = torch.compile(function, **{"dynamic": False, **options})(*inputs)
        if backward:
            result.sum().backward()
    code = watch.code()
    assert code is not None
    assert code.problems == ()
    return code, result


def generated(code, backward=False):
    """The work of every generated kernel of the only graph."""
    (graph,) = [graph for graph in code.graphs if graph.backward == backward]
    found = [count_kernel(kernel, graph.buffers, code.nodes) for kernel in graph.kernels if not kernel.extern]
    assert [one.reason for one in found] == [""] * len(found)
    return [one.work for one in found]


@contextlib.contextmanager
def threads(number):
    """Inductor generates other code for one thread than for several."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


def tensor(*shape, dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(shape).to(dtype)


def in_place(moving, new):
    moving.mul_(0.9).add_(new)
    return new * 2


# The function, its inputs, and its FLOPs, bytes read and bytes written.
BF16, FP16 = tensor(R, C, dtype=torch.bfloat16), tensor(R, C, dtype=torch.float16)
WORKS = {
    "a chain moves only its ends": (lambda a, b: (torch.relu(a) + b) * 2, (tensor(R, C), tensor(R, C)), 3 * N, 2 * 4 * N, 4 * N),
    "a vector that broadcasts is read once, and slices in part": (
        lambda a, b: a[:, : C // 2] * 2 + b, (tensor(R, C), tensor(C // 2)), 2 * N // 2, 4 * N // 2 + 4 * C // 2, 4 * N // 2,
    ),
    # softmax is three loops over each row here; the input is read once, maxima and sums stay inside
    "loops over the same memory read it once": (
        lambda a: torch.softmax(torch.relu(a), -1), (tensor(R, C),), N + SOFTMAX * N, 4 * N, 4 * N,
    ),
    "changes in place read and write": (in_place, (tensor(R, C), tensor(R, C)), 3 * N, 2 * 4 * N, 2 * 4 * N),
    "a gather reads the rows that it selects": (
        lambda t, i: F.embedding(i, t) * 2, (tensor(1000, C), torch.arange(R) * 3), N, 4 * N + 8 * R, 4 * N,
    ),
    # bf16 and fp16 in; bf16, fp32 and bool out
    "dtypes are the real ones": (
        lambda a, b: (a + 1, b.float() * 2, a > 0), (BF16, FP16), 3 * N, (2 + 2) * N, (2 + 4 + 1) * N,
    ),
    "joined tensors are written where they belong": (
        lambda a, b: torch.cat([torch.relu(a), b * 2], 1), (tensor(R, C), tensor(R, C)), 2 * N, 2 * 4 * N, 2 * 4 * N,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("function", "inputs", "flops", "read", "written"), WORKS.values(), ids=WORKS)
def test_work_of_generated_kernels(function, inputs, flops, read, written):
    code, _ = compile_and_run(function, *inputs)
    works = generated(code)
    assert len(works) == 1 or function is WORKS["joined tensors are written where they belong"][0]
    assert sum(work.other_flops for work in works) == flops
    assert (sum(work.bytes_read for work in works), sum(work.bytes_written for work in works)) == (read, written)


def test_what_is_added_to_rows_is_read_and_written_there_alone():
    def add(values, rows):
        return torch.zeros(1000, C).index_add(0, rows, values)

    code, _ = compile_and_run(add, tensor(R, C), torch.arange(R))
    work = generated(code)[-1]
    # the zeros are made and added to inside: all of it is written once, and nothing but the values and their places is read
    assert (work.bytes_read, work.bytes_written) == (4 * N + 8 * R, 4 * 1000 * C)


@pytest.mark.parametrize(("number", "flops", "outside"), [(1, N, []), (2, 0, ["aten::scatter_reduce_"])])
def test_what_several_threads_leave_to_an_operator_is_not_counted_in_a_kernel(number, flops, outside):
    def add(values, places):
        return torch.zeros(R, 2 * C).scatter_add(1, places, values)

    with threads(number):
        code, _ = compile_and_run(add, tensor(R, C), torch.arange(C).expand(R, C).contiguous())
    (graph,) = code.graphs
    assert sum(work.flops for work in generated(code)) == flops
    assert [kernel.name for kernel in graph.kernels if kernel.extern] == outside


def test_what_prepares_a_convolution_is_a_copy():
    convolution = nn.Conv2d(4, 8, 3)
    image = tensor(2, 4, 10, 10)
    code, result = compile_and_run(lambda x: convolution(x), image)
    (graph,) = code.graphs
    assert [kernel.name for kernel in graph.kernels if kernel.extern] == ["aten::convolution"]
    # what the generated kernels do is to store the image and the weights as the library wants them, and the result as the caller does
    works = generated(code)
    assert sum(work.flops for work in works) == 0
    assert sum(work.bytes for work in works) == 2 * 4 * (image.numel() + convolution.weight.numel() + result.numel())


class Block(nn.Module):
    """Everything that inductor treats differently: convolutions, statistics over channels and rows, pooling, products, dropout."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        x = self.first(x)
        x = self.pool(torch.relu(self.second(x) + x)).mean((2, 3))
        return torch.softmax(F.gelu(self.norm(self.head(self.drop(x)))), -1)


@pytest.fixture(scope="module")
def block():
    """The facts of a training step of ``Block``, and the FLOPs of each graph that inductor was given, counted operator by operator."""
    flops = []

    def total(graph):
        calls = [call for node in graph.nodes if node.op == "call_function" and (call := call_of(node)) is not None]
        found = [count_node(call) for call in calls]
        assert [(call.name, one.reason) for call, one in zip(calls, found, strict=True) if one.work is None] == []
        flops.append(sum(one.work.flops for one in found))

    torch.manual_seed(0)
    network = Block()
    with inductor_config.patch(post_grad_custom_post_pass=total), threads(1):
        code, _ = compile_and_run(network, tensor(2, 3, 16, 16), backward=True)
    return code, flops


def test_every_operator_of_a_graph_is_counted_once_in_one_of_its_calls(block):
    code, flops = block
    assert len(code.graphs) == 2
    for graph, total in zip(code.graphs, flops, strict=True):
        kernels = [count_kernel(kernel, graph.buffers, code.nodes).work for kernel in graph.kernels if not kernel.extern]
        outside = [count_node(code.nodes[number]).work for kernel in graph.kernels if kernel.extern for number in kernel.nodes]
        assert sum(work.flops for work in (*kernels, *outside)) == total


def test_statistics_regions_and_modules_of_a_graph(block, tmp_path):
    # A statistic is counted where its input is read.
    code, _ = block
    forward = next(graph for graph in code.graphs if not graph.backward)
    names = {kernel.name: [code.nodes[number].name for number in kernel.nodes] for kernel in forward.kernels}
    (reader,) = [name for name, nodes in names.items() if nodes.count("aten::var_mean") and "batch_norm" in name]
    kernel = next(kernel for kernel in forward.kernels if kernel.name == reader)
    images = 2 * 8 * 16 * 16
    assert count_kernel(kernel, forward.buffers, code.nodes).work.other_flops > MEAN_AND_VARIANCE * images
    assert any(access.elements == images for access in kernel.reads)
    # Forward and backward share a region.
    code, _ = block
    assert [(graph.region, graph.backward) for graph in code.graphs] == [("0/0", False), ("0/0", True)]
    names = [kernel.name for graph in code.graphs for kernel in graph.kernels if not kernel.extern]
    assert all(re.match(r"graph_\d+_cpp_fused_", name) for name in names)
    # Calls name their modules.
    code, _ = block
    forward, backward = code.graphs
    modules = {kernel.name: kernel.module for kernel in forward.kernels if kernel.extern}
    assert modules["aten::addmm"] == "head"
    assert [kernel.module for kernel in forward.kernels if kernel.name == "aten::convolution"] == ["first.0", "second"]
    assert [kernel.module for kernel in backward.kernels if kernel.name == "aten::convolution_backward"] == ["second", "first.0"]
    assert {"first": "Sequential", "first.1": "BatchNorm2d", "head": "Linear", "norm": "LayerNorm"}.items() <= forward.modules.items()
    # The file keeps it all.
    code, _ = block
    assert write_compiled(code, tmp_path) == COMPILED_FILE
    assert read_compiled(tmp_path / COMPILED_FILE) == code


def test_sizes_that_vary_are_not_guessed():
    code, _ = compile_and_run(lambda a: torch.relu(a) * 2, tensor(R, C), dynamic=True)
    (kernel,) = code.graphs[0].kernels
    assert kernel.reason == VARYING
    assert kernel.nodes == ()


def test_the_configuration_is_as_before_and_hooks_of_others_are_called():
    seen = []

    def theirs(nodes):
        seen.append(len(nodes))
        return nodes

    names = ("_pre_fusion_custom_pass", "cpp.enable_kernel_profile", "fx_graph_cache")
    with inductor_config.patch(_pre_fusion_custom_pass=theirs):
        before = [getattr(inductor_config, name) for name in names]
        compile_and_run(torch.sin, tensor(R, C))
        assert [getattr(inductor_config, name) for name in names] == before
    assert seen == [1]


def test_code_that_cannot_be_read_is_compiled_all_the_same(monkeypatch):
    def refuse(reader):
        raise AttributeError("no such thing")

    monkeypatch.setattr(GraphReader, "graph", refuse)
    torch.compiler.reset()
    x = tensor(R, C)
    with InductorWatch() as watch:
        result = torch.compile(lambda a: torch.cos(a) * 2)(x)
    assert torch.allclose(result, torch.cos(x) * 2)
    assert watch.code().problems == ("a compiled graph could not be read (AttributeError: no such thing)",)


def test_it_begins_when_inductor_is_loaded_and_loads_nothing_itself():
    script = """
        import sys
        import torch
        from rooflines.profiler.compiled.inductor import InductorWatch
        with InductorWatch() as watch:
            torch.relu(torch.ones(3))
            assert "torch._inductor" not in sys.modules
            assert watch.code() is None
            torch.compile(lambda x: torch.relu(x) * 2)(torch.ones(3))
        (graph,) = watch.code().graphs
        print(len(graph.kernels), watch.code().problems, sys.meta_path[0])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 () ")
    assert "rooflines.profiler.hooks.replaced" not in done.stdout


@pytest.mark.parametrize(("source", "path"), [
    ("L['self']", ""), ("L['self'].layer1.0.conv1", "layer1.0.conv1"), ("L['fn'].layers[3].mlp", "layers.3.mlp"),
    ("G['model']._modules['layer1']._modules['0']", "layer1.0"), ("L['self']._orig_mod.head", "head"),
])  # fmt: skip
def test_paths_are_those_of_named_modules(source, path):
    assert inductor._path(source) == path


@pytest.mark.parametrize(("ids", "names", "prefix"), [
    ({"a": 1}, {1: "head.a"}, "head"), ({"a.b": 1}, {1: "a.b"}, ""), ({"": 1}, {1: "body.head"}, "body.head"),
    ({"a": 1, "c": 2}, {2: "x.c"}, "x"), ({"a": 1}, {1: "other"}, None), ({"a": 1}, {1: "schema"}, None), ({}, {1: "a"}, None),
])  # fmt: skip
def test_the_place_of_compiled_code_is_told_by_one_of_its_modules(ids, names, prefix):
    assert inductor._prefix(ids, names) == prefix


def test_what_is_stored_comes_back(tmp_path):
    signature = Signature("aten::where", (TensorArg((2, 3), "float32", (3, 1)), float("-inf"), None, MISSING, (1, True), "none"))
    node = StoredCall.of(signature, (TensorArg((2, 3), "bool", (3, 1)),))
    access = Access(0, 6, 0, 5, adds=True, anywhere=True)
    kernel = CompiledKernel(name="k", module="", nodes=(0,), reads=(access,), writes=(access,))
    graph = Graph(
        region="0/0", backward=True, kernels=(kernel,), buffers=(Buffer((2, 3), "float32", None),), modules={"a": "B"}, prefix=""
    )
    code = CompiledCode(graphs=(graph,), nodes=(node,), empty=("1/0",), problems=("none",))
    write_compiled(code, tmp_path)
    found = read_compiled(tmp_path / COMPILED_FILE)
    assert found == code
    assert found.nodes[0].signature == signature
    assert found.nodes[0].results == (TensorArg((2, 3), "bool", (3, 1)),)


@pytest.mark.parametrize("text", [None, "", "{", '{"graphs": [{"region": 3}]}', '{"schema": "rooflines.compiled/0"}'])
def test_a_file_that_cannot_be_read_says_so(tmp_path, text):
    path = tmp_path / COMPILED_FILE
    if text is not None:
        path.write_text(text)
    with pytest.raises(RunError, match=r"compiled\.json"):
        read_compiled(path)
