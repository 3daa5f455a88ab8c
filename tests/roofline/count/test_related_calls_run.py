"""A network that really ran: what is inferred where the values of arguments are taken out of its trace is what they say."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from torch import nn

from tests.roofline.rooms import attributed


class Block(nn.Module):
    """Two convolutions and a shortcut; a strided one of as many channels in as out fits a transposed one's shapes, too."""

    def __init__(self, before, channels, stride):
        super().__init__()
        self.narrow = nn.Conv2d(before, channels, 1, bias=False)
        self.first = nn.BatchNorm2d(channels)
        self.wide = nn.Conv2d(channels, channels, 3, stride, 1)
        self.second = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = torch.relu(self.first(self.narrow(x)))
        return torch.relu_(self.second(self.wide(y)) + self.shortcut(x))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), Block(16, 16, 1), Block(16, 16, 2), Block(16, 32, 2),
        nn.ConvTranspose2d(32, 32, 3, 2, 1, 1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(32), nn.Linear(32, 10),
    )  # fmt: skip


def work(document):
    """Calls, matrix FLOPs, other FLOPs and bytes of each operator with these shapes; which of them were inferred; what has no count."""
    found = attributed(*document["traceEvents"])
    sums, inferred = {}, set()
    for row in found.rows:
        key = row.signature.name, row.signature.shapes()
        one = row.count.work
        figures = (1, one.matrix_flops, one.other_flops, one.bytes) if one else (1, 0, 0, 0)
        sums.setdefault(key, Counter()).update({place: row.calls * figure for place, figure in enumerate(figures)})
        if row.inferred:
            inferred.add(key)
    return sums, inferred, {gap.name for gap in found.gaps}


@pytest.mark.parametrize("mode", ["training", "frozen norms", "frozen beginning", "autocast", "inference"])
def test_what_is_inferred_is_what_was_taken_out(tmp_path, mode):
    net = network()
    images, labels = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
    if mode in ("frozen norms", "inference"):
        net.eval()
    if mode == "frozen beginning":
        net[:4].requires_grad_(False)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"), torch.set_grad_enabled(mode != "inference"):
            loss = nn.functional.cross_entropy(net(images), labels)
        if mode != "inference":
            loss.backward()

    step()
    with torch.profiler.profile(record_shapes=True) as recording:
        step()
    recording.export_chrome_trace(str(tmp_path / "trace.json"))
    document = json.loads((tmp_path / "trace.json").read_text())
    recorded, nothing, _ = work(document)
    for event in document["traceEvents"]:
        for field in ("Concrete Inputs", "Input Strides"):
            event.get("args", {}).pop(field, None)
    old, inferred, gaps = work(document)
    assert not nothing
    for key in inferred:
        assert old[key] == recorded[key], key
    told = {name.removeprefix("aten::") for name, _ in inferred}
    untold = {name.removeprefix("aten::") for name in gaps}
    norms = {"batch_norm", "_batch_norm_impl_index", "native_batch_norm", "native_batch_norm_backward"}
    assert "convolution" in told
    if mode in ("training", "autocast"):
        assert told >= {"convolution_backward", "native_batch_norm", "native_batch_norm_backward", "mean"}
        assert not untold
        assert sum(one[1] for one in old.values()) == sum(one[1] for one in recorded.values())
    elif mode == "frozen norms":  # a norm that does not count its batches may be one without a module
        assert untold <= norms
    elif mode == "frozen beginning":  # whether the input of a convolution behind a frozen one needs a gradient is not to be told
        assert "convolution_backward" in untold
