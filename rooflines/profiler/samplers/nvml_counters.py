"""The energy, power, utilization and traffic of one GPU: what NVML counts, and how often it has something new to say."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, NamedTuple

from rooflines.device_specs.nvml import averages_power
from rooflines.profiler.samplers.fields import Counter
from rooflines.profiler.samplers.nvml_device import NvmlDevice
from rooflines.profiler.samplers.update_time import Pace, pace

# How long counters are watched for their updates, with what pause between two looks, and how many new values are enough.
BURST_S = 0.6
BURST_PAUSE_S = 0.001
ENOUGH_CHANGES = 7
# What NVML's documentation says: the interval that newer GPUs average power over, and the longest sample period of a utilization.
POWER_WINDOW_S = 1.0
UTILIZATION_WINDOW_S = 1.0

# NVML counts in mJ, mW and percent, and the traffic of links in KiB.
_PER_UNIT = {"energy_j": 1000, "power_w": 1000, "power_instant_w": 1000, "gpu_utilization": 100, "gpu_memory_utilization": 100}
_TRAFFIC = ("nvlink_tx_bytes", "nvlink_rx_bytes")
_KIB = 1024
_ALL_LINKS = 0xFFFFFFFF


class _FieldValue(NamedTuple):
    """A field of nvmlDeviceGetFieldValues: what it is, in words; pynvml's name for it; the scope it is asked for."""

    words: str
    constant: str
    scope: int = 0


_FIELD_VALUES = {
    "power_w": _FieldValue("average power", "NVML_FI_DEV_POWER_AVERAGE"),
    "power_instant_w": _FieldValue("instant power", "NVML_FI_DEV_POWER_INSTANT"),
    "memory_temperature_c": _FieldValue("memory temperature", "NVML_FI_DEV_MEMORY_TEMP"),
    "nvlink_tx_bytes": _FieldValue("NVLink sending", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", _ALL_LINKS),
    "nvlink_rx_bytes": _FieldValue("NVLink receiving", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", _ALL_LINKS),
}


class NvmlCounters:
    """What a GPU counts and measures all the time, under the names that samples have for it. A slice has none of it."""

    def __init__(self, gpu: NvmlDevice) -> None:
        self._gpu = gpu
        self._averages = not gpu.is_slice and averages_power(gpu.nvml, gpu.handle)

    def read(self) -> dict[str, float | int]:
        """What there is, in the units of a sample."""
        numbers = self._numbers({*_PER_UNIT, *_FIELD_VALUES})
        numbers |= {field: numbers[field] / per_unit for field, per_unit in _PER_UNIT.items() if field in numbers}
        return numbers | {field: int(numbers[field]) * _KIB for field in _TRAFFIC if field in numbers}

    def measure(self) -> tuple[Counter, ...]:
        """How well energy, power and utilization can be read, from watching them for ``BURST_S`` seconds at most."""
        return tuple(
            Counter(
                source="nvml",
                device=self._gpu.name,
                field=field,
                update_s=shown.period_s,
                resolution=None if shown.step is None else shown.step / _PER_UNIT[field],
                window_s=self._window_s(field, shown),
            )
            for field, shown in self._watch().items()
        )

    def _numbers(self, wanted: Collection[str]) -> dict[str, float | int]:
        """Those of the ``wanted`` fields that change fast and those that come with them, as NVML counts them."""
        nvml, handle, gpu = self._gpu.nvml, self._gpu.handle, self._gpu
        found: dict[str, Any] = {}
        if "energy_j" in wanted:
            found["energy_j"] = gpu.ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        fields = {name: field for name, field in _FIELD_VALUES.items() if name in wanted}
        answers = gpu.fields({field.words: (getattr(nvml, field.constant), field.scope) for field in fields.values()})
        found |= {name: answers.get(field.words) for name, field in fields.items()}
        self._averages = self._averages or found.get("power_w") is not None
        if "power_w" in wanted and found["power_w"] is None:
            # GA100 and what came before it have no average, but this; so have drivers from before there were fields for power.
            found["power_w"] = gpu.ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        if "gpu_utilization" in wanted or "gpu_memory_utilization" in wanted:
            rates = gpu.ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
            if rates is not None:
                found |= {"gpu_utilization": rates.gpu, "gpu_memory_utilization": rates.memory}
        return {name: number for name, number in found.items() if number is not None and name in wanted}

    def _watch(self) -> dict[str, Pace]:
        """The updates of every field there is, read as fast as can be until each had enough new values or the time is up."""
        supported = self._numbers(_PER_UNIT)
        readings: dict[str, list[tuple[float, int]]] = {field: [] for field in supported}
        changes = dict.fromkeys(supported, 0)
        began = time.perf_counter()
        while (waiting := [field for field in supported if changes[field] < ENOUGH_CHANGES]) and time.perf_counter() < began + BURST_S:
            before = time.perf_counter()
            numbers = self._numbers(waiting)
            at = (before + time.perf_counter()) / 2
            for field, number in numbers.items():
                known = readings[field]
                changes[field] += bool(known) and known[-1][1] != int(number)
                known.append((at, int(number)))
            time.sleep(BURST_PAUSE_S)
        return {field: pace(known) for field, known in readings.items()}

    def _window_s(self, field: str, shown: Pace) -> float:
        if field == "power_w":
            return POWER_WINDOW_S if self._averages else 0.0
        if field in ("gpu_utilization", "gpu_memory_utilization"):
            # Each new value is of the time since the last one.
            return shown.period_s or UTILIZATION_WINDOW_S
        return 0.0
