"""Other programs: their processor time is not that of this one nor of its children, and which steps they disturbed."""

import subprocess
import sys

import numpy as np
import psutil

from rooflines.profiler import others
from rooflines.profiler.others import alike_steps, busy_elsewhere, is_quiet, is_shared, quiet_steps
from rooflines.profiler.samplers.fields import DeviceSample

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_children_are_no_other_programs(monkeypatch):
    """With a machine whose clocks stand still, all that changes is what this program and its child have spent."""
    whole = psutil.cpu_times()
    monkeypatch.setattr(psutil, "cpu_times", lambda: whole)
    before = others._others_s()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        while_it_lives = others._others_s()
        child.communicate("\n")
    after = others._others_s()
    assert before - while_it_lives >= 0.25, "the child has spent 0.3 s, in ticks of 10 ms"
    assert after <= while_it_lives


STEPS, WAITS = (100, 100, 100), (0, 5, 6)


def sample(time_ns, machine, own):
    return DeviceSample(time_ns=time_ns, source="psutil", cpu_utilization=machine, process_cpu_utilization=own)


def test_a_step_is_quiet_up_to_a_twentieth_of_waiting():
    assert [is_quiet(*step) for step in zip(STEPS, WAITS, strict=True)] == [True, True, False]


def test_others_take_what_the_machine_does_beyond_the_program():
    samples = [sample(1, 0.5, 1.5), sample(2, 1.0, 1.0), DeviceSample(time_ns=3, source="nvml")]
    assert busy_elsewhere(samples, 4) == [0.5, 3.0]
    assert busy_elsewhere(samples, 4, from_ns=2) == [3.0]


def test_steps_are_left_out_only_beside_other_programs():
    assert quiet_steps(STEPS, WAITS, [0.0, 1.0]).tolist() == [True, True, False]
    assert quiet_steps(STEPS, WAITS, [0.0, 0.1]).tolist() == [True] * 3  # the program's own threads wait for each other
    assert quiet_steps(STEPS, (), [1.0]).tolist() == [True] * 3  # the system does not count it
    assert not is_shared([])


def test_of_the_traced_steps_the_half_counts_that_takes_pages_as_the_timed_ones_do():
    every = np.ones(5, bool)
    assert alike_steps([0, 1000, 2000, 5000, 7000], 1500.0, every).tolist() == [True, True, True, False, False]
    assert alike_steps([3, 0, 90, 12, 40], 20.0, every).tolist() == [True] * 5  # they hardly differ
    assert alike_steps((), 20.0, every).tolist() == [True] * 5  # the system does not count them
    disturbed = np.array([False, True, True, True, True])
    assert alike_steps([1500, 1000, 2000, 5000, 7000], 1500.0, disturbed).tolist() == [False, True, True, False, False]
