"""Kernels that a library launches itself, below no counted operator: each launch is counted as a call of the kernel.

The kernel's name says what it does (``formulas/kernels/``), the operators before it under the same wrapper have its tensors. Kernels
that torch.compile launches without recording their arguments stay unknown, but each under its own name.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from rooflines.profiler.trace.launches import LAUNCHING, launching
from rooflines.profiler.trace.nesting import Mask, covered
from rooflines.profiler.trace.records import KERNEL, OPERATOR, RUNTIME, LaunchShape, Trace
from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.counter import COMPILED
from rooflines.roofline.formulas.kernels import Launch, count_launch, family_of
from rooflines.roofline.formulas.registry import CallCount
from rooflines.roofline.kernel_names import short_kernel
from rooflines.roofline.resolvers.counts import Counts, Variant

# Operators before a launch that are looked at.
_BEFORE = 512
_COMPILED_REASON = "launched by torch.compile, which recorded none of its arguments"


def from_launched_kernels(counts: Counts) -> Counts:
    """Count the launches that no counted operator encloses and whose kernels are of a known family."""
    trace, calls = counts.trace, counts.calls
    counted = counts.where(lambda variant: variant.count.kind == "counted")
    wrapping = counted & counts.where(lambda variant: variant.count.decomposes)
    free, wrapped = ~covered(counted & ~wrapping, calls.after), covered(wrapping, calls.after)
    compiled = _compiled(counts) & ~wrapped
    chains = _Chains(counts)
    found: dict[int, Variant] = {}
    for event, (kernel, grid) in sorted(_kernels(trace, free, compiled).items()):
        call = count_launch(chains.launch(event, kernel, grid), short_kernel(kernel))
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
    groups: dict[Variant, list[int]] = defaultdict(list)
    for event, variant in found.items():
        groups[variant].append(event)
    return counts.recounted((np.array(group), variant) for variant, group in groups.items())


def _compiled(counts: Counts) -> Mask:
    """The events of which the innermost operator is compiled code as a whole."""
    named = np.array([*(bool(COMPILED.match(name)) for name in counts.trace.names), False])
    operator = counts.calls.operator
    found: Mask = named[np.where(operator >= 0, counts.trace.host.name[np.maximum(operator, 0)], -1)]
    return found


def _kernels(trace: Trace, free: Mask, compiled: Mask) -> dict[int, tuple[str, LaunchShape | None]]:
    """The kernel that each ``free`` runtime call launched, with its grid and block, where it is of a known family or the call is of
    ``compiled`` code: that of its device event, else the one that the call records, as those of ROCm do while a graph is captured.

    A call that launched several kernels, such as a graph, is left out.
    """
    host, device = trace.host, trace.device
    family = np.array([*(family_of(name) is not None for name in trace.names), False])
    launches = np.array(["Graph" not in name and any(word in name for word in LAUNCHING) for name in trace.names], bool)
    free = free & (host.kind == RUNTIME) & launches[host.name] if len(host) else free
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


class _Chains:
    """The events around a launch."""

    def __init__(self, counts: Counts) -> None:
        self._trace = counts.trace
        self._host = counts.trace.host
        self._parent = counts.calls.parent
        self._operator = counts.calls.operator

    def launch(self, event: int, kernel: str, shape: LaunchShape | None) -> Launch:
        """The launch with the operators around and before it."""
        innermost = int(self._operator[event])
        wrapper = outermost = innermost
        while outermost >= 0:
            wrapper = outermost
            above = int(self._parent[outermost])
            outermost = int(self._operator[above]) if above >= 0 else -1
        scope = wrapper if wrapper >= 0 else int(self._parent[event])
        return Launch(
            kernel=kernel,
            before=self._called(scope, event),
            wrapper=self._signature(wrapper),
            operator=self._signature(innermost),
            inside=self._called(innermost, event) if innermost >= 0 else (),
            grid=shape[0] if shape is not None else None,
        )

    def _called(self, scope: int, event: int) -> tuple[Signature, ...]:
        """The operators that began between two events of one thread."""
        events = range(max(scope + 1, event - _BEFORE), event)
        kinds, signatures = self._host.kind, self._host.signature
        return tuple(self._trace.signatures[signatures[i]] for i in events if kinds[i] == OPERATOR and signatures[i] >= 0)

    def _signature(self, event: int) -> Signature | None:
        code = int(self._host.signature[event]) if event >= 0 else -1
        return self._trace.signatures[code] if code >= 0 else None
