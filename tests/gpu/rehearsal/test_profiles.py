"""The profiles part without a GPU: its cases on the CPU at a small size, on a replayed H100, and what they ask of a GPU.

Four runs of an H100 are judged in ``test_session``.
"""

import statistics
import sys
import time
from pathlib import Path

import pytest
import torch
import torchvision

from rooflines.profiler.records import Environment
from tests.commands import call
from tests.gpu import laws, test_energy, train
from tests.gpu import test_profiles as profiles
from tests.gpu.laws import energy_verdict
from tests.gpu.parts import Device, Ended, Findings, Recorder, run_logged
from tests.gpu.rehearsal import CPU, outcome
from tests.gpu.test_profiles import Case, Runs, cases, resnet_flops, traced
from tests.profiler.samplers.nvml_driver.signals import Constant, lines
from tests.replay.device import ReplayDevice
from tests.replay.fixtures import every, replaying, rooflines
from tests.replay.recorded import recorded

H200 = Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H200")
REHEARSED = {name: case for name, case in cases(CPU).items() if not case.left_out}
# What a CPU does not have, or does not do: its operators are slower under the profiler than timed.
OF_A_DEVICE = {
    "device busy <= timed step + 2 %", "sum of CUDA events = wall time within 3 %", "shortest kernel >= kernel launch / 1.05",
    "the roof of products is GEMM tf32", "a gradient scaler is at work", "kernels run in at least two streams",
    "idle time above 20 % has a cause, above 50 % the host limits the step",
    "SM clock >= 95 % of its maximum, or held down by the power limit", "integrated power = energy counter within 3 %",
    "steps with work in another stream are timed by the wall clock",
}  # fmt: skip
# Each runs code that no other one of these runs; the others differ by an option of the command.
QUICK = ("LSTM training fp32", "transformer training amp-bf16", "script on cpu", "products in two streams")
CLOSED_FORM = "matrix FLOPs equal the closed form within 0.1 %"


def gpu(*uuids, name="NVIDIA H200"):
    return Device(environment=Environment(rooflines="0", device="cuda:0", device_name=name), gpus=uuids)


# --- on the CPU


@pytest.fixture
def rehearsal(tmp_path):
    return Recorder(tmp_path, CPU, 600.0)


@pytest.fixture
def in_this_process(capsys, monkeypatch):
    """Runs commands of rooflines here, which takes a second instead of eight."""

    def launch(command, log, limit_s, *, variables=None):
        assert command[:3] == [sys.executable, "-m", "rooflines"]
        assert not variables
        answer = call(capsys, monkeypatch, *command[3:])
        return Ended(answer.code, f"exit code {answer.code}", answer.out, answer.err)

    monkeypatch.setattr(profiles, "run_logged", launch)


@pytest.mark.ci
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in REHEARSED])
def test_a_case_obeys_its_laws_on_the_cpu(rehearsal, in_this_process, name):
    runs = Runs(rehearsal)
    run = runs.profiled(name)
    judged = {law.text: law.verdict(run) for law in runs.cases[name].laws if law.text not in OF_A_DEVICE}
    # other programs took this machine's processors: no efficiency is judged
    failed = {law: verdict for law, verdict in judged.items() if outcome(verdict) != "ok" and not law.startswith("no efficiency")}
    assert failed == {}
    assert CLOSED_FORM in judged
    assert rehearsal.findings.figures["runs"][name]["steps"]["median_s"] > 0


@pytest.mark.ci
def test_a_run_that_is_not_traced_has_the_laws_of_its_times(rehearsal, in_this_process):
    case = REHEARSED["products in two streams"]
    profiles.run_case(rehearsal, case._replace(arguments=(*case.arguments, "--no-trace")), 300.0)
    run = profiles.load_profiled(rehearsal, case.name)
    assert laws.events_see_all_work.verdict(run) == (False, "steps timed by perf_counter")
    assert laws.in_several_streams.verdict(run) == "there is no trace"


def quickly(command, log, limit_s):
    """Runs ``rooflines monitor`` on a program that does not take seconds to load torch."""
    program = command.index("--") + 1
    assert command[program:] == [sys.executable, str(profiles.SCRIPT), "--device", "cpu", "--seconds", "0.3"]
    return run_logged([*command[:program], sys.executable, "-c", "import time; time.sleep(0.3)"], log, limit_s)


@pytest.mark.ci
@pytest.mark.parametrize("launch", [quickly, pytest.param(run_logged, marks=pytest.mark.slow)])
def test_monitor_watches_a_program(rehearsal, monkeypatch, launch):
    monkeypatch.setattr(profiles, "run_logged", launch)
    profiles.run_monitor(rehearsal, 60.0)
    found = {law: outcome(judge(rehearsal.findings, CPU)) for law, judge in profiles.MONITOR_LAWS.items()}
    assert found == {
        "rooflines monitor returns the exit code 0 of the program": "ok",
        "the GPU that was sampled did the work": "failed",  # there is none
        "the program's memory was sampled": "ok",
    }
    assert (rehearsal.folder / "monitor.txt").exists()


# --- on a replayed H100


def replay(command, log, limit_s, *, variables=None):
    answer = rooflines(*command[3:])
    return Ended(answer.code, f"exit code {answer.code}", answer.out, answer.err)


@pytest.mark.ci
def test_a_replayed_run_obeys_the_laws_of_every_run_and_breaks_those_that_do_not_hold(nvml_library, tmp_path, monkeypatch):
    trace = recorded("bert-small_h100_inference")
    step_ns = round(0.9 * statistics.median(trace.step_ns))
    clock_hz = 1.755e9  # of the stand-in driver's script
    device = Device(environment=Environment(rooflines="0", device="cuda:0", device_name=trace.facts.name), max_clock_hz=clock_hz)
    recorder = Recorder(tmp_path, device, 300.0)
    judged = (
        laws.run_at_maximum_clock, laws.run_energies_agree, *traced(1, 0.5), laws.other_stream_noticed, laws.sampled_gpu_works,
        laws.one_graph_launch, laws.scaler_at_work,
    )  # fmt: skip
    monkeypatch.setattr(profiles, "run_logged", replay)
    with replaying(ReplayDevice(trace, every(step_ns)), tmp_path, nvml_library) as workload:
        arguments = (f"{workload}:step", "--ceilings", "spec", "--steps", "50", "--warmup", "1")
        record = profiles.run_case(recorder, Case("bert", arguments, judged, whole=True), 300.0)
    run = profiles.load_profiled(recorder, "bert")
    verdicts = {law.text: law.verdict(run) for law in judged}
    outcomes = {law: outcome(verdict) for law, verdict in verdicts.items()}
    assert {law for law, found in outcomes.items() if found == "ok"} == {
        "SM clock >= 95 % of its maximum, or held down by the power limit", "no efficiency above 1.05",
        "operators + unmodelled + idle = span within 0.1 %", "device busy <= timed step + 2 %",
        "sum of CUDA events = wall time within 3 %", "coverage >= 50 %", "every phase has time",
        "the GPU that was sampled did the work",
    }, verdicts  # fmt: skip
    assert {law for law, found in outcomes.items() if found == "failed"} == {
        CLOSED_FORM, "steps with work in another stream are timed by the wall clock", "one launch of a CUDA graph per step",
        "a gradient scaler is at work",
    }  # fmt: skip
    # what a data sheet and a short run do not have is left out
    assert verdicts["shortest kernel >= kernel launch / 1.05"] == "the latency of a kernel launch was not measured"
    assert record["coverage"]["modeled_time_fraction"] > 0.5
    assert record["verdict"]
    assert len(record["operators"]) == 15
    assert "durations_s" not in record["steps"]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "expected"), [
    ("update energy 0.05\n", True),
    ("error nvmlDeviceGetTotalEnergyConsumption NOT_SUPPORTED\n", "no energy by counter: it was not sampled"),
])  # fmt: skip
def test_both_energies_of_a_held_load(tmp_path, stand_in, script, expected):
    stand_in(f"gpu\nuuid GPU-a\n{lines('power', Constant(320))}{script}")
    recorder = Recorder(tmp_path, gpu(), 60.0)
    held = test_energy.held(time.sleep, {"cuda:0": "GPU-a"}, 2.5, tmp_path / "samples.jsonl")
    recorder.figure("held", held)
    verdict = test_energy.energies_agree(recorder.findings, recorder.device)
    assert verdict == energy_verdict(held.counter, held.power)
    assert verdict == expected or verdict[0] is expected
    assert held.power.energy_j == pytest.approx(320 * held.window_s, rel=0.01)
    assert (tmp_path / "samples.jsonl").read_text().count("\n") > held.readings  # the raw journal stays


# --- what the cases ask of a GPU


@pytest.mark.parametrize("model", ["resnet18", "resnet50"])
@pytest.mark.parametrize(("image", "batch"), [(224, 32), (32, 2)])
def test_flops_of_a_resnet_are_those_of_its_layers(model, image, batch):
    """Layer by layer: a convolution multiplies each output by its window and input channels, the classifier is one product."""
    macs = []

    def count(module, inputs, output):
        width = module.in_features if isinstance(module, torch.nn.Linear) else module.in_channels * module.kernel_size[0] ** 2
        macs.append(output.numel() * width)

    with torch.device("meta"):
        network = getattr(torchvision.models, model)().eval()
        for module in network.modules():
            if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
                module.register_forward_hook(count)
        network(torch.empty(batch, 3, image, image))
    assert resnet_flops(model, "inference", image, batch) == 2 * sum(macs)
    # backward: the gradients of the weights of every layer, and of the inputs of all but the first
    assert resnet_flops(model, "training", image, batch) == 2 * (3 * sum(macs) - macs[0])


def test_what_is_not_there_is_left_out_with_the_reason():
    def left_out(device):
        return {name: case.left_out for name, case in cases(device).items() if case.left_out}

    second, mig, by_uuid = (
        "script on cuda:1", "resnet18 inference on a MIG slice", "resnet18 inference with CUDA_VISIBLE_DEVICES",
    )  # fmt: skip
    whole = {mig: "the GPU is not partitioned (MIG)"}
    assert left_out(gpu("GPU-1", "GPU-2")) == whole
    assert left_out(gpu("GPU-1")) == whole | {second: "there is one GPU, or none"}
    assert left_out(gpu())[by_uuid] == "NVML does not tell the UUID of the GPU"
    slice_of = gpu("MIG-1", name="NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    assert left_out(slice_of) == {second: "there is one GPU, or none", by_uuid: "the GPU is a MIG slice"}


def test_the_command_of_a_case():
    case = cases(gpu("GPU-1", "GPU-2"))["resnet18 inference with CUDA_VISIBLE_DEVICES"]
    assert case.environment == {"CUDA_VISIBLE_DEVICES": "GPU-2"}  # the last GPU is made the only one
    output = ["--output", "run", "--formats", "json", "--quiet"]
    assert profiles.command(case, "cuda:0", Path("run"))[-7:] == ["--device", "cuda:0", *output]
    # the second GPU is judged by its data sheet where it has one
    for name, ceilings in (("NVIDIA H200", ("--ceilings", "spec")), ("NVIDIA X9000", ())):
        case = cases(gpu("0", "1", name=name))["script on cuda:1"]
        assert case.arguments[1:] == ceilings
        assert profiles.command(case, "cuda:0", Path("run"))[-10:] == [
            *output, "--", "--device", "cuda:1", "--steps", "200",
        ]  # fmt: skip
    assert train.flops("cuda") == 8 * 2 * 2048**3


# --- the time of a case


@pytest.fixture
def stopped(monkeypatch):
    """The limits of commands that take too long."""
    limits = []

    def never_ends(command, log, limit_s, *, variables=None):
        limits.append(limit_s)
        return Ended(None, f"stopped after {limit_s:.0f} s", "", "")

    monkeypatch.setattr(profiles, "run_logged", never_ends)
    return limits


def test_a_case_that_takes_too_long_fails_and_the_next_one_runs(tmp_path, stopped):
    runs = Runs(Recorder(tmp_path, gpu(), 600.0))
    first, second, *_ = runs.cases
    assert runs.figure(first) == {"error": "stopped after 180 s"}  # with the time for the ceilings
    assert runs.figure(second) == {"error": "stopped after 60 s"}
    assert runs.figure(first) == {"error": "stopped after 180 s"}  # not again
    assert len(stopped) == 2
    assert runs.profiled(first) == "rooflines profile did not succeed"


def test_a_case_ends_before_its_part_and_is_not_begun_without_time(tmp_path, stopped):
    runs = Runs(Recorder(tmp_path, gpu(), 50.0))
    runs.figure("LSTM training fp32")
    assert 40 < stopped[0] <= 47
    late = Runs(Recorder(tmp_path, gpu(), 10.0))
    assert late.profiled("LSTM training fp32") == "no time was left"
    assert len(stopped) == 1


def test_a_command_that_fails_says_its_last_words(rehearsal, monkeypatch):
    ended = Ended(2, "exit code 2", "", "a warning\nrooflines: no such model\n\n")
    monkeypatch.setattr(profiles, "run_logged", lambda *_, **__: ended)
    failed = {"error": "exit code 2: rooflines: no such model"}
    assert profiles.run_case(rehearsal, REHEARSED["script on cpu"], 60.0) == failed
    profiles.run_monitor(rehearsal, 60.0)
    assert rehearsal.error == "rooflines monitor: exit code 2: rooflines: no such model"
    assert rehearsal.findings == Findings(figures={"monitor_exit_code": 2})
