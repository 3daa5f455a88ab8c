"""A program's own profilers and what else observes it: each function is a program, chosen by the first argument."""

import cProfile
import json
import os
import pstats
import sys
import threading
from collections import Counter

import torch
from small import network, one_step, operators, train
from torch.optim import SGD
from torch.overrides import TorchFunctionMode
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler
from torch.utils._python_dispatch import TorchDispatchMode

import rooflines
from rooflines.errors import UsageError


def autograd_profile():
    """The old profiler, torch.autograd.profiler, and its marks for other tools."""
    with torch.autograd.profiler.profile(record_shapes=True) as profiler:
        train(5)
    print(*operators(profiler), sep="\n  ")
    for marks in (torch.autograd.profiler.emit_itt, torch.autograd.profiler.emit_nvtx):
        try:
            with marks():
                train(5)
            print(marks.__name__, "marked")
        except Exception as error:
            print(marks.__name__, type(error).__name__, str(error).splitlines()[0])
    train(10)


def execution_trace():
    """An observer of operators that writes a file of its own."""
    observer = ExecutionTraceObserver().register_callback("observed.json")
    observer.start()
    train(6)
    observer.stop()
    observer.unregister_callback()
    with open("observed.json") as file:
        names = Counter(node["name"] for node in json.load(file)["nodes"])
    print(*sorted(names.items()), sep="\n")
    train(12)


def own_cprofile():
    """cProfile around training, which counts the calls of the program's functions."""
    profiler = cProfile.Profile()
    profiler.enable()
    train()
    profiler.disable()
    calls = pstats.Stats(profiler).stats
    print(sorted((name, count) for (file, _, name), (_, count, *_) in calls.items() if file.endswith("small.py")))


def own_monitoring():
    """A tool of sys.monitoring (Python 3.12) that counts the starts of functions."""
    calls = Counter()
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        print("no sys.monitoring")
        train()
    else:
        for number in range(6):
            print(number, monitoring.get_tool(number))
        monitoring.use_tool_id(monitoring.PROFILER_ID, "mine")
        monitoring.register_callback(
            monitoring.PROFILER_ID, monitoring.events.PY_START,
            lambda code, _: calls.update([code.co_name] if code.co_filename.endswith("small.py") else []),
        )  # fmt: skip
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)
        train()
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
        print(sorted(calls.items()))


def own_profile():
    """A profiler of the program's own around a part of its training, with a range of its own."""
    train(4)
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    for part in range(3):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for _ in range(3):
                with record_function("my range"):
                    one_step(model, optimizer)
        print(part, *operators(profiler), sep="\n  ")
    train(12)


def own_profile_around():
    """A profiler of the program's own around all of its training."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True) as profiler:
        train(20)
    print(*operators(profiler), sep="\n  ")


def own_profile_nested():
    """Two profilers of the program's own, one inside the other, which torch refuses or not."""
    with profile(activities=[ProfilerActivity.CPU]) as outer:
        train(2)
        try:
            with profile(activities=[ProfilerActivity.CPU]) as inner:
                train(2)
            print("inner", *operators(inner), sep="\n  ")
        except RuntimeError as error:
            print("refused", str(error).splitlines()[0])
    print("outer", len(operators(outer)) > 0)
    train(12)


def own_profile_scheduled():
    """A profiler of the program's own with a schedule, told of each step."""

    def ready(profiler):
        print("profile of step", profiler.step_num, *operators(profiler), sep="\n  ")

    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=2, warmup=1, active=2, repeat=2), on_trace_ready=ready
    ) as profiler:
        train(16, after_step=profiler.step)
    train(12)


def own_profile_started():
    """A profiler of the program's own that is started in one step and stopped in another."""
    profiler, steps = profile(activities=[ProfilerActivity.CPU]), iter(range(30))

    def after_step():
        step = next(steps)
        if step == 5:
            profiler.start()
        if step == 8:
            profiler.stop()
            print(*operators(profiler), sep="\n  ")

    train(20, after_step=after_step)


def own_setprofile():
    """A profile function of the program's own in sys.setprofile and threading.setprofile."""
    calls = Counter()

    def profiler(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.endswith("small.py"):
            calls[frame.f_code.co_name] += 1

    threading.setprofile(profiler)
    sys.setprofile(profiler)
    train()
    print(sys.getprofile() is profiler)
    thread = threading.Thread(target=train, args=(3, "thread "))
    thread.start()
    thread.join()
    sys.setprofile(None)
    print(sorted(calls.items()))


def own_settrace():
    """A line tracer as coverage has one, in this and in other threads."""
    lines = Counter()

    def tracer(frame, event, argument):
        if not frame.f_code.co_filename.endswith("small.py"):
            return None
        if event == "line":
            lines[frame.f_code.co_name, frame.f_lineno] += 1
        return tracer

    threading.settrace(tracer)
    sys.settrace(tracer)
    train()
    print(sys.gettrace() is tracer)
    thread = threading.Thread(target=train, args=(3, "thread "))
    thread.start()
    thread.join()
    sys.settrace(None)
    print(*sorted(lines.items()), sep="\n")


def own_trace():
    """A trace that the program exports, and one that torch's handler for TensorBoard writes."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        train(3)
    profiler.export_chrome_trace("own.pt.trace.json")
    with open("own.pt.trace.json") as file:
        events = json.load(file)["traceEvents"]
    print(
        *sorted(Counter((event["cat"], event["name"]) for event in events if event.get("cat", "").startswith("cpu")).items()), sep="\n"
    )
    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=tensorboard_trace_handler("board", worker_name="me")):
        train(12)
    print(len(os.listdir("board")), "file for TensorBoard")
    train(12)


def record_in_own_profile():
    """A recording of the program's own (rooflines.record), by itself and inside a torch profiler, where it is refused."""
    for profiler in (None, profile()):
        try:
            if profiler is not None:
                profiler.start()
            with rooflines.record(f"recorded{profiler is not None}", ceilings="spec", formats=["json"], steps=2, warmup=1) as r:
                train(8, after_step=r.step)
            print("recorded", r.run.facts.status, r.done)
        except UsageError as error:
            print("refused:", str(error).split(":")[0].split("into")[0])
        finally:
            if profiler is not None:
                profiler.stop()
    train(8)


def modes():
    """Modes of the program's own that see torch's functions and operators."""
    seen = Counter()

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            seen[getattr(function, "__name__", str(function))] += 1
            return function(*arguments, **(keywords or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
            seen[str(operator)] += 1
            return operator(*arguments, **(keywords or {}))

    with Functions():
        train(8)
    print(*sorted(seen.items()), sep="\n")
    seen.clear()
    with Operators():
        train(8)
    print(*sorted(seen.items()), sep="\n")
    train(8)


globals()[sys.argv.pop(1)]()
