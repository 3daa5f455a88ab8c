"""Predict a step on devices where it is not run: its lower bound, the memory it needs, and estimates from
measured runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from math import ceil
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

from msgspec import structs
from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError
from rooflines.pipeline.predicted_devices import find_devices
from rooflines.profiler.options import PREDICTED_LISTS, PointOptions
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.read.reader import paused
from rooflines.profiler.records import Workload
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.predict.counted_step import CountedStep, count_module, count_step
from rooflines.roofline.predict.device_bounds import bound_operator, bound_phase, estimates_of, without_rate
from rooflines.roofline.predict.forecast import (
    DeviceFacts,
    DeviceForecast,
    Forecast,
    LayoutBound,
    OperatorBound,
    StepBound,
    Targets,
    TrainingBound,
)
from rooflines.roofline.predict.targets import with_misses
from rooflines.roofline.predict.weights import SERVED
from rooflines.units import counted

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from rooflines.roofline.analysis import Analysis
    from rooflines.roofline.predict.calibrated import Calibrated
    from rooflines.roofline.predict.efficiencies import Efficiencies

# What published measurements of GPUs tell, as a run to predict from.
PUBLIC = "public"
# Numbers of devices that are tried without a layout: where one device is too small, or a target is given.
_SEVERAL = ("2", "4", "8")
_SERVED_ON = ("1", *_SEVERAL)
CacheType: TypeAlias = Literal["auto", "fp8"]
_Bound = TypeVar("_Bound", LayoutBound, TrainingBound)


@paused()
def predict(
    model: torch.nn.Module | str,
    inputs: Any = None,
    *,
    devices: Sequence[str],
    like: Sequence[Path | str] | Path | str = (),
    price: Mapping[str, float] | None = None,
    power: Mapping[str, float] | None = None,
    layouts: Sequence[str] = (),
    kv_cache_dtype: CacheType = "auto",
    target_ttft_s: float | None = None,
    target_itl_s: float | None = None,
    target_rate: float | None = None,
    command: str = "",
    progress: Progress | None = None,
    **options: Any,
) -> Forecast:
    """Predict a step of ``model`` on ``devices``, without running it; nothing is written.

    ``model`` is a name as in ``rooflines.profile``, or a module with its ``inputs``, of which only ``mode``
    can be chosen. The options are those of ``profile`` that change the work; ``batch_size``,
    ``sequence_length`` and ``prompt_length`` may be lists. A generation may also have the ``precision``
    ``fp8`` or ``fp4``: weights and inputs of all products but the head's are in it, the rest is in bf16.

    Args:
        devices: Names of data sheets (``rooflines.devices``), JSON files with ceilings, or ``this`` for this
            machine.
        like: Runs or traces whose efficiencies give estimates with an interval, or ``public``: published
            times of kernels and networks on GPUs. Without any there are lower bounds only.
        price: Price per hour by device, in any currency.
        power: Power in W by device; by default the limit in its data sheet.
        layouts: Parallel layouts of a generation: sizes such as ``tp=4,pp=2`` (tensor, pipeline, data ``dp``,
            expert ``ep``), or the number of devices for all usual ones. Of a training step, of which each
            device has a batch: ``dp=8``, ``zero1=8``, ``zero2=8``, ``fsdp=8``, or the number for all of them;
            with several batches for a step of the optimizer ``fsdp=8,accumulate=4``.
        kv_cache_dtype: ``fp8`` for a KV cache of a generation in 8 bits; ``auto`` is the precision of the
            network, or what its configuration says.
        target_ttft_s: Time to the first token, in seconds, that a generation has to reach. With a target,
            ``layouts`` are by default all usual ones of 1, 2, 4 and 8 devices.
        target_itl_s: Time of each other token, in seconds.
        target_rate: Tokens per second of all sequences in decode.
        command: The shell line to show on the page.
        progress: Called with each stage.

    >>> rooflines.predict("resnet50", devices=["NVIDIA H200"], batch_size=[1, 64], precision="bf16")

    Raises UsageError for a device without a data sheet and for options that do not apply.
    """
    progress = progress or Silent()
    known = {field.name for field in fields(PointOptions)}
    if unknown := [name for name in options if name not in known]:
        raise UsageError(f"unknown option {unknown[0]!r}.", hint=f"Options: {', '.join(sorted(known))}.")
    if not isinstance(model, str) and (changed := [name for name in options if name != "mode"]):
        raise UsageError(
            f"{arg(changed[0])} does not apply to a module.", hint="Change the module or its inputs."
        )
    found = find_devices(tuple(devices), power=power or {}, price=price or {}, progress=progress)
    like = [like] if isinstance(like, (str, PathLike)) else like
    if PUBLIC in like and len(like) > 1:
        raise UsageError(f"{arg('like')} {PUBLIC} cannot be combined with runs.", hint="Give one of them.")
    analyses = [_measured(source, progress) for source in like if source != PUBLIC]
    if kv_cache_dtype not in get_args(CacheType):
        raise UsageError(f"unknown {arg('kv_cache_dtype')} {kv_cache_dtype!r}.", hint="Choose auto or fp8.")
    served_in = precision if (precision := options.get("precision")) in SERVED else ""
    if served_in:
        options["precision"] = "bf16"
    targets = Targets(ttft_s=target_ttft_s, itl_s=target_itl_s, tokens_per_s=target_rate)
    names = ("target_ttft_s", "target_itl_s", "target_rate")
    values = zip(names, structs.astuple(targets), strict=True)
    wanted = {name: value for name, value in values if value is not None}
    for name, value in wanted.items():
        if value <= 0:
            raise UsageError(f"{arg(name)} must be above 0, got {value}.")
    if wanted and not layouts:
        layouts = _SERVED_ON
    mode = options.get("mode")
    if wanted and mode != "generate":
        raise UsageError(f"{arg(next(iter(wanted)))} requires {arg('mode', 'generate')}.")
    if layouts and mode not in ("generate", "training"):
        raise UsageError(f"{arg('layout')} requires {arg('mode', 'generate')} or {arg('mode', 'training')}.")
    steps = []
    for step_options in _combinations(options):
        step_options.check()
        progress.stage(f"counting batch {step_options.batch_size or 1}", None)
        steps.append(
            count_step(model, step_options, served_in=served_in, cache_dtype=kv_cache_dtype)
            if isinstance(model, str)
            else count_module(model, inputs, step_options.mode)
        )
    forecast = _forecast(steps, found, analyses, tuple(map(str, like)), layouts)
    if wanted:
        served = tuple(
            replace(one, layouts=tuple(with_misses(bound, targets) for bound in one.layouts))
            for one in forecast.devices
        )
        forecast = replace(forecast, targets=targets, devices=served)
    return replace(forecast, command=command)


def _combinations(options: Mapping[str, Any]) -> list[PointOptions]:
    """The options of each step: every combination of the lists."""
    lists = [
        value if name in PREDICTED_LISTS and isinstance(value, Sequence) else [value]
        for name, value in options.items()
    ]
    return [PointOptions(**dict(zip(options, chosen, strict=True))) for chosen in itertools.product(*lists)]


def _measured(source: Path | str, progress: Progress) -> Analysis:
    """The analysis of a run or trace that estimates can be made from."""
    from rooflines.pipeline.reading import analyze

    analysis = analyze(source, progress=progress)
    if not getattr(analysis, "operators", ()):
        raise UsageError(
            f"{arg('like')} {str(source)!r}: it has no operators with a time.",
            hint="Give a run with a trace.",
        )
    return analysis


def _forecast(
    steps: Sequence[CountedStep],
    devices: Sequence[DeviceFacts],
    analyses: Sequence[Analysis],
    like: tuple[str, ...],
    layouts: Sequence[str],
) -> Forecast:
    from rooflines.roofline.predict.layouts import bound_layouts, parse_layouts
    from rooflines.roofline.predict.training_layouts import bound_training, parse_training_layouts

    first, generation = steps[0], steps[0].generation
    chosen = parse_layouts(generation, layouts) if generation is not None and layouts else ()
    trained = parse_training_layouts(layouts) if generation is None else ()
    forecasts, columns = [], []
    for device in devices:
        efficiencies = _efficiencies(analyses, device, first.workload) if like else None
        bounds = [
            {
                name: [
                    bound_operator(one, device.roofs, efficiencies, in_cache=_in_cache(step, device))
                    for one in found
                ]
                for name, found in step.operators.items()
            }
            for step in steps
        ]
        columns.append(bounds[0])
        on = tuple(
            _step_bound(step, device, one, efficiencies) for step, one in zip(steps, bounds, strict=True)
        )
        bound: tuple[LayoutBound, ...] = ()
        training: tuple[TrainingBound, ...] = ()
        if generation is not None and on[0].missing is None:
            bounded = functools.partial(
                bound_layouts,
                generation,
                device.roofs,
                device.peer_link,
                memory_bytes=device.memory_bytes,
                like=efficiencies,
            )
            bound = bounded(chosen)
            if on[0].fits is False and not layouts:
                bound = _first_fitting(bounded(parse_layouts(generation, (number,))) for number in _SEVERAL)
        elif generation is None:
            trains = functools.partial(
                bound_training, first.step, on[0], device, precision=first.workload.precision
            )
            training = trains(trained)
            if on[0].fits is False and first.workload.mode == "training" and not layouts:
                training = _first_fitting(trains(parse_training_layouts((number,))) for number in _SEVERAL)
        forecasts.append(DeviceForecast(device=device, steps=on, layouts=bound, training=training))
    operators = [one for phase in first.operators.values() for one in phase]
    cached = [device.name for device in devices if any(_in_cache(step, device) for step in steps)]
    about = [
        f"All that a step holds fits into the last cache of {' and '.join(cached)}, whose rate is not known: "
        "memory sets no bound there"
    ]
    notes = [*(note for step in steps for note in step.notes), *(about if cached else ())]
    rows = zip(*([bound for phase in column.values() for bound in phase] for column in columns), strict=True)
    return Forecast(
        workload=first.workload,
        unit=first.unit,
        steps=tuple(step.step for step in steps),
        devices=tuple(forecasts),
        like=like,
        operators=tuple(replace(one, bounds=row) for one, row in zip(operators, rows, strict=True)),
        unknown=tuple(dict.fromkeys(name for step in steps for name in step.unknown)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _first_fitting(tried: Iterable[tuple[_Bound, ...]]) -> tuple[_Bound, ...]:
    """The first layouts of which one fits."""
    return next((found for found in tried if any(one.fits for one in found)), ())


def _in_cache(step: CountedStep, device: DeviceFacts) -> bool:
    """Whether all that a step holds fits into the last cache of the device, so that steps one after the other
    may take nothing from memory."""
    return step.step.memory is not None and step.step.memory.total_bytes <= device.cache_bytes


def _step_bound(
    step: CountedStep,
    device: DeviceFacts,
    bounds: Mapping[str, Sequence[OperatorBound]],
    like: Efficiencies | Calibrated | None,
) -> StepBound:
    capacity, fitting = device.memory_bytes, dict[str, Any]()
    if step.growth is not None and step.step.memory is not None and capacity is not None:
        devices = ceil(step.step.memory.total_bytes / capacity)
        fitting = {
            "fits": devices <= 1,
            "least_devices": devices,
            "largest_batch": step.growth.largest_batch(capacity),
        }
        if step.generation is not None:
            free = capacity - step.generation.parameter_bytes - step.generation.activation_bytes
            fitting["largest_context"] = step.generation.largest_context(free, step.generation.batch)
    if missing := without_rate((one for found in step.operators.values() for one in found), device.roofs):
        return StepBound(
            **fitting, missing=f"{device.name} has no rate for products in {' and '.join(missing)}"
        )
    memory = step.step.memory
    phases = tuple(
        bound_phase(name, found, bounds[name], device.roofs, like, memory)
        for name, found in step.operators.items()
    )
    weighted = [(phase, facts.calls) for phase, facts in zip(phases, step.step.phases, strict=True)]
    by_roof = longest_first(
        (roof, times * time_s) for phase, times in weighted for roof, time_s in phase.by_roof_s.items()
    )
    estimate = outside_s = None
    if like is not None:
        parts = [
            part
            for one, times in weighted
            for part in estimates_of(step.operators[one.name], bounds[one.name], times)
        ]
        estimate = like.total(parts)
        outside_s = like.outside_s(sum(number for _, number in parts), estimate.time_s)
    lower_s, eager_s = (
        sum(getattr(phase, name) * times for phase, times in weighted)
        for name in ("lower_bound_s", "eager_bound_s")
    )
    each_s = lower_s / step.step.produced if fitting.get("fits", True) else 0.0
    return StepBound(
        **fitting,
        phases=phases,
        lower_bound_s=lower_s or None,
        eager_bound_s=eager_s or None,
        by_roof_s=dict(by_roof),
        units_per_s=1 / each_s if each_s else None,
        estimate=estimate,
        outside_s=outside_s,
        cost_per_million=device.price_per_hour / 3600 * each_s * 1e6
        if each_s and device.price_per_hour is not None
        else None,
        energy_per_unit_j=device.power_w * each_s if each_s and device.power_w is not None else None,
    )


def _efficiencies(
    analyses: Sequence[Analysis], device: DeviceFacts, workload: Workload
) -> Efficiencies | Calibrated | None:
    """What the runs reach of their bounds, of the same kind as those of ``device``: by data sheets, or as
    measured.

    Without runs what published measurements reach in code as that of ``workload``; they tell nothing of
    devices that are no GPUs.
    """
    from rooflines.pipeline.ceilings import sheet_of
    from rooflines.roofline.predict.calibrated import Calibrated, code_of
    from rooflines.roofline.predict.efficiencies import Efficiencies

    if not analyses:
        return Calibrated(device.roofs, code_of(workload)) if device.kind == "cuda" else None
    own = [Ceilings(device=run.environment.device_name, kind="", ceilings=run.ceilings) for run in analyses]
    judges = own
    if device.source != "measured":
        judges = [
            sheet_of(run.environment)[0] or measured for run, measured in zip(analyses, own, strict=True)
        ]
    try:
        return Efficiencies.of(analyses, device.name, judges)
    except ValueError as error:
        raise UsageError(f"no estimate can be made from {counted(len(analyses), 'run')}: {error}.") from None
