"""Two analyses compared, field by field as ``rooflines compare --format json`` shows it.

A is the baseline: ``before`` is A's figure, ``after`` B's, a difference is B - A and a ratio B / A. Units are
SI base units, given in the field names; times, calls, FLOPs and bytes are per ``basis``, as in the two
analyses. A field that is None is not known and is left out of the JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rooflines.profiler.records import Environment, Workload
from rooflines.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

COMPARISON_SCHEMA = "rooflines.comparison/2"
Kind = Literal["operator", "unmodeled", "idle", "overlap", "module"]
Match = Literal["same", "precision", "batch", "shapes", "module", "name", "none"]
Direction = Literal["slower", "faster", "same", "unknown", "new", "gone"]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One side: where it was read from, what was run, and where; ``bound_breakdown`` is its step by what
    bounds it.

    ``others_cores`` is how many processors other programs took meanwhile, absent on a quiet machine.
    ``generated`` has the latencies and the rate of steps that generate text, by their names in
    ``analysis.json``.
    """

    source: str
    workload: Workload
    environment: Environment
    created: str = ""
    status: str = "complete"
    bound_breakdown: dict[str, float] | None = None
    others_cores: float | None = None
    generated: dict[str, float] | None = None


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of the environment or the workload that both sides know and that differs. ``unlike``: times are
    not comparable for it."""

    name: str
    before: str
    after: str
    unlike: bool = False


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """What the ``operators`` that do the same work on both sides tell about the machine between the two runs.

    ``factor`` is the median of their ratios: by how much everything was slower. ``by_machine`` says that both
    ran under the same conditions: then the factor is the machine's, and is divided out of the ratios that are
    judged. ``inflation`` is how many times larger the variance between the two runs is than the steps of one
    run suggest, at least 1.
    """

    factor: float
    inflation: float
    operators: int
    by_machine: bool


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How sure the change of a row is, from its times in ``before_steps`` and ``after_steps`` traced steps,
    or in as many rounds.

    ``ratio`` is that of the lower quartiles, without the drift of the machine, ``ci95`` its interval.
    ``p_value`` is the probability of such a change by chance, adjusted for the number of rows; absent for a
    row too short to be judged. ``significant`` says that it is at most 5 %, that the change is larger than
    the drift, and that it changes the step by 0.5 % or more.
    """

    ratio: float
    ci95: tuple[float, float]
    p_value: float | None = None
    significant: bool = False
    before_steps: int
    after_steps: int


class StepPace(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of both sides: the medians of ``timed steps`` or of ``traced steps``, or the two ``span``s of
    the traces.

    ``ci95`` is the bootstrap interval of the ratio, from the durations of the single steps; absent where
    either side has too few of them. It holds the noise from step to step, not that from one run to another.
    ``noise`` holds both: it judges the traced steps, and is absent where too few steps or operators were
    traced. ``exceeds_noise`` is decided by ``noise``, else by the interval; without either it is absent.

    ``rounds`` has the times of A and B in each round, if they ran several times in turn. The times are then
    geometric means and the interval is that between the rounds. If it contains 1 and is not narrow,
    ``exceeds_noise`` is absent, and ``rounds_needed`` is about how many rounds would exclude 1 (at most 100).
    """

    of: Literal["timed steps", "traced steps", "span"]
    before_s: float
    after_s: float
    ratio: float
    ci95: tuple[float, float] | None = None
    noise: Noise | None = None
    exceeds_noise: bool | None = None
    before_count: int = 1
    after_count: int = 1
    rounds: tuple[tuple[float, float], ...] = ()
    rounds_needed: int | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a row. Work is absent without a count, and ``reason`` gives the cause."""

    module: str = ""
    phase: str = ""
    shapes: str = ""
    precision: str | None = None
    calls: int | float | None = None
    time_s: float
    flops: int | float | None = None
    bytes: int | float | None = None
    lower_bound_s: float | None = None
    efficiency: float | None = None
    bound: str | None = None
    reason: str | None = None


class ChangedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row. ``before`` is absent from what is new, ``after`` from what is gone.

    ``match`` names the facts that matched the two sides: ``same`` is all of module, phase, name, shapes and
    precision, else all except the ``precision``, the ``batch`` (the first dimension of every shape), the
    ``shapes``, the ``module``; ``name`` the name alone. The time of the row ``overlap`` is negative: work
    that overlaps with other work and is in two rows. ``direction`` is ``slower`` or ``faster`` only where the
    change is significant, else ``same``; ``unknown`` where the noise is not known.
    """

    kind: Kind
    name: str
    direction: Direction
    match: Match
    difference_s: float
    ratio: float | None = None
    cause: str = ""
    noise: Noise | None = None
    before: Figures | None = None
    after: Figures | None = None


def _sure_s(row: ChangedRow) -> float:
    """The seconds of a change that exceeds the noise; 0 for any other."""
    if row.direction in ("slower", "faster") and row.noise is not None and row.before is not None:
        return row.before.time_s * (row.noise.ratio - 1)
    return row.difference_s if row.direction in ("new", "gone") else 0.0


_FACTS = tuple(name for name in ChangedRow.__struct_fields__ if name not in ("before", "after"))
CHANGE_COLUMNS = [
    "a",
    "b",
    *_FACTS,
    *(f"{side}_{name}" for side in ("before", "after") for name in Figures.__struct_fields__),
]


class Comparison(Shown, frozen=True, kw_only=True):
    """A comparison of B with the baseline A. ``verdict`` is the sentence that every report opens with,
    ``command`` what made it.

    The differences of ``rows`` sum to ``span_difference_s``: operators, what has no count, idle time,
    overlap. ``modules`` are each with all that runs below them and do not add up. Both are sorted by the size
    of the difference.
    """

    schema: str = COMPARISON_SCHEMA
    verdict: str = ""
    command: str = ""
    a: Subject
    b: Subject
    basis: Literal["step", "trace"] = "step"
    differs: tuple[Fact, ...] = ()
    #: what the clocks of GPUs were, where the sides differ in that
    clocks: str = ""
    pace: StepPace | None = None
    drift: Drift | None = None
    span_before_s: float | None = None
    span_after_s: float | None = None
    span_difference_s: float | None = None
    rows: tuple[ChangedRow, ...] = ()
    modules: tuple[ChangedRow, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unlike(self) -> tuple[Fact, ...]:
        """The facts for which the times of the two sides are not comparable."""
        return tuple(fact for fact in self.differs if fact.unlike)

    @property
    def implausible(self) -> bool:
        """Whether A takes at least 10 times as long under the same conditions, so that it hardly describes
        what B ran."""
        pace = self.pace
        return (
            pace is not None
            and not pace.rounds
            and pace.ratio <= 0.1
            and pace.exceeds_noise is not False
            and not self.differs
        )

    @property
    def slowdown(self) -> float:
        """By which share of A's step B takes longer, without the drift of the machine; 0 if not beyond the
        noise, or not judged.

        Where the step as a whole does not exceed its noise, this is what the operators add that exceed
        theirs; rounds judge the step.
        """
        pace = self.pace
        if (
            pace is None
            or pace.ratio <= 1
            or pace.exceeds_noise is None
            or (pace.rounds and not pace.exceeds_noise)
        ):
            return 0.0
        if pace.exceeds_noise:
            return max(0.0, (min(pace.ratio, pace.noise.ratio) if pace.noise is not None else pace.ratio) - 1)
        return max(0.0, sum(map(_sure_s, self.rows)) / self.span_before_s) if self.span_before_s else 0.0

    @property
    def flops(self) -> tuple[float, float]:
        """The FLOPs of the counted operators on both sides."""
        a = sum(row.before.flops or 0 for row in self.rows if row.before is not None)
        b = sum(row.after.flops or 0 for row in self.rows if row.after is not None)
        return a, b

    def slower_than(self, fraction: float) -> bool:
        """Whether B takes longer than A by more than ``fraction`` and by more than the noise; False if that
        is not known."""
        return self.slowdown > fraction

    def excludes(self, fraction: float) -> bool:
        """Whether the rounds of A and B leave no room for B to take longer by more than ``fraction``."""
        pace = self.pace
        return bool(pace and pace.rounds and pace.ci95 and pace.ci95[1] - 1 <= fraction)

    def to_dataframe(self, rows: Literal["operators", "modules"] = "operators") -> pd.DataFrame:
        """Return the changes of operators (with idle time and the rest) or of modules: ``before_`` and
        ``after_`` figures of each."""
        import pandas as pd

        return pd.DataFrame(
            [self.cells(row) for row in (self.modules if rows == "modules" else self.rows)],
            columns=CHANGE_COLUMNS,
        )

    def cells(self, row: ChangedRow) -> list[Any]:
        """What was compared, a change, and the figures of both sides, as ``CHANGE_COLUMNS`` names them."""
        cells = [self.a.source, self.b.source, *(getattr(row, name) for name in _FACTS)]
        for side in (row.before, row.after):
            cells += [None if side is None else getattr(side, name) for name in Figures.__struct_fields__]
        return cells
