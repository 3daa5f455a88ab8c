"""What a change of a judged trace is: which work, host time and waits go, and what the trace cannot tell."""

import pytest

from rooflines.profiler.tree.tree import tree
from rooflines.roofline.count.count import count
from rooflines.roofline.judge.judge import judge
from rooflines.roofline.own.own import own
from rooflines.roofline.replay.replays import replays_of
from tests.traces import kernel, launch, mm, op, trace


def of(*events):
    """The analysis of a trace, and its replays."""
    judged = judge(own(count(tree(trace(*events)))))
    return judged.analysis, replays_of(judged)


def test_idle_time_that_only_the_timed_steps_have_is_not_refuted():
    _, replays = of(
        mm(0, 20, 64, 64, 64),
        launch(5, 2, 1),
        kernel("k", 12, 60, 1),
        mm(200, 20, 64, 64, 64),
        launch(205, 2, 2),
        kernel("k", 212, 60, 2),
    )
    host_s = replays.seconds_of["host_bound"]
    assert replays.edit({"host_bound": host_s}, launches=False) is not None
    assert replays.edit({"data_loading": 1e-3}, launches=False) is None, "the trace has no loader"
    assert replays.edit({"host_bound": 2 * host_s}, launches=False) is None
    assert replays.edit({"outside": 1e-6}, launches=False) is None, "a cause that no change of the host shortens"


def test_a_copy_that_goes_is_not_waited_for():
    copy = launch(105, 95, 2) | {"name": "cudaMemcpy"}
    analysis, replays = of(
        mm(0, 20, 64, 64, 64), launch(5, 2, 1), kernel("k", 12, 60, 1),
        op("aten::copy_", 100, 105), copy, kernel("Memcpy HtoD (Pageable -> Device)", 115, 80, 2, cat="gpu_memcpy"),
        mm(300, 20, 64, 64, 64), launch(305, 2, 3), kernel("k", 312, 60, 3),
    )  # fmt: skip
    place = next(place for place, row in enumerate(analysis.rows) if "copy" in row.name)
    time_s = analysis.rows[place].time_s
    assert replays.graph.copies.sum() == 1
    faster, without = replays.gains_s([replays.of_rows({place: time_s}, launches=launches) for launches in (False, True)])
    assert faster == pytest.approx(80e-6, abs=5e-6), "the call still waits for a copy that takes no time"
    assert without > faster
