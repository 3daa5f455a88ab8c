"""The space that a search goes through: the options that vary, each a list of values or a range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.profiler.options import OptionValue, OptionValues
from rooflines.sweeps.points import RECORDS, crossed_options, parse_range, parse_values
from rooflines.sweeps.records import Kind
from rooflines.units import significant

# From this ratio of its ends on, a range is searched on a logarithmic scale.
_WIDE = 10


class Dimension(msgspec.Struct, frozen=True, kw_only=True):
    """An option that varies: over ``values``, or from ``low`` to ``high``, whole numbers where both are.

    As a parameter of Optuna a list of numbers is the index into it, so that its order counts.
    """

    name: str
    values: tuple[OptionValue, ...] = ()
    low: int | float = 0
    high: int | float = 0

    @property
    def ordered(self) -> bool:
        """Whether all values are numbers."""
        return all(type(value) in (int, float) for value in self.values)

    @property
    def _whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def log(self) -> bool:
        """Whether a range is searched on a logarithmic scale."""
        return self.low > 0 and self.high / self.low >= _WIDE

    @property
    def text(self) -> str:
        """``8, 16, 32`` or ``0.0001 to 0.1, logarithmic``."""
        if self.values:
            return ", ".join(
                ("off", "on")[value] if isinstance(value, bool) else str(value) for value in self.values
            )
        return f"{self.low:g} to {self.high:g}{', logarithmic' if self.log else ''}"

    def every(self) -> Sequence[OptionValue] | None:
        """Return all values; None for a range of real numbers."""
        if self.values:
            return self.values
        return range(int(self.low), int(self.high) + 1) if self._whole else None

    def suggest(self, trial: Any) -> OptionValue:
        """Return the value that ``trial`` of Optuna takes. Real numbers have three significant figures."""
        value: OptionValue
        if self.values:
            value = (
                self.values[trial.suggest_int(self.name, 0, len(self.values) - 1)]
                if self.ordered
                else trial.suggest_categorical(self.name, self.values)
            )
        elif self._whole:
            value = trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log)
        else:
            found = float(
                significant(trial.suggest_float(self.name, float(self.low), float(self.high), log=self.log))
            )
            value = min(max(found, self.low), self.high)
        return value

    def parameter(self, value: OptionValue | None) -> OptionValue | None:
        """Return the parameter of Optuna for ``value``; None where ``value`` is not in the dimension."""
        if value is None:
            return None
        if self.values:
            return (self.values.index(value) if self.ordered else value) if value in self.values else None
        return value if not isinstance(value, str) and self.low <= value <= self.high else None


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """What a search varies, and the options that have one value."""

    kind: Kind
    fixed: OptionValues
    dimensions: tuple[Dimension, ...]

    def default(self, name: str) -> OptionValue | None:
        """Return the default of option ``name``; for the model it is the first of several."""
        if name == "model":
            return next(one.values[0] for one in self.dimensions if one.name == name)
        found: OptionValue | None = getattr(RECORDS[self.kind], name)
        return found

    def options(self, setting: Mapping[str, OptionValue]) -> OptionValues:
        """Return the options of a run with the dimensions of ``setting``, without those that are the default
        anyway."""
        models = {"model": self.default("model")} if "model" not in self.fixed else {}
        chosen = {
            name: value for name, value in setting.items() if name == "model" or value != self.default(name)
        }
        return {**models, **self.fixed, **chosen}  # type: ignore[dict-item]

    def default_setting(self) -> OptionValues:
        """Return the default of every dimension that contains it."""
        defaults = ((one, self.default(one.name)) for one in self.dimensions)
        return {
            one.name: value
            for one, value in defaults
            if value is not None and one.parameter(value) is not None
        }

    def settings(self, most: int) -> tuple[OptionValues, ...] | None:
        """Return every setting of the space; None where there are more than ``most``."""
        lists = {one.name: values for one in self.dimensions if (values := one.every()) is not None}
        if len(lists) < len(self.dimensions) or math.prod(map(len, lists.values())) > most:
            return None
        return tuple(crossed_options({name: tuple(values) for name, values in lists.items()}))

    def parameters(self, setting: Mapping[str, OptionValue]) -> OptionValues:
        """Return ``setting`` as parameters of Optuna."""
        return {
            one.name: value
            for one in self.dimensions
            if (value := one.parameter(setting.get(one.name))) is not None
        }


def read_space(models: Sequence[str], lists: Mapping[str, str], kind: Kind) -> Space:
    """Return the space of ``models`` and of the options in ``lists``: one value, several separated by commas,
    or ``low..high``.

    A range of batch sizes has the powers of two in it. Raises UsageError where nothing varies.
    """
    fixed: OptionValues = {}
    dimensions = []
    found: dict[str, Sequence[OptionValue]] = {"model": models}
    for name, text in lists.items():
        ends = parse_range(name, text, kind)
        if ends is None:
            found[name] = parse_values(name, text, kind)
        elif (
            name == "batch_size"
            and len(powers := [2**power for power in range(31) if ends[0] <= 2**power <= ends[1]]) > 1
        ):
            found[name] = powers
        else:
            dimensions.append(Dimension(name=name, low=ends[0], high=ends[1]))
    for name, values in found.items():
        unique = tuple(dict.fromkeys(values))
        if len(unique) == 1:
            fixed[name] = unique[0]
        else:
            dimension = Dimension(name=name, values=unique)
            dimensions.append(
                replace(dimension, values=tuple(sorted(unique))) if dimension.ordered else dimension
            )
    if not dimensions:
        raise UsageError(
            "nothing to tune: every option has one value.", hint=f"For example: {arg('batch_size', '8..128')}"
        )
    return Space(
        kind=kind,
        fixed=fixed,
        dimensions=tuple(sorted(dimensions, key=lambda one: ["model", *lists].index(one.name))),
    )
