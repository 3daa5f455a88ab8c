"""Advice on the precision of matrix work."""

from __future__ import annotations

from rooflines.roofline.advice.case import Advice, Case, Ran, total
from rooflines.roofline.advice.setting import setting
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.kernel_names import matrix_precision
from rooflines.units import seconds, si


def lower_precision(case: Case) -> Advice | None:
    """A half precision whose matrix roof lies above the one in use."""
    if case.analysis.workload.precision not in ("fp32", "tf32"):
        return None
    rows = case.ran(_is_full)
    first = rows[0].row if rows else None
    now = case.ceilings.compute(first.precision or "fp32", "matrix") if isinstance(first, OperatorRow) else None
    better = [c for p in ("bf16", "fp16") if (c := case.ceilings.compute(p, "matrix")) is not None and c.precision == p]
    best = max(better, key=lambda c: c.value, default=None)
    if now is None or best is None or best.value < 1.2 * now.value:
        return None
    # Only the part that the compute roof explains shrinks with it, at most to what half of the bytes take.
    memory = case.ceilings.outermost_memory()
    saved = {
        one.key: one.saved(max(one.row.time_s * now.value / best.value, one.row.bytes / 2 / memory.value if memory else 0.0))
        for one in rows
        if isinstance(one.row, OperatorRow) and one.row.bound == "compute"
    }
    return Advice(
        title=f"Run the matrix work in {best.precision}",
        saves_s=sum(saved.values()),
        evidence=(
            f"convolutions and matrix products in {now.precision} take {seconds(total(rows))} {case.per}; "
            f"this device's {best.name} roof is {si(best.value, best.unit)}, compared with {si(now.value, now.unit)} "
            f"({now.name}, {now.source.kind})"
        ),
        suggestion=setting(case.analysis, "precision", f"amp-{best.precision}"),
        of=saved,
    )


def _is_full(one: Ran) -> bool:
    """Whether it is matrix work in fp32, whose kernels do not compute in less either."""
    row = one.row
    full = isinstance(row, OperatorRow) and row.matrix_flops > 0 and row.precision in ("fp32", "tf32")
    return full and not any(matrix_precision(kernel.name) in ("bf16", "fp16", "fp8", "int8") for kernel in one.kernels)
