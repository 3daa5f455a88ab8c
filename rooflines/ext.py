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

from rooflines.lazy import stubbed

__getattr__, __all__, __dir__ = stubbed(__name__, __file__)
