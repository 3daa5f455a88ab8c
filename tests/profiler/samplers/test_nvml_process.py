"""NVIDIA GPUs in the journal of a real sampler process, which loads the stand-in driver by the real pynvml."""

import os
import time

import pytest
import torch

from rooflines.profiler.record.device import MpsMemory
from rooflines.profiler.samplers.process import SamplerProcess
from tests.processes import wait_until
from tests.profiler.samplers.nvml_driver.scripts import FULL
from tests.profiler.samplers.nvml_driver.signals import Burst, Constant, Ramp, Square, integral, lines


def sampled(tmp_path, seconds, *, device="gpu0", readings=2, gpus=None, period_s=0.02):
    """A sampler process that has sampled for some time, longer on a busy machine: until it has this many readings."""
    with SamplerProcess(os.getpid(), tmp_path / "samples.jsonl", period_s=period_s, gpus=gpus) as sampler:
        time.sleep(seconds)
        wait_until(lambda: len(series(sampler, device)) >= readings)
    return sampler


def series(sampler, device):
    return [sample for sample in sampler.samples() if sample.device == device]


def test_full_gpu_is_sampled_under_the_name_it_was_asked_by(stand_in, tmp_path):
    stand_in(FULL)
    sampler = sampled(tmp_path, 0.0, device="cuda:0", gpus={"cuda:0": "11111111-2222-3333-4444-555555555555"})
    assert sampler.problem == ""
    samples = series(sampler, "cuda:0")
    assert len(samples) >= 2
    assert {(sample.power_w, sample.gpu_utilization, sample.throttle_reasons) for sample in samples} == {
        (431.5, 0.97, "software power cap, software thermal slowdown")
    }
    assert {sample.memory_used_bytes for sample in samples} == {3 << 30}


@pytest.mark.ci
def test_energy_and_power_are_the_scripted_ones_at_the_time_they_say(stand_in, tmp_path):
    power = [Square(100, 300, period_s=0.4, duty=0.25), Burst(50, start_s=0.8, seconds=0.3)]
    zero = time.time()
    stand_in(f"epoch {zero!r}\ngpu\n{lines('power', *power)}update energy 0.02\nupdate power_instant 0.02\n")
    samples = series(sampled(tmp_path, 1.0, readings=10, period_s=0.01), "gpu0")
    assert len(samples) >= 10
    fitting = 0
    for sample in samples:
        at_s = sample.time_ns / 1e9 - zero
        # An update ago at most, and what the reading itself took; 350 W at most.
        energy_fits = integral(power, 0, at_s) - 350 * 0.05 <= sample.energy_j <= integral(power, 0, at_s) + 350 * 0.02
        fitting += energy_fits and sample.power_w == pytest.approx(integral(power, at_s - 1, at_s), abs=350 * 0.03)
        assert sample.power_instant_w in (100, 150, 300, 350)
    # A machine that is busy elsewhere may stop the sampler in the middle of a reading.
    assert fitting >= 0.8 * len(samples)
    first, last = samples[0], samples[-1]
    truth_j = integral(power, first.time_ns / 1e9 - zero, last.time_ns / 1e9 - zero)
    assert last.energy_j - first.energy_j == pytest.approx(truth_j, abs=350 * 0.05)


@pytest.mark.ci
def test_update_periods_are_in_the_journal_and_nothing_is_read_faster(stand_in, tmp_path):
    journal = tmp_path / "journal"
    stand_in(
        f"journal {journal}\ngpu\n{lines('power', Ramp(100, 100_000, start_s=0, seconds=1000))}{lines('utilization', Constant(0.5))}"
        "update energy 0.1\nupdate power_average 0.16\nupdate power_instant 0.08\n"
    )
    scripted = {"energy_j": 0.1, "power_w": 0.16, "power_instant_w": 0.08}
    # A machine that is busy elsewhere may keep the sampler from reading for most of a burst.
    for _ in range(3):
        journal.unlink(missing_ok=True)
        sampler = sampled(tmp_path, 1.0, period_s=0.005)
        found = {counter.field: counter for counter in sampler.journal().counters if counter.source == "nvml"}
        measured = {field: found[field].update_s for field in scripted}
        if measured == pytest.approx(scripted, rel=0.2):
            break
    assert measured == pytest.approx(scripted, rel=0.2)
    assert found["gpu_utilization"].update_s is None
    calls = [line.split() for line in journal.read_text().splitlines()]
    read_at = [float(at) for at, function, _ in calls if function == "nvmlDeviceGetUtilizationRates"]
    # The last ones are of the sampling: far fewer than the burst before made, and twice in 80 ms, or a few more where a busy machine
    # lets late readings follow one another.
    assert sum(at > read_at[-1] - 0.8 for at in read_at) <= 1.25 * 0.8 / (found["power_instant_w"].update_s / 2) + 2
    times = [sample.time_ns for sample in series(sampler, "gpu0")]
    assert (times[-1] - times[0]) / 1e9 / (len(times) - 1) >= found["power_instant_w"].update_s / 2 * 0.95


def test_the_driver_is_asked_ten_times_a_second_at_most(monkeypatch):
    held = iter(range(1000))
    clock = {"s": 0.0}
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: next(held) << 20)
    monkeypatch.setattr(time, "monotonic", lambda: clock["s"])
    sampler = MpsMemory()
    for _ in range(200):
        sampler.note()
        clock["s"] += 0.01
    assert 18 <= len(sampler.noted) <= 23
    assert [sample.process_memory_bytes for sample in sampler.noted] == [number << 20 for number in range(len(sampler.noted))]
    assert {(sample.source, sample.device) for sample in sampler.noted} == {("mps", "mps")}
