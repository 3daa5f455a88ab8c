"""Programs with profilers of their own: theirs win, nothing crashes, and what we could see meanwhile is said."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

import rooflines
from rooflines.profiler.record.own_profilers import _is_profiling
from tests.commands import write_ceilings
from tests.profiler.record import random_programs

# Two products forward, two gradients of weights, one of an input.
STEP_FLOPS = 2 * (2 * 4 * 16 * 32) + 3 * (2 * 4 * 32 * 8)


@pytest.fixture
def answered(profiled):
    """The answer to profiling a program to its end, and its run."""
    return lambda source: profiled(random_programs.STEPS + textwrap.dedent(source), options=["--to-end"])


@pytest.mark.ci
def test_a_schedule_of_the_program_gets_its_events_and_steps_beside_it_are_recorded(answered):
    answer, recorded = answered(
        """
        with profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=2, repeat=2)) as p:
            for _ in range(50):
                step()
                p.step()
        print("rows", len([row for row in p.key_averages() if row.key == "aten::mm"]), p.step_num)
        """,
    )
    assert answer.out.startswith("rows 1 50\n")
    assert rooflines.analyze(recorded).totals.matrix_flops == STEP_FLOPS


@pytest.mark.ci
def test_a_profiler_around_all_steps_leaves_their_times_and_its_exported_trace_their_operators(answered):
    source = """
        with profile(activities=CPU, record_shapes={shapes}) as p:
            for _ in range(6):
                step()
                p.step()
        p.export_chrome_trace("own.json")
        print("rows", sum(row.count for row in p.key_averages() if row.key == "aten::mm"))
    """
    answer, recorded = answered(source.format(shapes=False))
    assert answer.out.startswith("rows 30\n")
    analysis = rooflines.analyze(recorded)
    assert analysis.steps.slowed_by == "the program's own profiler"
    assert not analysis.operators
    assert "with the program's own profiler on, whose cost is in them" in " ".join(answer.out.split())


@pytest.mark.ci
def test_the_trace_that_the_program_exports_is_used_where_there_is_none_of_ours(answered, tmp_path):
    _, recorded = answered(
        """
        with profile(activities=CPU, record_shapes=True, on_trace_ready=lambda p: p.export_chrome_trace("own.json"),
                     schedule=schedule(wait=0, warmup=1, active=5)) as p:
            for _ in range(6):
                step()
                p.step()
        """,
    )
    assert (tmp_path / "own.json").stat().st_size
    analysis = rooflines.analyze(recorded)
    assert analysis.totals.matrix_flops == STEP_FLOPS
    assert any("the program's own profiler exported" in note for note in analysis.notes)


@pytest.mark.ci
def test_a_program_that_records_itself_does_so_under_a_recording(answered):
    answer, recorded = answered(
        """
        import rooflines
        with rooflines.record("inner", formats="json", ceilings="ceilings.json") as r:
            for _ in range(30):
                step()
                r.step()
        print("inner", rooflines.analyze("inner").totals.matrix_flops)
        """,
    )
    assert answer.out.startswith(f"inner {STEP_FLOPS}\n"), answer
    assert any("records itself into 'inner'" in note for note in recorded.facts.notes)


@pytest.mark.ci
@pytest.mark.parametrize(("observed", "named"), [
    ("cProfile.Profile().runcall(loop)", "sys.setprofile (Profile)" if sys.version_info < (3, 12) else "sys.monitoring (cProfile)"),
    pytest.param("sys.settrace(tracer); loop()", "sys.settrace (tracer)", marks=pytest.mark.slow),
])  # fmt: skip
def test_what_observes_the_programs_python_code_is_named_beside_its_times(answered, observed, named):
    _, recorded = answered(f"""
        import cProfile
        def tracer(*_):
            return None
        def loop():
            for _ in range(30):
                step()
        {observed}
        """)  # fmt: skip
    assert recorded.facts.steps.slowed_by == f"the program's {named}"


def test_a_prepared_session_is_seen_beside_other_threads():
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=2, active=1)):
            assert not torch._C._autograd._profiler_enabled()
            assert _is_profiling()
        assert not _is_profiling()
    finally:
        over.set()
        thread.join()


@pytest.mark.ci
def test_a_program_that_ran_operators_under_its_own_profiler_alone_is_not_told_that_it_ran_none(answered):
    answer, _ = answered("""
        with profile(activities=CPU):
            mine.network(torch.randn(4, 16)).sum().backward()
        print("END", flush=True)
        """)
    assert answer.out == "END\n"
    assert "called modules or made optimizers, and none of its operators were recorded" in answer.err


@pytest.mark.ci
@pytest.mark.parametrize("programs", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_random_programs_with_profilers_never_crash(tmp_path, programs):
    write_ceilings(tmp_path)
    command = [sys.executable, "-m", random_programs.__name__, str(programs)]
    answer = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path.cwd())}, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-4000:]
    assert f"{programs} programs" in answer.stdout
