"""The samples of a monitored program as TensorBoard's scalars, written without torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.roofline.usage.monitored import MonitorAnalysis

# Ours end in this, so that writing again replaces them and leaves others alone.
SUFFIX = ".rooflines"
_NANOSECONDS = 1e9
# TensorBoard itself shows a thousand points of a curve; samples.csv has all.
MOST_READINGS = 5_000


def write(analysis: MonitorAnalysis, samples: Sequence[DeviceSample], directory: Path) -> Path:
    """Write every field that was measured as a curve of its device into one event file, and return its path.

    The horizontal axis counts milliseconds from the first sample. Very long series are thinned evenly. An event file that an earlier
    call left there is replaced.
    """
    # torch's SummaryWriter is a shell around these, and takes seconds to import.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for earlier in _event_files(directory):
        earlier.unlink()
    start_ns = min((sample.time_ns for sample in samples), default=0)
    writer = EventFileWriter(str(directory), max_queue_size=1000, filename_suffix=SUFFIX)
    try:
        for sample in _thinned(samples):
            values = [
                Summary.Value(tag=f"{sample.device}/{name}", simple_value=float(value)) for name, value in sample.numbers().items()
            ]
            step = (sample.time_ns - start_ns) // 1_000_000
            writer.add_event(Event(wall_time=sample.time_ns / _NANOSECONDS, step=step, summary=Summary(value=values)))
        summary = [Summary.Value(tag=f"summary/{name}", simple_value=value) for name, value in _totals(analysis).items()]
        last_ns = max((sample.time_ns for sample in samples), default=0)
        writer.add_event(Event(wall_time=last_ns / _NANOSECONDS, step=0, summary=Summary(value=summary)))
    finally:
        writer.close()
    return _event_files(directory)[-1]


def _thinned(samples: Sequence[DeviceSample]) -> list[DeviceSample]:
    """At most MOST_READINGS samples of each source and device, evenly, in the order given."""
    series = Counter((sample.source, sample.device) for sample in samples)
    seen: Counter[tuple[str, str]] = Counter()
    kept = []
    for sample in samples:
        key = (sample.source, sample.device)
        if seen[key] % -(-series[key] // MOST_READINGS) == 0:
            kept.append(sample)
        seen[key] += 1
    return kept


def _totals(analysis: MonitorAnalysis) -> dict[str, float]:
    """The figures by which monitored programs are compared; what was not measured is absent."""
    found = {"wall_s": analysis.window_s}
    if analysis.ending is not None:
        found["cpu_s"] = analysis.ending.user_cpu_s + analysis.ending.system_cpu_s
        found["exit_code"] = analysis.ending.exit_code
    for one in analysis.usage.devices if analysis.usage is not None else ():
        found |= {f"{one.device}/{name}_highest": gauge.highest for name, gauge in one.gauges.items()}
        found |= {f"{one.device}/{name}": count for name, count in one.counts.items()}
        found[f"{one.device}/energy_j"] = one.energy.energy_j if one.energy is not None else None
    return {name: float(value) for name, value in found.items() if value is not None}


def _event_files(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"events.out.tfevents.*{SUFFIX}"))
