"""The NVML sampler, asking the real pynvml over the stand-in driver: units, what is absent, what ends a series, what is asked again."""

import contextlib
import math
import time
from collections import Counter as Tally

import pynvml
import pytest

from rooflines.device_specs.nvml import find_gpu, throttle_reasons
from rooflines.errors import DeviceError
from rooflines.profiler.samplers import nvml
from rooflines.profiler.samplers.nvml import LAST_READINGS, TURN_S, UNMEASURED_PERIOD_S, NvmlSampler, open_gpus
from tests.profiler.samplers.nvml_driver.scripts import FULL, with_lines, without
from tests.profiler.samplers.nvml_driver.signals import Burst, Constant, Ramp, Square, lines

THROTTLED = "software power cap, software thermal slowdown"
UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture
def no_turns(monkeypatch):
    """What is read in turn is read at every reading, one of it."""
    monkeypatch.setattr(nvml, "TURN_S", 0.0)


@pytest.fixture
def short_burst(monkeypatch):
    """Counters are watched for a moment only."""
    monkeypatch.setattr(nvml, "BURST_S", 0.05)


@contextlib.contextmanager
def sampler(identity=0, device="cuda:0", pids=None):
    opened = NvmlSampler(identity, device, pids)
    try:
        yield opened
    finally:
        opened.close()


def first_reading(**options):
    with sampler(**options) as opened:
        (reading,) = opened.read()
    return reading


def read(opened, times):
    return [reading for _ in range(times) for reading in opened.read()]


def read_for(opened, seconds):
    """The readings of some time, taken as fast as can be."""
    readings, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        readings += opened.read()
    return readings


def asked(journal):
    """How often each function and field was asked."""
    return Tally(line.split()[1] for line in journal.read_text().splitlines())


# --- fields and units


def test_every_field_in_si_units(stand_in_here, no_turns):
    stand_in_here(without(FULL, "power") + "power constant 431.5\nupdate energy 1e6\n")
    with sampler() as opened:
        readings = read(opened, 3)
    reading = readings[0]
    assert (reading.source, reading.device) == ("nvml", "cuda:0")
    assert (reading.gpu_utilization, reading.gpu_memory_utilization) == (0.97, 0.41)
    assert (reading.power_w, reading.power_instant_w, reading.power_limit_w) == (431.5, 431.5, 700.0)
    assert reading.energy_j == 123456.789
    assert (reading.temperature_c, reading.memory_temperature_c) == (61.0, 74.0)
    assert (reading.sm_clock_hz, reading.memory_clock_hz) == (1.98e9, 2.619e9)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (3 << 30, 80 << 30)
    assert (reading.nvlink_tx_bytes, reading.nvlink_rx_bytes) == (1 << 20, 2 << 20)
    assert (reading.ecc_corrected, reading.ecc_uncorrected) == (3, 1)
    assert reading.throttle_reasons == "software power cap, software thermal slowdown"
    assert {one.pcie_tx_bytes_per_s for one in readings} == {None, 1.5e9}
    assert {one.pcie_rx_bytes_per_s for one in readings} == {None, 2.5e9}


def test_time_is_that_of_the_energy(stand_in_here):
    # The counter shows how long ago zero was: 1 W since then.
    zero = time.time()
    stand_in_here(f"epoch {zero!r}\ngpu\npower constant 1\nmemory_used constant 1\nlatency nvmlDeviceGetMemoryInfo_v2 0.05\n")
    with sampler() as opened:
        readings = [opened.read()[0] for _ in range(9)]
    # A busy machine may delay some of them; a time taken after the slow question would be too late in all.
    assert min(abs(reading.time_ns / 1e9 - zero - reading.energy_j) for reading in readings) <= 0.02


@pytest.mark.parametrize(("gpu", "window_s", "power_w"), [
    ("capability 7.0", 0.0, 300.0),
    ("capability 8.0", 0.0, 300.0),
    ("capability 8.6", 1.0, 200.0),
    ("capability 9.0", 1.0, 200.0),
    ("capability 8.0\nwindow power_average 1", 1.0, 200.0),  # whoever has an average
])  # fmt: skip
def test_usual_power_is_of_the_moment_up_to_ga100_and_an_average_after_it(stand_in_here, short_burst, gpu, window_s, power_w):
    # 100 W and 300 W for half a second each: 200 W over any second. The moment that is shown falls into the high half.
    power = lines("power", Square(100, 300, period_s=1.0))
    stand_in_here(f"gpu\n{gpu}\n{power}update power 1e6 0.25\nupdate power_average 1e6 0.25\n")
    with sampler() as opened:
        (counter,) = (counter for counter in opened.counters() if counter.field == "power_w")
        assert counter.window_s == window_s
        assert opened.read()[0].power_w == pytest.approx(power_w, abs=1e-3)


def test_drivers_without_power_fields_have_the_usual_power(stand_in_here, short_burst):
    stand_in_here(with_lines(FULL, "error field_185 INVALID_ARGUMENT", "error field_186 NOT_SUPPORTED"))
    with sampler() as opened:
        (reading,) = opened.read()
        assert (reading.power_w, reading.power_instant_w) == (431.5, None)
        assert {counter.field: counter.window_s for counter in opened.counters()}["power_w"] == 1.0


@pytest.mark.parametrize(("bits", "words"), [
    (0x0, ()),
    (0x1 | 0x2, ()),
    (0x1 | 0x8 | 0x40, ("hardware slowdown", "hardware thermal slowdown")),
    (0x4 | 0x10000, ("software power cap", "reason 0x10000")),
])  # fmt: skip
def test_throttle_reasons_in_words(bits, words):
    assert throttle_reasons(bits) == words


@pytest.mark.parametrize(("script", "expected"), [
    (without(FULL, "throttle") + "throttle constant 3\n", {"throttle_reasons": ""}),  # not throttled
    # drivers before 535, and before the second version of the memory
    (with_lines(FULL, "error nvmlDeviceGetCurrentClocksEventReasons FUNCTION_NOT_FOUND"), {"throttle_reasons": THROTTLED}),
    (with_lines(FULL, "error nvmlDeviceGetMemoryInfo_v2 FUNCTION_NOT_FOUND"), {"memory_used_bytes": 3 << 30}),
    # a GPU with slices
    (FULL + "slice MIG-1 3 20e9 5e9\n", {"power_w": 431.5, "gpu_utilization": None}),
])  # fmt: skip
def test_what_old_drivers_and_sliced_gpus_tell(stand_in_here, script, expected):
    stand_in_here(script)
    reading = first_reading()
    assert {field: getattr(reading, field) for field in expected} == expected


# --- what there is not


def test_what_is_not_supported_is_absent_and_never_asked_again(stand_in_here, no_turns, tmp_path):
    journal = tmp_path / "journal"
    stand_in_here(f"journal {journal}\ngpu\nmemory_used constant 1e9\n")
    with sampler() as opened:
        before = asked(journal)
        readings = read(opened, 5)
        opened.counters()
    after = asked(journal)
    assert {name for name in after if after[name] > before[name]} <= {"nvmlDeviceGetMemoryInfo_v2", "nvmlShutdown"}
    assert all(count == 1 for name, count in before.items() if name.startswith("field_"))
    for reading in readings:
        present = {field for field, value in reading.columns().items() if value is not None}
        assert present == {"time_ns", "source", "device", "memory_used_bytes", "memory_total_bytes"}


@pytest.mark.parametrize(("function", "field", "words"), [
    ("nvmlDeviceGetTotalEnergyConsumption", "energy_j", "energy"),
    ("field_186", "power_instant_w", "instant power"),
    ("nvmlDeviceGetPcieThroughput", "pcie_tx_bytes_per_s", "PCIe throughput"),
    ("nvmlDeviceGetTotalEccErrors", "ecc_corrected", "corrected memory errors, uncorrected memory errors"),
])  # fmt: skip
def test_what_may_not_be_read_is_said_once_and_the_rest_goes_on(stand_in_here, no_turns, tmp_path, function, field, words):
    stand_in_here(f"journal {tmp_path / 'journal'}\n" + with_lines(FULL, f"error {function} NO_PERMISSION"))
    (opened,), problems = open_gpus(None)
    try:
        readings = read(opened, 5)
    finally:
        opened.close()
    assert problems == [f"Not readable on gpu0 by this user (Insufficient Permissions): {words}."]
    assert {getattr(reading, field) for reading in readings} == {None}
    assert {reading.power_w for reading in readings} == {431.5}
    assert asked(tmp_path / "journal")[function] == words.count(",") + 1


def test_field_that_fails_now_and_then_is_absent_then(stand_in_here):
    # On a busy machine there may be no reading in so short a time, or a late one: then it fails for longer.
    for scale in (1, 2, 4, 8):
        start = time.time()
        failing = f"error nvmlDeviceGetTemperature UNKNOWN {0.2 * scale} {0.4 * scale}"
        stand_in_here(f"epoch {start!r}\n" + with_lines(FULL, failing))
        with sampler() as opened:
            readings = read_for(opened, start + 0.6 * scale - time.time())
        found = [((reading.time_ns / 1e9 - start) / scale, reading.temperature_c) for reading in readings]
        before = {temperature for at, temperature in found if at < 0.15}
        inside = {temperature for at, temperature in found if 0.25 < at < 0.35}
        if before and inside == {None}:
            break
    assert (before, inside) == ({61.0}, {None})
    assert readings[-1].temperature_c == 61.0
    assert {reading.power_w for reading in readings} == {431.5}


# --- what ends a series


TAKEN_AWAY = "".join(f"error nvmlDeviceGetMemoryInfo{version} INVALID_ARGUMENT 0.3\n" for version in ("", "_v2"))


@pytest.mark.parametrize(("script", "identity", "words"), [
    (with_lines(FULL, "lost 0.3 GPU_IS_LOST"), 0, "GPU is lost"),
    (with_lines(FULL, "lost 0.3 RESET_REQUIRED"), 0, "GPU requires restart"),
    (with_lines(FULL, "lost 0.3 UNKNOWN"), 0, "Unknown Error"),  # to everything, several times
    (FULL + "slice MIG-1 3 20e9 5e9\n" + TAKEN_AWAY, "MIG-1", "Invalid Argument"),
])  # fmt: skip
def test_lost_gpu_and_slice_end_their_series_with_the_reason(stand_in_here, script, identity, words):
    stand_in_here(script)
    with sampler(identity) as opened, pytest.raises(DeviceError, match=rf"sampling of cuda:0 stopped: {words}\."):
        read_for(opened, 30)


def test_gpu_that_was_lost_before_is_not_opened(stand_in_here):
    stand_in_here(with_lines(FULL, "lost 0") + with_lines(FULL).replace(UUID, "GPU-2"))
    (opened,), (problem,) = open_gpus(None)
    opened.close()
    assert problem == "GPU 0 (gpu0) not found by NVML: GPU is lost."


def test_gpu_lost_while_its_counters_are_watched_says_so(stand_in_here):
    stand_in_here(with_lines(FULL, "lost 0.2"))
    with sampler() as opened, pytest.raises(DeviceError, match="GPU is lost"):
        opened.counters()


def test_unknown_to_everything_for_a_moment_is_not(stand_in_here):
    functions = ("TotalEnergyConsumption", "FieldValues", "PowerUsage", "UtilizationRates", "MemoryInfo_v2", "Temperature", "ClockInfo")
    script = without(FULL, "limit", "throttle", "ecc_corrected", "ecc_uncorrected", "pcie_tx", "pcie_rx")
    stand_in_here(with_lines(script, *(f"error nvmlDeviceGet{function} UNKNOWN 0.3 0.4" for function in functions)))
    with sampler() as opened:
        start = time.monotonic()
        while time.monotonic() < start + 0.6:
            (reading,) = opened.read()
            time.sleep(0.1 / (LAST_READINGS - 1))
    assert reading.power_w == 431.5


# --- several GPUs, slices, processes


def test_all_gpus_and_slices_are_named_as_nvml_counts_them(stand_in_here):
    eight = "".join(f"gpu\nuuid GPU-{index}\npower constant {100 + index}\n" for index in range(8))
    stand_in_here(eight + "memory_used constant 9e9\nslice MIG-a 3 20e9 5e9\nslice MIG-b 5 40e9 1e9\n")
    samplers, problems = open_gpus(None)
    readings = [opened.read()[0] for opened in samplers]
    for opened in samplers:
        opened.close()
    assert problems == []
    assert [reading.device for reading in readings] == [*(f"gpu{index}" for index in range(8)), "gpu7/mig0", "gpu7/mig1"]
    assert [reading.power_w for reading in readings] == [*(100.0 + index for index in range(8)), None, None]
    assert [reading.memory_used_bytes for reading in readings[-3:]] == [9_000_000_000, 5_000_000_000, 1_000_000_000]


def test_slice_has_its_memory_and_nothing_of_the_gpus(stand_in_here, no_turns):
    stand_in_here(FULL + "slice MIG-1 3 20e9 5e9\nslice MIG-2 4 20e9 0\nprocess 4242 4e9 3\nprocess 4242 1e6 4\n")
    reading = first_reading(identity="MIG-1", pids=lambda: [4242])
    present = {field for field, value in reading.columns().items() if value is not None}
    assert present == {"time_ns", "source", "device", "memory_used_bytes", "memory_total_bytes", "process_memory_bytes"}
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (5_000_000_000, 20_000_000_000)
    assert reading.process_memory_bytes == 4_000_000_000
    with sampler("MIG-1") as opened:
        assert opened.counters() == ()


def test_a_slice_that_is_sampled_alone_says_what_it_does_not_have(stand_in_here):
    stand_in_here(FULL + "slice MIG-1 3 20e9 5e9\n")
    for gpus, slices in (({"cuda:0": "1", "cuda:1": UUID}, ["cuda:0"]), (None, [])):
        samplers, problems = open_gpus(gpus)
        for opened in samplers:
            opened.close()
        assert [problem.partition(" is a slice of a GPU (MIG)")[0] for problem in problems] == slices


@pytest.mark.parametrize(("processes", "memory"), [
    ("process 4242 3e9\nprocess 4243 4e9\nprocess 1 7e9\n", {None, 7_000_000_000}),
    # those that NVML does not name are not known
    ("", {None}),
    ("process 1 3e9\n", {None}),
    ("process 4242 unknown\n", {None}),
])  # fmt: skip
def test_memory_of_the_watched_processes(stand_in_here, no_turns, processes, memory):
    stand_in_here(FULL + processes)
    with sampler(pids=lambda: [4242, 4243]) as opened:
        assert {reading.process_memory_bytes for reading in read(opened, 6)} == memory


def test_process_that_ended_holds_nothing(stand_in_here, no_turns):
    stand_in_here(FULL + "process 4242 3e9 0 -1 0.2\n")
    with sampler(pids=lambda: [4242]) as opened:
        found = [reading.process_memory_bytes for reading in read_for(opened, 0.4) if reading.process_memory_bytes is not None]
    assert (found[0], found[-1]) == (3_000_000_000, 0)


@pytest.mark.parametrize(
    ("given", "asked_for"), [("1-2", ["GPU-1-2", "MIG-1-2"]), ("GPU-1-2", ["GPU-1-2", "MIG-1-2"]), ("MIG-1-2", ["MIG-1-2"])]
)
def test_uuid_is_looked_up_as_gpu_and_as_slice(stand_in_here, monkeypatch, given, asked_for):
    seen = []
    real = pynvml.nvmlDeviceGetHandleByUUID
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: (seen.append(uuid), real(uuid))[1])
    stand_in_here(FULL)
    samplers, (problem,) = open_gpus({"cuda:3": given})
    assert samplers == []
    assert problem == f"GPU {given!r} (cuda:3) not found by NVML: Not Found."
    assert seen == asked_for


def test_gpu_and_slice_are_found_by_the_bare_uuid(stand_in_here):
    stand_in_here(FULL + "slice MIG-1-2 3 20e9 5e9\n")
    pynvml.nvmlInit()
    try:
        found = [pynvml.nvmlDeviceGetUUID(find_gpu(pynvml, uuid)) for uuid in (UUID, UUID.removeprefix("GPU-"), "1-2", 0)]
    finally:
        pynvml.nvmlShutdown()
    assert found == [UUID, UUID, "MIG-1-2", UUID]


def test_nvml_that_does_not_start_is_a_sentence(stand_in_here):
    stand_in_here("error nvmlInit DRIVER_NOT_LOADED\n")
    assert open_gpus(None) == ([], ["No GPU is sampled: NVML is not available (Driver Not Loaded)."])
    with pytest.raises(DeviceError, match="Driver Not Loaded"):
        NvmlSampler(0, "gpu0")


# --- updates


UPDATES = {"energy_j": 0.1, "power_w": 0.06, "power_instant_w": 0.02, "gpu_utilization": 0.08}


@pytest.fixture
def restless(stand_in_here):
    """A GPU whose counters change at every update."""
    power = [Ramp(100, 100_000, start_s=0, seconds=1000)]
    busy = [Square(0.1, 0.9, period_s=0.16), Burst(0.05, start_s=0, seconds=0.32, every_s=0.64)]
    updates = zip(("energy", "power_average", "power_instant", "utilization"), UPDATES.values(), strict=True)
    stand_in_here(
        f"gpu\n{lines('power', *power)}{lines('utilization', *busy)}{lines('memory_utilization', Constant(0.2))}"
        + "quantum power_instant 0.5\n"
        + "".join(f"update {reading} {update_s}\n" for reading, update_s in updates)
    )


def test_update_periods_are_found(restless):
    with sampler() as opened:
        # A machine that is busy elsewhere may keep us from reading for most of a burst.
        for _ in range(3):
            found = {counter.field: counter for counter in opened.counters()}
            if all(found[field].update_s == pytest.approx(update_s, rel=0.2) for field, update_s in UPDATES.items()):
                break
        period_s = opened.period_s
    assert {field: found[field].update_s for field in UPDATES} == pytest.approx(UPDATES, rel=0.2)
    assert period_s == min(found[field].update_s for field in UPDATES) / 2
    assert found["gpu_memory_utilization"].update_s is None
    assert all((counter.source, counter.device) == ("nvml", "cuda:0") for counter in found.values())
    # Half a watt, where the ramp made larger steps.
    assert found["power_instant_w"].resolution % 0.5 == 0
    assert [found[field].window_s for field in ("energy_j", "power_w", "power_instant_w")] == [0.0, 1.0, 0.0]
    assert found["gpu_utilization"].window_s == found["gpu_utilization"].update_s
    assert found["gpu_memory_utilization"].window_s == 1.0


def test_counters_that_change_fast_are_watched_for_a_moment_only(stand_in_here, tmp_path):
    journal = tmp_path / "journal"
    stand_in_here(
        f"journal {journal}\ngpu\n{lines('power', Ramp(100, 100_000, 0, 1000))}update energy 0.01\nupdate power_instant 0.01\n"
    )
    with sampler() as opened:
        before = asked(journal)
        opened.counters()
        calls = [line.split() for line in journal.read_text().splitlines()]
    asked_before = before["nvmlDeviceGetTotalEnergyConsumption"]
    watched = [float(at) for at, name, _ in calls if name == "nvmlDeviceGetTotalEnergyConsumption"][asked_before:]
    # Seven changes, ten milliseconds each: after those it asks no more, long before the 0.6 s that are allowed.
    assert 7 <= len({math.floor(at / 0.01) for at in watched}) <= 20


def test_gpu_where_nothing_changes_is_read_at_a_usual_pace(stand_in_here, short_burst):
    stand_in_here(without(FULL, "power") + "power constant 0\n")
    with sampler() as opened:
        counters = opened.counters()
        assert {counter.update_s for counter in counters} == {None}
        assert {counter.resolution for counter in counters} == {None}
        assert opened.period_s == UNMEASURED_PERIOD_S


@pytest.mark.ci
@pytest.mark.parametrize("trouble", ["stall energy 0", "wrap energy 80", "step energy 0.4 -50"])
def test_counter_that_stands_still_or_falls_back_is_shown_as_it_is(stand_in_here, trouble):
    stand_in_here(f"gpu\npower constant 300\nupdate energy 0.05\nstart energy 60\n{trouble}\n")
    with sampler() as opened:
        (energy,) = (counter for counter in opened.counters() if counter.field == "energy_j")
        readings = [reading.energy_j for reading in read_for(opened, 0.4)]
    assert all(0 <= energy_j < 1000 for energy_j in readings)
    if trouble.startswith("stall"):
        assert energy.update_s is None
        assert set(readings) == {60.0}
    else:
        assert energy.update_s == pytest.approx(0.05, rel=0.2)
        assert energy.resolution <= 15.0


@pytest.mark.ci
def test_pcie_throughput_does_not_stretch_the_readings(stand_in_here, tmp_path):
    journal = tmp_path / "journal"
    stand_in_here(f"journal {journal}\n" + with_lines(FULL, "latency nvmlDeviceGetPcieThroughput 0.02"))
    with sampler() as opened:
        before = asked(journal)
        began = time.monotonic()
        readings = read_for(opened, 1.2)
        elapsed_s = time.monotonic() - began
    turns = asked(journal)["nvmlDeviceGetPcieThroughput"] - before["nvmlDeviceGetPcieThroughput"]
    # Counted and not timed one by one: the moment that the driver notes lies behind the one at which the turn was taken.
    assert 2 <= turns <= elapsed_s / TURN_S + 1
    assert len(readings) > turns
