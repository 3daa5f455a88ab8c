"""Random programs with profilers of their own, each profiled in a forked copy of a process that has imported torch and not used it.

``python -m tests.profiler.record.random_programs 200`` runs so many, in the working directory, which has a ``ceilings.json``.
"""

import json
import os
import sys
import textwrap
import traceback
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflines import pipeline
from rooflines.pipeline.options import ProfileOptions
from rooflines.profiler.record.script import NoOperators

STEPS = textwrap.dedent("""
    import sys, threading
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    CPU = [ProfilerActivity.CPU]

    class Mine(threading.local):  # torch crashes where two threads train one network
        def __init__(self):
            self.network = nn.Sequential(nn.Linear(16, 32, bias=False), nn.ReLU(), nn.Linear(32, 8, bias=False))
            self.optimizer = torch.optim.SGD(self.network.parameters(), 1e-3)

    mine = Mine()

    def step():
        mine.optimizer.zero_grad()
        mine.network(torch.randn(4, 16)).square().mean().backward()
        mine.optimizer.step()
""")

_COUNTS = st.integers(0, 6)
PARTS = st.one_of(
    st.tuples(st.just("free"), _COUNTS),
    st.tuples(st.just("plain"), _COUNTS, st.booleans()),
    st.tuples(st.just("schedule"), st.integers(0, 3), st.integers(0, 2), st.integers(1, 3), st.integers(0, 3), _COUNTS, st.booleans()),
    st.tuples(st.just("nested"), _COUNTS),
    st.tuples(st.just("legacy"), _COUNTS),
    st.tuples(st.just("range"), _COUNTS),
    st.tuples(st.just("observer"), _COUNTS),
    st.tuples(st.just("thread"), st.sampled_from(["free", "plain", "range"]), _COUNTS),
)
RANDOM = STEPS + textwrap.dedent("""
    import json, sys, warnings

    def steps(count):
        for _ in range(count):
            step()

    def plain(count, shapes=False):
        with profile(activities=CPU, record_shapes=shapes):
            steps(count)

    def scheduled(wait, warmup, active, repeat, count, ends):
        p = profile(activities=CPU, schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=repeat))
        p.start()
        for _ in range(count):
            step()
            p.step()
        if ends:
            p.stop()
        else:
            kept.append(p)

    def nested(count):
        with profile(activities=CPU):
            try:
                with profile(activities=CPU):
                    steps(count)
            except RuntimeError:
                pass

    def legacy(count):
        with torch.autograd.profiler.profile():
            steps(count)

    def ranged(count):
        with record_function("of the program"):
            steps(count)
            plain(1)

    def observer(count):
        observer = torch.profiler.ExecutionTraceObserver().register_callback("observed.json")
        observer.start()
        steps(count)
        observer.stop()
        observer.unregister_callback()

    def thread(kind, count):
        other = threading.Thread(target={"free": steps, "plain": plain, "range": ranged}[kind], args=(count,))
        other.start()
        steps(count)
        other.join()

    kinds = {"free": steps, "plain": plain, "schedule": scheduled, "nested": nested, "legacy": legacy, "range": ranged,
             "observer": observer, "thread": thread}
    kept = []
    for kind, *arguments in json.loads(sys.argv[1]):
        try:
            kinds[kind](*arguments)
        except RuntimeError:
            pass  # of two profilers of its own at the same time
    step()
    for each in kept:  # alone, too, Python crashes at its exit where a session of torch is still on
        each.stop()
    print("ended")
""")


def profile(parts):
    """Profile the program of these parts in a child of this process."""
    log, child = Path("out.txt"), os.fork()
    if child == 0:
        code = 99
        try:
            out = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            os.dup2(out, 1)
            os.dup2(out, 2)
            torch.set_num_threads(1)
            options = ProfileOptions(
                output=f"run-{os.getpid()}", formats=("json",), ceilings="ceilings.json", steps=2, warmup=1, device="cpu", to_end=True
            )
            pipeline.profile_script("program.py", [json.dumps(parts)], options)
            code = 0
        except NoOperators:  # the program's own profiler was always on
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    text = log.read_text(errors="replace")
    assert not os.WIFSIGNALED(status), (f"signal {os.WTERMSIG(status)}", parts, text)
    assert (os.WEXITSTATUS(status), "ended" in text) == (0, True), (parts, text)


def main(programs):
    Path("program.py").write_text(RANDOM)
    seen = []

    @settings(max_examples=programs, deadline=None, derandomize=True, database=None)
    @given(st.lists(PARTS, min_size=1, max_size=6))
    def every(parts):
        seen.append(parts)
        profile(parts)

    every()
    print(f"{len(seen)} programs")


if __name__ == "__main__":
    main(int(sys.argv[1]))
