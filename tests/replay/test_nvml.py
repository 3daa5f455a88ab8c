"""What NVIDIA's driver does not say, may not say or says otherwise, through the whole of ``rooflines profile``."""

from __future__ import annotations

import threading

import pytest

from rooflines.profiler.directory import load
from rooflines.roofline.analysis import Analysis
from rooflines.serial import read_json
from tests.profiler.samplers.nvml_driver.signals import Constant, integral
from tests.replay.device import NAME, POWER, UUID, ReplayDevice
from tests.replay.fixtures import EPOCH_S, driver_script, every, profiled
from tests.replay.recorded import Recorded, recorded

H100 = "bert-small_h100_inference"
# Every question of a sample, and what it is called where it may not be read.
QUESTIONS = {
    "nvmlDeviceGetTotalEnergyConsumption": "energy", "field_185": "average power", "field_186": "instant power",
    "nvmlDeviceGetPowerUsage": "power", "nvmlDeviceGetUtilizationRates": "utilization", "nvmlDeviceGetMemoryInfo_v2": "",
    "nvmlDeviceGetMemoryInfo": "memory", "nvmlDeviceGetEnforcedPowerLimit": "power limit", "nvmlDeviceGetTemperature": "temperature",
    "nvmlDeviceGetClockInfo": "SM clock", "nvmlDeviceGetCurrentClocksEventReasons": "",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "throttle reasons", "nvmlDeviceGetTotalEccErrors": "corrected memory errors",
    "nvmlDeviceGetPcieThroughput": "PCIe throughput", "nvmlDeviceGetComputeRunningProcesses_v3": "process memory",
}  # fmt: skip


def replayed(trace=H100):
    return ReplayDevice(recorded(trace) if isinstance(trace, str) else trace, every(4_000_000))


def profile(device, folder, library, script, *, steps):
    """A run over the driver of ``script``, its analysis and the report."""
    answer = profiled(device, folder, library, "--steps", steps, "--formats", "text", script=script)
    assert answer.code == 0, answer.err
    report = " ".join((folder / "run" / "report.txt").read_text().split())
    run = load(folder / "run")
    assert run.facts.status == "complete"
    return run, read_json(folder / "run" / "analysis.json", Analysis), report


def of_device(analysis):
    (found,) = (one for one in analysis.usage.devices if one.device == NAME)
    return found


def energy_is_that_of_the_signal(run, analysis, power=POWER):
    steps, energy = run.facts.steps, of_device(analysis).energy
    begin_s = steps.timed_began_ns / 1e9 - EPOCH_S
    truth_j = integral(power, begin_s, begin_s + sum(steps.timed_ns) / 1e9)
    return energy.energy_j == pytest.approx(truth_j, abs=energy.error_j, rel=1e-9)


@pytest.mark.ci
def test_a_gpu_is_found_by_its_uuid_where_nvml_counts_otherwise_and_another_is_lost(tmp_path, nvml_library):
    """torch's first GPU is NVML's third; of the two before it one idles, and one has fallen off the bus."""
    device = replayed()
    head, own = driver_script(device).split("gpu\n")
    others = "gpu\nuuid GPU-a\npower constant 60\ngpu\nuuid GPU-b\nlost 0\n"
    run, analysis, _ = profile(device, tmp_path, nvml_library, f"{head}{others}gpu\n{own}", steps=250)
    assert run.facts.notes == ()
    assert {sample.device for sample in run.samples} == {"host", NAME}
    assert energy_is_that_of_the_signal(run, analysis)
    assert run.facts.environment.driver == "575.51.03"


@pytest.mark.ci
def test_without_permission_for_anything_a_run_is_whole_and_says_once_what_it_lacks(tmp_path, nvml_library):
    device = replayed()
    denied = "".join(f"error {function} NO_PERMISSION\n" for function in QUESTIONS)
    run, analysis, report = profile(device, tmp_path, nvml_library, driver_script(device) + denied, steps=20)
    (note,) = run.facts.notes
    assert note.count("Not readable on cuda:0 by this user (Insufficient Permissions): ") == 1
    listed = note.partition("): ")[2].partition(".")[0].split(", ")
    assert set(filter(None, QUESTIONS.values())) <= set(listed)
    assert len(listed) == len(set(listed))
    assert "cuda:0: no joules, because neither energy nor power could be read." in report
    assert analysis.usage.energy_per_step_j is None
    assert analysis.steps.median_s == pytest.approx(4e-3)


@pytest.mark.ci
def test_an_old_driver_is_asked_in_its_own_words(tmp_path, nvml_library):
    """Without fields for power, the second version of the memory and event reasons, on a GPU without an energy counter."""
    device, power = replayed(), (Constant(400.0),)
    unknown = ("nvmlDeviceGetFieldValues", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons")
    old = "".join(f"error {function} FUNCTION_NOT_FOUND\n" for function in unknown)
    script = (
        driver_script(device, power).replace("capability 9.0", "capability 7.0").replace("throttle constant 0", "throttle constant 4")
    )
    run, analysis, report = profile(
        device, tmp_path, nvml_library, f"{script}{old}error nvmlDeviceGetTotalEnergyConsumption NOT_SUPPORTED\n", steps=250
    )
    one = of_device(analysis)
    assert run.facts.notes == ()
    assert (one.energy.method, one.throttled[0].reason) == ("power", "software power cap")
    assert one.throttled_fraction == pytest.approx(1.0)
    assert energy_is_that_of_the_signal(run, analysis, power)
    assert one.gauges["memory_used_bytes"].highest == device.recorded.facts.memory_bytes // 4
    assert "(software power cap 100 %)" in report


@pytest.mark.ci
def test_a_gpu_that_the_driver_loses_during_the_timed_pass_leaves_the_reason_and_the_step_times(tmp_path, nvml_library):
    device = replayed()
    timer = threading.Timer(0.4, (tmp_path / "lost").touch)

    def fault(asked):
        if device.timed_steps == 1 and not timer.is_alive():
            timer.start()

    device.fault = fault
    run, analysis, report = profile(device, tmp_path, nvml_library, f"{driver_script(device)}lost_by {tmp_path / 'lost'}\n", steps=500)
    timer.join()
    assert run.facts.notes == ("device samples: sampling of cuda:0 stopped: GPU is lost. See nvidia-smi and the kernel log.",)
    one = of_device(analysis)
    assert one.ended
    assert one.energy is None
    assert "before the window does" in one.no_energy.reason
    assert "cuda:0: no joules, because the samples end" in report
    assert len(run.facts.steps.timed_ns) == 500


@pytest.mark.ci
def test_a_slice_has_its_own_ceilings_and_memory_and_no_energy(tmp_path, nvml_library):
    document = recorded(H100).document
    properties = {"name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "numSms": 16, "totalGlobalMem": 10_468_982_784}
    slice_ = Recorded({**document, "deviceProperties": [{**document["deviceProperties"][0], **properties}]})
    whole = driver_script(replayed()).replace(f"uuid {UUID}", "uuid GPU-whole")
    script = f"{whole}slice MIG-{UUID.removeprefix('GPU-')} 7 10e9 3e9\n"
    run, analysis, report = profile(replayed(slice_), tmp_path, nvml_library, script, steps=20)
    (note,) = run.facts.notes
    assert note.startswith("device samples: cuda:0 is a slice of a GPU (MIG)")
    assert run.facts.environment.device_units == 16
    (vector,) = (roof for roof in run.facts.ceilings.ceilings if roof.name == "fp32 vector")
    assert vector.value == pytest.approx(16 / 132 * 67e12)
    one = of_device(analysis)
    assert (one.gauges["memory_used_bytes"].highest, one.energy) == (3_000_000_000, None)
    assert set(one.gauges) == {"memory_used_bytes", "memory_total_bytes"}
    assert "cuda:0: no joules" in report
