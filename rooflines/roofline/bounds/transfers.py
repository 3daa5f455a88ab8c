"""Copies between host and device: which way they go, and the link that bounds them.

Kineto names them ``Memcpy HtoD (Pageable -> Device)``: the direction, and whether the host's memory is pinned. The device reads pinned
memory by itself. Pageable memory is copied to a pinned buffer by the host first, which is slower than the link; the link is the roof of
both, because the same copy from pinned memory would have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.roofline.attribution.rows import LaunchedKernel
from rooflines.roofline.formulas import Work

Way = Literal["H2D", "D2H"]

FROM_HOST = ("HtoD", "Host -> Device", "HostToDevice", "H2D", "M2D")
TO_HOST = ("DtoH", "Device -> Host", "DeviceToHost", "D2H", "D2M")
_COPY = "memcpy"
# A row is a transfer where copies over the link take more than this share of its device time.
_MOSTLY = 0.5


class Transfer(NamedTuple):
    """The copies between host and device of one row: how many, which ways, and whether the host's memory was pageable in any."""

    copies: int
    ways: tuple[Way, ...]
    pageable: bool


def way_of(name: str) -> Way | None:
    """The direction of the copy with this name, None for any other work."""
    if _COPY not in name.lower():
        return None
    if any(word in name for word in FROM_HOST):
        return "H2D"
    return "D2H" if any(word in name for word in TO_HOST) else None


def transfer_of(ran: Sequence[LaunchedKernel]) -> Transfer | None:
    """The transfer that a row is which ran these on the device; None where other work took most of the time."""
    copies = [(way, one) for one in ran if (way := way_of(one.name)) is not None]
    copying_ns = sum(one.time_ns for _, one in copies)
    if not copies or copying_ns <= _MOSTLY * sum(one.time_ns for one in ran):
        return None
    return Transfer(
        copies=sum(one.calls for _, one in copies),
        ways=tuple(dict.fromkeys(way for way, _ in copies)),
        pageable=any("pageable" in one.name.lower() for _, one in copies),
    )


def link_of(transfer: Transfer, ceilings: Ceilings) -> Ceiling | None:
    """The roof of ``transfer``: of both ways the faster one; None where none is known."""
    links = [link for link in ceilings.main("link") if link.name in transfer.ways]
    return max(links, key=lambda link: link.value, default=None)


def bytes_over_link(work: Work | None) -> int | None:
    """The bytes of one copying call that cross the link: what it reads is on one side, what it writes on the other.

    Where dtypes differ the smaller of both, because the conversion may run on either side. None where the work is unknown.
    """
    return None if work is None else min(work.bytes_read, work.bytes_written)
