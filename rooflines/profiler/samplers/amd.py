"""AMD GPUs as their driver sees them, through AMD SMI (the Python package ``amdsmi`` that ROCm brings).

Written after AMD's documentation and source of ROCm 6.0 to 7.0; it has not run on hardware yet. Units are
those of the documentation: memory in MiB, power in watts, the limit in microwatts, energy in steps of
``counter_resolution`` microjoules, clocks in MHz, temperatures in degrees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.base import Pids, Sampler
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.update_time import RateLimited, watch

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")

# How long the energy counter is watched for its update period.
ENERGY_WATCH_S = 0.3
# Looking for processes walks /proc, and errors are counted block by block.
SLOW_EVERY_S, SLOW_SHARE = 1.0, 0.002
# What AMD SMI gives for a figure that the GPU does not have, as 16 bits of ones or more.
_NO_NUMBER = 0xFFFF
# Some versions give the limit in watts: no GPU is limited to less than a hundredth of one, none to ten
# kilowatts.
_LEAST_LIMIT_UW = 10_000

# AMDSMI_STATUS_NOT_SUPPORTED and AMDSMI_STATUS_NOT_YET_IMPLEMENTED in amdsmi.h.
_UNSUPPORTED = (2, 3)

# The accumulators of gpu_metrics that grow while the clocks are held down, and what holds them. The call that
# gives their rates (amdsmi_get_violation_status) sleeps for a tenth of a second or longer between two
# readings of the same.
_REASONS = {
    "ppt_residency_acc": "power cap",
    "socket_thm_residency_acc": "thermal slowdown",
    "hbm_thm_residency_acc": "memory thermal slowdown",
    "vr_thm_residency_acc": "voltage regulator thermal slowdown",
    "prochot_residency_acc": "processor hot",
}


class AmdSampler(Sampler):
    """Readings of one AMD GPU, which carry the name ``device``. ``pids`` gives the watched processes.

    A field that this GPU does not support is absent from every sample; one that failed once is absent from
    that sample. ``power_w`` is the firmware's average where it has one. ``throttle_reasons`` are those that
    were in force at some time since the previous reading. Raises DeviceError from ``read`` when the GPU
    answers nothing any more. Closing leaves the library open, which the other GPUs share.
    """

    def __init__(self, smi: Any, handle: Any, device: str, pids: Pids) -> None:
        self._smi = smi
        self._gpu = handle
        self._device = device
        self._pids = pids
        self._unsupported: set[str] = set()
        self._answered = False
        self._last_error = ""
        self._residency: dict[str, int] = {}
        self._listed = False
        self._process_memory = RateLimited(self._process_memory_bytes, every_s=SLOW_EVERY_S, share=SLOW_SHARE)
        errors = partial(self._ask, "errors", "amdsmi_get_gpu_total_ecc_count")
        self._errors = RateLimited(errors, every_s=SLOW_EVERY_S, share=SLOW_SHARE)

    def counters(self) -> Sequence[Counter]:
        energy = self._ask("energy", "amdsmi_get_energy_count")
        if energy is None:
            return ()
        try:
            update_s, _ = watch(
                lambda: _energy_count(self._smi.amdsmi_get_energy_count(self._gpu)), watch_s=ENERGY_WATCH_S
            )
        except self._smi.AmdSmiLibraryException:  # it may come back
            return ()
        self.period_s = (update_s or 0.0) / 2
        resolution_j = energy["counter_resolution"] / 1e6
        return (
            Counter(
                source="amdsmi",
                device=self._device,
                field="energy_j",
                update_s=update_s,
                resolution=resolution_j,
            ),
        )

    def read(self) -> Sequence[DeviceSample]:
        self._answered, self._last_error = False, ""
        activity = self._ask("activity", "amdsmi_get_gpu_activity") or {}
        memory = self._ask("memory", "amdsmi_get_gpu_vram_usage") or {}
        power = self._ask("power", "amdsmi_get_power_info") or {}
        limit = self._ask("power limit", "amdsmi_get_power_cap_info") or {}
        energy = self._ask("energy", "amdsmi_get_energy_count")
        errors = self._errors() or {}
        sample = DeviceSample(
            time_ns=now_ns(),
            source="amdsmi",
            device=self._device,
            gpu_utilization=_fraction(activity.get("gfx_activity")),
            gpu_memory_utilization=_fraction(activity.get("umc_activity")),
            memory_used_bytes=_bytes(memory.get("vram_used")),
            memory_total_bytes=_bytes(memory.get("vram_total")),
            process_memory_bytes=self._process_memory(),
            power_w=_number(power.get("average_socket_power"), below=_NO_NUMBER),
            power_instant_w=_number(power.get("current_socket_power"), below=_NO_NUMBER),
            power_limit_w=_limit_w(limit.get("power_cap")),
            energy_j=None if energy is None else _energy_count(energy) * energy["counter_resolution"] / 1e6,
            temperature_c=self._temperature_c("HOTSPOT"),
            memory_temperature_c=self._temperature_c("VRAM"),
            sm_clock_hz=self._clock_hz("GFX"),
            memory_clock_hz=self._clock_hz("MEM"),
            throttle_reasons=self._throttle_reasons(),
            ecc_corrected=errors.get("correctable_count"),
            ecc_uncorrected=errors.get("uncorrectable_count"),
        )
        if not self._answered:
            raise DeviceError(
                f"sampling of {self._device} stopped: {self._last_error}.",
                hint="See amd-smi and the kernel log.",
            )
        return (sample,)

    def _temperature_c(self, sensor: str) -> float | None:
        where = getattr(self._smi.AmdSmiTemperatureType, sensor)
        now = self._smi.AmdSmiTemperatureMetric.CURRENT
        return _number(self._ask(f"{sensor} temperature", "amdsmi_get_temp_metric", where, now))

    def _clock_hz(self, clock: str) -> float | None:
        clocks = (
            self._ask(f"{clock} clock", "amdsmi_get_clock_info", getattr(self._smi.AmdSmiClkType, clock))
            or {}
        )
        return _number(clocks.get("clk", clocks.get("cur_clk")), 1e6)  # the latter until ROCm 6.1

    def _throttle_reasons(self) -> str | None:
        metrics = self._ask("metrics", "amdsmi_get_gpu_metrics_info") or {}
        residency = {name: metrics[name] for name in _REASONS if isinstance(metrics.get(name), int)}
        before, self._residency = self._residency, residency
        if residency:
            return (
                ", ".join(_REASONS[name] for name, now in residency.items() if now > before.get(name, now))
                if before
                else None
            )
        # Older GPUs only say that something does.
        throttled = metrics.get("throttle_status")
        return ("throttled" if throttled else "") if isinstance(throttled, bool | int) else None

    def _process_memory_bytes(self) -> int | None:
        listed = self._ask("processes", "amdsmi_get_gpu_process_list")
        if listed is None:
            return None
        # Handles until ROCm 6.1, of which one has to ask on.
        processes = [
            one if isinstance(one, Mapping) else self._ask("process", "amdsmi_get_gpu_process_info", one)
            for one in listed
        ]
        if None in processes:
            return None
        pids = self._pids()
        sizes = [int(process["memory_usage"]["vram_mem"]) for process in processes if process["pid"] in pids]
        # In a container processes may be listed by other numbers, or not at all: without one of our
        # processes, their memory is unknown.
        self._listed = self._listed or bool(sizes)
        return sum(sizes) if self._listed else None

    def _ask(self, what: str, function: str, *arguments: Any) -> Any:
        """The answer of a function of AMD SMI, or None when there is none; unsupported figures are asked
        once."""
        if what in self._unsupported:
            return None
        try:
            answer = getattr(self._smi, function)(self._gpu, *arguments)
        except self._smi.AmdSmiLibraryException as error:
            self._last_error = _one_line(error)
            if error.get_error_code() in _UNSUPPORTED:
                self._unsupported.add(what)
            return None
        self._answered = True
        return answer


def open_amd_gpus(
    gpus: Mapping[str, str] | None, pids: Pids, nodes: Path = KFD_NODES
) -> tuple[list[AmdSampler], list[str], dict[str, str] | None]:
    """A sampler for every AMD GPU asked for, a sentence for what cannot be read, and what is left of ``gpus``
    for others to find.

    ``gpus`` maps the name that samples carry to the GPU's UUID as torch prints it; None means all, named
    ``amd0``, ``amd1`` and so on. Without an AMD GPU nothing is loaded and nothing said.
    """
    left = None if gpus is None else dict(gpus)
    if gpus == {} or not has_amd_gpu(nodes):
        return [], [], left
    try:
        smi = start_amd_smi()
        handles = smi.amdsmi_get_processor_handles()
        serials: dict[str, Any] = {}
        for handle in handles if gpus is not None else ():
            number = str(smi.amdsmi_get_gpu_asic_info(handle)["asic_serial"])
            serials[number.lower().removeprefix("0x")] = handle
    except DeviceError as error:
        return [], [str(error)], left
    except Exception as error:  # the package's own class, which may not be there
        return [], [f"No AMD GPU is sampled: {_one_line(error)}."], left
    if gpus is None:
        amd = {f"amd{index}": handle for index, handle in enumerate(handles)}
    else:
        found = {device: serials.get(serial_of_uuid(uuid)) for device, uuid in gpus.items()}
        amd = {device: handle for device, handle in found.items() if handle is not None}
        left = {device: uuid for device, uuid in gpus.items() if device not in amd}
    return [AmdSampler(smi, handle, device, pids) for device, handle in amd.items()], [], left


def has_amd_gpu(nodes: Path) -> bool:
    """Whether the kernel's driver for computing on AMD GPUs has one: it also lists CPUs, which have no SIMD
    units."""
    for properties in nodes.glob("*/properties"):
        try:
            facts = dict(
                line.split(maxsplit=1) for line in properties.read_text().splitlines() if " " in line
            )
        except OSError:  # of a device that this user may not use
            continue
        if int(facts.get("simd_count", "0")):
            return True
    return False


def start_amd_smi() -> Any:
    """The amdsmi module, initialized. Raises DeviceError with the reason where it cannot be."""
    try:
        import amdsmi
    except (
        ImportError,
        KeyError,
        OSError,
    ) as error:  # the package without its library gives one of the latter
        hint = (
            "Install the amdsmi package of your ROCm version (/opt/rocm/share/amd_smi, or pip "
            "install amdsmi)."
        )
        raise DeviceError(
            f"The AMD GPU is not sampled: the package amdsmi cannot be used ({_one_line(error)}).", hint=hint
        ) from None
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiLibraryException as error:
        raise DeviceError(
            f"The AMD GPU is not sampled: AMD SMI does not start ({_one_line(error)})."
        ) from None
    return amdsmi


def serial_of_uuid(uuid: str) -> str:
    """The serial number in the UUID that torch prints: HIP's are its 16 hexadecimal digits as text, of which
    torch prints the bytes."""
    bare = uuid.removeprefix("GPU-").replace("-", "").lower()
    try:
        text = bytes.fromhex(bare).decode("ascii")
    except ValueError:
        return bare
    return text.lower() if len(text) == 16 and text.isalnum() else bare


def _energy_count(energy: Mapping[str, Any]) -> int:
    return int(
        energy["energy_accumulator"] if "energy_accumulator" in energy else energy["power"]
    )  # the latter until ROCm 6.2


def _number(value: object, factor: float = 1.0, below: float = float("inf")) -> float | None:
    return value * factor if isinstance(value, int | float) and value < below else None


def _fraction(percent: object) -> float | None:
    return percent / 100 if isinstance(percent, int) and percent <= 100 else None


def _bytes(mebibytes: object) -> int | None:
    return mebibytes << 20 if isinstance(mebibytes, int) else None


def _limit_w(limit: object) -> float | None:
    if not isinstance(limit, int) or not limit:
        return None
    return limit / 1e6 if limit >= _LEAST_LIMIT_UW else float(limit)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
