"""The shares of the bound classes from step to step: arithmetic on steps written by hand."""

import numpy as np
import pytest
from msgspec.structs import replace

from rooflines.roofline.analysis import Steps
from rooflines.roofline.judge.step.partition import partition
from rooflines.roofline.judge.step.share_ranges import share_ranges
from tests.roofline.rooms import attributed
from tests.samples import analysis
from tests.traces import add, span

# Steps of 100 us of which an addition takes these, and the host the rest.
LASTING = (20, 40, 60)


def ranges(lengths_s, quiet=(True, True, True)):
    events = (
        event
        for number, lasts in enumerate(LASTING)
        for event in (span(f"ProfilerStep#{number}", 100 * number, 100), add(100 * number + 10, lasts))
    )
    found = attributed(*events, quiet=np.array(quiet))
    # Its bound is 15 us a step: of 60 us that is less than a third.
    row = replace(analysis().operators[0], bound="compute", lower_bound_s=15e-6, efficiency=0.5, nearest_roof=None)
    traced = partition(found, [row])
    steps = Steps(count=3, median_s=lengths_s[1], p10_s=lengths_s[0], p90_s=lengths_s[2], warmup_count=0)
    return share_ranges(found, [row], traced, traced, steps)


def test_each_class_has_its_least_and_its_largest_share_of_a_step():
    found = ranges((100e-6,) * 3)
    # The addition's lower quartile is 30 us and the host's 50 us: 37.5 % of the step is bounded by compute.
    assert found == {
        "compute": pytest.approx((0.0, 0.4)),
        "inefficient": pytest.approx((0.0, 0.6)),
        "host": pytest.approx((0.4, 0.8)),
    }


def test_steps_that_others_disturbed_do_not_count():
    assert ranges((100e-6,) * 3, (True, True, False))["host"][0] > 0.59


def test_a_longer_step_is_less_efficient():
    assert "inefficient" not in ranges((60e-6,) * 3)
    assert ranges((60e-6, 60e-6, 100e-6))["inefficient"] == pytest.approx((0.0, 0.6))
