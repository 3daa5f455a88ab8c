"""Device samples of machines that tests do not have: series made second by second, around a timed pass of fifty steps of 0.1 s."""

import math
from pathlib import Path
from typing import Any

import msgspec

from rooflines.profiler.records import Environment, Run, RunFile, StepTimes, Workload
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.roofline.advise.usage import find_in_usage, ranked
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.judge.usage.device_usage import Window, usage
from tests.samples import analysis

BEGAN_NS = 1_763_000_000_000_000_000
STEP_S = 0.1
WINDOW = Window(BEGAN_NS, BEGAN_NS + 5_000_000_000)
STEPS: dict[str, Any] = {"timed_ns": (100_000_000,) * 50, "timed_began_ns": BEGAN_NS}
COUNTERS = tuple(
    counter
    for device in ("cuda:0", "cuda:1", "cuda:2")
    for counter in (
        Counter(source="nvml", device=device, field="energy_j", update_s=0.1, resolution=1e-3),
        Counter(source="nvml", device=device, field="power_w", update_s=0.1, resolution=1e-3, window_s=1.0),
    )
)


def gpu_samples(
    device: str = "cuda:0", *, seconds: float = 5.0, busy_w: float = 300.0, idle_w: float = 60.0, busy: float = 0.95, **fields: Any
) -> tuple[DeviceSample, ...]:
    """A GPU that idles, works from 0 to ``seconds`` and idles again, read every 50 ms; ``fields`` replace its own."""
    samples = []
    for index in range(-30, round(seconds / 0.05) + 31):
        second = index * 0.05
        updated = (index // 2) * 0.1  # the counter has a new value every other reading
        worked = min(max(updated, 0.0), seconds)
        averaged = min(max(updated, 0.0), seconds) - min(max(updated - 1.0, 0.0), seconds)
        works = 0 <= second <= seconds
        own: dict[str, Any] = {
            "power_w": idle_w + (busy_w - idle_w) * averaged, "power_limit_w": 350.0,
            "energy_j": 8000 + idle_w * (updated - worked) + busy_w * worked, "temperature_c": 41.0 + 6 * worked,
            "gpu_utilization": busy if works else 0.0, "gpu_memory_utilization": busy / 2 if works else 0.0,
            "memory_used_bytes": (3 << 30) + (2 << 30) * works, "memory_total_bytes": 80 << 30,
            "sm_clock_hz": 1.6e9 if works else 2.1e8, "memory_clock_hz": 2.6e9, "throttle_reasons": "", "ecc_uncorrected": 0,
        }  # fmt: skip
        time_ns = BEGAN_NS + index * 50_000_000
        samples.append(DeviceSample(time_ns=time_ns, source="nvml", device=device, **{**own, **fields}))
    return tuple(samples)


def host_samples(*, seconds: float = 5.0) -> tuple[DeviceSample, ...]:
    """A host with RAPL (90 W) and psutil, read every 100 ms."""
    samples = []
    for index in range(-10, round(seconds / 0.1) + 11):
        time_ns, second = BEGAN_NS + index * 100_000_000, index * 0.1
        samples.append(
            DeviceSample(
                time_ns=time_ns, source="psutil", cpu_utilization=0.7, core_utilization=(0.9, 0.5), process_cpu_utilization=1.3,
                process_rss_bytes=(2 << 30) + (1 << 30) * (second > 1), process_threads=9, process_major_faults=3,
                memory_used_bytes=9 << 30, memory_total_bytes=24 << 30, cpu_frequency_hz=3.1e9,
            )
        )  # fmt: skip
        samples.append(DeviceSample(time_ns=time_ns, source="rapl", energy_j=90 * (second + 100)))
    return tuple(samples)


def run_of(samples: Any, *, steps: int = 50, device: str = "cuda:0") -> Run:
    """A run of ``steps`` timed steps of 0.1 s with a batch of 32, on ``device``, with ``samples`` and without a trace."""
    return Run(
        directory=Path("nowhere"),
        facts=RunFile(
            status="complete",
            workload=Workload(name="net", mode="training", batch_size=32, unit="images"),
            environment=Environment(rooflines="0", device=device, device_name="a device", memory_bytes=24 << 30, cpu_threads=2),
            steps=StepTimes(timed_ns=(round(STEP_S * 1e9),) * steps, timed_began_ns=BEGAN_NS),
            counters=COUNTERS,
        ),
        samples=tuple(samples),
    )


def machine_samples() -> tuple[DeviceSample, ...]:
    """Two GPUs that share the work unevenly, the first held back by its power limit for a while, and the host."""
    first = []
    for sample in gpu_samples(busy_w=338.0, busy=0.94, process_memory_bytes=5 << 30):
        second = (sample.time_ns - BEGAN_NS) / 1e9
        limited = 2.0 <= second < 3.1
        wave = 1 + 0.05 * math.sin(9 * second)
        first.append(
            msgspec.structs.replace(
                sample,
                power_instant_w=338.0 * wave if 0 <= second <= 5 else 60.0,
                gpu_utilization=min(1.0, (sample.gpu_utilization or 0.0) * wave),
                sm_clock_hz=1.21e9 if limited else sample.sm_clock_hz,
                throttle_reasons="software power cap" if limited else "",
            )
        )
    return (*first, *gpu_samples("cuda:1", busy_w=110.0, busy=0.14, process_memory_bytes=2 << 30), *host_samples())


def machine_analysis() -> Analysis:
    """The sample analysis with two GPUs and the host sampled beside its fifty timed steps."""
    sample = analysis()
    run = run_of(machine_samples())
    same = dict.fromkeys(("median_s", "p10_s", "p90_s"), STEP_S)
    steps = msgspec.structs.replace(sample.steps, count=50, durations_s=(STEP_S,) * 50, ci95_s=(STEP_S, STEP_S), **same)
    with_usage = msgspec.structs.replace(
        sample, steps=steps, environment=run.facts.environment, usage=usage(run, flops_per_step=sample.totals.flops)
    )
    found = ranked((*with_usage.findings, *find_in_usage(with_usage)))
    return msgspec.structs.replace(with_usage, findings=found)
