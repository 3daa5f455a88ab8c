"""``rooflines.record`` where there is no script: an interactive interpreter, a notebook's thread, a block that marks no step."""

import subprocess
import sys
import threading

import pytest
import torch

import rooflines
from tests.commands import environment, write_ceilings
from tests.integrations.reports import calls, check_report

CELLS = """
import __main__, torch, rooflines
assert not hasattr(__main__, "__file__")
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with rooflines.record("out", ceilings="ceilings.json", formats=["json"], steps=5) as r:
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        r.step()

print("recorded", len(r.run.facts.steps.timed_ns))
"""


@pytest.mark.ci
def test_an_interactive_interpreter(tmp_path):
    write_ceilings(tmp_path)
    done = subprocess.run(
        [sys.executable, "-i"], input=CELLS, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert "recorded 5" in done.stdout, done.stderr
    check_report(rooflines.load(tmp_path / "out"), 20)


def train(steps, done=lambda: None):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        done()


def test_a_block_that_marks_no_step_is_recorded_as_one(tmp_path):
    with rooflines.record(tmp_path / "out", ceilings=str(write_ceilings(tmp_path)), formats=["json"]) as r:
        train(4)
    analysis = check_report(r.run, 1)
    assert r.run.facts.steps.traced == "program"
    assert calls(analysis)["aten::addmm"] == 4 * 2


@pytest.mark.ci
@pytest.mark.parametrize("steps", [2, 20])
def test_another_thread_than_the_main_one(tmp_path, steps):
    runs = []

    def cell():
        with rooflines.record(tmp_path / "out", ceilings=str(write_ceilings(tmp_path)), formats=["json"], steps=5) as r:
            train(steps, r.step)
        runs.append(r.run)

    thread = threading.Thread(target=cell)
    thread.start()
    thread.join()
    analysis = check_report(runs[0], steps)
    assert calls(analysis)["aten::addmm"] == 2
