"""The page of a forecast: devices side by side, phases, memory, batch sizes, operators, and a roofline for each device; and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rooflines.reports.charts.curves import Curves, Series
from rooflines.reports.charts.palette import SERIES
from rooflines.reports.charts.roofline import Chart, Point
from rooflines.reports.charts.roofline import roofline as roofline_chart
from rooflines.reports.document import (
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
    value_of,
)
from rooflines.reports.document import table as table_of
from rooflines.reports.views.roofline import rate_lines
from rooflines.reports.words.text import csv_text, short_name, shorten_path
from rooflines.roofline.forecast.forecast import DeviceForecast, Forecast, Operator, OperatorBound, Step, StepBound, forecast_rows
from rooflines.roofline.forecast.layout import LayoutBound
from rooflines.units import binary_bytes, interval, percent, seconds, sentence, si, significant

_BRIEF = 12
_LONGEST_PATH = 26
# A part below this share of the bound of its phase is not in the short form.
_SMALL = 0.001
# What one call of a phase gives, where that has a name of its own.
_GIVES = {"prefill": "first token", "decode": "per token"}
_SIZES = {"batch_size": "batch", "sequence_length": "sequence", "prompt_length": "prompt", "new_tokens": "new"}


def page(forecast: Forecast, rows: int = _BRIEF) -> Page:
    """The forecast; the short form has ``rows`` operators at most."""
    verdict, *more = sentences(forecast)
    sections = sections_of(
        section("devices", "Devices", _devices(forecast), _predictions(forecast) if forecast.like else None),
        _steps(forecast) if len(forecast.steps) > 1 else None,
        section("phases", "Phases", _phases(forecast), _parts(forecast)),
        section("memory", "Memory", _memory(forecast), _fitting(forecast)) if forecast.steps[0].memory is not None else None,
        section("layouts", "Parallel layouts", _layouts(forecast)) if any(one.layouts for one in forecast.devices) else None,
        section("operators", "Operators", _operators(forecast, rows), *said(_remarks(forecast))),
        section("roofline", "Rooflines", *_rooflines(forecast)),
        _method(forecast),
    )
    return Page(
        kind="prediction", name=forecast.workload.name, title=title(forecast), rooflines=forecast.rooflines, verdict=verdict,
        said=tuple(more), sections=sections,
    )  # fmt: skip


def title(forecast: Forecast) -> str:
    """The workload and the size of its step."""
    workload = forecast.workload
    size = f"{workload.image_size} x {workload.image_size}" if workload.image_size else ""
    return (
        f"{workload.name}: prediction of {', '.join(filter(None, (workload.mode, _size(forecast.steps[0]), workload.precision, size)))}"
    )


def sentences(forecast: Forecast) -> list[str]:
    """The bound of the first step on each device and what sets it, and where it does not fit."""
    texts, need = [], forecast.steps[0].memory
    for one, on in _on_first(forecast):
        if on.lower_bound_s is None and on.eager_bound_s is not None:
            texts.append(f"{one.device.name}: at least {seconds(on.eager_bound_s)} per step for operators one after the other (eager).")
            continue
        if on.lower_bound_s is None or on.units_per_s is None:
            texts.append(f"{on.missing or f'{one.device.name} has no roof that applies'}, so there is no bound.")
            continue
        times = [
            f"{seconds(phase.lower_bound_s)} {_GIVES[phase.name].replace('first', 'to the first')} ({_limit(phase.by_roof_s)})"
            for phase in on.phases if phase.name in _GIVES
        ] or [f"{seconds(on.lower_bound_s)} per step ({_limit(on.by_roof_s)})"]  # fmt: skip
        texts.append(f"{one.device.name}: at least {' and '.join(times)}, at most {_rate(on.units_per_s).text} {forecast.unit}/s.")
    too_small = [one.device.name for one, on in _on_first(forecast) if on.fits is False]
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


def _gives(forecast: Forecast) -> list[str]:
    """The phases whose calls give something with a name."""
    return [phase.name for phase in forecast.steps[0].phases if phase.name in _GIVES]


def _size(step: Step, steps: Sequence[Step] = ()) -> str:
    """The batch and the length in words, those that ``steps`` have in common left out."""
    same = {name: None for name in _SIZES if steps and len({getattr(one, name) for one in steps}) < 2}
    values = {name: getattr(replace(step, **same), name) for name in _SIZES}
    return ", ".join(f"{_SIZES[name]} {value}" for name, value in values.items() if value is not None) or _size(step)


# --- cells -------------------------------------------------------------------------------------------------------------------------


def _limit(by_roof_s: dict[str, float]) -> str:
    """The roof that sets most of a bound, and its share."""
    total_s = sum(by_roof_s.values())
    name = max(by_roof_s, key=lambda roof: by_roof_s[roof], default="no rate")
    return name if not total_s or by_roof_s[name] > 0.995 * total_s else f"{name} {percent(by_roof_s[name] / total_s)}"


def _time(time_s: float | None) -> Cell:
    """A duration with its own unit: devices and phases lie far apart."""
    return Cell(value=time_s, text=seconds(time_s) if time_s is not None else "")


def _rate(per_s: float | None) -> Cell:
    """A rate with separators from thousands on."""
    text = "" if per_s is None else f"{float(significant(per_s)):,.0f}" if per_s >= 1000 else significant(per_s)
    return Cell(value=per_s, text=text)


def _amount(value: float | None, unit: str) -> Cell:
    return Cell(value=value or None, text=si(value, unit) if value else "")


def _gib(size: int | None) -> Cell:
    return Cell(value=size or None, text=binary_bytes(size) if size else "")


def _whole(value: int | None) -> Cell:
    return Cell(value=value, text=f"{value:,}" if value is not None else "")


def _fits(on: StepBound | LayoutBound) -> str:
    return "" if on.fits is None else "yes" if on.fits else "no"


def _table(name: str, columns: Sequence[Column], rows: Sequence[Row], caption: str, note: str = "") -> Table:
    """A table of the columns in which a row has a value."""
    full = [row for row in rows if not row.heading]
    kept = [at for at in range(len(columns)) if any(value_of(row.cells[at]) not in (None, "") for row in full)]
    shown = (row if row.heading else replace(row, cells=tuple(row.cells[at] for at in kept)) for row in rows)
    return table_of(name, [columns[at] for at in kept], shown, caption, note=note, show="always", brief=40)


# --- devices and steps -------------------------------------------------------------------------------------------------------------

_DEVICE = Column("device", format="text", least=14)


def _devices(forecast: Forecast) -> Table:
    """The bound of the first step on each device, and what it costs there: in the short form where a price or a power was given."""
    named, facts = _gives(forecast), [one.device for one in forecast.devices]
    asked = any(device.price_per_hour is not None or device.power_source == "given" for device in facts)
    limits = ", ".join(device.name for device in facts if device.power_source == "TDP")
    power = f" Power is the limit in the data sheet, which a device may not reach: {limits}." if limits else ""
    columns = [
        _DEVICE, *([Column(_GIVES[name], key=f"{name}_s") for name in named] or [Column("step", key="step_s")]),
        Column(f"{forecast.unit}/s", key="units_per_s"), Column("eager step", key="eager_bound_s", priority=int(asked)),
        Column("limit", format="text", least=12, priority=int(asked)),
        Column("fits", format="text", least=4, priority=int(asked)),
        Column("cost of a million", format="figures", key="cost", note=f"Cost of a million {forecast.unit} at the bound."),
        Column("energy of one", key="energy", show="always" if asked else "full", note=f"Energy of one at the bound.{power}"),
    ]  # fmt: skip
    rows = []
    for one, on in _on_first(forecast):
        phases = {phase.name: phase.lower_bound_s for phase in on.phases}
        times = [phases.get(name) for name in named] or [on.lower_bound_s]
        rows.append(Row((
            one.device.name, *map(_time, times), _rate(on.units_per_s), _time(on.eager_bound_s), _limit(on.by_roof_s), _fits(on),
            on.cost_per_million,
            _amount(on.energy_per_unit_j, "J"),
        )))  # fmt: skip
    note = (
        f"Lower bounds of products, convolutions and attention, so {forecast.unit}/s at most, also for fused code. Eager step: that of "
        "all operators, one after the other."
    )
    return _table("devices", columns, rows, "Lower bounds of a step by device", note)


def _predictions(forecast: Forecast) -> Table:
    """The estimates from measured runs beside the bounds."""
    columns = (
        _DEVICE, Column("of", format="text", least=10), Column("at least"), Column("predicted"),
        Column("90 % interval", format="text", least=20, key="interval"), Column("outside operators", priority=1, key="outside"),
        Column("cost of a million", format="figures", key="cost", priority=1), Column("basis", format="text", least=20, priority=2),
    )  # fmt: skip
    rows = []
    for one, on in _on_first(forecast):
        named = [(_GIVES[phase.name], phase.lower_bound_s, phase.estimate) for phase in on.phases if phase.name in _GIVES]
        for what, bound_s, estimate in (*named, ("step", on.lower_bound_s, on.estimate)):
            if estimate is None:
                rows.append(Row((one.device.name, what, _time(bound_s), None, "no run tells", None, None, "")))
                continue
            ends = interval(estimate.low_s, estimate.high_s, seconds)
            is_step = what == "step" and on.lower_bound_s
            slower = estimate.time_s / on.lower_bound_s if is_step and on.lower_bound_s else None
            cost = on.cost_per_million * slower if on.cost_per_million is not None and slower is not None else None
            outside = _time(on.outside_s if is_step else None)
            rows.append(Row((one.device.name, what, _time(bound_s), _time(estimate.time_s), ends, outside, cost, estimate.basis)))
    sources = "public traces of GPUs" if forecast.like == ("public",) else ", ".join(forecast.like)
    note = f"Time in operators, from the share of their bound that operators reach in {sources}."
    if any(on.outside_s is not None for _, on in _on_first(forecast)):
        note += " Outside operators: time between them on a host like that of the runs, in none of the other figures."
    return _table("predictions", columns, rows, "Predicted times", note)


def _steps(forecast: Forecast) -> Section:
    """Every step on every device, as a table and as curves over the batch or the length."""
    named = _gives(forecast)
    columns = [
        Column("step", format="text", least=12), Column(f"{forecast.unit}/s", key="units_per_s"), Column("step time", key="step_s"),
        *(Column(_GIVES[name], key=f"{name}_s", priority=1) for name in named), Column("predicted", key="predicted_s"),
        Column("memory", key="memory_bytes", priority=1), Column("fits", format="text", least=4),
    ]  # fmt: skip
    rows = []
    for one in forecast.devices:
        rows.append(Row((one.device.name,), heading=True))
        for step, on in zip(forecast.steps, one.steps, strict=True):
            phases = {phase.name: phase.lower_bound_s for phase in on.phases}
            estimate_s = on.estimate.time_s if on.estimate is not None else None
            rows.append(Row((
                _size(step, forecast.steps), _rate(on.units_per_s), _time(on.lower_bound_s),
                *(_time(phases.get(name)) for name in named), _time(estimate_s),
                _gib(step.memory.total_bytes if step.memory else None), _fits(on),
            )))  # fmt: skip
    listed = _table(
        "steps", columns, rows, "Bounds by batch size and length", f"{forecast.unit}/s at most, times at least, also for fused code."
    )
    return section("steps", "By batch size and length", listed, *_curves(forecast))


def _curves(forecast: Forecast) -> Iterator[Figure]:
    """Rate and time over the batch where it varies, else over the length; a line for each device and value of the other one."""
    along, *others = [name for name in _SIZES if len({getattr(step, name) for step in forecast.steps}) > 1]
    x_title = along.replace("_", " ")
    for field, text in (("units_per_s", f"{forecast.unit} per second at most, 1/s"), ("lower_bound_s", "step time at least, s")):
        lines: dict[str, list[tuple[float, float]]] = {}
        for one in forecast.devices:
            for step, on in zip(forecast.steps, one.steps, strict=True):
                if (value := getattr(on, field)) is not None:
                    name = ", ".join((one.device.name, *(f"{_SIZES[other]} {getattr(step, other)}" for other in others)))
                    lines.setdefault(name, []).append((getattr(step, along), value))
        series = tuple(
            Series(backend=name, x=tuple(x for x, _ in points), y=tuple(y for _, y in points), color=SERIES[number % len(SERIES)])
            for number, (name, points) in enumerate((name, sorted(points)) for name, points in lines.items())
        )
        if series:
            drawing = Curves(x_title=x_title, y_title=text, series=series, log_x=True)
            yield Figure(name=field, caption=f"{text.partition(',')[0].capitalize()}, by {x_title}.", drawing=drawing)


# --- phases, memory and operators --------------------------------------------------------------------------------------------------


def _phases(forecast: Forecast) -> Table:
    """The work of each phase, and its bound on each device."""
    columns = (
        Column("phase", format="text", least=9), Column("context", format="count", priority=2), Column("calls", format="count"),
        Column("FLOPs", key="flops", priority=1), Column("per token", key="flops_per_token", priority=2), Column("bytes", priority=1),
        Column("intensity", "FLOP/B", "figures", key="intensity"), Column("ridge", "FLOP/B", "figures"),
        Column("at least", key="lower_bound_s"), Column("eager", key="eager_bound_s"), Column("limit", format="text", least=12),
    )  # fmt: skip
    rows: list[Row] = []
    for one, on in _on_first(forecast):
        rows.append(Row((one.device.name,), heading=True))
        bounds = {bound.name: bound for bound in on.phases}
        for phase in forecast.steps[0].phases:
            bound = bounds.get(phase.name)
            times = (
                (_time(bound.lower_bound_s), _time(bound.eager_bound_s), _limit(bound.by_roof_s)) if bound else (None, None, "no rate")
            )
            rows.append(Row((
                phase.name, phase.context, phase.calls, _amount(phase.flops, "FLOP"), _amount(phase.flops_per_token, "FLOP"),
                _amount(phase.bytes, "B"), phase.intensity_flop_per_byte, bound.ridge_flop_per_byte if bound else None, *times,
            )))  # fmt: skip
    note = (
        "One call of a phase. At least: the sum of the bounds of products, convolutions and attention, into which code may fuse all "
        "other operators. Eager: the sum over all operators, as PyTorch calls them one after the other."
    )
    return _table("phases", columns, rows, "Phases by device", note)


def _parts(forecast: Forecast) -> Table | None:
    """The bound of each part of a transformer in one call of each phase; None for other networks."""
    sums: dict[tuple[str, str], list[float]] = {}
    for row in forecast.operators:
        found = sums.setdefault((row.phase, row.part), [0.0] * len(forecast.devices))
        for number, bound in enumerate(row.bounds):
            found[number] += bound.lower_bound_s or 0.0
    if "attention" not in {part for _, part in sums}:
        return None
    devices = [one.device.name if on.missing is None else "" for one, on in _on_first(forecast)]
    columns = [Column("part", format="text", least=14), Column("phase", format="text", least=7), *map(Column, filter(None, devices))]
    order, rows = [phase.name for phase in forecast.steps[0].phases], []
    for (phase, part), times in sorted(sums.items(), key=lambda item: (order.index(item[0][0]), -max(item[1]))):
        small = max(times) < _SMALL * sum(max(others) for (other, _), others in sums.items() if other == phase)
        cells = (_time(time_s) for time_s, device in zip(times, devices, strict=True) if device)
        rows.append(Row((part, phase, *cells), show="full" if small else "always"))
    return _table("parts", columns, rows, "Bounds of the parts of the network, operators one after the other")


def _memory(forecast: Forecast) -> Table:
    """What the memory of each step consists of."""
    names = ("parameters", "gradients", "optimizer", "kv_cache", "activations", "total")
    needs = [(step, step.memory) for step in forecast.steps if step.memory is not None]
    columns = [Column("step", format="text", least=12), *(Column(name.replace("kv_", "KV "), key=f"{name}_bytes") for name in names)]
    rows = [Row((_size(step, forecast.steps), *(_gib(getattr(need, f"{name}_bytes")) for name in names))) for step, need in needs]
    each = needs[0][1].kv_cache_bytes_per_token
    note = f"The KV cache takes {si(each, 'B')} for a token of one sequence." if each else ""
    return _table("memory", columns, rows, "Memory that a step needs", note)


def _fitting(forecast: Forecast) -> Table:
    """The memory of each device, and the largest step that fits there."""
    columns = (
        _DEVICE, Column("memory", key="memory_bytes"), Column("fits", format="text", least=4), Column("largest batch"),
        Column("largest context"),
    )  # fmt: skip
    rows = [
        Row((one.device.name, _gib(one.device.memory_bytes), _fits(on), _whole(on.largest_batch), _whole(on.largest_context)))
        for one, on in _on_first(forecast)
    ]
    note = (
        "Of the size that a memory is sold by, drivers and libraries keep a part. What fits follows from how the memory of the first "
        "step grows with its batch, or with the context of each sequence."
    )
    return _table("fitting", columns, rows, "What fits on each device", note)


def _layouts(forecast: Forecast) -> Table:
    """The first step on several of each device."""
    columns = (
        Column("layout", format="text", least=22), Column("devices", format="count", priority=2), Column("memory", key="memory_bytes"),
        Column("fits", format="text", least=4), Column("first token", key="prefill_s"), Column("per token", key="decode_s"),
        Column("exposed", key="decode_exposed_s", priority=1), Column("tokens/s", key="tokens_per_s"),
    )  # fmt: skip
    rows = []
    for one in forecast.devices:
        rows.append(Row((one.device.name if one.layouts else f"{one.device.name}: link to other devices not known",), heading=True))
        for bound in one.layouts:
            phases = {phase.name: phase for phase in bound.phases}
            prefill, decode = phases.get("prefill"), phases.get("decode")
            rows.append(Row((
                str(bound.layout), bound.layout.devices, _gib(bound.memory_bytes), _fits(bound),
                _time(prefill.lower_bound_s if prefill else None), _time(decode.lower_bound_s if decode else None),
                _time(decode.exposed_s if decode else None), _rate(bound.tokens_per_s),
            )))  # fmt: skip
    note = (
        "Lower bounds of the first step, also for fused code, memory of the fullest device, and tokens/s of all sequences in decode at "
        "most. Exposed: "
        "communication of a decode step that nothing hides, over the link between two devices of the data sheet."
    )
    return _table("layouts", columns, rows, "Parallel layouts", note)


def _operators(forecast: Forecast, brief: int) -> Table:
    """The operators of the first step, the largest bound first; repeated layers are one row."""
    several = len(forecast.steps[0].phases) > 1
    columns = [
        Column("operator", format="name", least=14), *([Column("phase", format="text", least=7)] if several else []),
        Column("module", format="path", priority=1), Column("shapes", format="shapes", priority=4, show="full"),
        Column("calls", format="count"), Column("FLOPs", key="flops", priority=2), Column("bytes", priority=2),
        Column("intensity", "FLOP/B", "figures", priority=3),
        *(Column(one.device.name, key=f"bound_{number}_s") for number, one in enumerate(forecast.devices)),
    ]  # fmt: skip
    calls = {phase.name: phase.calls for phase in forecast.steps[0].phases}

    def order(row: Operator) -> float:
        return -max((bound.lower_bound_s or 0.0) * calls[row.phase] for bound in row.bounds)

    rows = [
        Row((
            short_name(row.name), *([row.phase] if several else []), f"{row.module} ×{row.modules}" if row.modules > 1 else row.module,
            row.shapes, row.calls, _amount(row.flops, "FLOP"), _amount(row.bytes, "B"),
            row.flops / row.bytes if row.flops and row.bytes else None, *map(_bound, row.bounds),
        ), row.category)
        for row in sorted(forecast.operators, key=order)
    ]  # fmt: skip
    note = "The least time of all calls in one call of the phase, and the roof that sets it: C compute, M memory, L latency."
    return table_of("operators", columns, rows, "Bounds of operators", note=note, kind="main", brief=brief, first=50, show="always")


def _bound(bound: OperatorBound) -> Cell:
    """The bound with the letter of its roof; the estimate on hover."""
    hover, estimate = str(bound.bound), bound.estimate
    if estimate is not None:
        ends = interval(estimate.low_s, estimate.high_s, seconds)
        hover += f"; one call predicted {seconds(estimate.time_s)} ({ends}), from {estimate.basis}"
    text = f"{seconds(bound.lower_bound_s)} {bound.bound[0].upper()}" if bound.lower_bound_s is not None else ""
    return Cell(value=bound.lower_bound_s, text=text, hover=hover)


def _remarks(forecast: Forecast) -> Iterator[str]:
    """What the count rests on, and what it leaves out."""
    if forecast.unknown:
        yield f"Operators without a formula are in no figure: {', '.join(map(short_name, forecast.unknown))}."
    for name, assumption in dict.fromkeys((row.name, row.assumption) for row in forecast.operators if row.assumption):
        yield f"Estimated: {short_name(name)} ({assumption})."
    yield from map(sentence, forecast.notes)


# --- rooflines and method ----------------------------------------------------------------------------------------------------------


def _rooflines(forecast: Forecast) -> Iterator[Figure]:
    for number, (one, on) in enumerate(_on_first(forecast)):
        chart = _chart(forecast, number) if on.missing is None else None
        if chart is not None:
            where = "at their predicted speed" if on.estimate is not None else "at their bound"
            caption = f"{one.device.name}: operators {where}; the area is the time in a step."
            yield Figure(name=f"roofline-{number + 1}", caption=caption, drawing=chart)


def _chart(forecast: Forecast, number: int) -> Chart | None:
    calls = {phase.name: phase.calls for phase in forecast.steps[0].phases}
    points = []
    for key, row in enumerate(forecast.operators):
        bound = row.bounds[number]
        time_s = bound.estimate.time_s * row.calls if bound.estimate is not None else bound.lower_bound_s
        if row.flops and row.bytes and time_s:
            name = f"{short_name(row.name)} {shorten_path(row.module, _LONGEST_PATH)}".strip()
            points.append(Point(
                key=key, name=name, category=row.category, intensity=row.flops / row.bytes, flop_per_s=row.flops / time_s,
                time_s=time_s * calls[row.phase], precision=row.precision, engine=bound.engine or "vector", label=name,
                gain_s=time_s * calls[row.phase],
                lines=(("phase", row.phase), *rate_lines(row.flops, row.bytes, time_s), ("bound", bound.bound)),
            ))  # fmt: skip
    return roofline_chart(points, forecast.devices[number].device.ceilings)


def _method(forecast: Forecast) -> Section:
    texts = (
        "Nothing was run: the FLOPs and bytes of each operator of PyTorch in eager mode are counted on fake tensors. A bound is the "
        "least time that the arithmetic, the memory and, where it is known, the shortest operator of a device allow "
        "(docs/prediction.md).",
        "A prediction has an interval that is meant to hold nine of ten cases."
        if forecast.like
        else "Real steps take longer than their bound. Measured runs (--like) tell how much.",
    )
    sources = []
    for one in forecast.devices:
        roofs = (f"{roof.name} {si(roof.value, roof.unit)}" for roof in one.device.ceilings if not roof.variant)
        power = f"; {one.device.power_w:g} W ({one.device.power_source})" if one.device.power_w is not None else ""
        sources.append((one.device.name, f"{one.device.source}: {', '.join(roofs)}{power}"))
    command = Paragraph(forecast.command, "code") if forecast.command else None
    return section("method", "Method", *said(texts, "note", "full"), Facts(rows=tuple(sources), kind="definitions"), command)
