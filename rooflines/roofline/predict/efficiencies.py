"""Times of operators by what measured ones reach of their bound: time = start + bound / share.

A law is that of the measured calls most like the one predicted: of the same operator with the same roof, else
of its category, else of all that this roof bounds. It has the least error in logarithms over its calls and
one more, which is the law of the next wider kind: what its own calls do not tell, as the share of calls that
take no longer than starting one does, is as it is there. Calls of the very same work keep what they took of
their law.

The interval of a step (90 %) comes from the errors of steps that were left out: with three or more runs of
their steps, each predicted by the others (Student's t); with fewer, of the steps of public traces
(``benchmarks/prediction_error.py``).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import asdict

from rooflines.device_specs.catalog import matching
from rooflines.device_specs.records import Ceilings
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.judge.bounds import IMPLAUSIBLE, Placement
from rooflines.roofline.predict.calls import (
    Call,
    HostTime,
    MeasuredCall,
    host_time,
    measured_calls,
    sheet_name,
)
from rooflines.roofline.uncertainty import quantile
from rooflines.units import counted

# The share of steps outside of an interval, and the fewest runs whose steps give one.
_OUTSIDE = 0.1
_FEWEST_RUNS = 3
# The factor that nine of ten steps of public traces were within, on a GPU of the runs or on another one.
_WIDE = 1.9
# The starts and shares that are tried for a law.
_TRIED = 21


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A predicted time, its interval of 90 % (``high_s`` None: no upper limit is known), its bound, and what
    it was predicted from."""

    time_s: float
    low_s: float
    high_s: float | None = None
    lower_bound_s: float
    basis: str


_Key = tuple[int, tuple[object, ...]]
# What calls that count as alike have in common, in words and as a key; the most alike first.
_KINDS: tuple[tuple[str, Callable[[Call], tuple[object, ...]]], ...] = (
    ("the same work in {name}", lambda call: (call.name, call.precision, call.flops, call.bytes)),
    ("{name}, {bound} bound, {precision}", lambda call: (call.name, call.bound, call.precision)),
    ("{category}, {bound} bound", lambda call: (call.category, call.bound)),
    ("any operator, {bound} bound", lambda call: (call.bound,)),
    ("any operator", lambda call: ()),
)


class _Law(NamedTuple):
    """The time that starting a call takes, and the share of its bound that the rest reaches."""

    start_s: float
    share: float

    def seconds(self, bound_s: Any) -> Any:
        return self.start_s + bound_s / self.share


class _Laws:
    """The laws of measured ``calls``, each of those that have something in common."""

    def __init__(self, calls: Sequence[MeasuredCall]) -> None:
        self.alike: dict[_Key, list[MeasuredCall]] = defaultdict(list)
        for call in calls:
            for number, (_, key) in enumerate(_KINDS):
                self.alike[number, key(call)].append(call)
        self._of = functools.cache(self._fitted)

    def like(self, call: Call) -> tuple[str, list[MeasuredCall]]:
        """What the measured calls most like ``call`` have in common with it, and these."""
        return next(
            (words.format(**asdict(call)), self.alike[number, key(call)])
            for number, (words, key) in enumerate(_KINDS)
            if (number, key(call)) in self.alike
        )

    def time_s(self, call: Call) -> float:
        """The time of ``call``, never less than its bound."""
        law = self._law(1, call)
        same = self.alike.get((0, _KINDS[0][1](call)), ())
        kept = [math.log(one.time_s / law.seconds(one.lower_bound_s)) for one in same]
        found_s: float = law.seconds(call.lower_bound_s) * math.exp(statistics.fmean(kept or [0.0]))
        return max(found_s, call.lower_bound_s)

    def _law(self, number: int, call: Call) -> _Law:
        keys = [(at, key(call)) for at, (_, key) in enumerate(_KINDS) if at >= number]
        return self._of(*(key for key in keys if key in self.alike))

    def _fitted(self, key: _Key, *wider: _Key) -> _Law:
        """The law of the calls of ``key`` and, as one call more, of those of ``wider`` kinds.

        A call counts with the root of its time, so that neither the many short calls nor the few long ones
        alone decide.
        """
        calls = self.alike[key]
        bounds_s, times_s = np.array([(call.lower_bound_s, call.time_s) for call in calls]).T
        weights = np.sqrt([call.calls * call.time_s for call in calls])
        weights /= weights.mean()
        like = [self._of(*wider)] if wider else []
        best = math.inf, _Law(1.0, 1.0)
        for start_s in [*times_s.min() * np.geomspace(0.01, 1.0, _TRIED), *(law.start_s for law in like)]:
            rest_s = np.maximum(times_s - start_s, 1e-3 * times_s)
            tried = np.minimum(np.quantile(bounds_s / rest_s, np.linspace(0, 1, _TRIED)), 1.0)
            shares = np.array([*tried, *(law.share for law in like)])
            errors = np.abs(np.log((start_s + bounds_s / shares[:, None]) / times_s)) @ weights
            for law in like:
                errors += np.abs(np.log(shares / law.share)) / 2 + abs(math.log(start_s / law.start_s)) / 2
            at = int(errors.argmin())
            best = min(best, (float(errors[at]), _Law(float(start_s), float(shares[at]))))
        return best[1]


class Efficiencies:
    """The share of their bound that measured ``calls`` reach, to predict calls on ``device`` (default: the
    one of the calls).

    Where some of the calls were measured on ``device``, only these count; calls faster than their bound
    allows never do. ``host_times`` are those of the runs. Raises ValueError without a call.
    """

    def __init__(
        self, calls: Iterable[MeasuredCall], device: str | None = None, host_times: Sequence[HostTime] = ()
    ) -> None:
        every = tuple(call for call in calls if call.lower_bound_s <= IMPLAUSIBLE * call.time_s)
        name = None if device is None else sheet_name(device)
        self.calls = tuple(call for call in every if call.device == name) or every
        if not self.calls:
            raise ValueError(
                "no call has a bound that it is not faster than; one that other programs delayed in nearly "
                "every step does not count"
            )
        self.is_transfer = name is not None and self.calls[0].device != name
        self.host_times = tuple(host_times)
        self._laws = _Laws(self.calls)

    @classmethod
    def of(
        cls, runs: Sequence[Analysis], device: str | None = None, ceilings: Sequence[Ceilings] | None = None
    ) -> Efficiencies:
        """Return the efficiencies of ``runs``, each judged by its one of ``ceilings``, by default by those of
        the analysis.

        The bounds that are predicted from must be of the same kind: of data sheets if these are, measured if
        these are. Runs of the same workload, such as several batch sizes of a network, count as one.
        """
        judges: Sequence[Ceilings | None] = ceilings or [None] * len(runs)
        calls = [
            call
            for run, roofs in zip(runs, judges, strict=True)
            for call in measured_calls(run, run.workload.name, roofs)
        ]
        return cls(calls, device, [found for run in runs if (found := host_time(run)) is not None])

    def estimate_of(self, one: Any, placed: Placement) -> Estimate:
        """Return the time of one call of an operator of a forecast."""
        return self.estimate(Call.of(one, one.work, placed))

    def estimate(self, call: Call) -> Estimate:
        """Return the time of ``call``, never less than its bound, which must be above 0. The errors of whole
        steps tell nothing of the error of one call."""
        words, alike = self._laws.like(call)
        runs = len({one.run for one in alike})
        return Estimate(
            time_s=self._laws.time_s(call),
            low_s=call.lower_bound_s,
            lower_bound_s=call.lower_bound_s,
            basis=f"{words}: {counted(len(alike), 'call')} in {counted(runs, 'run')}",
        )

    def total(self, parts: Iterable[tuple[Estimate, float]]) -> Estimate:
        """Return the sum of estimates, each times its number of calls.

        It has no upper limit where a CPU's calls predict another device: no error of this kind is known.
        """
        parts = list(parts)
        time_s = sum(calls * one.time_s for one, calls in parts)
        bound_s = sum(calls * one.lower_bound_s for one, calls in parts)
        errors = self._step_errors
        wide: float | None
        if len(errors) >= _FEWEST_RUNS:
            spread = math.sqrt(sum(error**2 for error in errors) / len(errors) * (1 + 1 / len(errors)))
            wide = math.exp(quantile(len(errors), _OUTSIDE) * spread)
            devices = ", ".join(sorted({call.device for call in self.calls}))
            basis = f"errors of {len(errors)} steps in runs of {devices}, each predicted by the others"
        elif self.is_transfer and not any(
            match.sheet.kind != "cpu" for match in matching(self.calls[0].device)
        ):
            wide, basis = None, "no errors are known"
        else:
            wide, basis = _WIDE, "errors of steps in public traces of GPUs that were left out"
        return Estimate(
            time_s=time_s,
            low_s=bound_s if wide is None else max(time_s / wide, bound_s),
            high_s=None if wide is None else time_s * wide,
            lower_bound_s=bound_s,
            basis=basis,
        )

    def outside_s(self, calls: float, operators_s: float) -> float | None:
        """Return the time of a step outside of its operators, which are this many ``calls`` and take
        ``operators_s``.

        A host that computes itself needs the median time of the runs between two calls. Beside a device it is
        the time for which the device waits for the host, at the runs' time per launched operator. Both hold
        for the host of the runs. None where no run tells.
        """
        if not self.host_times:
            return None
        per_call_s = statistics.median(found.per_call_s for found in self.host_times)
        return (
            calls * per_call_s
            if self.host_times[0].of == "host"
            else max(0.0, calls * per_call_s - operators_s)
        )

    @functools.cached_property
    def _step_errors(self) -> list[float]:
        """The logarithm of measured over predicted time of the operators of each run, by the others: those of
        other devices where another device is predicted."""
        found = []
        for (run, device), calls in grouped(self.calls, lambda call: (call.run, call.device)).items():
            others = [
                call
                for call in self.calls
                if call.run != run and not (self.is_transfer and call.device == device)
            ]
            if others:
                laws = _Laws(others)
                predicted_s = sum(call.calls * laws.time_s(call) for call in calls)
                found.append(math.log(sum(call.calls * call.time_s for call in calls) / predicted_s))
        return found
