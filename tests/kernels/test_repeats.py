"""How many calls make a sample long enough: exact, with times made by hand."""

from rooflines.kernels.micro.repeats import Timing, calls_for


def test_calls_for_scales_to_the_duration():
    # each call takes 1 ms: 20 of them fill 20 ms
    assert calls_for(0.020, lambda calls: Timing(0.001 * calls)) == 20
    # one call is longer than the sample: one is made
    assert calls_for(0.020, lambda calls: Timing(3.0 * calls)) == 1
