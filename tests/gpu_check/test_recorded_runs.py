"""Runs that the GPU check recorded on an H100 (tests/data/gpu_runs), analysed again: they obey the laws that they obeyed there.

Each directory is the evidence of one case as the check's zip has it, with paths shortened and without samples of the device.
"""

from pathlib import Path

import pytest

import rooflines
from rooflines.gpu_check.laws import Profiled
from rooflines.gpu_check.profiles import cases
from rooflines.gpu_check.records import Device
from rooflines.profiler.directory import file_stem, load
from rooflines.profiler.trace.reader import read_trace
from rooflines.serial import read_json

RUNS = Path(__file__).parents[1] / "data" / "gpu_runs"
DEVICE = read_json(RUNS / "device.json", Device)
CASES = {file_stem(case.name): case for case in cases(DEVICE, ("0",))}
# The samples are not kept, nor what compiling took.
NOT_KEPT = ("the GPU that was sampled did the work", "integrated power = energy counter", "SM clock")


@pytest.mark.parametrize("name", sorted(path.name for path in RUNS.iterdir() if path.is_dir()))
def test_a_recorded_run_obeys_its_laws(name):
    case, run = CASES[name], load(RUNS / name)
    found = Profiled(DEVICE, run, rooflines.analyze(RUNS / name), read_trace(run.trace_path))
    results = [law.check(name, found) for law in case.laws if not law.text.startswith(NOT_KEPT)]
    assert [one for one in results if one.outcome == "failed"] == []
    passed = {one.law for one in results if one.outcome == "ok"}
    assert "operators + unmodelled + idle = span within 0.1 %" in passed
    closed_form = "matrix FLOPs equal the closed form within 0.1 %"
    assert (closed_form in passed) == (closed_form in {law.text for law in case.laws})


def test_a_replayed_graph_is_not_told_to_record_the_host():
    analysis = rooflines.analyze(RUNS / "resnet50-inference-in-a-CUDA-graph")
    assert "Bound unknown: 100 % of the step is in CUDA or HIP graphs without a capture trace" in analysis.verdict
    assert "ProfilerActivity.CPU" not in analysis.verdict
