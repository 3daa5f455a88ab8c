"""Threads that start together, each with its own job."""

from __future__ import annotations

import threading
import time

import pytest

from rooflines.kernels.micro.team import Team


def test_each_thread_runs_one_job():
    names = []
    with Team(3) as team:
        team.run([lambda: names.append(threading.current_thread().name)] * 3)
    assert len(set(names)) == 3


def test_thread_i_always_gets_job_i():
    # memory belongs to the thread that touched it first
    with Team(3) as team:
        runs = []
        for _ in range(10):
            who = [None] * 3

            def note(number, who=who):
                who[number] = threading.get_ident()

            team.run([lambda number=number, note=note: note(number) for number in range(3)])
            runs.append(who)
    assert all(run == runs[0] for run in runs)


def test_time_spans_the_slowest_and_sleep_is_not_processor_time():
    with Team(2) as team:
        timing = team.run([lambda: None, lambda: time.sleep(0.05)])
    assert timing.seconds >= 0.05
    assert timing.busy < 0.5


def test_a_job_that_fails_is_reported():
    def fail():
        raise RuntimeError("no")

    with Team(2) as team, pytest.raises(RuntimeError, match="no"):
        team.run([fail, lambda: None])


def test_the_share_of_the_cores_is_that_of_the_thread_that_had_least():
    def work():
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    with Team(2) as team:
        assert team.run([work, lambda: time.sleep(0.1)]).busy < 0.5


def test_wrong_number_of_jobs():
    with Team(2) as team, pytest.raises(ValueError, match="1 jobs for 2 threads"):
        team.run([lambda: None])
