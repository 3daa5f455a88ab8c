"""Ceilings from plain facts: each is units x operations per cycle x clock, and agrees with the data sheets where there are some."""

import re

import pytest

from rooflines.device_specs import catalog, derive, live
from rooflines.device_specs.derive import core_rates, derive_apple, derive_cpu, derive_gpu, derive_mig
from rooflines.errors import UsageError


def sheet(name):
    return next(one for one in catalog.sheets() if one.name == name)


def test_an_a100_from_its_sms_and_clocks():
    found = derive_gpu("NVIDIA A100-SXM4-40GB", (8, 0), 108, 1410e6, 1215e6, 5120)
    assert (found.device, found.kind) == ("NVIDIA A100-SXM4-40GB", "cuda")
    assert found.compute("fp32", "vector").value == 108 * 128 * 1410e6
    assert (found.compute("int8", "matrix").value, found.compute("int8", "matrix").unit) == (108 * 4096 * 1410e6, "OP/s")
    assert found.outermost_memory().value == 2 * 1215e6 * 5120 / 8
    assert found.outermost_memory().level == "HBM"
    bf16 = found.compute("bf16", "matrix")
    assert (bf16.precision, bf16.engine, bf16.accumulate, bf16.source.kind) == ("bf16", "matrix", "fp32", "derived")
    assert bf16.source.detail == "108 SM x 2048 FLOP/cycle (compute capability 8.0) x 1.410 GHz, the driver's highest clock; dense"
    assert found.outermost_memory().source.detail == "2 x 1.2150 GHz, the memory's highest clock, x 5120 bit / 8"


# memory clock (MHz) and bus width as NVML reports them, and the bandwidth that the vendor prints (GB/s)
MEMORIES = {
    "A100-SXM4-40GB": (1215, 5120), "A100-SXM4-80GB": (1593, 5120), "A100 80GB PCIe": (1512, 5120), "Tesla V100 SXM2 16GB": (877, 4096),
    "Tesla P100-SXM2-16GB": (715, 4096), "GeForce RTX 4090": (10501, 384), "GeForce RTX 5090": (14001, 512), "L4": (6251, 192),
    "Tesla T4": (5001, 256), "H100 SXM5 80GB": (2619, 5120), "GeForce RTX 3060 (8GB)": (7501, 128), "H200 SXM5": (3201, 6144),
}  # fmt: skip


@pytest.mark.parametrize("name", MEMORIES)
def test_bus_width_and_memory_clock_give_the_printed_bandwidth(name):
    clock, bits = MEMORIES[name]
    found = derive_gpu("NVIDIA some GPU", (8, 0), 1, 1e9, clock * 1e6, bits)
    assert found.outermost_memory().value == pytest.approx(sheet(name).memory.bytes_per_second, rel=0.03)


def test_without_a_memory_clock_there_is_no_memory_ceiling():
    found = derive_gpu("NVIDIA GB10", (12, 1), 48, 2418e6, 0, 0)
    assert found.outermost_memory() is None
    assert found.compute("fp32", "vector").value == 48 * 256 * 2418e6
    assert (
        found.compute("bf16", "matrix") is None or found.compute("bf16", "matrix").engine == "vector"
    )  # two sources contradict each other


def expected_ratio(name, precision, engine):
    """The derived rate as a multiple of the printed one: 1, but for the tensor cores of some boards."""
    if engine == "matrix":
        if "NVL" in name and precision != "fp64":  # tensor cores further below the highest clock than the chip's other boards
            return 1.0673
        if name == "L40":  # its sheet lists half of what its chip does
            return 2
        if name.startswith("GB"):  # printed with another clock than the one that the driver reports
            return 0.965
        if "GeForce RTX 50" in name and precision == "fp8":  # seen at the full rate with fp32 accumulate, which the whitepaper halves
            return 2
    return 1


NVIDIA = [one for one in catalog.sheets() if one.vendor == "NVIDIA" and one.kind == "cuda"]


@pytest.mark.parametrize("one", NVIDIA, ids=lambda one: one.name)
def test_what_is_derived_agrees_with_the_sheet_or_is_refused(one):
    capability = tuple(map(int, one.compute_capability.split(".")))
    if one.name in ("H20", "H800 SXM", "A800-SXM4-80GB", "L20"):
        with pytest.raises(UsageError, match="limited by product"):
            derive_gpu(one.names[0], capability, one.units.count, one.clocks["boost"].mhz * 1e6)
        return
    found = derive_gpu(one.names[0], capability, one.units.count, one.clocks["boost"].mhz * 1e6)
    for rate in one.compute:
        if rate.differs or (rate.engine == "matrix" and rate.accumulate == "fp16"):
            continue
        derived = next((c for c in found.ceilings if (c.precision, c.engine) == (rate.precision, rate.engine)), None)
        if derived is None:
            assert one.name == "GB10 (DGX Spark)"
            continue
        assert derived.accumulate == rate.accumulate
        expected = expected_ratio(one.name, rate.precision, rate.engine)
        assert derived.value / rate.per_second == pytest.approx(expected, rel=0.03 if expected == 1 else 0.013), rate


def test_rates_of_tensor_cores():
    # The product decides the accumulate rate.
    def bf16(name, capability=(8, 6)):
        return derive_gpu(name, capability, 84, 1e9).compute("bf16", "matrix").value / 84e9

    assert bf16("NVIDIA RTX A6000") == bf16("NVIDIA A40") == 1024
    assert bf16("NVIDIA GeForce RTX 3090 Ti") == bf16("NVIDIA A10G") == 512
    assert bf16("NVIDIA GeForce RTX 4070 Ti SUPER", (8, 9)) == 512
    assert derive.product_class("NVIDIA TITAN RTX") == "p"
    # Smaller turing chips have no tensor cores.
    names = ("NVIDIA GeForce GTX 1650", "NVIDIA GeForce GTX 1660 SUPER", "NVIDIA T1000 8GB", "Quadro T2000", "NVIDIA GeForce MX450")
    for name in names:
        assert {rate.engine for rate in derive.gpu_rates(name, (7, 5))} == {"vector"}, name
    for name in ("Tesla T4", "NVIDIA GeForce RTX 2060", "NVIDIA TITAN RTX", "Quadro RTX 4000"):
        assert {rate.engine for rate in derive.gpu_rates(name, (7, 5))} == {"vector", "matrix"}, name


@pytest.mark.parametrize(
    "name", ["NVIDIA H20", "NVIDIA H20-3e", "NVIDIA A800 80GB PCIe", "NVIDIA GeForce RTX 5090 D", "NVIDIA L20", "NVIDIA L2"]
)
def test_capped_products_are_refused(name):
    with pytest.raises(UsageError, match="limited by product"):
        derive.gpu_rates(name, (9, 0))


def test_what_is_not_derived():
    # Neighbors of capped products are not.
    for name in ("NVIDIA H200", "NVIDIA GeForce RTX 5090", "NVIDIA L4", "NVIDIA GeForce RTX 4090 D", "NVIDIA RTX 2000 Ada Generation"):
        assert derive.gpu_rates(name, (8, 9))
    # Unknown compute capability and slices are refused.
    with pytest.raises(UsageError, match=r"compute capability 13\.0 \('NVIDIA R100'\)"):
        derive_gpu("NVIDIA R100", (13, 0), 100, 1e9)
    with pytest.raises(UsageError, match="is a MIG slice of a GPU"):
        derive_gpu("NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0), 14, 1e9)


# SMs as torch reports them, memory slices of eight
SLICES = {
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": (14, 1), "NVIDIA A100-SXM4-40GB MIG 2g.10gb": (28, 2),
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb": (42, 4), "NVIDIA A100-SXM4-80GB MIG 7g.80gb": (98, 8),
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": (16, 1), "NVIDIA H100 80GB HBM3 MIG 1g.20gb": (26, 2),
    "NVIDIA H100 80GB HBM3 MIG 3g.40gb": (60, 4), "NVIDIA H100 NVL MIG 1g.12gb": (16, 1), "NVIDIA H100 NVL MIG 3g.47gb": (60, 4),
    "NVIDIA H200 MIG 1g.18gb": (16, 1), "NVIDIA H200 MIG 4g.71gb": (64, 4), "NVIDIA A30 MIG 1g.6gb": (14, 2),
    "NVIDIA B200 MIG 1g.23gb": (18, 1), "NVIDIA GH200 480GB MIG 1g.12gb": (16, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SLICES)
def test_a_mig_slice_has_its_sms_and_its_memory_slices(name):
    multiprocessors, eighths = SLICES[name]
    whole = catalog.look_up(name.partition(" MIG ")[0])
    match = catalog.identify(name)
    found = catalog.look_up(name, multiprocessors=multiprocessors)
    share = multiprocessors / match.sheet.units.count
    assert found.device == name
    assert found.compute("bf16", "matrix").value == pytest.approx(whole.compute("bf16", "matrix").value * share)
    assert found.outermost_memory().value == pytest.approx(whole.outermost_memory().value * eighths / 8)
    assert {one.source.kind for one in found.ceilings if one.kind != "link"} == {"derived"}
    detail = found.compute("bf16", "matrix").source.detail
    assert detail.startswith(f"{multiprocessors} of {match.sheet.units.count} SM x ")
    assert found.outermost_memory().source.detail.startswith(f"{eighths} of 8 memory slices x ")


def test_slices_are_scaled_by_what_they_show():
    # A slice needs its sms and no more than the device has.
    with pytest.raises(UsageError, match=r"the number of SMs of .* is required"):
        catalog.look_up("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    with pytest.raises(UsageError, match="cannot be 120 of 108 SMs"):
        derive_mig("a slice", catalog.look_up("NVIDIA A100-SXM4-40GB"), 108, 120, 1)
    # A partitioned gpu is scaled by what it shows.
    whole = catalog.look_up("AMD Instinct MI300X")
    shared = catalog.look_up("AMD Instinct MI300X", multiprocessors=38, memory_bytes=192 * 2**30)
    assert shared.compute("bf16", "matrix").value == pytest.approx(whole.compute("bf16", "matrix").value / 8)
    assert shared.outermost_memory().value == whole.outermost_memory().value  # CPX over one memory
    divided = catalog.look_up("AMD Instinct MI300X", multiprocessors=38, memory_bytes=48 * 2**30)
    assert divided.outermost_memory().value == pytest.approx(whole.outermost_memory().value / 4)  # CPX, NPS4
    assert "38 of 304 CU" in divided.compute("bf16", "matrix").source.detail


ZEN = ("avx", "avx2", "fma")
ZEN_512 = (*ZEN, "avx512f", "avx512_bf16", "avx512_vnni")
AMX = (*ZEN_512, "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8")
ARM = ("asimd", "asimdhp", "sve", "i8mm", "bf16")
# the instruction sets and family/model/stepping that each CPU of the catalog shows
SHOWN = {
    "Xeon Gold 6256": ((*ZEN, "avx512f", "avx512_vnni"), "6/85/7"), "Core i7-1355U": ((*ZEN, "avx_vnni"), "6/186/3"),
    "Core i9-9900": (ZEN, "6/158/13"), "Core Ultra 7 155H": ((*ZEN, "avx_vnni"), "6/170/4"),
    "Xeon Platinum 8480+": (AMX, "6/143/8"), "Xeon Platinum 8592+": (AMX, "6/207/2"), "EPYC 7742": (ZEN, "23/49/0"),
    "EPYC 7763": (ZEN, "25/1/1"), "EPYC 9654": (ZEN_512, "25/17/1"), "EPYC 9755": (ZEN_512, "26/2/1"), "Graviton3": (ARM, ""),
    "Graviton4": ((*ARM, "sve2"), ""), "Grace CPU (GH200)": ((*ARM, "sve2"), ""), "Ryzen 9 7950X": (ZEN_512, "25/97/2"),
    "Ryzen 9 9950X": (ZEN_512, "26/68/0"), "Ryzen Threadripper 7980X": (ZEN_512, "25/24/1"),
    "Ryzen Threadripper PRO 7995WX": (ZEN_512, "25/24/1"), "Ryzen Threadripper PRO 9995WX": (ZEN_512, "26/8/1"),
}  # fmt: skip


@pytest.mark.parametrize("one", [one for one in catalog.sheets() if one.kind == "cpu"], ids=lambda one: one.name)
def test_what_a_core_does_in_a_cycle_is_what_the_sheet_says(one):
    isa, model = SHOWN[one.name]
    rates = {(rate.precision, rate.engine): rate for rate in core_rates(one.names[0], isa, model)}
    for rate in one.compute:
        assert rates[rate.precision, rate.engine].operations == rate.per_cycle, rate.precision
        assert rates[rate.precision, rate.engine].accumulate == rate.accumulate


def test_a_cpu_is_cores_x_the_rate_of_its_microarchitecture_x_clock():
    # The width behind avx512 is the microarchitectures.
    def fp32(isa, model):
        return next(rate.operations for rate in core_rates("AMD EPYC", isa, model) if rate.precision == "fp32")

    assert fp32(ZEN, "23/1/2") == 16  # Zen 1: 256-bit instructions in two passes
    assert fp32(ZEN, "23/49/0") == 32  # Zen 2
    assert fp32(ZEN_512, "25/17/1") == 32  # Zen 4: 512-bit instructions in two passes
    assert fp32(ZEN_512, "26/2/1") == 64  # Zen 5
    assert fp32(ZEN_512, "26/36/0") == 32  # Zen 5, Strix Point
    assert fp32(ZEN, "26/2/1") == 32  # a virtual machine hides AVX-512
    assert fp32(("avx",), "6/45/7") == 16  # Sandy Bridge
    # A cpu is cores x rate x clock.
    found = derive_cpu("Intel(R) Xeon(R) Processor", isa=AMX, cores=2, clock_hz=2.5e9, model="6/143/8")
    assert found.kind == "cpu"
    assert found.compute("fp32", "vector").value == 2 * 64 * 2.5e9
    assert found.compute("fp64", "vector").value == 2 * 32 * 2.5e9
    assert found.compute("bf16", "matrix").value == 2 * 1024 * 2.5e9
    assert (found.compute("int8", "matrix").value, found.compute("int8", "matrix").unit) == (2 * 2048 * 2.5e9, "OP/s")
    assert found.outermost_memory() is None
    assert found.compute("fp32", "vector").source.detail == "2 cores x 64 FLOP/cycle (avx512f) x 2.500 GHz, the measured clock; dense"


@pytest.mark.parametrize(("name", "isa"), [("Cortex-A57", ("asimd",)), ("a CPU", ()), ("x86_64", ("amx_tile",))])
def test_an_unknown_core_is_refused(name, isa):
    with pytest.raises(UsageError, match="operations per cycle of "):
        derive_cpu(name, isa=isa, cores=4, clock_hz=1e9)


def test_an_apple_gpu_is_cores_x_256_x_clock():
    found = derive_apple("Apple M2 Max", 30, 1398e6, bytes_per_s=409.6e9, clock="as in a table")
    assert found.kind == "mps"
    assert found.compute("fp32", "vector").value == found.compute("fp16", "vector").value == 30 * 256 * 1398e6
    assert found.compute("fp16", "matrix").value == found.compute("fp16", "vector").value  # products run on the same lanes
    assert found.compute("fp64", "vector") is None
    for one in catalog.sheets():
        if one.kind == "mps":
            derived = derive_apple(one.names[0], one.units.count, one.clocks["gpu"].mhz * 1e6)
            assert derived.compute("fp32", "vector").value == pytest.approx(one.rate("fp32", "vector").per_second, rel=0.03)


def test_a_variant_without_a_sheet_takes_the_clock_of_its_siblings():
    found = live.apple_variant("Apple M3 Pro", 16)
    assert found.compute("fp32", "vector").value == 16 * 256 * 1398e6
    assert "the clock of Apple M3 Pro (18-core GPU)" in found.compute("fp32", "vector").source.detail
    with pytest.raises(UsageError, match="are not known"):
        live.apple_variant("Apple M9", 10)
    with pytest.raises(UsageError, match="are not known"):
        live.apple_variant("Apple M3 Pro", None)


def test_this_cpu_is_known_from_a_sheet_or_derived_at_a_measured_clock():
    found = live.known("cpu", cores=2, clock_hz=2e9)
    assert found.kind == "cpu"
    assert found.compute("fp32", "vector").value > 0
    assert {one.source.kind for one in found.ceilings} <= {"spec", "derived", "user"}
    derived = live.derived("cpu", cores=2, clock_hz=2e9)
    assert re.match(
        r"2 cores x \d+ FLOP/cycle \(\w+\) x 2\.000 GHz, the measured clock", derived.compute("fp32", "vector").source.detail
    )
    with pytest.raises(UsageError, match="requires a measured sustained clock"):
        live.derived("cpu")
    with pytest.raises(UsageError, match="expected cpu, cuda or mps"):
        live.named("tpu")
