"""The memory of one iteration of the perceptron by component, measured: what an allocator was seen to give
and a process to grow.

Only a fresh process can say what importing a library costs: nothing heavy may be imported here before
``measure`` has looked.

On the host NumPy's arrays are those that it reports to ``tracemalloc`` under a separate domain, PyTorch's the
storages that its operators returned and that are alive, and the total is the growth of the resident set. On a
GPU they are what hooks on CuPy's memory pool saw, and the total is what the driver says the device gave away.
The components are read one by one and the total apart from them: that they add up is a check, not a
definition.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import tracemalloc
from collections.abc import Sequence
from typing import Any, TypeAlias

import psutil

_CHUNK = 4096
# Domain, bus and device: NVML numbers GPUs in another order than CUDA may, and knows nothing of
# CUDA_VISIBLE_DEVICES.
Pci: TypeAlias = tuple[int, int, int]


class _Host:
    """Reads what NumPy holds, and is the pattern for the meters of the other libraries."""

    how = "arrays: tracemalloc's domain of NumPy; total: growth of the resident set since before the import"

    def __init__(self) -> None:
        self._before = resident_bytes()

    def started(self) -> int:
        """The library is imported and warm: the bytes that it holds now are its own."""
        framework = self.grown()
        tracemalloc.start(1)
        self._traced = tracemalloc.get_tracemalloc_memory()
        return framework

    def arrays(self) -> int:
        """Bytes of the library's arrays that are alive."""
        import numpy as np

        domain = np.lib.tracemalloc_domain
        return sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.domain == domain)

    def kept(self) -> int:
        """Bytes that the allocator and the meter hold in addition to the arrays since ``started``."""
        current, _ = tracemalloc.get_traced_memory()
        return current - self.arrays() + tracemalloc.get_tracemalloc_memory() - self._traced

    def grown(self) -> int:
        """Bytes taken from the system since the process began."""
        return resident_bytes() - self._before


class _TorchHost(_Host):
    how = (
        "arrays: storages of the operators' results; total: growth of the resident set since before "
        "the import, without the meter's"
    )

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, tuple[Any, int]] = {}

    def started(self) -> int:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        reference: Any = torch.multiprocessing.reductions.StorageWeakRef
        live, framework = self._live, self.grown()

        class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                made = func(*args, **(kwargs or {}))
                for storage in (
                    leaf.untyped_storage() for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)
                ):
                    live[storage.data_ptr()] = reference(storage), storage.nbytes()
                return made

        mode: Any = Mode()  # type: ignore[no-untyped-call]
        mode.__enter__()
        torch.zeros(1).add_(1)  # what the mode imports at its first operator is not the library's
        self._before += self.grown() - framework
        return framework

    def arrays(self) -> int:
        return sum(size for storage, size in self._live.values() if not storage.expired())

    def kept(self) -> int:
        return 0


class _Device(_Host):
    """CuPy: its pool gives arrays out, the driver gives the pool its blocks and the process its context."""

    def __init__(self) -> None:
        super().__init__()
        self.how = "arrays: hooks on CuPy's memory pool; total: memory that the driver counts as used"
        self._live = 0
        # Which GPU CuPy takes is known only once it is imported.
        self._at_first = _nvml_used()
        self._pci: Pci | None = None

    def started(self) -> int:
        import cupy

        cupy.cuda.Device().synchronize()
        cupy.get_default_memory_pool().free_all_blocks()
        pci = _pci(cupy.cuda.Device().pci_bus_id)
        if pci in self._at_first:
            self._pci, self._before = pci, self._at_first[pci]
        else:
            self._before = self._used()
            self.how += " (without the context: NVML does not report this GPU)"
        meter = self

        class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc]
            name = "rooflines"

            def malloc_postprocess(self, **facts: Any) -> None:
                meter._live += int(facts["mem_size"])

            def free_postprocess(self, **facts: Any) -> None:
                meter._live -= int(facts["mem_size"])

        self._hook = Hook()
        self._hook.__enter__()
        return self.grown()

    def arrays(self) -> int:
        import cupy

        cupy.cuda.Device().synchronize()
        return self._live

    def kept(self) -> int:
        import cupy

        pool = cupy.get_default_memory_pool()
        return int(pool.total_bytes()) - int(pool.used_bytes())

    def grown(self) -> int:
        return self._used() - self._before

    def _used(self) -> int:
        if self._pci is not None:
            return _nvml_used()[self._pci]
        import cupy

        free, total = cupy.cuda.runtime.memGetInfo()
        return int(total) - int(free)


def resident_bytes() -> int:
    """This process's resident set, after what the C library has free was given back to the system where it
    can do that."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc; nothing elsewhere
    return int(psutil.Process().memory_info().rss)


def measure(library: str, widths: Sequence[int], samples: int) -> dict[str, Any]:
    """Bytes of ``parameters``, ``input``, ``activations``, ``gradients`` and ``overhead`` (the library
    itself, and what its allocator and the measurement hold in addition to the arrays), and the ``total`` that
    the process or its device memory grew by.

    The input is random: its values do not change what it takes. To be called once, in a process that has not
    imported the library.
    """
    meters: dict[str, type[_Host]] = {"cupy": _Device, "torch-cpu": _TorchHost}
    meter = meters.get(library, _Host)()
    from rooflines_studies.networks.perceptron import Perceptron
    from rooflines_studies.networks.perceptron import library as load

    loaded = load(library)
    # Of the full size: the buffers that a BLAS packs operands into grow with the product, and are the
    # library's.
    warm = Perceptron(loaded, widths=widths)
    warm.step(*_random(warm, widths, samples))
    warm.close()
    del warm
    loaded.release()
    framework = meter.started()

    found: dict[str, Any] = {"how": meter.how}
    held = meter.arrays()

    def component(name: str) -> None:
        nonlocal held
        now = meter.arrays()
        found[name], held = now - held, now

    network = Perceptron(loaded, widths=widths)
    component("parameters")
    x, y = _random(network, widths, samples)
    component("input")
    network.forward(x, y)
    component("activations")
    network.backward(x, y)
    loaded.synchronize()
    component("gradients")
    found["overhead"] = framework + meter.kept()
    found["total"] = meter.grown()
    return found


def _random(network: Any, widths: Sequence[int], samples: int) -> tuple[Any, Any]:
    """Samples and classes where the network computes; made piece by piece, so that nothing of their making
    stays behind."""
    import numpy as np

    generator = np.random.default_rng(0)
    x = np.empty((samples, widths[0]), np.float32)
    for start in range(0, samples, _CHUNK):
        piece = x[start : start + _CHUNK]
        generator.random(piece.shape, np.float32, out=piece)
    return network.resident(x), network.resident(generator.integers(0, widths[-1], samples))


def _nvml_used() -> dict[Pci, int]:
    """Allocated bytes of each GPU, by its bus id; without GPUs that NVML does not report."""
    found: dict[Pci, int] = {}
    with contextlib.suppress(Exception):  # any exception of NVML here means that it cannot be read
        import pynvml

        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            with contextlib.suppress(pynvml.NVMLError):
                gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
                place = pynvml.nvmlDeviceGetPciInfo(gpu)
                found[place.domain, place.bus, place.device] = int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)
    return found


def _pci(bus_id: str) -> Pci:
    """The place on the bus that CUDA writes as ``0000:3b:00.0``."""
    domain, bus, device = bus_id.partition(".")[0].split(":")
    return int(domain, 16), int(bus, 16), int(device, 16)
