"""The facts of this machine's device, and what becomes of them: a sheet, a slice of one, or a derivation.

The GPUs here are stand-ins for what torch tells of one; tests/pipeline/test_gpu.py asks a real one.
"""

from types import SimpleNamespace

import pytest
import torch

from rooflines.device_specs import catalog, detect, live
from rooflines.errors import UsageError


@pytest.fixture
def gpu(monkeypatch):
    """Let torch tell of a GPU with these facts, and the driver of its clocks."""

    def pretend(name, capability, multiprocessors, memory_gib, sm_clock_hz=None, memory_clock_hz=None, bus_bits=None):
        memory = round(memory_gib * 2**30)
        told = SimpleNamespace(name=name, multi_processor_count=multiprocessors, total_memory=memory)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: told)
        found = detect.Gpu(
            name=name, index=0, compute_capability=capability, multiprocessors=multiprocessors, memory_bytes=memory,
            sm_clock_hz=sm_clock_hz, memory_clock_hz=memory_clock_hz, bus_bits=bus_bits,
        )  # fmt: skip
        monkeypatch.setattr(detect, "gpu", lambda index: found)

    return pretend


def test_the_sheet_of_a_gpu_that_is_here(gpu):
    # A gpu with a sheet.
    gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 79.1, 1980e6, 2619e6, 5120)
    assert live.known("cuda:0") == live.spec("cuda:0") == catalog.look_up("NVIDIA H100 80GB HBM3")
    derived = live.derived("cuda:0")
    assert derived.compute("fp32", "vector").value == 132 * 256 * 1980e6
    assert derived.outermost_memory().value == 2 * 2619e6 * 5120 / 8
    # What torch counts tells devices of one name apart.
    gpu("NVIDIA GeForce RTX 3080", (8, 6), 70, 11.8)
    assert live.spec("cuda").compute("fp32", "vector").value == 30.64e12
    gpu("NVIDIA GeForce RTX 3080", (8, 6), 68, 9.8)
    assert live.spec("cuda").compute("fp32", "vector").value == 29.8e12
    # A mig slice has its share of the sheet.
    gpu("NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0), 14, 4.75)
    found = live.known("cuda:0")
    assert found.compute("bf16", "matrix").value == pytest.approx(312e12 * 14 / 108)
    assert found.outermost_memory().value == pytest.approx(1555e9 / 8)
    # A gpu without a sheet is derived.
    gpu("NVIDIA GeForce RTX 4090 D", (8, 9), 114, 23.5, 2520e6, 10501e6, 384)
    found = live.known("cuda:0")
    assert {one.source.kind for one in found.ceilings} == {"derived"}
    assert found.compute("bf16", "matrix").value == 114 * 512 * 2520e6
    assert found.outermost_memory().value == pytest.approx(1008e9, rel=1e-3)  # as NVIDIA prints it


def test_devices_that_cannot_be_derived(gpu):
    # A gpu with neither says why for both.
    gpu("NVIDIA GeForce RTX 4090 D", (8, 9), 114, 23.5)
    with pytest.raises(UsageError) as caught:
        live.known("cuda:0")
    assert caught.value.message.startswith("no data sheet for 'NVIDIA GeForce RTX 4090 D'; nearest: GeForce RTX 4090, ")
    assert caught.value.message.endswith(" Ceilings cannot be derived for 'NVIDIA GeForce RTX 4090 D': its maximum clock is not known.")
    # A capped product without its sheet is not derived.
    gpu("NVIDIA H20-3e", (9, 0), 78, 139.8, 1980e6, 3201e6, 6144)
    with pytest.raises(UsageError, match="limited by product"):
        live.known("cuda:0")


def test_machines_of_one_maker_are_told_apart(tmp_path, monkeypatch):
    # The maker of the machine tells arm cpus apart.
    assert detect.system_vendor(tmp_path) is None
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    assert detect.system_vendor(tmp_path) == "Amazon EC2"
    cpu = detect.Cpu(name="Neoverse-V2", machine="aarch64", physical_cores=8, isa=("asimd", "bf16", "i8mm"))
    monkeypatch.setattr(detect, "cpu", lambda: cpu)
    monkeypatch.setattr(detect, "cpu_name", lambda: cpu.name)
    monkeypatch.setattr(detect, "system_vendor", lambda: "Amazon EC2")
    found = live.spec("cpu", cores=8)
    assert found.compute("fp32", "vector").value == pytest.approx(8 * 32 * 2.8e9, rel=1e-3)
    # An apple gpu is no apple cpu.
    monkeypatch.setattr(detect, "cpu_name", lambda: "Apple M1 Max")
    monkeypatch.setattr(detect, "apple_gpu_cores", lambda: 24)
    assert live.known("mps").compute("fp32", "vector").value == 7.963e12
    monkeypatch.setattr(detect, "apple_gpu_cores", lambda: 20)  # no such variant: its clock is that of the others
    assert live.known("mps").compute("fp32", "vector").value == 20 * 256 * 1296e6
    with pytest.raises(UsageError, match="no data sheet for 'Apple M1 Max'"):
        live.spec("cpu", cores=8)
