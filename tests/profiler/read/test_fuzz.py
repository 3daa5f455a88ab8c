"""Damaged traces: everything that a file can be is read, repaired with a note, or refused with a TraceError.

``benchmarks/fuzz_traces.py`` looks for more; what it once found is in ``tests/data/traces/fuzz`` and is run here.
"""

import contextlib
import copy
import functools
import gzip
import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflines import serial
from rooflines.device_specs import catalog
from rooflines.device_specs.records import Ceilings
from rooflines.errors import TraceError
from rooflines.profiler.read import document, sources
from rooflines.profiler.read.reader import read, read_pieces, whole_part
from rooflines.profiler.read.records import ReadOptions, Trace
from rooflines.profiler.read.signature import MISSING, TensorArg, from_kineto
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.profiler.tree.tree import tree
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze
from rooflines.roofline.count.count import count as count_calls
from rooflines.roofline.own.own import own
from tests.traces import add, allocation, kernel, launch, mm, op, parse_trace, span, trace

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DATA = Path(__file__).parents[2] / "data" / "traces"
# The corpus, as found by the fuzzer; none is larger than some kilobytes.
CORPUS = sorted((DATA / "fuzz").glob("*.json"))


@functools.cache
def _sheet() -> Ceilings:
    return catalog.look_up("NVIDIA H100 80GB HBM3", kind="cuda", multiprocessors=132)


def _analysed(data: bytes, **limits: int) -> tuple[Trace, Analysis]:
    """The trace and its analysis, which holds together and can be written."""
    found = parse_trace(data, options=ReadOptions(**limits))
    calls = tree(found)
    attribution = own(count_calls(calls))
    assert 0 <= attribution.busy_ns <= attribution.span_ns
    assert all(row.time_ns >= 0 for row in attribution.rows)
    assert (calls.after > np.arange(len(calls.after))).all()
    assert (calls.parent < np.arange(len(calls.parent))).all()
    analysis = analyze(run_of_trace("t.json", found), _sheet(), found).analysis
    serial.to_json(analysis)
    return found, analysis


@functools.cache
def _real(name: str) -> dict[str, Any]:
    """The head of a real trace, with the events of some operators and of the kernels that they launched."""
    whole: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    events = [event for event in whole["traceEvents"] if event.get("ph") == "X"]
    kernels = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy")][:10]
    ids = {event["args"].get("correlation") for event in kernels}
    host = [event for event in events if event["cat"] == "cpu_op"][:40] + [
        event for event in events if "runtime" in event["cat"] and event["args"].get("correlation") in ids
    ]
    return {**whole, "traceEvents": host + kernels}


_ODD = (
    st.sampled_from([
        None, True, -1, 0, 2**31, 2**62, 2**63, 10**40, 1e15, 4e15, -9e15, 1e300, float("nan"), float("inf"), "", "7", "²", "1e400",
        "\ud800",
        "\x1b[0m", "x" * 5000, [], {}, [[]], [-1], [2**62, 2**62], [1.5], ["float"] * 3, "[" * 50, "{1: 2}", "[1, 'a']", "9" * 400,
    ])
    | st.floats() | st.integers() | st.text(max_size=5)
)  # fmt: skip
_FIELDS = st.sampled_from([
    "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "Input Dims", "Input type", "Input Strides", "Concrete Inputs",
    "correlation",
    "stream", "device", "Sequence number", "Fwd thread id", "External id",
])  # fmt: skip
_CHANGES = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from(["set", "set", "drop", "double", "move"]), _FIELDS, _ODD), max_size=8
)


def _changed(name: str, changes: list[Any]) -> bytes:
    """The trace with these changes to its events."""
    whole = copy.deepcopy(_real(name))
    events = whole["traceEvents"]
    for place, change, field, value in changes:
        at = place % len(events)
        event = events[at]
        if change == "set" and isinstance(event, dict):
            holder = event if field in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args") else event.get("args")
            if isinstance(holder, dict):
                holder[field] = value
        elif change == "drop":
            event.pop(field, None)
        elif change == "double":
            events.append(copy.deepcopy(event))
        elif change == "move":
            events.append(events.pop(at))
    return json.dumps(whole).encode()


@pytest.mark.ci
@pytest.mark.parametrize("name", ["toy_mi250_training", "bert-small_h100_inference"])
def test_a_real_trace_with_fields_changed_is_analysed(name):
    """Only a time beyond all others may be refused: what one event says makes no other event unreadable."""
    outcomes = []

    @settings(max_examples=50, deadline=None)
    @given(changes=_CHANGES)
    def law(changes):
        try:
            _analysed(_changed(name, changes))
            outcomes.append("read")
        except TraceError as error:
            outcomes.append("too long" if "longer than a hundred years" in str(error) else str(error))

    law()
    assert set(outcomes) <= {"read", "too long"}
    assert outcomes.count("read") > 0.9 * len(outcomes)


@pytest.mark.ci
def test_a_real_trace_with_bytes_changed_is_analysed_or_refused():
    """Most changes leave no JSON; those that do leave a trace that is read."""
    outcomes = []

    @settings(max_examples=80, deadline=None)
    @given(st.integers(0, 10**9), st.integers(1, 4))
    def law(seed, count):
        rng = random.Random(seed)
        data = bytearray(json.dumps(_real("toy_mi250_training")).encode())
        for _ in range(count):
            at = rng.randrange(len(data))
            data[at : at + rng.choice((0, 1, 5))] = rng.choice((rng.randbytes(1), b"}", b",{", b'"', b"\\", b"[", b"NaN", b"\xff", b""))
        try:
            _analysed(bytes(data))
            outcomes.append("read")
        except TraceError:
            outcomes.append("refused")

    law()
    assert outcomes.count("read") > 0.2 * len(outcomes)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_once_failed(path):
    if path.stem == "times_that_overflow":  # none of its events has a time
        with pytest.raises(TraceError, match="no operators and no kernels"):
            _analysed(path.read_bytes())
        return
    found, analysis = _analysed(path.read_bytes(), memory_limit_bytes=64 << 20)
    assert len(found.host) + len(found.device) > 0
    assert analysis.totals is not None


# --- chunks --------------------------------------------------------------------------------------------------------------------------


def _columns(found: Trace, *, events_only: bool = False) -> list[Any]:
    """All that a trace says, with names in place of their numbers, which depend on nothing but the order of the file."""
    columns: list[Any] = [found.names, found.signatures, found.collectives]
    if not events_only:
        columns += [found.devices, found.rank, found.notes]
    for table in (found.host, found.device, found.memory):
        columns += [getattr(table, field).tolist() for field in table.__slots__]
    return columns


@pytest.mark.ci
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(64, 1 << 20), st.integers(1, 1 << 16), st.sampled_from(["object", "array", "spaced", "head last"]))
def test_the_size_of_the_pieces_changes_nothing(monkeypatch, chunk, piece, form):
    whole = _real("toy_mi250_training")
    text = {
        "object": lambda: json.dumps(whole),
        "array": lambda: json.dumps(whole["traceEvents"]),
        "spaced": lambda: json.dumps(whole, indent=3),
        "head last": lambda: json.dumps({"traceEvents": whole["traceEvents"], **whole}),
    }[form]().encode()
    expected = _columns(parse_trace(text))
    with monkeypatch.context() as patch:
        patch.setattr(document, "CHUNK_BYTES", chunk)
        assert _columns(_in_pieces(text, max(piece, len(text) // 400))) == expected


def _in_pieces(data: bytes, size: int, *, partial: bool = False) -> Trace:
    return read_pieces([data[start : start + size] for start in range(0, len(data), size)], "trace", ReadOptions(partial=partial))


def test_what_looks_like_an_event_inside_one_is_none(monkeypatch):
    inner = [{"ph": "X", "cat": "cpu_op", "name": "inner", "ts": 1, "dur": 1}, {"ph": "X"}] * 400
    text = '},{"ph":"X","cat":"cpu_op","name":"in a string"},{"ph":'
    events = [add(0, 1), {**add(2, 1), "args": {"nested": inner, "text": text}}, {**add(4, 1), "other": inner}, mm(6, 1, 2, 3, 4)]
    monkeypatch.setattr(document, "CHUNK_BYTES", 128)
    found = _in_pieces(json.dumps({"traceEvents": events}).encode(), 50)
    assert sorted(found.names) == ["aten::add", "aten::mm"]
    assert len(found.host) == 4


# --- files ---------------------------------------------------------------------------------------------------------------------------


def _packed(data: bytes, how: str) -> bytes:
    return {"plain": lambda: data, "gzip": lambda: gzip.compress(data), "zstd": lambda: zstd.compress(data)}[how]()


@pytest.mark.ci
@pytest.mark.parametrize("how", ["plain", "gzip", "zstd"])
def test_a_file_cut_off_anywhere_is_refused(tmp_path, how):
    """As far as it is there, it is read where that is asked for."""
    events = [add(i, 1, size=i * i) for i in range(25)]
    whole = _packed(json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "x"}).encode(), how)
    path = tmp_path / "trace"
    path.write_bytes(whole)
    assert len(read(path).host) == 25
    most = 0
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        part = 0
        with contextlib.suppress(TraceError):
            part = len(read(path, ReadOptions(partial=True)).host)
        assert most <= part <= 25
        most = part
        with contextlib.suppress(TraceError):
            assert len(read(path).host) == 25
            # What is left of a gzip file once its contents are whole is a checksum.
            assert how == "zstd"
            assert length >= len(whole) - 5
    path.write_bytes(whole)
    assert len(read(path, ReadOptions(partial=True)).host) == 25


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_a_file_with_a_byte_changed_is_read_or_refused(tmp_path, how):
    """gzip has a checksum: only bytes of its header change nothing. This zstd file has none."""
    whole = _packed(json.dumps({"traceEvents": [add(i, 1) for i in range(5)]}).encode(), how)
    path = tmp_path / "trace"
    path.write_bytes(whole)
    expected, readable = _columns(read(path)), 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with contextlib.suppress(TraceError):
            found = _columns(read(path))
            readable += 1
            assert how == "zstd" or (place < 10 and found == expected)
    assert 4 <= readable < len(whole) / 2


@pytest.mark.parametrize(("content", "says"), [
    (b"", "it is empty"), (b" \n", "it is empty"), (b"null", "it is no object"), (b"[[[", "cut off"), (b"[]", "not a PyTorch trace"),
    (b'{"traceEvents": [', "cut off after 17 bytes"), (b'{"traceEvents": [{"ph": "X"}, {"ph', "cut off after 34 bytes"),
    (b'{"traceEvents": [{"ph": "X"}, {"ph" "X"}]}', "damaged near byte 3[4-7]"), (b'{"events": []}', "has no list of 'traceEvents'"),
    (b"\x1f\x8b\x08\x00broken", "damaged gzip"),
    (b"[" * 100_000, "nested too deeply"), (b'{"traceEvents":[' + b'{"a":' * 100_000, "nested too deeply"),
    (b'{"traceEvents": 7}', "no list of 'traceEvents'"), (b'{"traceEvents": {"a": []}}', "no list of 'traceEvents'"),
    (b"PK\x03\x04zip", "zip archive"), (b"\x00" * 5000, "not a PyTorch trace"), (b"\x89PNG\r\n\x1a\n", "not a PyTorch trace"),
    (b'{"traceEvents": [{"ph":"X","name":"fusion","ts":1,"dur":1},{"ph":"M","args":{"name":"/device:TPU:0"}}]}', "XLA"),
    (b'[{"ph":"B","cat":"blink","ts":1}]', "no operators and no kernels"),
    (b"\x28\xb5\x2f\xfd\x00\xa0" + bytes(100), "too much memory"),  # a window of zstd of 1 GiB
])  # fmt: skip
def test_what_is_no_trace_is_refused_in_a_sentence(tmp_path, content, says):
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says):
        read(path)


def test_what_is_no_file_is_refused(tmp_path):
    for path, says in (
        (tmp_path, "it is a directory"),
        ("/dev/zero", "it is a device or a socket"),
        (str(tmp_path / "nul\x00"), "cannot read the trace"),
        (tmp_path / "none.json", "cannot read the trace"),
    ):
        with pytest.raises(TraceError, match=says):
            read(path)
    path = tmp_path / "t.json"
    path.write_text("[]")
    path.chmod(0)
    if not os.access(path, os.R_OK):  # this user may not read everything
        with pytest.raises(TraceError, match="Permission denied"):
            read(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_read_where_somebody_writes_into_it(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(sources, "_PATIENCE_S", 0.1)
    with pytest.raises(TraceError, match="no data arrived through the pipe"):
        read(pipe)
    monkeypatch.setattr(sources, "_PATIENCE_S", 30)
    writer = threading.Thread(target=lambda: pipe.write_bytes(gzip.compress(json.dumps([add(0, 1)]).encode())))
    writer.start()
    assert len(read(pipe).host) == 1
    writer.join()


@pytest.mark.ci
@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_a_file_that_expands_without_measure_is_refused(tmp_path, monkeypatch, how):
    monkeypatch.setattr(sources, "_EXPANSION_COUNTS_FROM", 8 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(_packed(b'{"traceEvents":[' + b'{"ph":"X"},' * 1_500_000, how))
    with pytest.raises(TraceError, match="expands more than 500-fold"):
        read(path)


@pytest.mark.parametrize("data", [b" " * 40_000_000, b'{"a":"' + b"x" * 40_000_000, b'{"traceEvents":[{"a":"' + b"x" * 40_000_000])
def test_what_has_no_event_for_long_is_refused(data):
    with pytest.raises(TraceError, match=r"first 32 MiB|longer than 32 MiB"):
        parse_trace(data)


# --- events --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [
    op("n" * 10_000_000, 5, 1), {**add(5, 1), "cat": "c" * 10_000_000}, {**add(5, 1), "tid": "t" * 10_000_000},
    op("aten::add", 5, 1, dims=[[1]], types=["float"], concrete=["v" * 10_000_000]),
], ids=["name", "category", "thread", "value"])  # fmt: skip
def test_ten_megabytes_of_text_are_cut(event):
    found, _ = _analysed(json.dumps([add(0, 1), event]).encode())
    assert len(found.host) in (1, 2)
    assert all(len(name) <= 4096 for name in found.names)
    assert all(len(repr(signature)) < 10_000 for signature in found.signatures)


def _many(template: str, count: int) -> bytes:
    return ('{"traceEvents":[' + ",".join(template.replace("%", str(i)) for i in range(count)) + "]}").encode()


@pytest.mark.ci
@pytest.mark.parametrize("template", [
    '{"ph":"X","cat":"cpu_op","name":"op%","pid":1,"tid":1,"ts":%,"dur":1}',
    '{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":%,"ts":%,"dur":1}',
    '{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":%,"dur":1,"args":{"Input Dims":[[%]],"Input type":["float"]}}',
    '{"ph":"X","cat":"kernel","name":"nccl","pid":1,"tid":1,"ts":%,"dur":1,"args":{"Collective name":"c","Process Group Name":"g%"}}',
], ids=["names", "threads", "signatures", "collectives"])  # fmt: skip
def test_many_distinct_things_meet_the_memory_limit(template):
    data = _many(template, 40_000)
    with pytest.raises(TraceError, match=r"more than the memory limit of 5\.00 MB; [\d,]+ events were read"):
        parse_trace(data, options=ReadOptions(memory_limit_bytes=5_000_000))
    assert len(parse_trace(data, options=ReadOptions(memory_limit_bytes=200_000_000)).names) > 0


@pytest.mark.ci
def test_arguments_that_are_cheap_to_write_and_dear_to_keep_meet_the_memory_limit():
    event = '{"ph":"X","cat":"cpu_op","name":"aten::cat","ts":1,"dur":1,"args":{"Input Dims":[[[%]' + ",[]" * 100_000 + "]]}}"
    with pytest.raises(TraceError, match="more than the memory limit"):
        parse_trace(_many(event, 3), options=ReadOptions(memory_limit_bytes=30_000_000))


@pytest.mark.ci
@pytest.mark.parametrize("events", [
    [add(i * 0.001, 100 - i * 0.002) for i in range(20_000)],
    [add(i, 1000) for i in range(20_000)],
    [add(2 * i, 20_000 + i) for i in range(20_000)],
    [add(0, 1) for _ in range(20_000)],
], ids=["in each other", "stairs", "stairs that grow", "all at once"])  # fmt: skip
def test_events_deep_in_each_other(events):
    found, analysis = _analysed(json.dumps(events).encode())
    assert len(found.host) == 20_000
    assert analysis.totals is not None


def test_sizes_that_no_tensor_has_are_no_arguments():
    def first(dims: Any, kind: str = "float", strides: Any = None) -> Any:
        return from_kineto("aten::mm", {"Input Dims": [dims], "Input type": [kind], "Input Strides": [strides]}).args[0]

    for dims in ([-5, 3], [2**62, 2**62], [1.5], [True, 3], ["3"], [10**400], [1] * 10_000):
        assert first(dims) is MISSING
        assert first([dims], "TensorList") is MISSING
    assert first([2, 3], "float99") is MISSING
    assert first([2**31, 2**31]) == TensorArg((2**31, 2**31))
    assert first([0, 2**62, 0]) == TensorArg((0, 2**62, 0))
    assert first([2, 3], strides=[3]) == first([2, 3], strides=["3", 1]) == TensorArg((2, 3))


@pytest.mark.parametrize(
    "text", ["{1: 2}", "[[1], 2]", "[" * 4000, "9" * 4000, "[1" + ", 1" * 1200 + "]", "b'x'", "{1, 2}", "1 +", "x" * 5000]
)
def test_values_that_no_argument_has_are_missing(text):
    assert from_kineto("aten::add", {"Concrete Inputs": [text], "Input type": [""]}).args == (MISSING,)


@pytest.mark.parametrize(
    "name", ["aten::tril", "aten::tril_indices", "aten::linalg_householder_product", "aten::_ctc_loss", "aten::lstm"]
)
def test_sizes_that_a_formula_walks_through_are_bounded(name):
    most = 2**60
    found = trace(op(name, 0, 5, dims=[[most, 1, 1], [most, 1, 1], [], [], [], [], [], []],
                     types=["float", "float", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar"],
                     concrete=["", "", str(most), str(most), str(most), "1", "1", "1"]))  # fmt: skip
    attribution = own(count_calls(tree(found)))
    assert len(attribution.rows) + len(attribution.gaps) == 1


def test_times_beyond_measure():
    found, analysis = _analysed(json.dumps([
        add(8.9e15, 5), add(0, 8.9e15), add(-1e300, 1), add(1, float("nan")), kernel("k", 10, 5, 1), launch(2, 1, 1), add(1, 9),
    ]).encode())  # fmt: skip
    assert len(found.host) == 2
    assert len(found.device) == 1
    assert any("4 events with an invalid time" in note for note in analysis.notes)
    assert any("NaN were skipped" in note for note in analysis.notes)
    with pytest.raises(TraceError, match="more than 100 years"):
        parse_trace(json.dumps([add(0, 3e15, tid=i) for i in range(4)]).encode())


def test_ids_of_every_kind():
    events = [
        {**kernel("k", 10 + i, 0.5, 1), "args": {"correlation": value, "device": value, "stream": value}}
        for i, value in enumerate([1, 1.0, "1", "²", [1], {"a": 1}, 2**62, 10**30, -1, None, True, "x"])
    ]  # fmt: skip
    found, _ = _analysed(json.dumps([add(0, 5), launch(1, 1, 1), launch(2, 1, 1), *events]).encode())
    assert len(found.device) == len(events)
    assert sorted(found.device.device.tolist())[-1] == 1
    assert (found.device.correlation == 1).sum() == 2  # 1 and "1"


def test_what_was_repaired_is_said():
    cases = {
        b'"name": "aten::\xff"': "not UTF-8",
        b'"name": "aten::\\q"': "backslashes",
        b'"name": "aten::\\u001b"': "control characters in names were replaced",
        b'"name": "a\x01"': "JSON does not allow",
        b'"name": "a", "pid": NaN': "NaN",
        b'"name": "' + b"n" * 5000 + b'"': "were cut",
    }  # fmt: skip
    for name, said in cases.items():
        data = json.dumps([add(0, 1), mm(2, 1, 2, 3, 4)]).encode().replace(b'"name": "aten::add"', name)
        _, analysis = _analysed(data)
        assert any(said in note for note in analysis.notes), said
    _, analysis = _analysed(json.dumps([add(0, 1), 7, None, [add(1, 1)]]).encode())
    assert "entries that are not events were skipped" in analysis.notes
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"traceEvents":' + json.dumps([add(0, 1)]).encode() + b"}"
    assert any("before the events could not be read" in note for note in _analysed(deep)[1].notes)


@pytest.mark.ci
def test_damaged_fields_many_threads_and_many_steps():
    # Fields that are damaged in themselves are missing.
    data = json.dumps([add(0, 1), mm(2, 1, 2, 3, 4), allocation(3, 2**60)]).encode()
    for old, new in ((b'"float"', b'"fl\xfft"'), (b"[1000]", b"[1" + b"0" * 5000 + b"]")):
        found = parse_trace(data.replace(old, new))
        assert len(found.host) == 2
    # A hundred thousand threads that allocate.
    events = '{"ph":"i","name":"[memory]","tid":%,"ts":%,"args":{"Bytes":8}},'
    events += '{"ph":"X","cat":"cpu_op","name":"aten::index","tid":%,"ts":%,"dur":1}'
    found = parse_trace(_many(events, 30_000))
    assert len(own(count_calls(tree(found))).gaps) >= 1
    # Steps and modules by the thousand.
    events = [span(f"ProfilerStep#{i}", i, 0.5) for i in range(2000)]
    events += [span("nn.Module: " + ".".join(f"m{i}" for i in range(j)) + " (M)", 2000 + j, 0.5) for j in range(1, 400)]
    _analysed(json.dumps([*events, add(0, 5)]).encode())


# --- traces that are cut off ---------------------------------------------------------------------------------------------------------


def _events_of_every_kind() -> list[dict[str, Any]]:
    return [
        add(0, 1), mm(2, 1, 2, 3, 4), {"ph": "s", "id": 1, "ts": 2}, launch(2.5, 0.1, 1), span("ProfilerStep#1", 0, 9),
        kernel('é"},{\\', 3, 1.5e-1, 1), allocation(4, -40), {**add(5, 1), "other": [{"a": "}]"}, []]},
    ]  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("form", ["object", "array", "spaced"])
def test_of_a_trace_cut_off_anywhere_every_whole_event_is_read(form):
    events = _events_of_every_kind()
    indent = 2 if form == "spaced" else None
    document: Any = events if form == "array" else {"deviceProperties": [], "traceEvents": events, "tail": {"a": [1, {"b": "]}"}]}}
    data = json.dumps(document, ensure_ascii=False, indent=indent).encode()
    assert _columns(parse_trace(data, options=ReadOptions(partial=True))) == _columns(parse_trace(data))
    # What is read of the first so many events, and how many bytes hold them.
    expected, ends, at = [], [], 0
    for count, event in enumerate(events, 1):
        text = json.dumps(event, ensure_ascii=False, indent=indent)
        pattern = (text if form != "spaced" else text.replace("\n", "\n    ")).encode()
        at = data.index(pattern, at) + len(pattern)
        ends.append(at)
        expected.append(_columns(parse_trace(json.dumps(events[:count]).encode()), events_only=True))
    analyzed = 0  # how many whole events were analyzed last
    for length in range(len(data)):
        whole = sum(end <= length for end in ends)
        if not whole:
            with pytest.raises(TraceError):
                parse_trace(data[:length], options=ReadOptions(partial=True))
            continue
        found = read_pieces([data[:length]], "trace", ReadOptions(partial=True))
        assert _columns(found, events_only=True) == expected[whole - 1], length
        # An array needs no closing bracket: one that ends with an event looks complete.
        if form != "array":
            assert f"cut off after {length:,} bytes: {whole} events were read" in found.notes[0]
        if whole > analyzed:
            analyzed = whole
            analyze(run_of_trace("t.json", whole_part(found)), _sheet(), whole_part(found))


@pytest.mark.ci
@pytest.mark.parametrize("chunk", [64, 200, 1000])
def test_a_cut_behind_several_chunks(monkeypatch, chunk):
    monkeypatch.setattr(document, "CHUNK_BYTES", chunk)
    data = json.dumps({"traceEvents": [add(i, 1) for i in range(30)]}).encode()
    most = 0
    for length in (*range(300, len(data) - 1, 29), len(data) - 1):
        found = len(_in_pieces(data[:length], 50, partial=True).host)
        assert most <= found <= 30
        most = found
    assert most == 30


@pytest.mark.ci
@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_of_a_damaged_file_what_is_before_the_damage_is_read(tmp_path, how):
    rng = random.Random(0)
    data = json.dumps({"traceEvents": [op(rng.randbytes(20).hex(), i, 1) for i in range(20_000)]}).encode()
    whole = bytearray(_packed(data, how))
    path = tmp_path / "trace"
    at = len(whole) // 2
    whole[at : at + 64] = bytes(64)
    path.write_bytes(whole)
    with pytest.raises(TraceError, match=rf"(damaged {how}|damaged near|cut off).*"):
        read(path)
    found = read(path, ReadOptions(partial=True))
    assert 8_000 < len(found.host) < 12_000
    assert f"the trace is a damaged {how} file" in found.notes[0]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 20_000))
def test_a_real_trace_cut_off_anywhere_is_analysed_or_refused(length):
    data = json.dumps(_real("toy_mi250_training")).encode()
    first = data.index(b'{"ph": "X"')
    if length < first:
        with pytest.raises(TraceError):
            parse_trace(data[:length], options=ReadOptions(partial=True))
        return
    try:
        found = parse_trace(data[:length], options=ReadOptions(partial=True))
    except TraceError:
        assert length < first + 2000, "there is a whole event"
        return
    analysis = analyze(run_of_trace("t.json", found), _sheet(), found).analysis
    assert analysis.basis.per == "trace"
    assert len(found.device) or not any(row.efficiency for row in analysis.operators)
    serial.to_json(analysis)
