"""What a change of a judged trace is: which work, host time and waits go, and what the trace cannot tell."""

import numpy as np
import pytest

from rooflines.profiler.tree.tree import tree
from rooflines.reports.words.sentences import replay_words
from rooflines.roofline.count.count import count
from rooflines.roofline.judge.judge import judge
from rooflines.roofline.own.own import own
from rooflines.roofline.replay.replay import Edit
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


def test_threads_that_wait_for_each_other_are_lanes():
    # The second thread begins 20 µs after the first product, and the last product 2 µs after the second thread's.
    analysis, replays = of(
        mm(0, 100, 64, 64, 64), mm(120, 200, 32, 32, 32, tid=2), mm(130, 50, 16, 16, 16), mm(322, 100, 8, 8, 8)
    )  # fmt: skip
    assert replays.stated.by_construction
    assert "reproduces" not in replay_words(replays.stated, "trace"), "that says nothing where it cannot fail"
    flops = {2 * size**3: size for size in (64, 32, 16, 8)}
    gone = [replays.of_rows({place: row.time_s}) for place, row in enumerate(analysis.rows)]
    gains_us = {flops[row.flops]: round(1e6 * gain_s) for row, gain_s in zip(analysis.rows, replays.gains_s(gone), strict=True)}
    # Without the second thread's work the last product follows the main thread's third, which ends at 180 µs.
    assert gains_us == {64: 100, 32: 322 - 180, 16: 0, 8: 100}
    # The main thread's own 30 µs are hidden, its waits are not its own.
    assert replays.gains_s([Edit(rates=np.zeros(1))]) == [0.0]


def test_one_thread_is_a_sum():
    analysis, replays = of(mm(0, 100, 64, 64, 64), mm(150, 40, 32, 32, 32), mm(200, 10, 16, 16, 16))
    assert len(replays.graph.order) == 1
    halves = [replays.of_rows({place: row.time_s / 2}) for place, row in enumerate(analysis.rows)]
    assert replays.gains_s(halves) == pytest.approx([row.time_s / 2 for row in analysis.rows])
    assert replays.gains_s([Edit(rates=np.zeros(1))]) == pytest.approx([60e-6])
    assert replays.gains_s([halves[0].joined(halves[1])]) == pytest.approx([sum(row.time_s for row in analysis.rows[:2]) / 2])
    # Page faults are no idle time, and their part of each operator is not known.
    assert replays.edit({"page_faults": 1e-6}, launches=False) is None
    assert replays.edit({"kernel_wait": 1e-6}, launches=False) is None
    assert replays.edit({"host_bound": 1e-6}, launches=False) is not None
