"""The origin of a set of ceilings, in words."""

from __future__ import annotations

from datetime import datetime

from rooflines.device_specs.history import age
from rooflines.device_specs.records import Ceilings
from rooflines.reports.words.sentences import ago
from rooflines.units import counted, si

# Above this a measured rate beats its reference by more than noise.
ABOVE = 1.02


def heading(ceilings: Ceilings, now: datetime | None = None) -> list[str]:
    """The device of the ceilings, and when and how they were measured: ``measured 3 days ago (2026-11-18 10:22 UTC), method 3``."""
    threads = counted(ceilings.threads, "thread") if ceilings.threads else ""
    clock = f"{si(ceilings.clock_hz, 'Hz')} sustained" if ceilings.clock_hz else ""
    which = "every figure" if ceilings.full else "the figures that judge a run"
    held = f"sustained for {ceilings.sustained_s:g} s" if ceilings.sustained_s else ""
    since = age(ceilings, now)
    when = f"measured {ago(since)} ({ceilings.measured_at[:16].replace('T', ' ')} UTC)" if since is not None else "of unknown age"
    again = f"best of {ceilings.measurements} measurements since {ceilings.since[:10]}" if ceilings.measurements > 1 else ""
    method = f"method {ceilings.method}" if ceilings.method is not None else ""
    driver = f"driver {ceilings.driver}" if ceilings.driver else ""
    packages = [f"{name} {ceilings.packages[name]}" for name in ("torch", "numba") if name in ceilings.packages]
    return [
        " · ".join(part for part in (ceilings.device, ceilings.kind, threads, clock, which, held) if part),
        ", ".join(part for part in (when, again, method, driver, *packages) if part),
    ]
