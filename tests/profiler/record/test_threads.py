"""Programs whose threads run PyTorch: all operators are recorded, or it is said that they are not."""

import subprocess
import textwrap
import threading

import pytest
import torch

import rooflines
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.record.script import StepHooks
from rooflines.profiler.record.tracer import Tracer
from rooflines.roofline.advise.findings import find
from tests.commands import command, environment, quick

POOL = """
    from concurrent.futures import ThreadPoolExecutor
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 32, bias=False)).eval()

    def infer(number):
        with torch.no_grad():
            for _ in range(4):  # long enough for two calls to overlap
                torch.randn(256, 256).sort()
            return model(torch.randn(16, 64)).shape[0]

    with ThreadPoolExecutor(WORKERS) as pool:
        print("sum", sum(pool.map(infer, range(CALLS))))
"""
CALL_FLOPS = 2 * 16 * 64 * 64 + 2 * 16 * 64 * 32


def test_operators_of_a_pool_of_threads_are_those_of_the_whole_program(profiled):
    answer, recorded = profiled(POOL.replace("WORKERS", "2").replace("CALLS", "9"), options=["--to-end"])
    assert answer.out.startswith("sum 144\n"), answer
    analysis = rooflines.analyze(recorded)
    assert analysis.totals.matrix_flops == 9 * CALL_FLOPS
    assert "Host-bound" not in analysis.verdict
    assert any("operators of all threads are in the trace" in note for note in analysis.notes)
    assert not any("no module was called" in note for note in analysis.notes)


@pytest.mark.slow
def test_calls_of_one_thread_of_a_pool_are_steps(profiled):
    _, recorded = profiled(POOL.replace("WORKERS", "1").replace("CALLS", "80"), options=["--to-end"])
    analysis = rooflines.analyze(recorded)
    assert (analysis.totals.matrix_flops, analysis.steps.count, analysis.basis.served) == (CALL_FLOPS, 2, True)
    assert "Host-bound" not in analysis.verdict


@pytest.mark.ci
def test_a_process_that_waits_for_connections_may_wait_between_its_steps(profiled):
    _, recorded = profiled("""
        import socket, time, torch
        listening = socket.create_server(("127.0.0.1", 0))
        model = torch.nn.Linear(64, 64).eval()
        with torch.no_grad():
            for _ in range(30):
                model(torch.ones(16, 64))
                time.sleep(0.002)  # no request yet
        """)
    analysis = rooflines.analyze(recorded)
    assert analysis.basis.served
    assert "Host-bound" not in analysis.verdict
    assert "torch.compile" not in str(find(analysis)), find(analysis)


@pytest.mark.slow
def test_where_torch_traces_one_thread_nothing_is_concluded_from_the_others(tmp_path):
    (tmp_path / "mixed.py").write_text(
        textwrap.dedent("""
        import threading, torch
        model = torch.nn.Linear(64, 64)

        def infer():
            with torch.no_grad():
                for _ in range(40):
                    model(torch.randn(16, 64))

        optimizer = torch.optim.SGD(torch.nn.Linear(8, 8).parameters(), 0.1)
        other = threading.Thread(target=infer)
        other.start()
        for _ in range(30):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        other.join()
    """)
    )
    older = "import rooflines.profiler.record.tracer as tracer; tracer._has_setting = lambda name: name != 'profile_all_threads'; "
    line = command("profile", "mixed.py", "--to-end", *quick(tmp_path), "-o", "out")
    line[1:3] = ["-c", older + "from rooflines.cli import main; main()"]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    analysis = rooflines.analyze(tmp_path / "out")
    assert analysis.unrecorded == ("the program called modules 40 times on 1 other thread, and the trace has one thread",)
    assert analysis.bound_breakdown is analysis.division is analysis.timeline is None
    assert analysis.operators, "what was recorded is shown"
    assert "is not judged: the program called modules 40 times on 1 other thread" in analysis.verdict


def test_threads_share_the_time_in_which_their_operators_run_at_once(tmp_path):
    settings = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    together, x = threading.Barrier(2), torch.randn(300, 300)

    def work():
        together.wait()
        for _ in range(10):
            torch.sort(x)

    with torch.profiler.profile(record_shapes=True, experimental_config=settings) as profiler:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    profiler.export_chrome_trace(str(tmp_path / "two.json"))
    analysis = rooflines.analyze(tmp_path / "two.json")
    whole = sum(row.time_s for row in analysis.rows)
    assert whole == pytest.approx(analysis.timeline.busy_s, rel=1e-3), "no nanosecond twice"
    assert 0 < analysis.basis.shared_s <= whole


def test_steps_follow_from_thread_to_thread_unless_their_calls_overlap():
    model, doing = torch.nn.Linear(2, 2), []

    def infer():
        with torch.no_grad():
            model(torch.ones(1, 2))

    def elsewhere(work):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    with StepHooks(doing.append, lambda: True, lambda: False, lambda: True, Guard()):
        infer()
        elsewhere(infer)
        infer()
        assert doing.count("inference") == 3, "one after another"
        model.register_forward_pre_hook(lambda *_: elsewhere(infer) if threading.current_thread() is threading.main_thread() else None)
        for _ in range(5):
            infer()
    assert doing.count("threads") == 1, "three calls that overlapped those of another thread"


def test_tuples_that_one_thread_makes_while_another_ends_a_trace_are_whole():
    """``f(*(a generator))`` fails where anything holds the unfinished tuple, as ``gc.get_objects`` does for a moment."""

    def traces():
        for _ in range(3):
            tracer = Tracer(lambda: torch.device("cpu"), cuda=False, steps=1, modules=None, all_threads=True, guard=Guard())
            tracer.start()
            torch.ones(2) + 1
            tracer.step()

    traces()
    thread = threading.Thread(target=traces)
    thread.start()
    made = 0
    while thread.is_alive():
        made = len((lambda *words: words)(*(sum(range(100)) for _ in range(1000))))
    assert made == 1000
