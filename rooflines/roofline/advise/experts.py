"""Advice on a mixture of experts whose experts are modules of the program."""

from __future__ import annotations

import math
from collections import defaultdict

from rooflines.roofline.advise.case import Advice, Case, Ran
from rooflines.roofline.analysis import Key
from rooflines.roofline.judge.shapes import skeleton
from rooflines.units import seconds

# A softmax alone chooses nothing: it may weigh the results of all experts.
_CHOOSES = {"aten::topk", "aten::argmax", "aten::max"}


def dense(case: Case) -> Advice | None:
    """Every expert computes every token, although a router chooses among the experts.

    Preconditions: modules whose paths differ in an index, with products of equally many rows; next to them a
    top-k or argmax over scores with these rows and one column per module.
    """
    scores = {
        (one.row.module, sizes[0])
        for one in case.every()
        if one.row.name in _CHOOSES and (sizes := one.tensors)
    }
    alike: dict[tuple[str, tuple[str, ...]], list[tuple[str, Ran]]] = defaultdict(list)
    for one in case.ran(lambda one: one.category == "matmul"):
        parts = one.row.module.split(".")
        kinds = skeleton(one.row.module)
        for at in range(len(parts)):
            if parts[at] != kinds[at]:
                alike[".".join(parts[:at]), kinds[at:]].append((parts[at], one))
    of = dict[Key, float]()
    tokens = 0
    experts = 0
    for (parent, _), members in alike.items():
        number = len({name for name, _ in members})
        rows = {next((size[0] for size in one.tensors if len(size) == 2), 0) for _, one in members}
        around = {parent, parent.rpartition(".")[0]}
        near = [size for module, size in scores if around & {module, module.rpartition(".")[0]}]
        routed = {math.prod(size[:-1]) for size in near if size[-1] == number}
        if number > 1 and len(rows) == 1 and rows <= routed:
            of |= {one.key: one.left_s * (1 - 1 / number) for _, one in members}
            tokens = max(rows)
            experts = number
    if not of:
        return None
    time_s = sum(one.left_s for one in case.ran() if one.key in of)
    saves_s = sum(of.values())
    return Advice(
        "Send each token only to its experts",
        saves_s,
        f"each of {experts} experts computes all {tokens:,} tokens, although a router chooses "
        "among them: their products take "
        f"{case.cost(time_s)}, and {seconds(time_s - saves_s)} for one expert a token",
        "gather the tokens of each expert (index_select, then index_add_), or a grouped product "
        "(torch._grouped_mm)",
        of,
        changes="kernels",
    )
