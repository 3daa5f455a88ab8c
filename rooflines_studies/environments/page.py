"""The page of the study of networks by device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from rooflines.ext import (
    ABSENT,
    SERIES_COLORS,
    Block,
    Ceiling,
    Column,
    Curve,
    Figure,
    Paragraph,
    RooflineChart,
    RooflinePoint,
    Row,
    Section,
    Source,
    Table,
    curves_section,
    percent,
    roofline_drawing,
    section,
    si,
    significant,
    sweep_roofline,
)
from rooflines_studies.environments.memory import SIZES
from rooflines_studies.study import Study, device_of, model_of, read_study
from rooflines_studies.tables import printed

Printed: TypeAlias = Mapping[str, Any]
_FOLDER = Path(__file__).parent
MODELS = ("resnet18", "mobilenet_v2", "resnet50", "squeezenet1_1")
# Counted memory lies this near to what a device reports: its libraries take some, too.
_NEAR = 0.15
# A step that waits for its input for this share of the time is set by the input pipeline.
_WAITS = 0.3
_LIMITS = {"input": "the input pipeline", "inefficient": "inefficient kernels"}


def findings(study: Study) -> Iterator[str]:
    """What the numbers say, the most important first."""
    trained = [row for row in study.part("training") if row.value("samples_per_s")]
    if trained:
        limits = [row.facts.get("limited_by", "") for row in trained]
        reached = [row.value("efficiency") or 0.0 for row in trained]
        limit = statistics.mode(limits)
        yield (
            f"Training on {' and '.join(study.devices)} is limited by {_LIMITS.get(limit, limit)} "
            f"for {limits.count(limit)} of "
            f"{len(limits)} networks, at {percent(min(reached))} to {percent(max(reached))} of their bounds."
        )
    yield from _input(study)
    yield from _image_size(study)
    remarks = read_study(_FOLDER).remarks
    yield from (remarks[name] for name in ("unit", "m3", "cpu", "t4"))
    yield from _real_intensity(study)
    yield remarks["epochs"]
    yield from _sweep(study)
    yield remarks["idle"]


def _input(study: Study) -> Iterator[str]:
    """What the loader costs: training behind it and on inputs in memory."""
    resident = _rates(study, "resident")
    for row in study.part("training"):
        waits, alone = row.value("input_fraction"), resident.get((model_of(row), device_of(row)))
        rate = row.value("samples_per_s")
        if waits is not None and waits >= _WAITS and alone and rate:
            yield (
                f"{model_of(row)} on {device_of(row)} waits for its input for {percent(waits)} of "
                f"the step: {significant(rate)} "
                f"images/s through the loader, {significant(alone)} on inputs in memory."
            )


def _rates(study: Study, part: str) -> dict[tuple[str, str], float | None]:
    """The images/s of a part by network and device."""
    return {(model_of(row), device_of(row)): row.value("samples_per_s") for row in study.part(part)}


def _image_size(study: Study) -> Iterator[str]:
    """The size of images that the paper's peaks of memory fit."""
    theirs = {
        one["model"]: 1e6 * one["peak_gpu_memory_mb"]
        for one in table("throughput")
        if one["peak_gpu_memory_mb"]
    }
    counted = [
        (row, [row.value(f"peak_{size}_bytes") or 0.0 for size in SIZES]) for row in study.part("memory")
    ]
    shares = [
        [peak / theirs[model_of(row)] for peak in peaks]
        for row, peaks in counted
        if all(peaks) and model_of(row) in theirs
    ]
    if shares:
        small, large = (f"{size}x{size}" for size in SIZES)
        lower, near = 1 - max(share for share, _ in shares), max(abs(share - 1) for _, share in shares)
        if near > _NEAR or lower <= _NEAR:  # other batches than the paper's were counted
            return
        ours = " and ".join(
            dict.fromkeys(str(row.point.options["image_size"]) for row in study.part("training"))
        )
        yield (
            f"The paper calls its images {small}. Its peaks of memory on the T4 are within "
            f"{percent(near)} of those counted for "
            f"{large}, and those for {small} are at least {math.floor(100 * lower)} % lower: its "
            "images were scaled up, so each is "
            f"{round((SIZES[1] / SIZES[0]) ** 2)} times the "
            f"work.{f' Here they have {ours} pixels a side.' if ours else ''}"
        )


def _real_intensity(study: Study) -> Iterator[str]:
    """The proxy beside the traffic of every operator."""
    counted = {
        model_of(row): row for row in reversed(study.part("training")) if row.value("intensity_flop_per_byte")
    }
    pairs = [
        f"{model} {significant(row.value('intensity_flop_per_byte') or 0)} (proxy {proxies()[model]:.1f})"
        for model, row in reversed(counted.items())
    ]
    if pairs:
        yield (
            f"Real intensity of a training step, FLOP/byte: {', '.join(pairs)}. Weights are read "
            "once per batch, not per image, and "
            "activations are most of the traffic, so the proxy says nothing about a step."
        )


def _sweep(study: Study) -> Iterator[str]:
    ran = [row for row in study.part("batch sweep") if row.value("samples_per_s")]
    if ran:
        sizes = ", ".join(str(row.point.options["batch_size"]) for row in ran)
        yield (
            f"SqueezeNet 1.1 runs at batch {sizes} here. In the paper batch 128 gave NaNs and has "
            "no throughput "
            "(the text has a sweep of 128, 256 and 512 on the M3 Pro, the table 32, 64 and 128, "
            "and its caption names the T4): "
            "'rooflines train' names the step and the operator of such a failure."
        )
    for row in (row for row in study.part("batch sweep") if row.reason and not row.unfinished):
        yield f"SqueezeNet 1.1 at batch {row.point.options['batch_size']}: {row.reason}"


# --- sections ---------------------------------------------------------------------------------------------


def sections(study: Study) -> tuple[Section, ...]:
    """What is no table of the file: speedups, rooflines, curves."""
    theirs = [
        (one["batch_size"], one["images_per_s"])
        for one in table("batch_sweep")
        if one["images_per_s"] is not None
    ]
    curves = {"samples_per_s": {"squeezenet1_1": theirs}}
    return (
        section("throughput", "", _speedups(study)),
        section("rooflines", "", *_by_device(study)),
        section("networks", "", *_by_network(study)),
        replace(
            curves_section(study.part("batch sweep"), curves),
            name="batch-sweep",
            title="SqueezeNet 1.1 by batch size",
        ),
    )


VALUES = {
    "flop_per_image": lambda row: (
        (flops := row.value("flops")) and flops / int(row.point.options["batch_size"])
    ),
    "limited_by": lambda row: _LIMITS.get(row.facts.get("limited_by", ""), row.facts.get("limited_by")),
}


def _speedups(study: Study) -> Table:
    """Training throughput of every device over the first one's, ours and the paper's."""
    rates, devices, rows = _rates(study, "training"), study.devices, []
    for theirs in table("speedups"):
        base, *ours = [rates.get((theirs["model"], device)) for device in devices] or [None]
        cells = [significant(one / base) if one and base else ABSENT for one in ours]
        rows.append(
            Row(
                (
                    theirs["model"],
                    *cells,
                    *(f"{theirs[name]:g}" for name in ("m3_over_cpu", "t4_over_cpu", "t4_over_m3")),
                )
            )
        )
    columns = (
        Column("network", format="text"),
        *(Column(device, "×", key=f"speedup_{index}") for index, device in enumerate(devices[1:], 1)),
        *(Column(f"{pair} (paper)", "×") for pair in ("M3 Pro / cloud CPU", "T4 / cloud CPU", "T4 / M3 Pro")),
    )
    base_name = (
        f"over {devices[0]}"
        if len(devices) > 1
        else "of the paper; results of other machines are added with --merge"
    )
    return Table(name="speedups", title=f"Speedups {base_name}", columns=columns, rows=tuple(rows))


def _by_device(study: Study) -> Iterator[Block]:
    for index, device in enumerate(study.devices, 1):
        curves = [
            Curve(
                model,
                tuple(
                    row
                    for row in study.part("training")
                    if model_of(row) == model and device_of(row) == device
                ),
            )
            for model in MODELS
        ]
        drawing = sweep_roofline(curves, device, None)
        if drawing is not None:
            caption = (
                f"Training steps of the networks on {device}: real traffic of every operator, whole steps."
            )
            yield Figure(name=f"device-{index}", caption=caption, drawing=drawing)
    for number, device in enumerate(roofs(), 1):
        caption = (
            f"{device} (paper): the paper's throughput at its proxy of intensity, with the unit put right."
        )
        yield Figure(
            name=f"paper-{number}", caption=caption, drawing=_paper_roofline(device, "model", device=device)
        )


def _by_network(study: Study) -> Iterator[Block]:
    for model in MODELS:
        caption = (
            f"{model} on the paper's devices (its figure 2), at its proxy with the unit put right; "
            "the roofs are those of the T4."
        )
        yield Figure(
            name=f"paper-{model}", caption=caption, drawing=_paper_roofline("Tesla T4", "device", model=model)
        )
    if len(study.devices) < 2:
        yield Paragraph(
            "One device here: a roofline per network needs results of several machines (--merge A B C).",
            "note",
        )
        return
    for model in MODELS:
        rows = [row for row in study.part("training") if model_of(row) == model and row.value("flop_per_s")]
        drawing = sweep_roofline(
            [Curve(device_of(row), (row,)) for row in rows], " and ".join(study.devices), None
        )
        if drawing is not None:
            caption = f"{model} on every device; the roofs are those of {device_of(rows[0])}."
            yield Figure(name=f"network-{model}", caption=caption, drawing=drawing)


def _paper_roofline(device: str, name: str, /, **where: str) -> RooflineChart:
    """The paper's trainings ``where`` a column of its throughput has a value, by ``name``, on the roofs that
    it gives for a device."""
    roof, source = roofs()[device], Source(kind="spec", detail="the paper")
    peak, bandwidth = 1e9 * roof["peak_fp32_gflops"], 1e9 * roof["memory_bandwidth_gbs"]
    ceilings = (
        Ceiling(
            name="peak",
            kind="compute",
            value=peak,
            unit="FLOP/s",
            precision="fp32",
            engine="vector",
            source=source,
        ),
        Ceiling(name="DRAM", kind="memory", value=bandwidth, unit="B/s", source=source),
    )
    points: list[RooflinePoint] = []
    for one in table("throughput"):
        if where.items() <= one.items():
            intensity, rate = proxies()[one["model"]], 1e12 * one["train_tflops"]
            points.append(
                RooflinePoint(
                    key=len(points),
                    name=one[name],
                    label=one[name],
                    category=SERIES_COLORS[MODELS.index(one["model"])],
                    intensity=intensity,
                    flop_per_s=rate,
                    time_s=1.0,
                    precision="fp32",
                    gain_s=1 - rate / min(peak, bandwidth * intensity),
                    lines=(
                        ("intensity", f"{significant(intensity)} FLOP/byte"),
                        ("achieved", si(rate, "FLOP/s")),
                    ),
                )
            )
    chart = roofline_drawing(points, ceilings)
    assert chart is not None, "there are two roofs"
    return chart


# --- what the paper printed, from the CSV files of this folder, in its units, and what follows from it ----


def table(name: str) -> tuple[Printed, ...]:
    """Return the rows of ``environments_NAME.csv``."""
    return printed(_FOLDER / f"environments_{name}.csv")


def proxies() -> dict[str, float]:
    """Return the paper's proxy of each network with its unit put right, FLOP/byte: it divided GFLOP by MB.

    A multiply-add of one image counts as one FLOP.
    """
    return {
        one["model"]: 1e3 * one["flops_per_image_g_as_printed"] / one["model_size_mb"]
        for one in table("complexity")
    }


def roofs() -> dict[str, Printed]:
    """Return the peak and the bandwidth of each device."""
    return {one["device"]: one for one in table("ceilings")}
