"""NVIDIA's management library (NVML): how it is started, how one of its GPUs is found, and what its bits and
fields mean."""

from __future__ import annotations

import contextlib
from typing import Any

from rooflines.errors import DeviceError

# The bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h) by which clocks are held down, and what NVIDIA
# calls them. An idle GPU (bit 0) and user-set clocks (bit 1) come from the same call and are not throttling.
THROTTLE_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake slowdown",
    0x100: "display clocks setting",
    0x200: "board limit",
    0x400: "reliability",
}
GPU_IDLE = 0x1
APPLICATIONS_CLOCKS_SETTING = 0x2

# Which member of the union a field value is in, by its type (nvmlValueType_t).
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def start_nvml() -> Any:
    """The pynvml module, initialized: every call needs one ``nvmlShutdown``. Raises DeviceError with the
    reason where it cannot be."""
    try:
        import pynvml
    except ImportError:
        raise DeviceError(
            "NVML is not available (pynvml is not installed).", hint="pip install nvidia-ml-py"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise DeviceError(f"NVML is not available ({error}).") from None
    return pynvml


def find_gpu(nvml: Any, identity: str | int) -> Any:
    """The handle of the GPU or MIG slice with this UUID, or with this NVML index. Raises NVMLError where
    there is none."""
    if isinstance(identity, int):
        return nvml.nvmlDeviceGetHandleByIndex(identity)
    # torch prints the bare UUID; NVML wants to know whether it is that of a GPU or of a MIG slice.
    bare = identity.removeprefix("GPU-")
    uuids = [identity] if identity.startswith("MIG-") else [f"GPU-{bare}", f"MIG-{bare}"]
    for uuid in uuids[:-1]:
        with contextlib.suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuids[-1])
    except nvml.NVMLError as error:
        # NVML's search may end at another GPU that is lost; they are looked through one by one then.
        if error.value == nvml.NVML_ERROR_NOT_FOUND:
            raise
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):
                gpu = nvml.nvmlDeviceGetHandleByIndex(index)
                for handle in (gpu, *find_slices(nvml, gpu)):
                    if nvml.nvmlDeviceGetUUID(handle) in uuids:
                        return handle
        raise


def find_slices(nvml: Any, gpu: Any) -> list[Any]:
    """The handles of the MIG slices that exist on a GPU; empty where it is not sliced or cannot be."""
    found = []
    with contextlib.suppress(nvml.NVMLError):
        current, _ = nvml.nvmlDeviceGetMigMode(gpu)
        for index in range(
            nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if current == nvml.NVML_DEVICE_MIG_ENABLE else 0
        ):
            with contextlib.suppress(nvml.NVMLError):  # no slice in this place
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
    return found


def is_slice(nvml: Any, handle: Any) -> bool:
    """Whether a handle is that of a MIG slice."""
    try:
        answer = nvml.nvmlDeviceIsMigDeviceHandle(handle)
    except nvml.NVMLError:  # a driver from before there were slices
        return False
    # pynvml hands out the C integer itself.
    return bool(getattr(answer, "value", answer))


def averages_power(nvml: Any, gpu: Any) -> bool:
    """Whether its power usage is the average over the last second: from Ampere on, but not GA100 (compute
    capability 8.0)."""
    try:
        return tuple(nvml.nvmlDeviceGetCudaComputeCapability(gpu)) > (8, 0)
    except nvml.NVMLError:
        return False


def field_number(field: Any) -> float | int:
    """The number in one of ``nvmlDeviceGetFieldValues``' answers, of any type."""
    number: float | int = getattr(field.value, _MEMBERS[field.valueType])
    return number


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Reasons for reduced clocks, in words, from NVML's bit mask; an unknown bit by its number."""
    unnamed = bits & ~(GPU_IDLE | APPLICATIONS_CLOCKS_SETTING | sum(THROTTLE_REASONS))
    words = [words for bit, words in THROTTLE_REASONS.items() if bits & bit]
    return (*words, *([f"reason {unnamed:#x}"] if unnamed else ()))
