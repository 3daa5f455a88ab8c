"""One NVIDIA GPU as its driver sees it, through NVML. docs/sampling-nvml.md says what each figure is worth."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rooflines.device_specs.nvml import find_slices, start_nvml, throttle_reasons
from rooflines.errors import DeviceError
from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.nvml_counters import NvmlCounters
from rooflines.profiler.samplers.nvml_device import NvmlDevice

# A question for PCIe throughput blocks for 20 ms, one for the processes can take milliseconds: one of them at most in this time.
TURN_S = 0.25
# Where nothing was seen to change: NVIDIA's drivers have new values every 20 to 100 ms.
UNMEASURED_PERIOD_S = 0.05

Pids = Callable[[], Collection[int]]

_OF_A_SLICE = "{} is a slice of a GPU (MIG): NVML has its memory, and power, clocks and utilization of whole GPUs only."


class NvmlSampler(Sampler):
    """Readings of one GPU or MIG slice. ``identity`` is its UUID or its NVML index, ``device`` the name that its samples carry.

    A field that this GPU does not support, or that this user may not read, is absent from every sample; one that failed once is absent
    from that sample. PCIe throughput and the memory of the processes ``pids`` are read in turn, one of them every ``TURN_S``
    seconds, and absent in between. A slice has its memory only: power, temperature and clocks are the whole GPU's. The time of a sample
    is that of its energy and power. Counters are as NVML shows them, also where they fall back or stand still.

    ``problems`` are sentences about what this user may not read. Raises DeviceError when NVML or the GPU is not there, and from
    ``read`` and ``counters`` when the GPU was lost.
    """

    def __init__(self, identity: str | int, device: str, pids: Pids | None = None) -> None:
        self._gpu = gpu = NvmlDevice(identity, device)
        self._counters = NvmlCounters(gpu)
        self._processes = ProcessMemory(gpu, pids) if pids is not None else None
        self._in_turn = deque([self._process_memory] if gpu.is_slice else [self._process_memory, self._pcie_sent, self._pcie_received])
        self._turn_at = -float("inf")
        try:
            # Report now what cannot be read, before the run starts.
            self.read()
            if not gpu.is_slice:
                self._pcie_sent()
        except DeviceError:
            self.close()
            raise

    @property
    def problems(self) -> tuple[str, ...]:
        return self._gpu.problems

    @property
    def is_slice(self) -> bool:
        """Whether it is a slice (MIG)."""
        return self._gpu.is_slice

    def counters(self) -> Sequence[Counter]:
        if self._gpu.is_slice:
            return ()
        counters = self._counters.measure()
        periods = [counter.update_s for counter in counters if counter.update_s is not None]
        self.period_s = min(periods) / 2 if periods else UNMEASURED_PERIOD_S
        return counters

    def read(self) -> Sequence[DeviceSample]:
        gpu = self._gpu
        with gpu.reading():
            began_ns = now_ns()
            values: dict[str, Any] = {} if gpu.is_slice else self._counters.read()
            time_ns = (began_ns + now_ns()) // 2
            values |= self._memory()
            if not gpu.is_slice:
                values |= self._state()
            if time.monotonic() - self._turn_at >= TURN_S:
                self._turn_at = time.monotonic()
                values |= self._in_turn[0]()
                self._in_turn.rotate(-1)
        return (DeviceSample(time_ns=time_ns, source="nvml", device=gpu.name, **values),)

    def close(self) -> None:
        self._gpu.close()

    def _memory(self) -> dict[str, Any]:
        nvml, handle = self._gpu.nvml, self._gpu.handle
        memory = self._gpu.ask(
            "memory",
            # The second version does not count what the driver keeps for itself as used.
            lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
            lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
        )
        return {} if memory is None else {"memory_used_bytes": int(memory.used), "memory_total_bytes": int(memory.total)}

    def _state(self) -> dict[str, Any]:
        """What holds a GPU back, and how it is."""
        nvml, handle, ask = self._gpu.nvml, self._gpu.handle, self._gpu.ask
        bits = ask(
            "throttle reasons",
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            # its name before driver 535
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        )
        return {
            "power_limit_w": ask("power limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
            "temperature_c": ask("temperature", lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
            "sm_clock_hz": ask("SM clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
            "memory_clock_hz": ask("memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6),
            "throttle_reasons": None if bits is None else ", ".join(throttle_reasons(bits)),
            "ecc_corrected": self._ecc("corrected memory errors", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "ecc_uncorrected": self._ecc("uncorrected memory errors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        }

    def _ecc(self, words: str, kind: int) -> int | None:
        nvml, handle = self._gpu.nvml, self._gpu.handle
        return self._gpu.ask(words, lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC)))

    def _process_memory(self) -> dict[str, Any]:
        return {"process_memory_bytes": self._processes.read()} if self._processes is not None else {}

    def _pcie_sent(self) -> dict[str, Any]:
        return {"pcie_tx_bytes_per_s": self._pcie(self._gpu.nvml.NVML_PCIE_UTIL_TX_BYTES)}

    def _pcie_received(self) -> dict[str, Any]:
        return {"pcie_rx_bytes_per_s": self._pcie(self._gpu.nvml.NVML_PCIE_UTIL_RX_BYTES)}

    def _pcie(self, direction: int) -> float | None:
        nvml, handle = self._gpu.nvml, self._gpu.handle
        return self._gpu.ask("PCIe throughput", lambda: nvml.nvmlDeviceGetPcieThroughput(handle, direction) * 1e3)


def all_gpus() -> dict[str, str | int]:
    """Every GPU that NVML sees, as ``gpu0``, ``gpu1`` and so on, because NVML counts by bus and CUDA need not; slices after their GPU.

    Names to indices, and for the MIG slices (``gpu0/mig0``) to UUIDs. Raises DeviceError with the reason when NVML is not usable.
    """
    nvml = start_nvml()
    found: dict[str, str | int] = {}
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            found[f"gpu{index}"] = index
            try:
                slices = find_slices(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
            except nvml.NVMLError:  # opening it will say why
                continue
            found |= {f"gpu{index}/mig{number}": nvml.nvmlDeviceGetUUID(handle) for number, handle in enumerate(slices)}
    except nvml.NVMLError as error:
        raise DeviceError(f"NVML is not available ({error}).") from None
    finally:
        nvml.nvmlShutdown()
    return found


def open_gpus(gpus: Mapping[str, str] | None, pids: Pids | None = None) -> tuple[list[NvmlSampler], list[str]]:
    """A sampler for every GPU that can be read, and a sentence for every one, and every figure, that cannot.

    ``gpus`` maps the name that samples carry (``cuda:0``) to the GPU's UUID. None means all that NVML sees (``all_gpus``). ``pids``
    gives the watched processes, whose memory on the GPUs is sampled.
    """
    try:
        wanted: Mapping[str, str | int] = all_gpus() if gpus is None else gpus
    except DeviceError as error:
        return [], [f"No GPU is sampled: {error}"]
    opened = [_open_gpu(identity, device, pids) for device, identity in wanted.items()]
    samplers = [gpu for gpu in opened if isinstance(gpu, NvmlSampler)]
    problems = [gpu for gpu in opened if isinstance(gpu, str)]
    if gpus is not None:  # where all are sampled, its GPU is next to a slice
        pairs = zip(wanted, opened, strict=True)
        problems += [_OF_A_SLICE.format(device) for device, gpu in pairs if isinstance(gpu, NvmlSampler) and gpu.is_slice]
    return samplers, [*problems, *(problem for gpu in samplers for problem in gpu.problems)]


def _open_gpu(identity: str | int, device: str, pids: Pids | None) -> NvmlSampler | str:
    try:
        return NvmlSampler(identity, device, pids)
    except DeviceError as error:
        return str(error)


class ProcessMemory:
    """The memory of the processes in ``pids`` on one GPU or slice.

    In a container NVML may number the processes as the host does, or list none: until one of our processes has been listed under an id
    that we know, their memory is unknown and no figure is given.
    """

    def __init__(self, gpu: NvmlDevice, pids: Callable[[], Collection[int]]) -> None:
        self._gpu = gpu
        self._pids = pids
        self._seen = False

    def read(self) -> int | None:
        """The bytes they hold together, None when that cannot be known."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        listed = self._gpu.ask("process memory", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        if listed is None:
            return None
        pids = self._pids()
        ours = [process.usedGpuMemory for process in listed if process.pid in pids]
        self._seen = self._seen or bool(ours)
        return sum(ours) if self._seen and None not in ours else None
