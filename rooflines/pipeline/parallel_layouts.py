"""Parallel layouts by the text that names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.roofline.forecast.layout import Layout

if TYPE_CHECKING:
    from rooflines.roofline.counting.phases import GenerationCount

_WAYS = {"tp": "tensor", "pp": "pipeline", "dp": "data", "ep": "expert"}


def parse_layouts(generation: GenerationCount, texts: Sequence[str]) -> tuple[Layout, ...]:
    """The layouts that ``texts`` name: sizes (``tp=4,pp=2``), or a number of devices for all layouts that are usual for it.

    Experts are spread over replicas, so that ``ep=8`` is ``dp=8,ep=8``. Raises UsageError for any other text.
    """
    from rooflines.roofline.forecast.layouts import layouts_of, network_facts

    found: list[Layout] = []
    for text in texts:
        try:
            if text.isdigit():
                facts = network_facts(generation)
                found += layouts_of(int(text), experts=facts.chosen > 0, heads=facts.heads)
                continue
            sizes = {_WAYS[way.strip()]: int(size) for way, size in (part.split("=") for part in text.split(","))}
            found.append(Layout(**({"data": sizes["expert"]} if "expert" in sizes else {}) | sizes))
        except (KeyError, ValueError) as error:
            reason = f": {error}" if isinstance(error, ValueError) and "layout" in str(error) else ""
            raise UsageError(
                f"{arg('layout')} {text!r} is not a layout{reason}.", hint="For example: tp=8, tp=4,pp=2, dp=8, ep=8, or 8 for all."
            ) from None
    return tuple(dict.fromkeys(found))
