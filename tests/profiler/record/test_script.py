"""Scripts that know nothing of us: where their steps end, and what becomes of their output, arguments and exits."""

import itertools
import signal
import textwrap
import threading

import pytest
import torch

import rooflines
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.record.passes import TRACED_STEPS
from rooflines.profiler.record.script import StepHooks, _Turns
from tests.commands import quick, run, start

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


def counts(recorded):
    steps = recorded.facts.steps
    return len(steps.warmup_ns), len(steps.timed_ns), len(steps.traced_ns)


def test_a_training_script_gets_its_own_arguments_also_those_that_look_like_ours(profiled):
    answer, recorded = profiled(TRAINS, "--lr", "1", "--steps", "4000", "--device", "mine")
    assert "script says 1.0 4000 mine __main__" in answer.out
    assert "script ended" not in answer.out, "a script is stopped when enough is recorded"
    facts = recorded.facts
    assert (facts.status, facts.workload.mode, facts.workload.name) == ("complete", "training", "train.py")
    assert counts(recorded) == (1, 2, TRACED_STEPS)
    assert facts.settings.command.endswith("-o out -- --lr 1 --steps 4000 --device mine")
    assert {row.phase for row in rooflines.analyze(recorded).operators} >= {"forward", "backward", "optimizer"}


@pytest.mark.ci
def test_an_inference_script_steps_with_each_outermost_call(profiled, tmp_path):
    (tmp_path / "helper.py").write_text("SIZE = 8\n")  # a module next to the script
    _, recorded = profiled(INFERS.replace("import torch", "import torch, helper", 1), options=["--threads", "1"])
    assert recorded.facts.workload.mode == "inference"
    assert recorded.facts.environment.threads == 1
    calls = {row.name: row.calls for row in rooflines.analyze(recorded).operators}
    assert calls["aten::addmm"] == 1, "one linear layer, so one call a step"


@pytest.mark.ci
def test_a_script_that_raises_shows_its_traceback_and_keeps_what_was_recorded(profiled):
    answer, recorded = profiled(TRAINS.replace("optimizer.step()", "optimizer.step(); 1 / 0 if _ == 2 else None"), code=1)
    assert answer.complaint[0] == "rooflines: the script 'train.py' raised ZeroDivisionError: division by zero"
    assert answer.complaint[1] == "  The recording so far is in 'out'."
    assert "ZeroDivisionError: division by zero" in answer.err.split("rooflines: ")[0]
    assert 'train.py", line ' in answer.err
    assert "runpy" not in answer.err
    assert "Recommendations" in answer.out, "what was recorded is reported"
    assert recorded.facts.status == "failed"
    assert (len(recorded.facts.steps.timed_ns), recorded.facts.steps.traced) == (1, "early")


@pytest.mark.ci
@pytest.mark.parametrize(("ending", "message", "code"), [
    ("sys.exit(3)", "the script 'train.py' exited with 3.", 3),
    pytest.param('sys.exit("no data")', "the script 'train.py' exited: no data.", 1, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_script_that_exits_with_an_error(profiled, ending, message, code):
    answer, recorded = profiled(TRAINS.replace("optimizer.step()", f"optimizer.step(); {ending}"), code=code)
    assert answer.complaint[0] == f"rooflines: {message}"
    assert "Traceback" not in answer.err
    assert recorded.facts.status == "failed"


@pytest.mark.ci
def test_a_script_that_refuses_its_arguments_prints_its_own_usage(profiled):
    answer, recorded = profiled(TRAINS, "--nonsense", code=2)
    assert recorded is None, "there is nothing to keep"
    assert "train.py: error: unrecognized arguments: --nonsense" in answer.err
    assert answer.complaint[0] == "rooflines: the script 'train.py' exited with 2."


@pytest.mark.ci
def test_a_script_that_ends_early_says_so_and_still_gives_operators_and_step_times(profiled):
    answer, recorded = profiled(TRAINS, "--steps", "3")
    assert "script ended" in answer.out
    assert (len(recorded.facts.steps.timed_ns), len(recorded.facts.steps.traced_ns)) == (1, 1)
    (note,) = recorded.facts.notes
    assert note.startswith("the program ended early (1 warm-up step, 1 timed, 1 traced): operators are those of one step before")
    assert "one step)" in rooflines.analyze(recorded).verdict, "the error of a single step is not known"


@pytest.mark.ci
def test_a_script_without_a_step_is_recorded_as_one(profiled):
    _, recorded = profiled("import torch; a = torch.ones(64, 64); print((a @ a).sum())\n")
    analysis = rooflines.analyze(recorded)
    assert {row.name: row.calls for row in analysis.operators}["aten::mm"] == 1
    assert analysis.basis.start_up
    assert "start-up included" in analysis.verdict
    assert any(note.startswith("no step was recognized") for note in analysis.notes)


@pytest.mark.ci
def test_a_program_that_is_none_of_pytorch_ends_as_it_does_alone_with_what_to_do(profiled):
    answer, recorded = profiled("print('nothing to see')\n")
    assert "ended without running a PyTorch operator" in answer.complaint[0]
    assert "rooflines monitor" in answer.complaint[1]
    assert recorded is None, "there is nothing to keep"


@pytest.mark.ci
def test_a_script_that_only_defines_a_model_is_told_how_to_profile_it(profiled):
    answer, recorded = profiled("def _own():\n    pass\ndef sized(width):\n    pass\ndef network(width=8):\n    return width\n")
    assert answer.complaint[1].startswith("  If network() makes a model: rooflines profile --model ")
    assert answer.complaint[1].endswith(".py:network")
    assert recorded is None


@pytest.mark.ci
def test_data_loader_workers_that_run_modules_are_not_steps(profiled):
    answer, recorded = profiled(
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
    assert "ended" in answer.out, "with --to-end a script is not stopped"
    assert recorded.facts.status == "complete"
    calls = {(row.name, row.shapes): row.calls for row in rooflines.analyze(recorded).operators}
    assert [count for (name, _), count in calls.items() if name == "aten::addmm"] == [1]


@pytest.mark.slow
def test_a_compiled_model_in_a_script(profiled):
    answer, recorded = profiled("""
        import torch
        model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    """)
    assert len(recorded.facts.steps.traced_ns) >= TRACED_STEPS
    assert recorded.facts.workload.mode == "training"
    assert "global hooks" not in answer.err


@pytest.mark.ci
def test_a_module_runs_as_under_python_m(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "sizes.py").write_text("SIZE = 8\n")
    source = textwrap.dedent(TRAINS).replace("import argparse", "from .sizes import SIZE; import argparse")
    (tmp_path / "package" / "train.py").write_text(source)
    answer = run("profile", "-m", "package.train", *quick(tmp_path), "-o", "out", "--", "--lr", "2", cwd=tmp_path)
    assert answer.code == 0, answer
    assert "script says 2.0" in answer.out
    assert rooflines.load(tmp_path / "out").facts.workload.name == "package.train"
    missing = run("profile", "-m", "package.trian", *quick(tmp_path), cwd=tmp_path)
    assert missing.complaint[0] == "rooflines: no module named 'package.trian'."


@pytest.mark.ci
def test_a_program_that_forks_is_recorded_by_the_parent_only(profiled):
    source = TRAINS.replace('print("script ended")', 'print("child" if os.fork() == 0 else os.wait()[1])', 1)
    answer, recorded = profiled(source.replace("import argparse", "import os, argparse"), "--steps", "5")
    assert answer.out.count("child") == 1
    assert answer.out.count("\n0\n") == 1, "the child ended as a program that has come to its end"
    assert answer.out.count("Operators") == 1
    assert recorded.facts.status == "complete"


@pytest.mark.ci
def test_a_program_reads_its_input_changes_its_directory_and_deletes_ours(profiled, tmp_path):
    source = textwrap.dedent(TRAINS).replace("optimizer.zero_grad()", "step(_); optimizer.zero_grad()").replace(
        "import argparse", "import os, shutil\ndef step(n):\n    if n == 3:\n        print('read', input())\n"
        "        shutil.rmtree('out'); os.chdir('/')\nimport argparse")  # fmt: skip
    answer, recorded = profiled(source, given="a line\n")
    assert "read a line" in answer.out
    facts = recorded.facts
    assert (facts.status, len(facts.steps.timed_ns), len(facts.steps.traced_ns)) == ("complete", 2, TRACED_STEPS)
    assert (tmp_path / "out" / "analysis.json").is_file()


@pytest.mark.ci
def test_ctrl_c_once_gives_the_report_of_what_there_is(tmp_path):
    source = textwrap.dedent(TRAINS).replace("for _ in range(args.steps):", "import itertools, time\nfor _ in itertools.count():")
    source = source.replace("optimizer.step()", "optimizer.step(); print('step', _, flush=True); time.sleep(0.05)")
    (tmp_path / "train.py").write_text(source)
    process = start("profile", "train.py", *quick(tmp_path)[:4], "--steps", "1000", "-o", "out", cwd=tmp_path)
    for line in process.stdout:
        if line.startswith("step 8"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Recommendations" in out
    assert "rooflines: interrupted; the partial run is in 'out'." in err
    facts = rooflines.load(tmp_path / "out").facts
    assert facts.status == "interrupted"
    assert facts.trace is not None


@pytest.mark.slow
def test_a_trace_that_grows_without_a_step_is_bounded(profiled):
    _, recorded = profiled(
        """
        import torch
        a = torch.ones(4)
        for _ in range(120_000):
            a.add_(1)
        """
    )
    (row,) = [row for row in rooflines.analyze(recorded).operators if row.name == "aten::add_"]
    assert row.calls < 100_000
    assert any("stopped before it became too large" in note for note in recorded.facts.notes)


# --- where steps end ---------------------------------------------------------------------------------------------------------------


class Seen(list):
    """What the hooks told while ``work`` ran, in order, without the calls."""

    def __init__(self, work, may_change=True):
        super().__init__()
        with StepHooks(self.append, lambda: may_change, lambda: False, lambda: True, Guard()) as self.hooks:
            work()
        self[:] = [told for told in self if told != "call"]


def models(*sizes):
    made = [torch.nn.Linear(size, size) for size in sizes]
    return [(model, torch.optim.SGD(model.parameters(), lr=0.1)) for model in made]


def train(model, optimizer):
    model(torch.randn(1, model.in_features)).sum().backward()
    optimizer.step()


def evaluate(model, calls=3):
    model.eval()
    with torch.no_grad():
        for _ in range(calls):
            model(torch.randn(1, model.in_features))
    model.train()


NESTED = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU()))


def training_alone():
    NESTED(torch.randn(1, 4))


def inference_twice():
    with torch.no_grad():
        NESTED(torch.randn(1, 4))
        NESTED(torch.randn(1, 4))


def in_another_thread():
    thread = threading.Thread(target=inference_twice)
    thread.start()
    thread.join()


def evaluations_and_schedules():
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    with torch.no_grad():
        model(torch.randn(1, 4))  # an evaluation before the training
    train(model, optimizer)
    schedule.step()
    with torch.no_grad():
        model(torch.randn(1, 4))
    torch.amp.GradScaler("cpu", enabled=False).step(optimizer)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


class Both(torch.optim.Optimizer):
    def __init__(self, parameters):
        parameters = list(parameters)
        super().__init__(parameters, {})
        self.inner = [torch.optim.SGD(parameters, lr=0.1), torch.optim.Adam(parameters)]

    def step(self, closure=None):
        for optimizer in self.inner:
            optimizer.step()


def an_optimizer_made_of_others():
    Both(torch.nn.Linear(2, 2).parameters()).step()


def turns(*times):
    """Two optimizers that alternate, each for the given number of steps."""

    def work():
        for pair, steps in zip(itertools.cycle(models(2, 3)), times, strict=False):
            for _ in range(steps):
                train(*pair)

    return work


def evaluations_between():
    ((model, optimizer),) = models(2)
    teacher = torch.nn.Linear(2, 2).eval()
    for _ in range(2):
        with torch.no_grad():
            teacher(torch.randn(1, 2))  # not trained: part of the step
        train(model, optimizer)
        train(model, optimizer)
        evaluate(model)


def an_evaluation_before():
    ((model, optimizer),) = models(2)
    evaluate(model)
    train(model, optimizer)
    train(model, optimizer)


def models_called_in_turn():
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    with torch.no_grad():
        for _ in range(3):
            second(first(torch.randn(1, 2)))


def optimizers_in_the_backward_pass():
    model = torch.nn.Linear(2, 2)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for _ in range(4):
        model(torch.randn(1, 2)).sum().backward()


def a_closure():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.randn(1, 2)).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


T, INFER = "training", "inference"


@pytest.mark.parametrize(("work", "may_change", "told"), [
    (training_alone, True, []),
    (inference_twice, True, [INFER] * 2),  # nested modules are one step
    (in_another_thread, True, []),
    (evaluations_and_schedules, True, [T, T]),
    (an_optimizer_made_of_others, True, [T]),
    # the first optimizer ended a step before the second was known; from then on the second ends them
    (turns(*[1] * 8), True, [T, "change", T, T, T]),
    # one that steps every fifth time ends the step
    (turns(*[5, 1] * 3), True, [T] * 5 + ["change", T, T]),
    # once steps are timed, another is part of them until the first is gone
    (turns(3, 60), False, [T] * 3 + ["change"] + [T] * 9),
    (evaluations_between, True, [T, T, "pause", "resume", T, T, "pause"]),
    (an_evaluation_before, True, [INFER] * 3 + ["change", T]),  # it makes steps that the training replaces
    (models_called_in_turn, True, [INFER, "change", INFER, INFER]),
    (optimizers_in_the_backward_pass, True, [T] * 3),  # the step behind it ends
    (a_closure, True, [T, T]),
])  # fmt: skip
def test_where_steps_end(work, may_change, told):
    assert Seen(work, may_change) == told


def test_optimizers_and_evaluations_are_counted():
    assert Seen(turns(*[1] * 8)).hooks.several == 2
    assert Seen(evaluations_between).hooks.evaluations == 2


def test_a_forward_that_raises_does_not_lose_count():
    def work():
        with torch.no_grad(), pytest.raises(RuntimeError, match="shapes"):
            NESTED(torch.randn(1, 5))
        inference_twice()

    seen = Seen(work)
    assert seen[-1] == "inference"
    assert len(seen) <= 3


def test_hooks_are_gone_afterwards():
    from torch.nn.modules import module

    before = torch.optim.Optimizer.__init__
    made = []
    seen = Seen(lambda: made.extend(models(2)))
    made[0][1].step()
    assert seen == []
    assert torch.optim.Optimizer.__init__ is before
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks


def test_modules_that_are_made_in_every_call_end_its_steps():
    turns, module = _Turns(), torch.nn.Linear(2, 2)
    for _ in range(5):
        assert turns.take(module, may_change=False) == "end"
        other = torch.nn.Linear(2, 2)  # at another address, because the one before is still there
        del module
        module = other
    kept, second = module, torch.nn.Linear(2, 2)
    assert turns.take(kept, may_change=False) == "end"
    assert turns.take(second, may_change=False) == "inside", "the one that ended the steps is still there"


def test_a_model_that_made_several_steps_and_is_gone_has_no_successor():
    turns, model = _Turns(), torch.nn.Linear(2, 2)
    assert [turns.take(model, may_change=True) for _ in range(3)] == ["end"] * 3
    another = torch.nn.Linear(2, 3)
    del model
    assert turns.take(another, may_change=True) == "change"
    assert turns.take(another, may_change=True) == "end"
