"""Perfetto traces: the same figures as the Kineto trace of the same events, and what is said of a trace of another program."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rooflines import analyze
from rooflines.errors import TraceError
from tests.traces import parse_trace

protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
TRACES = Path(__file__).parents[2] / "data" / "traces"
PERFETTO = TRACES / "bert-small_h100_inference.pftrace"
KINETO = TRACES / "bert-small_h100_inference.json.gz"


def trace(*packets):
    """A trace of packets written as keyword arguments of ``TracePacket``."""
    return protos.Trace(packet=[protos.TracePacket(**fields) for fields in packets]).SerializeToString()


def thread(uuid, tid=1):
    return {"track_descriptor": {"uuid": uuid, "thread": {"pid": 7, "tid": tid, "thread_name": "main"}}}


def begin(time_ns, name, uuid=1):
    return {"timestamp": time_ns, "track_event": {"type": 1, "track_uuid": uuid, "name": name, "categories": ["cpu_op"]}}


def end(time_ns, uuid=1):
    return {"timestamp": time_ns, "track_event": {"type": 2, "track_uuid": uuid}}


def spans(content):
    read = parse_trace(content)
    host = read.host
    return sorted((read.names[host.name[i]], int(host.end_ns[i] - host.start_ns[i])) for i in range(len(host)))


def test_figures_are_those_of_the_kineto_trace_of_the_same_events():
    kineto, perfetto = analyze(KINETO, ceilings="H100 SXM5"), analyze(PERFETTO, ceilings="H100 SXM5")
    assert perfetto.totals == kineto.totals
    assert perfetto.timeline == kineto.timeline
    assert perfetto.idle_breakdown == kineto.idle_breakdown
    assert perfetto.modules == kineto.modules
    # Perfetto's event of a copy has no direction, and is_nonzero is one.
    ours, theirs = ([row for row in one.operators if row.name != "aten::is_nonzero"] for one in (perfetto, kineto))
    assert [(row.name, row.module, row.shapes, row.flops, row.bytes, row.time_s, row.bound) for row in ours] == [
        (row.name, row.module, row.shapes, row.flops, row.bytes, row.time_s, row.bound) for row in theirs
    ]


NAMES = ("aten::a", "aten::b", "aten::c")


@pytest.mark.parametrize(("packets", "lengths"), [
    # ends that are not in the order of time are in that of the begins
    ([*map(begin, (1000, 2000, 4000), NAMES), end(6000), end(5000), end(7000)], (5000, 3000)),
    # an end closes the slice that began last
    ([begin(1000, "aten::a"), begin(2000, "aten::b"), end(3000), begin(4000, "aten::c"), end(5000), end(6000)], (5000, 1000, 1000)),
])  # fmt: skip
def test_which_begin_an_end_belongs_to(packets, lengths):
    found = spans(trace(thread(1), *packets))
    assert [name for name, _ in found] == [*NAMES]
    assert found[: len(lengths)] == list(zip(NAMES, lengths, strict=False))


def test_a_trace_of_another_program_says_what_is_in_it():
    content = trace(
        thread(1), {"timestamp": 5, "track_event": {"type": 1, "track_uuid": 1, "name": "frame", "categories": ["gfx"]}}, end(9)
    )
    with pytest.raises(TraceError, match=r"no operators of PyTorch are in it: it has 2 track_event, 1 track_descriptor\."):
        parse_trace(content)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_damaged_trace_is_refused(keep):
    content = gzip.decompress(PERFETTO.read_bytes())
    with pytest.raises(TraceError, match="damaged or cut off"):
        parse_trace(content[: int(keep * len(content))])


def test_json_that_begins_with_a_line_is_json():
    assert len(parse_trace(b"\n" + gzip.decompress(KINETO.read_bytes())).host) > 0
