"""The shares of the bound classes from step to step: arithmetic on steps written by hand."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from rooflines.roofline.analysis import Steps
from rooflines.roofline.judge.step.partition import partition
from rooflines.roofline.judge.step.share_ranges import share_ranges
from tests.roofline.rooms import attributed
from tests.samples import analysis
from tests.traces import add, span


def ranges(lengths_s, lasting=(38, 40, 42), quiet=(True, True, True)):
    """Of steps of 100 us of which an addition takes ``lasting``, and the host the rest, on the clock of timed steps."""
    events = (
        event
        for number, lasts in enumerate(lasting)
        for event in (span(f"ProfilerStep#{number}", 100 * number, 100), add(100 * number + 5, lasts))
    )
    found = attributed(*events, quiet=np.array(quiet))
    # Its bound is 15 us a step: of 45 us that is less than a third.
    row = replace(analysis().operators[0], bound="compute", lower_bound_s=15e-6, efficiency=0.5, nearest_roof=None)
    traced = partition(found, [row])
    steps = Steps(count=3, median_s=lengths_s[1], p10_s=lengths_s[0], p90_s=lengths_s[2], warmup_count=0)
    return share_ranges(found, [row], traced, traced, steps, np.array(quiet))


def test_a_share_lies_where_a_further_step_would_have_it():
    # Student's t with two degrees of freedom is 4.303 for 95 %.
    half = 4.3027 * 0.02 * math.sqrt(1 + 1 / 3)
    assert ranges((100e-6,) * 3) == {
        "compute": pytest.approx((0.4 - half, 0.4 + half), rel=1e-4),
        "host": pytest.approx((0.6 - half, 0.6 + half), rel=1e-4),
    }


def test_steps_that_others_disturbed_do_not_count():
    three = ranges((100e-6,) * 3, (38, 40, 42, 90), (True, True, True, False))
    assert three["host"] == pytest.approx(ranges((100e-6,) * 3)["host"], abs=0.01)
    assert ranges((100e-6,) * 3, (38, 40, 90), (True, False, False)) == {}


def test_a_longer_step_is_less_efficient():
    assert "inefficient" not in ranges((90e-6,) * 3)
    found = ranges((90e-6, 90e-6, 150e-6))
    assert found["inefficient"][0] == 0 < 0.4 < found["inefficient"][1]
    assert found["compute"][0] == pytest.approx(0)
