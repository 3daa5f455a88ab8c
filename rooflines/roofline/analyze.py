"""A run becomes an analysis: through the rooms from its trace to the judgment (docs/design.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rooflines.device_specs.records import Ceilings
from rooflines.errors import TraceError
from rooflines.profiler.compiled.inductor_cache import read_cache
from rooflines.profiler.compiled.records import read_compiled
from rooflines.profiler.read.reader import read
from rooflines.profiler.read.records import READ_DEFAULTS, CaptureTrace, ReadOptions, Trace
from rooflines.profiler.records import Run, Workload
from rooflines.profiler.tree.tree import Calls, tree
from rooflines.roofline.advise.conclude import conclude
from rooflines.roofline.count.count import count
from rooflines.roofline.count.counts import Known
from rooflines.roofline.judge.judge import Judged, judge, judge_times
from rooflines.roofline.judge.step.interference import quiet_steps
from rooflines.roofline.own.own import own
from rooflines.roofline.replay.replays import Replays, replays_of, with_gains


def analyze(
    run: Run,
    ceilings: Ceilings | None = None,
    trace: Trace | None = None,
    *,
    captures: Sequence[CaptureTrace] = (),
    reading: ReadOptions = READ_DEFAULTS,
    inductor_cache: Path | str | None = None,
) -> Judged:
    """Derive the analysis of ``run`` from its raw files; ``ceilings`` replace the stored ones.

    ``trace`` is the run's trace where it has been read already, else it is read as ``reading`` says;
    ``captures`` are traces of the capture of its graphs. A run without a trace (interrupted before the traced
    pass) still has its step times. ``inductor_cache`` has the code that inductor generated. Raises TraceError
    when the trace is corrupt.
    """
    if trace is None and run.trace_path is not None:
        trace = read(run.trace_path, replace(reading, list_dtype=_list_dtype(run.facts.workload)))
    if trace is None:
        judged = judge_times(run, ceilings)
    else:
        calls = tree(trace, skip_start_up=run.facts.workload.source == "trace")
        judged = judge(own(count(calls, _known(run, captures, inductor_cache))), run, ceilings)
    replays = replays_of(judged)
    analysis = with_gains(judged.analysis, replays) if isinstance(replays, Replays) else judged.analysis
    return judged._replace(analysis=conclude(analysis, replays))


def _known(run: Run, captures: Sequence[CaptureTrace], inductor_cache: Path | str | None) -> Known:
    facts = run.facts
    return Known(
        parameter_elements=facts.parameter_elements,
        parameter_dtype=_list_dtype(facts.workload),
        stored_calls=facts.noted_calls,
        code=(read_compiled(run.compiled_path) or None) if run.compiled_path is not None else None,
        inductor_cache=read_cache(inductor_cache) if inductor_cache is not None else None,
        captures=tuple(captures),
        quiet=quiet_steps(run).traced,
        marked=_marked(run),
        lines=facts.lines,
        range_ns=facts.steps.range_ns or 0.0 if facts.steps is not None else 0.0,
    )


def _marked(run: Run) -> Calls | None:
    """The step whose lines are marked; without it, or where its file is damaged, no lines are known."""
    with contextlib.suppress(TraceError):
        return tree(read(run.line_path)) if run.line_path is not None else None
    return None


def _list_dtype(workload: Workload) -> str:
    """The dtype of lists of tensors, which the trace does not record: that of the network's parameters."""
    return {"bf16": "bfloat16", "fp16": "float16"}.get(workload.precision, "float32")
