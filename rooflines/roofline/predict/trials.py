"""Changes of a run's options that were tried: predicted and measured gain, and the error of the outputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from rooflines.profiler.directory import read_facts
from rooflines.profiler.records import ResultError
from rooflines.roofline.predict.change import Change, Prediction

TRIALS_SCHEMA = "rooflines.advice/1"
TRIALS_FILE = "advice.json"
# A prediction is confirmed by a measured gain between half of it and twice of it, in logarithms.
FACTOR = 2.0
# A predicted change of throughput below this is none.
WORTH = 0.02

Outcome = Literal[
    "as predicted", "more", "less", "none", "worse", "faster", "unclear", "failed", "not measured"
]


class Speedup(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput as a multiple of the run's: the median of the rounds and its 95 % interval, absent for
    less than three rounds."""

    value: float
    low: float | None = None
    high: float | None = None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A change with its predicted and, once it was tried, its measured gain. ``reason`` is why it could not
    be measured.

    ``output_error`` is the difference of the result from that in fp32, absent where the change does not alter
    the computation.
    """

    change: Change
    prediction: Prediction | None = None
    speedup: Speedup | None = None
    output_error: ResultError | None = None
    reason: str | None = None

    @property
    def gain(self) -> float:
        """The measured throughput as a multiple of the run's; 0 where it was not measured."""
        return self.speedup.value if self.speedup is not None else 0.0

    @property
    def predicted(self) -> float | None:
        """The predicted one; None without a prediction."""
        return self.prediction.speedup if self.prediction is not None else None


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    """All changes of a run that were tried in ``rounds`` rounds, and the best ``combination`` of those that
    helped.

    ``directory`` holds the runs. ``complete`` is false after an interruption. ``notes`` say what disturbed
    the measurement.
    """

    schema: str = TRIALS_SCHEMA
    created: str = ""
    command: str = ""
    machine: str = ""
    directory: str = ""
    rounds: int
    complete: bool = True
    trials: tuple[Trial, ...] = ()
    combination: Trial | None = None
    notes: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[Trial, ...]:
        """All trials, the combination last."""
        return (*self.trials, self.combination) if self.combination is not None else self.trials


def outcome(trial: Trial) -> Outcome:
    """Return how the measured gain compares with the predicted one.

    ``none`` is an interval that contains no gain and excludes the predicted one, ``unclear`` one that
    contains both, or much else.
    """
    found = trial.speedup
    predicted = trial.predicted
    if trial.reason is not None:
        return "failed"
    if found is None:
        return "not measured"
    if found.low is None or found.high is None:
        return "unclear"
    if found.low <= 1 <= found.high:
        if FACTOR * found.low >= 1 and found.high <= FACTOR:
            if predicted is None:
                return "none"
            if abs(math.log(predicted)) < WORTH:
                return "as predicted"
        return "unclear" if predicted is None or found.low <= predicted <= found.high else "none"
    measured = math.log(found.value)
    if predicted is None:
        return "faster" if measured > 0 else "worse"
    expected = math.log(predicted)
    if measured * expected <= 0 or abs(measured) > FACTOR * abs(expected):
        return "more" if measured > 0 else "worse"
    return "as predicted" if abs(measured) >= abs(expected) / FACTOR else "less" if measured > 0 else "more"


def helped(trial: Trial) -> bool:
    """Whether the whole interval of the measured gain lies above one."""
    return trial.speedup is not None and (trial.speedup.low or 0.0) > 1


def read_trials(directory: Path) -> Trials | None:
    """Return the trials of the run in ``directory``; None where there are none. Raises RunError for a corrupt
    file."""
    path = directory / TRIALS_FILE
    if not path.is_file():
        return None
    return read_facts(
        path,
        Trials,
        TRIALS_SCHEMA,
        what=f"the advice tried in {str(directory)!r}",
        again="run 'rooflines advise --try' again",
    )
