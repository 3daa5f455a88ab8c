"""Memory of a step: the measured peak, what is held over the step by category, and the largest tensors at the peak."""

from __future__ import annotations

import msgspec

from rooflines.profiler.records import MemoryCurve
from rooflines.reports.charts.curves import Area, Areas
from rooflines.reports.charts.palette import SERIES
from rooflines.reports.document import ABSENT, Cell, Column, Figure, Paragraph, Section, Table, section, table
from rooflines.reports.words.text import short_name
from rooflines.roofline.analysis import Allocated, Analysis, Memory
from rooflines.units import binary_bytes, percent, scale

# From the bottom: what stays over the step, then what comes and goes.
_MEANINGS = {
    "parameters": "parameters and buffers",
    "optimizer": "the state of the optimizer",
    "gradients": "gradients of the parameters",
    "inputs": "other tensors that existed before the step",
    "activations": "results of the forward pass that are still held",
    "workspace": "other results of the backward pass and the optimizer",
    "overhead": "everything else in the measured peak: rounding, caches, libraries, on a CPU also Python",
}
_COLORS = dict(zip(_MEANINGS, SERIES, strict=False))
_NOT_RECORDED = (
    "What holds memory over the step was not recorded: profile a model by name with rooflines profile, or record a trace with "
    "profile_memory=True."
)


def memory_section(analysis: Analysis) -> Section:
    """The peak with its share of the device's memory, and what is held over the step where that was recorded."""
    memory = analysis.memory
    if memory is not None and memory.curve is not None:
        return section("memory", "Memory", _peak(analysis), _tensors(memory, memory.curve), parts_table(memory), _largest(memory))
    traced = memory.allocated if memory is not None else None
    if traced is not None:
        return section("memory", "Memory", _peak(analysis) if _peak_bytes(analysis) else None, _allocated(traced))
    parts = parts_table(memory) if memory is not None else None
    return section("memory", "Memory", _peak(analysis), parts, Paragraph(_NOT_RECORDED, "absent"))


def _peak_bytes(analysis: Analysis) -> int | None:
    if analysis.memory is not None and analysis.memory.peak_bytes is not None:
        return analysis.memory.peak_bytes
    return analysis.totals.peak_memory_bytes if analysis.totals is not None else None


def _peak(analysis: Analysis) -> Paragraph:
    memory, environment, share = analysis.memory, analysis.environment, None
    peak, text = _peak_bytes(analysis), "Peak memory was not measured."
    if peak is not None:
        text = f"Peak {binary_bytes(peak)}{f' ({memory.kind})' if memory is not None and memory.kind else ''}"
        available = environment.memory_bytes if environment.device.startswith("cpu") else environment.device_memory_bytes
        if available:
            share = peak / available
            text += f", {percent(share)} of {binary_bytes(available)}"
        text += "."
    return Paragraph(text, meter=share and min(1.0, share))


def _place(operator: str | None, module: str | None, phase: str | None) -> str:
    if not operator:
        return "before the first operator"
    return f"by {short_name(operator)}{f' of {module}' if module else ''}{f' ({phase})' if phase else ''}"


def _tensors(memory: Memory, curve: MemoryCurve) -> Figure:
    totals = [sum(values) for values in zip(*curve.parts.values(), strict=True)]
    most = max(totals)
    at = totals.index(most)
    areas = tuple(
        Area(name=name, y=curve.parts[name], color=_COLORS[name], text=binary_bytes(curve.parts[name][at]))
        for name in _MEANINGS
        if name in curve.parts
    )
    place = _place(memory.operator, memory.module, memory.phase)
    return Figure(
        name="memory",
        drawing=Areas(x_title="operator calls", x=curve.at, areas=areas, peak_text=f"peak {binary_bytes(most)}"),
        caption=f"Tensors of a step by category: the peak of {binary_bytes(most)} is first reached {place}.",
        note="The sizes beside the figure are those at the peak. The step ran on fake tensors: what a kernel allocates for itself and"
        " frees again is not in it.",
    )  # fmt: skip


def parts_table(memory: Memory) -> Table | None:
    """The measured peak by category, with what is held before the step and at most; None where it is not divided."""
    if memory.at_peak is None or not memory.peak_bytes:
        return None
    curve = memory.curve.parts if memory.curve is not None else {}
    columns = (
        Column("share", "%", "share"), Column("part", format="text"), Column("at the peak", "B", "scaled", group="memory"),
        Column("at the start", "B", "scaled", group="memory"), Column("most", "B", "scaled", group="memory", help="over the step"),
        Column("what", format="text", quiet=True),
    )  # fmt: skip
    sizes = msgspec.structs.asdict(memory.at_peak)
    rows = []
    for name, meaning in _MEANINGS.items():
        values = curve.get(name, ()) if name != "overhead" else ()
        if sizes[name] or any(values):
            share = sizes[name] / memory.peak_bytes
            ends = (values[0], max(values)) if values else (None, None)
            rows.append((Cell(value=share, bar=share), name, sizes[name], *ends, meaning))
    return table("memory-parts", columns, rows, "The measured peak by category", title="Measured peak by category", kind="parts")


def _largest(memory: Memory) -> Table | None:
    """The largest tensors at the peak; None without any."""
    if not memory.largest:
        return None
    columns = (
        Column("size", "B", "scaled"), Column("category", format="text"), Column("shape", format="text", least=14),
        Column("dtype", format="text", least=8), Column("made by", format="name", least=16), Column("module", format="path", least=14),
    )  # fmt: skip
    rows = (
        (
            tensor.bytes, tensor.category, ABSENT if tensor.shape is None else "x".join(map(str, tensor.shape)) or "scalar",
            tensor.dtype, short_name(tensor.operator) or "before the step", Cell(value=tensor.module, hover=tensor.module),
        )
        for tensor in memory.largest
    )  # fmt: skip
    title = "Largest tensors at the peak"
    return table("memory-tensors", columns, rows, title, title=title)


def _allocated(traced: Allocated) -> Figure:
    place, of = _place(traced.operator, traced.module, traced.phase), "on the device" if traced.of == "device" else "on the host"
    step = f" over {traced.step}" if traced.step else ""
    since = " since the recording began" if traced.of == "host" else ""
    area = Area(name="allocated", y=traced.curve.parts["allocated"], color=SERIES[0], text=binary_bytes(traced.peak_bytes))
    factor, prefix = scale(traced.curve.at[-1])
    return Figure(
        name="memory",
        drawing=Areas(
            x_title=f"{prefix}s since the step began", x=tuple(time_s / factor for time_s in traced.curve.at), areas=(area,),
            peak_text=f"peak {binary_bytes(traced.peak_bytes)}",
        ),
        caption=f"Memory allocated {of}{since}{step}: the peak of {binary_bytes(traced.peak_bytes)} is reached {place}.",
        note="The trace has the sum only: it does not say which tensors are parameters, gradients or activations.",
    )  # fmt: skip
