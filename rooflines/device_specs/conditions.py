"""The state of a GPU while it is measured: clocks, power, temperature and what holds it back, and who else
keeps it busy.

All through NVML. A GPU that NVML does not know (AMD, Apple) has no conditions and is never called busy.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from rooflines.arguments import arg
from rooflines.device_specs.nvml import APPLICATIONS_CLOCKS_SETTING, THROTTLE_REASONS, find_gpu, start_nvml
from rooflines.device_specs.records import Conditions
from rooflines.errors import DeviceError
from rooflines.units import binary_bytes

PERIOD_S = 0.02  # between two readings during a measurement
BUSY = 0.10  # utilization above which another process is running
# NVML's utilization is an average over up to a second: what this process did itself has to fade first
_SETTLES_S = 1.5

# What NVML's bits say of the clocks; bit 0, an idle GPU, holds nothing back.
_REASONS = {APPLICATIONS_CLOCKS_SETTING: "applications clocks setting", **THROTTLE_REASONS}


class GpuState:
    """One GPU as NVML sees it. ``uuid`` is the GPU's as torch prints it. Raises DeviceError where NVML or the
    GPU is not there."""

    def __init__(self, uuid: str) -> None:
        self._nvml = start_nvml()
        try:
            self._handle = find_gpu(self._nvml, uuid)
        except self._nvml.NVMLError as error:
            self._nvml.nvmlShutdown()
            raise DeviceError(f"GPU {uuid!r} not found by NVML: {error}.") from None

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def read(self) -> Conditions:
        """The state of this moment; what the GPU does not tell is absent."""
        nvml, gpu = self._nvml, self._handle
        bits = self._ask(  # before driver 535 the question had another name
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
        )
        return Conditions(
            clock_hz=self._ask(
                lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6
            ),  # NVML: MHz
            memory_clock_hz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6),
            # the second is an average over a second on newer GPUs, longer than a burst; NVML: mW
            power_w=self._ask(self._power_instant_w, lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
            temperature_c=self._ask(
                lambda: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
            ),
            throttled=reasons(int(bits or 0)),
        )

    def utilization(self) -> float | None:
        """The share of the recent past in which a kernel of any process ran."""
        share: float | None = self._ask(
            lambda: self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
        )
        return share

    def processes(self) -> list[tuple[int, int]]:
        """Process id and memory in bytes of every process that computes here; empty where NVML does not
        tell."""
        found = self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)) or []
        return [(int(process.pid), int(process.usedGpuMemory or 0)) for process in found]

    def _power_instant_w(self) -> float:
        nvml = self._nvml
        (field,) = nvml.nvmlDeviceGetFieldValues(self._handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if field.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(field.nvmlReturn)
        return float(field.value.uiVal / 1e3)

    def _ask(self, *questions: Callable[[], Any]) -> Any:
        """The first answer to ``questions``; None where this GPU supports none of them or this pynvml is
        older than they are."""
        for question in questions:
            with contextlib.suppress(self._nvml.NVMLError, AttributeError):
                return question()
        return None


def reasons(bits: int) -> tuple[str, ...]:
    """Reasons for reduced clocks, in words, from NVML's bit mask."""
    return tuple(words for bit, words in _REASONS.items() if bits & bit)


class Watch:
    """Reads the state of a device while something is measured and sums it up.

    ``read`` takes one reading; without it nothing is read. ``beside`` reads in a separate thread every
    ``period_s`` seconds, ``note`` once and here: for measurements of the host, which a second thread would
    slow down.
    """

    def __init__(self, read: Callable[[], Conditions] | None = None, period_s: float = PERIOD_S) -> None:
        self._read = read
        self._period_s = period_s
        self._readings: list[Conditions] = []

    def note(self) -> None:
        """Take one reading."""
        if self._read is not None:
            self._readings.append(self._read())

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Inside, readings are taken by a thread, at least one of them."""
        if self._read is None:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while True:
                self.note()
                if done.wait(self._period_s):
                    return

        thread = threading.Thread(target=watch, name="rooflines-conditions", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def take(self) -> Conditions | None:
        """The readings since the last call as one: medians, and every reason that was given. None without a
        reading."""
        readings, self._readings = self._readings, []
        return summary(readings) if readings else None


def summary(readings: list[Conditions]) -> Conditions:
    """Several readings as one: the median of each figure where there is one, and every reason that was given,
    in order."""

    def median(name: str) -> float | None:
        present = [value for reading in readings if (value := getattr(reading, name)) is not None]
        return statistics.median(present) if present else None

    given = {reason for reading in readings for reason in reading.throttled}
    figures = {name: median(name) for name in ("clock_hz", "memory_clock_hz", "power_w", "temperature_c")}
    return Conditions(throttled=tuple(words for words in _REASONS.values() if words in given), **figures)


def strangers(processes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ``processes`` (id, memory in bytes) with memory, except this process, its children and its parents.

    This process must hold a context on the device. In a container NVML may give the ids of the host. If none
    is ours, one of those that do not exist here is: which one cannot be known, so the one that holds least is
    taken for it.
    """
    family = {os.getpid()}
    with contextlib.suppress(psutil.Error):
        here = psutil.Process()
        family |= {one.pid for one in (*here.parents(), *here.children(recursive=True))}
    holding = [one for one in processes if one[1] > 0]
    others = [one for one in holding if one[0] not in family]
    if len(others) == len(holding):  # none of our processes is listed under an id that we know
        outside = [one for one in others if not psutil.pid_exists(one[0])]
        if outside:
            others.remove(min(outside, key=lambda one: one[1]))
    return others


def _process_name(pid: int) -> str:
    """The process in words: the start of its command line with its id."""
    try:
        process = psutil.Process(pid)
        try:
            words = " ".join(process.cmdline()[:3]) or process.name()
        except psutil.Error:  # another user's: its command line may be hidden, its name is not
            words = process.name()
    except psutil.Error:
        return f"a process outside this container (pid {pid})"
    return f"{words if len(words) <= 60 else words[:59] + '…'} (pid {pid})"


def busy(
    state: GpuState, *, settles_s: float = _SETTLES_S, pause: Callable[[float], object] = time.sleep
) -> str:
    """Other work on this GPU, in words that follow "is busy: ..."; empty without any.

    Processes that hold memory are named; without any, a utilization above ``BUSY`` that does not fade
    indicates some that NVML does not name.
    """
    found = strangers(state.processes())
    if found:
        return ", ".join(f"{_process_name(pid)} holds {binary_bytes(memory)}" for pid, memory in found)
    waited, step = 0.0, 0.1
    while (utilization := state.utilization()) is not None and utilization > BUSY:
        if waited >= settles_s:
            return f"it is {utilization:.0%} utilized by processes that NVML does not list"
        pause(step)
        waited += step
    return ""


def refuse_if_busy(state: GpuState, device: str, *, force: bool) -> str:
    """Raise DeviceError where something else keeps ``device`` busy, naming it; with ``force`` return its name
    instead."""
    why = busy(state)
    if why and not force:
        raise DeviceError(
            f"{device} is busy: {why}.",
            hint=(
                f"Ceilings measured now would be too low. Wait, or use {arg('force', True)} to "
                "measure anyway."
            ),
        )
    return why
