"""Advice on the precision of matrix work."""

from __future__ import annotations

from rooflines.roofline.advice.case import Advice, Case, total
from rooflines.roofline.advice.command import command
from rooflines.roofline.analysis import OperatorRow
from rooflines.units import seconds, si


def lower_precision(case: Case) -> Advice | None:
    """A half precision whose matrix roof lies above the one in use."""
    if case.analysis.workload.precision not in ("fp32", "tf32"):
        return None
    rows = case.ran(lambda one: isinstance(one.row, OperatorRow) and one.row.matrix_flops > 0 and one.row.precision in ("fp32", "tf32"))
    first = rows[0].row if rows else None
    now = case.ceilings.compute(first.precision or "fp32", "matrix") if isinstance(first, OperatorRow) else None
    better = [c for p in ("bf16", "fp16") if (c := case.ceilings.compute(p, "matrix")) is not None and c.precision == p]
    best = max(better, key=lambda c: c.value, default=None)
    if now is None or best is None or best.value < 1.2 * now.value:
        return None
    # Only the part that the compute roof explains shrinks with it; the bytes halve as well, which is not counted on.
    bound = [one for one in rows if isinstance(one.row, OperatorRow) and one.row.bound == "compute"]
    saved = {one.key: one.left_s * (1 - now.value / best.value) for one in bound}
    return Advice(
        title=f"Run the matrix work in {best.precision}",
        saves_s=sum(saved.values()),
        evidence=(
            f"convolutions and matrix products in {now.precision} take {seconds(total(rows))} {case.per}; "
            f"this device's {best.name} roof is {si(best.value, best.unit)}, compared with {si(now.value, now.unit)} "
            f"({now.name}, {now.source.kind})"
        ),
        suggestion=command(case.analysis, "precision", f"amp-{best.precision}"),
        of=saved,
    )
