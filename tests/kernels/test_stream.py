"""The memory kernels move what they claim to move."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest
from numba import njit

from rooflines.device_specs import detect
from rooflines.kernels.micro import stream

pytestmark = pytest.mark.unit


def test_read_adds_up_every_element_every_pass():
    values = np.arange(stream.granule() * 5, dtype=np.int64) * 1_000_003
    once = int(values.sum())
    assert stream.read(values, 1) == once
    assert stream.read(values, 3) == once + (once ^ 1) + (once ^ 2)


def test_read_wraps_around_at_64_bits():
    values = np.full(stream.granule(), np.iinfo(np.int64).max)
    with np.errstate(over="ignore"):
        assert stream.read(values, 1) == values.sum()


def test_update():
    values = stream.aligned(100)
    values[:] = np.arange(100)
    stream.update(values, 3)  # 2 - (1 - (0 - x))
    assert values.tolist() == [1.0 - x for x in range(100)]


def test_copy():
    source, target = stream.aligned(100), stream.aligned(100)
    source[:] = np.arange(100)
    stream.copy(source, target, 1)
    assert target.tolist() == list(range(100))


def test_triad():
    first, second, target = (stream.aligned(100) for _ in range(3))
    first[:], second[:] = np.arange(100), 2.0
    stream.triad(first, second, target, 3.0, 1)
    assert target.tolist() == (np.arange(100) + 3.0 * 2.0).tolist()


def test_every_pass_is_made():
    # each pass leaves its number in the first element of the source, which the next one moves
    source, target = stream.aligned(64), stream.aligned(64)
    source[:] = 7.0
    stream.copy(source, target, 5)
    assert (source[0], target[0]) == (4.0, 3.0)


@pytest.mark.parametrize("elements", [1, 64, 1000])
def test_aligned_starts_on_a_line(elements):
    array = stream.aligned(elements)
    assert array.shape == (elements,)
    assert array.dtype == np.float64
    assert array.ctypes.data % 64 == 0


@pytest.mark.skipif("avx2" not in detect.isa() or platform.machine().lower() not in ("x86_64", "amd64"), reason="register names of x86")
def test_read_is_vector_loads_of_the_full_width():
    fresh = njit(nogil=True)(stream.read.py_func)  # code from Numba's cache cannot be inspected
    fresh(np.ones(stream.granule(), dtype=np.int64), 1)
    (assembly,) = fresh.inspect_asm().values()
    register = "zmm" if "avx512f" in detect.isa() else "ymm"
    assert len(re.findall(rf"vpaddq\s.*\(.*%{register}", assembly)) >= stream.STREAMS
