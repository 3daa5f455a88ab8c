"""The page of the study of networks by device."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rooflines._version import __version__
from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.profiler.records import Environment, Workload
from rooflines.reports.charts.kinds import Rooflines
from rooflines.reports.charts.palette import SERIES
from rooflines.reports.document import ABSENT, Block, Column, Figure, Paragraph, Row, Section, Table, or_absent
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.studies.environments import paper
from rooflines.studies.environments.memory import SIZES
from rooflines.studies.study import Study, device_of, model_of
from rooflines.sweeps.page import curves_section, roofline
from rooflines.sweeps.records import Row as Line
from rooflines.sweeps.summary import Curve
from rooflines.units import binary_bytes, percent, significant

TRAIN_IMAGES, VALIDATION_IMAGES = 100_000, 10_000
MODELS = ("resnet18", "mobilenet_v2", "resnet50", "squeezenet1_1")
# Counted memory lies this near to what a device reports: its libraries take some, too.
_NEAR = 0.15
# A step that waits for its input for this share of the time is set by the input pipeline.
_WAITS = 0.3


def findings(study: Study) -> Iterator[str]:
    """What the numbers say, the most important first."""
    trained = [row for row in study.part("training") if row.value("samples_per_s")]
    if trained:
        yield _verdict(study, trained)
    yield from _input(study)
    yield from _image_size(study)
    yield _unit()
    yield from _own_proxy()
    yield from _real_intensity(study)
    yield _epochs()
    yield from _sweep(study)
    busy = [(one.gpu_percent, one.train_per_s) for one in paper.throughput() if one.gpu_percent is not None]
    yield (
        f"The paper reads a GPU utilization of {min(busy)[0]:g} to {max(busy)[0]:g} % on a T4 that trains "
        f"{min(rate for _, rate in busy):.0f} to {max(rate for _, rate in busy):.0f} images/s: the GPU waited for its input pipeline, "
        "or it was read while idle. Its throughput is not that of the device."
    )


def _verdict(study: Study, trained: list[Line]) -> str:
    limits = [row.facts.get("limited_by", "") for row in trained]
    low, high = min(row.value("efficiency") or 0.0 for row in trained), max(row.value("efficiency") or 0.0 for row in trained)
    limit = statistics.mode(limits)
    what = {"input": "the input pipeline", "far": "kernels far from any roof"}.get(limit, limit)
    return (
        f"Training on {' and '.join(study.devices)} is limited by {what} for {limits.count(limit)} of {len(limits)} networks, at "
        f"{percent(low)} to {percent(high)} of their bounds."
    )


def _input(study: Study) -> Iterator[str]:
    """What the loader costs: training behind it and on inputs in memory."""
    resident = _rates(study, "resident")
    for row in study.part("training"):
        waits, alone = row.value("input_fraction"), resident.get((model_of(row), device_of(row)))
        rate = row.value("samples_per_s")
        if waits is not None and waits >= _WAITS and alone and rate:
            yield (
                f"{model_of(row)} on {device_of(row)} waits for its input for {percent(waits)} of the step: {significant(rate)} "
                f"images/s through the loader, {significant(alone)} on inputs in memory."
            )


def _rates(study: Study, part: str) -> dict[tuple[str, str], float | None]:
    """The images/s of a part by network and device."""
    return {(model_of(row), device_of(row)): row.value("samples_per_s") for row in study.part(part)}


def _image_size(study: Study) -> Iterator[str]:
    """The size of images that the paper's peaks of memory fit."""
    found = [(counted, printed) for counted, printed in _peaks(study).values() if printed]
    if found:
        lower = 1 - max(counted[SIZES[0]] / printed for counted, printed in found)
        near = max(abs(counted[SIZES[1]] / printed - 1) for counted, printed in found)
        if near > _NEAR or lower <= _NEAR:  # other batches than the paper's were counted
            return
        small, large = (f"{size}x{size}" for size in SIZES)
        ours = " and ".join(dict.fromkeys(str(row.point.options["image_size"]) for row in study.part("training")))
        yield (
            f"The paper calls its images {small}. Its peaks of memory on the T4 are within {percent(near)} of those counted for "
            f"{large}, and those for {small} are at least {percent(lower)} lower: its images were scaled up, so each is "
            f"{round((SIZES[1] / SIZES[0]) ** 2)} times the work.{f' Here --image-size is {ours}.' if ours else ''}"
        )


def _peaks(study: Study) -> dict[str, tuple[dict[int, float], float | None]]:
    """By network the counted peaks by image size, and the one that the paper printed for its T4."""
    printed = {one.model: one.peak_memory_mb * 1e6 for one in paper.throughput() if one.peak_memory_mb is not None}
    counted = {model_of(row): {size: row.value(f"peak_{size}_bytes") or 0.0 for size in SIZES} for row in study.part("memory")}
    return {model: (counted[model], printed.get(model)) for model in MODELS if all(counted.get(model, {0: 0.0}).values())}


def _unit() -> str:
    found = paper.complexity()["resnet18"]
    return (
        f"The paper prints an intensity of {found.intensity_as_printed:g} FLOP/byte for ResNet-18: it divided GFLOP by MB. The same "
        f"numbers are {found.proxy:.1f} FLOP/byte ({found.gflop:g} GFLOP / {found.model_mb:g} MB)."
    )


def _own_proxy() -> Iterator[str]:
    """What the paper's own proxy says about its own devices, with the unit put right."""
    for device, roofs in paper.roofs().items():
        compute = [model for model, one in paper.complexity().items() if one.proxy >= roofs.ridge]
        count = f"{len(compute)} of {len(paper.complexity())}"
        yield (
            f"{paper.DEVICES[device]}: the ridge is at {significant(roofs.ridge)} FLOP/byte, so by the paper's own proxy {count} "
            f"networks are bound by arithmetic ({', '.join(compute) or 'none'}); the paper's conclusion: {paper.BOUNDS[device]}."
        )


def _real_intensity(study: Study) -> Iterator[str]:
    """The proxy beside the traffic of every operator."""
    counted = [row for row in study.part("training") if row.value("intensity_flop_per_byte")]
    proxies = {model: one.proxy for model, one in paper.complexity().items()}
    pairs = [
        f"{model_of(row)} {significant(row.value('intensity_flop_per_byte') or 0)} (proxy {proxies[model_of(row)]:.1f})"
        for row in _once(counted)
    ]
    if pairs:
        yield (
            f"Real intensity of a training step, FLOP/byte: {', '.join(pairs)}. Weights are read once per batch, not per image, and "
            "activations are most of the traffic, so the proxy says nothing about a step."
        )


def _once(rows: list[Line]) -> list[Line]:
    return list({model_of(row): row for row in reversed(rows)}.values())[::-1]


def _epochs() -> str:
    images = {round(row.train_per_s * row.train_epoch_s, -2) for row in paper.throughput()}
    return (
        f"An epoch of the paper is {' or '.join(f'{count:,.0f}' for count in sorted(images, reverse=True))} images (throughput × epoch "
        f"time), not the {TRAIN_IMAGES:,} of Tiny-ImageNet. Epochs here are of {TRAIN_IMAGES:,} images, projected from the throughput."
    )


def _sweep(study: Study) -> Iterator[str]:
    failed = [row for row in study.part("batch sweep") if row.reason and not row.unfinished]
    ran = [row for row in study.part("batch sweep") if row.value("samples_per_s")]
    if ran:
        sizes = ", ".join(str(row.point.options["batch_size"]) for row in ran)
        yield (
            f"SqueezeNet 1.1 runs at batch {sizes} here. In the paper its loss became NaN at batch 128, and the throughput is missing "
            "(the text has a sweep of 128, 256 and 512 on the M3 Pro, the table 32, 64 and 128, and its caption names the T4): "
            "'rooflines train' names the step and the operator of such a failure."
        )
    for row in failed:
        yield f"SqueezeNet 1.1 at batch {row.point.options['batch_size']}: {row.reason}"


# --- sections ----------------------------------------------------------------------------------------------------------------------


def sections(study: Study) -> tuple[Section, ...]:
    """The paper's tables and figures with this machine beside it."""
    return (
        Section(name="complexity", title="Complexity and intensity", blocks=(_complexity(study),)),
        Section(name="throughput", title="Throughput", blocks=(_throughput(study), _epoch_times(study), *_speedups(study))),
        Section(name="memory", title="Peak memory by image size", blocks=_memory(study)),
        Section(name="rooflines", title="One roofline per device", blocks=tuple(_by_device(study))),
        Section(name="networks", title="One roofline per network", blocks=tuple(_by_network(study))),
        _batch_sweep(study),
    )


def _complexity(study: Study) -> Table:
    counted = {model_of(row): row for row in _once([row for row in study.part("training") if row.value("flops")])}
    rows = []
    for model, one in paper.complexity().items():
        ours = counted.get(model)
        batch = int(ours.point.options["batch_size"]) if ours is not None else 1
        flops = ours.value("flops") if ours is not None else None
        rows.append(
            Row(
                (
                    model, f"{one.parameters_m:.2f}", f"{one.gflop:.3g}", f"{one.intensity_as_printed:g}", f"{one.proxy:.1f}",
                    ABSENT if flops is None else f"{flops / batch / 1e9:.3g}",
                    ABSENT if ours is None else significant(ours.value("intensity_flop_per_byte") or 0.0),
                )
            )
        )  # fmt: skip
    columns = (
        Column("network", format="text"), Column("param.", "M", priority=2), Column("MACs", "G/image"), Column("printed", "FLOP/B"),
        Column("corrected", "FLOP/B"), Column("FLOPs here", "G/image"), Column("real", "FLOP/B"),
    )  # fmt: skip
    note = (
        "From the paper: multiply-adds (MACs) of a forward pass, the intensity that it printed, and the same with its unit put right. "
        "Here: FLOPs and intensity of a training step, counted per operator (forward, backward, optimizer; a multiply-add is 2 FLOPs)."
    )
    return Table(name="complexity", columns=columns, rows=tuple(rows), note=note, show="always")


def _throughput(study: Study) -> Table:
    validation = {(model_of(row), device_of(row)): row for row in study.part("validation")}
    resident = _rates(study, "resident")
    rows = []
    for model in MODELS:
        for row in (one for one in study.part("training") if model_of(one) == model and one.value("samples_per_s")):
            tested = validation.get((model, device_of(row)))
            cells = [
                *(or_absent(one.value("samples_per_s") if one is not None else None, significant) for one in (row, tested)),
                *(or_absent((one.value("flop_per_s") if one is not None else None), significant, 1e-12) for one in (row, tested)),
                or_absent(row.value("peak_memory_bytes"), binary_bytes), or_absent(row.value("input_fraction"), ".0f", 100),
                *(or_absent(row.value(name), ".0f", 100) for name in ("device_gpu_utilization", "host_cpu_utilization")),
                or_absent(resident.get((model, device_of(row))), significant),
            ]  # fmt: skip
            rows.append(Row((model, device_of(row), *cells, row.facts.get("limited_by", "")), colour=SERIES[MODELS.index(model)]))
        for printed in (one for one in paper.throughput() if one.model == model):
            cells = [
                significant(printed.train_per_s), significant(printed.validation_per_s), significant(printed.train_tflop_per_s),
                significant(printed.validation_tflop_per_s), or_absent(printed.peak_memory_mb, binary_bytes, 1e6), ABSENT,
                or_absent(printed.gpu_percent, ".0f"), or_absent(printed.cpu_percent, ".0f"), ABSENT,
            ]  # fmt: skip
            rows.append(Row((model, paper.DEVICES[printed.device], *cells, ""), muted=True))
    columns = (
        Column("network", format="text"), Column("device", format="text", least=14), Column("training", "images/s"),
        Column("validation", "images/s"), Column("training", "TFLOP/s", key="tflop_per_s", priority=1),
        Column("validation", "TFLOP/s", key="validation_tflop_per_s", priority=2), Column("peak memory", priority=2),
        Column("waiting", "%", priority=1, help="waiting for input"),
        Column("GPU", "%", priority=2, help="share of the time in which the GPU is busy"),
        Column("CPU", "%", priority=2, help="share of the time in which the processors are busy"),
        Column("in memory", "images/s", priority=2, note="In memory: training without a loader, in batches of 64."),
        Column("limited by", format="text", priority=1),
    )  # fmt: skip
    shares = [1e3 * one.train_tflop_per_s / one.train_per_s / paper.complexity()[one.model].gflop for one in paper.throughput()]
    note = (
        f"The paper's tables 3 and 5. Its TFLOP/s are its throughput times {min(shares):.1f} to {max(shares):.1f} × the multiply-adds "
        "of a forward pass; here they are the counted FLOPs of forward, backward and optimizer."
    )
    return Table(name="throughput", columns=columns, rows=tuple(rows), note=note, show="always")


def _memory(study: Study) -> tuple[Block, ...]:
    """The counted peaks beside the printed ones."""
    rows = [
        Row((model, *(binary_bytes(counted[size]) for size in SIZES), or_absent(printed, binary_bytes)))
        for model, (counted, printed) in _peaks(study).items()
    ]
    columns = (Column("network", format="text"), *(Column(f"counted at {size} px") for size in SIZES), Column("T4 (paper)"))
    note = "Counted: parameters, gradients, momentum, activations and inputs at the peak of a step, of batch 128 (SqueezeNet 64)."
    return (Table(name="memory", columns=columns, rows=tuple(rows), note=note, show="always"),) if rows else ()


def _epoch_times(study: Study) -> Table:
    validation = _rates(study, "validation")
    rows = []
    for network, rate in ((one, rate) for one, rate in _rates(study, "training").items() if rate):
        validated = validation.get(network)
        epoch = or_absent(VALIDATION_IMAGES / validated if validated else None, significant)
        rows.append(Row((*network, significant(TRAIN_IMAGES / rate), epoch)))
    rows += [
        Row((one.model, paper.DEVICES[one.device], significant(one.train_epoch_s), significant(one.validation_epoch_s)), muted=True)
        for one in paper.throughput()
    ]
    columns = (
        Column("network", format="text"), Column("device", format="text"), Column("training epoch", "s"), Column("validation", "s")
    )  # fmt: skip
    title = f"Projected epoch of {TRAIN_IMAGES:,} training and {VALIDATION_IMAGES:,} validation images"
    note = "The paper's table 4 is of epochs of 6,400 images (SqueezeNet 3,200): throughput × time."
    return Table(name="epochs", title=title, columns=columns, rows=tuple(rows), note=note)


def _speedups(study: Study) -> list[Block]:
    """Training throughput of every device over the first one's, ours and the paper's."""
    rates = _rates(study, "training")
    devices = study.devices
    rows = []
    for model in MODELS:
        ours = [rates.get((model, device)) for device in devices]
        base = ours[0] if ours else None
        cells = [_times(one, base) for one in ours[1:]]
        printed = paper.speedups()[model]
        rows.append(Row((model, *cells, printed.m3_over_cpu, printed.t4_over_cpu, printed.t4_over_m3)))
    columns = (
        Column("network", format="text"), *(Column(device, "×", key=f"speedup_{index}") for index, device in enumerate(devices[1:], 1)),
        Column("M3 Pro / cloud CPU (paper)", "×"), Column("T4 / cloud CPU (paper)", "×"), Column("T4 / M3 Pro (paper)", "×"),
    )  # fmt: skip
    base_name = f"over {devices[0]}" if len(devices) > 1 else "of the paper; results of other machines are added with --merge"
    return [Table(name="speedups", title=f"Speedups {base_name}", columns=columns, rows=tuple(rows))]


def _by_device(study: Study) -> Iterator[Block]:
    for index, device in enumerate(study.devices, 1):
        curves = [
            Curve(model, tuple(row for row in study.part("training") if model_of(row) == model and device_of(row) == device))
            for model in MODELS
        ]
        drawing = roofline(curves, device, None)
        if drawing is not None:
            caption = f"Training steps of the networks on {device}: real traffic of every operator, whole steps."
            yield Figure(name=f"device-{index}", caption=caption, drawing=drawing)
    for device in paper.roofs():
        rows = [one for one in paper.throughput() if one.device == device]
        points = [
            (one.model, SERIES[MODELS.index(one.model)], paper.complexity()[one.model].proxy, 1e12 * one.train_tflop_per_s)
            for one in rows
        ]
        caption = f"{paper.DEVICES[device]}: the paper's throughput at its proxy of intensity, with the unit put right."
        yield Figure(name=f"paper-{device}", caption=caption, drawing=_paper_roofline(device, points))


def _by_network(study: Study) -> Iterator[Block]:
    for index, model in enumerate(MODELS):
        proxy, theirs = paper.complexity()[model].proxy, [one for one in paper.throughput() if one.model == model]
        points = [(paper.DEVICES[one.device], SERIES[index], proxy, 1e12 * one.train_tflop_per_s) for one in theirs]
        caption = f"{model} on the paper's devices (its figure 2), at its proxy with the unit put right; the roofs are those of the T4."
        yield Figure(name=f"paper-{model}", caption=caption, drawing=_paper_roofline("t4", points))
    if len(study.devices) < 2:
        yield Paragraph("One device here: a roofline per network needs results of several machines (--merge A B C).", "note")
        return
    for model in MODELS:
        rows = [row for row in study.part("training") if model_of(row) == model and row.value("flop_per_s")]
        drawing = roofline([Curve(device_of(row), (row,)) for row in rows], " and ".join(study.devices), None)
        if drawing is not None:
            caption = f"{model} on every device; the roofs are those of {device_of(rows[0])}."
            yield Figure(name=f"network-{model}", caption=caption, drawing=drawing)


def _paper_roofline(device: str, points: list[tuple[str, str, float, float]]) -> Rooflines:
    """Points of the paper on the roofs that it gives for a device."""
    roofs, source = paper.roofs()[device], Source(kind="spec", detail="the paper")
    peak, bandwidth = 1e9 * roofs.gflop_per_s, 1e9 * roofs.gbyte_per_s
    ceilings = Ceilings(
        device=paper.DEVICES[device], kind="cpu" if device == "cpu" else "gpu",
        ceilings=(
            Ceiling(name="peak", kind="compute", value=peak, unit="FLOP/s", precision="fp32", engine="vector", source=source),
            Ceiling(name="DRAM", kind="memory", value=bandwidth, unit="B/s", source=source),
        ),
    )  # fmt: skip
    rows = tuple(
        OperatorRow(
            name=model, module="", phase="", shapes="", precision="fp32", category=colour, calls=1, time_s=1.0, flops=rate,
            matrix_flops=rate, bytes=rate / intensity, intensity_flop_per_byte=intensity, flop_per_s=rate, engine="vector",
            headroom_s=1 - rate / min(peak, bandwidth * intensity),
        )
        for model, colour, intensity, rate in points
    )  # fmt: skip
    analysis = Analysis(
        workload=Workload(name="paper", mode="training"),
        environment=Environment(rooflines=__version__, device=ceilings.kind, device_name=ceilings.device),
        ceilings=ceilings.ceilings, operators=rows,
    )  # fmt: skip
    return Rooflines(analysis=analysis)


def _batch_sweep(study: Study) -> Section:
    from msgspec.structs import replace

    found = curves_section(study.part("batch sweep"), {"samples_per_s": {"squeezenet1_1": paper.batch_sweep()}})
    return replace(found, name="batch-sweep", title="SqueezeNet 1.1 by batch size")


def _times(value: float | None, base: float | None) -> str:
    return ABSENT if not value or not base else significant(value / base)
