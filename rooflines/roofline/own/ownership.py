"""Find the call that owns the time of each event.

Walk each thread's call tree from the outermost operator. The first operator that has a count owns all that
runs below it. Calls that only dispatch (composite) and calls without a count are passed through
(``count/dispatchers.py``), so that a trace counts the operators that a dispatch mode would see. An ATen
operator that is passed through to a single owner with work is a wrapper: all of its time is that owner's
(``aten::conv2d`` is a way to call ``aten::convolution``). Everything else that is passed through keeps the
time that it spends itself, as dispatch overhead or as unmodeled time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from rooflines.profiler.read.nesting import covered, enclosed
from rooflines.profiler.read.records import OPERATOR, Int64s
from rooflines.profiler.tree.tree import Calls
from rooflines.roofline.count.counts import Counts, unset

_IN_PLACE = re.compile(r"(?<!_)_$|^_$")


class Ownership(NamedTuple):
    """``owner`` is the operator call that owns each host event (-1: none). ``outermost`` are the events that
    are owned and lie in no owned one: the owners, or the wrappers around them. ``saved`` are owners inside of
    others, whose time is not that of those."""

    owner: Int64s
    outermost: Int64s
    saved: Int64s


def find_owners(counts: Counts) -> Ownership:
    """Find the owner of each host event."""
    after = counts.calls.after
    owning = counts.of_kind("counted")
    working = counts.working
    free = ~covered(owning, after)
    owning &= free

    # A wrapper must not hide an operator below it that has no count.
    unknown = free & counts.of_kind("unknown")
    wrapping = counts.where(
        lambda variant: variant.count.kind != "unknown" and variant.signature.name.startswith("aten::")
    )
    wrapping &= free & ~owning
    wrapping &= (enclosed(owning & working, after) == 1) & (enclosed(unknown, after) == 0)
    wrapping &= ~covered(wrapping, after)

    outermost = np.flatnonzero(wrapping | (owning & ~covered(wrapping, after)))
    workers = np.flatnonzero(owning & working)
    whose = outermost.copy()
    wrappers = wrapping[outermost]
    whose[wrappers] = workers[np.searchsorted(workers, outermost[wrappers])]
    owner = unset(len(after))
    lengths = after[outermost] - outermost
    # Every event from an outermost one up to the end of what it encloses.
    events = np.arange(lengths.sum()) + np.repeat(outermost - np.cumsum(lengths) + lengths, lengths)
    owner[events] = np.repeat(whose, lengths)
    saved = _saved(counts.calls, owner)
    for event in saved.tolist():
        owner[event : after[event]] = event
    return Ownership(owner, outermost, saved)


def _saved(calls: Calls, owner: Int64s) -> Int64s:
    """The copies of an operand that autograd keeps for the backward before an owner changes the operand in
    place.

    They come first inside the owner's event and are not part of its work: a dispatch mode sees a separate
    call.
    """
    host = calls.trace.host
    signatures = calls.trace.signatures
    clones = np.flatnonzero(calls.trace.named("aten::clone".__eq__, OPERATOR))
    clones = clones[(calls.parent[clones] == clones - 1) & (clones > 0)]
    clones = clones[owner[clones - 1] == clones - 1]
    pairs = zip(
        clones.tolist(), host.signature[clones - 1].tolist(), host.signature[clones].tolist(), strict=True
    )
    # Those of which the owner changes the operand in place.
    saved = [
        clone
        for clone, of, copy in pairs
        if _IN_PLACE.search((own := signatures[of]).name) and own.arg(0) == signatures[copy].arg(0)
    ]
    return np.array(saved, np.int64)
