"""A change of a run's options, and the gain that is predicted for it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from rooflines.profiler.options import Value

Kind = Literal[
    "precision", "channels-last", "compile", "threads", "batch-size", "optimizer", "data-workers", "pin-memory", "allocator",
    "cuda-graphs", "combination",
]  # fmt: skip


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``profile`` and variables of the environment that differ from those of the run."""

    kind: Kind
    label: str
    options: dict[str, Value] = {}
    environment: dict[str, str] = {}


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput that is predicted, as a multiple of the run's, and the reason in one sentence."""

    speedup: float
    reason: str


class PageCosts(NamedTuple):
    """What 4 KiB of new memory cost on this machine: in a page of their own, and as part of a huge page (None where there are none)."""

    page_s: float
    in_huge_page_s: float | None = None
