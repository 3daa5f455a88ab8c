"""Module rows of an analysis: each module with everything that runs below it."""

from __future__ import annotations

import numpy as np

from rooflines.roofline.analysis import ModuleRow, OperatorRow
from rooflines.roofline.attribution.attribute import Attribution
from rooflines.roofline.operator_rows import bound_and_headroom
from rooflines.roofline.step.times import per_step


def module_rows(attribution: Attribution, judged: list[OperatorRow], steps: int, has_ceilings: bool) -> tuple[ModuleRow, ...]:
    """Every module with all that runs below it, forward and backward, in the order of first call; ``judged`` goes with the rows."""
    index = {module.path: i for i, module in reversed(list(enumerate(attribution.calls.modules)))}
    sums = np.zeros((len(attribution.calls.modules), 3))  # time, lower bound, lower bound and headroom
    exact = [[0, 0, 0] for _ in attribution.calls.modules]
    for gap in attribution.gaps:
        for path in with_ancestors(attribution.calls.modules[gap.module].path) if gap.module >= 0 else ():
            if path in index:
                sums[index[path], 0] += gap.time_ns / 1e9 / steps
    for row, operator in zip(attribution.rows, judged, strict=True):
        if row.module < 0:
            continue
        work = row.count.work
        for path in with_ancestors(attribution.calls.modules[row.module].path):
            at = index.get(path)
            if at is None:
                continue
            if work is not None:
                for k, value in enumerate((work.flops, work.matrix_flops, work.bytes)):
                    exact[at][k] += value * row.calls
            lower_s, headroom_s = bound_and_headroom(operator)
            sums[at] += (operator.time_s, lower_s, lower_s + headroom_s)
    result = []
    for at, module in enumerate(attribution.calls.modules):
        time_s, lower_s, bounded_s = sums[at].tolist()
        # A capture trace has modules that no replayed graph calls.
        if index[module.path] != at or (not attribution.calls.module_calls[at] and not time_s):
            continue
        known = has_ceilings and bounded_s > 0
        result.append(
            ModuleRow(
                path=module.path,
                type=module.type,
                calls=per_step(int(attribution.calls.module_calls[at]), steps),
                time_s=time_s,
                flops=per_step(exact[at][0], steps),
                matrix_flops=per_step(exact[at][1], steps),
                bytes=per_step(exact[at][2], steps),
                lower_bound_s=lower_s if known else None,
                efficiency=lower_s / bounded_s if known else None,
                headroom_s=max(0.0, bounded_s - lower_s) if known else None,
                depth=module.path.count(".") + 1 if module.path else 0,
            )
        )
    return tuple(result)


def with_ancestors(path: str) -> list[str]:
    """The paths of all modules from the root to this one: ``a.b`` -> ``"", "a", "a.b"``."""
    parts = path.split(".") if path else []
    return ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))]
