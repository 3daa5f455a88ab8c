"""Kernels that a library launches itself, below no counted operator: each launch is counted as a call of the
kernel.

The kernel's name says what it does (``formulas/kernels/``), the operators before it under the same wrapper
have its tensors. Kernels that torch.compile launches without recording their arguments stay unknown, but each
under its own name.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rooflines.profiler.read.launches import is_launch, launching
from rooflines.profiler.read.nesting import covered
from rooflines.profiler.read.records import KERNEL, OPERATOR, RUNTIME, LaunchShape, Mask, Trace
from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.count.counts import Counts, Group, Variant
from rooflines.roofline.count.formulas.counter import COMPILED
from rooflines.roofline.count.formulas.kernels import Launch, count_launch, family_of
from rooflines.roofline.count.formulas.registry import CallCount
from rooflines.roofline.count.kernel_names import short_kernel

# Operators before a launch that are looked at.
_BEFORE = 512
_COMPILED_REASON = "launched by torch.compile, which recorded none of its arguments"


def from_launched_kernels(counts: Counts) -> Iterable[Group]:
    """Count the launches that no counted operator encloses and whose kernels are of a known family."""
    trace, calls = counts.trace, counts.calls
    counted = counts.of_kind("counted")
    wrapping = counts.decomposing
    free = ~covered(counted & ~wrapping, calls.after)
    wrapped = covered(wrapping, calls.after)
    # Launches of which the innermost operator is compiled code as a whole.
    named = trace.named(lambda name: bool(COMPILED.match(name)))
    operator = calls.operator
    compiled = (operator >= 0) & named[operator] & ~wrapped
    found: dict[int, Variant] = {}
    for event, (kernel, grid) in sorted(_kernels(trace, free, compiled).items()):
        call = count_launch(_launch(counts, event, kernel, grid), short_kernel(kernel))
        if call is not None:
            found[event] = Variant(*call)
        elif compiled[event]:
            found[event] = Variant(Signature(kernel), CallCount("unknown", None, "other", _COMPILED_REASON))
    # A wrapper with a formula of its own is passed through only where its products are all counted.
    events = np.array(sorted(found), np.int64)
    for event in np.flatnonzero(wrapping).tolist() if len(events) else ():
        below = events[np.searchsorted(events, event) : np.searchsorted(events, calls.after[event])].tolist()
        works = [found[launch].count.work for launch in below if launch in found]
        if None in works or not any(work.matrix_flops for work in works if work is not None):
            for launch in below:
                found.pop(launch, None)
    return ((own, variant) for variant, own in grouped(found, found.__getitem__).items())


def _kernels(trace: Trace, free: Mask, compiled: Mask) -> dict[int, tuple[str, LaunchShape | None]]:
    """The kernel that each ``free`` runtime call launched, with its grid and block, where it is of a known
    family or the call is of ``compiled`` code: that of its device event, else the one that the call records,
    as those of ROCm do while a graph is captured.

    A call that launched several kernels, such as a graph, is left out.
    """
    host, device = trace.host, trace.device
    family = np.array([*(family_of(name) is not None for name in trace.names), False])
    free = free & trace.named(lambda name: "Graph" not in name and is_launch(name), RUNTIME)
    found: dict[int, tuple[str, LaunchShape | None]] = {}
    recorded = np.array([*(family_of(name) is not None for name, _ in trace.kernels), False])
    for event in np.flatnonzero(free & (recorded[host.kernel] | (compiled & (host.kernel >= 0)))).tolist():
        found[event] = trace.kernels[host.kernel[event]]
    launch, _ = launching(trace)
    events = np.flatnonzero((launch >= 0) & (device.kind == KERNEL))
    events = events[free[launch[events]] & (family[device.name[events]] | compiled[launch[events]])]
    at = launch[events]
    alone = np.bincount(at, minlength=len(host))[at] == 1
    for event, call in zip(events[alone].tolist(), at[alone].tolist(), strict=True):
        shape = int(device.shape[event])
        found[call] = trace.names[device.name[event]], trace.launch_shapes[shape] if shape >= 0 else None
    return found


def _launch(counts: Counts, event: int, kernel: str, shape: LaunchShape | None) -> Launch:
    """The launch with the operators around and before it."""
    around = list(counts.calls.operators_around(event))
    scope = around[-1] if around else int(counts.calls.parent[event])
    return Launch(
        kernel=kernel,
        before=_called(counts.trace, scope, event),
        wrapper=_signature(counts.trace, around[-1]) if around else None,
        operator=_signature(counts.trace, around[0]) if around else None,
        inside=_called(counts.trace, around[0], event) if around else (),
        grid=shape[0] if shape is not None else None,
    )


def _called(trace: Trace, scope: int, event: int) -> tuple[Signature, ...]:
    """The operators that began between two events of one thread."""
    events = range(max(scope + 1, event - _BEFORE), event)
    called = (_signature(trace, other) for other in events if trace.host.kind[other] == OPERATOR)
    return tuple(signature for signature in called if signature is not None)


def _signature(trace: Trace, event: int) -> Signature | None:
    code = int(trace.host.signature[event])
    return trace.signatures[code] if code >= 0 else None
