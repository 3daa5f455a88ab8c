"""Advice on the optimizer: its loop over the parameters, and the gradients that it fills with zeros."""

from __future__ import annotations

import re

from rooflines.roofline.advice.case import Advice, Case, Key, Ran, total, whole
from rooflines.units import seconds

# An update in a loop over the parameters has several calls for each of them.
MANY_CALLS = 50
_FUSED = re.compile(r"_fused_|fused_?adam|fused_?sgd|triton_|split.*optimizer", re.IGNORECASE)
_AT_ONCE = re.compile(rf"_foreach_|multi_tensor|{_FUSED.pattern}", re.IGNORECASE)
_FILLS = ("aten::zero_", "aten::_foreach_zero_", "aten::fill_")


def zeroed_gradients(case: Case) -> Advice | None:
    """Gradients that are filled with zeros, which the backward pass then adds to; a single element is the flag of a scaler."""
    found = case.ran(lambda one: one.row.phase == "optimizer" and one.row.name in _FILLS and set(one.tensors) != {(1,)})
    if not found:
        return None
    time_s = total(found)
    return Advice(
        title="Drop the gradients instead of filling them with zeros",
        saves_s=time_s,
        evidence=(
            f"fills with zeros in the optimizer: {sum(one.row.calls for one in found):,.0f} calls, {seconds(time_s)} {case.per} "
            f"({case.share(time_s)})"
        ),
        suggestion="optimizer.zero_grad(set_to_none=True): the backward pass then writes gradients instead of adding them to zeros",
        of=whole(found),
    )


def loop(case: Case) -> Advice | None:
    """An update with one small operator after another for each parameter."""
    found = case.ran(in_loop)
    calls = sum(_launches(one) for one in found)
    if calls < MANY_CALLS:
        return None
    of: dict[Key, float] = {one.key: one.headroom_s for one in found if one.headroom_s}
    idle_s = min(case.idle_s("host_bound"), sum(one.idle_s for one in case.analysis.host_work if one.kind == "optimizer"))
    waits = f", and the device waits {seconds(idle_s)} for their launches" if idle_s else ""
    return Advice(
        title="Update all parameters at once",
        saves_s=sum(of.values()) + idle_s,
        evidence=(
            f"the optimizer makes {calls:,.0f} small calls {case.per}: {seconds(total(found))} ({case.share(total(found))}){waits}"
        ),
        suggestion="torch.optim with foreach=True or fused=True, where the optimizer has it: a few kernels for all parameters",
        of={**of, ("idle", "host_bound"): idle_s},
    )


def in_loop(one: Ran) -> bool:
    return one.row.phase == "optimizer" and not one.communicates and not updates_at_once(one, _AT_ONCE)


def updates_at_once(one: Ran, fused: re.Pattern[str] = _FUSED) -> bool:
    """Whether a kernel or operator of this kind updates many parameters."""
    return any(fused.search(name) for name in (one.row.name, *(kernel.name for kernel in one.kernels)))


def _launches(one: Ran) -> float:
    return sum(kernel.calls for kernel in one.kernels) if one.kernels else one.row.calls
