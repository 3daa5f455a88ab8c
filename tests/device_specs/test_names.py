"""What a printed name is reduced to, part by part."""

import pytest

from rooflines.device_specs.names import Mig, parse, without_memory


@pytest.mark.parametrize(
    ("printed", "text", "vendor", "cores"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100 sxm4 40gb", "nvidia", None),
        ("A100_SXM4_40GB", "a100 sxm4 40gb", "", None),
        ("  Tesla   T4 ", "t4", "", None),
        ("NVIDIA Tesla T4", "t4", "nvidia", None),
        ("AMD EPYC 7763 64-Core Processor", "epyc 7763", "amd", 64),
        ("AMD Ryzen Threadripper PRO 7995WX 96-Cores", "ryzen threadripper pro 7995wx", "amd", 96),
        ("Intel(R) Xeon(R) Gold 6256 CPU @ 3.60GHz", "xeon gold 6256", "intel", None),
        ("Intel® Core™ i9-9900", "core i9 9900", "intel", None),
        ("13th Gen Intel(R) Core(TM) i7-1355U", "core i7 1355u", "intel", None),
        ("AMD Ryzen 7 7840HS w/ Radeon 780M Graphics", "ryzen 7 7840hs", "amd", None),
        ("Apple M1 Pro", "apple m1 pro", "apple", None),
        ("GPU 3: NVIDIA L40S (UUID: GPU-1b2c)", "l40s", "nvidia", None),
        ("81:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A40] [10de:2235] (rev a1)", "a40", "nvidia", None),
        (
            "83:00.0 Display controller: Advanced Micro Devices, Inc. [AMD/ATI] Aldebaran/MI200 [Instinct MI210] (rev 02)",
            "instinct mi210",
            "amd",
            None,
        ),
        ("GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X OAM", "instinct mi300x oam", "amd", None),
        ("GRID A100-10C", "grid a100 10c", "", None),
        ("NVIDIA", "", "nvidia", None),
        ("", "", "", None),
    ],
)
def test_what_is_left_of_a_name(printed, text, vendor, cores):
    found = parse(printed)
    assert (found.text, found.vendor, found.cores, found.mig) == (text, vendor, cores, None)


@pytest.mark.parametrize("mark", ["Ti", "SUPER", "D", "Laptop GPU", "with Max-Q Design", "Mobile", "24Q", "v2"])
def test_what_tells_a_variant_apart_is_never_taken_off(mark):
    assert parse(f"NVIDIA GeForce RTX 4080 {mark}").text != parse("NVIDIA GeForce RTX 4080").text


@pytest.mark.parametrize(
    ("suffix", "mig"),
    [
        ("1g.5gb", Mig(compute_slices=1, memory_gb=5)),
        ("3g.40gb", Mig(compute_slices=3, memory_gb=40)),
        ("1g.5gb+me", Mig(compute_slices=1, memory_gb=5)),
        ("1g.24gb+me.all", Mig(compute_slices=1, memory_gb=24)),
        ("2c.3g.20gb", Mig(compute_slices=3, memory_gb=20, compute_instance_slices=2)),
    ],
)
def test_a_slice_is_kept_apart_from_its_device(suffix, mig):
    found = parse(f"NVIDIA A100-SXM4-40GB MIG {suffix}")
    assert (found.text, found.mig) == ("a100 sxm4 40gb", mig)
    assert suffix.startswith(mig.profile)


@pytest.mark.parametrize(
    "name", ["NVIDIA A100-SXM4-40GB MIG", "NVIDIA A100-SXM4-40GB MIG 1g", "MIG 1g.5gb", "NVIDIA A100-SXM4-40GB MIG 0g.5gb"]
)
def test_half_a_suffix_is_no_slice(name):
    assert parse(name).mig is None


def test_memory_slices_are_whole_eighths():
    def slices(memory_gb, capacity_gb):
        return Mig(compute_slices=1, memory_gb=memory_gb).memory_slices(capacity_gb)

    assert [slices(gb, 40) for gb in (5, 10, 20, 40)] == [1, 2, 4, 8]
    assert [slices(gb, 94) for gb in (12, 24, 47, 94)] == [1, 2, 4, 8]
    assert [slices(gb, 141) for gb in (18, 35, 71, 141)] == [1, 2, 4, 8]
    assert [slices(gb, 24) for gb in (6, 12, 24)] == [2, 4, 8]
    assert [slices(gb, 40) for gb in (7, 80, 1)] == [None, None, None]


def test_the_size_at_the_end_can_be_taken_off():
    assert without_memory("h200 141gb") == ("h200", 141)
    assert without_memory("geforce rtx 3060 12 gib") == ("geforce rtx 3060", 12)
    assert without_memory("h100 80gb hbm3") is None
    assert without_memory("l4") is None
