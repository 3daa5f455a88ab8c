"""``benchmarks/gpu_networks.py``: what needs no GPU, with the libraries that compute on the host."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gpu_networks():
    return load("gpu_networks")


def test_labelled_images_can_be_told_apart(gpu_networks):
    x, y = gpu_networks.labelled(400)
    assert (x.shape, x.dtype, y.shape) == ((400, 1, 28, 28), np.float32, (400,))
    centres = np.stack([x[:200][y[:200] == number].mean(axis=0) for number in range(10)])
    distances = ((x[200:, None] - centres) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == y[200:]).mean() > 0.95


def test_networks_train_in_turn(gpu_networks, capsys):
    """Two sides that are the same: a ratio about 1, and the same losses."""
    from rooflines.kernels.networks.cnn_torch import TorchCnn

    x, y = gpu_networks.labelled(32)
    sides = [TorchCnn("cpu"), TorchCnn("cpu")]
    sides[1].name = "other"
    found = gpu_networks.in_turn(sides, x, y, batch=16, rounds=3, round_s=0.05)
    assert found["ratio_least"] <= found["ratio"] <= found["ratio_most"]
    assert set(found["samples_per_s"]) == {"torch-cpu", "other"}
    assert all(rate > 0 for rate in found["samples_per_s"].values())
    assert "torch-cpu / other: " in capsys.readouterr().out
    curves = [gpu_networks.losses(TorchCnn("cpu"), x, y, 16, 5) for _ in range(2)]
    np.testing.assert_allclose(*curves, rtol=1e-5)
    assert curves[0][0] != curves[0][1]


def test_perceptron_operator_by_operator(gpu_networks, capsys):
    found = gpu_networks.perceptron(("numpy", "torch-cpu"), samples=200, rounds=2)
    rows = found["operators"]
    assert [row["name"] for row in rows if row["layer"] == "dense1"][:2] == ["matrix product", "bias"]
    assert all(row["ratio"] == pytest.approx(row["numpy"] / row["torch-cpu"]) for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would measure")
def test_says_what_it_cannot_do_here(tmp_path):
    output = tmp_path / "networks.json"
    command = [sys.executable, str(FOLDER / "gpu_networks.py"), "--output", str(output)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "training: left out: numba-cuda needs an NVIDIA GPU" in found.stdout
    assert "perceptron: left out: " in found.stdout
    written = json.loads(output.read_text())
    assert set(written) == {"batch_size", "training", "perceptron"}
    assert all("left_out" in written[part] for part in ("training", "perceptron"))


@pytest.mark.parametrize(
    ("ratio", "rate", "difference", "launches", "failed"),
    [
        (0.5, 71_759, 0.01, 13, []),
        (0.49, 900_000, 0.0, 13, ["numba-cuda >= 0.5 x torch-cuda, data resident"]),
        (1.5, 71_758, 0.0, 13, ["numba-cuda > 71,758 samples/s"]),
        (1.5, 900_000, 0.02, 14, ["numba-cuda and torch-cuda: losses within 0.01", "numba-cuda: 13 kernels a step"]),
    ],
)
def test_targets_of_the_networks(ratio, rate, difference, launches, failed):
    gpu_check, checks = load("gpu_check"), []
    training = {
        "ratio": ratio, "ratio_least": ratio, "ratio_most": ratio, "samples_per_s": {"numba-cuda": rate, "torch-cuda": 1.0},
        "curves": {"largest_difference": difference}, "kernels": {"numba-cuda": {"launches": launches}},
    }  # fmt: skip
    gpu_check.check_networks({"training": training, "perceptron": {"left_out": "no CuPy"}}, checks)
    assert [check["what"] for check in checks if not check["ok"]] == failed
    assert len(checks) == 4


def test_networks_that_were_left_out_are_not_checked():
    checks = []
    load("gpu_check").check_networks({"training": {"left_out": "no GPU"}}, checks)
    assert checks == []
