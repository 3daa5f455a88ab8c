"""What a monitored program took: the usage of the machine while it ran, beside what the system says of the program itself."""

from __future__ import annotations

import msgspec

from rooflines.profiler.monitor.monitored import Monitored, MonitorFacts
from rooflines.roofline.analysis import Usage
from rooflines.roofline.usage.device_usage import Window, usage_of

MONITOR_ANALYSIS_SCHEMA = "rooflines.monitor-analysis/1"


class MonitorAnalysis(MonitorFacts, frozen=True, kw_only=True):
    """What is known of a monitored program, and what reports are made of.

    ``command`` is absent unless it was asked to be shown. ``window_s`` is how long it was watched. ``usage`` is absent where nothing
    was sampled.
    """

    schema: str = MONITOR_ANALYSIS_SCHEMA
    command: tuple[str, ...] | None = None
    window_s: float | None = None
    usage: Usage | None = None


def analyze_monitored(monitored: Monitored) -> MonitorAnalysis:
    """What the samples of ``monitored`` say, from its begin to its end or, where that was not seen, to the last of them."""
    facts, samples = monitored.facts, monitored.samples
    times = [sample.time_ns for sample in samples]
    began_ns = facts.began_ns if facts.began_ns is not None else min(times, default=None)
    ended_ns = facts.ended_ns if facts.ended_ns is not None else max(times, default=None)
    window = Window(began_ns, ended_ns) if began_ns is not None and ended_ns is not None and ended_ns > began_ns else None
    return MonitorAnalysis(
        **{name: getattr(facts, name) for name in MonitorFacts.__struct_fields__},
        command=facts.command if facts.show_command and facts.command else None,
        window_s=facts.ending.wall_s if facts.ending is not None else window.length_s if window is not None else None,
        usage=_usage(monitored, window),
    )


def _usage(monitored: Monitored, window: Window | None) -> Usage | None:
    if not monitored.samples or window is None:
        return None
    found = usage_of(monitored.samples, monitored.facts.counters, window, fields=monitored.facts.fields)
    # No pass was timed: the window is that of the samples, to the moment.
    return msgspec.structs.replace(found, window="samples")
