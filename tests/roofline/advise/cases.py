"""Small analyses for tests of the rules: a step of 100 ms on a device, with the rows that a test gives."""

from typing import Any

from rooflines.device_specs.records import Ceiling, Source
from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.advise.case import Case
from rooflines.roofline.analysis import Analysis, Coverage, Kernel, OperatorRow, StepDivision, Timeline, Unmodeled

SHEET = Source(kind="spec", detail="data sheet", date="2026-01-01")
CEILINGS = (
    Ceiling(kind="compute", name="GEMM bf16", value=900e12, unit="FLOP/s", source=SHEET, precision="bf16", engine="matrix"),
    Ceiling(kind="compute", name="GEMM tf32", value=450e12, unit="FLOP/s", source=SHEET, precision="tf32", engine="matrix"),
    Ceiling(kind="compute", name="FMA fp32", value=60e12, unit="FLOP/s", source=SHEET, precision="fp32", engine="vector"),
    Ceiling(kind="memory", name="HBM", value=3e12, unit="B/s", source=SHEET, level="HBM", access="read"),
)
STEP_S = 0.1


def kernel(name: str, time_s: float = 0.01, calls: int = 1, grid: tuple[int, int, int] | None = None) -> Kernel:
    """A kernel of an operator."""
    return Kernel(name=name, calls=calls, time_s=time_s, streams=(7,), grid=grid, block=(128, 1, 1) if grid else None)


def row(name: str = "aten::mm", time_s: float = 0.01, bound_s: float | None = None, **more: Any) -> OperatorRow:
    """An operator, with a bound where ``bound_s`` is given."""
    judged: dict[str, Any] = {}
    if bound_s is not None:
        judged = {"lower_bound_s": bound_s, "efficiency": bound_s / time_s, "headroom_s": time_s - bound_s, "bound": "memory"}
    known = {
        "module": "", "phase": "forward", "shapes": "", "category": "other", "calls": 1, "flops": 0, "matrix_flops": 0, "bytes": 0,
    }  # fmt: skip
    return OperatorRow(name=name, time_s=time_s, **{**known, **judged, **more})


def unmodeled(name: str, time_s: float = 0.01, **more: Any) -> Unmodeled:
    """An operator without a count."""
    return Unmodeled(name=name, time_s=time_s, **{"calls": 1, "reason": "shapes not recorded", **more})


def analysis(*rows: OperatorRow | Unmodeled, idle: dict[str, float] | None = None, device: str = "cuda:0", **more: Any) -> Analysis:
    """A step of 100 ms in which these rows ran; what they leave is idle for the causes in ``idle``, on a CPU without any."""
    idle = idle or {}
    operators = tuple(one for one in rows if isinstance(one, OperatorRow))
    gaps = tuple(one for one in rows if isinstance(one, Unmodeled))
    idle_s = sum(idle.values())
    modeled, missing = sum(one.time_s for one in operators), sum(one.time_s for one in gaps)
    on_device = not device.startswith("cpu")
    known: dict[str, Any] = {
        "workload": Workload(name="step", mode="training", precision="bf16", source="trace"),
        "environment": Environment(rooflines="0", device=device, device_name="NVIDIA H100 80GB HBM3", device_units=132),
        "ceilings": CEILINGS,
        "timeline": Timeline(span_s=STEP_S, busy_s=STEP_S - idle_s, idle_s=idle_s, compute_s=STEP_S - idle_s),
        "division": StepDivision(of="device" if on_device else "host", step_s=STEP_S, data_loading_s=idle.get("data_loading")),
        "idle_breakdown": {f"{cause}_s": time_s for cause, time_s in idle.items()} if on_device else None,
        "coverage": Coverage(modeled_time_fraction=modeled / (modeled + missing) if rows else None, unmodeled=gaps),
        "operators": operators,
    }
    return Analysis(**{**known, **more})


def case(*rows: OperatorRow | Unmodeled, **more: Any) -> Case:
    """The case of such an analysis."""
    return Case(analysis(*rows, **more))
