"""Memory of Apple GPUs, with torch's answer set by the test: the run asks for it between steps, and not at every one."""

import time

import torch

from rooflines.profiler.samplers.mps import MpsSampler


def test_the_driver_is_asked_ten_times_a_second_at_most(monkeypatch):
    held = iter(range(1000))
    clock = {"s": 0.0}
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: next(held) << 20)
    monkeypatch.setattr(time, "monotonic", lambda: clock["s"])
    sampler = MpsSampler()
    for _ in range(200):
        sampler.note()
        clock["s"] += 0.01
    assert 18 <= len(sampler.noted) <= 23
    assert [sample.process_memory_bytes for sample in sampler.noted] == [number << 20 for number in range(len(sampler.noted))]
    assert {(sample.source, sample.device) for sample in sampler.noted} == {("mps", "mps")}
