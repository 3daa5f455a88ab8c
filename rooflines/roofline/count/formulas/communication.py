"""Collectives and messages between ranks: the bytes that this rank must read from and write to its own
memory, once each.

The link between the devices bounds them, no ceiling of this device does: they are counted, and no least time
is claimed for them. What passes through the link depends on the algorithm (a ring sends an all-reduce's
tensor nearly twice); neither that nor the arithmetic of a reduction is counted. A call does not say which
rank makes it. So a broadcast's tensor counts as written (its root reads as much instead), and of a reduction
or gathering to one rank what every rank reads counts, not what only the root writes.
"""

from __future__ import annotations

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import matmul  # noqa: F401 (rows call its functions)
from rooflines.roofline.count.formulas.arguments import Arguments, NotCounted, size_of
from rooflines.roofline.count.formulas.record import Work

# Kineto notes what a collective sends and receives at the event that a process group leaves: how its name
# begins, without underscores, where this reads ("reducescatter" as well), where it writes, and where neither.
_READ = ("allreduce", "allgather", "alltoall", "reduce", "gather", "send")
_WRITTEN = ("allreduce", "allgather", "alltoall", "reducescatter", "broadcast", "scatter", "recv")
_NEITHER = ("barrier", "wait")


def noted(signature: Signature) -> Work:
    """Collective, elements sent and received, dtype: the event's metadata, which the trace reader gives as
    arguments."""
    args = Arguments(signature, "collective elements_in elements_out dtype")
    collective = str(args.value("collective")).replace("_", "")
    if not collective.startswith((*_READ, *_WRITTEN, *_NEITHER)) or collective.endswith("sparse"):
        raise NotCounted("collective not recorded")
    read, written = collective.startswith(_READ), collective.startswith(_WRITTEN)
    itemsize = size_of(args.dtype("dtype", "")) if read or written else 0
    return Work(
        bytes_read=args.integer("elements_in") * itemsize if read else 0,
        bytes_written=args.integer("elements_out") * itemsize if written else 0,
    )
