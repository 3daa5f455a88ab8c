"""The reader: what becomes a column, what is refused, and that nothing in a file makes it crash."""

import pytest

from rooflines.profiler.read.records import ANNOTATION, COMMUNICATION, KERNEL, MEMCPY, OPERATOR
from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.profiler.tree.tree import tree
from rooflines.roofline.count.count import count as count_calls
from rooflines.roofline.own.own import own
from tests.traces import add, allocation, kernel, launch, mm, op, parse_trace, span, trace


def test_microseconds_become_whole_nanoseconds():
    host = trace(add(4314804261234.633, 5802.092)).host
    assert host.end_ns[0] - host.start_ns[0] == 5802092
    assert host.start_ns[0] == 4314804261234633


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("opening", ["[", '{"traceEvents": ['])
@pytest.mark.parametrize("since_us", [0, (1 << 43) - 5_000, 1_712_345_678_901_234, 3_999_999_999_000_000])
def test_nanoseconds_since_1970_are_read_as_exactly_as_those_since_the_trace_began(since_us, opening, quote):
    """Operators one after another, gaps of 20 to 300 ns: a float of microseconds since 1970 would make them overlap."""
    starts, at = [], 0
    for i in range(2000):
        starts.append((at, 1500 + 37 * i % 7500))
        at += starts[-1][1] + 20 + 13 * i % 280
    events = ",".join(
        f'{{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"dur":{duration / 1000},'
        f'"ts":{quote}{since_us + start // 1000}.{start % 1000:03d}{quote}}}'
        for start, duration in starts
    )
    text = f"{opening}{events}]{'}' if opening != '[' else ''}"
    found = parse_trace(text.encode()).host
    assert (found.start_ns - 1000 * since_us).tolist() == [start for start, _ in starts]
    assert (found.end_ns - found.start_ns).tolist() == [duration for _, duration in starts]


@pytest.mark.parametrize(
    "text", ["1_712_345_678_901_234.5", " 1712345678901234.5 ", "\u0661712345678901234.5", "1.7123456789012345e15"]
)
def test_whatever_a_float_can_be_read_from_is_a_time(text):
    assert trace(add(0, 1) | {"ts": text}).host.start_ns.tolist() == [1_712_345_678_901_234_500]


def test_events_are_sorted_and_old_and_new_categories_mean_the_same():
    # Events are sorted and equal arguments share one signature.
    # Events are sorted by thread then start callers first.
    found = trace(add(10, 1, tid=2), add(5, 1), op("outer", 5, 9), add(1, 1, tid=2))
    names = [found.names[code] for code in found.host.name]
    assert names == ["aten::add", "aten::add", "outer", "aten::add"] or names == ["outer", "aten::add", "aten::add", "aten::add"]
    assert [int(s) for s in found.host.start_ns[found.host.thread == found.host.thread[0]]] == sorted(
        int(s) for s in found.host.start_ns[found.host.thread == found.host.thread[0]]
    )
    # Equal arguments share one signature.
    found = trace(mm(0, 1, 2, 3, 4), mm(5, 1, 2, 3, 4), mm(9, 1, 2, 3, 5))
    assert len(found.signatures) == 2
    assert found.signatures[0] == Signature("aten::mm", (TensorArg((2, 3)), TensorArg((3, 4))))
    # Old and new categories mean the same.
    event = {"ph": "X", "pid": 1, "tid": 7, "ts": 1, "dur": 2}
    old = {**event, "cat": "Operator", "name": "aten::mm", "args": {"Input dims": [[2, 3], [3, 4]]}}
    kernel_old = {**event, "cat": "Kernel", "name": "k", "args": {"correlation": 3, "stream": 7}}
    found = trace(old, kernel_old)
    assert found.host.kind.tolist() == [OPERATOR]
    assert found.device.kind.tolist() == [KERNEL]
    # The 2021 schema may lack types: a tensor's dtype is then unknown and the argument is missing, not float32.
    assert found.signatures[0].args == (MISSING, MISSING)


def test_a_mark_that_ends_after_the_recording_ends_with_it():
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 3, "tid": 3, "ts": 4, "dur": 9000}
    stop = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 50.5}
    ends = [int(found.host.end_ns.max()) for found in (trace(add(5, 1), step, stop), trace(add(5, 1), step))]
    assert ends == [50_500, 9_004_000]
    # A file of two recordings has two ends; operators, and what begins after the last end, stay as they are.
    late = {**step, "ts": 80, "dur": 9}
    found = trace(add(5, 1), add(40, 30), add(75, 3), late, {**stop, "ts": 20}, stop)
    assert sorted(found.host.end_ns.tolist()) == [6_000, 70_000, 78_000, 89_000]


@pytest.mark.parametrize("category", ["cuda_driver", "xpu_runtime", "xpu_driver"])
def test_the_launch_of_a_kernel_may_be_the_driver_s(category):
    found = trace({**launch(0, 2, 3), "cat": category, "name": "zeCommandListAppendLaunchKernel"}, kernel("gemm", 5, 1, 3))
    assert own(count_calls(tree(found))).calls.launch.tolist() == [0]


def test_kinds_of_events():
    # Kinds of device events.
    found = trace(
        kernel("ncclDevKernel_AllReduce", 0, 1, 1), kernel("Memcpy HtoD", 1, 1, 2, cat="gpu_memcpy"),
        kernel("gemm", 2, 1, 3), launch(0, 1, 3),
    )  # fmt: skip
    assert found.device.kind.tolist() == [COMMUNICATION, MEMCPY, KERNEL]
    # Module ranges and steps are annotations whatever their category.
    found = trace(op("nn.Module: layer1 (Conv2d)", 0, 9), span("ProfilerStep#3", 0, 10), op("Optimizer.step#SGD.step", 1, 2))
    assert found.host.kind.tolist() == [ANNOTATION] * 3
    # Memory events keep their sign.
    found = trace(allocation(5, 400), allocation(7, -400))
    assert found.memory.size_bytes.tolist() == [400, -400]


@pytest.mark.parametrize("event", [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": -2},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": None, "dur": 2},
    {"ph": "X", "cat": "cpu_op", "name": 7, "pid": 1, "tid": 1, "ts": 1, "dur": 2},
    {"ph": "X", "cat": "cpu_op", "name": "x", "ts": 1e300, "dur": 2},
])  # fmt: skip
def test_a_senseless_event_is_left_out(event):
    assert len(trace(event, add(0, 1)).host) == 1


def shaped(event, grid, block):
    event["args"] |= {"grid": grid, "block": block}
    return event


def test_a_kernel_has_its_grid_and_block_and_each_distinct_pair_is_kept_once():
    found = trace(
        shaped(kernel("a", 0, 1, 1), [16, 15, 1], [256, 1, 1]),
        shaped(kernel("a", 2, 1, 2), [16, 15, 1], [256, 1, 1]),
        shaped(kernel("b", 4, 1, 3), [4, 1, 1], [128, 1, 1]),
        kernel("c", 6, 1, 4),
    )
    assert found.launch_shapes == [((16, 15, 1), (256, 1, 1)), ((4, 1, 1), (128, 1, 1))]
    assert found.device.shape.tolist() == [0, 0, 1, -1]


@pytest.mark.parametrize("grid", [None, "16", [16, 15], [16, "x", 1], [0, 1, 1], [-1, 1, 1], [1e300, 1, 1], {"x": 1}])
def test_a_grid_that_is_none_is_not_recorded(grid):
    found = trace(shaped(kernel("a", 0, 1, 1), grid, [256, 1, 1]))
    assert found.device.shape.tolist() == [-1]


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ((230, 1024, 27, 14.5), (230, 1024, 27)),
        ((20, 0, 0, 0.03), (20, 0, 0)),  # one block on one of many multiprocessors
        ((230, 147456, 0, 14.5), (230, 147456, -1)),  # warps that are there occupy something: it was not computed
        ((230, 1024, -99, 14.5), (230, 1024, -1)),
        ((230, None, "27", "14.5"), (230, -1, 27)),
        ((32, 0, 101, 1), (32, 0, -1)),
        ((32, -1, 0, "nan"), (32, -1, -1)),
        ((32, [], {}, []), (32, -1, -1)),
        ((0, 0, None, None), (-1, -1, -1)),  # PyTorch's collector
        ((None, 1024, 50, 1), (-1, -1, -1)),
        (("a", 1024, 50, 1), (-1, -1, -1)),
    ],
)
def test_resources_of_a_launch(recorded, expected):
    fields = ("registers per thread", "shared memory", "est. achieved occupancy %", "warps per SM")
    events = [kernel("a", 0, 1, 1), kernel("a", 2, 1, 2), kernel("b", 4, 1, 3)]
    for event in events[:2]:
        event["args"] |= {name: value for name, value in zip(fields, recorded, strict=True) if value is not None}
    found = trace(*events).device
    assert list(zip(found.registers, found.shared_bytes, found.occupancy, strict=True)) == [expected, expected, (-1, -1, -1)]


def frame(name, ts, dur, tid=1):
    return {"ph": "X", "cat": "python_function", "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": {"Python id": 1}}


def test_functions_of_the_users_code_are_kept_and_those_of_torch_and_python_are_not():
    found = trace(
        add(50, 1), launch(60, 1, 1), frame("torch/nn/modules/module.py(1501): _call_impl", 0, 90),
        frame("/opt/python3.12/site-packages/torch/optim/optimizer.py(12): step", 0, 80),
        frame("<built-in method item of Tensor object at 0x7f>", 0, 70), frame("contextlib.py(81): inner", 0, 60),
        frame("/home/me/train.py(41): step", 0, 50), frame("torchvision/transforms/functional.py(7): resize", 5, 10),
        frame("nn.Module: Linear_0", 0, 40),
    )  # fmt: skip
    names = [found.frame_names[code] for code in found.frames.name.tolist()]
    assert names == ["train.py(41): step", "transforms/functional.py(7): resize"]
    assert found.frames.end_ns.tolist() == [50_000, 15_000]
    assert (found.frames.thread == found.host.thread[0]).all()
    assert "contextlib.py(81): inner" not in found.names
