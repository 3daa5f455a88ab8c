"""A training step on several equal devices, each with a batch of its own: what a device holds and sends when
parameters, gradients and the state of the optimizer are in every replica or cut among them.

- ``dp`` (DistributedDataParallel): everything in each replica; an all-reduce of the gradients.
- ``zero1``, ``zero2`` (ZeRO, arXiv 1910.02054): the state of the optimizer, and the gradients too, are cut.
  Gradients are reduced to their owner, which sends the parameters back.
- ``fsdp`` (ZeRO 3, arXiv 2304.11277): parameters too. They are gathered for the forward and for the backward
  pass; the layer that is whole at a time is not in the memory here.

Both are sent in the precision that products compute in: of autocast in half of the bytes, which FSDP's and
DDP's hooks can do.

With ``accumulate``, each device has several batches for one step of the optimizer. Gradients that are whole
are sent once, those that are cut with each batch, and parameters that are cut are gathered for each; the
gradients are there while the next batch has its activations.

Bounds: the step of one device, the optimizer's part of it cut with its state, or what is sent over the link
in one direction, if that takes longer: the best overlap hides all of the shorter one. A prediction adds what
the backward pass cannot hide of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.profiler.read.exchanges import bus_factor
from rooflines.roofline.predict.forecast import (
    DeviceFacts,
    MemoryNeed,
    Step,
    StepBound,
    TrainingBound,
)


class _Cut(NamedTuple):
    """What is cut among the replicas, and how many times each device gathers the parameters and sends the
    gradients (twice: an all-reduce)."""

    parameters: bool
    gradients: bool
    optimizer: bool
    gathers: int
    reduces: int


_WAYS: Final = {
    "dp": _Cut(False, False, False, 0, 2),
    "zero1": _Cut(False, False, True, 1, 1),
    "zero2": _Cut(False, True, True, 1, 1),
    "fsdp": _Cut(True, True, True, 2, 1),
}
_LAYOUT: Final = re.compile(
    rf"((?P<way>{'|'.join(_WAYS)})=)?(?P<devices>[1-9]\d*)(,accumulate=(?P<batches>[1-9]\d*))?"
)


def parse_training_layouts(texts: Sequence[str]) -> tuple[tuple[str, int, int], ...]:
    """The ways, numbers of devices and of accumulated batches that ``texts`` name: ``fsdp=8``, or ``8`` for
    all ways, ``fsdp=8,accumulate=4``; raises UsageError for any other text."""
    found: list[tuple[str, int, int]] = []
    for text in texts:
        match = _LAYOUT.fullmatch(text.replace(" ", ""))
        if match is None:
            ways = ", ".join(f"{name}=8" for name in _WAYS)
            raise UsageError(
                f"{arg('layout')} {text!r} is not a layout of a training step.",
                hint=f"For example: {ways}, 8 for all, or fsdp=8,accumulate=4.",
            )
        sizes = int(match["devices"]), int(match["batches"] or 1)
        found += [(name, *sizes) for name in ([match["way"]] if match["way"] else _WAYS)]
    return tuple(dict.fromkeys(found))


def bound_training(
    step: Step, on: StepBound, device: DeviceFacts, layouts: Iterable[tuple[str, int, int]], precision: str
) -> tuple[TrainingBound, ...]:
    """``step`` of each of several devices, which takes one ``on`` its own, in each of ``layouts``; those of
    several devices only where their link is known. ``precision`` is that of the workload."""
    need, link = step.memory, device.peer_link
    narrower = 0.5 if precision.startswith("amp-") else 1.0
    if need is None or on.lower_bound_s is None:
        return ()
    whole = [phase for phase in on.phases if phase.name == "optimizer"]
    found = []
    for way, number, batches in layouts:
        if number > 1 and link is None:
            continue
        cut, share = _WAYS[way], 1 / number
        held = _held(need, cut, share, accumulates=batches > 1)
        gathers = cut.gathers * (batches if cut.parameters else 1)
        reduces = cut.reduces * (batches if cut.gradients else 1)
        sent = (
            (bus_factor("allgather", number) or 0.0) * (gathers + reduces) * need.parameters_bytes * narrower
        )
        send_s = sent / link.value if link is not None else 0.0
        # Of the optimizer's part of as many steps, one remains, or a share of it.
        saved = batches - (share if cut.optimizer else 1)
        step_s = batches * on.lower_bound_s - saved * sum(phase.lower_bound_s for phase in whole)
        bound_s = max(step_s, send_s)
        estimate_s = None
        if on.estimate is not None:
            computed_s = batches * on.estimate.time_s - saved * sum(
                phase.estimate.time_s for phase in whole if phase.estimate is not None
            )
            hidden_s = (batches if cut.gradients else 1) * sum(
                phase.estimate.time_s
                for phase in on.phases
                if phase.estimate is not None and (phase.name == "backward" or cut.parameters)
            )
            estimate_s = max(bound_s, computed_s + max(0.0, send_s - hidden_s))
        capacity = device.memory_bytes
        fits = sum(held) <= capacity if capacity is not None else None
        found.append(
            TrainingBound(
                way=way,
                devices=number,
                accumulate=batches,
                parameters_bytes=held[0],
                gradients_bytes=held[1],
                optimizer_bytes=held[2],
                activations_bytes=held[3],
                sent_bytes=sent,
                communication_s=send_s,
                lower_bound_s=bound_s,
                estimate_s=estimate_s,
                units_per_s=number * batches * step.produced / bound_s if fits is not False else None,
                estimate_units_per_s=number * batches * step.produced / estimate_s
                if estimate_s and fits is not False
                else None,
                fits=fits,
            )
        )
    return tuple(found)


def _held(need: MemoryNeed, cut: _Cut, share: float, *, accumulates: bool) -> tuple[int, int, int, int]:
    """Parameters, gradients, state of the optimizer and activations on a device at the fullest moment: with
    all gradients when the optimizer begins, or with the activations of the peak, or, where it
    ``accumulates``, with both."""
    parameters = need.parameters_bytes * (share if cut.parameters else 1)
    optimizer = need.optimizer_bytes * (share if cut.optimizer else 1)
    part = share if cut.gradients else 1
    gradients, at_peak = need.parameters_bytes * part, need.gradients_bytes * part
    if accumulates:
        at_peak = gradients
    elif gradients > at_peak + need.activations_bytes:
        return round(parameters), round(gradients), round(optimizer), 0
    return round(parameters), round(at_peak), round(optimizer), need.activations_bytes
