"""Steps of a server by kind: requests, tokens, time by category, attention and experts on the roofline, bytes
that decode reads.

Prefill computes the tokens of prompts together and decode one token of each request, so that a mean over both
describes neither.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.read import intervals
from rooflines.profiler.read.request_marks import KINDS, Kind, RequestMark
from rooflines.profiler.read.signature import TensorArg
from rooflines.profiler.records import GenerationSizes
from rooflines.profiler.tree.windows import launched_ns, step_number
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.count.batches import MARKED
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.judge.bounds import memory_seconds
from rooflines.roofline.judge.network_parts import part_of
from rooflines.roofline.judge.step.partition import partition
from rooflines.roofline.judge.step.times import per_step
from rooflines.roofline.own.own import Attribution
from rooflines.roofline.own.rows import TimeRow
from rooflines.roofline.served_steps import DecodeReads, ServedSteps, ServedWork, Serving

# Kernels that read weights or the KV cache. If uncounted ones take more of the busy time, what decode must
# read is not known.
_READS = re.compile(
    r"gemm|cijk_|matmul|nvjet|xmma|attention|attn|fmha|flash|moe|expert|mla_|_dot_", re.IGNORECASE
)
_MOST_MISSING = 0.05
# A mark with more work of other steps in it than this share of its time does not say when its own step ran.
_MOST_OVERLAP = 0.05
# Overhead of the profiler below this share of the steps changes no rate.
_LITTLE_OVERHEAD = 0.01


@dataclass(frozen=True, slots=True)
class RanBatch:
    """A row in the steps of one kind: its calls and its time there."""

    row: TimeRow
    judged: OperatorRow
    calls: int
    time_ns: float


def serving(
    attribution: Attribution, judged: Sequence[OperatorRow], roofs: Ceilings | None
) -> Serving | None:
    """The steps that a server marked; None for a trace without such marks. ``judged`` goes with the
    attribution's rows."""
    batches = attribution.calls.batches
    if not attribution.steps or not batches:
        return None
    numbers = {kind: [number for number, batch in enumerate(batches) if batch.kind == kind] for kind in KINDS}
    kinds = tuple(
        _steps(kind, of_kind, attribution, judged, roofs) for kind, of_kind in numbers.items() if of_kind
    )
    generated = [(steps.generated, steps.steps) for steps in kinds if steps.kind != "prefill"]
    known = [tokens * count for tokens, count in generated if tokens is not None]
    total_s = sum(steps.step_s * steps.steps for steps in kinds)
    busy_s = sum(steps.busy_s * steps.steps for steps in kinds)
    tokens = sum(known) if known and len(known) == len(generated) else None
    rate, between = _rate(tokens, total_s, busy_s, _rate_doubt(attribution, range(attribution.steps)))
    return Serving(kinds=kinds, generated_per_s=rate, generated_per_s_range=between)


def _rate(
    tokens: float | None, span_s: float, busy_s: float, doubt: str
) -> tuple[float | None, tuple[float, float] | None]:
    """Tokens a second: a rate without doubt, else the range from the span of the steps to the busy time in
    it."""
    if tokens is None or span_s <= 0:
        return None, None
    if not doubt:
        return tokens / span_s, None
    return None, (tokens / span_s, tokens / busy_s) if busy_s > 0 else None


def _rate_doubt(attribution: Attribution, numbers: Sequence[int]) -> str:
    """The reasons why the steps of these numbers have no rate; empty if there is none."""
    device = attribution.trace.device
    marks = attribution.calls.steps
    windows = attribution.windows[numbers]
    step = step_number(launched_ns(attribution.calls), marks)
    own = step >= 0
    start, end = (np.clip(times[own], *marks[step[own]].T) for times in (device.start_ns, device.end_ns))
    own_ns = intervals.lengths_by_group(step[own], start, end, len(marks))
    others_ns = intervals.covered(intervals.union(device.start_ns, device.end_ns), marks) - own_ns
    overlaps = bool((others_ns > _MOST_OVERLAP * (marks[:, 1] - marks[:, 0]))[numbers].any())
    overhead_ns = intervals.covered(attribution.overhead, windows).sum()
    reasons = {
        "one step": len(numbers) < 2,
        "marks overlap the work of other steps": overlaps,
        "Python stacks recorded": attribution.trace.has_stacks,
        "profiler overhead": overhead_ns > _LITTLE_OVERHEAD * intervals.length(windows),
    }
    return ", ".join(reason for reason, applies in reasons.items() if applies)


def _steps(
    kind: Kind,
    numbers: list[int],
    attribution: Attribution,
    judged: Sequence[OperatorRow],
    roofs: Ceilings | None,
) -> ServedSteps:
    """The steps of these numbers."""
    every = attribution.calls.batches
    batches = [every[number] for number in numbers]
    chosen = replace(attribution, windows=attribution.windows[numbers], steps=len(numbers))

    def in_steps(row: TimeRow) -> float:
        return sum(row.step_ns[number] for number in numbers) if row.step_ns else row.time_ns

    ran = []
    for row, operator in zip(attribution.rows, judged, strict=True):
        calls = sum(row.step_calls[number] for number in numbers) if attribution.steps > 1 else row.calls
        if calls:
            ran.append(RanBatch(row, operator, calls, in_steps(row)))
    # Requests in decode generate one token each, if no drafts are verified.
    none = kind == "prefill" or any(batch.is_draft for batch in every)
    return steps_of_kind(
        kind,
        batches,
        chosen,
        judged,
        ran,
        [(gap, in_steps(gap)) for gap in attribution.gaps],
        roofs,
        generated=None if none else _mean([batch.decode_requests for batch in batches]),
        doubt=_rate_doubt(attribution, numbers),
    )


def steps_of_kind(
    kind: Kind,
    batches: Sequence[RequestMark],
    attribution: Attribution,
    judged: Sequence[OperatorRow],
    ran: list[RanBatch],
    gaps: Sequence[tuple[TimeRow, float]],
    roofs: Ceilings | None,
    *,
    generated: int | float | None,
    doubt: str,
    timed_s: float | None = None,
    sizes: GenerationSizes | None = None,
) -> ServedSteps:
    """The steps of one kind, the windows of ``attribution``, of which each entry of ``batches`` is one:
    ``ran`` are those of its rows, ``gaps`` the rows without a count with their nanoseconds in these steps,
    ``timed_s`` is how long one takes where they were timed. ``sizes`` tell the weights, and the KV cache
    where attention is made of several operators."""
    divided = partition(attribution, judged)
    divided = divided if timed_s is None else divided.timed(timed_s)
    count = len(batches)
    step_s = divided.timeline.span_s
    busy_s = divided.timeline.busy_s
    tokens = _mean([one.tokens for one in batches])
    is_known = kind == "decode" and _is_complete(gaps, count, busy_s)
    reads = _reads(ran, batches, step_s, roofs, sizes) if is_known else None
    tokens_per_s, tokens_range = _rate(tokens, step_s, busy_s, doubt)
    generated_per_s, generated_range = _rate(generated, step_s, busy_s, doubt)
    return ServedSteps(
        kind=kind,
        steps=count,
        requests=per_step(sum(one.requests for one in batches), count),
        tokens=tokens,
        padded_to=_padded_to(ran, {one.tokens for one in batches}),
        generated=generated,
        keys=_mean([one.keys for one in batches]),
        step_s=step_s,
        busy_s=busy_s,
        tokens_per_s=tokens_per_s,
        generated_per_s=generated_per_s,
        tokens_per_s_range=tokens_range,
        generated_per_s_range=generated_range,
        rate_doubt=doubt,
        category_breakdown={**divided.categories(), "idle": divided.timeline.idle_s},
        modeled_time_fraction=1 - divided.uncounted_s / busy_s if busy_s > 0 else None,
        attention=work_of([one for one in ran if one.judged.category == "attention"], count),
        moe=work_of([one for one in ran if one.judged.category == "moe"], count),
        reads=reads,
        parts=_parts(kind, ran, gaps, attribution, count, reads),
    )


def _parts(
    kind: Kind,
    ran: list[RanBatch],
    gaps: Sequence[tuple[TimeRow, float]],
    attribution: Attribution,
    steps: int,
    reads: DecodeReads | None,
) -> dict[str, ServedWork]:
    """The work of the parts of a language model per step, longest first; empty of a network that shows no
    attention and embedding.

    In decode a part takes at least its share of the time to read all weights and the KV cache, which no cache
    holds together.
    """
    types = {module.path: module.type for module in attribution.calls.modules}

    def part(row: TimeRow) -> str:
        return part_of(attribution.path(row.module), row.name, row.count.category, phase=kind, types=types)

    groups = grouped(ran, lambda one: part(one.row))
    uncounted = longest_first((part(gap), time_ns / 1e9 / steps) for gap, time_ns in gaps)
    if not {"attention", "embedding"} <= groups.keys():
        return {}
    found: dict[str, ServedWork] = {}
    for name in {**groups, **uncounted}:
        work = work_of(groups[name], steps) or ServedWork(time_s=0.0, flops=0, bytes=0)
        found[name] = msgspec.structs.replace(work, time_s=work.time_s + uncounted.get(name, 0.0))
    if reads is not None and reads.lower_bound_s is not None and reads.assumption is None:
        every = reads.weight_bytes + reads.kv_cache_bytes
        for name, work in found.items():
            size = sum(_weights(one) * one.calls for one in groups[name]) / steps
            size += reads.kv_cache_bytes if name == "attention" else 0
            bound_s = reads.lower_bound_s * size / every
            if bound_s > (work.lower_bound_s or 0.0) and work.time_s > 0:
                found[name] = msgspec.structs.replace(
                    work,
                    lower_bound_s=bound_s,
                    efficiency=bound_s / work.time_s,
                    attainable_flop_per_s=work.flops / bound_s,
                )
    return dict(sorted(found.items(), key=lambda item: -item[1].time_s))


def _mean(values: Sequence[int | None]) -> int | float | None:
    known = [value for value in values if value is not None]
    return per_step(sum(known), len(values)) if len(known) == len(values) else None


def _padded_to(ran: list[RanBatch], tokens: set[int | None]) -> int | None:
    """The rows of the products where padding makes them more than the ``tokens``, equally many in all steps;
    else None."""
    number = tokens.pop() if len(tokens) == 1 else None
    times: Counter[int] = Counter()
    for one in ran:
        if number is not None and one.judged.category == "matmul" and _has_weights(one):
            tokens_in = _matrices(one)[0]
            times[tokens_in.numel // max(1, tokens_in.shape[-1])] += round(one.time_ns)
    most, time_ns = times.most_common(1)[0] if times else (0, 0)
    return most if number is not None and most > number and 2 * time_ns > times.total() else None


def work_of(ran: list[RanBatch], steps: int) -> ServedWork | None:
    """Return the sums of these operators per step; None without any."""
    if not ran:
        return None
    flops = _flops(ran)
    size = sum(one.row.work.bytes * one.calls for one in ran)
    time_s = sum(one.time_ns for one in ran) / 1e9
    # The bounds of operators are per step, for all calls.
    bounds = [(one, one.judged.lower_bound_s) for one in ran if one.judged.lower_bound_s is not None]
    bound_s = sum(each_s / one.judged.calls * one.calls for one, each_s in bounds)
    bounded_s = sum(one.time_ns for one, _ in bounds) / 1e9
    bounded_flops = _flops(one for one, _ in bounds)
    return ServedWork(
        time_s=time_s / steps,
        flops=per_step(flops, steps),
        bytes=per_step(size, steps),
        intensity_flop_per_byte=flops / size if flops and size else None,
        flop_per_s=flops / time_s if flops and time_s > 0 else None,
        attainable_flop_per_s=bounded_flops / bound_s if bounded_flops and bound_s > 0 else None,
        lower_bound_s=bound_s / steps if bounds else None,
        efficiency=bound_s / bounded_s if bounded_s > 0 else None,
        assumption=_assumptions(ran),
    )


def _flops(ran: Iterable[RanBatch]) -> int:
    return sum(one.row.work.flops * one.calls for one in ran)


def _assumptions(ran: list[RanBatch]) -> str | None:
    return "; ".join(dict.fromkeys(one.judged.assumption for one in ran if one.judged.assumption)) or None


# --- what a decode step must read -------------------------------------------------------------------------


def _reads(
    ran: list[RanBatch],
    batches: Sequence[RequestMark],
    step_s: float,
    roofs: Ceilings | None,
    sizes: GenerationSizes | None,
) -> DecodeReads | None:
    """The weights and the KV cache that these operators read per step; None where one of the two is not
    known."""
    products = [one for one in ran if _has_weights(one)]
    attention = [one for one in ran if one.judged.category == "attention" and one.judged.flops]
    # Without the lengths of the sequences the keys are an assumption.
    known = all(one.row.inferred == MARKED or one.judged.assumption is None for one in attention)
    steps = len(batches)
    keys = _mean([one.keys for one in batches])
    per_token = sizes.kv_bytes_per_token if sizes is not None else None
    of_sizes = per_token * keys * steps if per_token and keys is not None and not attention else None
    if not products or not (attention or of_sizes) or not known:
        return None
    weights = sum(_weights(one) * one.calls for one in products)
    if (
        sizes is not None
    ):  # a product may read a copy of its weights that is larger than they are, such as one in a wider type
        weights = min(weights, sizes.parameter_bytes * steps)
    tokens = _mean([one.tokens for one in batches])
    cache = of_sizes or sum(_keys_and_values(one, tokens) * one.calls for one in attention)
    if tokens is not None and tokens == keys:  # every key is computed in the step itself
        cache = 0
    size = round((weights + cache) / steps)
    bound_s = memory_seconds(size, size, roofs)[0] or None if roofs is not None else None
    return DecodeReads(
        weight_bytes=per_step(weights, steps),
        kv_cache_bytes=per_step(round(cache), steps),
        lower_bound_s=bound_s,
        efficiency=bound_s / step_s if bound_s is not None and step_s > 0 else None,
        assumption=_assumptions([*products, *attention]),
    )


def _weights(one: RanBatch) -> int:
    """Return the bytes that a product with weights reads besides its first matrix (the tokens); of experts,
    those that tokens use."""
    matrices = _matrices(one)
    return max(0, one.row.work.bytes_read - matrices[0].nbytes) if matrices and _has_weights(one) else 0


def _matrices(one: RanBatch) -> list[TensorArg]:
    """The operands with two or more dimensions, of which the first has the tokens."""
    return [tensor for tensor in one.row.signature.tensors if len(tensor.shape) >= 2]


def _has_weights(one: RanBatch) -> bool:
    """Return whether one operand of a product is weights; in a product of two batches of matrices both may be
    activations."""
    if one.judged.category == "moe":
        return True
    ranks = [len(tensor.shape) for tensor in _matrices(one)]
    return one.judged.category == "matmul" and len(ranks) >= 2 and 2 in ranks


def _is_complete(gaps: Sequence[tuple[TimeRow, float]], steps: int, busy_s: float) -> bool:
    """Return whether nearly all matrix products and attention of these steps are counted, by the names of
    uncounted kernels."""
    missing_ns = 0.0
    for gap, own_ns in gaps:
        total_ns = sum(kernel.time_ns for kernel in gap.kernels)
        read_ns = sum(kernel.time_ns for kernel in gap.kernels if _READS.search(kernel.name))
        missing_ns += own_ns * read_ns / total_ns if total_ns else 0.0
    return missing_ns / 1e9 / steps <= _MOST_MISSING * busy_s


def _keys_and_values(one: RanBatch, tokens: int | float | None) -> float:
    """Return the bytes that attention reads besides its queries, which may be padded to more than
    ``tokens``."""
    query = next(iter(one.row.signature.tensors), None)
    read = one.row.work.bytes_read
    if query is None or not query.shape or not query.shape[0]:
        return read
    padded = one.row.inferred == MARKED and tokens is not None and tokens < query.shape[0]
    return max(0.0, read - query.nbytes * (tokens / query.shape[0] if padded and tokens is not None else 1))
