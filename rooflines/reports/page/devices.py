"""The pages of data sheets: the list, and one device with every figure and where it is from; CSV and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from rooflines import serial
from rooflines.device_specs.catalog import Match
from rooflines.device_specs.sheet import Sheet, SheetFigure, SheetRate
from rooflines.reports.document import Column, Facts, Page, Row, Section, said, section, table
from rooflines.reports.words.text import csv_text, joined
from rooflines.roofline.count.by_key import grouped
from rooflines.units import counted, sentence, significant

_NONE = "-"
_COLUMNS = (
    Column("device", format="text", least=16),
    Column("memory", "GB"),
    Column("bandwidth", "GB/s"),
    Column("fp32", "TFLOP/s"),
    Column("16 bit", "TFLOP/s"),
    Column("8 bit", "TOP/s"),
    Column("power", "W"),
)


def page(found: Sequence[Match]) -> Page:
    """The sheets of ``found`` by vendor: memory, bandwidth, the highest dense rates and the power."""
    rows = []
    vendor = ""
    for match in found:
        if match.sheet.vendor != vendor:
            vendor = match.sheet.vendor
            rows.append(Row((vendor,), heading=True))
        memory, power = match.sheet.memory, match.sheet.power
        rates = (
            _best(match.sheet, precisions) for precisions in (("fp32",), ("bf16", "fp16"), ("fp8", "int8"))
        )
        bandwidth, watts = _marked(memory.gb_per_s, memory), _marked(power.tdp_w, power) if power else _NONE
        name = f"{match.sheet.name}{' (yours)' if match.user else ''}"
        rows.append(Row((name, _capacity(match.sheet), bandwidth, *rates, watts)))
    notes = [
        "TFLOP/s (int8: TOP/s), dense, the faster of vector and matrix units, accumulated as torch does."
    ]
    if any("?" in str(cell) for row in rows for cell in row.cells[1:]):
        notes.append("?: unconfirmed figure, no source found.")
    notes.append("rooflines devices NAME shows one with every source.")
    listed = table("devices", _COLUMNS, rows, "The data sheets", show="always")
    return Page(
        kind="devices",
        name="Data sheets",
        title="Data sheets of devices",
        verdict=f"{counted(len(found), 'device')}.",
        sections=(section("devices", "Devices", listed, *said(notes, "note")),),
    )


def device_page(match: Match) -> Page:
    """One device: every figure, whether it is derived or unconfirmed, and its sources, which follow in a
    numbered list."""
    sheet = match.sheet
    numbers = {key: number for number, key in enumerate(sheet.sources, 1)}
    facts = [sheet.vendor, sheet.architecture, sheet.kind, "your own sheet" if match.user else ""]
    if sheet.compute_capability:
        capability = sheet.compute_capability
        facts.insert(2, f"compute capability {capability}" if capability[:1].isdigit() else capability)
    texts = [sentence(sheet.part)] if sheet.part else []
    if match.mig:
        texts.append(
            f"The name is that of a slice, {match.mig.profile}: arithmetic is scaled by its SMs, "
            "bandwidth by its memory."
        )
    sections: list[Section] = []
    if sheet.compute:
        columns = (
            Column("dense rates", format="text"),
            Column("T(FL)OP/s"),
            Column(f"per {sheet.units.name}", key="per_cycle"),
            Column("MHz"),
            Column("accumulate", format="text"),
            Column("source", format="text"),
        )
        rows = (
            (
                f"{rate.precision} {rate.engine}",
                f"{rate.tflop_per_s or rate.top_per_s or 0.0:g}",
                f"{rate.per_cycle:g}" if rate.per_cycle is not None else _NONE,
                f"{sheet.clocks[rate.clock].mhz:g}" if rate.clock else _NONE,
                rate.accumulate,
                _origin(rate, numbers),
            )
            for rate in sheet.compute
        )
        rates = table("rates", columns, rows, "Dense rates", show="always")
        sections.append(section("rates", "Arithmetic", rates, *said(_remarks(sheet), "note")))
    figures = (
        Column("figure", format="text"),
        Column("value", format="text"),
        Column("source", format="text"),
    )
    memory = sheet.memory
    size = f"{_capacity(sheet)} GB " if memory.capacity_gb or memory.capacities_gb else ""
    listed: list[tuple[str, str, SheetFigure]] = [
        ("memory", f"{size}{memory.technology}, {memory.gb_per_s:g} GB/s", memory),
        ("units", f"{sheet.units.count} {sheet.units.name}", sheet.units),
        *((label, words, figure) for label, words, _, _, figure in _others(sheet)),
    ]
    cells = ((label, words, _origin(figure, numbers)) for label, words, figure in listed)
    others = table("figures", figures, cells, "Memory, units, clocks, links and power", show="always")
    cited = Facts(
        rows=tuple((f"[{number}]", sheet.sources[key]) for key, number in numbers.items()),
        kind="definitions",
        show="always",
    )
    names = said(f"Printed as {', '.join(sheet.names)}" if sheet.names else "")
    sections += [
        section("figures", "Memory, clocks and links", others),
        section("sources", "Sources", *names, cited),
    ]
    return Page(
        kind="device",
        name=sheet.name,
        title=sheet.name,
        verdict=joined(" · ", *facts),
        said=tuple(texts),
        sections=tuple(sections),
    )


def to_json(found: Sequence[Match]) -> str:
    """The sheets as a JSON array, in the fields and units of their files; ``user`` is true for a user's
    own."""
    return serial.to_json([{**serial.to_plain(match.sheet), "user": match.user} for match in found])


def to_csv(found: Sequence[Match]) -> str:
    """A row a figure: device, figure, value, unit, whether derived and unconfirmed, and the sources in
    words."""
    header = (
        "device",
        "vendor",
        "kind",
        "architecture",
        "figure",
        "precision",
        "engine",
        "accumulate",
        "value",
        "unit",
        "derived",
        "unconfirmed",
        "source",
    )
    return csv_text(header, (row for match in found for row in _csv_rows(match.sheet)))


def _best(sheet: Sheet, precisions: Sequence[str]) -> str:
    """The highest rate of any of ``precisions``, in T(FL)OP/s."""
    found = [
        rate for one in precisions for engine in ("vector", "matrix") if (rate := sheet.rate(one, engine))
    ]
    best = max(found, key=lambda rate: rate.per_second, default=None)
    return _NONE if not best else _marked(best.tflop_per_s or best.top_per_s or 0.0, best)


def _marked(value: float, figure: SheetFigure) -> str:
    """Three significant figures, but integers whole: 0.354, 19.5, 989, 1979; one without a source is
    marked."""
    return (significant(value) if value < 1000 else f"{value:.0f}") + ("?" if figure.unconfirmed else "")


def _capacity(sheet: Sheet) -> str:
    memory = sheet.memory
    if memory.capacities_gb:
        return f"{memory.capacities_gb[0]:g}-{memory.capacities_gb[1]:g}"
    return f"{memory.capacity_gb:g}" if memory.capacity_gb else _NONE


def _origin(figure: SheetFigure, numbers: dict[str, int]) -> str:
    words = ["derived"] if getattr(figure, "derived", False) else []
    words += ["unconfirmed"] if figure.unconfirmed else []
    cited = " ".join(f"[{number}]" for number in sorted(numbers[key] for key in figure.source))
    return f"{cited} {', '.join(words)}".rstrip()


def _remarks(sheet: Sheet) -> Iterator[str]:
    """What is to be said of rates, each remark once, after the rates that it is about."""
    no_roof = "no roof with fp16 accumulate, because torch accumulates in fp32"
    remarks = (
        (text, rate)
        for rate in sheet.compute
        for text in (rate.differs, "" if rate.is_roof else no_roof, rate.reached)
        if text
    )
    for text, pairs in grouped(remarks, itemgetter(0)).items():
        yield f"{', '.join(f'{rate.precision} {rate.engine}' for _, rate in pairs)}: {text}"


def _others(sheet: Sheet) -> Iterator[tuple[str, str, float, str, SheetFigure]]:
    """The figures of a sheet besides its rates: the name, in words, the value with its unit, and where it is
    from."""
    for name, clock in sheet.clocks.items():
        yield f"{name} clock", f"{clock.mhz:g} MHz", clock.mhz * 1e6, "Hz", clock
    if sheet.l2:
        yield "L2", f"{sheet.l2.mb:g} MB", sheet.l2.mb * 2**20, "B", sheet.l2
    if sheet.power:
        yield "TDP", f"{sheet.power.tdp_w:g} W", sheet.power.tdp_w, "W", sheet.power
    if sheet.nvlink:
        rate = sheet.nvlink.gb_per_s
        yield "NVLink", f"{rate:g} GB/s, both directions together", rate * 1e9, "B/s", sheet.nvlink
    if sheet.pcie:
        words = f"generation {sheet.pcie.generation}, {sheet.pcie.lanes} lanes"
        yield "PCIe", words, sheet.pcie.generation, "generation", sheet.pcie
    if sheet.host_link:
        words = f"{sheet.host_link.technology}, {sheet.host_link.gb_per_s:g} GB/s each direction"
        yield "host link", words, sheet.host_link.bytes_per_second, "B/s", sheet.host_link


def _csv_rows(sheet: Sheet) -> Iterator[tuple[object, ...]]:
    memory = sheet.memory
    found: list[tuple[str, SheetRate | None, float, str, SheetFigure]] = [
        ("rate", one, one.per_second, one.unit, one) for one in sheet.compute
    ]
    found.append(("bandwidth", None, memory.bytes_per_second, "B/s", memory))
    found += [("memory", None, memory.capacity_gb * 2**30, "B", memory)] if memory.capacity_gb else []
    found.append(("units", None, sheet.units.count, sheet.units.name, sheet.units))
    found += [(name, None, value, unit, figure) for name, _, value, unit, figure in _others(sheet)]
    for kind, rate, value, unit, figure in found:
        words = (rate.precision, rate.engine, rate.accumulate) if rate else ("", "", "")
        flags = (str(bool(getattr(figure, "derived", False))).lower(), str(figure.unconfirmed).lower())
        yield (
            sheet.name,
            sheet.vendor,
            sheet.kind,
            sheet.architecture,
            kind,
            *words,
            value,
            unit,
            *flags,
            "; ".join(sheet.sources[key] for key in figure.source),
        )
