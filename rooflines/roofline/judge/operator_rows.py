"""Rows of an analysis: operators judged by the roofs, time without a work model, and the totals over all
operators."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.records import RunFile
from rooflines.profiler.tree.tree import PHASES
from rooflines.roofline.analysis import Example, Kernel, ModuleRow, OperatorRow, Totals, Unmodeled
from rooflines.roofline.count.kernel_names import matrix_precision
from rooflines.roofline.judge.bounds import judge
from rooflines.roofline.judge.step.times import per_step
from rooflines.roofline.own.own import Attribution
from rooflines.roofline.own.rows import Longest, TimeRow
from rooflines.units import seconds

# A whole recurrent network by cuDNN or MIOpen, forward and backward. Cells outside of these make products of
# their own.
_LIBRARY_RNN = ("aten::_cudnn_rnn", "aten::miopen_rnn")
# Fused attention in fp32 from compute capability 8.0 on makes each product of three in TF32 (CUTLASS,
# OpMultiplyAddFastF32).
_WORK = ("flops", "matrix_flops", "bytes")
_THREE_PASSES = re.compile(r"fmha_cutlass[FB]_f32_\w*_sm(?:8|9|1\d)\d")


def operator_row(
    row: TimeRow, attribution: Attribution, ceilings: Ceilings | None, facts: RunFile
) -> OperatorRow:
    """A ``row`` of ``attribution`` per step, judged by ``ceilings``."""
    steps = attribution.per
    flops, size = row.work.flops, row.work.bytes
    time_s = row.time_ns / 1e9
    # The times of a device that was not traced are the host's.
    complete = (
        time_s > 0
        and row.doubt is None
        and (facts.environment.device.startswith("cpu") or len(attribution.trace.device) > 0)
    )
    precision = _judged_precision(row, facts, ceilings)
    if ceilings is not None and any(_THREE_PASSES.match(kernel.name) for kernel in row.kernels):
        ceilings = ceilings.with_three_passes()
    figures = asdict(judge(row, ceilings, precision))
    for name in ("lower_bound_s", "headroom_s"):
        figures[name] = None if figures[name] is None else figures[name] / steps
    return OperatorRow(
        **_shared(row, attribution),
        **figures,
        precision=precision,
        category="optimizer" if PHASES[row.phase] == "optimizer" else row.count.category,
        flops=per_step(flops * row.calls, steps),
        matrix_flops=per_step(row.work.matrix_flops * row.calls, steps),
        bytes=per_step(size * row.calls, steps),
        intensity_flop_per_byte=flops / size if flops and size else None,
        flop_per_s=flops * row.calls / time_s if flops and complete else None,
        byte_per_s=size * row.calls / time_s if size and complete else None,
        inferred=row.inferred,
        assumption=_assumption(row),
    )


def unmodeled_row(gap: TimeRow, attribution: Attribution) -> Unmodeled:
    """A ``gap`` of ``attribution`` per step."""
    return Unmodeled(reason=gap.reason, **_shared(gap, attribution))


def _shared(row: TimeRow, attribution: Attribution) -> dict[str, Any]:
    """The fields that every row has, per step."""
    steps = attribution.per
    return {
        "name": row.name,
        "module": attribution.path(row.module),
        "phase": PHASES[row.phase],
        "shapes": row.signature.shapes(),
        "calls": per_step(row.calls, steps),
        "time_s": row.time_ns / 1e9 / steps,
        "step_times_s": tuple(time_ns / 1e9 for time_ns in row.step_ns) or None,
        "caller": row.caller or None,
        "exposed_s": None if row.exposed_ns is None else row.exposed_ns / 1e9 / steps,
        "kernels": tuple(
            Kernel(
                name=kernel.name,
                calls=per_step(kernel.calls, steps),
                time_s=kernel.time_ns / 1e9 / steps,
                streams=kernel.streams,
                grid=grid,
                block=block,
                registers=kernel.registers,
                shared_bytes=kernel.shared_bytes,
                occupancy=kernel.occupancy,
            )
            for kernel in row.kernels
            for grid, block in (kernel.shape or (None, None),)
        ),
        "example": _example(row.longest, attribution),
    }


def _assumption(row: TimeRow) -> str | None:
    """What the formula assumed, and that calls of one shape take two times, which a window in every other
    layer would explain."""
    assumed = [row.work.assumption] if row.work.assumption else []
    if row.alternates_ns is not None:
        short, long = (seconds(time_ns / 1e9) for time_ns in row.alternates_ns)
        assumed.append(f"no sliding window, although calls take {short} and {long} in turn")
    return "; ".join(assumed) or None


def _judged_precision(row: TimeRow, facts: RunFile, ceilings: Ceilings | None) -> str | None:
    """The roof's precision: fp32 products, convolutions and recurrent layers of cuDNN ran as TF32 where they
    were asked to, or allowed to on a device that can, unless all of their kernels name fp32.

    Torch allows TF32 in cuDNN by default, on every device: one that has no such roof ran in fp32. Runs from
    before the switch of recurrent layers was recorded are judged by that of products.
    """
    work = row.work
    named = {matrix_precision(kernel.name) for kernel in row.kernels}
    if work.precision == "fp32" and work.matrix_flops and named & {"fp32", "tf32"} != {"fp32"}:
        allowed = facts.tf32 or {}
        switch = "convolution" if row.count.category == "convolution" else "matmul"
        if row.signature.name.startswith(_LIBRARY_RNN) and "rnn" in allowed:
            switch = "rnn"
        able = ceilings is None or ceilings.compute("tf32", "matrix") is not None
        if facts.workload.precision == "tf32" or (able and allowed.get(switch)):
            return "tf32"
    return work.precision


def bound_and_headroom(row: OperatorRow) -> tuple[float, float]:
    """The row's bound and what could be saved of it: what is faster than its bound counts with its time.

    They add up to the row's time, but for copies that computation hides.
    """
    return min(row.lower_bound_s or 0.0, row.time_s), row.headroom_s or 0.0


def total(operators: Sequence[OperatorRow], facts: RunFile, *, bounded: bool) -> Totals:
    """The sums over all operators, those of bounds only where the step is ``bounded``."""
    bounds = [bound_and_headroom(row) for row in operators if row.lower_bound_s is not None]
    time_s = sum(row.time_s for row in operators)
    lower_s = sum(one for one, _ in bounds)
    headroom_s = sum(one for _, one in bounds)
    unjudged = [row for row in operators if row.lower_bound_s is None or row.bound == "transfer"]
    if not any(row.flops or row.bytes for row in operators):
        return Totals(time_s=time_s or None, unjudged_s=time_s, peak_memory_bytes=facts.peak_memory_bytes)
    return Totals(
        flops=sum(row.flops for row in operators),
        matrix_flops=sum(row.matrix_flops for row in operators),
        bytes=sum(row.bytes for row in operators),
        time_s=time_s,
        lower_bound_s=lower_s if bounded else None,
        headroom_s=headroom_s if bounded else None,
        unjudged_s=sum(row.time_s - sum(bound_and_headroom(row)) for row in unjudged) if bounded else time_s,
        efficiency=lower_s / (lower_s + headroom_s) if lower_s > 0 and bounded else None,
        peak_memory_bytes=facts.peak_memory_bytes,
    )


def _example(longest: Longest | None, attribution: Attribution) -> Example | None:
    if longest is None:
        return None
    names = attribution.calls.step_names
    return Example(
        ts_us=longest.start_ns // 1000
        + longest.start_ns % 1000 / 1e3,  # nanoseconds since 1970 are more than a float holds
        at_s=(longest.start_ns - attribution.trace.began_ns) / 1e9,
        lasts_s=longest.lasting_ns / 1e9,
        step=names[longest.step] if 0 <= longest.step < len(names) else "",
        stream=longest.stream if longest.stream >= 0 else None,
    )


# Module rows of an analysis: each module with everything that runs below it.


def module_rows(
    attribution: Attribution, judged: Sequence[OperatorRow], has_ceilings: bool
) -> tuple[ModuleRow, ...]:
    """Every module with all that runs below it, forward and backward, in the order of first call; ``judged``
    goes with the rows."""
    modules, steps = attribution.calls.modules, attribution.per
    module_calls = attribution.calls.module_calls.tolist()
    times: dict[str, list[float]] = defaultdict(list)
    below: dict[str, list[tuple[TimeRow, OperatorRow]]] = defaultdict(list)
    none = ((gap, None) for gap in attribution.gaps)
    for row, operator in (*none, *zip(attribution.rows, judged, strict=True)):
        for path in with_ancestors(modules[row.module].path) if row.module >= 0 else ():
            times[path].append(row.time_ns / 1e9 / steps)
            if operator is not None:
                below[path].append((row, operator))
    rows = []
    # Of several of one path the first counts.
    for number in sorted(
        {module.path: number for number, module in reversed(list(enumerate(modules)))}.values()
    ):
        module = modules[number]
        called = module_calls[number]
        path = module.path
        time_s = sum(times[path], 0.0)
        counted = below[path]
        # A capture trace has modules that no replayed graph calls.
        if not called and not time_s:
            continue
        bounds = [bound_and_headroom(operator) for _, operator in counted]
        lower_s = sum((lower for lower, _ in bounds), 0.0)
        bounded_s = sum((lower + headroom for lower, headroom in bounds), 0.0)
        known = has_ceilings and bounded_s > 0
        work = {
            name: per_step(sum(getattr(row.work, name) * row.calls for row, _ in counted), steps)
            for name in _WORK
        }
        rows.append(
            ModuleRow(
                path=path,
                type=module.type,
                calls=per_step(called, steps),
                time_s=time_s,
                **work,
                lower_bound_s=lower_s if known else None,
                efficiency=lower_s / bounded_s if known else None,
                headroom_s=max(0.0, bounded_s - lower_s) if known else None,
                depth=path.count(".") + 1 if path else 0,
            )
        )
    return tuple(rows)


def with_ancestors(path: str) -> list[str]:
    """The paths of all modules from the root to this one: ``a.b`` -> ``"", "a", "a.b"``."""
    parts = path.split(".") if path else []
    return ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))]
