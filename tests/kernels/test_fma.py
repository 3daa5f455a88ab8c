"""The peak kernel computes its recurrence, in vector FMAs of the full register width."""

import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from rooflines.device_specs import detect
from rooflines.kernels.micro import fma, vectors

X86 = platform.machine().lower() in ("x86_64", "amd64")


VARIANTS = list(fma.KERNELS)
NAMES = {np.float32: "ps", np.float64: "pd"}


def assembly(variant, dtype):
    """The instructions of a kernel without the code that unpacks Python's arguments."""
    fresh = njit(nogil=True)(fma.KERNELS[variant].py_func)  # code from Numba's cache cannot be inspected
    fresh(np.ones(fma.lanes(dtype, variant), dtype=dtype), dtype(0.5), dtype(1.0), 1)
    (text,) = fresh.inspect_asm().values()
    return text


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_recurrence_matches_plain_python(dtype, variant):
    # GIVEN numbers that binary fractions hold exactly, so that fused and separate rounding agree
    start = np.arange(fma.lanes(dtype, variant)) % 7
    values = start.astype(dtype)
    # WHEN x <- x / 2 + 1 is applied UNROLL times per iteration
    fma.KERNELS[variant](values, dtype(0.5), dtype(1.0), 2)
    # THEN every lane holds what Python computes
    expected = start.astype(float)
    for _ in range(2 * fma.UNROLL):
        expected = expected * 0.5 + 1.0
    assert values.dtype == dtype
    assert values.tolist() == expected.tolist()


@pytest.mark.skipif(X86 and "fma" not in detect.isa(), reason="this CPU rounds every product")
def test_only_the_fused_kernel_keeps_the_whole_product():
    # (1 + e) * (1 - e) - 1 = -e * e, which vanishes where the product is rounded to 1 first
    e = 2.0**-30
    for variant, expected in (("", -(e**2)), ("no FMA", 0.0)):
        values = np.full(fma.lanes(np.float64, variant), 1 + e)
        fresh = np.array(values)
        fma.KERNELS[variant](fresh, 1 - e, -1.0, 1)
        first = expected
        for _ in range(fma.UNROLL - 1):
            first = first * (1 - e) - 1.0
        assert fresh[0] == first


@pytest.mark.parametrize("variant", VARIANTS)
def test_recurrence_converges_to_its_fixed_point(variant):
    values = np.zeros(fma.lanes(np.float64, variant))
    fma.KERNELS[variant](values, 0.5, 3.0, 1000)
    assert values.tolist() == [3.0 / (1 - 0.5)] * values.size


def test_flops_count_a_multiplication_and_an_addition_per_lane():
    lanes = fma.ACCUMULATORS * vectors.vector_bytes() // 4
    assert fma.lanes(np.float32) == fma.lanes(np.float32, "no FMA") == lanes
    assert fma.flops(np.float32, 10) == 2 * lanes * fma.UNROLL * 10
    assert fma.lanes(np.float64) == lanes // 2
    assert fma.lanes(np.float32, "scalar") == fma.lanes(np.float64, "scalar") == fma.ACCUMULATORS
    assert fma.flops(np.float64, 10, "scalar") == 2 * fma.ACCUMULATORS * fma.UNROLL * 10


@pytest.mark.skipif(not X86 or "fma" not in detect.isa(), reason="the register names are those of x86 with FMA")
@pytest.mark.parametrize("dtype", NAMES)
def test_assembly_is_full_width_fma(dtype):
    text = assembly("", dtype)
    register = "zmm" if "avx512f" in detect.isa() else "ymm"
    assert len(re.findall(rf"vfmadd\w+{NAMES[dtype]}\s.*%{register}", text)) >= fma.ACCUMULATORS * fma.UNROLL
    # nothing narrower, and no accumulator lives on the stack
    assert not re.findall(r"vfmadd\w+s[sd]\s", text)
    assert not re.findall(rf"vfmadd.*\(%rsp\).*%{register}", text)


@pytest.mark.skipif(not X86 or "fma" not in detect.isa(), reason="the register names are those of x86 with FMA")
@pytest.mark.parametrize("dtype", NAMES)
def test_assembly_of_the_scalar_kernel_has_no_vectors(dtype):
    text = assembly("scalar", dtype)
    scalar = {"ps": "ss", "pd": "sd"}[NAMES[dtype]]
    assert len(re.findall(rf"vfmadd\w+{scalar}\s", text)) >= fma.ACCUMULATORS * fma.UNROLL
    assert not re.findall(r"vf?n?m(add|ul)\w*p[sd]\s", text)


@pytest.mark.skipif(not X86 or "avx2" not in detect.isa(), reason="the register names are those of x86 with AVX")
@pytest.mark.parametrize("dtype", NAMES)
def test_assembly_without_fma_multiplies_and_adds(dtype):
    text = assembly("no FMA", dtype)
    register = "zmm" if "avx512f" in detect.isa() else "ymm"
    for instruction in ("vmul", "vadd"):
        assert len(re.findall(rf"{instruction}{NAMES[dtype]}\s.*%{register}", text)) >= fma.ACCUMULATORS * fma.UNROLL
    assert "vfmadd" not in text


@pytest.mark.skipif(not X86 or "avx2" not in detect.isa(), reason="needs a CPU that runs AVX2")
def test_avx2_keeps_the_accumulators_in_its_sixteen_registers():
    code = (
        "import numba, numpy as np; from rooflines.kernels.micro import fma\n"
        "fresh = numba.njit(fma.recur.py_func)\n"
        "fresh(np.ones(fma.lanes(np.float32), dtype=np.float32), np.float32(.5), np.float32(1), 1)\n"
        "print(*fresh.inspect_asm().values())"
    )
    environment = os.environ | {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert "zmm" not in result.stdout
    assert len(re.findall(r"vfmadd\w+ps\s.*%ymm", result.stdout)) >= fma.ACCUMULATORS * fma.UNROLL
    assert not re.findall(r"vfmadd.*\(%rsp\).*%ymm", result.stdout)
