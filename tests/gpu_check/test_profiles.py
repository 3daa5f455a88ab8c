"""The profiles part on a recorded GPU: a replayed H100 obeys the laws, and breaks those that are made to fail."""

import statistics
import time
from pathlib import Path

import pytest

from rooflines import analyze
from rooflines.gpu_check import energy, laws, profiles
from rooflines.gpu_check.laws import Profiled, energy_verdict
from rooflines.gpu_check.profiles import Case, cases, traced
from rooflines.gpu_check.records import Device, Ended, Recorder
from rooflines.profiler.directory import file_stem, load
from rooflines.profiler.records import Environment
from rooflines.profiler.trace.reader import read
from rooflines.serial import read_json
from tests.profiler.samplers.nvml_driver.signals import Constant, lines
from tests.replay.device import ReplayDevice
from tests.replay.fixtures import every, replaying, rooflines
from tests.replay.recorded import recorded

TRACE = "bert-small_h100_inference"
CLOCK_HZ = 1.755e9  # of the stand-in driver's script


def launch(command, log, limit_s, *, variables=None):
    answer = rooflines(*command[3:])
    return Ended(answer.code, f"exit code {answer.code}", answer.out, answer.err)


@pytest.fixture(scope="module")
def checked(nvml_library, tmp_path_factory):
    """The checks of a replayed run by law, and its record."""
    folder = tmp_path_factory.mktemp("replayed")
    trace = recorded(TRACE)
    step_ns = round(0.9 * statistics.median(trace.step_ns))
    gpu = Device(environment=Environment(rooflines="0", device="cuda:0", device_name=trace.facts.name), max_clock_hz=CLOCK_HZ)
    recorder = Recorder(folder, gpu)
    with replaying(ReplayDevice(trace, every(step_ns)), folder, nvml_library) as workload:
        case = Case(
            "bert on a replayed H100",
            (f"{workload}:step", "--ceilings", "spec", "--steps", "50", "--warmup", "1"),
            (
                laws.run_at_maximum_clock, laws.run_energies_agree, *traced(1, 0.5), laws.other_stream_noticed, laws.sampled_gpu_works,
                laws.one_graph_launch, laws.scaler_at_work,
            ),
            whole=True,
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(profiles, "run_logged", launch)
            record = profiles.run_case(recorder, case, 300.0)
    return {check.law: check for check in recorder.findings.checks}, record


def test_a_recorded_run_obeys_the_laws_of_every_run_and_breaks_those_that_do_not_hold(checked):
    # A recorded run obeys the laws of every run.
    checks, _ = checked
    assert {law for law, check in checks.items() if check.outcome == "ok"} == {
        "rooflines profile succeeds", "SM clock >= 95 % of its maximum, or held down by the power limit",
        "operators + unmodelled + idle = span within 0.1 %", "device busy <= timed step + 2 %", "no efficiency above 1.05",
        "sum of CUDA events = wall time within 3 %", "coverage >= 50 %", "every phase has time",
        "the GPU that was sampled did the work",
    }, checks  # fmt: skip
    # A law that does not hold fails.
    checks, _ = checked
    failed = {law: check.found for law, check in checks.items() if check.outcome == "failed"}
    assert set(failed) == {
        "matrix FLOPs equal the closed form within 0.1 %",
        "steps with work in another stream are timed by the wall clock",
        "one launch of a CUDA graph per step",
        "a gradient scaler is at work",
    }
    assert failed["one launch of a CUDA graph per step"].startswith("0 in ")
    # What a data sheet and a short run do not tell is left out.
    checks, _ = checked
    left_out = {law: check.found for law, check in checks.items() if check.outcome == "left out"}
    assert left_out["shortest kernel >= kernel launch / 1.05"] == "the latency of a kernel launch was not measured"
    assert set(left_out) <= {"shortest kernel >= kernel launch / 1.05", "integrated power = energy counter within 3 %"}
    # The record has what the page shows.
    _, record = checked
    assert record["steps"]["median_s"] > 0
    assert record["coverage"]["modelled_time_fraction"] > 0.5
    assert record["verdict"]
    assert len(record["operators"]) == 15
    assert "durations_s" not in record["steps"]
    assert "ceilings" not in record


RUNS = Path(__file__).parents[1] / "data" / "gpu_runs"
DEVICE = read_json(RUNS / "device.json", Device)
CASES = {file_stem(case.name): case for case in cases(DEVICE, ("0",))}
# The samples are not kept, nor what compiling took.
NOT_KEPT = ("the GPU that was sampled did the work", "integrated power = energy counter", "SM clock")


@pytest.mark.parametrize("name", sorted(path.name for path in RUNS.iterdir() if path.is_dir()))
def test_a_recorded_run_obeys_its_laws(name):
    case, run = CASES[name], load(RUNS / name)
    found = Profiled(DEVICE, run, analyze(RUNS / name), read(run.trace_path))
    results = [law.check(name, found) for law in case.laws if not law.text.startswith(NOT_KEPT)]
    assert [one for one in results if one.outcome == "failed"] == []
    passed = {one.law for one in results if one.outcome == "ok"}
    assert "operators + unmodelled + idle = span within 0.1 %" in passed
    closed_form = "matrix FLOPs equal the closed form within 0.1 %"
    assert (closed_form in passed) == (closed_form in {law.text for law in case.laws})


def test_a_replayed_graph_is_not_told_to_record_the_host():
    analysis = analyze(RUNS / "resnet50-inference-in-a-CUDA-graph")
    assert "Bound unknown: 100 % of the step is in CUDA or HIP graphs without a capture trace" in analysis.verdict
    assert "ProfilerActivity.CPU" not in analysis.verdict


@pytest.mark.slow
def test_both_ways_agree_on_a_held_load(tmp_path, stand_in):
    stand_in(f"gpu\nuuid GPU-a\n{lines('power', Constant(320))}update energy 0.05\n")
    found = energy.measured(time.sleep, {"cuda:0": "GPU-a"}, 2.5, tmp_path / "samples.jsonl")
    for method in (found.counter, found.power):
        assert method.energy_j == pytest.approx(320 * found.window_s, rel=0.01)
    assert energy_verdict(found.counter, found.power)[0]
    assert (tmp_path / "samples.jsonl").read_text().count("\n") > found.readings  # the raw journal stays


@pytest.mark.slow
def test_a_gpu_without_a_counter_does_not_agree_with_itself(tmp_path, stand_in):
    stand_in(f"gpu\nuuid GPU-a\n{lines('power', Constant(320))}error nvmlDeviceGetTotalEnergyConsumption NOT_SUPPORTED\n")
    found = energy.measured(time.sleep, {"cuda:0": "GPU-a"}, 2.1, tmp_path / "samples.jsonl")
    assert energy_verdict(found.counter, found.power) == "no energy by counter: it was not sampled"
