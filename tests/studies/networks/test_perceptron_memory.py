"""Memory by component is measured apart from the total, and adds up to it."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from rooflines_studies.networks import perceptron_memory

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
PARTS = ("parameters", "input", "activations", "gradients", "overhead")


def measured(library, samples=59_000):
    code = "import json; from rooflines_studies.networks.perceptron_memory import measure; "
    code += f"print(json.dumps(measure({library!r}, (784, 10, 10), {samples})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)


@pytest.mark.ci
@pytest.mark.parametrize("library", ["numpy", "torch-cpu"])
@pytest.mark.parametrize("samples", [2_000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_the_components_add_up_to_the_growth_of_the_process(samples, library):
    found = measured(library, samples)
    assert sum(found[part] for part in PARTS) == pytest.approx(found["total"], rel=0.05)
    # What NumPy reported is what the arrays of these shapes hold: float32, and int64 classes.
    assert found["input"] == pytest.approx(samples * (784 * 4 + 8), rel=0.01)
    assert found["parameters"] == pytest.approx(4 * 7960, rel=0.05)
    # two outputs and two sums of ten numbers, and the numbers of the rows
    assert found["activations"] == pytest.approx(samples * (4 * 10 * 4 + 8), rel=0.05)
    assert found["gradients"] == pytest.approx(samples * 2 * 10 * 4 + 4 * 7960, rel=0.05)


def gpus(monkeypatch, taken, device):
    """NVML with one GPU on each bus of ``taken``, bytes by bus, and a CuPy that computes on the one called ``device``."""

    def memory(bus):
        if taken[bus] is None:
            raise nvml.NVMLError
        return SimpleNamespace(used=taken[bus])

    nvml = SimpleNamespace(
        NVMLError=type("NVMLError", (Exception,), {}), nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: len(taken),
        nvmlDeviceGetHandleByIndex=lambda index: list(taken)[index],
        nvmlDeviceGetPciInfo=lambda bus: SimpleNamespace(domain=0, bus=bus, device=0),
        nvmlDeviceGetMemoryInfo=memory,
    )  # fmt: skip
    hook = type("MemoryHook", (), {"__enter__": lambda self: self})
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(synchronize=lambda: None, pci_bus_id=device), MemoryHook=hook,
        runtime=SimpleNamespace(memGetInfo=lambda: (700, 1000)),
    )  # fmt: skip
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: pool))


@pytest.mark.ci
def test_a_devices_memory_is_that_of_the_gpu_that_cupy_computes_on(monkeypatch):
    taken = {0x17: 9_000, 0x3B: 100, 0x5E: None}
    gpus(monkeypatch, taken, "0000:3b:00.0")
    meter = perceptron_memory._Device()
    taken[0x3B] += 50  # the context
    taken[0x17] -= 8_000  # somebody else's
    assert meter.started() == 50
    taken[0x3B] += 1_000
    assert meter.grown() == 1_050
    assert "without the context" not in meter.how


@pytest.mark.ci
def test_a_gpu_that_nvml_does_not_tell_of_is_read_without_its_context(monkeypatch):
    gpus(monkeypatch, {0x17: 9_000, 0x5E: None}, "0000:5E:00.0")
    meter = perceptron_memory._Device()
    assert meter.started() == 0
    assert "without the context" in meter.how


@pytest.mark.gpu
@NEEDS_GPU
def test_the_components_of_cupy_add_up_to_what_the_device_gave():
    found = measured("cupy")
    assert sum(found[part] for part in PARTS) == pytest.approx(found["total"], rel=0.05)
