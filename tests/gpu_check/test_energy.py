"""The energy part over the stand-in driver: what a GPU would give it, without one."""

import time

import pytest

from rooflines.gpu_check import energy
from rooflines.gpu_check.laws import energy_verdict
from tests.profiler.samplers.nvml_driver.signals import Constant, lines


@pytest.mark.slow
def test_both_ways_agree_on_a_held_load(tmp_path, stand_in):
    stand_in(f"gpu\nuuid GPU-a\n{lines('power', Constant(320))}update energy 0.05\n")
    found = energy.measured(time.sleep, {"cuda:0": "GPU-a"}, 2.5, tmp_path / "samples.jsonl")
    for method in (found.counter, found.power):
        assert method.energy_j == pytest.approx(320 * found.window_s, rel=0.01)
    assert energy_verdict(found.counter, found.power)[0]
    assert (tmp_path / "samples.jsonl").read_text().count("\n") > found.readings  # the raw journal stays


@pytest.mark.slow
def test_a_gpu_without_a_counter_does_not_agree_with_itself(tmp_path, stand_in):
    stand_in(f"gpu\nuuid GPU-a\n{lines('power', Constant(320))}error nvmlDeviceGetTotalEnergyConsumption NOT_SUPPORTED\n")
    found = energy.measured(time.sleep, {"cuda:0": "GPU-a"}, 2.1, tmp_path / "samples.jsonl")
    assert energy_verdict(found.counter, found.power) == "no energy by counter: it was not sampled"
