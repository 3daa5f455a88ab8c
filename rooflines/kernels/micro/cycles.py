"""The clock of a core, counted and not asked for: virtual machines hide it, and what a file says is not what is sustained.

A chain of integer operations, each waiting for the one before, takes one cycle a link on every core that we know: ``xor`` and ``add``
of registers have a latency of one cycle (Agner Fog, "Instruction tables"). Both operands are registers because some cores add a
constant while they rename, in no time at all.
"""

from __future__ import annotations

from rooflines.kernels.micro.vectors import compiled

# The xor and the addition of one iteration.
LINKS = 2


@compiled
def chain(value: int, step: int, iterations: int) -> int:
    """``value`` after ``iterations`` times ``value = (value ^ i) + step``, in 64-bit integers that wrap around."""
    for index in range(iterations):
        value = (value ^ index) + step
    return value
