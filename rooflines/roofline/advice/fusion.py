"""Advice on chains of operators that could be one kernel each: only what a chain reads and writes from outside needs memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from rooflines.roofline.advice.case import Advice, Case, Ran, total, whole
from rooflines.roofline.advice.setting import setting
from rooflines.roofline.advice.small_kernels import FUSABLE, of_library
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.tensor_sizes import tensor_bytes, tensors
from rooflines.units import seconds, si


class Chain(NamedTuple):
    """Operators of one module and phase that can become ``kernels``, ``fused`` calls less. One by one they move ``bytes``, of which
    ``inside_bytes`` pass between them; at least ``outside_bytes`` do not."""

    rows: tuple[OperatorRow, ...]
    kernels: float
    fused: float
    bytes: float
    inside_bytes: float
    outside_bytes: float


def chains(rows: Iterable[OperatorRow], *, training: bool) -> list[Chain]:
    """The chains that fusable ``rows`` with shapes form.

    A tensor between two operators is written and read. In training it is written all the same, because the backward pass reads it.
    """
    groups: dict[tuple[str, str, tuple[int, ...]], list[OperatorRow]] = defaultdict(list)
    for row in rows:
        if row.category in FUSABLE and row.bytes and (sizes := tensors(row)):
            groups[row.module.rpartition(".")[0], row.phase, sizes[0]].append(row)
    found = []
    for (_, _, shape), members in groups.items():
        calls: dict[str, float] = defaultdict(float)
        for row in members:
            calls[row.name] += row.calls
        kernels = max(calls.values())  # the operator that is called most often begins each chain or is in each
        fused = sum(calls.values()) - kernels
        if fused > 0:
            each, size = tensor_bytes(shape, members[0].precision), sum(row.bytes for row in members)
            inside = min(size, (1 if training else 2) * fused * each)
            # Each kernel reads a tensor and writes one.
            found.append(Chain(tuple(members), kernels, fused, size, inside, max(size - inside, min(size, 2 * kernels * each))))
    return found


def chained(case: Case) -> Advice | None:
    """Chains of element-wise operators, norms, reductions and copies of PyTorch, with shapes, in code that is not compiled.

    They save at most their time less that of the bytes from outside at the roof of the memory.
    """
    analysis, memory = case.analysis, case.ceilings.outermost_memory()
    if memory is None or not case.judged or not case.on_device or analysis.compiled or analysis.serving is not None:
        return None
    ran = {id(one.row): one for one in case.ran(_is_fusable)}
    rows = (one.row for one in ran.values() if isinstance(one.row, OperatorRow))
    floor, members, saves_s, fused_s, outside = case.ceilings.latency(), list[Ran](), 0.0, 0.0, 0.0
    for chain in chains(rows, training=analysis.workload.mode == "training"):
        own, time_s = [ran[id(row)] for row in chain.rows], sum(row.time_s for row in chain.rows)
        least_s = max(chain.outside_bytes / memory.value, chain.kernels * floor.value if floor is not None else 0.0)
        if time_s > least_s:
            saves_s, fused_s, outside = saves_s + min(total(own), time_s - least_s), fused_s + least_s, outside + chain.outside_bytes
            members += own
    if not members:
        return None
    worst = max(members, key=lambda one: one.left_s).row
    where = f" in {worst.module}" if worst.module else ""
    return Advice(
        title="Fuse chains of element-wise operators, norms and copies",
        saves_s=saves_s,
        evidence=(
            f"{sum(one.row.calls for one in members):,.0f} calls take {seconds(total(members))} {case.per} "
            f"({case.share(total(members))}); fused, they read and write {si(outside, 'B')} from outside, which takes "
            f"{seconds(fused_s)} at the rate of {memory.name}; the longest is {worst.name}{where} ({worst.shapes})"
        ),
        suggestion=setting(analysis, "compile", "on"),
        of=whole(members),
    )


def _is_fusable(one: Ran) -> bool:
    return one.category in FUSABLE and not of_library(one) and not one.transfers and "batch_norm" not in one.row.name
