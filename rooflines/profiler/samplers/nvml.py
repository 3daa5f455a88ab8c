"""NVIDIA GPUs as their driver shows them, through NVML. docs/sampling.md says what each figure is worth."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from rooflines.device_specs.nvml import (
    averages_power,
    field_number,
    find_gpu,
    find_slices,
    is_slice,
    start_nvml,
    throttle_reasons,
)
from rooflines.errors import DeviceError
from rooflines.profiler.samplers.base import Pids, Sampler
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.update_time import UpdatePace, pace

# A question for PCIe throughput blocks for 20 ms, one for the processes can take milliseconds: one of them at
# most in this time.
TURN_S = 0.25
# Where nothing was seen to change: NVIDIA's drivers have new values every 20 to 100 ms.
UNMEASURED_PERIOD_S = 0.05
# A lost GPU may answer UNKNOWN to most questions, a removed slice not at all. It is gone after this many such
# readings in a row.
LAST_READINGS = 3
# How long counters are watched for their updates, with what pause between two readings, and how many new
# values are enough.
BURST_S = 0.6
BURST_PAUSE_S = 0.001
ENOUGH_CHANGES = 7
# What NVML's documentation says: the interval that newer GPUs average power over, and the longest sample
# period of a utilization.
POWER_WINDOW_S = 1.0
UTILIZATION_WINDOW_S = 1.0

# NVML counts in mJ, mW and percent, and the traffic of links in KiB.
_PER_UNIT = {
    "energy_j": 1000,
    "power_w": 1000,
    "power_instant_w": 1000,
    "gpu_utilization": 100,
    "gpu_memory_utilization": 100,
}
_TRAFFIC = ("nvlink_tx_bytes", "nvlink_rx_bytes")
_ALL_LINKS = 0xFFFFFFFF
# Fields of nvmlDeviceGetFieldValues: what problems call it, pynvml's name for it, and the scope it is asked
# for.
_FIELD_VALUES = {
    "power_w": ("average power", "NVML_FI_DEV_POWER_AVERAGE", 0),
    "power_instant_w": ("instant power", "NVML_FI_DEV_POWER_INSTANT", 0),
    "memory_temperature_c": ("memory temperature", "NVML_FI_DEV_MEMORY_TEMP", 0),
    "nvlink_tx_bytes": ("NVLink sending", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", _ALL_LINKS),
    "nvlink_rx_bytes": ("NVLink receiving", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", _ALL_LINKS),
}
_SLICE = (
    "{} is a slice of a GPU (MIG): NVML has its memory, and power, clocks and utilization of whole GPUs only."
)

_Numbers: TypeAlias = dict[str, float | int]
# A function of pynvml after its handle: its name, and its further arguments, the names of constants.
Question = tuple[str, ...]


class _Number(NamedTuple):
    """A number read by one question: its words in problems, and its unit in that of a sample."""

    words: str
    question: Question
    unit: float


_STATE = {
    "power_limit_w": _Number("power limit", ("nvmlDeviceGetEnforcedPowerLimit",), 1e-3),
    "temperature_c": _Number("temperature", ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"), 1.0),
    "sm_clock_hz": _Number("SM clock", ("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"), 1e6),
    "memory_clock_hz": _Number("memory clock", ("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"), 1e6),
    "ecc_corrected": _Number(
        "corrected memory errors",
        ("nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"),
        1,
    ),
    "ecc_uncorrected": _Number(
        "uncorrected memory errors",
        ("nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
        1,
    ),
}
_PCIE = {
    "pcie_tx_bytes_per_s": _Number(
        "PCIe throughput", ("nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_TX_BYTES"), 1e3
    ),
    "pcie_rx_bytes_per_s": _Number(
        "PCIe throughput", ("nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_RX_BYTES"), 1e3
    ),
}


class NvmlSampler(Sampler):
    """Readings of one GPU or MIG slice. ``identity`` is its UUID or its NVML index, ``device`` the name that
    its samples carry.

    A field that this GPU does not support, or that this user may not read, is absent from every sample; one
    that failed once is absent from that sample. PCIe throughput and the memory of the processes ``pids`` are
    read in turn, one of them every ``TURN_S`` seconds, and absent in between. A slice has its memory only:
    power, temperature and clocks are the whole GPU's. The time of a sample is that of its energy and power.
    Counters are as NVML shows them, also where they fall back or stand still.

    ``problems`` are sentences about what this user may not read. Raises DeviceError when NVML or the GPU is
    not there, and from ``read`` and ``counters`` when the GPU was lost.
    """

    def __init__(self, identity: str | int, device: str, pids: Pids | None = None) -> None:
        self._gpu = gpu = _Gpu(identity, device)
        self.is_slice = gpu.is_slice
        self._averages = not gpu.is_slice and averages_power(gpu.nvml, gpu.handle)
        self._pids = pids
        self._processes_listed = False
        self._in_turn = deque([None] if gpu.is_slice else [None, *_PCIE])
        self._turn_at = -float("inf")
        try:
            # Report now what cannot be read, before the run starts.
            self.read()
            if not gpu.is_slice:
                gpu.number(_PCIE["pcie_tx_bytes_per_s"])
        except DeviceError:
            self.close()
            raise

    @property
    def problems(self) -> tuple[str, ...]:
        return self._gpu.problems

    def counters(self) -> Sequence[Counter]:
        if self.is_slice:
            return ()
        paces = self._watch()
        periods = [shown.period_s for shown in paces.values() if shown.period_s is not None]
        self.period_s = min(periods) / 2 if periods else UNMEASURED_PERIOD_S
        return tuple(
            Counter(
                source="nvml",
                device=self._gpu.name,
                field=field,
                update_s=shown.period_s,
                resolution=None if shown.step is None else shown.step / _PER_UNIT[field],
                window_s=self._window_s(field, shown),
            )
            for field, shown in paces.items()
        )

    def read(self) -> Sequence[DeviceSample]:
        gpu = self._gpu
        with gpu.reading():
            began_ns = now_ns()
            values: dict[str, Any] = {} if gpu.is_slice else self._counted()
            time_ns = (began_ns + now_ns()) // 2
            # The second version does not count what the driver keeps for itself as used.
            memory = gpu.ask(
                "memory", ("nvmlDeviceGetMemoryInfo", "nvmlMemory_v2"), ("nvmlDeviceGetMemoryInfo",)
            )
            if memory is not None:
                values |= {"memory_used_bytes": int(memory.used), "memory_total_bytes": int(memory.total)}
            if not gpu.is_slice:
                bits = gpu.ask(
                    "throttle reasons",
                    ("nvmlDeviceGetCurrentClocksEventReasons",),
                    ("nvmlDeviceGetCurrentClocksThrottleReasons",),  # its name before driver 535
                )
                values["throttle_reasons"] = None if bits is None else ", ".join(throttle_reasons(bits))
                values |= {field: gpu.number(number) for field, number in _STATE.items()}
            if time.monotonic() - self._turn_at >= TURN_S:
                self._turn_at = time.monotonic()
                if (field := self._in_turn[0]) is not None:
                    values[field] = gpu.number(_PCIE[field])
                elif self._pids is not None:
                    values["process_memory_bytes"] = self._process_memory_bytes(self._pids)
                self._in_turn.rotate(-1)
        return (DeviceSample(time_ns=time_ns, source="nvml", device=gpu.name, **values),)

    def close(self) -> None:
        self._gpu.nvml.nvmlShutdown()

    def _process_memory_bytes(self, pids: Pids) -> int | None:
        """The bytes that the processes hold together, None where that is not known.

        In a container NVML may number processes as the host does, or list none: until one of ours has been
        listed under an id that we know, their memory is unknown.
        """
        processes = self._gpu.ask("process memory", ("nvmlDeviceGetComputeRunningProcesses",))
        if processes is None:
            return None
        watched = pids()
        sizes = [process.usedGpuMemory for process in processes if process.pid in watched]
        self._processes_listed = self._processes_listed or bool(sizes)
        return sum(sizes) if self._processes_listed and None not in sizes else None

    def _counted(self) -> _Numbers:
        """Permanent counters and sensors in the units of a sample."""
        numbers = self._numbers({*_PER_UNIT, *_FIELD_VALUES})
        numbers |= {
            field: numbers[field] / per_unit for field, per_unit in _PER_UNIT.items() if field in numbers
        }
        return numbers | {field: int(numbers[field]) << 10 for field in _TRAFFIC if field in numbers}

    def _numbers(self, wanted: Collection[str]) -> _Numbers:
        """Those of the ``wanted`` fields that change fast and those that come with them, as NVML counts
        them."""
        gpu = self._gpu
        numbers: dict[str, Any] = {}
        if "energy_j" in wanted:
            numbers["energy_j"] = gpu.ask("energy", ("nvmlDeviceGetTotalEnergyConsumption",))
        numbers |= gpu.fields(name for name in _FIELD_VALUES if name in wanted)
        self._averages = self._averages or "power_w" in numbers
        if "power_w" in wanted and "power_w" not in numbers:
            # GA100 and what came before it have no average, but this; so have drivers from before there were
            # fields for power.
            numbers["power_w"] = gpu.ask("power", ("nvmlDeviceGetPowerUsage",))
        if "gpu_utilization" in wanted or "gpu_memory_utilization" in wanted:
            rates = gpu.ask("utilization", ("nvmlDeviceGetUtilizationRates",))
            if rates is not None:
                numbers |= {"gpu_utilization": rates.gpu, "gpu_memory_utilization": rates.memory}
        return {name: number for name, number in numbers.items() if number is not None and name in wanted}

    def _watch(self) -> dict[str, UpdatePace]:
        """The updates of each field, read as fast as possible until it had enough new values or the time is
        up."""
        supported = self._numbers(_PER_UNIT)
        readings: dict[str, list[tuple[float, int]]] = {field: [] for field in supported}
        changes = dict.fromkeys(supported, 0)
        began = time.perf_counter()
        while (
            waiting := [field for field in supported if changes[field] < ENOUGH_CHANGES]
        ) and time.perf_counter() < began + BURST_S:
            before = time.perf_counter()
            numbers = self._numbers(waiting)
            at = (before + time.perf_counter()) / 2
            for field, number in numbers.items():
                known = readings[field]
                changes[field] += bool(known) and known[-1][1] != int(number)
                known.append((at, int(number)))
            time.sleep(BURST_PAUSE_S)
        return {field: pace(known) for field, known in readings.items()}

    def _window_s(self, field: str, shown: UpdatePace) -> float:
        if field == "power_w":
            return POWER_WINDOW_S if self._averages else 0.0
        # Each new value of a utilization is of the time since the last one.
        return (shown.period_s or UTILIZATION_WINDOW_S) if field.endswith("utilization") else 0.0


class _Gpu:
    """One GPU or slice to ask: unsupported fields are asked once, permission errors noted once, a lost GPU
    raises DeviceError."""

    def __init__(self, identity: str | int, name: str) -> None:
        self.nvml = start_nvml()
        self.name = name
        self._denied: dict[str, list[str]] = {}  # what may not be read, by the error
        self._refused: set[str] = set()
        self._answered = self._unknown = self._failed_readings = 0
        self._error: Any = None
        try:
            self.handle = find_gpu(self.nvml, identity)
            self.is_slice = is_slice(self.nvml, self.handle)
        except self.nvml.NVMLError as error:
            self.nvml.nvmlShutdown()
            raise DeviceError(f"GPU {identity!r} ({name}) not found by NVML: {error}.") from None

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(
            f"Not readable on {self.name} by this user ({error}): {', '.join(subjects)}."
            for error, subjects in self._denied.items()
        )

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Surrounds the questions of one reading. Raises DeviceError after several that had no answer, or
        fewer than UNKNOWNs."""
        self._answered = self._unknown = 0
        yield
        failed = not self._answered or self._unknown > self._answered
        self._failed_readings = self._failed_readings + 1 if failed else 0
        if self._failed_readings >= LAST_READINGS:
            raise self._lost(self._error)

    def number(self, number: _Number) -> Any:
        """One number in the unit of a sample."""
        answer = self.ask(number.words, number.question)
        return None if answer is None else answer * number.unit

    def ask(self, subject: str, *questions: Question) -> Any:
        """The answer to the first of ``questions`` that this device and driver support; None when there is
        none, or none just now."""
        denied = None
        for place, (function, *constants) in enumerate(questions):
            key = f"{subject} {place}"
            if key in self._refused:
                continue
            try:
                answer = getattr(self.nvml, function)(
                    self.handle, *(getattr(self.nvml, constant) for constant in constants)
                )
            except AttributeError:  # this pynvml is older than the question
                self._refused.add(key)
            except self.nvml.NVMLError as error:
                if not self._refuses(key, error):
                    return None
                denied = error if isinstance(error, self.nvml.NVMLError_NoPermission) else denied
            else:
                self._answered += 1
                return answer
        if denied is not None:
            self._denied.setdefault(str(denied), []).append(subject)
        return None

    def fields(self, wanted: Iterable[str]) -> _Numbers:
        """The numbers of those of the ``wanted`` fields (of ``_FIELD_VALUES``) that this device has, in
        NVML's units, by one call."""
        asked = [name for name in wanted if name not in self._refused]
        if not asked or "field values 0" in self._refused:
            return {}
        constants = (_FIELD_VALUES[name][1:] for name in asked)
        questions = [(getattr(self.nvml, constant), scope) for constant, scope in constants]
        try:
            answers = self.nvml.nvmlDeviceGetFieldValues(self.handle, questions)
        except self.nvml.NVMLError as error:
            self._refuses("field values 0", error)
            return {}
        self._answered += 1
        numbers = {}
        for name, answer in zip(asked, answers, strict=False):
            if answer.nvmlReturn == self.nvml.NVML_SUCCESS:
                self._answered += 1
                numbers[name] = field_number(answer)
                continue
            refusal = self.nvml.NVMLError(answer.nvmlReturn)
            if self._refuses(name, refusal) and isinstance(refusal, self.nvml.NVMLError_NoPermission):
                self._denied.setdefault(str(refusal), []).append(_FIELD_VALUES[name][0])
        return numbers

    def _refuses(self, key: str, error: Any) -> bool:
        """Whether ``error`` means that there will never be an answer."""
        nvml = self.nvml
        self._error = error
        if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
            raise self._lost(error) from None
        if error.value in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_NO_PERMISSION,
        ):
            self._refused.add(key)
            return True
        self._unknown += error.value == nvml.NVML_ERROR_UNKNOWN
        return False

    def _lost(self, error: Any) -> DeviceError:
        return DeviceError(
            f"sampling of {self.name} stopped: {error}.", hint="See nvidia-smi and the kernel log."
        )


def all_gpus() -> dict[str, str | int]:
    """Every GPU that NVML sees, as ``gpu0``, ``gpu1`` and so on, because NVML counts by bus and CUDA need
    not; slices after their GPU.

    Names to indices, and for the MIG slices (``gpu0/mig0``) to UUIDs. Raises DeviceError with the reason when
    NVML is not usable.
    """
    nvml = start_nvml()
    gpus: dict[str, str | int] = {}
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            gpus[f"gpu{index}"] = index
            try:
                slices = find_slices(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
            except nvml.NVMLError:  # opening it will say why
                continue
            gpus |= {
                f"gpu{index}/mig{number}": nvml.nvmlDeviceGetUUID(handle)
                for number, handle in enumerate(slices)
            }
    except nvml.NVMLError as error:
        raise DeviceError(f"NVML is not available ({error}).") from None
    finally:
        nvml.nvmlShutdown()
    return gpus


def open_gpus(
    gpus: Mapping[str, str] | None, pids: Pids | None = None
) -> tuple[list[NvmlSampler], list[str]]:
    """A sampler for every GPU that can be read, and a sentence for every one, and every figure, that cannot.

    ``gpus`` maps the name that samples carry (``cuda:0``) to the GPU's UUID. None means all that NVML sees
    (``all_gpus``). ``pids`` gives the watched processes, whose memory on the GPUs is sampled.
    """
    samplers, problems, slices = {}, [], []
    try:
        wanted: Mapping[str, str | int] = all_gpus() if gpus is None else gpus
    except DeviceError as error:
        return [], [f"No GPU is sampled: {error}"]
    for device, identity in wanted.items():
        try:
            samplers[device] = NvmlSampler(identity, device, pids)
        except DeviceError as error:
            problems.append(str(error))
            continue
        if (
            gpus is not None and samplers[device].is_slice
        ):  # where all are sampled, its GPU is next to a slice
            slices.append(_SLICE.format(device))
    denied = [problem for sampler in samplers.values() for problem in sampler.problems]
    return list(samplers.values()), [*problems, *slices, *denied]
