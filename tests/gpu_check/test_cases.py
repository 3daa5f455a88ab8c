"""The cases of the GPU check, rehearsed on the CPU: the same commands and code at a small size, with the laws that hold there."""

import sys
from pathlib import Path

import pytest
import torch
import torchvision

from rooflines.gpu_check import check, laws, profiles
from rooflines.gpu_check.profiles import SCRIPT, cases, resnet_flops
from rooflines.gpu_check.records import Device, Ended, Recorder, run_logged
from rooflines.profiler.records import Environment
from tests.commands import call

CPU = Device(environment=Environment(rooflines="0", device="cpu", device_name="a CPU"))
GPU = Device(environment=Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H200"))
REHEARSED = {case.name: case for case in cases(CPU, ()) if not case.left_out}
# Left out without a GPU to take them from: what only a device has.
OF_A_DEVICE = {
    "device busy <= timed step + 2 %", "sum of CUDA events = wall time within 3 %", "shortest kernel >= kernel launch / 1.05",
    "SM clock >= 95 % of its maximum, or held down by the power limit", "integrated power = energy counter within 3 %",
    "the roof of products is GEMM tf32", "a gradient scaler is at work",
    "idle time above 20 % has a cause, above 50 % the host limits the step", "kernels run in at least two streams",
    "steps with work in another stream are timed by the wall clock", "the GPU that was sampled did the work",
}  # fmt: skip
# Each runs code that no other one of these runs; the others differ by an option of the command.
QUICK = ("LSTM training fp32", "transformer training amp-bf16", "script on cpu", "products in two streams")


@pytest.fixture
def rehearsal(tmp_path):
    return Recorder(tmp_path, CPU)


def outcomes_of(recorder):
    return {one.law: one.outcome for one in recorder.findings.checks}


def never_ends(command, log, limit_s, *, variables=None):
    return Ended(None, f"stopped after {limit_s:.0f} s", "", "")


@pytest.fixture
def in_this_process(capsys, monkeypatch):
    """Runs commands of rooflines here, which takes a second instead of eight."""

    def launch(command, log, limit_s, *, variables=None):
        assert command[:3] == [sys.executable, "-m", "rooflines"]
        assert not variables
        answer = call(capsys, monkeypatch, *command[3:])
        return Ended(answer.code, f"exit code {answer.code}", answer.out, answer.err)

    monkeypatch.setattr(profiles, "run_logged", launch)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in REHEARSED])
def test_a_case_obeys_its_laws_on_the_cpu(rehearsal, in_this_process, name):
    found = profiles.run_case(rehearsal, REHEARSED[name], 300.0)
    assert "error" not in found
    outcomes = outcomes_of(rehearsal)
    if outcomes.get("no efficiency above 1.05") == "left out":  # other programs took this machine's processors: nothing is judged
        del outcomes["no efficiency above 1.05"]
    assert {law for law, outcome in outcomes.items() if outcome != "ok"} <= OF_A_DEVICE, rehearsal.findings.checks
    # a closed form was compared, and not left out
    assert outcomes["matrix FLOPs equal the closed form within 0.1 %"] == "ok"


def test_a_case_that_is_not_traced_has_the_laws_of_its_times(rehearsal, in_this_process):
    case = REHEARSED["products in two streams"]._replace(laws=(laws.events_see_all_work,))
    untraced = case._replace(arguments=(*case.arguments, "--no-trace"))
    assert "error" not in profiles.run_case(rehearsal, untraced, 300.0)
    assert outcomes_of(rehearsal) == {"rooflines profile succeeds": "ok", "sum of CUDA events = wall time within 3 %": "left out"}


def quickly(command, log, limit_s):
    """Runs ``rooflines monitor`` on a program that does not take seconds to load torch."""
    program = command.index("--") + 1
    assert command[program:] == [sys.executable, str(SCRIPT), "--device", "cpu", "--seconds", "0.3"]
    return run_logged([*command[:program], sys.executable, "-c", "import time; time.sleep(0.3)"], log, limit_s)


@pytest.mark.parametrize("launch", [quickly, pytest.param(run_logged, marks=pytest.mark.slow)])
def test_monitor_watches_a_program(rehearsal, monkeypatch, launch):
    monkeypatch.setattr(profiles, "run_logged", launch)
    profiles.run_monitor(rehearsal, 60.0)
    outcomes = outcomes_of(rehearsal)
    assert (rehearsal.folder / "monitor.txt").exists()
    assert outcomes.pop("the GPU that was sampled did the work") == "left out"
    assert set(outcomes.values()) == {"ok"}, rehearsal.findings.checks
    assert rehearsal.findings.figures["monitor"]["ending"]["exit_code"] == 0


# --- what the cases say


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


def test_the_cases_are_those_that_were_asked_for():
    found = {case.name: case for case in cases(GPU, ("GPU-1", "GPU-2"))}
    assert list(found) == [
        "resnet50 inference fp32", "resnet50 training fp32", "resnet50 training amp-bf16", "resnet50 training amp-fp16",
        "resnet50 inference with TF32", "LSTM training fp32", "transformer training amp-bf16", "resnet50 inference of one image",
        "script on cuda:0", "script on cuda:1", "resnet50 inference in a CUDA graph", "products in two streams",
        "resnet18 inference with CUDA_VISIBLE_DEVICES", "resnet18 inference on a MIG slice", "resnet18 inference compiled",
    ]  # fmt: skip
    assert {name for name, case in found.items() if case.left_out} == {"resnet18 inference on a MIG slice"}
    assert all(case.laws for case in found.values())
    # the first two are timed as long as any run, the others for a moment
    assert [name for name, case in found.items() if case.whole] == list(found)[:2]
    assert [name for name, case in found.items() if case.names_device and "--steps" not in case.arguments] == list(found)[:2]


def test_what_is_not_there_is_left_out_with_the_reason():
    one = {case.name: case.left_out for case in cases(GPU, ("GPU-1",)) if case.left_out}
    assert one == {
        "script on cuda:1": "there is one GPU, or none",
        "resnet18 inference on a MIG slice": "the GPU is not partitioned (MIG)",
    }
    slices = Device(environment=Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H100 80GB HBM3 MIG 1g.10gb"))
    of_slices = {case.name: case.left_out for case in cases(slices, ("MIG-1",)) if case.left_out}
    assert of_slices == {
        "script on cuda:1": "there is one GPU, or none",
        "resnet18 inference with CUDA_VISIBLE_DEVICES": "the GPU is a MIG slice",
    }
    unknown = {case.name: case.left_out for case in cases(GPU, ())}
    assert unknown["resnet18 inference with CUDA_VISIBLE_DEVICES"] == "NVML does not tell the UUID of the GPU"


def test_the_last_gpu_is_made_the_first_one():
    case = next(case for case in cases(GPU, ("GPU-1", "GPU-2")) if case.environment)
    assert case.environment == {"CUDA_VISIBLE_DEVICES": "GPU-2"}
    assert profiles.command(case, "cuda:0", Path("run"))[-7:] == [
        "--device", "cuda:0", "--output", "run", "--formats", "json", "--quiet",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "ceilings"), [("NVIDIA H200", ("--ceilings", "spec")), ("NVIDIA X9000", ())])
def test_the_second_gpu_is_judged_by_its_data_sheet_where_it_has_one(name, ceilings):
    device = Device(environment=Environment(rooflines="0", device="cuda:0", device_name=name))
    case = next(case for case in cases(device, ("0", "1")) if case.name == "script on cuda:1")
    assert case.arguments[1:] == ceilings


def test_visible_gpus_are_as_set_or_as_nvml_names_them(monkeypatch, stand_in_here):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stand_in_here("gpu\nuuid GPU-1\ngpu\nuuid GPU-2\n")
    assert profiles.visible_gpus(2) == ("GPU-1", "GPU-2")
    assert profiles.visible_gpus(1) == ("GPU-1",), "torch sees one slice of two boards with MIG"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-1")
    assert profiles.visible_gpus(2) == ("3", "GPU-1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert profiles.visible_gpus(0) == ()


def test_a_command_that_takes_too_long_fails_and_the_next_one_runs(rehearsal, monkeypatch):
    monkeypatch.setattr(profiles, "run_logged", never_ends)
    profiles.run(rehearsal)
    findings = rehearsal.findings
    assert list(findings.figures["runs"]) == list(REHEARSED)
    assert {one.outcome for one in findings.checks} == {"failed"}
    assert findings.checks[0].found == "stopped after 180 s"  # with the time for the ceilings
    assert findings.checks[1].found == "stopped after 60 s"
    assert {one.what for one in findings.left_out} == {case.name for case in cases(CPU, ()) if case.left_out}


def test_without_time_cases_are_left_out_and_not_begun(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, CPU, limit_s=10.0)
    monkeypatch.setattr(profiles, "run_logged", lambda *_, **__: pytest.fail("a case was begun"))
    profiles.run(recorder)
    reasons = {one.what: one.reason for one in recorder.findings.left_out}
    assert reasons["LSTM training fp32"] == reasons[profiles.MONITOR] == "no time was left"


def test_a_case_ends_before_its_part(tmp_path, monkeypatch):
    limits = []

    def launch(command, log, limit_s, *, variables=None):
        limits.append(limit_s)
        return never_ends(command, log, limit_s)

    monkeypatch.setattr(profiles, "run_logged", launch)
    profiles.run(Recorder(tmp_path, CPU, limit_s=50.0))
    assert all(40 < limit <= 47 for limit in limits)


def test_a_command_that_fails_says_its_last_words(rehearsal, monkeypatch):
    monkeypatch.setattr(profiles, "run_logged", lambda *_, **__: Ended(2, "exit code 2", "", "a warning\nrooflines: no such model\n\n"))
    assert profiles.run_case(rehearsal, REHEARSED["script on cpu"], 60.0)["error"].startswith("a warning")
    (found,) = rehearsal.findings.checks
    assert (found.outcome, found.found) == ("failed", "exit code 2: rooflines: no such model")


def test_a_logged_command_is_stopped_at_its_limit(tmp_path):
    code = "import sys, time; print('begun', flush=True); print('why', file=sys.stderr, flush=True); time.sleep(600)"
    stopped = run_logged([sys.executable, "-c", code], tmp_path / "log.txt", 3.0)
    assert stopped == (None, "stopped after 3 s", "begun\n", "why\n")
    done = run_logged([sys.executable, "-c", "import os; raise SystemExit(int(os.environ['X']))"], tmp_path / "log.txt", 60.0,
                      variables={"X": "3"})  # fmt: skip
    assert (done.code, done.how) == (3, "exit code 3")


def test_the_device_of_a_rehearsal_is_the_cpu():
    assert check.describe_device({"name": "cpu"}, Path(), None).rehearsed
