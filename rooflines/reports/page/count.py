"""The page of a count: the totals, what they are made of by operator or by module, and what has no formula;
and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from rooflines.reports.document import (
    ABSENT,
    CALLS,
    PART,
    SHARE,
    CellValue,
    Column,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    said,
    section,
    sections_of,
    table,
)
from rooflines.reports.words.sentences import listed
from rooflines.reports.words.text import given, short_name, struct_csv
from rooflines.roofline.dry_run.count import Count, ModuleCount, OperatorCount
from rooflines.units import counted, percent, sentence, si

if TYPE_CHECKING:
    from rooflines.profiler.records import StepMemory, Workload
    from rooflines.roofline.dry_run.other_counters import OtherCount
    from rooflines.roofline.dry_run.phases import GenerationCount

By = Literal["operator", "module"]
_MOST_UNKNOWN = 8
_MOST_NAMES = 3


def page(
    count: Count,
    workload: Workload,
    by: By = "operator",
    rows: int = 20,
    others: Sequence[OtherCount] = (),
    command: str = "",
) -> Page:
    """The count: totals, what they are made of (``rows`` of it in the short form), what is unknown; the
    memory and other counters."""
    sections = sections_of(
        section(f"{by}s", f"{by.capitalize()}s", *_work(count, by, rows)),
        _memory(count.memory) if count.memory else None,
        _against(count, others) if others else None,
        _command(command),
    )
    return Page(
        kind="count", name=workload.name, title=_title(workload), verdict=totals(count), sections=sections
    )


def generation_page(found: GenerationCount, by: By, rows: int, command: str) -> Page:
    """The count of a generation: the memory, and each phase as ``page`` shows a step."""
    workload, sections, verdict = found.workload, [_generation_memory(found)], []
    for phase in found.phases:
        count, name = phase.count, f"{phase.phase}-{phase.keys}"
        title = f"{phase.phase.capitalize()}: {phase.tokens} of {phase.keys} tokens of each sequence"
        sections.append(section(name, title, *said(totals(count)), *_work(count, by, rows, f"work-{name}")))
        what = (
            f"{counted(phase.calls, 'decode step')}, at {phase.keys} tokens each"
            if phase.phase == "decode"
            else "Prefill"
        )
        verdict.append(f"{what} {si(count.flops, 'FLOP')} and {si(count.bytes, 'B')}")
    return Page(
        kind="count",
        name=workload.name,
        title=_title(workload),
        verdict="; ".join(verdict),
        sections=sections_of(*sections, _command(command)),
    )


def _command(command: str) -> Section:
    return section("command", "The command", *said(command, "code", "full"))


def _generation_memory(found: GenerationCount) -> Section:
    """Parameters, KV cache and activations of a generation."""
    rows = [("parameters", si(found.parameter_bytes, "B"), f"{si(found.parameters, '')} parameters")]
    if found.kv_bytes is not None and found.kv_bytes_per_token is not None:
        rows.append(
            ("KV cache at the end", si(found.kv_bytes, "B"), f"{si(found.kv_bytes_per_token, 'B')} per token")
        )
    rows.append(("activations at the peak", si(found.activation_bytes, "B"), ""))
    columns = (PART, Column("size"), Column("remark", format="text"))
    return section(
        "memory",
        "Memory of a generation",
        table("memory", columns, rows, "Memory of a generation", show="always"),
    )


def _work(count: Count, by: By, rows: int, name: str = "work") -> Iterator[Table | Paragraph]:
    """What the totals are made of, by operator or by module, and what they leave out."""
    lines = list(_by_operator(count) if by == "operator" else _by_module(count))
    columns = (
        Column(by, format="name" if by == "operator" else "text"),
        CALLS,
        Column("FLOPs", "", "own", "flops"),
        Column("matrix", "", "own", "matrix_flops", priority=2),
        SHARE,
        Column("bytes", "", "own"),
        Column("intensity", "FLOP/B", "figures", priority=1),
    )
    cells = (
        Row(
            (
                name,
                calls,
                flops or None,
                matrix or None,
                flops / (count.flops or 1),
                size or None,
                flops / size if flops and size else None,
            ),
            depth=depth,
        )
        for name, depth, calls, flops, matrix, size in lines
    )
    kind = "plain" if by == "operator" else "tree"
    yield table(name, columns, cells, f"FLOPs and bytes by {by}", kind=kind, brief=rows, show="always")
    if len(lines) > rows:
        yield Paragraph(f"and {len(lines) - rows} more (--rows {len(lines)} shows all)", "note", "brief")
    yield from _doubts(count)


def _memory(memory: StepMemory) -> Section:
    """The peak of a step's memory, where it is reached, and what it consists of."""
    rows = (
        (name, *((si(size, "B"), percent(size / memory.peak_bytes, 1)) if size else (ABSENT, ABSENT)))
        for name, size in msgspec.structs.asdict(memory.at_peak).items()
    )
    names = ", ".join(memory.unknown)
    return section(
        "memory",
        "Memory of a step",
        *said(f"{si(memory.peak_bytes, 'B')} of memory at the peak, {_place(memory)}"),
        table("memory", (PART, Column("size"), Column("share")), rows, "Peak memory by kind", show="always"),
        *said(given("Not included: memory that libraries allocate inside operators ({}).", names)),
    )


def _place(memory: StepMemory) -> str:
    """Where the peak is reached."""
    if not memory.operator:
        return "held before the step"
    module = given(" of {}", memory.module)
    return f"first reached by {memory.operator}{module} ({memory.phase})"


def _against(count: Count, others: Sequence[OtherCount]) -> Section:
    """The totals of the other counters and ours, and the causes of each difference, largest first."""
    rows: list[tuple[CellValue, ...]] = [
        ("rooflines", count.flops, "FLOP", None, None),
        ("  matrix products", count.matrix_flops, "FLOP", count.matrix_flops / (count.flops or 1), None),
    ]
    rows += [
        (
            other.counter,
            other.total,
            other.unit,
            other.total / (count.flops or 1),
            other.total / (count.matrix_flops or 1),
        )
        for other in others
        if other.total is not None
    ]
    columns = (
        Column("counter", format="text"),
        Column("total", "", "own"),
        Column("unit", format="text", least=4),
        Column("of our FLOPs", "", "figures"),
        Column("of our matrix FLOPs", "", "figures"),
    )
    blocks: list[Paragraph | Table] = [
        table("counters", columns, rows, "Totals of other counters", show="always")
    ]
    for other in others:
        if other.absent or not other.differences:
            blocks += said(
                f"{other.counter}: no count, {other.absent}" if other.absent else f"{other.counter}: the same"
            )
            continue
        differences = []
        for difference in other.differences:
            names = listed([*map(short_name, difference.operators)], _MOST_NAMES)
            detail = (Paragraph(names, "note", "always"),)
            differences.append(Row((difference.ours, difference.theirs, difference.reason), detail=detail))
        title = f"{other.counter}: what makes the difference"
        here_and_there = (
            Column("here", "", "own"),
            Column("there", "", "own"),
            Column("reason", format="text"),
        )
        blocks.append(
            table(f"differences-{other.counter}", here_and_there, differences, title=title, show="always")
        )
    return section("counters", "Other counters", *blocks)


def _title(workload: Workload) -> str:
    facts = [workload.mode, f"batch {workload.batch_size}", workload.precision]
    if workload.image_size:
        facts.append(f"{workload.image_size} x {workload.image_size}")
    if workload.mode == "generate":
        return (
            f"{workload.name}: {workload.new_tokens} tokens after a prompt of "
            f"{workload.prompt_length}, {', '.join(facts[1:])}"
        )
    return f"{workload.name}: one step of {', '.join(facts)}"


def totals(count: Count) -> str:
    return (
        f"{si(count.flops, 'FLOP')}, of which {si(count.matrix_flops, 'FLOP')} in matrix products"
        f" ({si(count.matrix_flops // 2, 'MAC')}); {si(count.bytes, 'B')} of compulsory traffic"
        f" ({si(count.bytes_read, 'B')} read, {si(count.bytes_written, 'B')} written)"
    )


_Line = tuple[str, int, int, int, int, int]


def _by_operator(count: Count) -> Iterator[_Line]:
    """Name, calls, FLOPs, matrix FLOPs and bytes of each operator, all shapes together, the most FLOPs
    first."""
    sums: dict[str, list[int]] = {}
    for row in count.operators:
        if row.kind == "counted":
            figures = (row.calls, row.flops or 0, row.matrix_flops or 0, row.bytes or 0)
            sums[row.name] = [a + b for a, b in zip(sums.get(row.name, (0, 0, 0, 0)), figures, strict=True)]
    for name, (calls, flops, matrix, size) in sorted(
        sums.items(), key=lambda item: (-item[1][1], -item[1][3])
    ):
        yield short_name(name), 0, calls, flops, matrix, size


def _by_module(count: Count) -> Iterator[_Line]:
    """The modules in the order of their first call, each with what runs below it and its depth."""
    for row in count.modules:
        last = row.path.rpartition(".")[2] if row.path else ""
        yield (
            f"{last} ({row.type})" if last else row.type,
            row.depth,
            row.calls,
            row.flops,
            row.matrix_flops,
            row.bytes,
        )


def _doubts(count: Count) -> Iterator[Paragraph]:
    """What the totals leave out, and what the count rests on."""
    unknown = [row for row in count.operators if row.kind == "unknown"]
    if unknown:
        yield Paragraph(
            f"{percent(count.coverage, 1)} of the operator calls have a formula; not in the totals:",
            show="always",
        )
        names: dict[tuple[str, str], int] = {}
        for row in unknown:
            key = (row.name, row.reason or "")
            names[key] = names.get(key, 0) + row.calls
        for at, ((name, reason), calls) in enumerate(names.items()):
            yield Paragraph(
                f"{name} ({calls} calls): {reason}", show="always" if at < _MOST_UNKNOWN else "full"
            )
        if len(names) > _MOST_UNKNOWN:
            yield Paragraph(f"and {len(names) - _MOST_UNKNOWN} more (--format json lists all)", show="brief")
    else:
        yield Paragraph("Every operator call has a formula.", show="always")
    for name, assumption in dict.fromkeys(
        (row.name, row.assumption) for row in count.operators if row.assumption
    ):
        yield Paragraph(f"Estimated: {name} ({assumption}).", show="always")
    if count.note:
        yield Paragraph(sentence(count.note), show="always")


def count_csv(rows: Sequence[OperatorCount] | Sequence[ModuleCount], by: By) -> str:
    """The rows as CSV text, with the fields of ``OperatorCount`` or ``ModuleCount`` as its header."""
    return struct_csv(rows, OperatorCount if by == "operator" else ModuleCount)
