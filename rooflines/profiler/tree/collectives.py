"""The collectives of one rank: which communication kernel did what, for how many bytes, among which ranks.

Traces since 2024 note it on the kernel. In older ones it is inferred, where possible, from the operators
around the launch (``c10d::alltoall_base_`` has the tensors, ``nccl:all_reduce`` their sizes), and last by the
kernel's own name, which says neither the size nor the group, and calls every exchange between pairs
``SendRecv``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from rooflines.profiler.read.exchanges import kind_of, sized
from rooflines.profiler.read.records import COMMUNICATION, Exchange, Int32s, Int64s, Trace
from rooflines.profiler.read.signature import SCALAR_TYPES, Signature
from rooflines.profiler.tree.tree import Calls, tree


@dataclass(frozen=True, slots=True)
class Collectives:
    """The communication kernels of a rank in the order they began; ``what`` indexes ``exchanges``, times are
    nanoseconds."""

    what: Int32s
    stream: Int64s
    start_ns: Int64s
    end_ns: Int64s
    exchanges: tuple[Exchange, ...]

    def __len__(self) -> int:
        return len(self.what)

    @property
    def duration_ns(self) -> Int64s:
        """The time of each kernel in two parts: the wait until the last rank had entered, and the
        transfer."""
        return self.end_ns - self.start_ns


# The dtype that a kernel which sums is named by: of lists of tensors, nothing else tells it.
_NAMED = {
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "float": "float32",
    "f64": "float64",
}
_DTYPE = re.compile(rf"_({'|'.join(_NAMED)})(?:_|\b)")


def read_collectives(trace: Trace, calls: Calls | None = None, since_ns: int = 0) -> Collectives:
    """The collectives of ``trace`` that began at ``since_ns`` or later; ``calls`` is its call tree where that
    is known already."""
    kernels = np.flatnonzero((trace.device.kind == COMMUNICATION) & (trace.device.start_ns >= since_ns))
    notes = trace.device.collective[kernels]
    numbers: dict[Exchange, int] = {}
    what = np.empty(len(kernels), np.int32)
    of_note = [numbers.setdefault(exchange, len(numbers)) for exchange in trace.collectives]
    known = notes >= 0
    what[known] = np.array(of_note, np.int32)[notes[known]] if of_note else 0
    if not known.all():
        calls = calls or tree(trace)
        for i in np.flatnonzero(~known).tolist():
            what[i] = numbers.setdefault(_inferred(trace, calls, int(kernels[i])), len(numbers))
    device = trace.device
    return Collectives(
        what, device.stream[kernels], device.start_ns[kernels], device.end_ns[kernels], tuple(numbers)
    )


def _inferred(trace: Trace, calls: Calls, kernel: int) -> Exchange:
    """A collective without a note, inferred from the operators around its launch or from the kernel's
    name."""
    around = [
        trace.signatures[code]
        for code in trace.host.signature[list(calls.operators_around(int(calls.launch[kernel])))]
        if code >= 0
    ]
    known = [exchange for exchange in map(_told_by, around) if exchange.kind != "other"]
    name = trace.names[trace.device.name[kernel]]
    if not known:
        return Exchange(kind_of(name))
    # The innermost operator says what is done; the one that knows most says with how much.
    alike = [exchange for exchange in known if exchange.kind == known[0].kind]
    most = max(
        alike,
        key=lambda one: (
            (one.bytes is not None) + (one.elements_in is not None) + (one.elements_out is not None)
        ),
    )
    named = _DTYPE.search(name)
    return sized(replace(most, dtype=_NAMED[named[1]])) if named else most


def _told_by(signature: Signature) -> Exchange:
    if signature.name == "record_param_comms":
        name, elements_in, elements_out, dtype = (signature.arg(index, None) for index in range(4))
        sent, received = (value if isinstance(value, int) else None for value in (elements_in, elements_out))
        return sized(
            Exchange(
                kind_of(name) if isinstance(name, str) else "other",
                None,
                sent,
                received,
                SCALAR_TYPES.get(dtype),
            )
        )
    namespace, _, name = signature.name.partition(":")
    if namespace not in ("nccl", "c10d", "_c10d_functional"):
        return Exchange("other")
    kind = kind_of(name)
    tensors = signature.tensors
    dtype = tensors[0].dtype if tensors else None
    if namespace == "c10d" and len(tensors) == 2:  # what is written comes first
        return sized(Exchange(kind, None, tensors[1].numel, tensors[0].numel, dtype))
    elements = sum(tensor.numel for tensor in tensors) or None
    both = kind in ("allreduce", "broadcast", "reduce")
    return sized(Exchange(kind, None, elements, elements if both else None, dtype))
