"""Real traces of five GPUs through the whole of ``rooflines profile --device cuda``: what a run and its reports then say."""

from __future__ import annotations

import csv
import json
import statistics
from typing import Any, NamedTuple

import msgspec
import pytest

from rooflines.pipeline import analyze_source
from rooflines.profiler.directory import load
from rooflines.profiler.records import Run
from rooflines.reports.render.formats import FORMATS
from rooflines.roofline.analysis import Analysis
from rooflines.serial import read_json
from tests.commands import Answer
from tests.profiler.samplers.nvml_driver.signals import integral
from tests.replay.device import NAME, POWER, AmdReplayDevice, ReplayDevice
from tests.replay.fixtures import EPOCH_S, every, profiled, rooflines
from tests.replay.recorded import recorded


class Case(NamedTuple):
    """A trace, how many timed steps make about a second, its data sheet's bf16 (else fp16) matrix and memory roofs."""

    trace: str
    steps: int
    matrix: float
    memory: float
    tf32: bool = False
    kind: type[ReplayDevice] = ReplayDevice


CASES = {
    "H100": Case("bert-small_h100_inference", 250, 989.4e12, 3.35e12),
    "A100": Case("dlrm_a100_training", 14, 312e12, 1.555e12, tf32=True),
    "B200": Case("gpt-oss_b200_prefill", 12, 2.25e15, 8e12),
    "MI300X": Case("vit-b16_mi300x_inference", 150, 1307.4e12, 5.3e12, kind=AmdReplayDevice),
    "V100": Case("resnet50_v100_training_2021_schema", 6, 125e12, 0.898e12),
}
LARGE = ("B200", "V100")
# What is true of a step on the CPU only.
OF_CPUS = ("perf_counter", "OMP_NUM_THREADS", "all threads", "page fault", "the operators ran on the host", "resident set")


class Replayed(NamedTuple):
    """A replayed run: what was replayed, what the command printed, what it left."""

    case: Case
    device: ReplayDevice
    answer: Answer
    run: Run
    analysis: Analysis

    def json(self, name: str) -> Any:
        return json.loads((self.run.directory / name).read_text())


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in CASES])
def replay(request, tmp_path_factory, nvml_library):
    case, folder = CASES[request.param], tmp_path_factory.mktemp(request.param)
    trace = recorded(case.trace)
    device = case.kind(trace, every(round(0.9 * statistics.median(trace.step_ns))), tf32={"matmul": case.tf32, "convolution": True})
    answer = profiled(device, folder, nvml_library, "--batch-size", 8, "--steps", case.steps, "--formats", "text,json")
    assert answer.code == 0, answer.err
    return Replayed(case, device, answer, load(folder / "run"), read_json(folder / "run" / "analysis.json", Analysis))


def test_the_environment_is_the_devices(replay):
    facts, found = replay.device.recorded.facts, replay.run.facts.environment
    assert (found.device, found.device_name, found.device_units) == (NAME, facts.name, facts.units)
    assert (found.device_memory_bytes, found.cuda) == (facts.memory_bytes, facts.cuda)
    assert found.driver == (None if replay.case.kind is AmdReplayDevice else "575.51.03")
    assert replay.run.facts.status == "complete"
    assert (replay.run.facts.peak_memory_kind, replay.run.facts.peak_memory_bytes) == ("allocator", replay.device.recorded.peak_bytes)
    assert facts.name in replay.answer.out


def test_step_times_are_those_of_the_events(replay):
    steps = replay.run.facts.steps
    assert steps.clock == "cuda events"
    assert steps.timed_ns == tuple(replay.device.timed_ns(number) for number in range(replay.case.steps))
    assert steps.traced_ns == tuple(replay.device.recorded.step_ns)
    assert replay.analysis.steps.median_s == pytest.approx(statistics.median(steps.timed_ns) / 1e9)
    assert replay.analysis.steps.samples_per_s == pytest.approx(8 / replay.analysis.steps.median_s)
    # The tracing overhead, and where the traced steps are divided: as long as the timed ones.
    assert replay.analysis.steps.profiler_dilation == pytest.approx(
        statistics.median(steps.traced_ns) / statistics.median(steps.timed_ns)
    )
    assert replay.analysis.timeline.span_s == pytest.approx(replay.analysis.steps.median_s)


def test_work_and_times_are_those_of_the_bare_trace(replay):
    _, bare, _ = analyze_source(replay.run.trace_path)
    assert replay.analysis.basis == msgspec.structs.replace(bare.basis, timed=True)
    assert replay.analysis.basis.steps == len(replay.device.recorded.step_ns)
    assert (replay.analysis.trace_timeline, replay.analysis.launches) == (bare.trace_timeline, bare.launches)

    def work(analysis):
        fields = ("name", "module", "phase", "shapes", "calls", "time_s", "flops", "bytes")
        return sorted([getattr(row, field) for field in fields] for row in analysis.operators)

    assert work(replay.analysis) == work(bare)
    for total in ("flops", "matrix_flops", "bytes", "time_s"):
        assert getattr(replay.analysis.totals, total) == getattr(bare.totals, total)


def test_ceilings_are_those_of_the_data_sheet(replay):
    roofs = replay.run.facts.ceilings
    assert roofs.device == replay.device.recorded.facts.name
    assert {roof.source.kind for roof in roofs.ceilings} <= {"spec", "derived"}
    fastest = max(roof.value for roof in roofs.ceilings if roof.engine == "matrix" and roof.precision in ("bf16", "fp16"))
    (memory,) = (roof.value for roof in roofs.ceilings if roof.level == "HBM")
    assert (fastest, memory) == (replay.case.matrix, replay.case.memory)


def test_no_operator_is_faster_than_its_device(replay):
    # Of memory the sheets have the slowest level only, which a cache may beat, and Winograd's convolutions do less than their formula.
    beaten = [row for row in replay.analysis.operators if row.bound == "compute" and (row.efficiency or 0) > 1.05]
    assert [row for row in beaten if not any("winograd" in kernel.name.lower() for kernel in row.kernels)] == []


def test_energy_is_the_integral_of_the_power(replay):
    usage = replay.analysis.usage
    (energy,) = (one.energy for one in usage.devices if one.device == NAME)
    begin_ns, length_ns = replay.run.facts.steps.timed_began_ns, sum(replay.run.facts.steps.timed_ns)
    zero_ns = EPOCH_S * 1e9 if replay.case.kind is ReplayDevice else min(sample.time_ns for sample in replay.run.samples)
    begin_s = (begin_ns - zero_ns) / 1e9
    truth_j = integral(POWER, begin_s, begin_s + length_ns / 1e9)
    assert energy.energy_j == pytest.approx(truth_j, abs=energy.error_j)
    assert energy.error_j < 0.1 * truth_j
    assert usage.own == (NAME,)
    assert usage.energy_per_step_j == pytest.approx(truth_j / replay.case.steps, abs=usage.energy_per_step_error_j)
    assert usage.energy_per_sample_j == pytest.approx(usage.energy_per_step_j / 8)


def test_the_device_was_busy(replay):
    (one,) = (one for one in replay.analysis.usage.devices if one.device == NAME)
    assert 0.91 <= one.gauges["gpu_utilization"].mean <= 0.95
    assert one.throttled_fraction == 0.0


def test_nothing_is_said_that_is_true_of_cpus_only(replay):
    texts = replay.answer.out, *((replay.run.directory / FORMATS[name].file).read_text() for name in ("text", "json"))
    for text in texts:
        assert [words for words in OF_CPUS if words in " ".join(text.split())] == []
    assert not any(note.startswith("device samples") for note in replay.run.facts.notes)


@pytest.mark.slow
def test_every_format_is_written_and_names_the_device(replay, tmp_path):
    if replay.case is not CASES["H100"]:
        pytest.skip("one device is enough")
    answer = rooflines("report", replay.run.directory, "--formats", ",".join(FORMATS), "--output", tmp_path)
    assert answer.code == 0, answer.err
    for name in ("html", "markdown", "text", "json"):
        text = (tmp_path / FORMATS[name].file).read_text()
        assert "NVIDIA H100 80GB HBM3" in text
        assert [words for words in OF_CPUS if words in text] == []
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    rows = (tmp_path / "operators.csv").read_text().splitlines()
    assert len(rows) == 1 + len(replay.analysis.operators)
    taken = list(csv.DictReader((tmp_path / "samples.csv").read_text().splitlines()))
    assert sum(row["device"] == NAME for row in taken) == sum(sample.device == NAME for sample in replay.run.samples) > 20
    assert list(tmp_path.glob("*tfevents*"))


@pytest.mark.ci
def test_compared_with_itself_nothing_changed(replay):
    folder = replay.run.directory
    answer = rooflines("compare", folder, folder, "--format", "json", "--fail-above", 0)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["verdict"].startswith("B takes as long as A")
    assert found["differs"] == []
    assert {row["difference_s"] for row in (*found["rows"], *found["modules"])} == {0.0}
    assert {row["direction"] for row in found["rows"]} <= {"same", "unknown"}
    assert len(found["rows"]) > 20
