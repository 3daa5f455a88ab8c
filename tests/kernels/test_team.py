"""Threads that start together, each with its own job."""

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.kernels.micro.team import Team, bind, cpu_list, nodes, places


def test_each_thread_runs_its_job():
    # Each thread runs one job.
    names = []
    with Team(3) as team:
        team.run([lambda: names.append(threading.current_thread().name)] * 3)
    assert len(set(names)) == 3
    # Thread i always gets job i.
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


def test_times_shares_and_failures_of_a_team():
    # Times and shares of a team.
    # Time spans the slowest and sleep is not processor time.
    with Team(2) as team:
        timing = team.run([lambda: None, lambda: time.sleep(0.05)])
    assert timing.seconds >= 0.05
    assert timing.busy < 0.5

    # The share of the cores is that of the thread that had least.
    def work():
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    with Team(2) as team:
        assert team.run([work, lambda: time.sleep(0.1)]).busy < 0.5

    # Jobs that fail or are too few.
    # A job that fails is reported.
    def fail():
        raise RuntimeError("no")

    with Team(2) as team, pytest.raises(RuntimeError, match="no"):
        team.run([fail, lambda: None])
    # Wrong number of jobs.
    with Team(2) as team, pytest.raises(ValueError, match="1 jobs for 2 threads"):
        team.run([lambda: None])


TWO_SOCKETS = ((0, 1, 4, 5), (2, 3, 6, 7))


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-2,8\n", (0, 1, 2, 8)), ("5", (5,)), ("", ()), ("\n", ()), ("0-1,4-5", (0, 1, 4, 5)), ("none", ())]
)
def test_lists_of_cpus(text, numbers):
    assert cpu_list(text) == numbers


def sysfs(root, lists):
    for number, text in lists.items():
        (root / f"node{number}").mkdir(parents=True)
        (root / f"node{number}" / "cpulist").write_text(text)
    return root


def test_nodes_hold_only_usable_cpus_and_without_nodes_all_are_one(tmp_path):
    # Nodes hold only usable cpus.
    # node 10 comes after node 2, node 3 has memory only
    root = sysfs(tmp_path, {0: "0-3", 2: "4-7", 10: "8-11", 3: ""})
    assert nodes((1, 2, 4, 9), root) == ((1, 2), (4,), (9,))
    assert nodes((4, 5), root) == ((4, 5),)
    # Without nodes all cpus are one.
    assert nodes((0, 1), tmp_path / "missing") == ((0, 1),)
    # a list that leaves a CPU out is not believed
    assert nodes((0, 9), sysfs(tmp_path / "other", {0: "0-3"})) == ((0, 9),)


def test_threads_are_bound_to_cpus_and_nodes():
    # One thread per cpu is bound to it.
    assert places(8, TWO_SOCKETS) == tuple(frozenset({cpu}) for cpu in (0, 1, 4, 5, 2, 3, 6, 7))
    # Fewer threads are bound to a node by turns.
    first, second = (frozenset(node) for node in TWO_SOCKETS)
    assert places(3, TWO_SOCKETS) == (first, second, first)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 6))
def test_every_thread_has_a_place_and_nodes_are_shared_evenly(threads, count, size):
    groups = tuple(tuple(range(size * number, size * (number + 1))) for number in range(count))
    chosen = places(threads, groups)
    assert len(chosen) == threads
    on_node = [sum(place <= set(group) for place in chosen) for group in groups]
    assert sum(on_node) == threads
    if threads < size * count:
        assert max(on_node) - min(on_node) <= 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not bind threads")
def test_the_team_is_bound_and_its_caller_is_not():
    cpus = sorted(os.sched_getaffinity(0))
    place = frozenset({cpus[-1]})
    found = []
    with Team(1, [place]) as team:
        team.run([lambda: found.append(os.sched_getaffinity(0))])
        team.run([lambda: found.append(threading.get_ident())])
    assert found[0] == place
    assert found[1] != threading.get_ident()
    assert sorted(os.sched_getaffinity(0)) == cpus


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not bind threads")
def test_a_place_that_does_not_exist_is_ignored():
    found = []

    def bound(place):
        bind(place)
        found.append(os.sched_getaffinity(0))

    for place in (frozenset({100_000}), frozenset()):
        thread = threading.Thread(target=bound, args=(place,))
        thread.start()
        thread.join()
    assert found == [os.sched_getaffinity(0)] * 2
