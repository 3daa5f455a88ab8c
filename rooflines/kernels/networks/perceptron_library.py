"""The array libraries that the perceptron can be computed with: their functions, their device, and how to wait for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflines.errors import DeviceError

LIBRARIES = ("numpy", "cupy", "torch-cpu", "torch-cuda", "torch-mps")


class Library:
    """One library on one device; this one is NumPy. ``module`` has NumPy's functions under NumPy's names, as far as they are called."""

    name = "numpy"
    module: Any = np

    def to_device(self, array: Any) -> Any:
        """A NumPy array as the library's own, which comes back as it is."""
        return array

    def to_host(self, array: Any) -> NDArray[Any]:
        """The library's array as NumPy's."""
        return np.asarray(array)

    def synchronise(self) -> None:
        """Wait until the device is done."""

    def device_memory_bytes(self) -> int | None:
        """The peak of the device allocator; None on the host."""
        return None

    def release(self) -> None:
        """Give memory that the allocator keeps for later back to the device."""


def library(name: str) -> Library:
    """The library of this name (``LIBRARIES``). Raises DeviceError where it or its device is not on this machine, saying which."""
    if name == "numpy":
        return Library()
    if name == "cupy":
        return _CuPy()
    if name in LIBRARIES:
        return _Torch(name.removeprefix("torch-"))
    raise DeviceError(f"unknown array library {name!r}.", hint=f"Choose from {', '.join(LIBRARIES)}.")


class _CuPy(Library):
    name = "cupy"

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(
                f"CuPy cannot be imported ({error}).", hint="Run 'rooflines doctor' for the command that installs it."
            ) from None
        try:
            count = int(cupy.cuda.runtime.getDeviceCount())
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(f"CuPy finds no usable GPU ({error}).") from None
        if count == 0:
            raise DeviceError("CuPy finds no GPU.")
        self.module = cupy
        self._peak = 0

    def to_device(self, array: Any) -> Any:
        return self.module.asarray(array)

    def to_host(self, array: Any) -> NDArray[Any]:
        return np.asarray(self.module.asnumpy(array))

    def synchronise(self) -> None:
        self.module.cuda.get_current_stream().synchronize()

    def device_memory_bytes(self) -> int | None:
        # The pool keeps what it once took until it is freed explicitly, so its size is its peak.
        self._peak = max(self._peak, int(self.module.get_default_memory_pool().total_bytes()))
        return self._peak

    def release(self) -> None:
        self.device_memory_bytes()
        self.module.get_default_memory_pool().free_all_blocks()


class _Torch(Library):
    def __init__(self, device: str) -> None:
        try:
            import torch
        except ImportError as error:
            raise DeviceError(f"PyTorch cannot be imported ({error}).") from None
        from rooflines.kernels.micro.clock import synchronize

        present = device == "cpu" or (torch.cuda if device == "cuda" else torch.backends.mps).is_available()
        if not present:
            raise DeviceError(f"torch {torch.__version__} finds no {'NVIDIA' if device == 'cuda' else 'Apple'} GPU.")
        self.name = f"torch-{device}"
        self.module = torch
        self._device = torch.device(device)
        self._synchronize = synchronize

    def to_device(self, array: Any) -> Any:
        return self.module.as_tensor(array, device=self._device)

    def to_host(self, array: Any) -> NDArray[Any]:
        return np.asarray(array.cpu().numpy())

    def synchronise(self) -> None:
        self._synchronize(self._device)

    def device_memory_bytes(self) -> int | None:
        if self._device.type == "cuda":
            return int(self.module.cuda.max_memory_allocated())
        return int(self.module.mps.driver_allocated_memory()) if self._device.type == "mps" else None

    def release(self) -> None:
        if self._device.type == "cuda":
            self.module.cuda.empty_cache()
