"""AMD GPUs through a stand-in of their management library, for want of hardware: units, what is absent, and GPUs found by UUID."""

import sys

import pytest

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.amd import AmdSampler, has_amd_gpu, open_amd_gpus, serial_of_uuid
from tests.profiler.samplers.amdsmi_stand_in import (
    AMDSMI_STATUS_DRIVER_NOT_LOADED,
    AMDSMI_STATUS_IO,
    AMDSMI_STATUS_NOT_SUPPORTED,
    AmdSmiStandIn,
    Gpu,
)

SERIALS = ("0x0123456789ABCDEF", "0x00000000DEADBEEF")


@pytest.fixture
def gpu():
    return Gpu(SERIALS[0])


@pytest.fixture
def nodes(tmp_path):
    """What the kernel's driver shows of a machine with a CPU and a GPU."""
    for node, simds in enumerate((0, 440)):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"cpu_cores_count 64\nsimd_count {simds}\nmem_banks_count 1\n")
    return tmp_path


def sampler(gpu, pids=(10, 11)):
    return AmdSampler(AmdSmiStandIn(gpu), gpu, "cuda:0", lambda: pids)


def test_units_and_what_is_not_available(gpu):
    # Units become si.
    (reading,) = sampler(gpu).read()
    assert (reading.source, reading.device) == ("amdsmi", "cuda:0")
    assert (reading.gpu_utilization, reading.gpu_memory_utilization) == (0.97, 0.41)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (3 << 30, 65520 << 20)
    assert (reading.power_w, reading.power_instant_w, reading.power_limit_w) == (410, 431, 560)
    assert reading.energy_j == pytest.approx(1_000_000 * 15.3e-6)
    assert (reading.temperature_c, reading.memory_temperature_c) == (61, 55)
    assert (reading.sm_clock_hz, reading.memory_clock_hz) == (1.7e9, 1.3e9)
    assert (reading.ecc_corrected, reading.ecc_uncorrected) == (3, 1)
    # What is not available is absent.
    gpu["amdsmi_get_gpu_activity"] = {"gfx_activity": "N/A", "umc_activity": "N/A"}
    gpu["amdsmi_get_power_info"] = {"current_socket_power": 431, "average_socket_power": "N/A"}
    (reading,) = sampler(gpu).read()
    assert reading.gpu_utilization is reading.gpu_memory_utilization is reading.power_w is None
    assert reading.power_instant_w == 431
    gpu["amdsmi_get_power_info"] = {"current_socket_power": 0xFFFFFFFF, "average_socket_power": 60}
    assert sampler(gpu).read()[0].power_instant_w is None


def test_memory_of_watched_processes(gpu):
    # Memory is that of the watched processes.
    assert sampler(gpu).read()[0].process_memory_bytes == (1 << 30) + (1 << 20)
    assert sampler(gpu, pids=[11]).read()[0].process_memory_bytes == 1 << 20
    # Processes that are listed as handles are asked about.
    infos = {f"handle {process['pid']}": process for process in gpu["amdsmi_get_gpu_process_list"]}
    gpu["amdsmi_get_gpu_process_list"], gpu["amdsmi_get_gpu_process_info"] = list(infos), infos
    assert sampler(gpu).read()[0].process_memory_bytes == (1 << 30) + (1 << 20)
    gpu["amdsmi_get_gpu_process_info"] = AMDSMI_STATUS_IO
    with_one_gone = sampler(gpu).read()[0]
    assert with_one_gone.process_memory_bytes is None
    assert with_one_gone.memory_used_bytes == 3 << 30


def test_memory_is_not_known_before_a_watched_process_was_listed(gpu, monkeypatch):
    clock = {"s": 0.0}
    monkeypatch.setattr("time.monotonic", lambda: clock["s"])
    pids = set()
    reader = sampler(gpu, pids)
    held = []
    for watched in ((), (11,), ()):
        pids.clear()
        pids.update(watched)
        held.append(reader.read()[0].process_memory_bytes)
        clock["s"] += 10
    assert held == [None, 1 << 20, 0]


def test_fields_that_fail_once_or_always(gpu):
    # Fields not supported are asked once.
    gpu["amdsmi_get_power_cap_info"] = AMDSMI_STATUS_NOT_SUPPORTED
    reader = sampler(gpu)
    assert [reader.read()[0].power_limit_w for _ in range(3)] == [None, None, None]
    assert gpu.asked.count("amdsmi_get_power_cap_info") == 1
    # A field that failed once is absent once.
    reader = sampler(gpu)
    whole, gpu["amdsmi_get_gpu_vram_usage"] = gpu["amdsmi_get_gpu_vram_usage"], AMDSMI_STATUS_IO
    assert reader.read()[0].memory_used_bytes is None
    gpu["amdsmi_get_gpu_vram_usage"] = whole
    assert reader.read()[0].memory_used_bytes == 3 << 30


def test_a_gpu_that_answers_nothing_ends_its_series(gpu):
    reader = sampler(gpu)
    reader.read()
    gpu.update(dict.fromkeys(gpu, AMDSMI_STATUS_IO))
    with pytest.raises(DeviceError, match=r"sampling of cuda:0 stopped: Error code: 12 \| AMDSMI_STATUS\."):
        reader.read()


def test_reasons_are_those_in_force_since_the_previous_reading(gpu):
    reader = sampler(gpu)
    assert reader.read()[0].throttle_reasons is None
    assert reader.read()[0].throttle_reasons == ""
    gpu["amdsmi_get_gpu_metrics_info"] = {"ppt_residency_acc": 9, "socket_thm_residency_acc": 2, "hbm_thm_residency_acc": "N/A"}
    assert reader.read()[0].throttle_reasons == "power cap, thermal slowdown"
    assert reader.read()[0].throttle_reasons == ""


@pytest.mark.parametrize(("status", "reasons"), [(True, "throttled"), (False, ""), ("N/A", None)])
def test_an_older_gpu_only_says_that_it_is_held_down(gpu, status, reasons):
    gpu["amdsmi_get_gpu_metrics_info"] = {"throttle_status": status, "ppt_residency_acc": "N/A"}
    assert sampler(gpu).read()[0].throttle_reasons == reasons


def test_names_of_older_versions_are_understood(gpu):
    gpu["amdsmi_get_energy_count"] = {"power": 2_000_000, "counter_resolution": 15.3}
    gpu["amdsmi_get_clock_info"] = {kind: {"cur_clk": 900} for kind in gpu["amdsmi_get_clock_info"]}
    gpu["amdsmi_get_power_cap_info"] = {"power_cap": 300}
    (reading,) = sampler(gpu).read()
    assert (reading.energy_j, reading.sm_clock_hz, reading.power_limit_w) == (pytest.approx(30.6), 900e6, 300)


def test_the_energy_counter_is_watched_for_its_update_period(gpu, monkeypatch):
    clock = {"s": 0.0}

    class Counting(dict):
        def __getitem__(self, key):
            clock["s"] += 1e-4
            return int(clock["s"] / 0.01) if key == "energy_accumulator" else super().__getitem__(key)

    gpu["amdsmi_get_energy_count"] = Counting(gpu["amdsmi_get_energy_count"])
    monkeypatch.setattr("time.perf_counter", lambda: clock["s"])
    reader = sampler(gpu)
    (energy,) = reader.counters()
    assert (energy.source, energy.device, energy.field) == ("amdsmi", "cuda:0", "energy_j")
    assert energy.update_s == pytest.approx(0.01, rel=0.05)
    assert energy.resolution == pytest.approx(15.3e-6)
    assert reader.period_s == energy.update_s / 2
    gpu["amdsmi_get_energy_count"] = AMDSMI_STATUS_NOT_SUPPORTED
    assert sampler(gpu).counters() == ()


def test_gpus_are_named_by_number_and_uuid(nodes, monkeypatch):
    # All gpus are named as the library counts them.
    monkeypatch.setitem(sys.modules, "amdsmi", AmdSmiStandIn(*map(Gpu, SERIALS)))
    samplers, problems, left = open_amd_gpus(None, frozenset, nodes)
    assert [reader.read()[0].device for reader in samplers] == ["amd0", "amd1"]
    assert (problems, left) == ([], None)
    # Torchs uuid names a gpu and others are left.
    monkeypatch.setitem(sys.modules, "amdsmi", AmdSmiStandIn(*map(Gpu, SERIALS)))
    uuid = b"00000000deadbeef".hex()  # as torch prints it: the bytes of the digits
    uuid = "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
    samplers, problems, left = open_amd_gpus({"cuda:1": uuid, "cuda:5": "GPU-1-2"}, frozenset, nodes)
    (reading,) = samplers[0].read()
    assert (len(samplers), reading.device, problems, left) == (1, "cuda:1", [], {"cuda:5": "GPU-1-2"})
    # A uuid of another make stays what it is.
    assert serial_of_uuid("GPU-0123456789abcdef") == "0123456789abcdef"
    assert serial_of_uuid("GPU-8d9fa1c2-0000-1111-2222-333344445555") == "8d9fa1c2000011112222333344445555"


def test_without_an_amd_gpu_nothing_is_loaded_and_nothing_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert not has_amd_gpu(tmp_path)
    assert open_amd_gpus(None, frozenset, tmp_path) == ([], [], None)


def test_gpus_without_amd_or_its_library(nodes, monkeypatch):
    # A gpu without the package is one sentence.
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    samplers, (problem,), left = open_amd_gpus({"cuda:0": "x"}, frozenset, nodes)
    assert (samplers, left) == ([], {"cuda:0": "x"})
    assert problem.startswith("The AMD GPU is not sampled: the package amdsmi cannot be used (")
    assert open_amd_gpus({}, frozenset, nodes) == ([], [], {})
    # A library that does not start is one sentence.
    monkeypatch.setitem(sys.modules, "amdsmi", AmdSmiStandIn(init_error=AMDSMI_STATUS_DRIVER_NOT_LOADED))
    _, (problem,), _ = open_amd_gpus(None, frozenset, nodes)
    assert problem == "The AMD GPU is not sampled: AMD SMI does not start (Error code: 34 | AMDSMI_STATUS)."
