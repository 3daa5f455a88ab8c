"""The exported trace: integrals of its rates are the work, its times are those of the file, and it reads as the original."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from rooflines import analyze, report
from rooflines.errors import TraceError, UsageError
from rooflines.pipeline.reading import analyze_source
from rooflines.pipeline.reporting import report_run
from rooflines.profiler.read.records import ADDED
from rooflines.profiler.records import Run
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.reports.render import perfetto
from rooflines.reports.render.perfetto import summed
from rooflines.roofline.own.device import OUTSIDE_STEPS
from rooflines.serial import to_plain
from tests.traces import add, kernel, launch, mm, op, span

TRACES = Path(__file__).parents[2] / "data" / "traces"
# The old schema since 1970, times after a base, ROCm, several streams, bare graphs, a processor.
REAL = (
    "resnet50_v100_training_2021_schema", "bert-small_h100_inference", "vit-b16_mi300x_inference", "toy_mi250_training", "ddp_rank0",
    "resnet50_h100_graph_joined", "cpu_only",
)  # fmt: skip


def ns(microseconds):
    whole, _, fraction = str(microseconds).partition(".")
    return int(whole) * 1000 + int(f"{fraction:0<3}"[:3])


def events(path):
    """The added events of an exported trace and those of its source, numbers with fractions as text."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=str)
    listed = document if isinstance(document, list) else document["traceEvents"]
    own = [event for event in listed if event.get("cat") == ADDED]
    return own, [event for event in listed if event.get("cat") != ADDED]


def series(own, name):
    """Each counter of this name by its device: times and values."""
    found = defaultdict(list)
    for event in own:
        if event["ph"] == "C" and event["name"] == name:
            ((key, value),) = event["args"].items()
            found[key].append((ns(event["ts"]), float(value)))
    return found


def integral(points, low=None, high=None):
    """The integral of a counter over time in seconds, from ``low`` to ``high`` if they are given."""
    ends = [time for time, _ in points[1:]]
    cut = [(max(time, low or time), min(end, high or end), value) for (time, value), end in zip(points, ends, strict=False)]
    return sum(value * (end - start) / 1e9 for start, end, value in cut if end > start)


def slices(own):
    tracks = defaultdict(list)
    for event in own:
        if event["ph"] == "X":
            tracks[event["tid"]].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]), event))
    return {track: sorted(listed, key=lambda one: one[:2]) for track, listed in tracks.items()}


def exported(source, tmp_path, samples=()):
    """The divided time of a trace, its analysis and its export."""
    _, analysis, judged = analyze_source(source)
    return judged.attribution, analysis, perfetto.write(tmp_path / "trace.perfetto.json.gz", judged, samples)


def written(tmp_path, *listed, **head):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": list(listed)}))
    return path


STEPS = (
    span("ProfilerStep#0", 0, 100), mm(10, 20, 64, 64, 64), launch(12, 2, 1), add(40, 5), launch(41, 2, 2),
    span("ProfilerStep#1", 100, 100), mm(110, 20, 64, 64, 64), launch(112, 2, 3), launch(116, 2, 4),
    kernel("gemm", 20, 10, 1), kernel("add", 25, 10, 2, stream=9), kernel("gemm", 120, 8, 3), kernel("split", 130, 2, 4),
)  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_with_its_rates(name, tmp_path):
    source = TRACES / f"{name}.json.gz"
    attribution, analysis, path = exported(source, tmp_path)
    parts = attribution.pieces
    own, others = events(path)
    original = json.loads(gzip.decompress(source.read_bytes()), parse_float=str)
    assert others == original["traceEvents"]
    # The integral of a rate is the work of the calls that took time.
    owned = parts.row >= 0
    rows = np.unique(np.stack((parts.row[owned], parts.call[owned])), axis=1)[0].tolist()
    for counter, field in (("FLOP/s", "flops"), ("bytes/s", "bytes")):
        work = [attribution.rows[row].count.work for row in rows if attribution.rows[row].doubt is None]
        total = sum(getattr(one, field) for one in work if one is not None)
        curves = series(own, counter).values()
        assert sum(map(integral, curves)) == pytest.approx(total, rel=1e-6)
        assert all(curve[-1][1] == 0 and all(one[0] < later[0] for one, later in pairwise(curve)) for curve in curves)
    # Every piece is one of a row or a gap and has its slice, none overlap on a track, and every kernel with a row has its slice.
    tracks = slices(own)
    assert sorted(one[:2] for track in tracks.values() for one in track) == sorted(
        zip(parts.start_ns.tolist(), parts.end_ns.tolist(), strict=True)
    )
    assert all(one[1] <= later[0] for track in tracks.values() for one, later in pairwise(track))
    if len(attribution.trace.device):
        # The windows of these traces cut no kernel.
        kernels = {(ns(one["ts"]), ns(one["ts"]) + ns(one["dur"])) for one in others if "dur" in one}
        assert all(one[:2] in kernels for track in tracks.values() for one in track)
    # The added process is ignored when the file is read.
    again = to_plain(replace(analyze(path), workload=analysis.workload))
    assert again == to_plain(analysis)


def test_rates_and_slices_of_a_trace_by_hand(tmp_path):
    attribution, _, path = exported(written(tmp_path, *STEPS), tmp_path)
    own, _ = events(path)
    flops = 2 * 64**3
    # A product of 10 µs, with an addition of 1000 FLOPs in 10 µs during its second half; later one in two kernels of 10 µs together.
    assert series(own, "FLOP/s")["GPU 0"] == [
        (20_000, flops * 1e5), (25_000, pytest.approx(flops * 1e5 + 1e8)), (30_000, 1e8), (35_000, 0),
        (120_000, flops * 1e5), (128_000, 0), (130_000, flops * 1e5), (132_000, 0),
    ]  # fmt: skip
    # The integral over a step is the work of the step.
    for (low, high), calls in zip(attribution.windows.tolist(), ((1, 1), (1, 0)), strict=True):
        assert integral(series(own, "FLOP/s")["GPU 0"], low, high) == pytest.approx(calls[0] * flops + calls[1] * 1000)
        assert integral(series(own, "bytes/s")["GPU 0"], low, high) == pytest.approx(calls[0] * 3 * 4 * 64**2 + calls[1] * 12_000)
    (product, *_), (addition,) = slices(own).values()
    assert product[2]["args"] == {
        "phase": "forward", "shapes": "64x64, 64x64", "precision": "fp32", "flops": flops, "bytes": 3 * 4 * 64**2,
        "intensity_flop_per_byte": pytest.approx(0), "bound": "unknown",
    } | {key: product[2]["args"][key] for key in ("intensity_flop_per_byte", "flop_per_s", "byte_per_s")}  # fmt: skip
    assert addition[2]["name"] == "aten::add"
    names = {event["tid"]: event["args"]["name"] for event in own if event["name"] == "thread_name"}
    assert list(names.values()) == ["GPU 0 stream 7", "GPU 0 stream 9"]


def test_what_the_steps_did_not_launch_has_slices_with_the_reason(tmp_path):
    # The last product lasts beyond its step; what was launched after the steps runs meanwhile, on another stream.
    others = (launch(205, 2, 5), kernel("theirs", 240, 10, 5, stream=9), launch(215, 2, 6), kernel("other", 255, 5, 6, stream=9))
    attribution, _, path = exported(written(tmp_path, *STEPS[:-1], kernel("split", 290, 10, 4), *others), tmp_path)
    own, _ = events(path)
    assert sorted(np.unique(attribution.pieces.row).tolist()) == [-3, -2, 0, 1]
    args = {event["name"]: event["args"] for event in own if event["ph"] == "X"}
    assert args["theirs"] == args["other"] == {"not_counted": OUTSIDE_STEPS}
    assert [one[:2] for track in slices(own).values() for one in track if "not_counted" in one[2]["args"]] == [
        (240_000, 250_000), (255_000, 260_000),
    ]  # fmt: skip
    # They add nothing to the rates.
    assert not [time for time, _ in series(own, "FLOP/s")["GPU 0"] if 128_000 < time < 290_000]


def test_efficiency_is_the_lower_bound_over_the_time(tmp_path):
    described = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    attribution, analysis, path = exported(written(tmp_path, *STEPS, **described), tmp_path)
    own, _ = events(path)
    (product,) = [one for one in analysis.operators if one.name == "aten::mm"]
    first = next(iter(slices(own).values()))[0][2]["args"]
    assert float(first["lower_bound_s"]) == pytest.approx(product.lower_bound_s)
    assert float(first["efficiency"]) == pytest.approx(product.lower_bound_s / 10e-6)
    # That of a step is the mean over its length.
    curve, windows = series(own, "efficiency")["GPU 0"], attribution.windows.tolist()
    assert series(own, "efficiency of the step")["GPU 0"][:-1] == [
        (low, pytest.approx(integral(curve, low, high) / ((high - low) / 1e9))) for low, high in windows
    ]


def test_slices_that_overlap_are_on_several_tracks(tmp_path):
    calls = [mm(10 * i, 5, 8, 8, 8) for i in range(3)]
    launches = [launch(10 * i + 1, 1, i + 1) for i in range(3)]
    kernels = [kernel("gemm", 50, 30, 1), kernel("gemm", 60, 10, 2), kernel("gemm", 70, 20, 3)]
    _, _, path = exported(written(tmp_path, *calls, *launches, *kernels), tmp_path)
    own, _ = events(path)
    assert [[one[:2] for one in track] for track in slices(own).values()] == [
        [(50_000, 80_000)], [(60_000, 70_000), (70_000, 90_000)],
    ]  # fmt: skip
    assert [event["args"]["name"] for event in own if event["name"] == "thread_name"] == ["GPU 0 stream 7", "GPU 0 stream 7, 2"]
    assert series(own, "FLOP/s")["GPU 0"][-1] == (90_000, 0)


def test_sums_have_no_rest():
    starts, ends = np.array([0, 5, 20, 30, 30]), np.array([10, 15, 25, 40, 40])
    times, values = summed(starts, ends, np.array([1e20, 3.0, 0.1, np.nan, 2.0]))
    assert times.tolist() == [0, 10, 15, 20, 25, 30, 40]
    assert values.tolist() == [1e20, 3.0, 0.0, 0.1, 0.0, 2.0, 0.0]
    assert [part.tolist() for part in summed(*np.empty((2, 0), np.int64), np.empty(0))] == [[], []]


def test_hostile_names_and_lists_of_events(tmp_path):
    name = 'a"],"x":[{</script>\\\n\u2028%s%d'
    source = tmp_path / "list.json"
    thread = {"tid": "\"'"}
    listed = [op(name, 0, 10, dims=[[4]], types=["float"], **thread), span(f"nn.Module: {name} ({name})", 0, 20, **thread), add(30, 5)]
    source.write_text("\n " + json.dumps(listed))
    _, _, path = exported(source, tmp_path)
    own, others = events(path)
    assert len(others) == len(listed)
    shown = name.replace("\n", "\ufffd").replace("\u2028", "\ufffd")
    assert {one[2]["name"] for track in slices(own).values() for one in track} == {"aten::add", shown}
    assert all(event["pid"] == perfetto.PROCESS for event in own)


def test_samples_are_on_the_clock_of_the_trace(tmp_path):
    base = 1_790_000_000_000_000_000
    read = {"source": "nvml", "device": "cuda:0", "power_w": 300.5, "energy_j": 1.0}
    samples = [DeviceSample(time_ns=base + at, **read) for at in (-1, 50_000, 10**9)]
    absolute = [{**event, "ts": event["ts"] + base // 1000} for event in STEPS]
    for listed, head, clock in ((STEPS, {"baseTimeNanoseconds": base}, 0), (absolute, {}, base)):
        own, _ = events(exported(written(tmp_path, *listed, **head), tmp_path, samples)[2])
        assert series(own, "power_w") == {"cuda:0": [(clock + 50_000, 300.5)]}
        assert not series(own, "energy_j")


def test_what_cannot_be_exported(tmp_path):
    source = written(tmp_path, *STEPS)
    out = report(source, ["perfetto"], output=tmp_path / "out")["perfetto"]
    assert out.name == "trace.perfetto.json.gz"
    assert [path.name for path in out.parent.iterdir() if path.name.startswith(".")] == []
    with pytest.raises(UsageError, match="already has the tracks of rooflines"):
        report(out, ["perfetto"], output=tmp_path / "again")
    with pytest.raises(UsageError, match="needs the complete trace of one run"):
        report([source, source], ["perfetto"], output=tmp_path / "ranks")
    with pytest.raises(UsageError, match="needs the complete trace of one run"):
        report(source, ["perfetto"], partial=True, output=tmp_path / "part")
    cut = tmp_path / "cut.json"
    cut.write_bytes(source.read_bytes()[:-200])
    with pytest.raises(TraceError, match="is cut off after"):
        report(cut, ["perfetto"], output=tmp_path / "cut")


def test_a_run_without_a_trace_is_left_out_of_all(tmp_path):
    source = written(tmp_path, *STEPS)
    run, _, judged = analyze_source(source)
    for known in (judged, judged._replace(attribution=None), None):
        assert "perfetto" in report_run(run, ["perfetto"], judged=known, output=tmp_path)
    bare = Run(directory=tmp_path, facts=replace(run.facts, trace=None))
    with pytest.raises(UsageError, match="needs the complete trace of one run"):
        report(bare, ["perfetto"], output=tmp_path / "bare")
    assert set(report_run(bare, ["json", "perfetto"])) == {"analysis", "json"}


def test_a_perfetto_trace_becomes_json(tmp_path):
    pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    _, analysis, path = exported(TRACES / "bert-small_h100_inference.pftrace", tmp_path)
    assert to_plain(replace(analyze(path), workload=analysis.workload)) == to_plain(analysis)
    assert [one[2]["name"] for track in slices(events(path)[0]).values() for one in track].count("aten::embedding") == 3


def test_a_trace_that_was_emptied_after_the_analysis_is_named(tmp_path):
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes((TRACES / "cpu_only.json.gz").read_bytes())
    judged = analyze_source(trace).judged
    trace.write_bytes(gzip.compress(b""))
    with pytest.raises(TraceError, match="has changed since it was read"):
        perfetto.write(tmp_path / "out.json.gz", judged)
    assert not (tmp_path / "out.json.gz").exists()
