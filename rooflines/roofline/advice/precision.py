"""Advice on the precision of matrix work."""

from __future__ import annotations

from rooflines.device_specs.records import Ceiling
from rooflines.roofline.advice.case import Advice, Case, Key, Ran, total
from rooflines.roofline.advice.matmul import WORTH_UNKNOWN
from rooflines.roofline.advice.setting import Setting, setting
from rooflines.roofline.analysis import Kernel, OperatorRow
from rooflines.roofline.kernel_names import matrix_precision, short_kernel
from rooflines.units import seconds, si


def lower_precision(case: Case) -> Advice | None:
    """A half precision whose matrix roof lies above the one in use."""
    if case.analysis.workload.precision not in ("fp32", "tf32"):
        return None
    rows = case.ran(_is_full)
    first = rows[0].row if rows else None
    now = case.ceilings.compute(first.precision or "fp32", "matrix") if isinstance(first, OperatorRow) else None
    best = _best_half(case)
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


def named_in_full_precision(case: Case) -> Advice | None:
    """Products in fp32 or TF32 by the names of their kernels, where their operators have no count.

    Needs no shape, and states no saving. Preconditions: the kernels take 5 % of the step, and none of them belongs to the optimizer; no
    advice on precision was given; the device has a higher roof in half precision. If its roofs are not known, the advice says to check
    that.
    """
    if any(isinstance(one, Setting) and one.option == "precision" for one in case.given):
        return None
    found: dict[Key, list[Kernel]] = {}
    other = ""
    for one in case.every():
        if not isinstance(one.row, OperatorRow) and one.row.phase != "optimizer":
            named = [kernel for kernel in one.kernels if matrix_precision(kernel.name) in ("fp32", "tf32")]
            if one.left_s > 0:
                found[one.key] = named
            elif named:
                other = "other "  # further advice is about these
    kernels = sorted((kernel for each in found.values() for kernel in each), key=lambda kernel: -kernel.time_s)
    time_s = sum(kernel.time_s for kernel in kernels)
    if not time_s or time_s < WORTH_UNKNOWN * case.step_s:
        return None
    longest = kernels[0]
    used, best = case.ceilings.compute(matrix_precision(longest.name), "matrix"), _best_half(case)
    if case.analysis.ceilings and (used is None or best is None or best.value < 1.2 * used.value):
        return None
    half = best.precision if best is not None else "bf16"
    unknown = "" if best is not None else "; the roofs of this device are not known: check that it has matrix units for half precision"
    return Advice(
        title=f"Run the matrix work in {half}",
        saves_s=None,
        evidence=(
            f"{other}matrix kernels in fp32 or TF32, by their names, take {seconds(time_s)} {case.per} ({case.share(time_s)}); the "
            f"longest is {short_kernel(longest.name)} ({seconds(longest.time_s)}); their operators have no work model, so the saving "
            f"is not quantified{unknown}"
        ),
        suggestion="torch.autocast(dtype=torch.float16) around the forward pass and the loss, with torch.amp.GradScaler in training"
        if half == "fp16"
        else "torch.autocast(dtype=torch.bfloat16) around the forward pass and the loss",
        of={key: sum(kernel.time_s for kernel in each) for key, each in found.items() if each},
    )


def _best_half(case: Case) -> Ceiling | None:
    """The highest matrix roof in half precision; None where the device has none, or none is known."""
    found = [c for p in ("bf16", "fp16") if (c := case.ceilings.compute(p, "matrix")) is not None and c.precision == p]
    return max(found, key=lambda c: c.value, default=None)
