"""Steps that generate text: when their tokens are ready, and their phases, each on its own clock
(docs/generation.md).

Prefill has a few large calls and decode many small ones, which the profiler slows down by different factors.
Where the timed generations tell when their tokens were ready, the traced times of a phase are put on the
clock of that phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.read.records import ANNOTATION, MODULE_PREFIX, Mask
from rooflines.profiler.read.request_marks import Kind, RequestMark, phase_mark
from rooflines.profiler.records import GenerationSizes, RunFile
from rooflines.profiler.tree.tree import PHASES
from rooflines.profiler.tree.windows import launched_ns, step_number
from rooflines.roofline.analysis import OperatorRow, Steps
from rooflines.roofline.judge.step.partition import Label, partition
from rooflines.roofline.judge.step.serving import RanBatch, steps_of_kind, work_of
from rooflines.roofline.judge.step.times import median_interval
from rooflines.roofline.own.own import Attribution
from rooflines.roofline.served_steps import Generation, MemoryFit, ServedSteps, TokenLatency
from rooflines.roofline.uncertainty import Floats, half_width

_KINDS: tuple[Kind, ...] = ("prefill", "decode")
# A slope needs this many gaps in each of at least as many generations, and its curve is thinned to this many
# points.
_FEWEST_GAPS, _FEWEST_GENERATIONS, _MOST_POINTS = 8, 3, 256
# Two gaps above a percentile of 90 %, one above that of 99 %.
_FEWEST_FOR_P90, _FEWEST_FOR_P99 = 20, 100
# Pairs of gaps behind a slope: those of more gaps are taken from every n-th.
_MOST_FOR_SLOPE = 200


# --- when tokens were ready -------------------------------------------------------------------------------


def timed_tokens(facts: RunFile, quiet: Mask) -> list[Floats]:
    """The seconds since the begin of each ``quiet`` timed generation at which its tokens were ready; empty
    where they are not known."""
    if facts.steps is None or not facts.steps.timed_token_ns:
        return []
    return [
        np.array(ready_ns) / 1e9
        for ready_ns, kept in zip(facts.steps.timed_token_ns, quiet, strict=True)
        if kept
    ]


def token_latency(ready_s: Sequence[Floats], prompt_length: int) -> TokenLatency | None:
    """The latencies of generations whose tokens were ready at these seconds; None without any.

    Theil-Sen: the slope of one generation is the median over all pairs of its gaps, and its interval is that
    of the mean over generations (Student's t).
    """
    if not ready_s:
        return None
    first, last = (np.array([ready[place] for ready in ready_s]) for place in (0, -1))
    gaps = [np.diff(ready) for ready in ready_s if len(ready) > 1]
    whole = TokenLatency(
        generations=len(ready_s),
        ttft_s=float(np.median(first)),
        ttft_ci95_s=median_interval(first),
        whole_s=float(np.median(last)),
        prefill_share=float(first.sum() / last.sum()),
    )
    if not gaps:
        return whole
    number = sum(map(len, gaps))
    longest = max(map(len, gaps))
    median, p90, p99 = np.percentile(np.concatenate(gaps), (50, 90, 99)).tolist()
    slopes = [_slope(each) for each in gaps if len(each) >= _FEWEST_GAPS]
    half = half_width(slopes) if len(slopes) >= _FEWEST_GENERATIONS else np.inf
    slope = float(np.mean(slopes)) if slopes else 0.0
    is_known = half < slope
    every = range(0, longest, -(-longest // _MOST_POINTS))
    curve = [
        np.percentile([each[token] for each in gaps if token < len(each)], (25, 50, 75)).tolist()
        for token in every
    ]
    p25_s, median_s, p75_s = zip(*curve, strict=True)
    return msgspec.structs.replace(
        whole,
        gaps=number,
        itl_median_s=median,
        itl_p90_s=p90 if number >= _FEWEST_FOR_P90 else None,
        itl_p99_s=p99 if number >= _FEWEST_FOR_P99 else None,
        tpot_s=float(np.median([each.mean() for each in gaps])),
        growth_s_per_token=slope if is_known else None,
        growth_ci95_s=(slope - half, slope + half) if is_known else None,
        context=tuple(prompt_length + token + 1 for token in every),
        p25_s=p25_s,
        median_s=median_s,
        p75_s=p75_s,
    )


def _slope(gaps: Floats) -> float:
    """The growth of the gaps from one token to the next: the median slope of all pairs."""
    tokens = np.arange(0, len(gaps), -(-len(gaps) // _MOST_FOR_SLOPE))
    left, right = tokens[np.stack(np.triu_indices(len(tokens), 1))]
    return float(np.median((gaps[right] - gaps[left]) / (right - left)))


# --- the phases -------------------------------------------------------------------------------------------


class PhaseCalls(NamedTuple):
    """The calls of one phase: their batches, and the attribution whose windows they are, from the end of the
    call before on."""

    batches: tuple[RequestMark, ...]
    attribution: Attribution


def phase_calls(attribution: Attribution, *, start_up: bool = False) -> dict[Kind, PhaseCalls]:
    """The calls of each phase that the trace marks inside of its steps; empty for a trace without marks.

    The first call of a generation begins with its step; with its mark where that is not known, or the step is
    a program from its ``start_up`` on.
    """
    calls, host = attribution.calls, attribution.trace.host
    marks = np.flatnonzero(attribution.trace.named(lambda name: phase_mark(name) is not None, ANNOTATION))
    marks = marks[np.argsort(host.start_ns[marks], kind="stable")]
    step = np.zeros(len(marks), np.int64)
    if attribution.steps:
        step = step_number(host.start_ns[marks], calls.steps)
        inside = (step >= 0) & (host.start_ns[marks] < calls.steps[step, 1])
        marks = marks[inside]
        step = step[inside]
    if not len(marks):
        return {}
    ends = calls.end_ns[marks].copy()
    device = attribution.trace.device
    if len(device):
        # A call lasts until the device has done what it launched; what is launched behind it, up to the next
        # one, is its own.
        launched = launched_ns(calls)
        of = np.searchsorted(host.start_ns[marks], launched, side="right") - 1
        own = (of >= 0) & (launched < attribution.windows[step[of], 1])
        np.maximum.at(ends, of[own], device.end_ns[own])
        ends = np.maximum.accumulate(ends)
    named = (phase_mark(attribution.trace.names[code]) for code in host.name[marks].tolist())
    batches = [batch for batch in named if batch is not None]
    prefills = np.array([batch.kind == "prefill" for batch in batches], bool)
    before = np.append(attribution.windows[0, 0], ends[:-1])
    begins = np.where(np.diff(step, prepend=-1) != 0, attribution.windows[step, 0], before)
    if start_up or not attribution.steps:
        begins = np.where(prefills, np.maximum(host.start_ns[marks], before), before)
    windows = np.stack((np.minimum(begins, ends), ends), axis=1)
    modules = attribution.trace.named(lambda name: name.startswith(MODULE_PREFIX), ANNOTATION)
    phases: dict[Kind, PhaseCalls] = {}
    for kind in _KINDS:
        chosen = prefills == (kind == "prefill")
        if chosen.any():
            of_kind = replace(
                attribution,
                windows=windows[chosen],
                steps=int(chosen.sum()),
                quiet=attribution.quiet[step[chosen]] if len(attribution.quiet) else attribution.quiet,
                ranges_ns=attribution.counts.known.range_ns
                * int((modules & (calls.phase == PHASES.index(kind))).sum()),
                factor=attribution.factors.get(kind, attribution.factor),
            )
            phases[kind] = PhaseCalls(tuple(batch for batch in batches if batch.kind == kind), of_kind)
    return phases


def call_seconds(
    kind: Kind, calls: PhaseCalls, latency: TokenLatency | None, generations: int
) -> float | None:
    """The time of one call of a phase in the timed generations; None where it is not known.

    The median generation is divided as all are together: medians of the phases would be of different
    generations and add up to none.
    """
    if latency is None:
        return None
    share = latency.prefill_share if kind == "prefill" else 1 - latency.prefill_share
    return share * latency.whole_s / (len(calls.batches) / generations)


def phase_factors(attribution: Attribution, ready_s: Sequence[Floats]) -> dict[str, float]:
    """What the traced times of each phase are multiplied by, so that they fit into the timed one; empty on a
    device, whose times count as traced."""
    latency = token_latency(ready_s, 0)
    if latency is None or len(attribution.trace.device):
        return {}
    unknown = [Label("unknown", "other")] * len(attribution.rows)
    factors: dict[str, float] = {}
    for kind, calls in phase_calls(attribution).items():
        timed_s = call_seconds(kind, calls, latency, attribution.per)
        traced_s = partition(calls.attribution, unknown).step_s
        if timed_s is not None and traced_s > 0:
            factors[kind] = timed_s / traced_s
    return factors


def generation(
    facts: RunFile,
    attribution: Attribution | None,
    rows: Sequence[OperatorRow],
    ready_s: Sequence[Floats],
    roofs: Ceilings | None,
    steps: Steps | None,
    energy_j: float | None,
) -> Generation | None:
    """What the ``steps`` of a run generate, each for ``energy_j``; None where they generate nothing that is
    known.

    ``rows`` go with the rows of ``attribution``, which is None without a trace; ``ready_s`` are the
    ``timed_tokens``.
    """
    start_up = facts.steps is not None and facts.steps.traced == "program"
    calls = phase_calls(attribution, start_up=start_up) if attribution is not None else {}
    generations = attribution.per if attribution is not None else 1
    lengths = _lengths(facts, calls, generations)
    if lengths is None:
        return None
    requests, prompt_length, new_tokens = lengths
    latency = token_latency(ready_s, prompt_length)
    sizes = facts.generation_sizes
    tokens = requests * new_tokens
    return Generation(
        requests=requests,
        prompt_length=prompt_length,
        new_tokens=new_tokens,
        sizes=sizes,
        latency=latency,
        tokens_per_s=tokens / steps.median_s if steps is not None and steps.median_s else None,
        tokens_per_j=tokens / energy_j if energy_j else None,
        fits=_fits(facts, sizes, requests, prompt_length + new_tokens - 1) if sizes is not None else None,
        phases=tuple(
            _phase(kind, phase, rows, call_seconds(kind, phase, latency, generations), roofs, sizes)
            for kind, phase in calls.items()
        ),
    )


def _phase(
    kind: Kind,
    calls: PhaseCalls,
    rows: Sequence[OperatorRow],
    timed_s: float | None,
    roofs: Ceilings | None,
    sizes: GenerationSizes | None,
) -> ServedSteps:
    batches, attribution = calls
    code = PHASES.index(kind)
    every = zip(attribution.rows, rows, strict=True)
    ran = [RanBatch(row, judged, row.calls, row.time_ns) for row, judged in every if row.phase == code]
    gaps = [(gap, gap.time_ns) for gap in attribution.gaps if gap.phase == code]
    steps = steps_of_kind(
        kind,
        batches,
        attribution,
        rows,
        ran,
        gaps,
        roofs,
        generated=batches[0].requests if kind == "decode" else None,
        doubt="",
        timed_s=timed_s,
        sizes=sizes,
    )
    return msgspec.structs.replace(steps, work=work_of(ran, len(batches)))


def _lengths(facts: RunFile, calls: dict[Kind, PhaseCalls], generations: int) -> tuple[int, int, int] | None:
    """Requests, tokens of each prompt and new tokens: those of the workload, else what the marks of a trace
    tell."""
    workload = facts.workload
    if workload.prompt_length is not None and workload.new_tokens is not None:
        return workload.batch_size or 1, workload.prompt_length, workload.new_tokens
    prompts = calls["prefill"].batches if "prefill" in calls else ()
    if not prompts or prompts[-1].keys is None:
        return None
    decodes = len(calls["decode"].batches) if "decode" in calls else 0
    return prompts[-1].requests, prompts[-1].keys // prompts[-1].requests, 1 + round(decodes / generations)


def _fits(facts: RunFile, sizes: GenerationSizes, requests: int, context: int) -> MemoryFit | None:
    environment = facts.environment
    memory = environment.memory_bytes if environment.device == "cpu" else environment.device_memory_bytes
    if (
        memory is None
        or (free := memory - sizes.parameter_bytes) < 0
        or (longest := sizes.largest_context(free, requests)) is None
    ):
        return None
    return MemoryFit(memory_bytes=memory, requests=free // sizes.cache_bytes(context), context=longest)
