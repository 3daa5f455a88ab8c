"""Workloads: everything that has a name prepares and runs a step; what was asked for holds; what was lent comes back as it was."""

import copy
from collections import UserDict

import pytest
import torch
from torch import nn

from rooflines.errors import DeviceError, WorkloadError
from rooflines.profiler.calls.recorder import record
from rooflines.profiler.options import PointOptions, find_device
from rooflines.profiler.records import Workload
from rooflines.profiler.workloads.prepare import from_module, from_step, prepare


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def options(**asked):
    return PointOptions(**{"device": "cpu", **asked})


def step(prepared):
    with prepared.flags():
        return prepared.step()


BOTH, ONLY_INFERENCE = ("inference", "training"), ("inference",)
NETWORKS = [
    ("mobilenet_v3_small", 64, BOTH, "images"),
    ("googlenet", 64, BOTH, "images"),  # two auxiliary classifiers in training
    ("inception_v3", 299, BOTH, "images"),  # one, which takes no smaller images
    ("fasterrcnn_mobilenet_v3_large_320_fpn", 128, BOTH, "images"),
    ("lraspp_mobilenet_v3_large", 64, BOTH, "images"),
    ("r3d_18", 16, BOTH, "clips"),
    ("raft_small", 128, ONLY_INFERENCE, "frame pairs"),
    ("quantized_shufflenet_v2_x0_5", 64, ONLY_INFERENCE, "images"),
    ("timm:resnet18", 64, BOTH, "images"),
    ("timm:vit_tiny_patch16_224", 64, BOTH, "images"),  # built for the size asked for
    ("hf:bert", None, BOTH, "sequences"),
    ("hf:gpt2", None, BOTH, "sequences"),
    ("hf:vit", 64, BOTH, "images"),
    ("hf:t5", None, BOTH, "sequences"),  # an encoder and a decoder
]

# A training step prepares what an inference does and more.
SLOW = {
    ("inception_v3", "training"), ("hf:gpt2", "inference"), ("hf:gpt2", "training"), ("hf:bert", "inference"), ("hf:t5", "inference"),
    ("hf:vit", "inference"), ("fasterrcnn_mobilenet_v3_large_320_fpn", "inference"),
}  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize(("name", "size", "unit", "mode"), [
    pytest.param(name, size, unit, mode, id=f"{name}-{mode}", marks=pytest.mark.slow if (name, mode) in SLOW else ())
    for name, size, modes, unit in NETWORKS
    for mode in modes
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_named_network_runs_a_step(name, size, unit, mode):
    prepared = prepare(name, options(mode=mode, image_size=size, batch_size=2, sequence_length=8))
    output = step(prepared)
    facts = prepared.facts
    assert (facts.name, facts.mode, facts.batch_size, facts.unit) == (name, mode, 2, unit)
    if unit == "images":
        assert facts.image_size == size
    assert facts.optimizer == ("SGD" if mode == "training" else None)
    if mode == "training":
        assert output.dim() == 0
        assert torch.isfinite(output)


def test_seeds_and_sizes():
    # The seed fixes weights and inputs.
    first, again, other = (step(prepare("squeezenet1_1", options(image_size=32, seed=seed))) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    # Flow networks get a multiple of eight.
    assert prepare("raft_small", options(image_size=130)).facts.image_size == 136


class Looks(nn.Module):
    """A convolution that keeps what it saw."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.seen = {}

    def forward(self, x):
        y = self.convolution(x)
        self.seen = {
            "input": x.dtype, "weight": self.convolution.weight.dtype, "output": y.dtype, "threads": torch.get_num_threads(),
            "grad": torch.is_grad_enabled(), "inference": torch.is_inference_mode_enabled(), "training": self.training,
            "last": [t.is_contiguous(memory_format=torch.channels_last) for t in (x, self.convolution.weight, y)],
        }  # fmt: skip
        return y


def look(**asked):
    network = Looks()
    step(from_module(network, torch.randn(2, 3, 8, 8), options(**asked)))
    return network.seen


def test_tensors_in_any_mapping_get_the_precision_of_the_network():
    class TakesBatch(nn.Linear):
        """Its input is in a mapping that torch's trees do not know, as a tokenizer returns it."""

        def forward(self, batch):
            return super().forward(batch["x"])

    step(from_module(TakesBatch(4, 4), {"batch": UserDict(x=torch.randn(2, 4))}, options(precision="bf16")))


FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize(
    ("precision", "weight", "output"),
    [("fp32", FP32, FP32), ("bf16", BF16, BF16), ("fp16", FP16, FP16), ("amp-bf16", FP32, BF16), ("amp-fp16", FP32, FP16)],
)
def test_precision_is_that_of_weights_or_of_autocast(precision, weight, output, mode):
    seen = look(precision=precision, mode=mode)
    assert (seen["input"], seen["weight"], seen["output"]) == (weight, weight, output)


def test_a_half_precision_that_an_operator_lacks_is_said_to_be_the_reason():
    class Lacks(nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    prepared = from_module(Lacks(), torch.eye(3), options(precision="fp16"))
    with pytest.raises(WorkloadError, match="Lacks does not run in fp16 on cpu") as caught:
        step(prepared)
    assert "precision='fp32'" in caught.value.hint


@pytest.mark.parametrize(("asked", "seen"), [
    ({}, {"grad": False, "inference": True, "training": False, "last": [False] * 3}),
    ({"mode": "training"}, {"grad": True, "inference": False, "training": True}),
    ({"channels_last": True}, {"last": [True] * 3}),
    ({"threads": 2}, {"threads": 2}),
])  # fmt: skip
def test_mode_layout_and_threads_hold_while_it_runs(asked, seen):
    with torch.no_grad():  # the caller's own mode does not reach in
        found = look(**asked)
    assert {key: found[key] for key in seen} == seen
    assert torch.get_num_threads() == 1


def test_channels_last_in_three_dimensions():
    network = nn.Conv3d(3, 4, 3)
    inputs = []
    network.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    step(from_module(network, torch.randn(1, 3, 4, 8, 8), options(channels_last=True)))
    assert inputs[0].is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.ci
@pytest.mark.parametrize("mode", [pytest.param("inference", marks=pytest.mark.slow), "training"])
def test_a_compiled_network_computes_the_same(mode):
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.randn(2, 8)
    plain = step(from_module(network, x, options(mode=mode)))
    prepared = from_module(network, x, options(mode=mode, compile=True))
    assert prepared.facts.compiled
    torch.testing.assert_close(step(prepared), plain)


@pytest.mark.parametrize("inputs", [(torch.ones(2, 4), torch.ones(2, 4)), {"a": torch.ones(2, 4), "b": torch.ones(2, 4)}])
def test_inputs_are_a_tuple_or_keywords(inputs):
    class Adds(nn.Module):
        def forward(self, a, b):
            return a + b

    prepared = from_module(Adds(), inputs, options())
    assert torch.equal(step(prepared), torch.full((2, 4), 2.0))
    assert prepared.facts.batch_size == 2


def test_training_uses_the_loss_of_the_output_where_it_has_one():
    class Loses(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return {"loss": (self.weight * 3).sum(), "logits": self.weight * x}

    assert step(from_module(Loses(), torch.randn(2, 1), options(mode="training"))).item() == 3.0


@pytest.mark.parametrize(("network", "inputs", "message"), [
    (nn.ReLU(), torch.randn(1), "no parameters to train"),
    (nn.Linear(2, 2), None, "the module Linear requires inputs"),
])  # fmt: skip
def test_a_module_that_cannot_train_is_refused(network, inputs, message):
    with pytest.raises(WorkloadError, match=message):
        from_module(network, inputs, options(mode="training"))


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("asked", [{}, {"precision": "bf16"}, {"channels_last": True}, {"precision": "amp-bf16"}], ids=str)
def test_a_module_comes_back_as_it_was(mode, asked):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval(), nn.Dropout())
    network[0].weight.grad = torch.ones_like(network[0].weight)
    network[0].bias.requires_grad_(False)
    before, flags = copy.deepcopy(network.state_dict()), [m.training for m in network.modules()]
    parameters, places = list(network.parameters()), [p.data_ptr() for p in network.parameters()]
    step(from_module(network, torch.randn(2, 3, 8, 8), options(mode=mode, **asked)))
    assert [m.training for m in network.modules()] == flags
    assert all(a is b for a, b in zip(network.parameters(), parameters, strict=True))
    assert [p.data_ptr() for p in network.parameters()] == places
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name
        assert value.dtype == before[name].dtype
        assert value.stride() == before[name].stride()
    assert torch.equal(network[0].weight.grad, torch.ones_like(network[0].weight))
    assert network[0].bias.grad is None


def test_a_module_that_is_refused_comes_back_too():
    network = nn.Linear(2, 2)
    network.train()
    with pytest.raises(WorkloadError, match="does not apply to"):
        from_module(network, torch.randn(1, 2), options(precision="bf16", channels_last=True))
    assert network.training
    assert network.weight.dtype == torch.float32


@pytest.mark.parametrize("name", ["gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:one", "", "CUDA"])
def test_names_that_are_no_device(name):
    with pytest.raises(DeviceError, match="unknown device"):
        find_device(name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_number_that_is_too_high_says_how_many_there_are():
    with pytest.raises(DeviceError, match=r"this machine has \d+ GPU"):
        find_device("cuda:99")


def test_options_and_precisions_are_checked_from_python_too():
    # Options are checked from python too.
    with pytest.raises(WorkloadError, match="unknown mode 'train'"):
        PointOptions(mode="train").check()  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="unknown precision 'half'"):
        PointOptions(precision="half").check()
    # Tf32 is refused on a cpu.
    with pytest.raises(WorkloadError, match="precision='tf32' is available on NVIDIA GPUs only"):
        prepare("squeezenet1_1", options(precision="tf32"))
    prepared = from_step(lambda: 7, options(batch_size=3), name="mine")
    assert step(prepared) == 7
    assert prepared.facts == Workload(name="mine", mode="inference", batch_size=3, source="step")


def test_a_factory_is_called_with_what_its_signature_names(tmp_path):
    (tmp_path / "beside.py").write_text("WIDTH = 5\n")
    path = tmp_path / "json.py"  # a name that is taken
    path.write_text(
        "import torch\n"
        "def make(batch_size, device, mode, seed, extra=1):\n"
        "    import beside\n"
        "    assert (str(device), mode, seed, extra) == ('cpu', 'inference', 4, 1)\n"
        "    return torch.nn.Linear(beside.WIDTH, 2), torch.randn(batch_size, beside.WIDTH)\n"
    )
    import json
    import sys

    paths = list(sys.path)
    prepared = prepare(f"{path}:make", options(batch_size=6, seed=4))
    assert step(prepared).shape == (6, 2)
    assert prepared.facts.name == "json.py:make"
    assert sys.modules["json"] is json, "a user's file must not replace a module of the same name"
    assert sys.path == paths


def test_all_training_steps_compute_the_same():
    """What ``rooflines count`` counts once is what ``rooflines profile`` repeats."""
    prepared = prepare("resnet18", PointOptions(mode="training", image_size=64))
    first, second = (record(prepared.step, None, restore=False).calls for _ in range(2))
    assert first == second
