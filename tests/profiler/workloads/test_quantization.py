"""Quantized networks: what is quantized, with which kernels, and how far the results are from fp32."""

import copy
import functools
import importlib.util

import pytest
import torch
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer

import rooflines
from rooflines.errors import WorkloadError
from rooflines.profiler.calls.fakes import fake_tensors
from rooflines.profiler.read.signature import from_kineto
from rooflines.profiler.workloads.quantization import check, converted, inductor_settings, quantize
from rooflines.profiler.workloads.quantized_graph import lowered, static_graph
from rooflines.roofline.count.formulas import count
from tests.roofline.formulas.traces import operator_events

pytest.importorskip("torchao")
CPU = torch.device("cpu")
INT8 = ("dynamic-int8", "static-int8", "int8-weight")


class Residual(nn.Module):
    """A layer whose result is added to a part of a tensor that is used again."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(33, 65), nn.Linear(65, 33)

    def forward(self, x):
        whole = torch.sin(x)
        part = whole[0]
        return part + self.down(torch.relu(self.up(part))), whole * 2


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 9, 3, bias=False), nn.BatchNorm2d(9, eps=0.1, momentum=0.3), nn.ReLU6(), nn.Conv2d(9, 12, 3, groups=3, stride=2),
        nn.SiLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(12 * 9, 35), nn.GELU(), nn.Linear(35, 7),
    )  # fmt: skip


def without_norms():
    return nn.Sequential(nn.Conv2d(3, 9, 3), nn.ReLU6(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(9 * 49, 7))


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(96, 4, 160, batch_first=True), 1, enable_nested_tensor=False)


def transformer():
    network = VisionTransformer(32, 16, 1, 2, 32, 64)
    network.heads.head.reset_parameters()  # zeros otherwise
    return network


NETWORKS = {
    "convolutions": (convolutions, (5, 3, 9, 9)),
    "without norms": (without_norms, (5, 3, 9, 9)),
    "encoder": (encoder, (3, 17, 96)),
    "transformer": (transformer, (2, 3, 32, 32)),
}


def made(name):
    """A network in evaluation mode whose batch norms have seen its input, and the input."""
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    network, x = make(), torch.randn(shape)
    with torch.no_grad():
        network.train()(x)
    return network.eval(), x


@functools.cache
def quantized(name, kind):
    """The quantized network, made once for all who run it."""
    network, x = made(name)
    return quantize(network, (x,), {}, kind, CPU)


def distance(found, reference):
    return float((found.detach() - reference.detach()).norm() / reference.detach().norm())


@pytest.mark.parametrize(("kind", "settings", "message"), [
    ("static-int8", {"mode": "training"}, "quantize='static-int8' applies to inference only. Use quantize='qat' in training."),
    ("qat", {}, "quantize='qat' applies to training only. Add mode='training'."),
    ("static-int8", {"precision": "bf16"}, "quantizes an fp32 network, got precision='bf16'. Remove precision."),
    ("qat", {"mode": "training", "precision": "amp-bf16"}, "quantize='qat' quantizes an fp32 network"),
    ("int4-weight", {}, "quantize='int4-weight' requires activations in bf16, got fp32. Add precision='bf16'."),
    ("static-int8", {"device": torch.device("cuda", 0)}, "has kernels for x86 CPUs; the device is cuda:0. Use device='cpu'."),
    ("dynamic-int8", {"device": torch.device("mps")}, "has kernels for CPUs and NVIDIA GPUs; the device is mps."),
])  # fmt: skip
def test_a_combination_that_cannot_run_is_refused(kind, settings, message):
    with pytest.raises(WorkloadError) as error:
        check(kind, **{"mode": "inference", "precision": "fp32", "device": CPU} | settings)
    assert message in str(error.value)


def test_what_can_run_is_not_refused_and_without_torchao_the_package_is_named(monkeypatch):
    # What can run is not refused.
    for kind in ("none", *INT8):
        check(kind, mode="inference", precision="fp32", device=CPU)
    check("qat", mode="training", precision="fp32", device=CPU)
    check("int4-weight", mode="inference", precision="bf16", device=CPU)
    # Without torchao the package is named.
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torchao" else find(name))
    with pytest.raises(WorkloadError, match=r"requires torchao, which is not installed\. pip install 'rooflines\[quantization\]'"):
        check("dynamic-int8", mode="inference", precision="fp32", device=CPU)


@pytest.mark.ci
def test_what_cannot_be_quantized_is_refused():
    # A network without such layers is refused.
    network = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(WorkloadError, match=r"does not apply to Sequential: dynamic-int8 has no kernels for convolutions\. Use"):
        quantize(network, (torch.rand(1, 3, 5, 5),), {}, "dynamic-int8", CPU)

    # A network that cannot be exported is refused.
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(WorkloadError, match=r"quantize='static-int8' cannot export Branching: .* Use quantize='dynamic-int8'"):
        quantize(Branching(), (torch.rand(3),), {}, "static-int8", CPU)
    # Ranges need data.
    with fake_tensors():
        network, x = nn.Linear(8, 8), torch.rand(3, 8)
        with pytest.raises(Exception, match="static-int8 needs the values of weights"):
            quantize(network, (x,), {}, "static-int8", CPU)
        assert quantize(network, (x,), {}, "dynamic-int8", CPU).layers.quantized == 1


# Products of the layers that are quantized: 2 for each element of a result and of a row of the weight.
CONVOLUTIONS = (2 * 5 * 9 * 49 * 3 * 9, 2 * 5 * 12 * 9 * 3 * 9)
LINEAR = (2 * 5 * 35 * 108, 2 * 5 * 7 * 35)
FEED_FORWARD = (2 * 51 * 160 * 96,) * 2
PATCHES = 2 * 2 * 32 * 4 * 3 * 256
VISION_LINEAR = (2 * 10 * 64 * 32, 2 * 10 * 32 * 64, 2 * 2 * 1000 * 32)
INT8_FLOPS = {
    ("convolutions", "static-int8"): (*CONVOLUTIONS, *LINEAR), ("convolutions", "dynamic-int8"): LINEAR,
    ("encoder", "static-int8"): FEED_FORWARD, ("encoder", "dynamic-int8"): FEED_FORWARD,
    ("transformer", "static-int8"): (PATCHES, *VISION_LINEAR), ("transformer", "dynamic-int8"): VISION_LINEAR,
}  # fmt: skip
LAYERS = ["convolutions", "encoder", pytest.param("transformer", marks=pytest.mark.slow)]  # which has layers of both


@pytest.mark.ci
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", INT8)
def test_the_work_is_all_counted_and_done_by_int8_kernels(name, kind):
    network, x = made(name)
    plain = rooflines.count(network, x)
    found = quantized(name, kind)
    counted = rooflines.count(found.network, x)
    assert counted.coverage == 1
    assert counted.matrix_flops == plain.matrix_flops
    int8 = sum(row.matrix_flops for row in counted.operators if row.precision == "int8")
    # only a weight: its elements are widened, and the product is that of the activations
    assert int8 == (0 if kind == "int8-weight" else sum(INT8_FLOPS[name, kind]))


def test_attention_and_sizes_without_a_kernel_are_left_out():
    # Attention is left out and said so.
    network, x = made("encoder")
    found = quantize(network, (x,), {}, "dynamic-int8", CPU)
    assert found.layers[:2] == (2, 4)
    assert found.notes == (
        "dynamic-int8: 2 of 4 layers",
        "dynamic-int8 has no kernels for the projections of attention",
    )
    # Int4 skips sizes without a kernel.
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 48), nn.Linear(48, 32), nn.Linear(32, 16), nn.Linear(16, 7)).bfloat16().eval()
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    found = quantize(network, (x,), {}, "int4-weight", CPU)
    assert found.layers == (2, 4)
    rows = {row.name: row for row in rooflines.count(found.network, x).operators if row.matrix_flops}
    assert "aten::_weight_int4pack_mm_for_cpu" in rows


@pytest.mark.ci
def test_inputs_and_ranges():
    # Keyword inputs.
    network, x = made("encoder")
    with torch.no_grad():
        found = quantize(network, (), {"src": x}, "static-int8", CPU)
        assert distance(found.network(src=x), network(x)) < 0.1
    # More inputs widen the ranges.
    network, x = made("without norms")
    with torch.no_grad():
        reference = network(10 * x)
        narrow = quantize(network, (x,), {}, "static-int8", CPU).network
        wide = quantize(network, (x,), {}, "static-int8", CPU, calibration=[(10 * x,)]).network
        assert distance(wide(10 * x), reference) < distance(narrow(10 * x), reference) / 2


def test_weights_are_rounded_to_255_steps_of_each_row():
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Linear(257, 65, bias=False)).eval(), torch.eye(257)
    weight = network[0].weight.detach().clone()
    quantize(network, (x,), {}, "int8-weight", CPU)
    with torch.no_grad():
        error = network(x).T - weight
    step = weight.abs().amax(1, keepdim=True) / 127.5
    assert bool((error.abs() <= 0.5001 * step).all())
    # rounding errors are uniform in a step, whose variance is its square by 12
    assert float(error.square().mean()) == pytest.approx(float((step**2 / 12).mean()), rel=0.05)


@pytest.mark.ci
@pytest.mark.parametrize("name", LAYERS)
def test_fewer_bits_make_larger_errors(name):
    network, x = made(name)
    errors = {}
    with torch.no_grad():
        reference = network(x)
        for kind in INT8:
            errors[kind] = distance(quantized(name, kind).network(x), reference)
        if name == "encoder":
            half = quantize(copy.deepcopy(network).bfloat16(), (x.bfloat16(),), {}, "int4-weight", CPU).network
            errors["int4-weight"] = distance(half(x.bfloat16()).float(), reference)
            assert max(errors, key=errors.get) == "int4-weight"
    assert errors["int8-weight"] < errors["dynamic-int8"]
    assert errors["int8-weight"] < errors["static-int8"]


@pytest.mark.ci
@pytest.mark.parametrize("name", LAYERS)
def test_int8_kernels_compute_what_the_converted_graph_says(name):
    network, x = made(name)
    graph, layers = static_graph(network, (x,), {}, ())
    kernels = lowered(graph)
    called = [str(node.target) for node in kernels.graph.nodes if str(node.target).startswith("onednn.q")]
    assert len(called) == layers.quantized
    with torch.no_grad():
        # a value between two integers may be rounded to either
        assert distance(kernels(x), graph(x)) < distance(graph(x), network(x))


@pytest.mark.ci
def test_modules_and_operands_are_left_as_they_were():
    # A layer does not write into its operand.
    torch.manual_seed(0)
    network, x = Residual().eval(), torch.randn(3, 5, 33)
    kept = x.clone()
    with torch.no_grad():
        expected = network(x)
        found = quantize(network, (x,), {}, "static-int8", CPU).network
        for _ in range(2):
            part, whole = found(x)
            assert torch.equal(whole, expected[1])
            assert distance(part, expected[0]) < 0.05
    assert torch.equal(x, kept)
    # A restored module is as it was.
    network, x = made("encoder")
    text = str(network)
    modules = [(module, dict(module._parameters)) for module in network.modules()]
    with torch.no_grad():
        before = network(x)
        quantize(network, (x,), {}, "dynamic-int8", CPU)
        for module, own in modules:
            module._parameters.update(own)
        assert torch.equal(network(x), before)
    assert str(network) == text


@pytest.mark.slow
@pytest.mark.parametrize("kind", INT8)
def test_compiled_code_computes_the_same(kind):
    network, x = made("convolutions")
    eager = quantize(copy.deepcopy(network), (x,), {}, kind, CPU).network
    torch.compiler.reset()
    with torch.inference_mode(), inductor_settings(kind):
        compiled = torch.compile(quantize(network, (x,), {}, kind, CPU, compiled=True).network, dynamic=False)
        assert distance(compiled(x), eager(x)) < 1e-3


@pytest.mark.ci
def test_training_without_rounding_is_that_of_the_network():
    from torchao.quantization.pt2e import disable_fake_quant

    network, x = made("convolutions")
    network[5].p = 0.0
    plain = copy.deepcopy(network).train()
    buffers = {name: value.clone() for name, value in network.named_buffers()}
    graph = quantize(network.train(), (x,), {}, "qat", CPU).network
    assert all(torch.equal(value, buffers[name]) for name, value in network.named_buffers())
    graph.apply(disable_fake_quant)
    assert distance(graph(x), plain(x)) < 1e-5
    assert distance(network[1].running_var, plain[1].running_var) < 1e-2  # of a convolution whose weight was scaled and rounded back
    assert distance(graph.eval()(x), plain.eval()(x)) < 1e-2


@pytest.mark.ci
@pytest.mark.parametrize("name", [
    "without norms",
    # torchao exports a hundred patterns to find the batch norms
    pytest.param("convolutions", marks=pytest.mark.slow),
])  # fmt: skip
def test_training_changes_the_parameters_of_the_network_and_is_converted(name):
    network, x = made(name)
    graph = quantize(network.train(), (x,), {}, "qat", CPU).network
    assert {id(p) for p in graph.parameters()} >= {id(p) for p in network.parameters()}
    optimizer = torch.optim.SGD(graph.parameters(), lr=0.01)
    before = network[0].weight.clone()
    for _ in range(5):
        graph(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not torch.equal(network[0].weight, before)
    int8 = converted(graph)
    with torch.no_grad():
        exact = network.eval()(x)
        assert distance(int8(x), exact) < 2 * distance(graph.eval()(x), exact)  # rounded to as many steps
        graph.train()
    assert any("dropout" in str(node.target) and node.args[1:] == (0.1, True) for node in graph.graph.nodes)
    counted = rooflines.count(int8, x)
    assert {row.precision for row in counted.operators if row.matrix_flops} == {"int8"}


@pytest.mark.ci
@pytest.mark.parametrize("kind", INT8)
def test_every_operator_of_a_trace_has_a_formula(kind, tmp_path):
    network, x = made("convolutions")
    found = quantize(network, (x,), {}, kind, CPU)
    with torch.inference_mode():
        events = operator_events(lambda: found.network(x), tmp_path / "trace.json")
    counts = [count(from_kineto(event["name"], event["args"])) for event in events if event["cat"] == "cpu_op"]
    assert {one.kind for one in counts} <= {"counted", "composite"}
    int8 = sum(one.work.matrix_flops for one in counts if one.work and one.work.precision == "int8")
    assert int8 == (0 if kind == "int8-weight" else sum(INT8_FLOPS["convolutions", kind]))
