"""Several ranks of one job, field by field as ``ranks.json`` shows them. Times are in seconds, rates in
byte/s."""

from __future__ import annotations

from typing import Literal

import msgspec

from rooflines.roofline.analysis import Finding
from rooflines.shown import Shown

By = Literal["order", "time"]


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank. The times down to ``memcpy_s`` are per step where ``RankAnalysis.per`` is ``step``, else of
    the whole trace.

    ``hidden_fraction`` is the share of the communication during which the device also computed; None where
    nothing was communicated. Over the matched collectives of the trace: ``waited_s`` is what this rank's
    kernels took longer than the shortest of each, of which ``waited_at_start_s`` because the recordings began
    apart. Of what is made in the steps, ``times_last`` is how often this rank's kernel was the shortest while
    others waited, and ``caused_wait_s`` what the others together waited then.
    """

    rank: int
    source: str
    span_s: float
    busy_s: float
    idle_s: float
    compute_s: float
    communication_s: float
    exposed_communication_s: float
    memcpy_s: float
    hidden_fraction: float | None = None
    steps: int = 1
    collectives: int = 0
    matched: int = 0
    waited_s: float = 0.0
    waited_at_start_s: float = 0.0
    times_last: int = 0
    caused_wait_s: float = 0.0


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity over the ranks, and who has the least and most of it. ``imbalance`` is max / mean - 1, None
    where the mean is 0."""

    min: float
    max: float
    mean: float
    min_rank: int
    max_rank: int
    imbalance: float | None = None


class MatchedRow(msgspec.Struct, frozen=True, kw_only=True):
    """The matched collectives of one kind, group and size; seconds and byte/s.

    ``ranks`` were traced of the ``group_size`` in the group; with fewer, the last to enter may be another
    one, and ``transfer_s`` is an upper bound. ``transfer_s`` and ``skew_s`` are means over the collectives:
    the shortest kernel, and the longest less the shortest. ``waited_s`` is the sum over ranks and collectives
    of what a kernel took longer than the shortest; None where ranks may leave before all have entered.
    ``algorithm_byte_per_s`` is ``bytes`` / transfer, ``bus_byte_per_s`` that times nccl-tests' factor.
    ``matched_by`` is ``order``, or ``time`` where only the ends showed it.
    """

    kind: str
    count: int
    ranks: int
    matched_by: By
    transfer_s: float
    skew_s: float
    skew_max_s: float
    waited_s: float | None = None
    last_rank: int | None = None
    bytes: int | None = None
    dtype: str | None = None
    group: str | None = None
    group_size: int | None = None
    algorithm_byte_per_s: float | None = None
    bus_byte_per_s: float | None = None


class UnmatchedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Communication kernels, over all ranks, that were not matched, and why; they are in no other figure
    about collectives."""

    kind: str
    count: int
    reason: str
    group: str | None = None


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The time of the matched collectives that no rank leaves before all have entered, in the mean over the
    ranks of the whole trace.

    ``transfer_s`` is the shortest kernel of each; ``at_start_s`` is waited because the recordings of the
    ranks began apart, in the first collective that brings two ranks together; ``in_steps_s`` is the rest,
    made by the steps. They add up to the kernels' time.
    """

    transfer_s: float
    at_start_s: float
    in_steps_s: float

    @property
    def total_s(self) -> float:
        """The time of these collectives, in seconds."""
        return self.transfer_s + self.at_start_s + self.in_steps_s


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """The rank for which the others waited longest, if it stands out: last into ``times_last`` of ``of``
    matched collectives, ``waited_s`` is what the others waited then, summed over them, and ``share`` that of
    all waiting that is made in the steps."""

    rank: int
    times_last: int
    of: int
    waited_s: float
    share: float


class RankAnalysis(Shown, frozen=True, kw_only=True):
    """Several ranks of one job, each and together, as ``ranks.json`` shows it. A field that is None was not
    measured and is left out.

    ``spread`` has a key for each quantity compared, named as in ``RankRow``. ``world_size`` is the number of
    ranks that the job had. ``bound_breakdown`` and ``idle_breakdown`` are those of ``Analysis`` in the mean
    over the ranks, per step where ``per`` is ``step``; the former is None where no data sheet judges the
    ranks' device. ``findings`` are those of the ranks, with their mean saving.
    """

    schema: Literal["rooflines.ranks/1"] = "rooflines.ranks/1"
    per: Literal["step", "trace"] = "step"
    world_size: int | None = None
    device_name: str = ""
    ranks: tuple[RankRow, ...] = ()
    spread: dict[str, Spread] = msgspec.field(default_factory=dict)
    bound_breakdown: dict[str, float] | None = None
    idle_breakdown: dict[str, float] | None = None
    waiting: Waiting | None = None
    straggler: Straggler | None = None
    findings: tuple[Finding, ...] = ()
    collectives: tuple[MatchedRow, ...] = ()
    unmatched: tuple[UnmatchedRow, ...] = ()
    notes: tuple[str, ...] = ()
