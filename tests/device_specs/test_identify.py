"""Which device it was, by what is known beside its name."""

import pytest

from rooflines.device_specs import catalog
from rooflines.device_specs.identify import DeviceTraits, guess, is_shared_name, traits_in_kernels

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


def test_nothing_is_guessed_without_an_architecture():
    assert guess(DeviceTraits(units=132, memory_bytes=80 * GIB)).sheet is None


def test_an_amd_device_is_told_by_its_wavefront():
    """gfx90a and Hopper are both compute capability 9.0."""
    found = guess(DeviceTraits(capability="9.0", units=104, memory_bytes=64 * GIB, warp=64))
    assert found.sheet is not None
    assert found.sheet.vendor == "AMD"
    assert {found.sheet.name, *(one.name for one in found.others)} == {"Instinct MI210", "Instinct MI250 (one GCD)"}
    assert guess(DeviceTraits(capability="9.0", units=104, memory_bytes=64 * GIB, warp=32)).sheet is None
