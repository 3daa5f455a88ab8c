"""Everything that an extension imports besides ``rooflines`` itself; docs/extending.md has one of each kind.

Names load on first use.

==================  ================================================================================================================
samplers            ``Sampler``, ``DeviceSample``, ``Field``, ``now_ns``, ``DeviceError``
formulas            ``Signature``, ``TensorArg``, ``CallCount``, ``count_call``; ``rooflines.formula``, ``Work`` and ``NotCounted``
recommendations     ``Case``, ``Advice``
pages and formats   ``Page``, ``Section``, ``Paragraph``, ``Facts``, ``Table``, ``Column``, ``Row``, ``Cell``, ``Figure``, ``Bar``,
                    ``Part``, ``BarRow``, ``Findings``, ``texts``, ``write``
numbers as text     ``seconds``, ``percent``, ``si``, ``quantity``
==================  ================================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflines.lazy import lazy

if TYPE_CHECKING:
    from rooflines.errors import DeviceError
    from rooflines.profiler.samplers.base import Sampler
    from rooflines.profiler.samplers.clock import now_ns
    from rooflines.profiler.samplers.fields import DeviceSample, Field
    from rooflines.profiler.trace.signature import Signature, TensorArg
    from rooflines.reports.document import (
        Bar,
        BarRow,
        Cell,
        Column,
        Facts,
        Figure,
        Findings,
        Page,
        Paragraph,
        Part,
        Row,
        Section,
        Table,
        texts,
    )
    from rooflines.reports.formats import write
    from rooflines.roofline.advice.case import Advice, Case
    from rooflines.roofline.formulas.counter import count as count_call
    from rooflines.roofline.formulas.registry import CallCount
    from rooflines.units import percent, quantity, seconds, si

__all__ = [
    "Advice",
    "Bar",
    "BarRow",
    "CallCount",
    "Case",
    "Cell",
    "Column",
    "DeviceError",
    "DeviceSample",
    "Facts",
    "Field",
    "Figure",
    "Findings",
    "Page",
    "Paragraph",
    "Part",
    "Row",
    "Sampler",
    "Section",
    "Signature",
    "Table",
    "TensorArg",
    "count_call",
    "now_ns",
    "percent",
    "quantity",
    "seconds",
    "si",
    "texts",
    "write",
]

_DOCUMENT = ("Bar", "BarRow", "Cell", "Column", "Facts", "Figure", "Findings", "Page", "Paragraph", "Part", "Row", "Section", "Table")
_HOMES = {
    **dict.fromkeys((*_DOCUMENT, "texts"), "rooflines.reports.document"),
    **dict.fromkeys(("Advice", "Case"), "rooflines.roofline.advice.case"),
    **dict.fromkeys(("DeviceSample", "Field"), "rooflines.profiler.samplers.fields"),
    **dict.fromkeys(("Signature", "TensorArg"), "rooflines.profiler.trace.signature"),
    **dict.fromkeys(("percent", "quantity", "seconds", "si"), "rooflines.units"),
    "CallCount": "rooflines.roofline.formulas.registry",
    "DeviceError": "rooflines.errors",
    "Sampler": "rooflines.profiler.samplers.base",
    "count_call": "rooflines.roofline.formulas.counter:count",
    "now_ns": "rooflines.profiler.samplers.clock",
    "write": "rooflines.reports.formats",
}
__getattr__ = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
