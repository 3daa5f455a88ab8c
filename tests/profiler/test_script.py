"""Scripts that know nothing of us: where their steps end, and what becomes of their output, arguments and exits."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import rooflines
from rooflines.profiler.script import StepHooks
from tests.commands import quick, run

TRAINS = """
    import argparse, sys
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="none")
    args = parser.parse_args()
    print("script says", args.lr, args.steps, args.device, __name__)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for _ in range(args.steps):
        with torch.no_grad():
            model(torch.randn(2, 8))  # a validation between two steps is part of the step
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    print("script ended")
"""

INFERS = """
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
    with torch.inference_mode():
        for _ in range(50):
            model(torch.randn(4, 8))
"""


@pytest.fixture
def profile(tmp_path):
    """Profile a script in a process of its own; the answer and the run, None where there is none."""

    def ask(source, *arguments, options=()):
        (tmp_path / "train.py").write_text(textwrap.dedent(source))
        answer = run("profile", "train.py", *quick(tmp_path), "-o", "out", *options, "--", *arguments, cwd=tmp_path)
        return answer, rooflines.load(tmp_path / "out") if (tmp_path / "out" / "run.json").exists() else None

    return ask


def test_a_training_script_gets_its_own_arguments_also_those_that_look_like_ours(profile):
    answer, recorded = profile(TRAINS, "--lr", "1", "--steps", "40", "--device", "mine")
    assert answer.code == 0, answer
    assert "script says 1.0 40 mine __main__" in answer.out
    assert "script ended" not in answer.out, "a script is stopped when enough is recorded"
    facts = recorded.facts
    assert (facts.status, facts.workload.mode, facts.workload.name) == ("complete", "training", "train.py")
    assert [len(facts.steps.warmup_ns), len(facts.steps.timed_ns), len(facts.steps.traced_ns)] == [1, 2, 3]
    assert facts.settings.command.endswith("-o out -- --lr 1 --steps 40 --device mine")
    assert {row.phase for row in rooflines.analyze(recorded).operators} >= {"forward", "backward", "optimizer"}


def test_to_end_lets_the_script_end(profile):
    answer, recorded = profile(TRAINS, options=["--to-end"])
    assert answer.code == 0, answer
    assert "script ended" in answer.out
    assert recorded.facts.status == "complete"


def test_an_inference_script_steps_with_each_outermost_call(profile):
    answer, recorded = profile(INFERS, options=["--threads", "1"])
    assert answer.code == 0, answer
    assert recorded.facts.workload.mode == "inference"
    assert recorded.facts.environment.threads == 1
    calls = {row.name: row.calls for row in rooflines.analyze(recorded).operators}
    assert calls["aten::addmm"] == 1, "one linear layer, so one call a step"


def test_a_script_that_raises_shows_its_traceback_and_keeps_what_was_recorded(profile):
    answer, recorded = profile(TRAINS.replace("optimizer.step()", "optimizer.step(); 1 / 0 if _ == 2 else None"))
    assert answer.code == 2
    assert answer.complaint[0] == "rooflines: the script 'train.py' raised ZeroDivisionError: division by zero"
    assert answer.complaint[1] == "  What was recorded before is in 'out'."
    assert "ZeroDivisionError: division by zero" in answer.err.split("rooflines: ")[0]
    assert 'train.py", line ' in answer.err
    assert "runpy" not in answer.err
    assert recorded.facts.status == "failed"
    assert len(recorded.facts.steps.timed_ns) == 2


@pytest.mark.parametrize(
    ("ending", "message"),
    [("sys.exit(3)", "the script 'train.py' exited with 3."), ('sys.exit("no data")', "the script 'train.py' exited: no data.")],
)
def test_a_script_that_exits_with_an_error(profile, ending, message):
    answer, recorded = profile(TRAINS.replace("optimizer.step()", f"optimizer.step(); {ending}"))
    assert answer.code == 2
    assert answer.complaint[0] == f"rooflines: {message}"
    assert "Traceback" not in answer.err
    assert recorded.facts.status == "failed"


def test_a_script_that_refuses_its_arguments_prints_its_own_usage(profile):
    answer, _ = profile(TRAINS, "--nonsense")
    assert answer.code == 2
    assert "train.py: error: unrecognized arguments: --nonsense" in answer.err
    assert answer.complaint[0] == "rooflines: the script 'train.py' exited with 2."


def test_a_script_that_ends_early_says_so_and_still_gives_step_times(profile):
    answer, recorded = profile(TRAINS, "--steps", "2")
    assert answer.code == 0, answer
    assert "script ended" in answer.out
    assert len(recorded.facts.steps.timed_ns) == 1
    (note,) = recorded.facts.notes
    assert note.startswith("the steps ended in the timed pass (1 warm-up step, 1 timed, 0 traced): no operators were traced.")


def test_a_script_without_a_step_is_refused_with_what_to_do(profile):
    answer, recorded = profile("print('nothing to see')\n")
    assert answer.code == 2
    assert "ended without a step" in answer.complaint[0]
    assert "rooflines.record()" in answer.complaint[1]
    assert recorded is None, "there is nothing to keep"


def test_data_loader_workers_that_run_modules_are_not_steps(profile):
    answer, recorded = profile(
        """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Embeds(Dataset):
            def __init__(self): self.table = torch.nn.Linear(8, 8)
            def __len__(self): return 64
            def __getitem__(self, index):
                with torch.no_grad():
                    return self.table(torch.randn(8))

        model = torch.nn.Linear(8, 2)
        if __name__ == "__main__":
            with torch.no_grad():
                for batch in DataLoader(Embeds(), batch_size=4, num_workers=2):
                    model(batch)
            print("ended")
    """,
        options=["--to-end"],
    )
    assert answer.code == 0, answer
    assert "ended" in answer.out
    calls = {(row.name, row.shapes): row.calls for row in rooflines.analyze(recorded).operators}
    assert [count for (name, _), count in calls.items() if name == "aten::addmm"] == [1]


@pytest.mark.slow
def test_a_compiled_model_in_a_script(profile):
    answer, recorded = profile("""
        import torch
        model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    """)
    assert answer.code == 0, answer
    assert len(recorded.facts.steps.traced_ns) == 3
    assert recorded.facts.workload.mode == "training"
    assert "global hooks" not in answer.err


def test_a_script_beside_its_own_modules(profile, tmp_path):
    (tmp_path / "helper.py").write_text("SIZE = 8\n")
    answer, _ = profile(INFERS.replace("import torch", "import torch, helper", 1))
    assert answer.code == 0, answer


# --- where steps end ---------------------------------------------------------------------------------------------------------------


def ends(work):
    """The modes of the steps that ``work`` made."""
    seen = []
    with StepHooks(seen.append):
        work()
    return seen


@pytest.mark.unit
def test_nested_modules_are_one_step_and_gradients_on_are_none():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU()))

    def work():
        model(torch.randn(1, 4))
        with torch.no_grad():
            model(torch.randn(1, 4))
            model(torch.randn(1, 4))

    assert ends(work) == ["inference", "inference"]


@pytest.mark.unit
def test_a_forward_that_raises_does_not_lose_count():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))

    def work():
        with torch.no_grad():
            with pytest.raises(RuntimeError, match="shapes"):
                model(torch.randn(1, 5))
            model(torch.randn(1, 4))

    assert ends(work)[-1] == "inference"
    assert len(ends(work)) <= 2


@pytest.mark.unit
def test_after_an_optimizer_stepped_only_optimizers_make_steps():
    model = torch.nn.Linear(4, 4)

    def work():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
        with torch.no_grad():
            model(torch.randn(1, 4))  # an evaluation before the training
        model(torch.randn(1, 4)).sum().backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            model(torch.randn(1, 4))
        torch.amp.GradScaler("cpu", enabled=False).step(optimizer)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)

    assert ends(work) == ["training", "training"]


@pytest.mark.unit
def test_an_optimizer_made_of_others_makes_one_step():
    class Both(torch.optim.Optimizer):
        def __init__(self, parameters):
            parameters = list(parameters)
            super().__init__(parameters, {})
            self.inner = [torch.optim.SGD(parameters, lr=0.1), torch.optim.Adam(parameters)]

        def step(self, closure=None):
            for optimizer in self.inner:
                optimizer.step()

    assert ends(lambda: Both(torch.nn.Linear(2, 2).parameters()).step()) == ["training"]


@pytest.mark.unit
def test_hooks_are_gone_afterwards():
    from torch.nn.modules import module

    before = torch.optim.Optimizer.__init__
    made = []
    seen = ends(lambda: made.append(torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)))
    made[0].step()
    assert seen == []
    assert torch.optim.Optimizer.__init__ is before
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks


@pytest.mark.unit
def test_modules_called_in_other_threads_are_not_steps():
    import threading

    def call():
        with torch.no_grad():
            torch.nn.Linear(2, 2)(torch.randn(1, 2))

    def work():
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    assert ends(work) == []
    assert ends(call) == ["inference"]


@pytest.mark.unit
def test_the_command_that_make_profile_runs_reads_rooflines_profile(tmp_path):
    """What is stored has the program's name, not the path of the environment that ``make`` made."""
    line = (
        "import sys; sys.argv[0] = '/x/.venv/bin/rooflines'; from rooflines.pipeline import default_command; print(default_command())"
    )
    done = subprocess.run(
        [sys.executable, "-c", line, "profile", "--model", "resnet50", "-o", "my runs"], capture_output=True, text=True, env=os.environ
    )
    assert done.stdout.strip() == "rooflines profile --model resnet50 -o 'my runs'"
