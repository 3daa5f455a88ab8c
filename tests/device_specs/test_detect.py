"""What the machine says about itself, read from files laid out as Linux lays them out."""

import platform

import pytest
import torch

from rooflines.device_specs import detect


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


def test_capacity_grows_with_the_threads_up_to_the_instances():
    cache = detect.Cache(level="L2", size_bytes=1 << 20, instances=4)
    assert [cache.capacity_bytes(threads) for threads in (1, 2, 4, 8)] == [1 << 20, 2 << 20, 4 << 20, 4 << 20]


def test_a_cache_without_its_size_is_left_out(tmp_path):
    write_cache(tmp_path, 0, 0, 1, "Data", "48K", "0")
    write_cache(tmp_path, 0, 1, 2, "Unified", None, "0")
    write_cache(tmp_path, 0, 2, 3, "Unified", "lots", "0")
    assert [cache.level for cache in detect.caches_of_sysfs(tmp_path, (0,))] == ["L1"]


def test_no_sysfs_is_no_caches(tmp_path):
    assert detect.caches_of_sysfs(tmp_path / "missing", (0,)) == ()


def test_cores_of_two_kinds_count_the_smaller_cache(tmp_path):
    write_cache(tmp_path, 0, 0, 1, "Data", "48K", "0")
    write_cache(tmp_path, 1, 0, 1, "Data", "32K", "1")
    (cache,) = detect.caches_of_sysfs(tmp_path, (0, 1))
    assert (cache.size_bytes, cache.instances) == (32 << 10, 2)


def test_cpuinfo_of_x86_and_arm():
    x86 = detect.cpuinfo_facts(
        "processor\t: 0\nmodel name\t: AMD EPYC\ncpu family\t: 26\nmodel\t\t: 2\nstepping\t: 1\n\nprocessor\t: 1\nmodel\t: 9\n"
    )
    assert x86["model name"] == "AMD EPYC"
    assert detect.cpu_model(x86) == "26/2/1"
    arm = detect.cpuinfo_facts("processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU part : 0xd40\nCPU revision : 1\n")
    assert detect.cpu_model(arm) == "0x41/0xd40/1"
    assert detect.cpu_model({"processor": "0"}) == ""


def test_a_container_has_the_memory_its_limit_leaves(tmp_path):
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert detect.memory_available_bytes(tmp_path) == 3000
    (tmp_path / "memory.current").write_text("6000\n")
    assert detect.memory_available_bytes(tmp_path) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert detect.memory_available_bytes(tmp_path) > 6000


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
