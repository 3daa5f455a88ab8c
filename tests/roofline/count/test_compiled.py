"""Compiled code in traces written by hand: which kernel an event is, of which module, and what only dispatches."""

from __future__ import annotations

from rooflines.profiler.compiled.records import Access, Buffer, CompiledCode, CompiledKernel, Graph
from rooflines.profiler.read.signature import Signature, StoredCall, TensorArg
from rooflines.profiler.tree.tree import BACKWARD, FORWARD, module_annotation
from tests.roofline.rooms import attributed, divided
from tests.traces import add, kernel, launch, mm, op, span

N = 100
X = TensorArg((N,), "float32", (1,))
# aten::relu and aten::exp of N elements, and a product
NODES = (
    StoredCall.of(Signature("aten::relu", (X,)), (X,)),
    StoredCall.of(Signature("aten::exp", (X,)), (X,)),
    StoredCall.of(Signature("aten::mm", (TensorArg((4, 8)), TensorArg((8, 2)))), (TensorArg((4, 2)),)),
)
RELU, EXP = 1 * N, 10 * N
BUFFERS = (Buffer((N,), "float32", (1,)), Buffer((N,), "float32", (1,)))
EDGES = {"reads": (Access(0, N, 0, N - 1),), "writes": (Access(1, N, 0, N - 1),)}


def fused(name, node, module=None, **more):
    return CompiledKernel(name=name, nodes=(node,), module=module, **EDGES, **more)


def extern(name, module=None, nodes=()):
    return CompiledKernel(name=name, extern=True, module=module, nodes=nodes)


def graph(*kernels, region="0/0", backward=False, modules=None, prefix=None):
    return Graph(region=region, backward=backward, kernels=kernels, buffers=BUFFERS, modules=modules or {}, prefix=prefix)


def region(ts, dur, name="0/0", **more):
    return op(f"Torch-Compiled Region: {name}", ts, dur, **more)


def divide(code, *events):
    result = divided(*events, code=code)
    return result, result.calls


def flops(result):
    """FLOPs of one call of every fused kernel, by name and phase."""
    return {
        (row.signature.name, row.phase): row.count.work.flops
        for row in result.rows
        if row.count.work is not None and row.count.work.flops
    }


def gaps(result):
    return {gap.name: gap.reason for gap in result.gaps}


def paths(result, calls):
    return {row.signature.name: calls.modules[row.module].path for row in result.rows if row.module >= 0}


def test_a_kernel_has_its_facts_and_what_is_around_it_dispatches():
    code = CompiledCode(graphs=(graph(fused("graph_0_cpp_fused_relu_0", 0)),), nodes=NODES)
    result, _ = divide(code, op("TorchDynamo Cache Lookup", 0, 5), region(10, 100), op("graph_0_cpp_fused_relu_0", 20, 60))
    rows = {row.signature.name: row for row in result.rows}
    one = rows["graph_0_cpp_fused_relu_0"]
    assert (one.time_ns, one.count.work.flops, one.count.work.bytes) == (60_000, RELU, 8 * N)
    assert one.signature.shapes() == str(N)
    assert (rows["Torch-Compiled Region: 0/0"].time_ns, rows["Torch-Compiled Region: 0/0"].count.kind) == (40_000, "composite")
    assert rows["TorchDynamo Cache Lookup"].count.kind == "composite"
    assert result.gaps == ()


def test_without_facts_it_stays_unknown_with_a_reason():
    reasons = gaps(attributed(region(10, 100), op("graph_0_cpp_fused_relu_0", 20, 60)))
    assert "traces do not record its arguments" in reasons["graph_0_cpp_fused_relu_0"]
    assert "not compiled by inductor in this recording" in reasons["Torch-Compiled Region: 0/0"]


def test_what_was_compiled_outside_of_the_recording_stays_unknown():
    code = CompiledCode(graphs=(graph(fused("graph_0_cpp_fused_relu_0", 0), region="1/0"),), nodes=NODES)
    result, _ = divide(code, region(0, 100, "0/0"), op("graph_0_cpp_fused_relu_0", 20, 60), region(200, 50, "1/0"))
    assert gaps(result) == {
        "graph_0_cpp_fused_relu_0": "a kernel that was compiled outside of the recording",
        "Torch-Compiled Region: 0/0": "not compiled by inductor in this recording: kernels in it may leave no event of their own",
    }


def test_a_function_compiled_to_nothing_only_dispatches():
    result, _ = divide(CompiledCode(empty=("3/0",)), region(0, 10, "3/0"))
    assert result.gaps == ()


def test_the_backward_is_told_by_the_forward_that_made_it():
    # two compilations whose backwards have a kernel of the same name, as graphs count their kernels from 0
    code = CompiledCode(
        graphs=(
            graph(fused("triton_poi_fused_0", 0)),
            graph(fused("triton_poi_fused_0", 1), backward=True),
            graph(fused("triton_poi_fused_0", 1), region="1/0"),
            graph(fused("triton_poi_fused_0", 0), region="1/0", backward=True),
        ),
        nodes=NODES,
    )
    node = "autograd::engine::evaluate_function: CompiledFunctionBackward"
    result, _ = divide(
        code,
        region(0, 20), op("CompiledFunction", 1, 18, seq=5), op("triton_poi_fused_0", 2, 10),
        region(30, 20, "1/0"), op("CompiledFunction", 31, 18, seq=6), op("triton_poi_fused_0", 32, 11),
        op(node, 100, 20, tid=2, seq=6, fwd=1), op("CompiledFunctionBackward", 101, 18, tid=2, seq=6, fwd=1),
        op("triton_poi_fused_0", 102, 12, tid=2),
        op(node, 130, 20, tid=2, seq=5, fwd=1), op("CompiledFunctionBackward", 131, 18, tid=2, seq=5, fwd=1),
        op("triton_poi_fused_0", 132, 13, tid=2),
    )  # fmt: skip
    rows = sorted((row.time_ns, row.phase, row.count.work.flops) for row in result.rows if row.signature.name.startswith("triton"))
    assert rows == [(10_000, FORWARD, RELU), (11_000, FORWARD, EXP), (12_000, BACKWARD, RELU), (13_000, BACKWARD, EXP)]
    assert result.gaps == ()


def test_calls_of_one_name_take_turns():
    # the same source for two layers is one kernel with one name, called twice
    code = CompiledCode(graphs=(graph(fused("triton_poi_fused_0", 0, "a"), fused("triton_poi_fused_0", 0, "b")),), nodes=NODES)
    events = [region(0, 50), op("triton_poi_fused_0", 1, 10), op("triton_poi_fused_0", 20, 20)]
    result, calls = divide(code, *events, region(100, 50), op("triton_poi_fused_0", 101, 10), op("triton_poi_fused_0", 120, 20))
    rows = {calls.modules[row.module].path: (row.calls, row.time_ns) for row in result.rows if row.module >= 0}
    assert rows == {"a": (2, 20_000), "b": (2, 40_000)}


def test_modules_are_those_of_the_graph_below_the_module_that_was_compiled():
    code = CompiledCode(
        graphs=(
            graph(
                fused("graph_0_cpp_fused_relu_0", 0, "stem.act"), extern("aten::mm", "stem.fc"),
                fused("graph_0_cpp_fused_exp_1", 1, ""),
                modules={"stem": "Stem", "stem.act": "ReLU", "stem.fc": "Linear"},
            ),
        ),
        nodes=NODES,
    )  # fmt: skip
    events = [
        span(module_annotation("body", "Body"), 0, 200), region(1, 190), op("graph_0_cpp_fused_relu_0", 10, 20),
        op("aten::empty", 35, 2), mm(40, 30, 4, 8, 2), op("graph_0_cpp_fused_exp_1", 80, 20),
    ]  # fmt: skip
    result, calls = divide(code, *events)
    found = paths(result, calls)
    assert found["graph_0_cpp_fused_relu_0"] == "body.stem.act"
    assert found["aten::mm"] == "body.stem.fc"
    assert found["graph_0_cpp_fused_exp_1"] == "body"
    ran = {module.path: (module.type, int(count)) for module, count in zip(calls.modules, calls.module_calls, strict=True)}
    assert ran == {"body": ("Body", 1), "body.stem": ("Stem", 1), "body.stem.act": ("ReLU", 1), "body.stem.fc": ("Linear", 1)}


def test_the_place_in_the_network_is_better_known_from_the_recording():
    code = CompiledCode(
        graphs=(graph(fused("graph_0_cpp_fused_relu_0", 0, "act"), modules={"act": "ReLU"}, prefix="head"),), nodes=NODES
    )
    result, calls = divide(code, span(module_annotation("", "Net"), 0, 200), region(1, 190), op("graph_0_cpp_fused_relu_0", 10, 20))
    assert paths(result, calls)["graph_0_cpp_fused_relu_0"] == "head.act"


def test_operators_between_kernels_have_no_module_where_their_number_differs():
    code = CompiledCode(
        graphs=(graph(fused("graph_0_cpp_fused_relu_0", 0), extern("aten::mm", "fc"), modules={"fc": "Linear"}),), nodes=NODES
    )
    result, calls = divide(code, region(0, 200), op("graph_0_cpp_fused_relu_0", 10, 20), mm(40, 30, 4, 8, 2), mm(80, 30, 4, 8, 2))
    assert "aten::mm" not in paths(result, calls)


def test_an_operator_that_the_trace_leaves_unclear_has_the_graphs_arguments():
    # aten::mm without shapes, as of an operator whose arguments a trace cannot hold
    code = CompiledCode(
        graphs=(graph(fused("graph_0_cpp_fused_relu_0", 0), extern("aten::mm", "fc", nodes=(2,)), modules={"fc": "Linear"}),),
        nodes=NODES,
    )
    result, _ = divide(code, region(0, 200), op("graph_0_cpp_fused_relu_0", 10, 20), op("aten::mm", 40, 30))
    assert flops(result)["aten::mm", FORWARD] == 2 * 4 * 8 * 2


def test_two_graphs_that_cannot_be_told_apart_are_not_guessed():
    code = CompiledCode(graphs=(graph(fused("triton_poi_fused_0", 0)), graph(fused("triton_poi_fused_0", 1))), nodes=NODES)
    result, _ = divide(code, region(0, 50), op("triton_poi_fused_0", 1, 10))
    assert gaps(result) == {"triton_poi_fused_0": "several compiled graphs have kernels of this name"}


def test_kernels_outside_of_any_region_are_told_by_their_names():
    code = CompiledCode(graphs=(graph(fused("graph_0_cpp_fused_relu_0", 0)), graph(fused("graph_1_cpp_fused_exp_0", 1))), nodes=NODES)
    result, _ = divide(code, op("graph_1_cpp_fused_exp_0", 1, 10), add(20, 5))
    assert flops(result) == {("graph_1_cpp_fused_exp_0", FORWARD): EXP, ("aten::add", FORWARD): 1000}


def test_on_a_gpu_the_time_is_that_of_what_the_kernels_event_launched():
    code = CompiledCode(
        graphs=(graph(fused("triton_poi_fused_relu_0", 0, "act"), extern("aten::mm", "fc"), modules={"act": "ReLU", "fc": "Linear"}),),
        nodes=NODES,
    )
    triton = op("triton_poi_fused_relu_0", 10, 20, dims=[[N], [N], []], types=["float", "float", "Scalar"], concrete=["", "", str(N)])
    result, calls = divide(
        code,
        region(0, 100), triton, launch(15, 5, 1) | {"cat": "cuda_driver", "name": "cuLaunchKernel"},
        mm(50, 30, 4, 8, 2), launch(60, 5, 2),
        kernel("triton_poi_fused_relu_0", 40, 7, 1), kernel("sm90_gemm", 70, 9, 2),
    )  # fmt: skip
    assert {row.signature.name: row.time_ns for row in result.rows} == {"triton_poi_fused_relu_0": 7_000, "aten::mm": 9_000}
    assert flops(result)["triton_poi_fused_relu_0", FORWARD] == RELU
    assert paths(result, calls) == {"triton_poi_fused_relu_0": "act", "aten::mm": "fc"}


def test_a_kernel_of_varying_sizes_says_so():
    code = CompiledCode(graphs=(graph(CompiledKernel(name="graph_0_cpp_fused_relu_0", reason="sizes vary")),), nodes=NODES)
    result, _ = divide(code, region(0, 50), op("graph_0_cpp_fused_relu_0", 1, 10))
    assert gaps(result) == {"graph_0_cpp_fused_relu_0": "sizes vary"}
