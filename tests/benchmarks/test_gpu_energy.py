"""The energy part of ``make gpu-check``, over the stand-in driver: what a GPU would give it, without one."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from tests.profiler.samplers.nvml_driver.signals import Constant, lines

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_energy.py"


@pytest.fixture(scope="module")
def gpu_energy():
    spec = importlib.util.spec_from_file_location("gpu_energy", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_both_ways_agree_on_a_held_load(gpu_energy, stand_in):
    stand_in(f"gpu\nuuid GPU-a\n{lines('power', Constant(320))}update energy 0.05\n")
    found = gpu_energy.measure(time.sleep, {"cuda:0": "GPU-a"}, 2.5)
    assert found["agrees"]
    for method in ("counter", "power"):
        assert found[method]["energy_j"] == pytest.approx(320 * found["window_s"], rel=0.01)
    assert gpu_energy.sentence(found).startswith(f"{found['counter']['energy_j']:.0f} J ±")


@pytest.mark.slow
def test_a_gpu_without_a_counter_does_not_agree_with_itself(gpu_energy, stand_in):
    stand_in(f"gpu\nuuid GPU-a\n{lines('power', Constant(320))}error nvmlDeviceGetTotalEnergyConsumption NOT_SUPPORTED\n")
    found = gpu_energy.measure(time.sleep, {"cuda:0": "GPU-a"}, 2.1)
    assert not found["agrees"]
    assert "nothing by counter: it was not sampled" in gpu_energy.sentence(found)
