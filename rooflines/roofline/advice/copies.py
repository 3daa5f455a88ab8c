"""Advice on copies between host and device."""

from __future__ import annotations

from rooflines.roofline.advice.case import Advice, Case, Ran
from rooflines.units import seconds


def pageable(case: Case) -> Advice | None:
    """Copies from or to pageable memory: they do not overlap with other work, and the host waits for them."""
    found = {one: min(one.left_s, _exposed_s(one)) for one in case.ran(lambda one: _pageable_s(one) > 0)}
    time_s, exposed_s = sum(map(_pageable_s, found)), sum(found.values())
    if exposed_s <= 0:
        return None
    worst = max(found, key=lambda one: found[one]).row
    where = f" in {worst.module}" if worst.module else ""
    return Advice(
        title="Copy from pinned memory",
        saves_s=exposed_s,
        evidence=(
            f"copies between pageable memory and the device take {seconds(time_s)} {case.per}, of which {seconds(exposed_s)} "
            f"({case.share(exposed_s)}) run while nothing is computed; the longest is {worst.name}{where} ({worst.shapes})"
        ),
        suggestion="DataLoader(pin_memory=True) and .to(device, non_blocking=True), so that the copy overlaps with the previous step",
        of={one.key: part for one, part in found.items()},
    )


def _pageable_s(one: Ran) -> float:
    return sum(kernel.time_s for kernel in one.kernels if kernel.name.startswith("Memcpy") and "Pageable" in kernel.name)


def _exposed_s(one: Ran) -> float:
    """The part of the copies that nothing hides; where that is not known, none."""
    return min(_pageable_s(one), one.row.exposed_s or 0.0)
