"""Accuracy on real labels, scikit-learn's digits, with fewer bits."""

from __future__ import annotations

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
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
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
def trained():
    """A network trained in fp32 and in qat from the same weights; the test images and their labels."""
    digits = datasets.load_digits()
    torch.manual_seed(0)
    order = torch.randperm(len(digits.images))
    images = torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16
    labels = torch.tensor(digits.target)[order]
    plain = network().train()
    train(plain, plain.parameters(), images[TEST:], labels[TEST:], 25)
    rounded = copy.deepcopy(plain)
    graph = quantize(rounded, (images[:TEST],), {}, "qat", CPU).network
    train(graph, graph.parameters(), images[TEST:], labels[TEST:], 3)
    return plain.eval(), converted(graph), images, labels


def as_likely(found, reference, labels):
    """Probability, if both are equally often right, of the samples that only one of them gets right to be divided this unequally."""
    right, expected = found.argmax(1) == labels, reference.argmax(1) == labels
    only_found, only_reference = int((right & ~expected).sum()), int((~right & expected).sum())
    differing = only_found + only_reference
    tail = sum(math.comb(differing, k) for k in range(min(only_found, only_reference) + 1)) / 2**differing
    return min(1.0, 2 * tail)


def test_int8_classifies_digits_as_well_as_fp32(trained):
    plain, qat, images, labels = trained
    x, known = images[:TEST], labels[:TEST]
    errors, results = {}, {}
    with torch.no_grad():
        reference = plain(x)
        accuracy = float((reference.argmax(1) == known).double().mean())
        assert accuracy > 0.9
        for kind in ("int8-weight", "dynamic-int8", "static-int8"):
            calibration = [(images[start : start + TEST],) for start in (TEST, 2 * TEST)] if kind == "static-int8" else []
            results[kind] = quantize(copy.deepcopy(plain), (x,), {}, kind, CPU, calibration=calibration).network(x)
        half = quantize(copy.deepcopy(plain).bfloat16(), (x.bfloat16(),), {}, "int4-weight", CPU)
        results["int4-weight"] = half.network(x.bfloat16()).float()
        results["qat"] = qat(x)
    for kind, result in results.items():
        assert as_likely(result, reference, known) > 0.01, kind
        errors[kind] = float((result - reference).norm() / reference.norm())
    # int4 rounds 84 % of the weights of linear layers to 16 steps, int8 to 255
    assert errors["int8-weight"] < errors["dynamic-int8"] < errors["int4-weight"]
    assert errors["int8-weight"] < errors["static-int8"]
