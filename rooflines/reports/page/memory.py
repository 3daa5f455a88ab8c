"""Memory of a step: the measured peak, what is held over the step by category, and the largest tensors at the
peak."""

from __future__ import annotations

import msgspec

from rooflines.profiler.records import MemoryCurve
from rooflines.reports.charts.curves import Areas
from rooflines.reports.document import (
    ABSENT,
    PART,
    SHARE,
    Cell,
    Column,
    Figure,
    Paragraph,
    Section,
    Table,
    section,
    table,
)
from rooflines.reports.words.text import given, short_name
from rooflines.roofline.analysis import Allocated, Analysis, Memory
from rooflines.units import binary_bytes, percent

_MEANINGS = {
    "parameters": "parameters and buffers",
    "optimizer": "the state of the optimizer",
    "gradients": "gradients of the parameters",
    "inputs": "other tensors that existed before the step",
    "activations": "results of the forward pass that are still held",
    "workspace": "other results of the backward pass and the optimizer",
    "overhead": "everything else in the measured peak: rounding, caches, libraries, on a CPU also Python",
}
_NOT_RECORDED = (
    "What holds memory over the step was not recorded: profile a model by name with rooflines "
    "profile, or record a trace with "
    "profile_memory=True."
)


def memory_section(analysis: Analysis) -> Section:
    """The peak with its share of the device's memory, and what is held over the step where that was
    recorded."""
    memory = analysis.memory or Memory()
    figure = None
    if memory.curve:
        note = (
            "Sizes are those at the peak. The step ran on fake tensors: what a kernel allocates for itself "
            "and frees again is not in it."
        )
        figure = _figure(memory.curve, memory, "Tensors of a step by category", note)
    elif traced := memory.allocated:
        of = "on the device" if traced.of == "device" else "on the host since the recording began"
        note = (
            "The trace has the sum only: it does not say which tensors are parameters, gradients or "
            "activations."
        )
        figure = _figure(traced.curve, traced, f"Memory allocated {of}{given(' over {}', traced.step)}", note)
    return section(
        "memory",
        "Memory",
        _peak(analysis, memory),
        figure,
        Paragraph(_NOT_RECORDED, "absent") if not figure else None,
        folded=(parts_table(memory), _largest(memory)),
        fold="Parts of the peak, and the largest tensors",
        columns=6,
    )


def _peak(analysis: Analysis, memory: Memory) -> Paragraph | None:
    if memory.peak_bytes is None:
        return None if memory.allocated else Paragraph("Peak memory was not measured.")
    environment = analysis.environment
    text = f"Peak {binary_bytes(memory.peak_bytes)}{given(' ({})', memory.kind)}"
    available = (
        environment.memory_bytes if environment.device.startswith("cpu") else environment.device_memory_bytes
    )
    if not available:
        return Paragraph(f"{text}.")
    share = memory.peak_bytes / available
    return Paragraph(f"{text}, {percent(share)} of {binary_bytes(available)}.", meter=min(1.0, share))


def _figure(curve: MemoryCurve, reached: Memory | Allocated, what: str, note: str) -> Figure:
    """``curve`` with its peak, and where in the step it is ``reached``."""
    most = binary_bytes(max(map(sum, zip(*curve.parts.values(), strict=True))))
    place = "before the first operator"
    if reached.operator:
        module, phase = given(" of {}", reached.module), given(" ({})", reached.phase)
        place = f"by {short_name(reached.operator)}{module}{phase}"
    caption = f"{what}: the peak of {most} is first reached {place}."
    return Figure(name="memory", drawing=Areas(curve=curve), caption=caption, note=note)


def parts_table(memory: Memory) -> Table | None:
    """The measured peak by category, with what is held before the step and at most; None where it is not
    divided."""
    if not memory.at_peak or not memory.peak_bytes:
        return None
    curve = memory.curve.parts if memory.curve else {}
    columns = (
        SHARE,
        PART,
        Column("at the peak", "B", "scaled"),
        Column("at the start", "B", "scaled"),
        Column("most", "B", "scaled", help="over the step"),
        Column("what", format="text", quiet=True),
    )
    sizes = msgspec.structs.asdict(memory.at_peak)
    rows = []
    for name, meaning in _MEANINGS.items():
        values = curve.get(name, ()) if name != "overhead" else ()
        if sizes[name] or any(values):
            share = sizes[name] / memory.peak_bytes
            ends = (values[0], max(values)) if values else (None, None)
            rows.append((Cell(value=share, bar=share), name, sizes[name], *ends, meaning))
    return table(
        "memory-parts",
        columns,
        rows,
        "The measured peak by category",
        title="Measured peak by category",
        kind="parts",
    )


def _largest(memory: Memory) -> Table | None:
    """The largest tensors at the peak; None without any."""
    if not memory.largest:
        return None
    columns = (
        Column("size", "B", "scaled"),
        Column("category", format="text"),
        Column("shape", format="text", least=14),
        Column("dtype", format="text", least=8),
        Column("made by", format="name", least=16),
        Column("module", format="path", least=14),
    )
    rows = (
        (
            tensor.bytes,
            tensor.category,
            ABSENT if tensor.shape is None else "x".join(map(str, tensor.shape)) or "scalar",
            tensor.dtype,
            short_name(tensor.operator) or "before the step",
            Cell(value=tensor.module, hover=tensor.module),
        )
        for tensor in memory.largest
    )
    return table("memory-tensors", columns, rows, (title := "Largest tensors at the peak"), title=title)
