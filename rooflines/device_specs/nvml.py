"""NVIDIA's management library (NVML): how it is started, and how one of its GPUs is found by the name that torch gives it."""

from __future__ import annotations

from typing import Any

from rooflines.errors import DeviceError


def start_nvml() -> Any:
    """The pynvml module, initialized: every call needs one ``nvmlShutdown``. Raises DeviceError with the reason where it cannot be."""
    try:
        import pynvml
    except ImportError:
        raise DeviceError("NVML is not usable (pynvml is not installed).", hint="pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise DeviceError(f"NVML is not usable ({error}).") from None
    return pynvml


def find_gpu(nvml: Any, identity: str | int) -> Any:
    """The handle of the GPU or MIG slice with this UUID, or with this NVML index. Raises NVMLError where there is none."""
    if isinstance(identity, int):
        return nvml.nvmlDeviceGetHandleByIndex(identity)
    if identity.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(identity)
    # torch prints the bare UUID; NVML wants to know whether it is that of a GPU or of a MIG slice.
    bare = identity.removeprefix("GPU-")
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
