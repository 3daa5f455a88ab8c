"""The section of a trace of a server: its steps by kind, where their time goes, and what a decode step must read."""

from __future__ import annotations

from rooflines.reports.document import Cell, Column, Paragraph, Section, Table, said, section, table
from rooflines.reports.words.text import INFERRED_MARK
from rooflines.roofline.analysis import Analysis, ServedSteps, ServedWork
from rooflines.roofline.verdict import plural, rate_text
from rooflines.units import counted, percent, seconds, si


def serving_section(analysis: Analysis) -> Section | None:
    """The section; None for a trace without a server's marks."""
    if analysis.serving is None:
        return None
    kinds, rate, between = analysis.serving.kinds, analysis.serving.generated_per_s, analysis.serving.generated_per_s_range
    generated = rate_text(between) if between is not None else f"{rate:,.0f}" if rate is not None else ""
    return section(
        "serving",
        "Serving",
        _steps(kinds),
        *said(reads_sentence(kind) for kind in kinds if kind.kind == "decode"),
        *said([f"All steps together: {generated} generated tokens per second." if generated and len(kinds) > 1 else ""]),
        times_table(kinds, "serving"),
        _roofline(kinds),
        parts_table(kinds, "serving"),
        Paragraph(_METHOD, "note"),
        remark=f"{counted(sum(kind.steps for kind in kinds), 'step')} from the server's marks",
    )


# What a row is, and what its figures are per.
_UNITS = {"serving": ("kind", "step"), "generation": ("phase", "call")}
_METHOD = (
    "Figures are per step of each kind. Tokens: tokens computed in the step. Tokens/s: tokens divided by the step's time on the device,"
    " including idle time. One step, marks that overlap, Python stacks and profiler overhead give a range: over that time, and over its"
    " busy part. Generated tokens are those of requests in decode. Keys are the tokens that attention may see, including the"
    " KV cache."
)


def _steps(kinds: tuple[ServedSteps, ...]) -> Table:
    columns = (
        Column("kind", format="text", least=7), Column("steps", format="count"), Column("requests", format="count"),
        Column("tokens", format="count"), Column("keys/request", format="count", key="keys_per_request", priority=1),
        Column("time", "s", "scaled", group="step"), Column("busy", "s", "scaled", group="step", priority=3),
        Column("tokens/s", format="count", key="tokens_per_s"),
        Column("generated/s", format="count", key="generated_per_s", priority=2),
    )  # fmt: skip
    rows = (
        (
            one.kind, one.steps, _whole(one.requests), _whole(one.tokens), _whole(_keys(one)), one.step_s, one.busy_s,
            _rate(one.tokens_per_s, one.tokens_per_s_range, one), _rate(one.generated_per_s, one.generated_per_s_range, one),
        )
        for one in kinds
    )  # fmt: skip
    return table("serving-steps", columns, rows, "Steps of the server by kind", show="always")


def _whole(value: float | None) -> float | None:
    return round(value) if value is not None and value >= 10 else value


def _rate(rate: float | None, between: tuple[float, float] | None, one: ServedSteps) -> Cell | float | None:
    return _whole(rate) if between is None else Cell(value=None, text=rate_text(between), hover=f"no single rate: {one.rate_doubt}")


def _keys(one: ServedSteps) -> float | None:
    return one.keys / one.requests if one.keys is not None and one.requests else None


def reads_sentence(one: ServedSteps) -> str:
    """What a decode step must read, or why that is not known."""
    reads = one.reads
    if reads is None:
        share = 1 - one.modelled_time_fraction if one.modelled_time_fraction is not None else 0.0
        why = f": {percent(share)} of the busy time is in operators without a work model" if share else ""
        also = " If the step replays graphs, add their capture trace with --capture." if share else ""
        return f"Bytes per decode step are not available{why}.{also}"
    read, least = ("reads up to", "about") if reads.assumption else ("must read", "at least")
    what = f"A decode step {read} {si(reads.weight_bytes, 'B')} of weights and {si(reads.kv_cache_bytes, 'B')} of KV cache"
    mark = f" (assumed: {reads.assumption})" if reads.assumption else ""
    if reads.lower_bound_s is None or reads.efficiency is None:
        return f"{what}{mark}."
    return (
        f"{what}{mark}. At the memory bandwidth of the device this takes {least} {seconds(reads.lower_bound_s)}, "
        f"{percent(reads.efficiency)} of the step's time."
    )


def times_table(kinds: tuple[ServedSteps, ...], of: str) -> Table:
    """The time of a step by category, for each kind, or of a call for each phase."""
    kind, step = _UNITS[of]
    columns = (
        Column("share", "%", "share"), Column(kind, format="text", least=7), Column("category", format="text"),
        Column("time", "s", "scaled"),
    )  # fmt: skip
    rows = (
        (Cell(value=time_s / one.step_s, bar=time_s / one.step_s), one.kind, plural(name), time_s)
        for one in kinds
        if one.step_s > 0
        for name, time_s in sorted(one.category_breakdown.items(), key=lambda item: -item[1])
        if time_s > 0
    )
    caption, title = f"Time of a {step} by category, for each {kind}", f"Time per {step} by category"
    return table(f"{of}-times", columns, rows, caption, title=title, kind="parts")


def _roofline(kinds: tuple[ServedSteps, ...]) -> Table | None:
    works = [
        (one, name, work) for one in kinds for name, work in (("attention", one.attention), ("experts", one.moe)) if work is not None
    ]
    caption, title = "Attention and mixtures of experts by kind of step", "Attention and experts against the roofline"
    return _works(works, "serving", "roofline", "operators", caption, title)


def parts_table(kinds: tuple[ServedSteps, ...], of: str) -> Table | None:
    """The parts of a language model in the steps of each kind; None where the network does not show them."""
    works = [(one, name, work) for one in kinds for name, work in one.parts.items()]
    caption = "Parts of the network in a {1} of each {0}".format(*_UNITS[of])
    return _works(works, of, "parts", "part", caption, "Parts of the network")


def _works(works: list[tuple[ServedSteps, str, ServedWork]], of: str, name: str, what: str, caption: str, title: str) -> Table | None:
    if not works:
        return None
    columns = (
        Column(_UNITS[of][0], format="text", least=7), Column(what, format="text"), Column("share", "%", "share"),
        Column("time", "s", "own"), Column("FLOPs", "FLOP", "own", "flops", 2), Column("traffic", "B", "scaled", "bytes", 2),
        Column("intensity", "FLOP/B", "figures", priority=1), Column("rate", "FLOP/s", "own", priority=1),
        Column("attainable", "FLOP/s", "own", priority=1), Column("of bound", "%", "efficiency", key="efficiency"),
    )  # fmt: skip
    rows = (
        (
            kind.kind,
            Cell(
                value=f"{part}{f' {INFERRED_MARK}' if work.assumption else ''}",
                hover=f"assumed: {work.assumption}" if work.assumption else "",
            ),
            work.time_s / kind.step_s if kind.step_s > 0 else None, work.time_s, work.flops or None, work.bytes or None,
            work.intensity_flop_per_byte, work.flop_per_s, work.attainable_flop_per_s, work.efficiency,
        )
        for kind, part, work in works
    )  # fmt: skip
    return table(f"{of}-{name}", columns, rows, caption, title=title, show="always")
