"""Processor time of other programs: not that of this one, nor of its children."""

from __future__ import annotations

import subprocess
import sys

import psutil

from rooflines.profiler import others

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
