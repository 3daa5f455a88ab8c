"""Energy end to end: scripted power, a driver library in C, the real pynvml and sampler process, and what the samples mean."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from rooflines.profiler.records import Environment, Run, RunFile, StepTimes, Workload
from rooflines.profiler.samplers.process import SamplerProcess
from rooflines.roofline.analyze import analyze
from rooflines.roofline.usage.device_usage import Window, usage_of
from rooflines.roofline.usage.energy import LIMIT
from tests.profiler.samplers.nvml_driver.signals import Burst, Constant, Ramp, Square, integral, lines

# A GPU's power never is the same twice, which is how its update period is found: a slow rise stands for that.
DRIFT = Ramp(0, 120, start_s=0, seconds=60)
# The device of each signal, and what it draws.
POWERS = {
    "constant": (Constant(300),),
    "square": (Square(100, 400, period_s=0.5, duty=0.4), DRIFT),
    "slow": (Square(150, 350, period_s=2.9), DRIFT),
    "ramp": (Ramp(100, 2900, start_s=0, seconds=60),),
    "burst": (Constant(60), Burst(400, start_s=0, seconds=0.05, every_s=1.0), DRIFT),
    "wraps": (Constant(400),),
    "stalled": (Constant(250),),
}
EXTRA = {
    # 32 bits of millijoules, reached after 6 s.
    "wraps": "start energy 4292567.296\nwrap energy 4294967.296\n",
    "stalled": "stall energy 0\n",
    "constant": "throttle square 0 4 2 0.5\nsm_clock square 1.33e9 1.9e9 2 0.5 1\nutilization constant 0.93\n",
}
KNOWN = ("constant", "square", "slow", "ramp", "wraps")
# After the sampler has started and watched the counters; the average over a second needs another half behind the end.
BEGIN_S, END_S, SAMPLED_S = 4.3, 8.1, 8.8
# Times of today are floats of a quarter of a microsecond.
ROUNDING_J = 1e-3


class Sampled:
    """All the GPUs, sampled once; ``zero`` is the script's."""

    def __init__(self, zero, samples, counters):
        self.zero, self.samples, self.counters = zero, samples, counters

    def window(self, begin_s=BEGIN_S, end_s=END_S):
        return Window(*(round((self.zero + second) * 1e9) for second in (begin_s, end_s)))

    def device(self, name, begin_s=BEGIN_S, end_s=END_S, without=()):
        """The usage of a device, from samples that lack the fields in ``without``."""
        absent = dict.fromkeys(without)
        samples = [msgspec.structs.replace(one, **absent) for one in self.samples if one.device == name]
        return usage_of(samples, self.counters, self.window(begin_s, end_s), steps=38).of(name)


@pytest.fixture(scope="module")
def sampled(nvml_library, tmp_path_factory):
    folder = tmp_path_factory.mktemp("energy")
    with pytest.MonkeyPatch.context() as patch:
        zero = time.time()
        gpus = [
            f"gpu\nuuid GPU-{name}\n{lines('power', *terms)}limit constant 700\nupdate energy 0.04 0.013\nupdate power_average 0.04\n"
            f"update power_instant 0.04 0.02\n{EXTRA.get(name, '')}"
            for name, terms in POWERS.items()
        ]
        script = folder / "script"
        script.write_text(f"epoch {zero!r}\n{''.join(gpus)}")
        patch.setenv("LD_LIBRARY_PATH", os.pathsep.join(filter(None, [str(nvml_library.parent), os.environ.get("LD_LIBRARY_PATH")])))
        patch.setenv("STAND_IN_NVML", str(script))
        uuids = {name: f"GPU-{name}" for name in POWERS}
        with SamplerProcess(os.getpid(), folder / "samples.jsonl", period_s=0.02, gpus=uuids) as sampler:
            time.sleep(max(0.0, zero + SAMPLED_S - time.time()))
    assert sampler.problem == ""
    return Sampled(zero, sampler.samples(), sampler.counters())


@pytest.mark.parametrize("name", KNOWN)
def test_energy_by_counter_is_right_to_one_percent(sampled, name):
    found = sampled.device(name)
    truth = integral(POWERS[name], BEGIN_S, END_S)
    assert found.energy.method == "counter"
    assert found.energy.energy_j == pytest.approx(truth, rel=0.01)
    assert abs(found.energy.energy_j - truth) <= found.energy.error_j + ROUNDING_J
    assert found.energy.error_j <= LIMIT * truth
    assert found.mean_power_w == pytest.approx(truth / (END_S - BEGIN_S), rel=0.01)


@pytest.mark.parametrize("name", KNOWN)
def test_energy_by_power_is_right_to_one_percent(sampled, name):
    found = sampled.device(name, without=("energy_j",))
    truth = integral(POWERS[name], BEGIN_S, END_S)
    assert found.energy.method == "power"
    assert found.energy.energy_j == pytest.approx(truth, rel=0.01)
    assert abs(found.energy.energy_j - truth) <= found.energy.error_j + ROUNDING_J
    assert found.energy.error_j <= LIMIT * truth


@pytest.mark.parametrize("without", [(), ("energy_j",), ("energy_j", "power_instant_w")])
def test_a_burst_shorter_than_the_readings_resolve_is_refused(sampled, without):
    found = sampled.device("burst", 5.0, 5.05, without)
    assert found.energy is None
    assert found.mean_power_w is None
    assert found.no_energy.needs_s > 0.05
    assert found.no_energy.needs_steps == pytest.approx(found.no_energy.needs_s / (0.05 / 38), abs=1)


def test_a_counter_that_stands_still_gives_way_to_power(sampled):
    found = sampled.device("stalled")
    assert found.energy.method == "power"
    assert found.energy.energy_j == pytest.approx(250 * (END_S - BEGIN_S), rel=0.01)
    alone = sampled.device("stalled", without=("power_w", "power_instant_w"))
    assert "did not change" in alone.no_energy.reason


def test_throttled_time_and_lost_clock_are_those_of_the_script(sampled):
    # Held down, to 1.33 GHz from 1.9, for the first of every two seconds: from 4.3 s to 5 s, from 6 s to 7 s and from 8 s on.
    found = sampled.device("constant")
    assert [reason.reason for reason in found.throttled] == ["software power cap"]
    assert found.throttled_s == pytest.approx(1.8, abs=0.25)
    assert found.clock_loss_fraction == pytest.approx(0.3 * found.throttled_s / (END_S - BEGIN_S), rel=0.02)
    assert found.gauges["gpu_utilization"].mean == pytest.approx(0.93)


def test_a_run_with_a_sampled_gpu_has_the_energy_of_its_steps(sampled):
    steps = StepTimes(timed_ns=(100_000_000,) * 38, timed_began_ns=sampled.window().begin_ns)
    facts = RunFile(
        status="complete",
        workload=Workload(name="net", mode="training", batch_size=16),
        environment=Environment(rooflines="0", device="cuda:0", device_name="stand-in"),
        steps=steps,
        counters=tuple(msgspec.structs.replace(one, device="cuda:0") for one in sampled.counters if one.device == "constant"),
    )
    samples = tuple(msgspec.structs.replace(one, device="cuda:0") for one in sampled.samples if one.device == "constant")
    found = analyze(Run(directory=Path("nowhere"), facts=facts, samples=samples)).usage
    assert found.energy_per_step_j == pytest.approx(30, rel=0.01)
    assert found.energy_per_sample_j == pytest.approx(30 / 16, rel=0.01)
    assert found.of("cuda:0").gauges["power_limit_w"].end == 700
