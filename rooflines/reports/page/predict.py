"""The page of a forecast: devices side by side, a roofline for each, phases, memory, batch sizes and
operators; and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rooflines.device_specs.records import EMULATED
from rooflines.reports.charts.curves import Curves, CurveSeries
from rooflines.reports.charts.palette import SERIES_COLORS
from rooflines.reports.charts.roofline import roofline_drawing as roofline_chart
from rooflines.reports.charts.roofline_figure import RooflinePoint
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
    filled,
    said,
    section,
    sections_of,
)
from rooflines.reports.page.roofline import rate_lines
from rooflines.reports.words.text import csv_text, given, short_name, shorten_path
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.predict.counted_step import MASKED, UNFUSED
from rooflines.roofline.predict.forecast import (
    DeviceForecast,
    Forecast,
    LayoutBound,
    Operator,
    OperatorBound,
    PhaseBound,
    Step,
    StepBound,
    Targets,
    TrainingBound,
    forecast_rows,
)
from rooflines.roofline.predict.targets import serving
from rooflines.units import binary_bytes, counted, interval, percent, quantity, seconds, sentence, si

_BRIEF = 12
_LONGEST_PATH = 26
# A part below this share of the bound of its phase is not shown, an operator below the other share of its
# step in no roofline.
_SMALL, _DRAWN = 0.001, 0.005
# Shorter times are not in tables: no device does anything in them.
_NOISE_S = 1e-9
# What a layout does not reach.
_TARGETS = {"ttft_s": "first token", "itl_s": "per token", "tokens_per_s": "tokens/s"}
# What one call of a phase gives, where that has a name of its own.
_GIVES = {"prefill": "first token", "decode": "per token"}
_SIZES = {
    "batch_size": "batch",
    "sequence_length": "sequence",
    "prompt_length": "prompt",
    "new_tokens": "new",
}


def page(forecast: Forecast, rows: int = _BRIEF) -> Page:
    """The forecast; the short form has ``rows`` operators at most."""
    verdict, *more = sentences(forecast)
    sections = sections_of(
        section(
            "devices", "Devices", _bounds(forecast), _curve(forecast) if len(forecast.steps) > 1 else None
        ),
        section("roofline", "Rooflines", *_rooflines(forecast)),
        section("phases", "Phases", _phases(forecast), _parts(forecast)),
        _memory(forecast),
        section("layouts", "Parallel layouts", _layouts(forecast), _training(forecast)),
        section("operators", "Operators", _operators(forecast, rows), *said(_remarks(forecast))),
        _method(forecast),
    )
    return Page(
        kind="prediction",
        name=forecast.workload.name,
        title=title(forecast),
        rooflines=forecast.rooflines,
        verdict=verdict,
        said=tuple(more),
        sections=sections,
    )


def title(forecast: Forecast) -> str:
    """The workload and the size of its step."""
    workload = forecast.workload
    size = f"{workload.image_size} x {workload.image_size}" if workload.image_size else ""
    compiled = "compiled" if workload.compiled else ""
    stored = f"weights in {workload.quantized}" if workload.quantized else ""
    facts = filter(
        None, (workload.mode, _size(forecast.steps[0]), workload.precision, stored, compiled, size)
    )
    return f"{workload.name}: prediction of {', '.join(facts)}"


def sentences(forecast: Forecast) -> list[str]:
    """The prediction and the bound of the first step on each device and what sets it, or what it takes to
    fit."""
    texts = [_served(forecast, forecast.targets)] if forecast.targets is not None else []
    texts += [_trained(forecast, one) for one in forecast.devices if one.training]
    for one, on in _on_first(forecast):
        if on.fits is False:
            texts.append(_too_large(forecast, one, on))
        elif on.lower_bound_s is not None and on.units_per_s is not None:
            times = [
                (
                    f"{seconds(phase.lower_bound_s)} "
                    f"{_GIVES[phase.name].replace('first', 'to the first')} "
                    f"({_limit(phase.by_roof_s)})"
                )
                for phase in on.phases
                if phase.name in _GIVES
            ] or [f"{seconds(on.lower_bound_s)} per step ({_limit(on.by_roof_s)})"]
            texts.append(
                f"{one.device.name}: {_told(forecast, on)}at least {' and '.join(times)}, at most "
                f"{quantity(on.units_per_s, '')} {forecast.unit}/s."
            )
        elif on.eager_bound_s is not None:
            texts.append(
                f"{one.device.name}: at least {seconds(on.eager_bound_s)} per step for operators "
                "one after the other (eager)."
            )
        else:
            texts.append(
                f"{on.missing or f'{one.device.name} has no roof that applies'}, so there is no bound."
            )
    return texts


def _served(forecast: Forecast, targets: Targets) -> str:
    """The devices and the layout that reach the targets, the cheapest or the fewest."""
    asked = {
        f"the first token in {seconds(targets.ttft_s or 0)}": targets.ttft_s,
        f"a token each {seconds(targets.itl_s or 0)}": targets.itl_s,
        f"{quantity(targets.tokens_per_s or 0, '')} tokens/s": targets.tokens_per_s,
    }
    wanted = " and ".join(text for text, value in asked.items() if value is not None)
    what = f"{counted(forecast.steps[0].batch_size or 1, 'sequence')} at once, {wanted}"
    found = serving(forecast.devices)
    if not found:
        return f"No layout that was tried reaches {what}."
    one, bound = found[0]
    price = one.device.price_per_hour
    priced = all(other.device.price_per_hour is not None for other, _ in found)
    cost = f", {quantity(bound.layout.devices * price, '')} an hour" if price is not None else ""
    return (
        f"{'Cheapest' if priced else 'Fewest devices'} for {what}: {_several(one, bound)}{cost}, "
        f"{_times(bound)}."
    )


def _several(one: DeviceForecast, bound: LayoutBound) -> str:
    """``4 x H100 SXM5 80GB (tensor 4)``."""
    number = bound.layout.devices
    return f"{number} x {one.device.name}{f' ({bound.layout})' if number > 1 else ''}"


def _times(bound: LayoutBound) -> str:
    """The times of a layout's phases, predicted or at least."""
    is_predicted = any(phase.estimate_s is not None for phase in bound.phases)
    times = (
        f"{seconds(phase.expected_s)} {_GIVES[phase.name].replace('first', 'to the first')}"
        for phase in bound.phases
    )
    return f"{'predicted' if is_predicted else 'at least'} {' and '.join(times)}"


def _trained(forecast: Forecast, one: DeviceForecast) -> str:
    """The layout of a training step on this device that fits on the fewest devices, and is fastest there."""
    best = _smallest(one)
    if best is None:
        least = min(one.training, key=lambda bound: bound.memory_bytes)
        return (
            f"No layout that was tried fits on {one.device.name}: {least.name} on {least.devices} needs "
            f"{binary_bytes(least.memory_bytes)} on each."
        )
    is_predicted = best.estimate_s is not None
    rate = best.estimate_units_per_s or best.units_per_s or 0.0
    return (
        f"{best.devices} x {one.device.name}, {best.name}: {binary_bytes(best.memory_bytes)} on each, "
        f"{'predicted' if is_predicted else 'at least'} {seconds(best.expected_s)} a step, "
        f"{'' if is_predicted else 'at most '}{quantity(rate, '')} {forecast.unit}/s of all."
    )


def _smallest(one: DeviceForecast) -> TrainingBound | None:
    """The fastest layout of a training step of those that fit on the fewest devices; None without one."""
    fitting = [bound for bound in one.training if bound.fits is not False]
    return min(fitting, key=lambda bound: (bound.devices, bound.expected_s), default=None)


def _told(forecast: Forecast, on: StepBound) -> str:
    """The predicted times of a step and its rate, before its bound; empty without a prediction."""
    if on.estimate is None:
        return ""
    parts = [
        (phase.estimate, _GIVES[phase.name].replace("first", "to the first"))
        for phase in on.phases
        if phase.name in _GIVES and phase.estimate is not None
    ] or [(on.estimate, "per step")]
    times = [
        f"{seconds(found.time_s)} {gives}{given(' ({})', interval(found.low_s, found.high_s, seconds))}"
        for found, gives in parts
    ]
    rate = quantity(forecast.steps[0].produced / on.estimate.time_s, "")
    return f"predicted {' and '.join(times)}, {rate} {forecast.unit}/s; "


def _too_large(forecast: Forecast, one: DeviceForecast, on: StepBound) -> str:
    """What a step that does not fit needs, and what would fit."""
    need = forecast.steps[0].memory.total_bytes if forecast.steps[0].memory is not None else 0
    capacity = one.device.memory_bytes or 0
    fitting = [bound for bound in one.layouts if bound.fits]
    training = _smallest(one)
    if fitting:
        least = min(
            fitting,
            key=lambda bound: (bound.layout.devices, sum(phase.expected_s for phase in bound.phases)),
        )
        ways = [f"{_several(one, least)}, {_times(least)}"]
    elif training is not None:
        ways = [f"{training.devices} devices with {training.way}"]
    else:
        ways = [f"at least {on.least_devices} devices by memory"]
    ways += [f"at most batch {on.largest_batch:,}"] if on.largest_batch else []
    ways += (
        ["bf16, which needs about half"]
        if forecast.workload.precision in ("fp32", "tf32") and need <= 2 * capacity
        else []
    )
    memory = f"{binary_bytes(need)} are needed, it has {binary_bytes(capacity)}"
    return f"{one.device.name}: does not fit ({memory}). To make it fit: {'; '.join(ways)}."


def forecast_csv(forecast: Forecast) -> str:
    """A row for each device and step, as in ``Forecast.to_dataframe``."""
    rows = forecast_rows(forecast)
    header = tuple(dict.fromkeys(name for row in rows for name in row))
    return csv_text(header, ([row.get(name) for name in header] for row in rows))


def _on_first(forecast: Forecast) -> Iterator[tuple[DeviceForecast, StepBound]]:
    return ((one, one.steps[0]) for one in forecast.devices)


def _name(one: DeviceForecast) -> str:
    """The device, marked where the first step does not fit."""
    return f"{one.device.name}*" if one.steps[0].fits is False else one.device.name


def _as_if(forecast: Forecast) -> str:
    """What the mark of a device means."""
    return (
        " *Does not fit: times as if it did."
        if any(on.fits is False for _, on in _on_first(forecast))
        else ""
    )


def _size(step: Step, steps: Sequence[Step] = ()) -> str:
    """The batch and the length in words, those that ``steps`` have in common left out."""
    names = [name for name in _SIZES if len({getattr(one, name) for one in steps}) > 1] or _SIZES
    return ", ".join(
        f"{_SIZES[name]} {value}" for name in names if (value := getattr(step, name)) is not None
    )


def _limit(by_roof_s: dict[str, float]) -> str:
    """The roof that sets most of a bound, and its share."""
    total_s = sum(by_roof_s.values())
    name = max(by_roof_s, key=lambda roof: by_roof_s[roof], default="")
    return (
        name
        if not total_s or by_roof_s[name] > 0.995 * total_s
        else f"{name} {percent(by_roof_s[name] / total_s)}"
    )


def _fused(forecast: Forecast) -> str:
    """For which code the bounds hold, besides that of PyTorch in eager mode."""
    return "" if {MASKED, UNFUSED} & set(forecast.notes) else ", also for fused code"


def _fits(on: StepBound | LayoutBound | TrainingBound) -> str:
    return "" if on.fits is None else "yes" if on.fits else "no"


# --- devices and steps ------------------------------------------------------------------------------------

_DEVICE = Column("device", format="text", least=14)
_FITS = Column("fits", format="text", least=4)


def _bounds(forecast: Forecast) -> Table:
    """The bounds of every step on every device, what is predicted, and what both cost."""
    several, facts = len(forecast.steps) > 1, [one.device for one in forecast.devices]
    named = [phase.name for phase in forecast.steps[0].phases if phase.name in _GIVES]
    asked = any(device.price_per_hour is not None or device.power_source == "given" for device in facts)
    limits = ", ".join(device.name for device in facts if device.power_source == "TDP")
    power = (
        f" Power is the limit in the data sheet, which a device may not reach: {limits}." if limits else ""
    )
    outside = (
        "Outside operators: time between them on a host like that of the runs, in none of the other figures."
    )
    columns = (
        replace(_DEVICE, label="step", least=8) if several else _DEVICE,
        _FITS,
        *(Column(_GIVES[name], "s", "own", f"{name}_s", priority=1) for name in named),
        Column("step time", "s", "own", "step_s"),
        Column("predicted", "s", "own", "predicted_s"),
        Column("90 % interval", format="text", least=20, key="interval", priority=1),
        Column(f"{forecast.unit}/s", "", "own", "units_per_s"),
        Column("eager", "s", "own", "eager_bound_s", 2),
        Column("limit", format="text", least=12, priority=2),
        Column("outside operators", "s", "own", "outside_s", 2, note=outside),
        Column(
            "cost of a million",
            "",
            "figures",
            "cost",
            note=f"Cost of a million {forecast.unit} at the bound.",
        ),
        Column(f"predicted {forecast.unit}/s", "", "own", "predicted_per_s", 1),
        Column(
            "energy of one",
            "J",
            "own",
            "energy",
            1,
            show="always" if asked else "full",
            note=f"Energy at the bound.{power}",
        ),
    )
    rows = []
    for one in forecast.devices:
        rows += [Row((one.device.name,), heading=True)] if several else []
        for step, on in zip(forecast.steps, one.steps, strict=True):
            on = on if on.fits is not False else StepBound(fits=False)
            times = {phase.name: phase.lower_bound_s for phase in on.phases}
            predicted_s, ends = _predicted(on, forecast)
            rows.append(
                Row(
                    (
                        _size(step, forecast.steps) if several else one.device.name,
                        _fits(on),
                        *map(times.get, named),
                        on.lower_bound_s,
                        predicted_s,
                        ends,
                        on.units_per_s,
                        on.eager_bound_s,
                        _limit(on.by_roof_s),
                        on.outside_s,
                        on.cost_per_million,
                        step.produced / predicted_s if predicted_s else None,
                        on.energy_per_unit_j,
                    )
                )
            )
    note = (
        f"Lower bounds of products, convolutions and attention, so {forecast.unit}/s at "
        f"most{_fused(forecast)}. Eager: that of all "
        "operators, one after the other."
    )
    return filled(
        "devices", columns, rows, "Lower bounds of a step by device", note=note, show="always", brief=40
    )


def _curve(forecast: Forecast) -> Figure | None:
    """The rate over the batch where it varies, else over the length; a line for each device and value of the
    other one."""
    along, *others = [name for name in _SIZES if len({getattr(step, name) for step in forecast.steps}) > 1]
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in forecast.devices:
        for step, on in zip(forecast.steps, one.steps, strict=True):
            if on.units_per_s is not None:
                name = ", ".join(
                    (one.device.name, *(f"{_SIZES[other]} {getattr(step, other)}" for other in others))
                )
                lines.setdefault(name, []).append((getattr(step, along), on.units_per_s))
    series = []
    for number, (name, points) in enumerate(lines.items()):
        x, y = zip(*sorted(points), strict=True)
        series.append(CurveSeries(name=name, x=x, y=y, color=SERIES_COLORS[number % len(SERIES_COLORS)]))
    x_title, y_title = along.replace("_", " "), f"rate at most, {forecast.unit}/s"
    drawing = Curves(x_title=x_title, y_title=y_title, series=tuple(series), log_x=True)
    caption = f"{forecast.unit.capitalize()}/s at most, by {x_title}."
    return Figure(name="units_per_s", caption=caption, drawing=drawing) if series else None


# --- phases, memory and operators -------------------------------------------------------------------------


def _phases(forecast: Forecast) -> Table:
    """The work of each phase of the first step; its bound, and the estimate from measured runs, on each
    device."""
    columns = (
        Column("phase", format="text", least=7),
        Column("context", format="count", priority=3),
        Column("calls", format="count"),
        Column("FLOPs", "FLOP", "own", "flops", 2),
        Column("per token", "FLOP", "own", "flops_per_token", 3),
        Column("traffic", "B", "scaled", "bytes", 3),
        Column("intensity", "FLOP/B", "figures", priority=1),
        Column("ridge", "FLOP/B", "figures", priority=1),
        Column("at least", "s", "own", "lower_bound_s"),
        Column("eager", "s", "own", "eager_bound_s"),
        Column("predicted", "s", "own", "predicted_s"),
        Column("90 % interval", format="text", least=20, key="interval"),
        Column("limit", format="text", least=12),
    )
    rows: list[Row] = []
    sources: dict[str, list[str]] = {}
    for one, on in _on_first(forecast):
        rows.append(Row((_name(one),), heading=True))
        if on.estimate is not None:
            sources.setdefault(on.estimate.basis, []).append(one.device.name)
        bounds = {bound.name: bound for bound in on.phases}
        for phase in forecast.steps[0].phases:
            bound = bounds.get(phase.name)
            work = (
                phase.context,
                phase.calls,
                phase.flops or None,
                phase.flops_per_token or None,
                phase.bytes or None,
            )
            judged = (
                (None, None, None, None, "", "no rate")
                if bound is None
                else (
                    bound.ridge_flop_per_byte,
                    bound.lower_bound_s or None,
                    bound.eager_bound_s,
                    *_predicted(bound, forecast),
                    _limit(bound.by_roof_s),
                )
            )
            rows.append(Row((phase.name, *work, phase.intensity_flop_per_byte, *judged)))
    note = (
        "One call of a phase. At least: the sum of the bounds of products, convolutions and "
        "attention, into which code may fuse all "
        "other operators. Eager: the sum over all operators, as PyTorch calls them one after the other."
    )
    if forecast.like:
        reached = "published measurements" if forecast.like == ("public",) else ", ".join(forecast.like)
        note += (
            f" Predicted: time in operators, from the share of their bound that operators reach in {reached}."
        )
    note += "".join(f" Interval on {', '.join(names)}: {basis}." for basis, names in sources.items())
    return filled(
        "phases", columns, rows, "Phases by device", note=note + _as_if(forecast), show="always", brief=40
    )


def _predicted(bound: PhaseBound | StepBound, forecast: Forecast) -> tuple[float | None, str]:
    """The predicted time and its interval."""
    if bound.estimate is None:
        return None, "no run tells" if forecast.like and bound.eager_bound_s is not None else ""
    return bound.estimate.time_s, interval(bound.estimate.low_s, bound.estimate.high_s, seconds)


def _parts(forecast: Forecast) -> Table | None:
    """The bound of each part of a transformer in one call of each phase; None for other networks."""
    groups, count = grouped(forecast.operators, lambda row: (row.phase, row.part)), len(forecast.devices)
    sums = {
        of: [sum(row.bounds[at].lower_bound_s or 0.0 for row in rows) for at in range(count)]
        for of, rows in groups.items()
    }
    if "attention" not in {part for _, part in sums}:
        return None
    devices = (Column(_name(one), "s", "own") for one in forecast.devices)
    order, shown = [phase.name for phase in forecast.steps[0].phases], []
    for (phase, part), times in sorted(
        sums.items(), key=lambda item: (order.index(item[0][0]), -max(item[1]))
    ):
        if max(times) >= max(
            _NOISE_S, _SMALL * sum(max(others) for (other, _), others in sums.items() if other == phase)
        ):
            shown.append((part, phase, *(time_s or None for time_s in times)))
    return filled(
        "parts",
        (Column("part", format="text", least=13), Column("phase", format="text", least=7), *devices),
        shown,
        "Bounds of the parts of the network, operators one after the other",
        note=f"One call of a phase.{_as_if(forecast)}",
        show="always",
    )


def _memory(forecast: Forecast) -> Section | None:
    """What the memory of each step consists of, and the largest step that fits into that of each device."""
    needs = [(_size(step, forecast.steps), step.memory) for step in forecast.steps if step.memory is not None]
    if not needs:
        return None
    names = ("parameters", "gradients", "optimizer", "kv_cache", "activations", "total")
    columns = [
        Column("step", format="text"),
        *(Column(name.replace("kv_", "KV "), "B", "own", f"{name}_bytes") for name in names),
    ]
    rows = [Row((size, *(getattr(need, f"{name}_bytes") or None for name in names))) for size, need in needs]
    each = needs[0][1].kv_cache_bytes_per_token
    note = f"The KV cache takes {si(each, 'B')} for a token of one sequence." if each else ""
    fitting_columns = (
        _DEVICE,
        Column("memory", "B", "own", "memory_bytes"),
        Column("devices needed", format="count", key="least_devices"),
        Column("largest batch", "", "own"),
        Column("largest context", "", "own"),
    )
    fitting = [
        (one.device.name, one.device.memory_bytes, on.least_devices, on.largest_batch, on.largest_context)
        for one, on in _on_first(forecast)
    ]
    how = (
        "Of the size that a memory is sold by, drivers and libraries keep a part. What fits "
        "follows from how the memory of the first "
        "step grows with its batch, or with the context of each sequence."
    )
    return section(
        "memory",
        "Memory",
        filled("memory", columns, rows, "Memory that a step needs", note=note, show="always"),
        filled("fitting", fitting_columns, fitting, "What fits on each device", note=how, show="always"),
    )


def _layouts(forecast: Forecast) -> Table | None:
    """The first step on several of each device; None where no layout was asked for."""
    if not any(one.layouts for one in forecast.devices):
        return None
    every = (bound for one in forecast.devices for bound in one.layouts)
    predicted = any(phase.estimate_s is not None for bound in every for phase in bound.phases)
    least = ", at least" * predicted
    columns = (
        Column("layout", format="text", least=22),
        Column("devices", format="count", priority=2),
        Column("memory", "B", "own", "memory_bytes"),
        _FITS,
        *([Column("misses", format="text")] * bool(forecast.targets)),
        *([Column("first token", "s", "own", "prefill_estimate_s")] * predicted),
        Column(f"first token{least}", "s", "own", "prefill_s", 2 * predicted),
        *([Column("per token", "s", "own", "decode_estimate_s")] * predicted),
        Column(f"per token{least}", "s", "own", "decode_s", 2 * predicted),
        Column("exposed", "s", "own", "decode_exposed_s", 1 + 2 * predicted),
        *([Column("decode tokens/s", "", "own", "estimate_tokens_per_s")] * predicted),
        Column(f"decode tokens/s{', at most' * predicted}", "", "own", "tokens_per_s", 2 * predicted),
        Column("sustained tokens/s", "", "own", "sustained_tokens_per_s", 1),
    )
    rows = []
    for one in forecast.devices:
        rows += _heading(one, one.layouts)
        for bound in one.layouts:
            times = {phase.name: phase.lower_bound_s for phase in bound.phases}
            told = {phase.name: phase.estimate_s for phase in bound.phases}
            misses = ", ".join(_TARGETS[name] for name in bound.misses) or "-"
            rows.append(
                Row(
                    (
                        str(bound.layout),
                        bound.layout.devices,
                        bound.memory_bytes,
                        _fits(bound),
                        *[misses] * bool(forecast.targets),
                        *[told.get("prefill")] * predicted,
                        times.get("prefill"),
                        *[told.get("decode")] * predicted,
                        times.get("decode"),
                        {phase.name: phase.exposed_s for phase in bound.phases}.get("decode"),
                        *[bound.estimate_tokens_per_s] * predicted,
                        bound.tokens_per_s,
                        bound.sustained_tokens_per_s,
                    )
                )
            )
    what = (
        "The first step as predicted, and its lower bounds" if predicted else "Lower bounds of the first step"
    )
    note = (
        f"{what}{_fused(forecast)}, memory of the fullest device, and "
        f"tokens/s of all sequences in decode{' at most' * (not predicted)}. Sustained: tokens/s, prefill "
        "included, of a server that puts a new sequence in the place of each that ends. Exposed: "
        "communication of a decode step that nothing hides, over the link between two devices of "
        "the data sheet."
    )
    return filled("layouts", columns, rows, "Parallel layouts", note=note, show="always", brief=40)


def _heading(one: DeviceForecast, found: Sequence[LayoutBound | TrainingBound]) -> list[Row]:
    """The device above its layouts, or why it has none; nothing where one device is enough and none was asked
    for."""
    on = one.steps[0]
    if found:
        why = ""
    elif on.missing:
        why = ": no bound"
    elif one.device.peer_link is None:
        why = ": link to other devices not known"
    elif on.fits is False:
        why = ": none of up to 8 devices fits"
    else:
        return []
    return [Row((one.device.name + why,), heading=True)]


def _training(forecast: Forecast) -> Table | None:
    """The first step on several devices that each train on a batch; None where no layout was asked for."""
    if not any(one.training for one in forecast.devices):
        return None
    predicted = any(bound.estimate_s is not None for one in forecast.devices for bound in one.training)
    columns = (
        Column("layout", format="text", least=8),
        Column("memory", "B", "own", "memory_bytes"),
        _FITS,
        Column("parameters", "B", "own", "parameters_bytes", 2),
        Column("gradients", "B", "own", "gradients_bytes", 2),
        Column("optimizer", "B", "own", "optimizer_bytes", 2),
        Column("activations", "B", "own", "activations_bytes", 2),
        *([Column("predicted", "s", "own", "estimate_s")] * predicted),
        Column("at least", "s", "own", "lower_bound_s"),
        Column("sends for", "s", "own", "communication_s", 1),
        *([Column(f"{forecast.unit}/s", "", "own", "estimate_units_per_s")] * predicted),
        Column(f"{forecast.unit}/s, at most", "", "own", "units_per_s", 2 * predicted),
    )
    rows = []
    for one in forecast.devices:
        rows += _heading(one, one.training)
        rows += [
            Row(
                (
                    f"{bound.way} {bound.devices}{f' x {bound.accumulate}' if bound.accumulate > 1 else ''}",
                    bound.memory_bytes,
                    _fits(bound),
                    bound.parameters_bytes,
                    bound.gradients_bytes,
                    bound.optimizer_bytes,
                    bound.activations_bytes,
                    *[bound.estimate_s] * predicted,
                    bound.lower_bound_s,
                    bound.communication_s,
                    *[bound.estimate_units_per_s] * predicted,
                    bound.units_per_s,
                )
            )
            for bound in one.training
        ]
    note = (
        "Each device has the batch of the first step, or several of them (x 4) for a step of the optimizer. "
        "dp: all in each replica; zero1: the optimizer's state "
        "is cut among them, zero2: gradients too, fsdp: parameters too. Memory of one device; with fsdp, the "
        "layer that is gathered comes on top. What is sent may be hidden behind the computation."
    )
    return filled("training", columns, rows, "Training on several devices", note=note, show="always")


def _operators(forecast: Forecast, brief: int) -> Table:
    """The operators of the first step by their bound on the first device; repeated layers are one row.

    The short form has the largest one of each phase, then the largest of all.
    """
    calls = {phase.name: phase.calls for phase in forecast.steps[0].phases}
    columns = (
        Column("operator", format="name", least=10),
        Column("phase", format="text", least=7),
        Column("module", format="path", least=10),
        Column("shapes", format="shapes", priority=4, show="full"),
        Column("calls", format="count", priority=1),
        Column("FLOPs", "FLOP", "own", "flops", 2),
        Column("traffic", "B", "scaled", "bytes", 2),
        Column("intensity", "FLOP/B", "figures", priority=3),
        *(Column(_name(one), key=f"bound_{number}_s") for number, one in enumerate(forecast.devices)),
    )

    def times(row: Operator) -> list[float]:
        return [(bound.lower_bound_s or 0.0) * calls[row.phase] for bound in row.bounds]

    # Without a bound on any device, a row is no noise.
    shown = sorted(
        (row for row in forecast.operators if not 0 < max(times(row)) < _NOISE_S), key=times, reverse=True
    )
    first = {row.phase: at for at, row in reversed(tuple(enumerate(shown)))}
    short = tuple(dict.fromkeys((*first.values(), *range(len(shown)))))[:brief]
    rows = [
        Row(
            (
                short_name(row.name),
                row.phase if len(calls) > 1 else "",
                f"{row.module} ×{row.modules}" if row.modules > 1 else row.module,
                row.shapes,
                row.calls * calls[row.phase],
                row.flops * calls[row.phase] or None,
                row.bytes * calls[row.phase] or None,
                row.flops / row.bytes if row.flops and row.bytes else None,
                *(_bound(bound, calls[row.phase]) for bound in row.bounds),
            ),
            row.category,
            show="always" if at in short else "full",
        )
        for at, row in enumerate(shown)
    ]
    note = (
        "All calls in a step, their least time and the roof that sets it: C compute, M memory, L "
        f"latency.{_as_if(forecast)}"
    )
    return filled(
        "operators", columns, rows, "Bounds of operators", note=note, show="always", kind="main", first=50
    )


def _bound(bound: OperatorBound, calls: int) -> Cell:
    """The bound in ``calls`` of its phase with the letter of its roof; the estimate on hover."""
    hover, estimate = str(bound.bound), bound.estimate
    if estimate is not None:
        ends = interval(estimate.low_s, estimate.high_s, seconds)
        hover += f"; one call predicted {seconds(estimate.time_s)} ({ends}), from {estimate.basis}"
    if bound.lower_bound_s is None:
        return Cell(value=None, hover=hover)
    time_s = bound.lower_bound_s * calls
    return Cell(value=time_s, text=f"{seconds(time_s)} {bound.bound[0].upper()}", hover=hover)


def _remarks(forecast: Forecast) -> Iterator[str]:
    """What the count rests on, and what it leaves out."""
    if forecast.unknown:
        yield f"Operators without a formula are in no figure: {', '.join(map(short_name, forecast.unknown))}."
    for name, assumption in dict.fromkeys(
        (row.name, row.assumption) for row in forecast.operators if row.assumption
    ):
        yield f"Estimated: {short_name(name)} ({assumption})."
    yield from map(sentence, forecast.notes)


# --- rooflines and method ---------------------------------------------------------------------------------


def _rooflines(forecast: Forecast) -> Iterator[Figure]:
    calls = {phase.name: phase.calls for phase in forecast.steps[0].phases}
    for number, (one, on) in enumerate(_on_first(forecast)):
        points = []
        for key, row in enumerate(forecast.operators):
            bound = row.bounds[number]
            time_s = bound.estimate.time_s * row.calls if bound.estimate is not None else bound.lower_bound_s
            if row.flops and row.bytes and time_s:
                name = f"{short_name(row.name)} {shorten_path(row.module, _LONGEST_PATH)}".strip()
                all_s = time_s * calls[row.phase]
                points.append(
                    RooflinePoint(
                        key=key,
                        name=name,
                        category=row.category,
                        intensity=row.flops / row.bytes,
                        flop_per_s=row.flops / time_s,
                        time_s=all_s,
                        gain_s=all_s,
                        precision=row.precision,
                        engine=bound.engine or "vector",
                        label=name,
                        lines=(
                            ("phase", row.phase),
                            *rate_lines(row.flops, row.bytes, time_s),
                            ("bound", bound.bound),
                        ),
                    )
                )
        least_s = _DRAWN * sum(point.time_s for point in points)
        points = [point for point in points if point.time_s >= least_s]
        chart = roofline_chart(points, one.device.ceilings) if on.missing is None else None
        if chart is not None:
            where = "at their predicted speed" if on.estimate is not None else "at their bound"
            caption = (
                f"{_name(one)}: operators {where}; the area is the time in a "
                f"step.{_as_if(forecast) if on.fits is False else ''}"
            )
            yield Figure(name=f"roofline-{number + 1}", caption=caption, drawing=chart)


def _method(forecast: Forecast) -> Section:
    texts = (
        "Nothing was run: the FLOPs and bytes of each operator of PyTorch in eager mode are "
        "counted on fake tensors. A bound is the "
        "least time that the arithmetic, the memory and, where it is known, the shortest "
        "operator of a device allow "
        "(docs/prediction.md).",
        "A prediction has an interval that is meant to hold nine of ten cases."
        if forecast.like
        else "Real steps take longer than their bound. Measured runs (--like) tell how much.",
    )
    sources = []
    for one in forecast.devices:
        roofs = (
            f"{roof.name} {si(roof.value, roof.unit)}"
            for roof in one.device.ceilings
            if roof.variant in ("", EMULATED)
        )
        power = (
            f"; {one.device.power_w:g} W ({one.device.power_source})"
            if one.device.power_w is not None
            else ""
        )
        sources.append((one.device.name, f"{one.device.source}: {', '.join(roofs)}{power}"))
    return section(
        "method",
        "Method",
        *said(texts, "note", "full"),
        Facts(rows=tuple(sources), kind="definitions"),
        Paragraph(forecast.command, "code") if forecast.command else None,
    )
