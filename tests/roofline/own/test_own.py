"""Whose time it is, on traces whose arithmetic can be read off. Times are microseconds in, nanoseconds out."""

import functools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read import intervals
from rooflines.profiler.read.records import OPERATOR
from rooflines.profiler.tree.tree import module_annotation
from tests.roofline.rooms import attributed, divided
from tests.traces import add, allocation, kernel, launch, mm, op, span


def divide(*events):
    """The attribution of these events, with what holds for every one: all time is divided, and none of it twice within a thread."""
    result = divided(*events)
    found, total = result.trace, sum(part.time_ns for part in (*result.rows, *result.gaps))
    if len(found.device):
        assert result.busy_ns <= total <= int((found.device.end_ns - found.device.start_ns).sum())
    else:
        # The operators of all threads, in the window: what lies on two threads at once is shared by them.
        host = found.host
        threads = [(host.kind == OPERATOR) & (host.thread == thread) for thread in np.unique(host.thread)]
        busy = [
            intervals.intersect(intervals.union(host.start_ns[one], result.calls.end_ns[one]), intervals.merge(result.windows))
            for one in threads
        ]
        assert total == intervals.length(functools.reduce(intervals.merge, busy, np.empty((0, 2), np.int64)))
    return result


def linear(ts, dur, size=8, **more):
    """``aten::linear`` of a square matrix: PyTorch decomposes it."""
    return op(
        "aten::linear", ts, dur, dims=[[size, size], [size, size], []], types=["float", "float", ""], concrete=["", "", ""], **more
    )


def transpose(ts, dur, **more):
    """A view."""
    return op("aten::t", ts, dur, dims=[[8, 8]], types=["float"], **more)


def times(result):
    rows: dict[str, int] = {}
    for row in result.rows:
        rows[row.signature.name] = rows.get(row.signature.name, 0) + row.time_ns
    return rows, {gap.name: gap.time_ns for gap in result.gaps}


LOSS = op(
    "aten::cross_entropy_loss", 0, 50, dims=[[8, 10], [8], [], [], [], []],
    types=["float", "long int", "", "Scalar", "Scalar", "Scalar"], concrete=["", "", "", "1", "-100", "0."],
)  # fmt: skip
SOFTMAX = op("aten::_log_softmax", 10, 12, dims=[[8, 10], [], []], types=["float", "Scalar", "Scalar"], concrete=["", "1", "False"])
NODE = "autograd::engine::evaluate_function: MmBackward0"


def clone(ts, dur, *shape):
    return op("aten::clone", ts, dur, dims=[list(shape), []], types=["float", ""], strides=[[1] * len(shape), []], concrete=["", ""])


def largest(*second, name="aten::max"):
    """A maximum: of two tensors, or along a dimension."""
    dims, types, concrete = [[9, 9], *second], ["float", *("Scalar" if not one else "float" for one in second)], ["", *second[1:]]
    return op(name, 0, 20, dims=dims, types=types, concrete=[*("" if one else "1" for one in concrete)])


STEP = span("ProfilerStep#0", 0, 100)
CHANGE = op("aten::silu_", 5, 30, dims=[[9, 8]], types=["float"], strides=[[1, 1]], concrete=[""])
# Events; rows and gaps with their times; other figures of the attribution.
CPU = {
    "what PyTorch decomposes is passed through": (
        [LOSS, SOFTMAX, mm(30, 15, 8, 8, 8)],
        {"aten::cross_entropy_loss": 50_000 - 27_000, "aten::_log_softmax": 12_000, "aten::mm": 15_000}, {}, {},
    ),
    # linear spends 5 before its view, 10 between, 25 after the product
    "all of a wrapper's time is that of the one operator in it": (
        [linear(0, 60), transpose(5, 5), mm(20, 15, 8, 8, 8)], {"aten::mm": 60_000}, {}, {"overlap_ns": 0},
    ),
    "an overload that calls an operator of another name is its wrapper": (
        [largest([9, 9]), largest([9, 9], name="aten::maximum") | {"ts": 5, "dur": 10}], {"aten::maximum": 20_000}, {}, {},
    ),
    "another overload is the operator": ([largest([], []), clone(5, 10, 9, 9)], {"aten::max": 20_000}, {}, {}),
    "a saved copy in a wrapper": (
        [op("aten::to", 0, 50), CHANGE, clone(10, 10, 9, 8), add(60, 5)],
        {"aten::silu_": 40_000, "aten::clone": 10_000, "aten::add": 5_000}, {}, {},
    ),
    "what lies outside the steps is not counted": (
        [mm(0, 5, 8, 8, 8), span("ProfilerStep#0", 20, 50), mm(30, 10, 8, 8, 8), mm(75, 2, 8, 8, 8), span("ProfilerStep#1", 80, 20),
         add(90, 5)],
        {"aten::mm": 10_000, "aten::add": 5_000}, {}, {"span_ns": 70_000},
    ),
    "a step mark that misses the work is no step": (
        [mm(0, 10, 8, 8, 8), mm(20, 10, 8, 8, 8), span("ProfilerStep#6", 31, 1)],
        {"aten::mm": 20_000}, {}, {"steps": 0, "span_ns": 30_000},
    ),
    "a step inside of a step is none": (
        [STEP, span("ProfilerStep#1", 10, 80), mm(20, 30, 8, 8, 8)], {"aten::mm": 30_000}, {}, {"steps": 1, "span_ns": 100_000},
    ),
    "two threads at once share the time": (
        [STEP, mm(10, 50, 8, 8, 8), mm(30, 50, 8, 8, 8, tid=2)], {"aten::mm": 70_000}, {}, {"busy_ns": 70_000, "overlap_ns": 0},
    ),
}  # fmt: skip
GPU = {
    "a kernel belongs to the counted operator around its launch": (
        [linear(0, 20), mm(5, 10, 8, 8, 8), op("aten::resolve_conj", 6, 5), launch(7, 2, 11), kernel("gemm", 100, 30, 11)],
        {"aten::mm": 30_000}, {}, {"span_ns": 30_000},
    ),
    "kernels that a wrapper or a view in it launches are the one operator's": (
        [linear(0, 40), launch(1, 1, 1), mm(5, 10, 8, 8, 8), launch(6, 2, 2), op("aten::empty", 20, 10, dims=[[]], types=[""]),
         launch(21, 2, 3), launch(35, 2, 4), *(kernel(name, 50 + 15 * i, 10, i + 1) for i, name in enumerate("abcd"))],
        {"aten::mm": 40_000}, {}, {},
    ),
    "kernels that one with several owners launches itself are listed": (
        [op("aten::to", 0, 40), mm(5, 5, 8, 8, 8), launch(6, 2, 1), add(12, 5), launch(13, 2, 2), launch(30, 2, 3),
         *(kernel(name, 50 + 10 * i, 10, i + 1) for i, name in enumerate("abc"))],
        {"aten::mm": 10_000, "aten::add": 10_000}, {"aten::to": 10_000}, {},
    ),
    "a saved copy has its kernel": (
        [op("aten::to", 0, 50), CHANGE, clone(10, 10, 9, 8), launch(12, 2, 1), launch(25, 2, 2), kernel("copy", 100, 7, 1),
         kernel("silu", 110, 9, 2)],
        {"aten::silu_": 9_000, "aten::clone": 7_000}, {}, {},
    ),
    "kernels of one call on two streams are a union": (
        [mm(0, 20, 8, 8, 8), launch(1, 2, 1), launch(5, 2, 2), kernel("a", 100, 30, 1), kernel("b", 120, 30, 2, stream=8)],
        {"aten::mm": 50_000}, {}, {"overlap_ns": 0},
    ),
    "kernels of two operators at once overlap": (
        [mm(0, 5, 8, 8, 8), launch(1, 2, 1), add(10, 5), launch(11, 2, 2), kernel("a", 100, 30, 1), kernel("b", 110, 30, 2, stream=8)],
        {"aten::mm": 30_000, "aten::add": 30_000}, {}, {"busy_ns": 40_000, "overlap_ns": 20_000},
    ),
    "kernels without operator or launch are listed and orphans counted": (
        [launch(0, 2, 1), kernel("lonely", 10, 5, 1), kernel("orphan", 20, 7, 99), op("mylib::fused", 30, 9), launch(31, 2, 3),
         kernel("mine", 40, 11, 3)],
        {}, {"lonely": 5_000, "orphan": 7_000, "mylib::fused": 11_000}, {"orphans": 1, "idle_ns": 41_000 - 23_000},
    ),
    "a trace with nothing but kernels has orphans only": (
        [kernel("a", 0, 5, 1), kernel("b", 10, 5, 2)], {}, {"a": 5_000, "b": 5_000}, {"orphans": 2},
    ),
    "work that ran no kernel is kept with no time": (
        [mm(0, 5, 8, 8, 8), add(10, 5), launch(11, 2, 2), kernel("b", 110, 30, 2)], {"aten::mm": 0, "aten::add": 30_000}, {}, {},
    ),
    "a device event belongs to the step that launched it": (
        [mm(0, 5, 8, 8, 8), launch(1, 2, 1), span("ProfilerStep#0", 10, 20), mm(11, 5, 8, 8, 8), launch(12, 2, 2),
         kernel("before", 15, 5, 1), kernel("mine", 40, 5, 2)],
        {"aten::mm": 5_000}, {}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*CPU, *GPU])
def test_whose_time_it_is(name):
    events, rows, gaps, figures = {**CPU, **GPU}[name]
    result = divide(*events)
    assert times(result) == (rows, gaps)
    assert {figure: getattr(result, figure) for figure in figures} == figures
    assert [row.calls for row in result.rows if row.signature.name == "aten::mm"][1:] == []


# --- CPU ---------------------------------------------------------------------------------------------------------------------------


def upsample(ts, dur, *sizes):
    """``aten::upsample_nearest2d`` of 8 x 8 to 16 x 16; the overload with a kernel has a size for each dimension."""
    return op(
        "aten::upsample_nearest2d", ts, dur, dims=[[1, 1, 8, 8], [], *([] for _ in sizes)],
        types=["float", "ScalarList", *("" for _ in sizes)], concrete=["", "[16, 16]", *("" for _ in sizes)],
    )  # fmt: skip


def test_an_overload_that_calls_the_one_with_a_kernel_is_its_wrapper_and_the_kernel_owns_what_it_calls():
    result = divide(upsample(0, 50, None), upsample(5, 40, None, None), clone(10, 10, 1, 1, 8, 8))
    assert times(result) == ({"aten::upsample_nearest2d": 50_000}, {})
    (row,) = result.rows
    assert (len(row.signature.args), row.count.kind) == (4, "counted")


def test_one_that_calls_itself_with_an_output_is_the_operator():
    outer = op("aten::arange", 0, 20, dims=[[], [], [], [], []], types=["Scalar", "", "", "", ""], concrete=["5", "", "", "", ""])
    inner = op(
        "aten::arange", 5, 10, dims=[[], [], [], [0]], types=["Scalar", "Scalar", "Scalar", "long int"], concrete=["0", "5", "1", ""]
    )
    (row,) = divide(outer, inner).rows
    assert (row.count.work.bytes_written, row.time_ns) == (5 * 8, 20_000)


@pytest.mark.parametrize(("name", "shape", "expected"), [
    ("aten::silu_", (9, 8), {"aten::silu_": 20_000, "aten::clone": 10_000}),
    ("aten::silu_", (8, 9), {"aten::silu_": 30_000}),  # of something else: the operator's own business
    ("aten::silu", (9, 8), {"aten::silu": 30_000}),
])  # fmt: skip
def test_what_autograd_saves_of_an_operand_that_is_changed_in_place_is_a_copy_of_its_own(name, shape, expected):
    change = op(name, 0, 30, dims=[[9, 8]], types=["float"], strides=[[1, 1]], concrete=[""])
    result = divide(change, clone(5, 10, *shape), op("aten::copy_", 7, 5, dims=[list(shape)] * 2, types=["float"] * 2))
    assert times(result) == (expected, {})


@dataclass
class Node:
    """An operator of the random call trees: what it is, how long it takes before each of the operators below it and after them."""

    kind: str
    pauses: list[int]
    below: "list[Node]" = field(default_factory=list)
    number: int = 0
    start: int = 0
    end: int = 0

    def place(self, now, numbers):
        self.number, self.start = next(numbers), now
        for pause, node in zip(self.pauses, self.below, strict=False):
            now = node.place(now + 1 + pause, numbers)
        self.end = now + 1 + self.pauses[-1]
        return self.end

    def events(self):
        make = {
            "counted": lambda *when: mm(*when, self.number, 8, 8), "decomposed": lambda *when: linear(*when, size=self.number),
            "view": transpose, "composite": lambda *when: op("aten::to", *when), "unknown": lambda *when: op("mylib::u", *when),
            "node": lambda *when: op("MmBackward0", *when), "range": lambda *when: span("anything", *when),
        }[self.kind]  # fmt: skip
        return [make(self.start, self.end - self.start), *(event for node in self.below for event in node.events())]

    # The rule again, as one would say it: a walk of the tree.

    def decomposes(self):
        """Whether it, or anything below, is an operator that PyTorch decomposes, as below a product only ``torch.vmap`` calls one."""
        return self.kind == "decomposed" or any(node.decomposes() for node in self.below)

    def maps(self):
        return self.kind == "counted" and self.decomposes()

    def workers(self):
        """The owners with work if this node is passed through or owns."""
        if self.kind in ("counted", "view") and not self.maps():
            return [self] if self.kind == "counted" else []
        below = [worker for node in self.below for worker in node.workers()]
        return [self] if self.kind == "decomposed" and not below else below

    def owns(self):
        return (self.kind in ("counted", "view") and not self.maps()) or self.workers() == [self]

    def unknowns(self):
        return not self.owns() and (self.kind == "unknown" or any(node.unknowns() for node in self.below))

    def operators(self):
        """The operators directly below, ranges passed through."""
        return [found for node in self.below for found in ([node] if node.kind != "range" else node.operators())]

    def divide(self, times):
        workers = self.workers()
        wraps = (self.kind in ("decomposed", "composite") or self.maps()) and len(workers) == 1 and not self.unknowns()
        if self.owns() or wraps:
            whose = self if self.owns() else workers[0]
            times[whose.label()] = times.get(whose.label(), 0) + 1000 * (self.end - self.start)
            return
        if self.kind != "range":
            own = self.end - self.start - sum(node.end - node.start for node in self.operators())
            times[self.label()] = times.get(self.label(), 0) + 1000 * own
        for node in self.below:
            node.divide(times)

    def label(self):
        names = {"counted": "aten::mm", "view": "aten::t", "composite": "aten::to", "unknown": "mylib::u", "node": "MmBackward0"}
        name = names.get(self.kind, "aten::linear")
        return f"{name} {self.number}" if self.kind in ("counted", "decomposed") else name


PAUSES = st.lists(st.integers(0, 3), min_size=4, max_size=4)
KINDS = st.sampled_from(["counted", "decomposed", "decomposed", "view", "composite", "composite", "unknown", "node", "range"])
TREES = st.recursive(
    st.builds(Node, KINDS, PAUSES), lambda inner: st.builds(Node, KINDS, PAUSES, st.lists(inner, max_size=3)), max_leaves=25
)


@pytest.mark.ci
@given(st.lists(TREES, min_size=1, max_size=3))
def test_any_call_tree_is_divided_as_a_walk_of_it_divides_it(roots):
    numbers, now, expected = iter(range(1, 10_000)), 0, {}
    for root in roots:
        now = root.place(now, numbers)
        root.divide(expected)
    result = divide(*(event for root in roots for event in root.events()))
    found: dict[str, int] = {}
    for row in result.rows:
        name = row.signature.name
        first = row.signature.tensors[0].shape[0] if row.signature.tensors else 0
        # One that is passed through has no count left; all that are have one name.
        label = f"{name} {first}" if name in ("aten::mm", "aten::linear") else name
        found[label] = found.get(label, 0) + row.time_ns
    for gap in result.gaps:  # one a phase
        found[gap.name] = found.get(gap.name, 0) + gap.time_ns
    assert found == expected
    flops = sum(row.count.work.matrix_flops * row.calls for row in result.rows if row.count.work)
    workers = [worker for root in roots for worker in root.workers()]
    assert flops == sum(2 * node.number * (8 * 8 if node.kind == "counted" else node.number**2) for node in workers)


def test_an_operator_that_outlasts_a_step_ends_with_it_and_what_it_calls_later_counts_by_itself():
    result = attributed(
        span("ProfilerStep#0", 0, 100), span("ProfilerStep#1", 120, 180),
        op("mylib::block", 10, 250), mm(20, 30, 8, 8, 8), mm(105, 10, 8, 8, 8), mm(130, 100, 8, 8, 8),
    )  # fmt: skip
    assert times(result) == ({"aten::mm": 130_000}, {"mylib::block": 60_000})
    assert (result.busy_ns, result.overlap_ns) == (190_000, 0)


@pytest.mark.parametrize("events", [
    [op("ProfilerStep#1", 0, 0)], [op("ProfilerStep#1", 0, 0), mm(0, 0, 8, 8, 8)], [span("only an annotation", 0, 5)],
    [allocation(0, 8)],
])  # fmt: skip
def test_a_trace_without_any_time_is_divided_into_nothing(events):
    result = divide(*events)
    assert (result.span_ns, result.busy_ns, result.idle_ns) == (0, 0, 0)


def test_a_list_takes_its_item_size_from_what_the_call_allocated():
    cat = op("aten::cat", 0, 10, dims=[[[4, 8], [4, 8]], []], types=["TensorList", "Scalar"], concrete=["", "0"])
    counted = {}
    for size in (4, 2):
        (row,) = divide(cat, allocation(2, 64 * size)).rows
        counted[size] = row.count.work.bytes
    assert counted == {4: 2 * 64 * 4, 2: 2 * 64 * 2}


def test_rows_are_split_by_module_and_phase_and_signature():
    result = divide(
        span(module_annotation("a", "Linear"), 0, 20), mm(1, 5, 8, 8, 8), mm(8, 5, 8, 8, 8),
        span(module_annotation("b", "Linear"), 30, 20), mm(31, 5, 8, 8, 8), mm(38, 5, 8, 8, 9),
    )  # fmt: skip
    assert sorted((row.module, row.calls) for row in result.rows) == [(0, 2), (1, 1), (1, 1)]


# --- GPU ---------------------------------------------------------------------------------------------------------------------------


def test_time_launched_as_a_graph_is_said_and_never_dropped():
    graph = launch(0, 2, 1) | {"name": "cudaGraphLaunch"}
    result = divide(graph, kernel("a", 20, 5, 1), kernel("b", 25, 5, 1), add(40, 5), launch(41, 2, 2), kernel("c", 60, 5, 2))
    assert result.graphs_ns == 10_000
    assert times(result) == ({"aten::add": 5_000}, {"CUDA graph 1": 10_000})
    assert [(kernel.name, kernel.calls, kernel.time_ns) for kernel in result.gaps[0].kernels] == [("a", 1, 5_000), ("b", 1, 5_000)]


def test_calls_without_a_count_are_calls_of_the_operator_not_of_its_kernels():
    result = divide(op("mylib::fused", 0, 9), launch(1, 2, 1), launch(4, 2, 2), kernel("a", 20, 5, 1), kernel("b", 30, 5, 2))
    assert [(gap.name, gap.calls, gap.time_ns) for gap in result.gaps] == [("mylib::fused", 1, 10_000)]


TWO_STEPS = (span("ProfilerStep#0", 0, 100), span("ProfilerStep#1", 100, 100), mm(5, 10, 8, 8, 8), mm(105, 10, 8, 8, 8))


def test_orphans_are_the_steps_also_when_the_device_runs_behind_the_host():
    result = divide(*TWO_STEPS, kernel("a", 50, 100, 1), kernel("b", 150, 40, 2), kernel("c", 210, 300, 3))
    assert (result.orphans, result.span_ns, result.busy_ns) == (3, 510_000, 440_000)
    assert result.windows.tolist() == [[0, 150_000], [150_000, 510_000]]
    assert result.notes == ()


def test_orphans_behind_what_was_launched_behind_the_steps_are_not_the_steps():
    later = (launch(205, 2, 9), kernel("behind", 300, 10, 9), kernel("orphan", 320, 30, 8))
    result = divide(*TWO_STEPS, launch(6, 2, 1), kernel("a", 50, 100, 1), kernel("b", 210, 80, 2), *later)
    assert (result.orphans, result.span_ns, result.busy_ns) == (1, 290_000, 180_000)
    (note,) = result.notes
    assert note.startswith("40.0 µs of device time")


def test_the_optimizer_s_long_lists_are_the_parameters():
    # Traces leave lists of more than 30 tensors out: the dims are there and empty.
    lists = {"dims": [[], [], []], "types": ["TensorList", "TensorList", "Scalar"], "concrete": ["", "", "-0.1"]}
    update = op("aten::_foreach_add_", 51, 5, **lists)
    counter = op("aten::_foreach_add_", 58, 5, dims=[[], []], types=["TensorList", "Scalar"], concrete=["", "1"])
    events = span("Optimizer.step#Adam.step", 50, 20), update, counter
    assert {gap.name for gap in attributed(*events).gaps} == {"aten::_foreach_add_"}
    known = attributed(*events, parameter_elements=1000)
    (row,) = known.rows
    # p += -0.1 * g: a multiplication and an addition an element; p and g read, p written.
    assert (row.count.work.other_flops, row.count.work.bytes) == (2 * 1000, 3 * 4 * 1000)
    # The counter of steps is a number a tensor, not a parameter each: it stays uncounted.
    assert [(gap.name, gap.calls) for gap in known.gaps] == [("aten::_foreach_add_", 1)]


def test_under_autocast_the_call_with_the_cast_arguments_is_the_operator():
    outer = mm(0, 40, 64, 64, 64)
    cast = op(
        "aten::copy_", 5, 8, dims=[[64, 64], [64, 64], []], types=["c10::BFloat16", "float", "Scalar"], concrete=["", "", "False"]
    )
    inner = op("aten::mm", 20, 15, dims=[[64, 64], [64, 64]], types=["c10::BFloat16", "c10::BFloat16"])
    result = divide(outer, op("aten::to", 4, 10), cast, inner)
    rows = {
        (row.signature.name, row.count.kind, row.count.work.precision if row.count.work else None): row.time_ns for row in result.rows
    }
    assert rows["aten::mm", "counted", "bf16"] == 15_000
    assert rows["aten::mm", "composite", None] == 40_000 - 10_000 - 15_000
    assert rows["aten::copy_", "counted", None] == 10_000  # with the aten::to around it


def test_under_autocast_an_operator_whose_casts_were_made_before_is_one_row():
    inner = op("aten::mm", 20, 15, dims=[[64, 64], [64, 64]], types=["c10::BFloat16", "c10::BFloat16"])
    (row,) = divide(mm(0, 40, 64, 64, 64), inner).rows
    assert (row.count.work.precision, row.time_ns, row.calls) == ("bf16", 40_000, 1)


def test_allocations_on_the_host_do_not_size_what_a_gpu_wrote():
    cat = op("aten::cat", 0, 10, dims=[[[1 << 19, 2], [1 << 19, 2]], []], types=["TensorList", "Scalar"], concrete=["", "0"])
    total = 1 << 21
    on_gpu = allocation(2, 2 * total + 512) | {"args": {"Bytes": 2 * total + 512, "Device Type": 1, "Device Id": 0}}
    (row,) = divide(cat, allocation(1, 16), on_gpu, launch(3, 1, 7), kernel("cat", 50, 5, 7)).rows
    assert row.count.work.bytes == 2 * total * 2  # half precision, whatever the allocator rounded up
