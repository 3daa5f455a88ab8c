"""Memory by component is measured apart from the total, and adds up to it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
PARTS = ("parameters", "input", "activations", "gradients", "overhead")


def measured(library, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "rooflines.kernels.networks.perceptron_memory", "--library", library, *arguments],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("samples", [2_000, 30_000])
def test_the_components_add_up_to_the_growth_of_the_process(samples):
    found = measured("numpy", "--samples", str(samples))
    assert sum(found[part] for part in PARTS) == pytest.approx(found["total"], rel=0.05)
    # What NumPy reported is what the arrays of these shapes hold: float32, and int64 classes.
    assert found["input"] == pytest.approx(samples * (784 * 4 + 8), rel=0.01)
    assert found["parameters"] == pytest.approx(4 * 7960, rel=0.05)
    # two outputs and two sums of ten numbers, and the numbers of the rows
    assert found["activations"] == pytest.approx(samples * (4 * 10 * 4 + 8), rel=0.05)
    assert found["gradients"] == pytest.approx(samples * 2 * 10 * 4 + 4 * 7960, rel=0.05)


@pytest.mark.gpu
@NEEDS_GPU
def test_the_components_of_cupy_add_up_to_what_the_device_gave():
    found = measured("cupy")
    assert sum(found[part] for part in PARTS) == pytest.approx(found["total"], rel=0.05)
