"""A program that ends without exit handlers ends as it does alone, and what was recorded is reported or named."""

import os
import pickle
import subprocess
import textwrap

import pytest

import rooflines
from rooflines.profiler.directory import STEPS_FILE, add_step, load, save
from rooflines.profiler.record.hard_end import HardEnds
from rooflines.profiler.records import Environment, RunFile, StepTimes, Workload
from tests.commands import command, environment, quick, run

STEPS = 12
PROGRAM = f"""
    import os, signal, sys, threading
    import torch

    print("not flushed")
    network = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    for number in range(400):
        if number == {STEPS}:
            {{ending}}
        optimizer.zero_grad()
        network(torch.randn(8, 64)).sum().backward()
        optimizer.step()
"""
# More timed steps than the program makes before its end.
TIMED = ["--steps", "300", "--warmup", "1"]


def ended(folder, ending):
    """The exit code, output and errors of the program in a new process, with buffered output."""
    (folder / "train.py").write_text(textwrap.dedent(PROGRAM.replace("{ending}", ending)))
    variables = {name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"}
    words = command("profile", "train.py", *quick(folder), *TIMED, "-o", "out")
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=120)


@pytest.mark.ci
def test_a_program_that_calls_exit_of_the_system_is_reported_and_its_buffer_stays_unwritten(tmp_path):
    ours = ended(tmp_path, "os._exit(5)")
    assert ours.returncode == 5
    assert "not flushed" not in ours.stdout
    assert "report    out/analysis.json" in ours.stdout
    facts = rooflines.load(tmp_path / "out").facts
    assert (facts.status, len(facts.steps.timed_ns)) == ("complete", STEPS - 2), "one is warm-up, and one is traced"
    assert any("os._exit" in note for note in facts.notes)


@pytest.mark.ci
def test_a_killed_program_leaves_every_timed_step_and_a_sentence(tmp_path):
    ours = ended(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert ours.returncode == -9
    assert ours.stdout == ""
    last = ours.stderr.splitlines()[-2:]
    assert last == [
        "rooflines: the script 'train.py' was killed before its run was complete.",
        "  See what was recorded: rooflines analyze out",
    ]
    recorded = rooflines.load(tmp_path / "out")
    assert (recorded.facts.status, len(recorded.facts.steps.timed_ns)) == ("running", STEPS - 2)
    analysis = rooflines.analyze(recorded)
    assert analysis.steps.count == STEPS - 2
    assert analysis.operators
    assert f"killed after {STEPS - 2} timed steps" in run("analyze", "out", cwd=tmp_path).out


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "code", "printed"), [
    ("os.execvp('echo', ['echo', 'another'])", 0, "another\n"),
    ("threading.Thread(target=os._exit, args=(3,)).start(); threading.Event().wait()", 3, ""),
])  # fmt: skip
def test_a_program_that_is_replaced_or_ended_by_a_thread_ends_as_it_does_alone(tmp_path, ending, code, printed):
    ours = ended(tmp_path, ending)
    assert ours.returncode == code
    assert ours.stdout.endswith(printed)
    assert "not flushed" not in ours.stdout
    assert "rooflines analyze out" in ours.stderr or "report    out/analysis.json" in ours.stdout
    assert rooflines.load(tmp_path / "out").facts.steps.timed_ns


def test_a_program_that_is_replaced_before_it_runs_pytorch_says_so(profiled):
    answer, _ = profiled("import os; os.execlp('echo', 'echo', 'another')\n")
    assert answer.out == "another\n"
    assert "os.execv; the program in its place is not recorded" in answer.complaint[0]


def test_ends_of_other_processes_pass_and_the_functions_keep_their_names():
    before, seen = (os._exit, os.execv, os.execve), []
    with HardEnds(seen.append):
        assert os._exit is not before[0]
        assert pickle.loads(pickle.dumps(os._exit)) is os._exit
        with pytest.raises(FileNotFoundError):
            os.execv("/no/such/program", ["program"])
        if (child := os.fork()) == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (os._exit, os.execv, os.execve) == before
    assert seen == []


def test_a_journal_gives_the_steps_of_a_run_that_has_none(tmp_path):
    facts = RunFile(
        workload=Workload(name="x", mode="training"), environment=Environment(rooflines="1", device="cpu", device_name=""),
        steps=StepTimes(warmup_ns=(9,)),
    )  # fmt: skip
    save(tmp_path, facts)
    for step_ns in (3, 5_000_000_000):
        add_step(str(tmp_path / STEPS_FILE), step_ns)
    with open(tmp_path / STEPS_FILE, "ab") as file:
        file.write(b"cut")
    assert load(tmp_path).facts.steps.timed_ns == (3, 5_000_000_000)
