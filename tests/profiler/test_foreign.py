"""What is known of a run that somebody else recorded."""

from __future__ import annotations

import json

import pytest

from rooflines.profiler.foreign import run_of_trace
from rooflines.profiler.trace.reader import parse_trace
from tests.traces import add, kernel, launch, mm, op, trace

pytestmark = pytest.mark.unit

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9, "computeMinor": 0, "numSms": 132}


def facts(*events, **head):
    return run_of_trace("a/b/c.json.gz", parse_trace(json.dumps({**head, "traceEvents": list(events)}).encode())).facts


def test_a_trace_names_its_device_and_nothing_else():
    found = facts(launch(0, 1, 1), kernel("k", 2, 3, 1), deviceProperties=[H100]).environment
    assert (found.device, found.device_name) == ("cuda:0", "NVIDIA H100 80GB HBM3")
    assert (found.device_memory_bytes, found.device_units) == (85018279936, 132)
    assert (found.host, found.os, found.torch) == (None, None, None)


def test_the_device_is_the_one_that_worked():
    second = {**kernel("k", 2, 3, 1), "args": {"correlation": 1, "stream": 7, "device": 1}}
    assert facts(second, deviceProperties=[H100, {**H100, "name": "NVIDIA L4"}]).environment.device_name == "NVIDIA L4"


@pytest.mark.parametrize(("category", "device"), [
    ("xpu_runtime", "xpu:0"), ("xpu_driver", "xpu:0"), ("mtia_runtime", "mtia:0"), ("cuda_runtime", "cuda:0"),
])  # fmt: skip
def test_the_platform_is_told_by_its_runtime(category, device):
    assert facts({**launch(0, 1, 1), "cat": category}, kernel("k", 2, 3, 1)).environment.device == device


def test_a_trace_without_device_events_is_of_a_cpu():
    assert facts(add(0, 1), deviceProperties=[H100]).environment.device == "cpu"


@pytest.mark.parametrize("name", [
    "autograd::engine::evaluate_function: MmBackward0", "MmBackward", "torch::autograd::AccumulateGrad", "Optimizer.step#SGD.step",
])  # fmt: skip
def test_what_differentiates_or_optimizes_is_training(name):
    assert facts(op(name, 0, 5)).workload.mode == "training"
    assert facts(add(0, 5)).workload.mode == "inference"


def test_the_precision_is_that_of_most_elements():
    half = op("aten::mm", 0, 1, dims=[[64, 64], [64, 64]], types=["c10::BFloat16", "c10::BFloat16"])
    assert run_of_trace("t", trace(half, mm(2, 1, 8, 8, 8))).facts.workload.precision == "bf16"
    assert run_of_trace("t", trace(half, mm(2, 1, 512, 64, 512))).facts.workload.precision == "fp32"
    assert run_of_trace("t", trace(op("aten::mm", 0, 1))).facts.workload.precision == ""
