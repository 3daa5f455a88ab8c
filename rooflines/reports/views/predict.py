"""The page of a forecast: devices side by side, phases, memory, batch sizes, operators, and a roofline for each device; and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rooflines.reports.charts.curves import Curves, Series
from rooflines.reports.charts.palette import SERIES
from rooflines.reports.charts.roofline import Chart, Point
from rooflines.reports.charts.roofline import roofline as roofline_chart
from rooflines.reports.document import (
    ABSENT,
    Cell,
    Column,
    Facts,
    Figure,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    said,
    section,
    sections_of,
    table,
    value_of,
)
from rooflines.reports.views.roofline import rate_lines
from rooflines.reports.words.text import csv_text, short_name
from rooflines.roofline.forecast.efficiencies import Estimate
from rooflines.roofline.forecast.forecast import (
    DeviceForecast,
    Forecast,
    Operator,
    OperatorBound,
    Phase,
    PhaseBound,
    Step,
    StepBound,
    forecast_rows,
)
from rooflines.units import binary_bytes, interval, percent, seconds, sentence, si, significant

_BRIEF = 12
_LONGEST_LABEL = 40
# A part below this share of the bound of its phase is not in the short form.
_SMALL = 0.001
# What one call of a phase gives, where that has a name of its own.
_GIVES = {"prefill": "first token", "decode": "per token"}


def page(forecast: Forecast, rows: int = _BRIEF) -> Page:
    """The forecast; the short form has ``rows`` operators at most."""
    verdict, *more = sentences(forecast)
    return Page(
        kind="prediction",
        name=forecast.workload.name,
        title=title(forecast),
        rooflines=forecast.rooflines,
        verdict=verdict,
        said=tuple(more),
        sections=sections_of(
            section("devices", "Devices", _devices(forecast)),
            section("predictions", "Predictions", _predictions(forecast)) if forecast.like else None,
            _steps(forecast) if len(forecast.steps) > 1 else None,
            section("phases", "Phases", _phases(forecast), _parts(forecast)),
            _memory(forecast),
            _cost(forecast),
            section("operators", "Operators", _operators(forecast, rows), *said(_unknown(forecast))),
            section("roofline", "Rooflines", *_rooflines(forecast)),
            _method(forecast),
        ),
    )


def title(forecast: Forecast) -> str:
    """The workload and the size of its step."""
    workload = forecast.workload
    facts = [workload.mode, _size(forecast.steps[0]), workload.precision]
    if workload.image_size:
        facts.append(f"{workload.image_size} x {workload.image_size}")
    return f"{workload.name}: prediction of {', '.join(filter(None, facts))}"


def sentences(forecast: Forecast) -> list[str]:
    """The bound of the first step on each device and what sets it, and where it does not fit."""
    texts = []
    for one, on in _on_first(forecast):
        if on.lower_bound_s is None or on.units_per_s is None:
            texts.append(f"{on.missing or f'{one.device.name} has no roof that applies'}, so there is no bound.")
            continue
        times = [
            f"{seconds(phase.lower_bound_s)} {_GIVES[phase.name].replace('first', 'to the first')} ({phase.bound})"
            for phase in on.phases
            if phase.name in _GIVES
        ] or [f"{seconds(on.lower_bound_s)} per step ({_limit(on.by_roof_s)})"]
        rate = f"at most {significant(on.units_per_s)} {forecast.unit}/s"
        texts.append(f"{one.device.name}: at least {' and '.join(times)}, {rate}.")
    too_small, need = [one.device.name for one, on in _on_first(forecast) if on.fits is False], forecast.steps[0].memory
    if too_small and need is not None:
        texts.append(f"Not enough memory on {', '.join(too_small)}: {binary_bytes(need.total_bytes)} are needed.")
    return texts


def forecast_csv(forecast: Forecast) -> str:
    """A row for each device and step, as in ``Forecast.to_dataframe``."""
    rows = forecast_rows(forecast)
    header = tuple(dict.fromkeys(name for row in rows for name in row))
    return csv_text(header, ([row.get(name) for name in header] for row in rows))


def _on_first(forecast: Forecast) -> Iterator[tuple[DeviceForecast, StepBound]]:
    return ((one, one.steps[0]) for one in forecast.devices)


def _size(step: Step) -> str:
    """The batch and the length in words."""
    parts = (("batch", step.batch_size), ("sequence", step.sequence_length), ("prompt", step.prompt_length), ("new", step.new_tokens))
    return ", ".join(f"{name} {value}" for name, value in parts if value is not None)


def _varying(step: Step, steps: Sequence[Step]) -> str:
    """The batch and the length as far as they differ between ``steps``."""
    fields = ("batch_size", "sequence_length", "prompt_length", "new_tokens")
    same = {name: None for name in fields if len({getattr(one, name) for one in steps}) < 2}
    return _size(replace(step, **same)) or _size(step)


def _limit(by_roof_s: dict[str, float]) -> str:
    """The roof that sets most of a bound, and its share."""
    total_s = sum(by_roof_s.values())
    if not total_s:
        return "no rate"
    name = max(by_roof_s, key=lambda roof: by_roof_s[roof])
    share = by_roof_s[name] / total_s
    return name if share > 0.995 else f"{name} {percent(share)}"


def _time(time_s: float | None) -> Cell:
    """A duration with its own unit: devices and phases lie far apart."""
    return Cell(value=time_s, text=seconds(time_s) if time_s is not None else "")


def _gib(size: int | None) -> Cell:
    return Cell(value=size, text=binary_bytes(size) if size else "")


def _without_empty(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[list[Column], list[Row]]:
    """The columns in which a row has a value."""
    full = [row for row in rows if not row.heading]
    kept = [at for at in range(len(columns)) if any(value_of(row.cells[at]) not in (None, "") for row in full)]
    return [columns[at] for at in kept], [row if row.heading else Row(tuple(row.cells[at] for at in kept), row.color) for row in rows]


# --- devices -----------------------------------------------------------------------------------------------------------------------


def _gives(forecast: Forecast) -> list[str]:
    """The phases whose calls give something with a name."""
    return [phase.name for phase in forecast.steps[0].phases if phase.name in _GIVES]


def _devices(forecast: Forecast) -> Table:
    """The bound of the first step on each device."""
    named = _gives(forecast)
    columns = [Column("device", format="text", least=14)]
    columns += [Column(_GIVES[name], key=f"{name}_s") for name in named] or [Column("step", key="step_s")]
    columns += [
        Column(f"{forecast.unit}/s", key="units_per_s", format="figures"), Column("limit", format="text", least=12),
        Column("memory", key="memory_bytes"), Column("fits", format="text", least=4), Column("largest batch", priority=1),
    ]  # fmt: skip
    lines = []
    for one, on in _on_first(forecast):
        phases = {phase.name: phase.lower_bound_s for phase in on.phases}
        times = [phases.get(name) for name in named] or [on.lower_bound_s]
        lines.append(Row((
            one.device.name, *map(_time, times), on.units_per_s, _limit(on.by_roof_s), _gib(one.device.memory_bytes), _fits(on),
            _whole(on.largest_batch),
        )))  # fmt: skip
    columns, lines = _without_empty(columns, lines)
    note = f"Lower bounds: no step is shorter, and no device makes more {forecast.unit}/s."
    return table("devices", columns, lines, "Lower bounds of a step by device", note=note, show="always")


def _fits(on: StepBound) -> str:
    return {True: "yes", False: "no", None: ABSENT}[on.fits]


def _whole(value: int | None) -> Cell:
    return Cell(value=value, text=f"{value:,}" if value is not None else "")


def _predictions(forecast: Forecast) -> Table:
    """The estimates from measured runs beside the bounds."""
    columns = (
        Column("device", format="text", least=14), Column("of", format="text", least=10), Column("at least"), Column("predicted"),
        Column("90 % interval", format="text", least=20, key="interval"), Column("outside operators", priority=1, key="outside"),
        Column("basis", format="text", least=20, priority=2),
    )  # fmt: skip
    lines = []
    for one, on in _on_first(forecast):
        named = [(_GIVES[phase.name], phase.lower_bound_s, phase.estimate, None) for phase in on.phases if phase.name in _GIVES]
        for what, bound_s, estimate, outside_s in (*named, ("step", on.lower_bound_s, on.estimate, on.outside_s)):
            told = (_time(estimate.time_s), _ends(estimate)) if estimate is not None else (None, "")
            basis = estimate.basis if estimate is not None else "no run tells"
            lines.append(Row((one.device.name, what, _time(bound_s), *told, _time(outside_s), basis)))
    shown, lines = _without_empty(columns, lines)
    sources = "public traces of GPUs" if forecast.like == ("public",) else ", ".join(forecast.like)
    note = f"Time in operators, from the share of their bound that operators reach in {sources}."
    if any(on.outside_s is not None for _, on in _on_first(forecast)):
        note += " Outside operators: time between them on a host like that of the runs, in none of the other figures."
    return table("predictions", shown, lines, "Predicted times", note=note, show="always")


def _ends(estimate: Estimate) -> str:
    return interval(estimate.low_s, estimate.high_s, seconds)


def _cost(forecast: Forecast) -> Section | None:
    """Cost and energy at the bound and at the predicted time; in the short form where a price or power was given."""
    columns = (
        Column("device", format="text", least=14), Column("price", "/h", "figures", priority=2),
        Column("power", "W", "figures", priority=1), Column("cost per million", format="figures", key="cost"),
        Column("predicted", format="figures", key="cost_predicted", priority=1), Column("energy of one", key="energy"),
        Column("predicted", key="energy_predicted", priority=1),
    )  # fmt: skip
    lines = []
    for one, on in _on_first(forecast):
        slower = on.estimate.time_s / on.lower_bound_s if on.estimate is not None and on.lower_bound_s else None
        cost, energy = (
            (value, value * slower if value is not None and slower is not None else None)
            for value in (on.cost_per_million, on.energy_per_unit_j)
        )
        joules = (Cell(value=value, text=si(value, "J") if value else "") for value in energy)
        lines.append(Row((one.device.name, one.device.price_per_hour, one.device.power_w, *cost, *joules)))
    shown, lines = _without_empty(columns, lines)
    limits = [one.device.name for one in forecast.devices if one.device.power_source == "TDP"]
    given = any(one.device.price_per_hour is not None or one.device.power_source == "given" for one in forecast.devices)
    note = f"For a million {forecast.unit}, and for one; at the time of the lower bound, so at least this much at this price and power."
    if limits:
        note += f" The power is the limit in the data sheet, which a device may not reach: {', '.join(limits)}."
    if len(shown) < 3:
        return None
    listed = table("cost", shown, lines, "Cost and energy", note=note, show="always" if given else "full")
    return section("cost", "Cost and energy", listed)


# --- batch sizes and lengths -------------------------------------------------------------------------------------------------------


def _steps(forecast: Forecast) -> Section:
    """Every step on every device, as a table and as curves over the batch or the length."""
    named = _gives(forecast)
    columns = [
        Column("step", format="text", least=20), Column(f"{forecast.unit}/s", format="figures", key="units_per_s"),
        Column("step time", key="step_s"), *(Column(_GIVES[name], key=f"{name}_s", priority=1) for name in named),
        Column("predicted", key="predicted_s"), Column("memory", key="memory_bytes", priority=1),
        Column("fits", format="text", least=4),
    ]  # fmt: skip
    lines = []
    for one in forecast.devices:
        lines.append(Row((one.device.name,), heading=True))
        for step, on in zip(forecast.steps, one.steps, strict=True):
            phases = {phase.name: phase.lower_bound_s for phase in on.phases}
            lines.append(Row((
                _varying(step, forecast.steps), on.units_per_s, _time(on.lower_bound_s), *(_time(phases.get(name)) for name in named),
                _time(on.estimate.time_s if on.estimate is not None else None), _gib(step.memory.total_bytes if step.memory else None),
                _fits(on),
            )))  # fmt: skip
    columns, lines = _without_empty(columns, lines)
    note = f"{forecast.unit}/s at most, times at least."
    listed = table("steps", columns, lines, "Bounds by batch size and length", note=note, show="always", brief=40)
    return section("steps", "By batch size and length", listed, *_curves(forecast))


def _curves(forecast: Forecast) -> Iterator[Figure]:
    """Rate and time over the batch where it varies, else over the length; a line for each device and value of the other one."""
    steps, lengths = forecast.steps, ("prompt_length", "sequence_length")
    names = {"batch_size": "batch size", "prompt_length": "prompt length", "sequence_length": "sequence length"}
    varying = [name for name in names if len({getattr(step, name) for step in steps}) > 1]
    along, others = varying[0], [name for name in lengths if name in varying[1:]]
    for field, text in (("units_per_s", f"{forecast.unit} per second at most, 1/s"), ("lower_bound_s", "step time at least, s")):
        lines: dict[str, list[tuple[float, float]]] = {}
        for one in forecast.devices:
            for step, on in zip(steps, one.steps, strict=True):
                if (value := getattr(on, field)) is not None:
                    name = ", ".join((one.device.name, *(f"{names[other]} {getattr(step, other)}" for other in others)))
                    lines.setdefault(name, []).append((getattr(step, along), value))
        series = []
        for number, (name, points) in enumerate(lines.items()):
            x, y = zip(*sorted(points), strict=True)
            series.append(Series(backend=name, x=x, y=y, color=SERIES[number % len(SERIES)]))
        if series:
            drawing = Curves(x_title=names[along], y_title=text, series=tuple(series), log_x=True)
            yield Figure(name=field, caption=f"{text.partition(',')[0].capitalize()}, by {names[along]}.", drawing=drawing)


# --- phases, memory and operators --------------------------------------------------------------------------------------------------


def _phases(forecast: Forecast) -> Table:
    """The work of each phase, and its bound on each device."""
    columns = [
        Column("phase", format="text", least=8), Column("context", format="count", priority=2), Column("calls", format="count"),
        Column("FLOPs", key="flops", priority=1), Column("per token", key="flops_per_token", priority=2), Column("bytes", priority=1),
        Column("intensity", "FLOP/B", "figures", key="intensity"), Column("ridge", "FLOP/B", "figures"),
        Column("at least", key="lower_bound_s"), Column("fused", key="fused_bound_s"), Column("limit", format="text", least=12),
    ]  # fmt: skip
    lines: list[Row] = []
    for one, on in _on_first(forecast):
        lines.append(Row((one.device.name,), heading=True))
        bounds: Sequence[PhaseBound | None] = on.phases or [None] * len(forecast.steps[0].phases)
        lines += [_phase_row(phase, bound) for phase, bound in zip(forecast.steps[0].phases, bounds, strict=True)]
    columns, lines = _without_empty(columns, lines)
    note = (
        "One call of a phase. At least: the sum of the bounds of its operators, one after the other. Fused: that of products, "
        "convolutions and attention alone, where all other operators are fused into them."
    )
    return table("phases", columns, lines, "Phases by device", note=note, show="always")


def _parts(forecast: Forecast) -> Table | None:
    """The bound of each part of a language model in one call of each phase; None where the parts are not known."""
    sums: dict[tuple[str, str], list[float]] = {}
    for row in forecast.operators:
        found = sums.setdefault((row.phase, row.part), [0.0] * len(forecast.devices))
        for number, bound in enumerate(row.bounds):
            found[number] += bound.lower_bound_s or 0.0
    if len({part for _, part in sums}) < 2:
        return None
    columns = (
        Column("part", format="text", least=14), Column("phase", format="text", least=7),
        *(Column(one.device.name, key=f"bound_{number}_s") for number, one in enumerate(forecast.devices)),
    )  # fmt: skip
    order = [phase.name for phase in forecast.steps[0].phases]
    known = [on.missing is None for _, on in _on_first(forecast)]
    lines = []
    for (phase, part), times in sorted(sums.items(), key=lambda item: (order.index(item[0][0]), -max(item[1]))):
        small = max(times) < _SMALL * sum(max(others) for (other, _), others in sums.items() if other == phase)
        cells = (_time(time_s if has_rate else None) for time_s, has_rate in zip(times, known, strict=True))
        lines.append(Row((part, phase, *cells), show="full" if small else "always"))
    return table("parts", columns, lines, "Bounds of the parts of the network", show="always")


def _phase_row(phase: Phase, bound: PhaseBound | None) -> Row:
    times = (_time(bound.lower_bound_s), _time(bound.fused_bound_s), _limit(bound.by_roof_s)) if bound else (None, None, "no rate")
    flops = (Cell(value=value, text=si(value, "").replace(" ", "") if value else "") for value in (phase.flops, phase.flops_per_token))
    size, ridge = Cell(value=phase.bytes, text=si(phase.bytes, "B")), bound.ridge_flop_per_byte if bound else None
    return Row((phase.name, phase.context, phase.calls, *flops, size, phase.intensity_flop_per_byte, ridge, *times))


def _memory(forecast: Forecast) -> Section | None:
    """What the memory of each step consists of, and the largest step that fits on each device."""
    names = ("parameters", "gradients", "optimizer", "kv_cache", "activations", "total")
    needs = [(step, step.memory) for step in forecast.steps if step.memory is not None]
    if not needs:
        return None
    columns = [Column("step", format="text", least=12)]
    columns += [Column(name.replace("kv_cache", "KV cache"), key=f"{name}_bytes") for name in names]
    rows = [
        Row((_varying(step, forecast.steps), *(_gib(getattr(need, f"{name}_bytes") or None) for name in names))) for step, need in needs
    ]
    shown, rows = _without_empty(columns, rows)
    each = needs[0][1].kv_cache_bytes_per_token
    note = f"The KV cache takes {si(each, 'B')} for a token of one sequence." if each else ""
    parts = table("memory", shown, rows, "Memory that a step needs", note=note, show="always")
    columns = [
        Column("device", format="text", least=14), Column("memory", key="memory_bytes"), Column("fits", format="text", least=4),
        Column("largest batch"), Column("largest context"),
    ]  # fmt: skip
    rows = [
        Row((one.device.name, _gib(one.device.memory_bytes), _fits(on), _whole(on.largest_batch), _whole(on.largest_context)))
        for one, on in _on_first(forecast)
    ]
    shown, rows = _without_empty(columns, rows)
    note = "For the first step. The memory is the size it is sold by, of which drivers and libraries keep a part."
    if any(on.largest_context is not None for _, on in _on_first(forecast)):
        note += " Largest context: tokens in the KV cache of each sequence, at this batch size."
    fitting = table("fits", shown, rows, "What fits on each device", note=note, show="always")
    return section("memory", "Memory", parts, fitting)


def _operators(forecast: Forecast, brief: int) -> Table:
    """The operators of the first step, the largest bound first; repeated layers are one row."""
    several = len({row.phase for row in forecast.operators}) > 1
    columns = [
        Column("operator", format="name", least=14), *([Column("phase", format="text", least=7)] if several else []),
        Column("module", format="path", priority=1), Column("shapes", format="shapes", priority=4, show="full"),
        Column("calls", format="count"), Column("FLOPs", key="flops", priority=2), Column("bytes", priority=2),
        Column("intensity", "FLOP/B", "figures", priority=3),
    ]  # fmt: skip
    columns += [Column(one.device.name, key=f"bound_{number}_s") for number, one in enumerate(forecast.devices)]
    calls = {phase.name: phase.calls for phase in forecast.steps[0].phases}

    def order(row: Operator) -> float:
        return -max((bound.lower_bound_s or 0.0) * calls[row.phase] for bound in row.bounds)

    lines = [
        Row((
            short_name(row.name), *([row.phase] if several else []), f"{row.module} ×{row.modules}" if row.modules > 1 else row.module,
            row.shapes, row.calls, _amount(row.flops, "FLOP"), _amount(row.bytes, "B"),
            row.flops / row.bytes if row.flops and row.bytes else None,
            *(Cell(value=bound.lower_bound_s, text=_bound_text(bound), hover=_bound_words(bound)) for bound in row.bounds),
        ), row.category)
        for row in sorted(forecast.operators, key=order)
    ]  # fmt: skip
    note = "The least time of all calls in one call of the phase, and the roof that sets it: C compute, M memory, L latency."
    return table("operators", columns, lines, "Bounds of operators", note=note, kind="main", brief=brief, first=50, show="always")


def _amount(value: int, unit: str) -> Cell:
    return Cell(value=value or None, text=si(value, unit) if value else "")


def _bound_text(bound: OperatorBound) -> str:
    return f"{seconds(bound.lower_bound_s)} {bound.bound[0].upper()}" if bound.lower_bound_s is not None else ""


def _bound_words(bound: OperatorBound) -> str:
    if bound.estimate is None:
        return bound.bound
    return f"{bound.bound}; one call predicted {seconds(bound.estimate.time_s)} ({_ends(bound.estimate)}), from {bound.estimate.basis}"


def _unknown(forecast: Forecast) -> Iterator[str]:
    for name, assumption in dict.fromkeys((row.name, row.assumption) for row in forecast.operators if row.assumption):
        yield f"Estimated: {short_name(name)} ({assumption})."
    if forecast.unknown:
        yield f"Operators without a formula are in no figure: {', '.join(map(short_name, forecast.unknown))}."


# --- rooflines and method ----------------------------------------------------------------------------------------------------------


def _rooflines(forecast: Forecast) -> Iterator[Figure]:
    for number, (one, on) in enumerate(_on_first(forecast)):
        chart = _chart(forecast, number) if on.missing is None else None
        if chart is not None:
            where = "at their predicted speed" if forecast.like else "at their bound"
            caption = f"{one.device.name}: operators {where}; the area is the time in a step."
            yield Figure(name=f"roofline-{number + 1}", caption=caption, drawing=chart)


def _chart(forecast: Forecast, number: int) -> Chart | None:
    calls = {phase.name: phase.calls for phase in forecast.steps[0].phases}
    points = []
    for key, row in enumerate(forecast.operators):
        bound = row.bounds[number]
        time_s = bound.estimate.time_s * row.calls if bound.estimate is not None else bound.lower_bound_s
        if row.flops and row.bytes and time_s:
            name = f"{short_name(row.name)} {row.module}".strip()
            lines = (("phase", row.phase), *rate_lines(row.flops, row.bytes, time_s), ("bound", bound.bound))
            points.append(Point(
                key=key, name=name, category=row.category, intensity=row.flops / row.bytes, flop_per_s=row.flops / time_s,
                time_s=time_s * calls[row.phase], precision=row.precision, engine=bound.engine or "vector", label=name[:_LONGEST_LABEL],
                gain_s=time_s * calls[row.phase], lines=lines,
            ))  # fmt: skip
    return roofline_chart(points, forecast.devices[number].device.ceilings)


def _method(forecast: Forecast) -> Section:
    texts = [
        "Nothing was run: the FLOPs and bytes of each operator of PyTorch in eager mode are counted on fake tensors. A bound is the "
        "least time that the arithmetic, the memory and, where it is known, the shortest operator of a device allow "
        "(docs/prediction.md).",
        "Real steps take longer than their bound. Measured runs (--like) tell how much.",
    ]
    if forecast.like:
        texts[1] = "A prediction has an interval that is meant to hold nine of ten cases; a bound holds always."
    sources = tuple((one.device.name, _sources(one)) for one in forecast.devices)
    notes = said((*texts, *map(sentence, forecast.notes)), "note", "full")
    command = Paragraph(forecast.command, "code") if forecast.command else None
    return section("method", "Method", *notes, Facts(rows=sources, kind="definitions"), command)


def _sources(one: DeviceForecast) -> str:
    """The main roofs of a device, and where they are from."""
    roofs = (f"{roof.name} {si(roof.value, roof.unit)}" for roof in one.device.ceilings if not roof.variant)
    return f"{one.device.source}: {', '.join(roofs)}"
