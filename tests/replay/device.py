"""The replayed device: at the seam where hardware starts, it yields a recorded trace, event times and an environment.

It takes its time: a step occupies the device for as long as it lasts, and ``synchronize`` waits for the end. So what is measured
around it by real clocks (the sampler, the host) fits what the device says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from rooflines.profiler.hooks.module_hooks import ModuleRanges
from rooflines.profiler.machine.environment import collect_environment, nvidia_driver
from rooflines.profiler.record.device import RecordedDevice
from rooflines.profiler.record.tracer import TracedSteps
from rooflines.profiler.records import Environment
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.process import SamplerProcess
from rooflines.profiler.samplers.storage import Journal
from tests.profiler.samplers.nvml_driver.signals import Constant, Square, Term, integral
from tests.replay.recorded import Recorded

NAME = "cuda:0"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
# What the device draws: 150 W and 650 W in turn.
POWER: tuple[Term, ...] = (Constant(150.0), Square(0.0, 500.0, period_s=0.2))


class ReplayDevice(RecordedDevice):
    """``cuda:0`` as ``recorded`` shows it.

    ``timed_ns`` gives the events' time of the steps with the profiler off by their number, ``tf32`` what ``tf32_state`` would.
    ``run_step`` is the workload. ``fault`` is called with what the device is asked for (``step``, ``wait``) before it answers, and may
    raise what the device would; ``timed_steps`` tells how many steps of the timed pass have ended.
    """

    def __init__(self, recorded: Recorded, timed_ns: Callable[[int], int], *, tf32: dict[str, bool] | None = None) -> None:
        super().__init__(torch.device("cuda", 0))
        self.recorded = recorded
        self.timed_ns = timed_ns
        self.timed_steps = 0
        self.tracing: ReplayTracer | None = None
        self.fault: Callable[[str], None] = lambda asked: None
        self._tf32 = tf32 or {"matmul": False, "convolution": True}
        self._free_at = 0.0  # on time.monotonic

    def run_step(self) -> None:
        """Give the device a step. Traced ones are over at once: nothing is sampled then."""
        self.fault("step")
        if self.tracing is None:
            self._free_at = max(self._free_at, time.monotonic()) + self.timed_ns(self.timed_steps) / 1e9

    # --- what a recording asks of it

    def environment(self) -> Environment:
        facts = self.recorded.facts
        return msgspec.structs.replace(
            collect_environment("cpu"),
            device=NAME,
            device_name=facts.name,
            device_memory_bytes=facts.memory_bytes,
            device_units=facts.units,
            driver=nvidia_driver().version,
            cuda=facts.cuda,
        )

    def synchronize(self) -> None:
        self.fault("wait")
        time.sleep(max(0.0, self._free_at - time.monotonic()))

    def step_clock(self) -> Any:
        return ReplayClock(self)

    def peak_memory(self) -> Any:
        return ReplayMemory(self.recorded.peak_bytes)

    def tracer(self, *, steps: int, modules: ModuleRanges | None, **_: bool) -> Any:
        return ReplayTracer(self, steps)

    def sampler(self, path: Path) -> SamplerProcess:
        # More often than by default, because the replayed passes are short.
        return SamplerProcess(os.getpid(), path, period_s=0.01, gpus={NAME: UUID})

    def tf32(self) -> dict[str, bool]:
        return self._tf32


class AmdReplayDevice(ReplayDevice):
    """A device of ROCm, which torch calls ``cuda`` as well: its samples are scripted, as AMD's library would give them."""

    def sampler(self, path: Path) -> Any:
        return ScriptedSampler(POWER)


class ScriptedSampler:
    """``SamplerProcess`` whose samples follow ``power`` every 10 ms from start to stop, seconds counted from the start."""

    problem = ""

    def __init__(self, power: tuple[Term, ...]) -> None:
        self._power = power
        self.began_ns = self._ended_ns = 0

    def start(self) -> None:
        self.began_ns = now_ns()

    def stop(self) -> None:
        self._ended_ns = now_ns()

    def samples(self) -> tuple[DeviceSample, ...]:
        taken = ((time_ns, (time_ns - self.began_ns) / 1e9) for time_ns in range(self.began_ns, self._ended_ns + 1, 10_000_000))
        return tuple(
            DeviceSample(
                time_ns=time_ns, source="amdsmi", device=NAME, gpu_utilization=0.93, energy_j=integral(self._power, 0.0, time_s),
                power_instant_w=sum(term.at(time_s) for term in self._power), throttle_reasons="",
            )
            for time_ns, time_s in taken
        )  # fmt: skip

    def journal(self) -> Journal:
        counter = Counter(source="amdsmi", device=NAME, field="energy_j", update_s=0.01, resolution=1e-3)
        return Journal(started=True, samples=self.samples(), counters=(counter,), fields={}, problems=())


class ReplayClock:
    """``StepClock`` of a replayed device: each step takes what the device's events said."""

    def __init__(self, device: ReplayDevice) -> None:
        self._device = device
        self._spans: list[int] = []

    def __len__(self) -> int:
        return len(self._spans)

    def begin(self) -> None:
        self._device.timed_steps = len(self._spans)

    def end(self) -> None:
        self._spans.append(self._device.timed_ns(len(self._spans)))
        self._device.timed_steps = len(self._spans)

    def go_on(self) -> None:
        pass

    def drop(self) -> None:
        self._spans = []

    def so_far_ns(self) -> list[int]:
        return []

    def take_ns(self) -> list[int]:
        spans, self._spans = self._spans, []
        self._device.synchronize()
        return spans


class ReplayMemory:
    """``PeakMemory`` of a replayed device."""

    kind = "allocator"

    def __init__(self, peak_bytes: int) -> None:
        self._peak_bytes = peak_bytes

    def start(self) -> None:
        pass

    def bytes(self) -> int:
        return self._peak_bytes


class ReplayTracer:
    """``Tracer`` whose trace is the recorded one: over after as many steps as that has, or as were asked for where those are fewer."""

    def __init__(self, device: ReplayDevice, steps: int) -> None:
        self._device = device
        self._left = device.recorded.step_ns[:steps]
        self.module_names: dict[int, str] = {}
        self.is_bound = False
        # On a device nothing is judged by the queue of the host, nor by its page faults.
        self.traced = TracedSteps(has_operators=True)

    def start(self) -> None:
        self._device.tracing = self

    def step(self) -> bool:
        if self._device.tracing is not self:
            return True
        self.traced.times_ns.append(self._left.pop(0))
        if not self._left:
            self.stop()
        return not self._left

    def stop(self, *, keep_step: bool = False) -> None:
        if keep_step and self._left:
            self.step()
        if self._device.tracing is self:
            self._device.tracing = None

    def write(self, path: Path) -> int:
        return self._device.recorded.write(path)
