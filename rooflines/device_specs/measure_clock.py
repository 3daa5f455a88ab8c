"""The clock that the cores of a CPU sustain together, for ceilings that are derived from it."""

from __future__ import annotations

from functools import partial

from rooflines.device_specs import detect
from rooflines.device_specs.meter import Meter

_BUDGET_S = 12.0  # a figure's share of it is half a second


def sustained_clock_hz(threads: int) -> float | None:
    """The mean clock of the cores while ``threads`` threads run chains of integer operations; None where it does not settle.

    Counted per processor time, so other processes on the same cores do not lower it. Vector units that draw more power may run slower.
    """
    from rooflines.kernels.micro import cycles, numa
    from rooflines.kernels.micro.repeats import Timing
    from rooflines.kernels.micro.team import Team

    per_call = 10_000
    with Team(threads, numa.places(threads, numa.nodes(detect.usable_cpus()))) as team:

        def run(calls: int) -> Timing:
            return team.run([partial(cycles.chain, 1, 3, per_call * calls)] * threads)

        run(1)  # compiles
        repeats = Meter(_BUDGET_S, [], lambda _: None).rate(cycles.LINKS * per_call, run, private=True)
    return None if repeats.unstable else repeats.median
