"""Times of operators from the share of their bound that measured ones reach: time = bound / utilization.

The utilization of a call is that of the measured calls most like it: of the same work, else of the same
operator, else of its category, else of what the same roof bounds; between the two nearest in size (the bound
in seconds), linear in the logarithms. Outside of their sizes the next kind of calls is asked, within what a
time and a utilization that grow with the size allow; at the end of all is the shortest call measured, which
is what starting one takes, and above all measured sizes the utilization at the largest.

Intervals are of 90 %. That of a call is the conformal quantile of the errors of predictions for calls that
were left out (Lei et al.: "Distribution-Free Predictive Inference for Regression", JASA 113(523), 2018): of a
run at a time, of the only run a tenth. Where the prediction is for another device than measured, the calls
that predict those left out are of other devices, too; with calls of one GPU alone, these are the errors
between the GPUs of the public traces, with calls of one CPU none are known.
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
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.judge.bounds import IMPLAUSIBLE, Placement
from rooflines.roofline.predict.calls import (
    Call,
    HostTime,
    MeasuredCall,
    host_time,
    measured_calls,
    public_calls,
    sheet_name,
)
from rooflines.roofline.uncertainty import quantile
from rooflines.units import counted

# The share of cases outside of an interval, and the fewest errors of which the rest has an upper limit: 9 of
# 9, and a tenth to come.
_OUTSIDE = 0.1
_FEWEST = 9
# The fewest runs whose steps give an interval of a step.
_FEWEST_RUNS = 3
# The parts that the calls of one run are left out in.
_FOLDS = 10
# What a run of the package's own calls is called.
_PUBLIC = "public trace"
# Sizes this near in their logarithm are one.
_SAME_SIZE = 0.02


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A predicted time, its interval of 90 % (``high_s`` None: no upper limit is known), its bound, and what
    it was predicted from.

    The errors of estimates of one ``group`` may be the same error.
    """

    time_s: float
    low_s: float
    high_s: float | None = None
    lower_bound_s: float
    basis: str
    group: str = ""


# The number of a level and what the calls have in common there; bounds and times of calls in logarithms.
_Key = tuple[int, tuple[object, ...]]
_Curve = tuple[list[float], list[float]]


# What calls that count as alike have in common, in words and as a key; the most alike first.
_LEVELS: tuple[tuple[str, Callable[[Call], tuple[object, ...]]], ...] = (
    ("the same work in {name}", lambda call: (call.name, call.precision, call.flops, call.bytes)),
    ("{name}, {bound} bound, {precision}", lambda call: (call.name, call.bound, call.precision)),
    ("{name}", lambda call: (call.name,)),
    (
        "{category}, {bound} bound, {precision}",
        lambda call: (call.category, call.bound, call.precision, call.engine),
    ),
    ("{category}, {bound} bound", lambda call: (call.category, call.bound)),
    ("any operator, {bound} bound", lambda call: (call.bound,)),
    ("any operator", lambda call: ()),
)


def _keys(call: Call) -> list[_Key]:
    return [(number, key(call)) for number, (_, key) in enumerate(_LEVELS)]


class _Prediction(NamedTuple):
    """The time of ``call``, by calls that are ``alike`` at a level."""

    call: Call
    time_s: float
    level: int
    alike: list[MeasuredCall]


class _Reference:
    """Measured calls by what they have in common."""

    def __init__(self, calls: Sequence[MeasuredCall]) -> None:
        self.floor_s = min(call.time_s for call in calls)
        self.largest_s = max(call.lower_bound_s for call in calls)
        self.alike: dict[_Key, list[MeasuredCall]] = defaultdict(list)
        for call in calls:
            for key in _keys(call):
                self.alike[key].append(call)
        self.curves: dict[_Key, _Curve] = {}

    def predict(self, call: Call) -> _Prediction:
        keys = [key for key in _keys(call) if key in self.alike]
        # Nothing tells of sizes above all that were measured: there the utilization stays what it is at the
        # largest.
        size_s = min(call.lower_bound_s, self.largest_s)
        time_s = max(self._time_s(size_s, keys) * call.lower_bound_s / size_s, call.lower_bound_s)
        return _Prediction(call, time_s, keys[0][0], self.alike[keys[0]])

    def _time_s(self, size_s: float, keys: Sequence[_Key]) -> float:
        """The time of a call whose bound is ``size_s``, by the calls of the first of ``keys`` where they have
        calls of this size.

        Outside of their sizes the calls of the further keys tell the time, as far as neither the time nor the
        utilization falls from a call to a larger one. Above them, a call twice as large has, in logarithms,
        half of the largest's utilization and half of that.
        """
        if not keys:
            return self.floor_s
        if keys[0] not in self.curves:
            self.curves[keys[0]] = _curve(self.alike[keys[0]])
        bounds, times = self.curves[keys[0]]
        at = math.log(size_s)
        same_time = float(np.interp(at, bounds, times))
        beyond = at - min(max(at, bounds[0]), bounds[-1])
        if not beyond:
            return math.exp(same_time)
        least, most = sorted((same_time, same_time + beyond))
        wider = min(max(math.log(self._time_s(size_s, keys[1:])), least), most)
        largest = math.exp(-beyond) if beyond > 0 else 0.0
        return math.exp(largest * most + (1 - largest) * wider)


class Efficiencies:
    """The share of their bound that measured ``calls`` reach, to predict calls on ``device`` (default: the
    one of the calls).

    Where some of the calls were measured on ``device``, only these count; calls faster than their bound
    allows never do. ``host_times`` are those of the runs, ``public`` the calls between whose devices errors
    are found (default: those of the package). Raises ValueError without a call.
    """

    def __init__(
        self,
        calls: Iterable[MeasuredCall],
        device: str | None = None,
        host_times: Sequence[HostTime] = (),
        public: Sequence[MeasuredCall] | None = None,
    ) -> None:
        every = tuple(call for call in calls if call.lower_bound_s <= IMPLAUSIBLE * call.time_s)
        name = None if device is None else sheet_name(device)
        self.calls = tuple(call for call in every if call.device == name) or every
        if not self.calls:
            raise ValueError(
                "no call has a bound that it is not faster than; a run that other programs "
                "disturbed is not judged"
            )
        self.is_transfer = name is not None and self.calls[0].device != name
        self.host_times = tuple(host_times)
        self._public = public
        self._reference = _Reference(self.calls)

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
        """Return the time of ``call``, never less than its bound, which must be above 0."""
        found = self._reference.predict(call)
        wide = self._width(found)
        words = _LEVELS[found.level][0].format(**asdict(call))
        runs = len({one.run for one in found.alike})
        return Estimate(
            time_s=found.time_s,
            low_s=call.lower_bound_s if wide is None else max(call.lower_bound_s, found.time_s / wide),
            high_s=None if wide is None else found.time_s * wide,
            lower_bound_s=call.lower_bound_s,
            basis=f"{words}: {counted(len(found.alike), 'call')} in {counted(runs, 'run')}",
            group=call.category,
        )

    def total(self, parts: Iterable[tuple[Estimate, float]]) -> Estimate:
        """Return the sum of estimates, each times its number of calls.

        Its interval is that of the error of a whole step: with three or more runs Student's t of the errors
        of their steps, each predicted by the others. With fewer, the errors of a category count as one error,
        those of different ones as independent.
        """
        parts = list(parts)
        time_s = sum(calls * one.time_s for one, calls in parts)
        bound_s = sum(calls * one.lower_bound_s for one, calls in parts)
        errors = self._step_errors
        devices = sorted({call.device for call, _ in self._left_out})
        data = f"{_PUBLIC if self._is_by_public_errors else 'run'}s of {', '.join(devices)}"
        high_s: float | None
        if len(errors) >= _FEWEST_RUNS:
            spread = math.sqrt(sum(error**2 for error in errors) / len(errors) * (1 + 1 / len(errors)))
            wide = math.exp(quantile(len(errors), _OUTSIDE) * spread)
            low_s = time_s / wide
            high_s = time_s * wide
            basis = f"errors of {len(errors)} steps in {data}, each predicted by the others"
        else:
            low_s = time_s - _combined((one.group, calls * (one.time_s - one.low_s)) for one, calls in parts)
            above = [
                (one.group, calls * (one.high_s - one.time_s))
                for one, calls in parts
                if one.high_s is not None
            ]
            high_s = time_s + _combined(above) if len(above) == len(parts) else None
            basis = (
                f"errors of operators in {data}, those of a category as one"
                if devices
                else "no errors are known"
            )
        return Estimate(
            time_s=time_s, low_s=max(low_s, bound_s), high_s=high_s, lower_bound_s=bound_s, basis=basis
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

    @property
    def _is_by_public_errors(self) -> bool:
        """Whether errors between devices are those of the public traces: the calls of one device tell
        none."""
        return self.is_transfer and len({call.device for call in self.calls}) == 1

    @functools.cached_property
    def _left_out(self) -> tuple[tuple[MeasuredCall, _Prediction], ...]:
        """Calls, each with its prediction by calls of other folds: runs, or parts of one."""
        calls: Sequence[MeasuredCall] = self.calls
        if self._is_by_public_errors:
            gpu = any(match.sheet.kind != "cpu" for match in matching(calls[0].device))
            calls = self._public if self._public is not None else public_calls() if gpu else ()
        alone = len({(call.run, call.device) for call in calls}) == 1
        works: dict[object, int] = {}
        folds: dict[tuple[object, str], list[MeasuredCall]] = defaultdict(list)
        for call in calls:
            part = works.setdefault(_keys(call)[0], len(works)) % _FOLDS
            folds[part if alone else call.run, call.device].append(call)
        found = []
        for (name, device), fold in folds.items():
            others = [
                kept
                for (other, of), kept in folds.items()
                if other != name and not (self.is_transfer and of == device)
            ]
            if others:
                reference = _Reference([call for kept in others for call in kept])
                found += [(call, reference.predict(call)) for call in fold]
        return tuple(found)

    @functools.cached_property
    def _step_errors(self) -> list[float]:
        """The logarithm of measured over predicted time of the operators of each run that was left out."""
        sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for call, predicted in self._left_out:
            step = sums[call.run, call.device]
            step[0] += call.calls * call.time_s
            step[1] += call.calls * predicted.time_s
        return [math.log(measured_s / predicted_s) for measured_s, predicted_s in sums.values()]

    def _width(self, found: _Prediction) -> float | None:
        """The factor between ``found`` and the ends of its interval; None where too few calls were left out
        to tell.

        By the errors at its level in its category, at its level, or of all calls: the first of these that are
        enough.
        """
        at_level = [pair for pair in self._left_out if pair[1].level == found.level]
        for pairs in (
            [pair for pair in at_level if pair[0].category == found.call.category],
            at_level,
            self._left_out,
        ):
            if len(pairs) >= _FEWEST:
                errors = sorted(abs(math.log(call.time_s / predicted.time_s)) for call, predicted in pairs)
                return math.exp(errors[-math.floor(_OUTSIDE * (len(errors) + 1))])
        return None


def _curve(calls: Iterable[MeasuredCall]) -> _Curve:
    """The bounds of ``calls`` and their times, in logarithms: the mean where bounds are the same."""
    sizes: list[list[tuple[float, float]]] = []
    for point in sorted((math.log(call.lower_bound_s), math.log(call.time_s)) for call in calls):
        if sizes and point[0] - sizes[-1][0][0] < _SAME_SIZE:
            sizes[-1].append(point)
        else:
            sizes.append([point])
    bounds, times = np.array([np.mean(points, axis=0) for points in sizes]).T.tolist()
    return bounds, times


def _combined(errors: Iterable[tuple[str, float]]) -> float:
    """The sum of errors in seconds: linear in a group, and in squares over the groups."""
    return math.hypot(*longest_first(errors).values())
