"""What a generation must reach to be served: on which devices, and in which layouts, it can."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from msgspec.structs import replace

from rooflines.roofline.predict.forecast import DeviceForecast, LayoutBound, Targets


def with_misses(bound: LayoutBound, targets: Targets) -> LayoutBound:
    """``bound`` with the targets that it misses: by its prediction where there is one, else by its bounds,
    which nothing reaches sooner."""
    times = {phase.name: phase.expected_s for phase in bound.phases}
    rate = bound.expected_tokens_per_s
    missed = {
        "ttft_s": targets.ttft_s is not None and times.get("prefill", inf) > targets.ttft_s,
        "itl_s": targets.itl_s is not None and times.get("decode", inf) > targets.itl_s,
        "tokens_per_s": targets.tokens_per_s is not None and (rate or 0.0) < targets.tokens_per_s,
    }
    return replace(bound, misses=tuple(name for name, is_missed in missed.items() if is_missed))


def serving(devices: Iterable[DeviceForecast]) -> list[tuple[DeviceForecast, LayoutBound]]:
    """The layouts that fit and miss nothing: the cheapest first where all devices have a price, else those
    with the fewest devices."""
    found = [
        (one, bound)
        for one in devices
        for bound in one.layouts
        if bound.fits is not False and not bound.misses
    ]
    priced = all(one.device.price_per_hour is not None for one, _ in found)

    def order(chosen: tuple[DeviceForecast, LayoutBound]) -> tuple[float, float]:
        one, bound = chosen
        each = (one.device.price_per_hour or 0.0) if priced else 1.0
        return each * bound.layout.devices, sum(phase.expected_s for phase in bound.phases)

    return sorted(found, key=order)
