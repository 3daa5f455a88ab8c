"""Advice on chains of operators that could be one kernel each: only what a chain reads and writes from outside needs memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from rooflines.roofline.advice.case import Advice, Case, Key, Ran, total
from rooflines.roofline.advice.setting import setting
from rooflines.roofline.advice.small_kernels import FUSABLE, of_library
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.prediction.step import tensor_bytes, tensors
from rooflines.units import seconds, si


class Chain(NamedTuple):
    """Operators of one module and phase over tensors of ``tensor_bytes``: ``kernels`` is how many they become, ``fused`` how many calls
    go, ``inside_bytes`` what passes between them."""

    rows: tuple[OperatorRow, ...]
    kernels: float
    fused: float
    tensor_bytes: float
    inside_bytes: float

    @property
    def bytes(self) -> float:
        """What the operators read and write one by one."""
        return sum(row.bytes for row in self.rows)

    @property
    def outside_bytes(self) -> float:
        """What they read and write together: at least one tensor each for every kernel."""
        return max(self.bytes - self.inside_bytes, min(self.bytes, 2 * self.kernels * self.tensor_bytes))


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
            each, size = tensor_bytes(shape, members[0]), sum(row.bytes for row in members)
            found.append(Chain(tuple(members), kernels, fused, each, min(size, (1 if training else 2) * fused * each)))
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
    floor, of, saves_s, every, outside = case.ceilings.latency(), dict[Key, float](), 0.0, 0.0, 0.0
    members: list[Ran] = []
    for chain in chains(rows, training=analysis.workload.mode == "training"):
        own = [ran[id(row)] for row in chain.rows]
        left_s = total(own)
        fused_s = max(chain.outside_bytes / memory.value, chain.kernels * floor.value if floor is not None else 0.0)
        if left_s > fused_s:
            saves_s += left_s - fused_s
            every, outside = every + chain.bytes, outside + chain.outside_bytes
            members += own
            of.update({one.key: one.left_s for one in own})
    if not members:
        return None
    time_s, worst = sum(of.values()), max(members, key=lambda one: one.left_s).row
    where = f" in {worst.module}" if worst.module else ""
    return Advice(
        title="Fuse chains of element-wise operators, norms and copies",
        saves_s=saves_s,
        evidence=(
            f"{sum(one.row.calls for one in members):,.0f} calls take {seconds(time_s)} {case.per} ({case.share(time_s)}): "
            f"one by one they move {si(every, 'B')}, fused {si(outside, 'B')}, which takes {seconds(time_s - saves_s)} at the rate of "
            f"{memory.name}; the longest is {worst.name}{where} ({worst.shapes})"
        ),
        suggestion=setting(analysis, "compile", "on"),
        of=of,
    )


def _is_fusable(one: Ran) -> bool:
    return one.category in FUSABLE and not of_library(one) and not one.transfers and "batch_norm" not in one.row.name
