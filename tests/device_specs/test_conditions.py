"""The state of a GPU beside a measurement, and who keeps it busy, on a stand-in for NVML: this machine may have no GPU to ask."""

import contextlib
import itertools
import os
import threading
from types import SimpleNamespace

import msgspec
import psutil
import pynvml
import pytest

from rooflines.device_specs import conditions
from rooflines.device_specs.conditions import GpuState, Watch, _process_name, busy, reasons, refuse_if_busy, strangers, summary
from rooflines.device_specs.history import best_of
from rooflines.device_specs.plan import Plan
from rooflines.device_specs.records import Conditions
from rooflines.device_specs.rounds import Way, ready
from rooflines.errors import DeviceError
from rooflines.kernels.micro.repeats import Timing
from tests.profiler.samplers.nvml_driver.scripts import FULL, with_lines, without

UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture
def stranger():
    """A process that is neither ours nor of our family."""
    family = {os.getpid(), *(one.pid for one in psutil.Process().parents())}
    found = next((pid for pid in psutil.pids() if pid not in family and psutil.Process(pid).ppid() not in family), None)
    if found is None:
        pytest.skip("no process here that is not ours")
    return found


QUIET = with_lines(without(FULL, "utilization"), "utilization constant 0")
STEADY = Conditions(
    clock_hz=1.98e9, memory_clock_hz=2.619e9, power_w=431.5, temperature_c=61.0,
    throttled=("software power cap", "software thermal slowdown"),
)  # fmt: skip


@contextlib.contextmanager
def opened(uuid=UUID):
    state = GpuState(uuid)
    try:
        yield state
    finally:
        state.close()


def test_the_state_of_a_gpu_is_found_by_torch_s_uuid_whatever_its_place(stand_in_here):
    stand_in_here(f"gpu\nuuid GPU-0\npower constant 60\n{FULL}")
    for uuid in (UUID, UUID.removeprefix("GPU-")):  # torch prints it without the prefix
        with opened(uuid) as state:
            assert state.read() == STEADY
            assert state.utilization() == 0.97


@pytest.mark.parametrize(("functions", "absent"), [
    (["nvmlDeviceGetClockInfo"], {"clock_hz": None, "memory_clock_hz": None}),
    (["field_186", "nvmlDeviceGetPowerUsage"], {"power_w": None}),
    (["nvmlDeviceGetFieldValues"], {}),
    (["nvmlDeviceGetTemperature"], {"temperature_c": None}),
    (["nvmlDeviceGetCurrentClocksEventReasons"], {}),
    (["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"], {"throttled": ()}),
])  # fmt: skip
@pytest.mark.parametrize("code", ["NO_PERMISSION", "FUNCTION_NOT_FOUND", "NOT_SUPPORTED"])
def test_what_may_not_be_read_or_is_unknown_to_an_old_driver_is_absent(stand_in_here, functions, absent, code):
    """Where the driver has an older name or another sensor for it, that is read."""
    stand_in_here(with_lines(FULL, *(f"error {function} {code}" for function in functions)))
    with opened() as state:
        assert state.read() == msgspec.structs.replace(STEADY, **absent)


def test_a_slice_or_a_gpu_that_may_not_be_asked_is_not_busy(stand_in_here):
    # Processes and utilization that may not be read keep nothing busy.
    denied = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetUtilizationRates")
    stand_in_here(with_lines(FULL, "process 4242 9e9", *(f"error {function} NO_PERMISSION" for function in denied)))
    with opened() as state:
        assert (state.processes(), state.utilization(), busy(state)) == ([], None, "")
    # A slice has no state of its own.
    stand_in_here(f"{FULL}slice MIG-7 3 20e9 5e9\nprocess 4242 3e9 3\n")
    with opened("7") as state:
        assert state.read() == Conditions()
        assert state.utilization() is None
        assert state.processes() == [(4242, 3_000_000_000)]
    # NVML's search by UUID may end at a GPU that is lost.
    stand_in_here(f"gpu\nuuid GPU-0\nlost 0\n{FULL}slice MIG-7 3 20e9 5e9\n")
    with opened() as state:
        assert state.read() == STEADY
    with opened("7") as state:
        assert state.processes() == []
    with pytest.raises(DeviceError, match="GPU is lost"):
        GpuState("0")


def test_a_gpu_that_is_lost_while_it_is_watched_ends_the_watch_without_a_word(stand_in_here, tmp_path):
    """What was read before stays; nothing is raised in the thread that watches."""
    stand_in_here(with_lines(FULL, f"lost_by {tmp_path / 'lost'}"))
    with opened() as state:
        watch = Watch(state.read, period_s=1e-3)
        watch.note()
        (tmp_path / "lost").touch()
        with watch.beside():
            pass
        assert watch.take() == STEADY
        watch.note()
        assert watch.take() == Conditions()
    for uuid, said in ((UUID, f"'{UUID}' not found by NVML: GPU is lost"), ("1-2", "GPU '1-2' not found by NVML")):
        with pytest.raises(DeviceError, match=said):
            GpuState(uuid)


def test_a_summary_is_of_medians_and_all_reasons():
    # An idle gpu is held back by nothing.
    assert reasons(0x1) == ()
    assert reasons(0x4 | 0x20) == ("software power cap", "software thermal slowdown")
    known = pynvml.nvmlClocksEventReasonAll & ~pynvml.nvmlClocksEventReasonGpuIdle
    assert len(reasons(known)) == bin(known).count("1")
    # Summary is of medians and all reasons.
    readings = [
        Conditions(clock_hz=1.0, power_w=100.0, throttled=("software power cap",)),
        Conditions(clock_hz=3.0, power_w=None, throttled=("hardware slowdown", "software power cap")),
        Conditions(clock_hz=2.0, power_w=200.0),
    ]
    assert summary(readings) == Conditions(clock_hz=2.0, power_w=150.0, throttled=("software power cap", "hardware slowdown"))


def test_watch_reads_beside_and_starts_anew():
    numbers, seen = iter(range(1, 1000)), threading.Event()

    def read():
        number = next(numbers)
        if number >= 3:
            seen.set()
        return Conditions(clock_hz=float(number))

    watch = Watch(read, period_s=1e-4)
    assert watch.take() is None
    with watch.beside():
        assert seen.wait(10)
    assert watch.take().clock_hz >= 2
    assert watch.take() is None
    watch.note()
    assert watch.take().clock_hz >= 4


def plan_of(run, *, kind="compute", budget_s=0.0, **options):
    """A plan of one figure of 1 FLOP or operation a call."""
    plan = Plan(budget_s, lambda _: None)
    for name, value in options.items():
        setattr(plan, name, value)
    unit = "s" if kind == "latency" else "FLOP/s"
    engine = {"precision": "bf16"} if kind == "compute" else {}
    plan.figure(Way("kernel", ready(run, 1.0)), kind=kind, name="GEMM bf16", unit=unit, **engine)
    return plan


@pytest.mark.parametrize("kind", ["compute", "latency"])
def test_figures_carry_the_state_of_their_best_round(kind):
    # GIVEN a device whose clock falls, and with it the rate
    clocks, times = itertools.chain([2e9], itertools.repeat(1e9)), itertools.chain([1.0] * 2, itertools.repeat(2.0))
    plan = plan_of(lambda calls: Timing(next(times)), kind=kind, watch=Watch(lambda: Conditions(clock_hz=next(clocks)), period_s=60))
    plan.measure()
    (series,) = plan.series
    assert series.values == ((1.0, 0.5) if kind == "compute" else (1.0, 2.0))
    assert series.ceiling.conditions.clock_hz == 2e9


def test_sustained_is_the_second_half(monkeypatch):
    # GIVEN a device that slows down to half after 5 of 10 seconds, and a clock that the work itself moves
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def run(calls):
        seconds = calls * (0.01 if now[0] < 5 else 0.02)
        now[0] += seconds
        return Timing(seconds)

    plan = plan_of(run, sustained_s=10.0)
    plan.figure(Way("kernel", ready(run, 1.0)), kind="compute", name="GEMM fp8", unit="FLOP/s", variant="slow accumulation")
    plan.measure()
    burst, slow, held = (one.ceiling for one in plan.series)
    assert (burst.variant, slow.variant, held.variant) == (
        "",
        "slow accumulation",
        "sustained",
    )  # what is a variant already is not held
    assert burst.value == pytest.approx(100)
    assert held.value == pytest.approx(50)
    assert held.name == "GEMM bf16"
    assert "held for 10 s" in held.source.detail


def test_what_keeps_a_gpu_busy(stand_in_here, monkeypatch):
    # Our own processes keep nothing busy.
    ours = [f"process {pid} {1 << 30}" for pid in (os.getpid(), psutil.Process().ppid())]
    stand_in_here(with_lines(QUIET, *ours))
    with opened() as state:
        assert busy(state) == ""
    # Work that does not fade keeps it busy.
    stand_in_here(with_lines(FULL, *ours))
    waits = []
    with opened() as state:
        assert busy(state, pause=waits.append) == "it is 97% utilized by processes that NVML does not list"
        assert sum(waits) == pytest.approx(conditions._SETTLES_S)
        # Work that fades was our own.
        waits.clear()
        shares = iter([90, 50, 5])
        monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda _: SimpleNamespace(gpu=next(shares)))
        assert busy(state, pause=waits.append) == ""
        assert len(waits) == 2
    # A forced measurement says disturbed.
    plan = plan_of(lambda calls: Timing(1.0), disturbed_by="python train.py (pid 7) holds 3.00 GiB")
    plan.measure()
    (found,) = best_of([plan.session(full=False, seconds=1.0)])
    assert found.source.detail.endswith("disturbed: python train.py (pid 7) holds 3.00 GiB")


def test_a_busy_gpu_is_refused_with_the_name_of_who_keeps_it_busy(stand_in_here, stranger):
    # Windows lists processes whose memory it does not tell
    stand_in_here(with_lines(QUIET, f"process {os.getpid()} 5e8", f"process {stranger} {3 << 30}", f"process {stranger} unknown"))
    with opened() as state:
        with pytest.raises(DeviceError, match=rf"NVIDIA H200 \(cuda:0\) is busy: .+ \(pid {stranger}\) holds 3.00 GiB\.") as caught:
            refuse_if_busy(state, "NVIDIA H200 (cuda:0)", force=False)
        assert "force=True" in caught.value.hint
        assert f"pid {stranger}" in refuse_if_busy(state, "NVIDIA H200 (cuda:0)", force=True)


def test_in_a_container_one_unknown_process_is_ourselves(monkeypatch):
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: False)
    assert strangers([(900_001, 500)]) == []
    assert strangers([(900_001, 9000), (900_002, 500)]) == [(900_001, 9000)]
    assert _process_name(900_001) == "a process outside this container (pid 900001)"
    # AND none of them is, where NVML gives our own number
    assert strangers([(900_001, 9000), (os.getpid(), 500)]) == [(900_001, 9000)]
