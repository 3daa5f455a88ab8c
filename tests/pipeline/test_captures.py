"""Graph replays with the traces of their capture: files, folders and the layout of servers, on pairs that servers recorded."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch

import rooflines
from rooflines.errors import DataError, TraceError, UsageError
from rooflines.pipeline.captures import find_captures
from rooflines.pipeline.options import ProfileOptions
from rooflines.reports.document import Table
from rooflines.reports.page import run as view
from tests.commands import call

DATA = Path(__file__).parent.parent / "data" / "traces"
SGLANG, SGLANG_CAPTURE = DATA / "sglang_mi300x_decode_replay.json.gz", DATA / "sglang_mi300x_decode_capture.json.gz"
VLLM, VLLM_CAPTURE = DATA / "vllm_mi300x_piecewise_replay.json.gz", DATA / "vllm_mi300x_piecewise_capture.json.gz"


def edited(path, target, change):
    """A copy of a trace, changed."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    change(document["traceEvents"])
    target.write_text(json.dumps(document))
    return target


def launches(events):
    return sorted((event for event in events if "kernel" in event["args"]), key=lambda event: event["ts"])


def test_operators_modules_and_times_of_a_replay():
    # Each replayed kernel has the operator and module of its capture.
    analysis = rooflines.analyze(SGLANG, capture=SGLANG_CAPTURE)
    coverage = analysis.coverage
    assert coverage.graph_matched_time_s == coverage.graph_launch_time_s == pytest.approx(587.085e-6)
    layers = [f"Qwen3Model_0.Qwen3DecoderLayer_{number}" for number in range(2)]
    # Of each of two layers of Qwen3-8B: queries, keys and values; output; gate and up; down. All are for 32 tokens.
    products = [row for row in analysis.operators if row.category == "matmul"]
    weights = [4096 * 6144, 4096 * 4096, 4096 * 24576, 12288 * 4096]
    for layer in layers:
        inside = [row for row in products if row.module.startswith(layer)]
        assert sorted((row.matrix_flops, row.calls) for row in inside) == sorted((2 * 32 * size, 1) for size in weights)
    assert len(products) == len(layers) * len(weights)
    assert {module.path: module.calls for module in analysis.modules}["Qwen3Model_0.Qwen3DecoderLayer_1"] == 1
    # The times of a replay are those of its kernels.
    events = json.loads(gzip.decompress(SGLANG.read_bytes()))["traceEvents"]
    kernels = [event["dur"] for event in events if event["cat"] == "kernel"]
    divided = [row.time_s for row in (*analysis.operators, *analysis.coverage.unmodeled)]
    assert sum(divided) * 1e6 == pytest.approx(sum(kernels))
    assert sum(kernel.calls for row in (*analysis.operators, *analysis.coverage.unmodeled) for kernel in row.kernels) == len(kernels)


def test_pieces_of_a_model_are_matched_in_order():
    analysis = rooflines.analyze(VLLM, capture=[VLLM_CAPTURE])
    assert analysis.coverage.graph_matched_time_s == analysis.coverage.graph_launch_time_s
    # One product of queries, keys and values in the first, second and third of the four pieces, one of the output in all but the first.
    products = {row.shapes: row.calls for row in analysis.operators if row.name == "aten::addmm"}
    assert products == {"5120, 8192x2880, 2880x5120": 3, "2880, 8192x4096, 4096x2880": 3, "32, 8192x2880, 2880x32": 3}


@pytest.mark.parametrize(("replay", "capture"), [(SGLANG, VLLM_CAPTURE), (VLLM, SGLANG_CAPTURE)])
def test_the_capture_of_another_model_is_refused_with_the_first_kernel(replay, capture):
    with pytest.raises(TraceError, match=r"launch 1 of \d, kernel 1 of \d+: the replay ran .*, the capture has "):
        rooflines.analyze(replay, capture=capture)


def rename(events):
    launches(events)[20]["args"]["kernel"] = "another"


def remove(events):
    events.remove(launches(events)[20])


def fewer(events):
    next(event for event in events if event["name"].startswith("capture_"))["name"] = "capture_16_DECODE"


@pytest.mark.parametrize(
    ("change", "difference"),
    [(rename, "kernel 21 of 32: .* the capture has another"), (remove, "kernel 21 of 32"), (fewer, "32 tokens, the capture only 16")],
)
def test_a_changed_capture_is_refused(tmp_path, change, difference):
    with pytest.raises(TraceError, match=difference):
        rooflines.analyze(SGLANG, capture=edited(SGLANG_CAPTURE, tmp_path / "capture.json", change))


def test_a_truncated_capture_is_refused(tmp_path):
    text = gzip.decompress(SGLANG_CAPTURE.read_bytes())
    (tmp_path / "cut.json").write_bytes(text[: len(text) // 2])
    with pytest.raises(TraceError, match=r"cut\.json' is cut off"):
        rooflines.analyze(SGLANG, capture=tmp_path / "cut.json")


def layout(folder, details):
    """A directory as servers write it: the trace, and the folder of its captures with a record of them."""
    (folder / "capture_traces").mkdir(parents=True)
    shutil.copy(SGLANG, folder / "decode.json.gz")
    shutil.copy(SGLANG_CAPTURE, folder / "capture_traces" / "bs_32.json.gz")
    (folder / "capture_traces" / "execution_details.json").write_text(details)
    return folder


DETAILS = '[{"file": "bs_32.json.gz", "batch_size": 32, "mode": "FULL"}]'


def test_a_directory_of_a_trace_and_its_captures_is_that_trace_with_them(tmp_path, capsys, monkeypatch):
    source = layout(tmp_path, DETAILS)
    expected = rooflines.analyze(SGLANG, capture=SGLANG_CAPTURE).coverage.graph_matched_time_s
    given = rooflines.analyze(source / "decode.json.gz", capture=source / "capture_traces")
    assert rooflines.analyze(source).coverage.graph_matched_time_s == given.coverage.graph_matched_time_s == expected
    answer = call(capsys, monkeypatch, "analyze", source, "--format", "json")
    assert json.loads(answer.out)["coverage"]["graph_matched_time_s"] == expected
    assert sorted(path.name for path in source.iterdir()) == ["capture_traces", "decode.json.gz"]


def test_the_record_of_a_folder_gives_the_sizes(tmp_path):
    source = layout(tmp_path, DETAILS.replace("32,", "16,"))
    # The mark of the size is the last event.
    edited(SGLANG_CAPTURE, source / "capture_traces" / "bs_32.json.gz", lambda events: events.pop())
    with pytest.raises(TraceError, match="the capture only 16"):
        rooflines.analyze(source)


def test_a_file_with_several_sizes_has_none(tmp_path):
    twice = DETAILS.replace("32,", "16,")[:-1] + "," + DETAILS.replace("32,", "8,")[1:]
    source = layout(tmp_path, twice)
    edited(SGLANG_CAPTURE, source / "capture_traces" / "bs_32.json.gz", lambda events: events.pop())
    coverage = rooflines.analyze(source).coverage
    assert coverage.graph_matched_time_s == coverage.graph_launch_time_s


def test_modules_that_no_replay_calls_are_not_listed(tmp_path):
    def call_another(events):
        module = next(event for event in events if event["name"].startswith("nn.Module: "))
        events.append(module | {"name": "nn.Module: WarmUp_0", "ts": events[0]["ts"] - 1000, "dur": 10})

    analysis = rooflines.analyze(SGLANG, capture=edited(SGLANG_CAPTURE, tmp_path / "capture.json", call_another))
    assert {module.calls for module in analysis.modules} == {1}


@pytest.mark.parametrize("details", ["[{", '[{"file": 7}]', '[{"file": "../bs_32.json.gz"}]', "{}"])
def test_a_damaged_record_is_refused(tmp_path, details):
    with pytest.raises(DataError, match=r"execution_details\.json"):
        rooflines.analyze(layout(tmp_path, details))


def test_the_command_takes_captures(tmp_path, capsys, monkeypatch):
    answer = call(capsys, monkeypatch, "analyze", SGLANG, "--capture", SGLANG_CAPTURE)
    assert (answer.code, [line.partition(" s  ")[2] for line in answer.err.splitlines()]) == (
        0,
        ["reading the trace", "reading the capture", "analyzing"],
    )
    answer = call(capsys, monkeypatch, "report", SGLANG, "--capture", SGLANG_CAPTURE, "--formats", "json", "--output", tmp_path / "out")
    assert answer.code == 0
    assert json.loads((tmp_path / "out" / "analysis.json").read_text())["coverage"]["graph_matched_time_s"] > 0
    answer = call(capsys, monkeypatch, "analyze", SGLANG, "--capture", VLLM_CAPTURE)
    assert answer.code == 2
    assert "kernel 1 of 32: the replay ran" in " ".join(answer.complaint)


def test_reports_say_which_part_of_the_graphs_is_known():
    def text(**capture):
        return str(view.page(rooflines.analyze(SGLANG, **capture)))

    assert "Graphs ran for 587 µs; operators are known for 100 % of this time." in text(capture=SGLANG_CAPTURE)
    assert "operators are known for 0 % of this time. Add the capture trace with --capture." in text()


def test_a_graph_without_its_capture_is_shown_by_kernel():
    analysis = rooflines.analyze(SGLANG)
    section = next(one for one in view.page(analysis).sections if one.name == "coverage")
    (table,) = (block for block in section.blocks if isinstance(block, Table) and block.title == "Kernels of HIP graph 1")
    (graph,) = (one for one in analysis.coverage.unmodeled if one.name == "HIP graph 1")
    time, calls = (next(at for at, column in enumerate(table.columns) if column.label == name) for name in ("time", "calls"))
    assert sum(row.cells[time] for row in table.rows) == pytest.approx(sum(kernel.time_s for kernel in graph.kernels))
    assert sum(row.cells[calls] for row in table.rows) == sum(kernel.calls for kernel in graph.kernels)


def test_without_a_record_the_names_of_the_captures_say_their_rank_and_batch(tmp_path):
    folder = tmp_path / "capture_traces"
    folder.mkdir()
    for name in ("bs_32_rank0", "bs_8_rank0", "bs_32_rank1"):
        shutil.copy(SGLANG_CAPTURE, folder / f"{name}.json.gz")
    trace = tmp_path / "1785501977.97-TP-0.trace.json.gz"
    shutil.copy(SGLANG, trace)
    assert find_captures(folder, str(trace)) == {str(folder / "bs_32_rank0.json.gz"): 32, str(folder / "bs_8_rank0.json.gz"): 8}
    assert len(find_captures(folder, "decode.json.gz")) == 3
    coverage = rooflines.analyze(tmp_path).coverage
    assert coverage.graph_matched_time_s == coverage.graph_launch_time_s > 0


def test_a_comparison_takes_directories_with_captures(tmp_path):
    one, two = layout(tmp_path / "one", DETAILS), layout(tmp_path / "two", DETAILS)
    compared = str(rooflines.compare(one, two).to_dict())
    assert "aiter::gemm_a16w16" in compared
    assert "HIP graph" not in compared
    assert "HIP graph 1" in str(rooflines.compare(SGLANG, SGLANG).to_dict())


def test_a_capture_does_not_apply_to_several_ranks_and_must_exist(tmp_path, capsys, monkeypatch):
    with pytest.raises(UsageError, match="capture does not apply to several ranks"):
        rooflines.report([SGLANG, VLLM], capture=SGLANG_CAPTURE)
    answer = call(capsys, monkeypatch, "analyze", SGLANG, "--capture", tmp_path / "none.json")
    assert answer.code == 2
    assert "reading" not in answer.err, "it is refused before the trace is read"
    assert "capture trace not found" in " ".join(answer.complaint)


# --- options


def test_a_run_stores_the_options_that_are_not_their_defaults():
    assert ProfileOptions().changed() == {}
    given = ProfileOptions(
        batch_size=8, compile=True, device=torch.device("cpu"), steps=3, output=Path("here"), formats=("json",), trace=False,
        remeasure=True,
    )  # fmt: skip
    assert given.changed() == {"batch_size": 8, "compile": "on", "device": "cpu", "steps": 3}
    assert ProfileOptions(**given.changed()).changed() == given.changed()
