"""A trace and a recording of the same step agree to the last byte: two ways of seeing the operators, one table of formulas.

The trace comes from the profiler and is divided by ``attribute``; the recording comes from a dispatch mode, on fake tensors where they
behave as real ones do. They have nothing in common before the formulas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_map_only
from torchvision.models import get_model

from rooflines.profiler.fakes import fake_tensors
from rooflines.profiler.noted import note
from rooflines.profiler.recorder import record
from rooflines.profiler.trace.calls import build_calls
from rooflines.profiler.trace.reader import read_trace
from rooflines.profiler.trace.records import STEP_PREFIX
from rooflines.roofline.attribution import attribute
from rooflines.roofline.work import count
from tests.roofline.work.traces import record_trace

pytestmark = pytest.mark.slow

Step = Callable[..., Any]


@dataclass
class Case:
    """A step with the tensors that it works on, beside those of its network."""

    step: Step
    inputs: tuple[Any, ...]


# --- the two paths -----------------------------------------------------------------------------------------------------------------

# Matrix FLOPs, other FLOPs, bytes read, bytes written, calls.
Figures = dict[str, tuple[int, int, int, int, int]]


def summed(found) -> Figures:
    """Figures by operator. Under a mode autograd adds gradients into new tensors, without one in place: the same FLOPs and bytes."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for name, work, calls in found:
        if work.flops or work.bytes:
            total = totals[name.removesuffix("_")]
            for i, value in enumerate((work.matrix_flops, work.other_flops, work.bytes_read, work.bytes_written, 1)):
                total[i] += value * calls
    return {name: tuple(total) for name, total in totals.items()}


def traced(case, path) -> Figures:
    def body():
        with torch.profiler.record_function(f"{STEP_PREFIX}0"):
            case.step(*case.inputs)

    trace = read_trace(record_trace(body, path / "trace.json"))
    found = attribute(trace, build_calls(trace), noted=note(lambda: case.step(*case.inputs)))
    assert found.gaps == ()
    return summed((row.signature.name, row.count.work, row.calls) for row in found.rows if row.count.work)


def recorded(case, fake) -> Figures:
    mode = fake_tensors() if fake else None
    inputs = tree_map_only(torch.Tensor, mode.from_tensor, case.inputs) if mode else case.inputs
    recording = record(lambda: case.step(*inputs), mode)
    counts = [(call.signature.name, count(call.signature, outputs=call.outputs), number) for call, number in recording.calls.items()]
    assert not {(name, found.reason) for name, found, _ in counts if found.kind == "unknown"}
    return summed((name, found.work, number) for name, found, number in counts if found.work)


def check(case, path, *, fake):
    case.step(*case.inputs)  # makes gradients, the optimizer's state and what libraries set up
    assert recorded(case, fake) == traced(case, path)


# --- the networks ------------------------------------------------------------------------------------------------------------------


def inference(model) -> Step:
    model.eval()

    def step(*arguments, **keywords):
        with torch.inference_mode():
            return model(*arguments, **keywords)

    return step


def training(model, optimizer, loss) -> Step:
    model.train()

    def step(*inputs):
        optimizer.zero_grad()
        loss(*inputs).backward()
        optimizer.step()

    return step


def vision(name, mode) -> Case:
    backbone = {"weights_backbone": None} if name.startswith("deeplab") else {}
    model = get_model(name, weights=None, **backbone)
    size = 224 if name == "vit_b_32" else 64
    images, labels = torch.rand(2, 3, size, size), torch.tensor([1, 2])
    if mode == "inference":
        return Case(inference(model), (images,))

    def loss(images, labels):
        output = model(images)
        scores = output["out"].mean((2, 3)) if isinstance(output, dict) else output
        return functional.cross_entropy(scores, labels)

    return Case(training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), loss), (images, labels))


def bert(mode) -> Case:
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, num_labels=5
    )
    model = transformers.BertForSequenceClassification(config)
    tokens, mask, labels = torch.randint(0, 100, (2, 12)), torch.ones(2, 12, dtype=torch.long), torch.tensor([1, 2])
    if mode == "inference":
        return Case(inference(model), (tokens, mask))
    optimizer = torch.optim.AdamW(model.parameters())
    return Case(training(model, optimizer, lambda *inputs: model(inputs[0], inputs[1], labels=inputs[2]).loss), (tokens, mask, labels))


def gpt2(mode) -> Case:
    config = transformers.GPT2Config(
        vocab_size=100, n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=1, loss_type="ForCausalLM"
    )
    model, tokens = transformers.GPT2LMHeadModel(config), torch.randint(0, 100, (2, 12))
    if mode == "training":
        optimizer = torch.optim.AdamW(model.parameters())
        return Case(training(model, optimizer, lambda tokens: model(tokens, labels=tokens).loss), (tokens,))
    if mode == "prefill":
        return Case(inference(model), (tokens,))
    with torch.no_grad():
        layers = [(layer.keys, layer.values) for layer in model(tokens, use_cache=True).past_key_values.layers]
    once = inference(model)

    def decode(token, layers):
        cache = transformers.DynamicCache()
        for index, (keys, values) in enumerate(layers):
            cache.update(keys, values, index)
        once(token, past_key_values=cache, use_cache=True)

    return Case(decode, (tokens[:, :1], layers))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.head = nn.Embedding(50, 16), nn.LSTM(16, 24, 2, batch_first=True), nn.Linear(24, 50)

    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens))[0])


def lstm(mode) -> Case:
    model, tokens = LanguageModel(), torch.randint(0, 50, (3, 7))
    if mode == "inference":
        return Case(inference(model), (tokens,))
    optimizer = torch.optim.Adam(model.parameters())
    return Case(training(model, optimizer, lambda x: functional.cross_entropy(model(x).flatten(0, 1), x.flatten())), (tokens,))


# --- the tests ---------------------------------------------------------------------------------------------------------------------

# Steps that differ on fake tensors, so that the recording works on the real ones.
_VIEWS = "dropout works in place on a view, whose gradient autograd computes otherwise for a subclass of tensors"
_STRIDES = "torch's shape rule of native_layer_norm_backward gives other strides than the kernel, and a copy more"
_MASK = "transformers looks whether a mask hides anything, but not in a fake one"
_STEPS = "Adam computes with the numbers of steps that it made before"
REAL = {
    ("efficientnet_b0", "training"): _VIEWS, ("swin_t", "training"): _STRIDES,
    ("bert", "inference"): _MASK, ("bert", "training"): _MASK,
    ("gpt2", "training"): _STEPS, ("lstm", "training"): _STEPS,
}  # fmt: skip

VISION = (
    "resnet50", "densenet121", "mobilenet_v3_small", "vit_b_32", "convnext_tiny", "efficientnet_b0", "swin_t",
    "deeplabv3_mobilenet_v3_large",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", VISION)
def test_vision(name, mode, tmp_path):
    check(vision(name, mode), tmp_path, fake=(name, mode) not in REAL)


@pytest.mark.parametrize(("make", "mode"), [
    (bert, "inference"), (bert, "training"), (gpt2, "prefill"), (gpt2, "decode"), (gpt2, "training"),
    (lstm, "inference"), (lstm, "training"),
])  # fmt: skip
def test_language(make, mode, tmp_path):
    check(make(mode), tmp_path, fake=(make.__name__, mode) not in REAL)
