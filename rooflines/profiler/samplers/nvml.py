"""One NVIDIA GPU as its driver sees it, through NVML."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rooflines.device_specs.nvml import find_gpu, start_nvml
from rooflines.errors import DeviceError
from rooflines.profiler.records import DeviceSample


class NvmlSampler:
    """Readings of one GPU. ``identity`` is its UUID or its NVML index, ``device`` the name that its samples carry.

    A field that this GPU does not support is absent from every sample; one that failed once is absent from that sample. Power is the
    driver's average over the last second where it has one. Raises DeviceError when NVML or the GPU is not there, and from ``read``
    when the GPU was lost.
    """

    def __init__(self, identity: str | int, device: str) -> None:
        self._nvml = start_nvml()
        self._device = device
        self._unsupported: set[str] = set()
        try:
            self._handle = find_gpu(self._nvml, identity)
        except self._nvml.NVMLError as error:
            self._nvml.nvmlShutdown()
            raise DeviceError(f"NVML does not know GPU {identity!r} ({device}): {error}.") from None

    def read(self) -> Sequence[DeviceSample]:
        nvml, gpu = self._nvml, self._handle
        utilization = self._ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(gpu))
        return (
            DeviceSample(
                time_ns=time.time_ns(),
                source="nvml",
                device=self._device,
                gpu_utilization=None if utilization is None else utilization.gpu / 100,
                gpu_memory_utilization=None if utilization is None else utilization.memory / 100,
                memory_used_bytes=self._ask("memory", lambda: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used)),
                power_w=self._power_w(),
                power_limit_w=self._ask("power limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3),
                energy_j=self._ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3),
                temperature_c=self._ask("temperature", lambda: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))),
                sm_clock_hz=self._ask("SM clock", lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6),
                memory_clock_hz=self._ask("memory clock", lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6),
            ),
        )

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _power_w(self) -> float | None:
        average: float | None = self._ask("power average", self._power_average_w)
        if average is not None:
            return average
        # Before Ampere there is no average: NVML then has the power of the moment.
        moment: float | None = self._ask("power", lambda: self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1e3)
        return moment

    def _power_average_w(self) -> float:
        (field,) = self._nvml.nvmlDeviceGetFieldValues(self._handle, [self._nvml.NVML_FI_DEV_POWER_AVERAGE])
        if field.nvmlReturn != self._nvml.NVML_SUCCESS:
            raise self._nvml.NVMLError(field.nvmlReturn)
        return float(field.value.uiVal / 1e3)

    def _ask(self, field: str, question: Callable[[], Any]) -> Any:
        """The answer, or None when there is none; what is not supported is asked once, a lost GPU ends the series."""
        if field in self._unsupported:
            return None
        try:
            return question()
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound, self._nvml.NVMLError_InvalidArgument):
            self._unsupported.add(field)
        except (self._nvml.NVMLError_GpuIsLost, self._nvml.NVMLError_ResetRequired) as error:
            raise DeviceError(f"{self._device} ended its samples: {error}.", hint="See nvidia-smi and the kernel log.") from None
        except self._nvml.NVMLError:
            pass
        return None


def gpu_count() -> int:
    """How many GPUs NVML sees. Raises DeviceError with the reason when NVML is not usable."""
    nvml = start_nvml()
    try:
        return int(nvml.nvmlDeviceGetCount())
    finally:
        nvml.nvmlShutdown()


def open_gpus(gpus: Mapping[str, str] | None) -> tuple[list[NvmlSampler], list[str]]:
    """A sampler for every GPU that can be read, and a sentence for every one that cannot.

    ``gpus`` maps the name that samples carry (``cuda:0``) to the GPU's UUID. None means all that NVML sees, named ``gpu0``, ``gpu1``
    and so on, because NVML counts by bus and CUDA need not.
    """
    try:
        wanted: Mapping[str, str | int] = {f"gpu{index}": index for index in range(gpu_count())} if gpus is None else gpus
    except DeviceError as error:
        return [], [f"No GPU is sampled: {error}"]
    opened = [_open_gpu(identity, device) for device, identity in wanted.items()]
    return [gpu for gpu in opened if isinstance(gpu, NvmlSampler)], [gpu for gpu in opened if isinstance(gpu, str)]


def _open_gpu(identity: str | int, device: str) -> NvmlSampler | str:
    try:
        return NvmlSampler(identity, device)
    except DeviceError as error:
        return str(error)
