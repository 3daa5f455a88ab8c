"""The result of a point that trains a network written for each backend: its facts, its operators, and the file of its details."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import psutil

from rooflines.device_specs.records import Ceilings
from rooflines.errors import RooflinesError
from rooflines.kernels.networks.base import Array, Network
from rooflines.pipeline.ceilings import ceilings_of_device
from rooflines.profiler.environment import device_name
from rooflines.profiler.others import OthersMeter
from rooflines.roofline.bounds import place
from rooflines.roofline.formulas import Work
from rooflines.serial import write_json
from rooflines.studies import networks
from rooflines.studies.records import DETAIL_FILE, Detail, TimedOperator
from rooflines.sweeps.point import RUN
from rooflines.sweeps.records import Result

if TYPE_CHECKING:
    from rooflines.sweeps.worker import Channel

OPERATOR_ROUNDS = 15

D = TypeVar("D", bound=Detail)


def make_result(
    task: Mapping[str, Any], directory: Path, values: Mapping[str, float | None], detail: Detail | None = None, **facts: str
) -> Result:
    """Return the result of a point with ``values`` and ``facts``, after writing its ``detail``."""
    backend = task["point"]["options"]["backend"]
    device = networks.device_of(backend)
    facts = {"device": device, "device_name": device_name(device), **facts}
    if detail is not None:
        facts["data"] = f"{detail.data.label}, {detail.data.train_samples:,} samples for training"
        (directory / RUN).mkdir(exist_ok=True)
        write_json(directory / RUN / DETAIL_FILE, detail)
    return Result(
        point=task["point"]["id"], round=task["round"], values={name: value for name, value in values.items() if value is not None},
        facts=facts, run=RUN if detail is not None else None,
    )  # fmt: skip


def process_facts(backend: str) -> dict[str, Any]:
    """Return the fields of a ``Detail`` that are facts of this process."""
    device = networks.device_of(backend)
    return {"device": device, "threads": _threads(backend) if device == "cpu" else None, "versions": networks.versions_of(backend)}


def finish(
    job: Any, detail: D, network: Network, x: Array, y: Array, channel: Channel, result: Callable[..., Result], *, operators: bool
) -> Result:
    """End a training: time the ``operators`` of a step on ``x`` and ``y`` if asked for, bound them, and close the network.

    ``result`` makes the result of a detail and a remark; what is known so far is sent before each part that takes long.
    """
    remark = ""
    if operators:
        channel.found(result(detail))
        channel.stage("timing its operators")
        detail = with_operators(detail, network, x, y)
        channel.found(result(detail))
        try:
            ceilings = ceilings_of_device(job.ceilings, detail.device, job.threads, channel)
            detail = msgspec.structs.replace(detail, ceilings=ceilings, operators=bounded(detail.operators, ceilings))
        except RooflinesError as error:
            remark = f"no bounds on {detail.device}: {error.message}"
    network.close()
    return result(detail, remark)


def with_operators(detail: D, network: Network, x: Array, y: Array) -> D:
    """Return ``detail`` with every operator of a step on ``x`` and ``y``, timed alone, and what others computed meanwhile."""
    others = OthersMeter()
    timed = network.operators(x, y, rounds=OPERATOR_ROUNDS)
    busy = max(detail.others_cores, others.cores())
    fields = ("name", "layer", "phase", "calls", "flops", "matrix_flops", "bytes", "precision", "executed_flops")
    operators = tuple(
        TimedOperator(time_s=one.seconds, rounds=one.rounds, **{name: getattr(one.operator, name) for name in fields}) for one in timed
    )
    return msgspec.structs.replace(detail, operators=operators, others_cores=busy)


def bounded(operators: Iterable[TimedOperator], ceilings: Ceilings) -> tuple[TimedOperator, ...]:
    """``operators`` with the lower bound of each, what sets it, and the share of its time that this is."""
    return tuple(_bounded(one, ceilings) for one in operators)


def _bounded(one: TimedOperator, ceilings: Ceilings) -> TimedOperator:
    calls = max(1, one.calls)
    executed = one.executed
    # What is left out, or done beyond the direct algorithm, is products where there are any. The record keeps traffic as one number;
    # the roofline does not ask which way it goes.
    other = min(executed, one.flops - one.matrix_flops) if one.matrix_flops else executed
    work = Work(
        matrix_flops=(executed - other) // calls,
        other_flops=other // calls,
        bytes_read=one.bytes // calls,
        precision=one.precision,
    )
    found = place(work, ceilings)
    if found is None:
        return one
    return msgspec.structs.replace(
        one,
        lower_bound_s=found.lower_bound_s * calls,
        attainable_flop_per_s=found.attainable_flop_per_s,
        efficiency=found.lower_bound_s * calls / one.time_s,
        bound=found.bound,
        memory_level=found.memory_level,
    )


def check_losses(losses: Sequence[float], before: int) -> None:
    """Raise RooflinesError at the first loss that is not finite, which JSON could not carry; ``before`` is how many came before."""
    for number, loss in enumerate(losses, before + 1):
        if not math.isfinite(loss):
            raise RooflinesError(f"the loss is not finite (step {number}).")


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(psutil.Process().memory_info().rss)


def _threads(backend: str) -> int | None:
    """The threads that a backend on the CPU computes with."""
    if backend.startswith("torch"):
        import torch

        return torch.get_num_threads()
    if backend.startswith("numba"):
        import numba

        return int(numba.get_num_threads())
    # NumPy's BLAS is asked by its own variables and has no call that tells.
    return None
