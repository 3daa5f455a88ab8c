"""The sentence of a study's page on other programs that computed while something was timed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rooflines.profiler.quiet import OTHERS_CORES
from rooflines.units import significant


def shared_machine(measured: Iterable[tuple[str, float | None]]) -> Iterator[str]:
    """A sentence if other programs computed during the timing: names with the processors that others took meanwhile."""
    seen = {name: cores for name, cores in measured if cores is not None and cores >= OTHERS_CORES}
    if seen:
        listed = ", ".join(f"{significant(cores, 2)} while {name} ran" for name, cores in seen.items())
        yield f"Shared machine: other programs used processors, {listed}."
