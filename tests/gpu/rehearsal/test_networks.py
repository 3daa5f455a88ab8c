"""The networks part: what needs no GPU, with the libraries that compute on the host."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from rooflines.profiler.read.reader import read
from rooflines.profiler.read.records import KERNEL
from tests.gpu import test_networks as networks
from tests.gpu.parts import Findings, Recorder
from tests.gpu.rehearsal import CPU, outcome
from tests.gpu.test_networks import TorchCnn


def test_labeled_images_can_be_told_apart():
    x, y = networks.labeled(400)
    assert (x.shape, x.dtype, y.shape) == ((400, 1, 28, 28), np.float32, (400,))
    centers = np.stack([x[:200][y[:200] == number].mean(axis=0) for number in range(10)])
    distances = ((x[200:, None] - centers) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == y[200:]).mean() > 0.95


def test_networks_train_in_turn(tmp_path):
    """Two sides that are the same: the ratio lies between its extremes, and both lose the same."""
    x, y = networks.labeled(32)
    sides = [TorchCnn("cpu"), TorchCnn("cpu")]
    sides[1].name = "other"
    found = networks.in_turn(sides, x, y, batch=16, rounds=3, round_s=0.05)
    assert found["ratio_least"] <= found["ratio"] <= found["ratio_most"]
    assert set(found["samples_per_s"]) == {"torch-cpu", "other"}
    assert all(rate > 0 for rate in found["samples_per_s"].values())
    part = Recorder(tmp_path, CPU, 60.0)
    part.figure("training", found)
    assert part.findings.figures["training"]["ratio"] == found["ratio"]
    curves = [networks.losses(TorchCnn("cpu"), x, y, 16, 5) for _ in range(2)]
    np.testing.assert_allclose(*curves, rtol=1e-5)
    assert curves[0][0] != curves[0][1]


def test_perceptron_operator_by_operator(tmp_path):
    part = Recorder(tmp_path, CPU, 60.0)
    part.figure("rows", rows := networks.perceptron(("numpy", "torch-cpu"), samples=200, rounds=2)["operators"])
    assert part.findings.figures["rows"] == rows
    assert [row["name"] for row in rows if row["layer"] == "dense1"][:2] == ["matrix product", "bias"]
    assert all(row["ratio"] == pytest.approx(row["numpy"] / row["torch-cpu"]) for row in rows)


def test_kernels_of_a_step_are_those_of_the_trace(tmp_path):
    """The same file as an independent reader counts it; a trace without kernels says so."""
    trace = Path(__file__).parents[2] / "data" / "traces" / "bert-small_h100_inference.json.gz"
    (tmp_path / "trace.json").write_bytes(gzip.decompress(trace.read_bytes()))
    device = read(trace).device
    kernels = device.kind == KERNEL
    found = networks.launches(tmp_path / "trace.json", 2)
    assert found["launches"] == kernels.sum() / 2
    assert found["busy_s"] == pytest.approx((device.end_ns - device.start_ns)[kernels].sum() / 2e9)
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    assert networks.launches(tmp_path / "empty.json", 2) == {"left_out": "the profiler saw no kernels"}


@pytest.mark.ci
@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would measure")
def test_what_cannot_be_done_here_is_left_out_with_a_reason(tmp_path):
    part = Recorder(tmp_path, CPU, 60.0)
    networks.measure(part)
    found = part.findings
    assert found.figures == {}
    assert [one.what for one in found.left_out] == ["numba-cuda beside torch-cuda", "CuPy beside NumPy"]
    assert "needs an NVIDIA GPU" in found.left_out[0].reason


@pytest.mark.parametrize(("ratio", "rate", "difference", "kernels", "expected"), [
    (0.5, 71_759, 0.01, {"launches": 13}, {}),
    (0.49, 900_000, 0.0, {"launches": 13}, {"speed >= 0.5 x torch, data resident": "failed"}),
    (1.5, 71_758, 0.0, {"launches": 13}, {"more than 71,758 samples/s": "failed"}),
    (1.5, 900_000, 0.02, {"launches": 14}, {"losses within 0.01 of torch's": "failed", "13 kernels per step": "failed"}),
    (1.5, 900_000, 0.0, {"left_out": "the profiler saw no kernels"}, {"13 kernels per step": "left out"}),
])  # fmt: skip
def test_targets_of_the_networks(ratio, rate, difference, kernels, expected):
    training = {
        "ratio": ratio, "ratio_least": ratio, "ratio_most": ratio, "samples_per_s": {"numba-cuda": rate, "torch-cuda": 1.0},
        "curves": {"largest_difference": difference}, "kernels": {"numba-cuda": kernels},
    }  # fmt: skip
    found = Findings(figures={"training": training})
    outcomes = {law: outcome(judge(found, None)) for law, judge in networks.LAWS.items()}
    assert len(outcomes) == 4
    assert {law: known for law, known in outcomes.items() if known != "ok"} == expected
