"""How a measured gain compares with the predicted one."""

import pytest

from rooflines.errors import RunError
from rooflines.roofline.predict.change import Change, Prediction
from rooflines.roofline.predict.trials import TRIALS_FILE, Speedup, Trial, helped, outcome, read_trials


def trial(predicted, low, value, high):
    return Trial(
        change=Change(kind="compile", label="compiled"),
        prediction=Prediction(speedup=predicted, reason="") if predicted is not None else None,
        speedup=Speedup(value=value, low=low, high=high),
    )


@pytest.mark.parametrize(
    ("predicted", "low", "value", "high", "expected"),
    [
        (2.0, 1.8, 1.9, 2.0, "as predicted"),
        (2.0, 1.38, 1.4, 1.42, "less"),  # below the root of 2
        (2.0, 4.1, 4.2, 4.3, "more"),
        (2.0, 0.9, 1.0, 1.1, "none"),
        (2.0, 0.9, 1.6, 2.9, "unclear"),
        (1.01, 0.9, 1.0, 1.1, "as predicted"),
        (1.01, 0.04, 2.67, 161.0, "unclear"),
        (None, 0.04, 2.67, 161.0, "unclear"),
        (2.0, 0.7, 0.8, 0.9, "worse"),
        (0.8, 0.7, 0.8, 0.9, "as predicted"),
        (0.8, 0.3, 0.4, 0.5, "worse"),
        (0.5, 0.9, 0.95, 0.99, "more"),
        (0.8, 1.1, 1.2, 1.3, "more"),
        (None, 1.1, 1.2, 1.3, "faster"),
        (None, 0.7, 0.8, 0.9, "worse"),
        (None, 0.9, 1.0, 1.1, "none"),
        (2.0, None, 1.9, None, "unclear"),
    ],
)
def test_the_result_of_a_trial(predicted, low, value, high, expected):
    assert outcome(trial(predicted, low, value, high)) == expected


def test_a_trial_helped_if_its_whole_interval_does():
    assert helped(trial(2.0, 1.01, 1.2, 1.5))
    assert not helped(trial(2.0, 0.99, 1.2, 1.5))
    assert not helped(trial(2.0, None, 1.2, None))


def test_a_trial_without_a_gain_failed_or_was_not_measured():
    bare = Trial(change=Change(kind="compile", label="compiled"))
    assert outcome(bare) == "not measured"
    assert outcome(Trial(change=bare.change, reason="out of memory")) == "failed"


def test_trials_are_read_from_the_directory_of_a_run(tmp_path):
    assert read_trials(tmp_path) is None
    (tmp_path / TRIALS_FILE).write_text('{"schema": "rooflines.advice/1", "rounds": "many"}')
    with pytest.raises(RunError, match=r"advice tried in .* is corrupt"):
        read_trials(tmp_path)
