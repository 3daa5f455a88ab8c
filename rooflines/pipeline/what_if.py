"""What a step of a run or trace would take with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.errors import TraceError
from rooflines.pipeline.reading import AnalyzeOptions, analyze_source
from rooflines.profiler.records import Run
from rooflines.roofline.predict import what_if as replayed
from rooflines.roofline.predict.what_if import WhatIf

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
    precision: str | None = None,
    graphs: bool = False,
    compiled: bool = False,
    **options: Unpack[AnalyzeOptions],
) -> WhatIf:
    """Replay the steps of a run or trace with changes, one after another: of the host, of options, operators
    that go, then those that are faster; nothing is written.

    Operators are named by their names or a pattern of them (``aten::mm``, ``aten::*norm*``) or by their
    category (``attention``), with ``@`` and a pattern of modules where only these are meant
    (``aten::mm@layers.*``).

    Args:
        at_bound: Operators that run at their lower bound.
        scale: What the time of operators is multiplied by.
        without: Operators that go, with their launches.
        gaps: False for a host that is never late with a launch.
        waits: False for a host that waits for the device nowhere.
        precision: Matrix work in ``bf16`` or ``fp16``, with ``amp-`` under autocast.
        graphs: Launches by CUDA graphs.
        compiled: Operators fused by ``torch.compile``.
        options: As for ``analyze``.

    Raises UsageError for operators that the trace does not have, TraceError for a trace that its dependencies
    do not reproduce.
    """
    judged = analyze_source(source, **options).judged
    if judged is None:
        raise TraceError("several ranks are not replayed with changes.", hint="Give the trace of one rank.")
    given = {"precision": precision, "compile": "on" if compiled else None, "cuda_graphs": graphs or None}
    return replayed.what_if(
        judged,
        at_bound=at_bound,
        scale=scale,
        without=without,
        gaps=gaps,
        waits=waits,
        options={option: value for option, value in given.items() if value is not None},
    )
