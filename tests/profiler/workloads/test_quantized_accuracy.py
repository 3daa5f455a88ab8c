"""Accuracy on real labels, scikit-learn's digits, with fewer bits."""

import copy
import math

import pytest
import torch
from torch import nn

from rooflines.profiler.workloads.quantization import converted, quantize

pytest.importorskip("torchao")
datasets = pytest.importorskip("sklearn.datasets")
CPU = torch.device("cpu")
TEST = 360


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(called, parameters, images, labels, epochs):
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    batches = len(images) // TEST
    for _ in range(epochs):
        order = torch.randperm(len(images))[: batches * TEST]
        for chosen in order.view(batches, TEST):
            optimizer.zero_grad()
            nn.functional.cross_entropy(called(images[chosen]), labels[chosen]).backward()
            optimizer.step()


@pytest.fixture(scope="module")
def digits():
    """Images [N, 1, 8, 8] from 0 to 1 and their labels; the first are for the test."""
    found = datasets.load_digits()
    order = torch.randperm(len(found.images), generator=torch.Generator().manual_seed(0))
    return torch.tensor(found.images, dtype=torch.float32)[order, None] / 16, torch.tensor(found.target)[order]


@pytest.fixture(scope="module")
def plain(digits):
    """A network trained in fp32."""
    images, labels = digits
    torch.manual_seed(0)
    made = network().train()
    train(made, made.parameters(), images[TEST:], labels[TEST:], 15)
    return made.eval()


def as_likely(found, reference, labels):
    """Probability, if both are equally often right, of the samples that only one of them gets right to be divided this unequally."""
    right, expected = found.argmax(1) == labels, reference.argmax(1) == labels
    only_found, only_reference = int((right & ~expected).sum()), int((~right & expected).sum())
    differing = only_found + only_reference
    tail = sum(math.comb(differing, k) for k in range(min(only_found, only_reference) + 1)) / 2**differing
    return min(1.0, 2 * tail)


@pytest.mark.ci
def test_int8_classifies_digits_as_well_as_fp32(digits, plain):
    images, labels = digits
    x, known = images[:TEST], labels[:TEST]
    results = {}
    with torch.no_grad():
        reference = plain(x)
        assert float((reference.argmax(1) == known).double().mean()) > 0.9
        for kind in ("int8-weight", "dynamic-int8", "static-int8"):
            calibration = [(images[start : start + TEST],) for start in (TEST, 2 * TEST)] if kind == "static-int8" else []
            results[kind] = quantize(copy.deepcopy(plain), (x,), {}, kind, CPU, calibration=calibration).network(x)
        half = quantize(copy.deepcopy(plain).bfloat16(), (x.bfloat16(),), {}, "int4-weight", CPU)
        results["int4-weight"] = half.network(x.bfloat16()).float()
    assert all(as_likely(result, reference, known) > 0.01 for result in results.values())


@pytest.mark.slow
def test_training_with_rounding_keeps_the_accuracy(digits, plain):
    images, labels = digits
    trained = copy.deepcopy(plain).train()
    graph = quantize(trained, (images[:TEST],), {}, "qat", CPU).network
    train(graph, graph.parameters(), images[TEST:], labels[TEST:], 3)
    with torch.no_grad():
        assert as_likely(converted(graph)(images[:TEST]), plain(images[:TEST]), labels[:TEST]) > 0.01
