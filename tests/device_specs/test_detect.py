"""What the machine says about itself, read from files laid out as Linux lays them out."""

import platform

import pytest
import torch

from rooflines.device_specs import catalog, detect
from rooflines.device_specs.identify import DeviceTraits, guess, is_shared_name, traits_in_kernels
from rooflines.device_specs.names import Mig, parse, without_memory


def write_cache(root, cpu, index, level, kind, size, shared):
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in {"level": level, "type": kind, "size": size, "shared_cpu_list": shared}.items():
        if text is not None:
            (folder / name).write_text(f"{text}\n")


def test_caches_are_counted_by_who_shares_them(tmp_path):
    # GIVEN two cores of two threads each: L1 and L2 per core, one L3
    for cpu, core in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        write_cache(tmp_path, cpu, 0, 1, "Data", "48K", core)
        write_cache(tmp_path, cpu, 1, 1, "Instruction", "32K", core)
        write_cache(tmp_path, cpu, 2, 2, "Unified", "1024K", core)
        write_cache(tmp_path, cpu, 3, 3, "Unified", "32M", "0-3")
    found = detect.caches_of_sysfs(tmp_path, (0, 1, 2, 3))
    assert [(cache.level, cache.size_bytes, cache.instances) for cache in found] == [
        ("L1", 48 << 10, 2),
        ("L2", 1 << 20, 2),
        ("L3", 32 << 20, 1),
    ]
    # AND a process confined to one core sees one of each
    assert [cache.instances for cache in detect.caches_of_sysfs(tmp_path, (2, 3))] == [1, 1, 1]


def test_caches_by_threads_and_where_files_are_missing(tmp_path):
    # Capacity grows with the threads up to the instances.
    cache = detect.Cache(level="L2", size_bytes=1 << 20, instances=4)
    assert [cache.capacity_bytes(threads) for threads in (1, 2, 4, 8)] == [1 << 20, 2 << 20, 4 << 20, 4 << 20]
    # A cache without its size is left out.
    write_cache(tmp_path, 0, 0, 1, "Data", "48K", "0")
    write_cache(tmp_path, 0, 1, 2, "Unified", None, "0")
    write_cache(tmp_path, 0, 2, 3, "Unified", "lots", "0")
    assert [cache.level for cache in detect.caches_of_sysfs(tmp_path, (0,))] == ["L1"]
    # No sysfs is no caches.
    assert detect.caches_of_sysfs(tmp_path / "missing", (0,)) == ()


def test_the_machine(tmp_path):
    # Cores of two kinds count the smaller cache.
    write_cache(tmp_path, 0, 0, 1, "Data", "48K", "0")
    write_cache(tmp_path, 1, 0, 1, "Data", "32K", "1")
    (cache,) = detect.caches_of_sysfs(tmp_path, (0, 1))
    assert (cache.size_bytes, cache.instances) == (32 << 10, 2)
    # A container has the memory its limit leaves.
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert detect.memory_available_bytes(tmp_path) == 3000
    (tmp_path / "memory.current").write_text("6000\n")
    assert detect.memory_available_bytes(tmp_path) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert detect.memory_available_bytes(tmp_path) > 6000


def test_cpuinfo_of_x86_and_arm():
    x86 = detect.cpuinfo_facts(
        "processor\t: 0\nmodel name\t: AMD EPYC\ncpu family\t: 26\nmodel\t\t: 2\nstepping\t: 1\n\nprocessor\t: 1\nmodel\t: 9\n"
    )
    assert x86["model name"] == "AMD EPYC"
    assert detect.cpu_model(x86) == "26/2/1"
    arm = detect.cpuinfo_facts("processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU part : 0xd40\nCPU revision : 1\n")
    assert detect.cpu_model(arm) == "0x41/0xd40/1"
    assert detect.cpu_model({"processor": "0"}) == ""


def test_this_machine():
    cpu = detect.cpu()
    assert cpu.name
    assert cpu.machine == platform.machine()
    assert set(detect.usable_cpus()) <= set(range((cpu.logical_cores or 0) + 1024))
    for cache in cpu.caches:
        assert cache.size_bytes > 0
    assert detect.memory_available_bytes() > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_this_gpu():
    gpu = detect.gpu(0)
    assert gpu.name
    assert gpu.multiprocessors > 0
    assert gpu.driver
    assert gpu.l2_bytes


GIB = 2**30


@pytest.mark.parametrize(("names", "found"), [
    (["Cijk_Ailk_Bljk_SB_MT32x32x32_MI16x16x1_SN_1LDSB0_ISA90a_IU1"], (("gfx90a",), ())),
    (["_ZN2ck6kernelE_gfx942", "Cijk_Ailk_Bljk_HHS_BH_MI300X_GRVW8"], (("gfx942",), ("MI300X",))),
    (["sm90_xmma_gemm_bf16bf16_bf16f32", "void cutlass::Kernel<cutlass_80_tensorop_s1688>"], (("sm90",), ())),
    (["sm80_xmma_fprop", "ampere_sgemm_128x64_nn", "vectorized_elementwise_kernel<4>"], ((), ())),  # they run on newer devices too
])  # fmt: skip
def test_names_of_kernels_contain_architectures(names, found):
    assert traits_in_kernels(names) == found


@pytest.mark.parametrize(("name", "shared"), [
    ("", True), ("AMD Radeon Graphics", True), ("AMD Radeon(TM) Graphics", True), ("AMD Instinct MI300X", False), ("ARTEMIS", False),
])  # fmt: skip
def test_names_that_many_devices_have(name, shared):
    assert is_shared_name(name) is shared


@pytest.mark.parametrize("sheet", [one for one in catalog.sheets() if one.kind == "cuda" and one.names], ids=lambda one: one.name)
def test_every_gpu_is_guessed_from_its_own_figures_or_another_that_is_as_fast(sheet):
    capability = sheet.compute_capability
    if capability.startswith("gfx"):
        capability = f"{capability[3:-2]}.{capability[-2]}"
    found = guess(
        DeviceTraits(capability=capability, units=sheet.units.count, memory_bytes=round(0.98 * sheet.memory.capacity_gb * GIB))
    )
    assert sheet in (found.sheet, *found.others)
    if found.sheet is not None:
        assert found.sheet.memory.bytes_per_second <= 1.25 * sheet.memory.bytes_per_second


def test_an_architecture_is_not_guessed():
    # Nothing is guessed without an architecture.
    assert guess(DeviceTraits(units=132, memory_bytes=80 * GIB)).sheet is None
    # gfx90a and Hopper are both compute capability 9.0.
    found = guess(DeviceTraits(capability="9.0", units=104, memory_bytes=64 * GIB, warp=64))
    assert found.sheet is not None
    assert found.sheet.vendor == "AMD"
    assert {found.sheet.name, *(one.name for one in found.others)} == {"Instinct MI210", "Instinct MI250 (one GCD)"}
    assert guess(DeviceTraits(capability="9.0", units=104, memory_bytes=64 * GIB, warp=32)).sheet is None


@pytest.mark.parametrize(("printed", "text", "vendor", "cores"), [  # names.txt has one of each kind that a tool prints
    ("AMD EPYC 7763 64-Core Processor", "epyc 7763", "amd", 64),
    ("Intel® Core™ i9-9900", "core i9 9900", "intel", None),
    ("GPU 3: NVIDIA L40S (UUID: GPU-1b2c)", "l40s", "nvidia", None),
    ("A100_SXM4_40GB", "a100 sxm4 40gb", "", None),
    ("NVIDIA", "", "nvidia", None),
    ("", "", "", None),
])  # fmt: skip
def test_what_is_left_of_a_name(printed, text, vendor, cores):
    found = parse(printed)
    assert (found.text, found.vendor, found.cores, found.mig) == (text, vendor, cores, None)


@pytest.mark.parametrize(("suffix", "mig"), [
    ("1g.5gb", Mig(compute_slices=1, memory_gb=5)),
    ("3g.40gb", Mig(compute_slices=3, memory_gb=40)),
    ("1g.5gb+me", Mig(compute_slices=1, memory_gb=5)),
    ("1g.24gb+me.all", Mig(compute_slices=1, memory_gb=24)),
    ("2c.3g.20gb", Mig(compute_slices=3, memory_gb=20, compute_instance_slices=2)),
])  # fmt: skip
def test_a_slice_is_kept_apart_from_its_device(suffix, mig):
    found = parse(f"NVIDIA A100-SXM4-40GB MIG {suffix}")
    assert (found.text, found.mig) == ("a100 sxm4 40gb", mig)
    assert suffix.startswith(mig.profile)


@pytest.mark.parametrize(
    "name", ["NVIDIA A100-SXM4-40GB MIG", "NVIDIA A100-SXM4-40GB MIG 1g", "MIG 1g.5gb", "NVIDIA A100-SXM4-40GB MIG 0g.5gb"]
)
def test_half_a_suffix_is_no_slice(name):
    assert parse(name).mig is None


def test_names_of_slices():
    # Memory slices are whole eighths.
    def slices(memory_gb, capacity_gb):
        return Mig(compute_slices=1, memory_gb=memory_gb).memory_slices(capacity_gb)

    assert [slices(gb, 40) for gb in (5, 10, 20, 40)] == [1, 2, 4, 8]
    assert [slices(gb, 94) for gb in (12, 24, 47, 94)] == [1, 2, 4, 8]
    assert [slices(gb, 141) for gb in (18, 35, 71, 141)] == [1, 2, 4, 8]
    assert [slices(gb, 24) for gb in (6, 12, 24)] == [2, 4, 8]
    assert [slices(gb, 40) for gb in (7, 80, 1)] == [None, None, None]
    # The size at the end can be taken off.
    assert without_memory("h200 141gb") == ("h200", 141)
    assert without_memory("geforce rtx 3060 12 gib") == ("geforce rtx 3060", 12)
    assert without_memory("h100 80gb hbm3") is None
    assert without_memory("l4") is None
