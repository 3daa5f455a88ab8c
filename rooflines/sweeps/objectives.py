"""What a search improves: values of a run, and whether more of each is better."""

from __future__ import annotations

from typing import Literal

import msgspec

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.sweeps.records import Kind

Format = Literal["figures", "scaled", "share"]


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a run that a search improves: ``value`` is its name in a result, ``more`` says that more of it is better.

    ``kinds`` are the runs that have it; ``title``, ``unit`` and ``format`` are those of its axis and column.
    """

    name: str
    value: str
    more: bool
    title: str
    unit: str
    format: Format
    kinds: tuple[Kind, ...] = ("profile", "train")

    @property
    def fraction(self) -> bool:
        """Whether it is a share, of which differences are compared instead of ratios."""
        return self.format == "share"


OBJECTIVES = {
    one.name: one
    for one in (
        Objective(name="throughput", value="samples_per_s", more=True, title="throughput, samples/s", unit="1/s", format="figures"),
        Objective(name="latency", value="step_s", more=False, title="time per step, s", unit="s", format="scaled", kinds=("profile",)),
        Objective(name="memory", value="peak_memory_bytes", more=False, title="peak memory, B", unit="B", format="scaled"),
        Objective(
            name="energy", value="energy_per_sample_j", more=False, title="energy per sample, J", unit="J", format="scaled",
            kinds=("profile",),
        ),
        Objective(
            name="accuracy", value="accuracy", more=True, title="correct, % of the test set", unit="%", format="share", kinds=("train",)
        ),
    )
}  # fmt: skip


def read_objectives(text: str, kind: Kind) -> tuple[Objective, ...]:
    """Return the objectives in ``text``, separated by commas; raises UsageError for one that a run of this ``kind`` does not have."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"{arg('objective')} is empty.", hint=f"Choose from {', '.join(OBJECTIVES)}.")
    for name in names:
        if name not in OBJECTIVES:
            raise UsageError(f"unknown objective {name!r}.", hint=f"Choose from {', '.join(OBJECTIVES)}.")
        if kind not in OBJECTIVES[name].kinds:
            if kind == "profile":
                raise UsageError(f"the objective {name!r} requires a training.", hint=f"Add {arg('train', True)}.")
            measured = ", ".join(one.name for one in OBJECTIVES.values() if kind in one.kinds)
            raise UsageError(f"a training does not measure the objective {name!r}.", hint=f"Choose from {measured}.")
    return tuple(OBJECTIVES[name] for name in names)
