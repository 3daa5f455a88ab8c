"""Count the FLOPs and bytes of a function or a network by operator, without running it:
``rooflines.count``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from rooflines.errors import (
    OutOfMemoryError,
    RooflinesError,
    UsageError,
    WorkloadError,
    described,
    first_line,
)
from rooflines.profiler.records import StepMemory
from rooflines.profiler.tree.tree import PHASES
from rooflines.profiler.workloads.inputs import tensors_in, with_tensors
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.count.formulas import count as count_call
from rooflines.roofline.count.formulas.counter import lacks_formula
from rooflines.roofline.judge.operator_rows import with_ancestors
from rooflines.shown import Shown
from rooflines.units import binary_bytes

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from rooflines.profiler.calls.recorder import StepCalls
    from rooflines.profiler.options import PointOptions
    from rooflines.profiler.records import Workload
    from rooflines.profiler.workloads.prepare import Prepared

COUNT_SCHEMA = "rooflines.count/1"
Phase: TypeAlias = Literal["prefill", "decode"]
_OF_MODULES = ("flops", "matrix_flops", "bytes")
_NEVER_FAKE = (
    "run on real tensors, because quantized kernels read their packed weights, and TorchScript its constants"
)
# Steps in which TorchScript compiles forward and backward, and lazy modules are made.
_SETTLING = 4


class OperatorCount(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one operator with the same shapes in one module and phase; FLOPs and bytes are of all of
    them together.

    ``kind`` is ``counted`` or ``unknown``; an unknown one has no figures and says why. ``assumption`` is that
    of ``Work``.
    """

    name: str
    module: str
    phase: str
    shapes: str
    category: str
    calls: int
    kind: Literal["counted", "unknown"] = "counted"
    precision: str | None = None
    engine: str | None = None
    flops: int | None = None
    matrix_flops: int | None = None
    bytes: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    reason: str | None = None
    assumption: str | None = None

    @classmethod
    def of(cls, work: Work, calls: int = 1, **facts: Any) -> OperatorCount:
        """Return ``calls`` calls of this ``work`` each; ``facts`` are the other fields."""
        return cls(
            calls=calls,
            precision=work.precision,
            engine=work.engine,
            flops=work.flops * calls,
            matrix_flops=work.matrix_flops * calls,
            bytes=work.bytes * calls,
            bytes_read=work.bytes_read * calls,
            bytes_written=work.bytes_written * calls,
            assumption=work.assumption or None,
            **facts,
        )


class ModuleCount(msgspec.Struct, frozen=True, kw_only=True):
    """One module with everything that runs below it, forward and backward."""

    path: str
    type: str
    calls: int
    depth: int
    flops: int = 0
    matrix_flops: int = 0
    bytes: int = 0


class Count(Shown, frozen=True, kw_only=True):
    """The totals of one step and what they are made of.

    A FLOP is one addition or multiplication; ``bytes`` is compulsory traffic (docs/counting.md). ``coverage``
    is the fraction of the operator calls, views and allocations aside, that have a formula; the others are in
    ``operators`` as ``unknown`` with a reason and in no total. ``tensors`` says whether the step ran on
    ``fake`` tensors (nothing was computed) or had to run on ``real`` ones, and ``note`` why. ``memory`` is
    the step's memory at its peak, where that was asked for.
    """

    flops: int
    matrix_flops: int
    bytes: int
    bytes_read: int
    bytes_written: int
    coverage: float
    tensors: Literal["fake", "real"]
    note: str = ""
    memory: StepMemory | None = None
    operators: tuple[OperatorCount, ...] = ()
    modules: tuple[ModuleCount, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[OperatorCount], **facts: Any) -> Count:
        """Return ``rows`` and their totals; ``facts`` are the other fields."""
        rows = sorted(rows, key=lambda row: (-(row.flops or 0), -(row.bytes or 0), row.name, row.module))
        for name in (*_OF_MODULES, "bytes_read", "bytes_written"):
            facts[name] = sum(getattr(row, name) or 0 for row in rows)
        return cls(operators=tuple(rows), **facts)

    def exchanged(
        self, rows: Iterable[OperatorCount], gone: Iterable[OperatorCount], made: Iterable[OperatorCount]
    ) -> Count:
        """Return the count with these ``rows``, of which those ``made`` have taken the place of those
        ``gone``."""
        modules = with_rows(with_rows(self.modules, gone, -1), made)
        facts = {name: getattr(self, name) for name in ("coverage", "tensors", "note", "memory")}
        return Count.of(rows, modules=modules, **facts)

    @property
    def other_flops(self) -> int:
        """FLOPs outside of matrix products, convolutions and attention."""
        return self.flops - self.matrix_flops

    def to_dataframe(self, rows: Literal["operators", "modules"] = "operators") -> pd.DataFrame:
        """Return the operator calls (most FLOPs first) or the modules (in the order of their first call), a
        column for each field."""
        import pandas as pd

        found, kind = (self.operators, OperatorCount) if rows == "operators" else (self.modules, ModuleCount)
        return pd.DataFrame(
            [msgspec.structs.astuple(row) for row in found], columns=list(kind.__struct_fields__)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the count as plain Python containers, as ``rooflines count --format json`` prints it."""
        return {"schema": COUNT_SCHEMA, **super().to_dict()}


class PhaseCount(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a phase: it computes ``tokens`` of each sequence, which may attend to ``keys`` tokens with
    those in the KV cache.

    ``calls`` is how many such calls a generation has; where decode is counted at several contexts, how many
    at all of them.
    """

    phase: Phase
    tokens: int
    keys: int
    calls: int
    count: Count


def count(
    fn: Callable[..., Any], *inputs: Any, backward: bool = False, memory: bool = False, **keywords: Any
) -> Count:
    """Count one call ``fn(*inputs, **keywords)``; with ``backward`` also the back-propagation of the sum of
    its floating-point outputs.

    ``fn`` is a module or any function of tensors. It runs on fake tensors: nothing is computed, parameters,
    gradients and buffers stay as they are. Where its shapes depend on data, which fake tensors do not have,
    it runs once on the real ones, and the result says so. With ``memory`` the result also tells how much
    memory the call holds at its peak, and what that is.

    >>> rooflines.count(torch.nn.Linear(3, 5), torch.rand(2, 3)).matrix_flops
    60

    Raises UsageError when ``backward`` is asked of a function whose outputs need no gradient; what ``fn``
    raises passes through.
    """
    import torch

    from rooflines.profiler.calls.fakes import as_fake, fake_mode_of, fake_tensors, must_be_real
    from rooflines.profiler.calls.memory import record_with_memory
    from rooflines.profiler.calls.recorder import record as record_calls

    record = record_with_memory if memory else record_calls
    given = fake_mode_of(fn, inputs, keywords)

    def step(of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        positional, named = with_tensors(of, (inputs, keywords))
        output = fn(*positional, **named)
        if backward:
            _backward(output)

    mode = given or fake_tensors()
    reason = _NEVER_FAKE
    if given is not None or not must_be_real(fn):
        try:
            recording = record(lambda: step(lambda tensor: as_fake(mode, tensor)), mode, opens=lacks_formula)
            lacking = "" if given is not None else _lacking(recording)
            if not lacking:
                return summarize(recording)
            reason = f"run on real tensors to record {lacking}"
        except Exception as error:
            if given is not None or _is_final(error):
                raise
            reason = _why_real(error)
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng([torch.cuda.current_device()] if initialized else []):
        recording = record(lambda: step(_copy), None, opens=lacks_formula)
    recording.reason = reason
    return summarize(recording)


@dataclass(frozen=True, slots=True)
class NetworkRecording:
    """One step of a named network as it was recorded; ``mode`` is that of its fake tensors, None where it ran
    on real ones."""

    prepared: Prepared
    mode: FakeTensorMode | None
    recording: StepCalls


def count_network(name: str, options: PointOptions, *, memory: bool = False) -> tuple[Workload, Count]:
    """Count one step of a named network (torchvision, ``timm:``, ``hf:``, ``path/to/file.py:factory``) with
    the inputs it is made for.

    The network is built of fake tensors, so that its size does not matter; where its shapes depend on data it
    is built and run for real. Raises WorkloadError as ``rooflines profile`` does.
    """
    recorded = record_network(name, options, memory=memory)
    return recorded.prepared.facts, summarize(recorded.recording)


def record_network(name: str, options: PointOptions, *, memory: bool = False) -> NetworkRecording:
    """The recording that ``count_network`` counts. Its ``memory`` is that of the step after it: optimizers
    have their state by then."""
    import psutil

    from rooflines.profiler.calls.fakes import Building, fake_tensors
    from rooflines.profiler.calls.memory import record_with_memory
    from rooflines.profiler.calls.recorder import record
    from rooflines.profiler.workloads.prepare import prepare

    mode = fake_tensors()
    building = Building(mode)
    reason, faked = _NEVER_FAKE, None
    if not name.startswith("quantized_"):
        try:
            with mode, building:
                prepared = prepare(name, options)
            with prepared.flags():
                recording = record(prepared.step, mode, opens=lacks_formula)
                if memory:
                    recording.memory = record_with_memory(prepared.step, mode, before=1).memory
            faked = NetworkRecording(prepared, mode, recording)
            lacking = _lacking(recording)
            if not lacking:
                return faked
            reason = f"run on real tensors to record {lacking}"
        except Exception as error:
            if _is_final(error):
                raise
            reason = _why_real(error)
        # Parameters, in training with gradients and momentum.
        needed = building.parameter_bytes * (3 if options.mode == "training" else 1)
        free = psutil.virtual_memory().available
        if needed > free:
            if faked is not None:
                return faked
            raise WorkloadError(
                f"not enough memory to count {name}: its parameters need {binary_bytes(needed)}, "
                f"{binary_bytes(free)} are free "
                f"({reason}).",
                hint=(
                    "Count it with fewer layers or experts: a folder with a config.json, or "
                    "path/to/file.py:factory."
                ),
            )
    try:
        prepared = prepare(name, options)
        with prepared.flags():
            recording = record(prepared.step, None, restore=False, opens=lacks_formula)
            if not recording.settled:
                for _ in range(_SETTLING):
                    prepared.step()
                recording = record(prepared.step, None, restore=False, opens=lacks_formula)
            if memory:
                recording.memory = record_with_memory(prepared.step, None, restore=False).memory
    except RooflinesError as error:
        raise error from None
    except Exception as error:
        raise WorkloadError(f"{name} raised {described(error)}.") from None
    recording.reason = reason
    return NetworkRecording(prepared, None, recording)


def _is_final(error: Exception) -> bool:
    """Whether a step that failed on fake tensors would fail on real ones as well: what was asked of us is
    wrong, not what it runs."""
    return isinstance(error, RooflinesError) and (
        error.__cause__ is None or isinstance(error, OutOfMemoryError)
    )


def _backward(output: Any) -> None:
    import torch

    losses = [
        tensor.sum() for tensor in tensors_in(output) if tensor.is_floating_point() and tensor.requires_grad
    ]
    if not losses:
        raise UsageError(
            "backward=True, but no floating-point output requires a gradient.",
            hint="Call it outside of torch.no_grad(), and with parameters or inputs that require gradients.",
        )
    torch.autograd.backward(reduce(add, losses))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():  # the copy is not part of the step
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _why_real(error: BaseException) -> str:
    return (
        f"run on real tensors because fake tensors were not enough ({first_line(error.__cause__ or error)})"
    )


def _lacking(recording: StepCalls) -> str:
    """What is counted on real tensors and was not recorded on fake ones; empty for nothing."""
    from rooflines.roofline.count.formulas.matmul import SPARSE

    if recording.unopened:
        return f"what {recording.unopened} calls"
    signatures = (call.signature for call in recording.calls)
    sparse = (
        signature for signature in signatures if any(tensor.strides is None for tensor in signature.tensors)
    )
    return (
        "the elements of sparse tensors"
        if any(count_call(signature).reason == SPARSE for signature in sparse)
        else ""
    )


def summarize(recording: StepCalls) -> Count:
    """The count of what a recorded step called."""
    rows: list[OperatorCount] = []
    inside: list[OperatorCount] = []
    for call, number in recording.calls.items():
        found = count_call(call.signature, outputs=call.outputs)
        if found.work == Work() or found.kind == "composite":
            continue  # views, allocations, questions about a tensor
        facts: dict[str, Any] = {
            "name": call.signature.name,
            "module": recording.modules[call.module].path if call.module >= 0 else "",
            "phase": PHASES[call.phase],
            "shapes": call.signature.shapes(),
            "category": found.category,
        }
        row = OperatorCount(kind="unknown", reason=found.reason, calls=number, **facts)
        rows.append(row if found.work is None else OperatorCount.of(found.work, number, **facts))
        if call.module >= 0:
            inside.append(rows[-1])
    modules: dict[str, ModuleCount] = {}
    for module, calls in zip(recording.modules, recording.module_calls, strict=True):
        depth = module.path.count(".") + 1 if module.path else 0
        modules.setdefault(
            module.path, ModuleCount(path=module.path, type=module.type, calls=calls, depth=depth)
        )
    working = sum(row.calls for row in rows)
    unknown = sum(row.calls for row in rows if row.kind == "unknown")
    return Count.of(
        rows,
        modules=with_rows(modules.values(), inside),
        coverage=1 - unknown / working if working else 1.0,
        tensors="fake" if recording.fake else "real",
        note=recording.reason,
        memory=recording.memory,
    )


def with_rows(
    modules: Iterable[ModuleCount], rows: Iterable[OperatorCount], sign: Literal[1, -1] = 1
) -> tuple[ModuleCount, ...]:
    """Return ``modules`` with the work of ``rows``, which run in them, added to each that they run below, or
    taken off it."""
    own = Counter[tuple[str, str]]()
    for row in rows:
        for name in _OF_MODULES:
            own[row.module, name] += sign * (getattr(row, name) or 0)
    sums = Counter[tuple[str, str]]()
    for (module, name), figure in own.items():
        for path in with_ancestors(module):
            sums[path, name] += figure
    return tuple(
        replace(one, **{name: getattr(one, name) + sums[one.path, name] for name in _OF_MODULES})
        for one in modules
    )
