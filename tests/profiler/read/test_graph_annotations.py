"""Annotations and lanes of CUDA graphs, as PyTorch's writers put them into traces: tests/data/traces/README.md says how."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from rooflines import analyze
from rooflines.profiler.read.records import Scope
from rooflines.profiler.tree.tree import BACKWARD, FORWARD, UNKNOWN, module_annotation
from tests.roofline.own.test_graphs import captured, gaps, hip, module_calls, replay
from tests.roofline.rooms import divided
from tests.traces import kernel, mm, span, trace

TRACES = Path(__file__).parents[2] / "data" / "traces"
JOINED, LANES = (TRACES / f"resnet50_h100_graph_{what}.json.gz" for what in ("joined", "lanes"))
PERFETTO = TRACES / "resnet50_h100_graph_lanes.pftrace"


def annotated(event, node=1, **args):
    return event | {"args": event["args"] | {"graph node id": (5 << 32) + node, **args}}


def replayed(at, correlation, *annotations):
    """A launch of a graph with one kernel for each of these annotations."""
    begun, *ran = replay(at, correlation, *("kernel" for _ in annotations), of="cuda")
    return [begun, *(annotated(event, node + 1, **args) for node, (event, args) in enumerate(zip(ran, annotations, strict=True)))]


def modules(result):
    """The time of each module and phase."""
    times = Counter()
    for row in (*result.rows, *result.gaps):
        times[result.calls.modules[row.module].path if row.module >= 0 else "", row.phase] += row.time_ns
    return times


@pytest.mark.parametrize("path", [JOINED, LANES, PERFETTO], ids=lambda path: path.name)
def test_kernels_have_the_annotated_modules_and_all_of_their_time(path):
    if path is PERFETTO:
        pytest.importorskip("perfetto")
    events = [event for event in json.loads(gzip.decompress(JOINED.read_bytes()))["traceEvents"] if event.get("cat") == "kernel"]
    expected = Counter()
    for event in events:
        expected[event["args"].get("module_fqn") or event["args"].get("name", "")] += event["dur"] / 2e6
    analysis = analyze(path)
    assert {row.path: row.time_s for row in analysis.modules} == pytest.approx(
        {name: expected[name] for name in expected if name}, rel=1e-5
    )
    assert [row.calls for row in analysis.modules] == [1, 1, 1]
    assert analysis.timeline.busy_s == pytest.approx(sum(expected.values()), rel=1e-5)
    assert {row.module: row.phase for row in analysis.unmodeled} == {name: "backward" * (name == "classifier") for name in expected}
    # The joiner keeps no stream but the lane.
    streams = {stream for row in analysis.unmodeled for one in row.kernels for stream in one.streams}
    assert streams == ({7, 60, 61} if path is JOINED else {7})


def test_the_module_around_the_launch_keeps_the_time_of_its_scopes():
    steps = [span(module_annotation("model", "Net"), 0, 5)], [span(module_annotation("model", "Net"), 1000, 5)]
    replays = (replayed(at, 50 + at, {"name": "attn"}, {"name": "model.mlp"}, {}) for at in (1, 1001))
    result = divided(*(event for pair in zip(steps, replays, strict=True) for events in pair for event in events))
    assert modules(result) == {("model.attn", UNKNOWN): 20_000, ("model.mlp", UNKNOWN): 20_000, ("model", UNKNOWN): 20_000}
    assert module_calls(result) == {"model": 2, "model.attn": 2, "model.mlp": 2}


def test_the_module_of_the_capture_counts_before_the_annotation():
    fc = [span(module_annotation("fc", "Linear"), 5, 20), mm(10, 8, 4, 8, 16), hip(12, "gemm", 1)]
    begun, *ran = replay(1000, 50, "gemm", "gemm")
    ran = [annotated(event, node + 1, name="scope", autograd_phase="backward") for node, event in enumerate(ran)]
    result = divided(*captured(*fc, mm(30, 8, 4, 16, 32), hip(32, "gemm", 3)), begun, *ran)
    assert modules(result) == {("fc", FORWARD): 10_000, ("scope", BACKWARD): 10_000}
    assert result.matched_ns == 20_000


def test_scopes_are_those_of_graph_nodes():
    events = [
        kernel("eager", 0, 1, 1) | {"args": {"name": "no scope", "graph node id": 0, "graph id": 0}},
        annotated(kernel("a", 2, 1, 2), name="block", module_fqn="layers.0", autograd_phase="backward"),
        # PyTorch's collector writes the graph apart, and the annotations as one text; the inner ones come last.
        kernel("b", 4, 1, 2) | {"args": {"graph id": 5, "annotation": json.dumps([{"name": "outer"}, {"name": "inner"}])}},
        annotated(kernel("c", 6, 1, 2), 3, annotation="[{", name=7),
    ]  # fmt: skip
    read = trace(*events)
    assert [read.scopes[at] if at >= 0 else None for at in read.device.scope.tolist()] == [
        None, Scope("layers.0", is_backward=True), Scope("inner"), None,
    ]  # fmt: skip
    assert read.device.graph_node.tolist() == [0, (5 << 32) + 1, 5 << 32, (5 << 32) + 3]


def test_a_collective_of_an_annotation_is_that_of_its_kernel():
    note = {"Collective name": "allreduce", "In msg nelems": "64", "Out msg nelems": "64", "dtype": "Float", "Process Group Name": "0"}
    flat, listed = trace(annotated(kernel("k", 0, 1, 2), **note)), trace(annotated(kernel("k", 0, 1, 2), annotation=json.dumps([note])))
    assert flat.collectives == listed.collectives
    assert [(one.kind, one.bytes, one.group) for one in flat.collectives] == [("allreduce", 256, "0")]


def test_a_lane_is_no_stream():
    lanes = [annotated(kernel("a", 0, 1, 2, stream=60), original_stream=7), annotated(kernel("b", 2, 1, 2), annotated_stream=60)]
    assert trace(*lanes).device.stream.tolist() == [7, 7]


def test_nodes_that_are_no_work_are_left_out():
    work = replayed(0, 50, {"name": "a"})
    nodes = [annotated(kernel("EventRecord", 50, 900, 50, cat=cat), 9, name="b") for cat in ("graph_event_node", "graph_host_node")]
    assert gaps(divided(*work, *nodes)) == gaps(divided(*work))
