"""Options of workloads: what they change, what they leave as it was, and what a combination cannot do."""

import copy

import pytest
import torch
from torch import nn

from rooflines.errors import WorkloadError
from rooflines.profiler.options import PointOptions
from rooflines.profiler.records import Workload
from rooflines.profiler.workloads.memory_shortage import memory_shortage
from rooflines.profiler.workloads.prepare import from_module, prepare
from rooflines.profiler.workloads.steps import checkpoint_blocks, fill_state, find_blocks, make_optimizer


def options(**asked):
    return PointOptions(**{"device": "cpu", **asked})


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


def blocks():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Sequential(Block(), Block(), Block()), nn.Linear(8, 2))


def test_compile_takes_true_and_false():
    assert PointOptions(compile=True).compile == "on"
    assert PointOptions(compile=False) == PointOptions()


@pytest.mark.parametrize(("asked", "problem"), [
    ({"compile": "fast"}, "unknown mode of torch.compile 'fast'"),
    ({"optimizer": "lion", "mode": "training"}, "unknown optimizer 'lion'"),
    ({"optimizer": "adam"}, "optimizer applies to training only"),
    ({"checkpointing": True}, "checkpointing applies to training only"),
    ({"data_workers": 2}, "data_workers requires a data set"),
    ({"data": "imagenet"}, "unknown data 'imagenet'"),
    ({"data": "cifar10", "data_workers": -1}, "data_workers must be at least 0, got -1"),
    ({"parallel": "dp"}, "parallel='dp' requires two or more GPUs; this machine has 0"),
    ({"cuda_graphs": True}, "cuda_graphs requires an NVIDIA GPU; the device is cpu"),
    ({"data": "cifar10", "pin_memory": True}, "pin_memory requires an NVIDIA GPU"),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_before_it_runs(asked, problem):
    with pytest.raises(WorkloadError, match=problem):
        prepare("resnet18", options(**asked))


@pytest.mark.parametrize("name", ["sgd", "sgd,foreach", "sgd,fused", "adam", "adam,foreach", "adamw,fused"])
def test_the_first_step_with_filled_state_is_what_it_would_be_without(name):
    filled, empty = blocks(), blocks()
    for network, fill in ((filled, True), (empty, False)):
        optimizer = make_optimizer(name, list(network.parameters()))
        if fill:
            fill_state(optimizer)
            keys = {id(p): set(state) for p, state in optimizer.state.items()}
        for _ in range(3):
            optimizer.zero_grad()
            network(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()
            if fill:
                assert {id(p): set(state) for p, state in optimizer.state.items()} == keys
    for ours, theirs in zip(filled.parameters(), empty.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_checkpointed_blocks():
    # Checkpointed blocks give the same gradients and run twice.
    plain, checkpointed = blocks(), blocks()
    assert [type(one) for one in find_blocks(plain)] == [Block] * 3
    assert checkpoint_blocks(checkpointed, "blocks") == "checkpointed: 3 × Block"
    calls = []
    for block in checkpointed[1]:
        block.first.register_forward_hook(lambda *_: calls.append(1))
    for network in (plain, checkpointed):
        network(torch.ones(2, 4)).square().sum().backward()
    assert len(calls) == 2 * 3
    for ours, theirs in zip(checkpointed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)
    # A network without blocks cannot be checkpointed.
    with pytest.raises(WorkloadError, match="it has no repeated blocks"):
        from_module(nn.Linear(4, 2), torch.ones(1, 4), options(mode="training", checkpointing=True))


@pytest.mark.ci
@pytest.mark.parametrize(("name", "block"), [("resnet18", "8 × BasicBlock"), ("vit_b_16", "12 × EncoderBlock")])
def test_blocks_of_known_networks(name, block):
    prepared = prepare(name, options(mode="training", checkpointing=True))
    assert prepared.notes == (f"checkpointed: {block}",)
    assert prepared.facts.checkpointing


def test_a_network_of_hugging_face_checkpoints_itself(tmp_path):
    small = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 99}
    pytest.importorskip("transformers").BertConfig(architectures=["BertForMaskedLM"], **small).save_pretrained(tmp_path)
    prepared = prepare(f"hf:{tmp_path}", options(mode="training", checkpointing=True, sequence_length=8))
    assert prepared.notes == ("checkpointed: the network's own layers",)
    assert torch.isfinite(prepared.step())


@pytest.mark.ci
@pytest.mark.parametrize(("name", "mode"), [("resnet18", "training"), ("timm:resnet18", "inference")])
def test_a_data_set_feeds_the_step(name, mode):
    prepared = prepare(name, options(data="cifar10", batch_size=2, mode=mode))
    assert (prepared.facts.unit, prepared.facts.image_size) == ("images", 32)
    assert prepared.facts.data == "synthetic images of the size of CIFAR-10 (accuracy not meaningful)"
    result = prepared.step()
    assert result.shape == ((2, 10) if mode == "inference" else ())


def test_a_module_trains_on_labeled_images():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    before = copy.deepcopy(network.state_dict())
    prepared = from_module(network, torch.ones(2, 3, 32, 32), options(data="digits", mode="training", batch_size=4))
    assert torch.isfinite(prepared.step())
    assert not torch.equal(before["0.weight"], network[0].weight)
    prepared.restore()
    assert torch.equal(before["0.weight"], network[0].weight)


@pytest.mark.parametrize(("batch", "asked", "least", "most"), [
    (10**8, 55 * 2**40, 64, 10**8 * 2**40 // (55 * 2**40)),  # 64 GB and 1 TB of memory, and all machines between
    (8, 2**20, 4, 4),
    (7, 2**20, 3, 3),
])  # fmt: skip
def test_the_batch_suggested_fits(batch, asked, least, most):
    error = RuntimeError(f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {asked} bytes.")
    found = memory_shortage(error, Workload(name="m", mode="inference", batch_size=batch), torch.device("cpu"))
    assert found is not None
    assert least <= int(found.hint.removeprefix("Try batch_size=").rstrip(".")) <= most


def test_a_batch_of_one_that_does_not_fit_wants_a_smaller_input():
    error = MemoryError("Unable to allocate 3.55 PiB for an array")
    found = memory_shortage(error, Workload(name="m", mode="inference", batch_size=8), torch.device("cpu"))
    assert found is not None
    assert "3.55 PiB asked for" in found.message
    assert found.hint == "Try a smaller input."
