"""The peak kernel computes its recurrence, in vector FMAs of the full register width."""

from __future__ import annotations

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


@pytest.mark.unit
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_recurrence_matches_plain_python(dtype):
    # GIVEN numbers that binary fractions hold exactly, so that fused and separate rounding agree
    start = np.arange(fma.lanes(dtype)) % 7
    values = start.astype(dtype)
    # WHEN x <- x / 2 + 1 is applied UNROLL times per iteration
    fma.recur(values, dtype(0.5), dtype(1.0), 2)
    # THEN every lane holds what Python computes
    expected = start.astype(float)
    for _ in range(2 * fma.UNROLL):
        expected = expected * 0.5 + 1.0
    assert values.dtype == dtype
    assert values.tolist() == expected.tolist()


@pytest.mark.unit
def test_recurrence_converges_to_its_fixed_point():
    values = np.zeros(fma.lanes(np.float64))
    fma.recur(values, 0.5, 3.0, 1000)
    assert values.tolist() == [3.0 / (1 - 0.5)] * values.size


@pytest.mark.unit
def test_flops_count_a_multiplication_and_an_addition_per_lane():
    lanes = fma.ACCUMULATORS * vectors.vector_bytes() // 4
    assert fma.lanes(np.float32) == lanes
    assert fma.flops(np.float32, 10) == 2 * lanes * fma.UNROLL * 10
    assert fma.lanes(np.float64) == lanes // 2


@pytest.mark.unit
@pytest.mark.skipif(not X86 or "fma" not in detect.isa(), reason="the register names are those of x86 with FMA")
@pytest.mark.parametrize(("dtype", "suffix"), [(np.float32, "ps"), (np.float64, "pd")])
def test_assembly_is_full_width_fma(dtype, suffix):
    fresh = njit(nogil=True)(fma.recur.py_func)  # code from Numba's cache cannot be inspected
    fresh(np.ones(fma.lanes(dtype), dtype=dtype), dtype(0.5), dtype(1.0), 1)
    (assembly,) = fresh.inspect_asm().values()
    register = "zmm" if "avx512f" in detect.isa() else "ymm"
    assert len(re.findall(rf"vfmadd\w+{suffix}\s.*%{register}", assembly)) >= fma.ACCUMULATORS * fma.UNROLL
    # nothing narrower, and no accumulator lives on the stack
    assert not re.findall(r"vfmadd\w+s[sd]\s", assembly)
    assert not re.findall(rf"vfmadd.*\(%rsp\).*%{register}", assembly)


@pytest.mark.slow
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
