"""What goes wrong on a GPU, replayed: the run is whole, the exit code and the sentence are right."""

from __future__ import annotations

import pytest
import torch

from rooflines.profiler.directory import load
from rooflines.roofline.analysis import Analysis
from rooflines.serial import read_json
from tests.replay.device import ReplayDevice
from tests.replay.fixtures import every, profiled, replaying, rooflines
from tests.replay.recorded import recorded

STEPS = 10
# As torch 2.14 writes them.
LOST = (
    "CUDA error: unspecified launch failure\nSearch for `cudaErrorLaunchFailure' in the CUDA documentation for more information.\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
)
FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.25 GiB is free. Of the "
    "allocated memory 76.10 GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but unallocated."
)
SCRIPT = """
import torch
from tests.replay import fixtures

class Step(torch.nn.Module):
    def forward(self, x):
        fixtures.replayed.run_step()
        return x + 1

model = Step()
with torch.no_grad():
    for _ in range(100):
        model(torch.ones(8))
"""


def lost():
    return torch.AcceleratorError(LOST)


@pytest.fixture
def device():
    return ReplayDevice(recorded("bert-small_h100_inference"), every(4_000_000))


def fail(device, error, *when):
    """The device raises ``error()`` ``when`` it is asked for one of these, from its fourth timed step on."""

    def fault(asked):
        if asked in when and device.timed_steps >= 3:
            raise error()

    device.fault = fault


def profile(device, folder, library):
    """A run of ten timed steps: the command's answer and the run."""
    answer = profiled(device, folder, library, "--batch-size", 8, "--steps", STEPS, "--formats", "text")
    return answer, load(folder / "run")


@pytest.mark.ci
def test_out_of_memory_names_what_was_asked_for_and_what_was_free(device, tmp_path, nvml_library, monkeypatch):
    fail(device, lambda: torch.OutOfMemoryError(FULL), "step")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1.25 * 2**30, 80 * 2**30))
    answer, run = profile(device, tmp_path, nvml_library)
    assert answer.code == 2
    assert answer.complaint == [
        "rooflines: out of memory in replayed.py:step (inference, batch 8): 2.00 GiB asked for, 1.25 GiB of 80.0 GiB free on cuda:0.",
        f"  Try --batch-size 4. The recording so far is in '{run.directory}'.",
    ]
    assert (run.facts.status, len(run.facts.steps.timed_ns)) == ("failed", 3)


@pytest.mark.ci
def test_a_gpu_so_full_that_it_cannot_be_asked_is_said_to_be_full(device, tmp_path, nvml_library, monkeypatch):
    def full(_):
        raise torch.AcceleratorError("CUDA error: out of memory")

    fail(device, lambda: torch.AcceleratorError("CUDA error: out of memory\nSearch for ..."), "step")
    monkeypatch.setattr(torch.cuda, "mem_get_info", full)
    answer, run = profile(device, tmp_path, nvml_library)
    assert answer.code == 2
    assert answer.complaint[0] == "rooflines: out of memory in replayed.py:step (inference, batch 8): cuda:0 is full."
    assert run.facts.status == "failed"


@pytest.mark.ci
@pytest.mark.parametrize("when", [("step", "wait"), ("wait",)])
def test_a_device_lost_while_steps_are_timed(device, tmp_path, nvml_library, when):
    """With the next launch, or only where something waits for the device: after the last timed step."""
    fail(device, lost, *when)
    answer, run = profile(device, tmp_path, nvml_library)
    assert answer.code == 2
    assert answer.complaint == [
        "rooflines: replayed.py:step raised AcceleratorError: CUDA error: unspecified launch failure",
        f"  The recording so far is in '{run.directory}'.",
    ]
    assert (run.facts.status, run.facts.error) == ("failed", LOST)
    assert run.facts.steps.timed_ns == ()  # a device that is gone does not tell its events' times
    assert {sample.device for sample in run.samples} == {"host", "cuda:0"}
    assert not any("\n" in note for note in run.facts.notes)
    again = rooflines("analyze", run.directory)
    assert again.code == 0, again.err
    assert "this run failed: CUDA error: unspecified launch failure" in " ".join(again.out.split())


@pytest.mark.ci
def test_a_device_lost_while_steps_are_traced_keeps_the_timed_ones(device, tmp_path, nvml_library):
    def fault(asked):
        if device.tracing is not None:
            raise lost()

    device.fault = fault
    answer, run = profile(device, tmp_path, nvml_library)
    assert answer.code == 2
    assert "CUDA error: unspecified launch failure" in answer.complaint[0]
    assert run.facts.steps.timed_ns == tuple(map(every(4_000_000), range(STEPS)))
    assert run.facts.trace is None


@pytest.mark.ci
def test_a_script_that_lost_its_device_is_reported_without_ceilings(device, tmp_path, nvml_library, monkeypatch):
    """What had been traced before is there, and the error is the script's, not that of measuring the ceilings."""

    def unmeasurable(*_, **__):
        raise lost()

    fail(device, lost, "step", "wait")
    monkeypatch.setattr("rooflines.device_specs.measure.measure", unmeasurable)
    script, folder = tmp_path / "serve.py", tmp_path / "run"
    script.write_text(SCRIPT)
    with replaying(device, tmp_path, nvml_library):
        answer = rooflines("profile", script, "--device", "cuda", "--output", folder, "--warmup", 2, "--formats", "text")
    assert answer.code == 1
    assert answer.complaint[0] == f"rooflines: the script '{script}' raised AcceleratorError: CUDA error: unspecified launch failure"
    run = load(folder)
    assert (run.facts.status, run.facts.ceilings) == ("failed", None)
    assert "the ceilings could not be measured after the failure: CUDA error: unspecified launch failure" in run.facts.notes
    assert run.trace_path is not None
    assert "addmm" in (folder / "report.txt").read_text()


@pytest.mark.ci
def test_a_trace_without_kernels_says_so_and_bounds_nothing(tmp_path, nvml_library):
    """As of a profiler without CUPTI."""
    device = ReplayDevice(recorded("bert-small_h100_inference").without_device(), every(4_000_000))
    answer, run = profile(device, tmp_path, nvml_library)
    assert (answer.code, run.facts.status) == (0, "complete")
    found = read_json(run.directory / "analysis.json", Analysis)
    assert found.steps.median_s == pytest.approx(4e-3)
    assert "What bounds the step is unknown: no work of cuda:0 was traced." in found.verdict
    assert [note for note in found.notes if note.startswith("the trace has no work of cuda:0")]
    assert (found.findings, found.limited_by) == ((), None)
    assert {row.efficiency for row in found.operators} == {None}
    assert not any(words in found.verdict for words in ("Host-bound", "idle", "gain"))
