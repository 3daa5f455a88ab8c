"""The section of a trace of a server: its steps by kind, where their time goes, and what a decode step must
read."""

from __future__ import annotations

from rooflines.reports.document import (
    PART,
    SHARE,
    Cell,
    Column,
    Paragraph,
    Section,
    Table,
    filled,
    said,
    section,
)
from rooflines.reports.words.text import INFERRED_MARK, given
from rooflines.roofline.advise.verdict import plural, rate_text
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.served_steps import ServedSteps, ServedWork
from rooflines.units import counted, percent, seconds, si


def serving_section(analysis: Analysis) -> Section | None:
    """The section; None for a trace without a server's marks."""
    if not analysis.serving:
        return None
    kinds = analysis.serving.kinds
    rate = analysis.serving.generated_per_s
    between = analysis.serving.generated_per_s_range
    generated = rate_text(between) if between else f"{rate:,.0f}" if rate is not None else ""
    return section(
        "serving",
        "Serving",
        steps_table(kinds, "serving"),
        *said(reads_sentence(kind) for kind in kinds if kind.kind == "decode"),
        *said(
            f"All steps together: {generated} generated tokens per second."
            if generated and len(kinds) > 1
            else ""
        ),
        parts_table(kinds, "serving"),
        Paragraph(_METHOD, "note"),
        remark=f"{counted(sum(kind.steps for kind in kinds), 'step')} from the server's marks",
    )


# What a row is, and what its figures are per.
_UNITS = {"serving": ("kind", "step"), "generation": ("phase", "call")}
_METHOD = (
    "Figures are per step of each kind. Tokens: tokens computed in the step. Tokens/s: tokens "
    "divided by the step's time on the device,"
    " including idle time. One step, marks that overlap, Python stacks and profiler overhead "
    "give a range: over that time, and over its"
    " busy part. Generated tokens are those of requests in decode. Keys are the tokens that "
    "attention may see for a request."
)


def steps_table(kinds: tuple[ServedSteps, ...], of: str, steps: int = 1) -> Table | None:
    """A row for each kind with its steps, or for each phase with the calls in one of as many ``steps``; None
    without any."""
    if not kinds:
        return None
    name, step = _UNITS[of]
    columns = (
        Column(name, format="text", least=7),
        Column("share", "%", "share", help="share of the time of all rows"),
        Column(f"{step}s", format="count"),
        Column("requests", format="count", priority=2),
        Column("tokens", format="count", help=f"tokens computed in a {step}"),
        Column("keys", format="count", priority=2, help="tokens that attention may see for a request"),
        Column("time", "s", "own"),
        Column("idle", "%", "share", priority=1, help="share in which no operator runs"),
        Column("tokens/s", "", "own", "tokens_per_s"),
        Column("generated/s", "", "own", "generated_per_s", 3),
        Column("FLOPs", "FLOP", "own", "flops", priority=3),
        Column("traffic", "B", "scaled", "bytes", priority=3),
        Column("bound", "s", "own"),
        Column("of bound", "%", "efficiency", key="efficiency"),
    )
    all_s, rows = sum(one.steps * one.step_s for one in kinds), []
    for one in kinds:
        bound_s = bound_of(one)
        rows.append(
            (
                one.kind,
                one.steps * one.step_s / all_s if all_s else None,
                one.steps / steps,
                one.requests,
                one.tokens,
                one.keys / one.requests if one.keys is not None and one.requests else None,
                one.step_s,
                1 - one.busy_s / one.step_s if one.step_s else None,
                _rate(one.tokens_per_s, one.tokens_per_s_range, one),
                _rate(one.generated_per_s, one.generated_per_s_range, one),
                one.work.flops if one.work else None,
                one.work.bytes if one.work else None,
                bound_s,
                bound_s / one.step_s if bound_s is not None and one.step_s else None,
            )
        )
    return filled(f"{of}-steps", columns, rows, f"Time of a {step} by {name}", show="always")


def bound_of(steps: ServedSteps) -> float | None:
    """The least time of one of the steps: the larger one of the bounds of its operators and of what decode
    must read."""
    reads = steps.reads if steps.reads and steps.reads.assumption is None else None
    bounds = (one.lower_bound_s for one in (steps.work, reads) if one)
    return max((bound for bound in bounds if bound is not None), default=None)


def _rate(rate: float | None, between: tuple[float, float] | None, one: ServedSteps) -> Cell | float | None:
    return (
        rate
        if not between
        else Cell(value=None, text=rate_text(between), hover=f"no single rate: {one.rate_doubt}")
    )


def reads_sentence(one: ServedSteps) -> str:
    """What a decode step must read, or why that is not known."""
    reads = one.reads
    if not reads:
        share = 1 - one.modeled_time_fraction if one.modeled_time_fraction is not None else 0.0
        why = f": {percent(share)} of the busy time is in operators without a work model" if share else ""
        also = " If the step replays graphs, add their capture trace with --capture." if share else ""
        return f"Bytes per decode step are not available{why}.{also}"
    read, least = ("reads up to", "about") if reads.assumption else ("must read", "at least")
    what = (
        f"A decode step {read} {si(reads.weight_bytes, 'B')} of weights and "
        f"{si(reads.kv_cache_bytes, 'B')} of KV cache"
    )
    mark = given(" (assumed: {})", reads.assumption)
    if reads.lower_bound_s is None or reads.efficiency is None:
        return f"{what}{mark}."
    return (
        f"{what}{mark}. At the memory bandwidth of the device this takes {least} "
        f"{seconds(reads.lower_bound_s)}, "
        f"{percent(reads.efficiency)} of the step's time."
    )


def parts_table(kinds: tuple[ServedSteps, ...], of: str) -> Table | None:
    """The parts of a language model in the steps of each kind; categories of operators where the network does
    not show its parts."""
    works = [
        (one, name, work)
        for one in kinds
        for name, work in (one.parts or _categories(one)).items()
        if work.time_s > 0
    ]
    if not works:
        return None
    columns = (
        Column(_UNITS[of][0], format="text", least=7),
        PART,
        SHARE,
        Column("time", "s", "own"),
        Column("FLOPs", "FLOP", "own", "flops", 2),
        Column("traffic", "B", "scaled", "bytes", 2),
        Column("intensity", "FLOP/B", "figures", priority=1),
        Column("rate", "FLOP/s", "own", priority=1),
        Column("attainable", "FLOP/s", "own", priority=1),
        Column("of bound", "%", "efficiency", key="efficiency"),
    )
    rows = (
        (
            kind.kind,
            Cell(
                value=f"{part}{f' {INFERRED_MARK}' if work.assumption else ''}",
                hover=given("assumed: {}", work.assumption),
            ),
            work.time_s / kind.step_s if kind.step_s > 0 else None,
            work.time_s,
            work.flops or None,
            work.bytes or None,
            work.intensity_flop_per_byte,
            work.flop_per_s,
            work.attainable_flop_per_s,
            work.efficiency,
        )
        for kind, part, work in works
    )
    caption = "Time of a {1} by part of the network, for each {0}".format(*_UNITS[of])
    return filled(f"{of}-parts", columns, rows, caption, title="Parts of the network", show="always")


def _categories(one: ServedSteps) -> dict[str, ServedWork]:
    """The time of a step by category, longest first; only attention and experts have their work."""
    known = {"attention": one.attention, "moe": one.moe}
    times = longest_first(one.category_breakdown.items())
    return {
        plural(name): known.get(name) or ServedWork(time_s=time_s, flops=0, bytes=0)
        for name, time_s in times.items()
    }
