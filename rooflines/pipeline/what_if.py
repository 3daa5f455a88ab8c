"""What a step of a run or trace would take with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.errors import TraceError
from rooflines.pipeline.reading import AnalyzeOptions, analyze_source
from rooflines.profiler.records import Run
from rooflines.roofline.replay import what_if as replayed
from rooflines.roofline.replay.what_if import WhatIf

if TYPE_CHECKING:
    from typing_extensions import Unpack


def what_if(
    source: Run | Path | str,
    *,
    at_bound: Sequence[str] = (),
    scale: Mapping[str, float] | None = None,
    without: Sequence[str] = (),
    gaps: bool = True,
    waits: bool = True,
    **options: Unpack[AnalyzeOptions],
) -> WhatIf:
    """Replay the steps of a run or trace with changes, one after another: of the host, operators that go,
    then those that are faster; nothing is written.

    Operators are named by their names or a pattern of them (``aten::mm``, ``aten::*norm*``) or by their
    category (``attention``), with ``@`` and a pattern of modules where only these are meant
    (``aten::mm@layers.*``).

    Args:
        at_bound: Operators that run at their lower bound.
        scale: What the time of operators is multiplied by.
        without: Operators that go, with their launches.
        gaps: False for a host that is never late with a launch.
        waits: False for a host that waits for the device nowhere.
        options: As for ``analyze``.

    Raises UsageError for operators that the trace does not have, TraceError for a trace that its dependencies
    do not reproduce.
    """
    judged = analyze_source(source, **options).judged
    if judged is None:
        raise TraceError("several ranks are not replayed with changes.", hint="Give the trace of one rank.")
    return replayed.what_if(judged, at_bound=at_bound, scale=scale, without=without, gaps=gaps, waits=waits)
