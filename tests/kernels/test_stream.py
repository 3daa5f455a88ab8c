"""The memory kernels move what they claim to move, every pass of it, in the instructions they are named after."""

import functools
import mmap
import operator
import platform
import re

import numpy as np
import pytest
from numba import njit

from rooflines.device_specs import detect
from rooflines.kernels.micro import stream

LENGTH = stream.granule() * 3
VECTORS = stream.STREAMS * stream.UNROLL  # of one step; LLVM unrolls to several steps on processors (Zen 4) whose model it has for that
X86 = platform.machine().lower() in ("x86_64", "amd64") and "avx2" in detect.isa()
REGISTER = "zmm" if "avx512f" in detect.isa() else "ymm"
NEEDS_X86 = pytest.mark.skipif(not X86, reason="the register names are those of x86 with AVX")
ARRAYS = {"read": 1, "write": 1, "update": 1, "copy": 2, "triad": 3}


def arrays(count):
    """``count`` arrays with different numbers in every element."""
    made = [stream.aligned_array(LENGTH) for _ in range(count)]
    for number, array in enumerate(made):
        array[:] = np.arange(LENGTH) + 1000.0 * number
    return made


def loop(name):
    """The innermost loop of a kernel, freshly compiled: the longest with vectors in memory; a second one does what is left over."""
    fresh = njit(nogil=True)(getattr(stream, name).py_func)  # code from Numba's cache cannot be inspected
    operands = arrays(ARRAYS[name.removesuffix("_past_caches")])
    if name == "read":
        fresh(operands[0].view(np.int64), 1)
    else:
        fresh(*operands, *([3.0] if len(operands) == 3 else []), 1)
    (text,) = fresh.inspect_asm().values()
    bodies = re.findall(r"^(\.L\w+):\n((?:(?!^\.L).*\n)*?)\tj\w+\t\1\n", text, re.MULTILINE)
    body = max((body for _, body in bodies if re.search(rf"\(%.*%{REGISTER}|%{REGISTER}.*\(%", body)), key=len)
    # each pass starts with memory that the compiler must take for changed
    assert "#APP" in text[: text.index(body)]
    return body


def words():
    """An array of ``LENGTH`` random 32-bit numbers: no sum of theirs is too large for 64 bits."""
    made = stream.aligned_array(LENGTH).view(np.int64)
    made[:] = np.random.default_rng(0).integers(0, 1 << 32, LENGTH)
    return made


def test_read_folds_every_element_every_pass():
    values = words()
    # by hand: the streams one after the other, each a row of registers
    lanes = stream.granule() // VECTORS
    expected = 0
    for part in np.split(values, stream.STREAMS):
        for lane in range(lanes):
            expected += functools.reduce(operator.xor, part[lane::lanes].tolist())
    assert stream.read(values, 1) == expected
    assert stream.read(values, 3) == 3 * expected
    assert stream.read(values, 0) == 0


def test_read_sees_every_element_and_wraps_around_at_64_bits():
    # Read sees every element.
    values = words()
    before = stream.read(values, 1)
    for number in range(LENGTH):
        values[number] ^= 1
        assert stream.read(values, 1) != before
        values[number] ^= 1
    # Read wraps around at 64 bits.
    values = stream.aligned_array(LENGTH).view(np.int64)
    values[:] = 0
    values[0] = np.iinfo(np.int64).max
    assert stream.read(values, 2) == -2


X, Y = np.arange(LENGTH), np.arange(LENGTH) + 1000.0


@pytest.mark.parametrize(("name", "scalars", "expected"), [
    ("write", (4,), np.full(LENGTH, 3.0)),  # the number of its last pass
    ("write", (0,), X),
    ("update", (3,), 1.0 - X),  # 2 - (1 - (0 - x))
    ("copy", (2,), X),
    ("triad", (3.0, 2), X + 3.0 * Y),
])  # fmt: skip
@pytest.mark.parametrize("past_caches", [False, True])
def test_what_a_kernel_leaves_in_its_last_array(name, scalars, expected, past_caches):
    kernel = getattr(stream, name + "_past_caches" * past_caches, stream.update)  # of an update there is one kernel
    given = arrays(ARRAYS[name])
    kernel(*given, *scalars)
    assert given[-1].tolist() == expected.tolist()


@pytest.mark.parametrize("elements", [1, 64, 1000, (4 << 20) // 8 + 1])
def test_aligned_starts_on_a_line_and_on_a_huge_page(elements):
    array = stream.aligned_array(elements)
    assert array.shape == (elements,)
    assert array.dtype == np.float64
    assert array.ctypes.data % (2 << 20) == 0
    array[:] = 1.0
    assert array.sum() == elements


@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc")
def test_aligned_is_private_memory_which_alone_gets_huge_pages():
    array = stream.aligned_array(1 << 20)
    array[:] = 1.0
    at = array.ctypes.data
    with open("/proc/self/maps", encoding="ascii") as file:
        rows = [line.split() for line in file]
    (permissions,) = [row[1] for row in rows for low, high in [row[0].split("-")] if int(low, 16) <= at < int(high, 16)]
    assert permissions == "rw-p"


def test_aligned_works_where_huge_pages_do_not_exist(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert stream.aligned_array(1000).size == 1000


@NEEDS_X86
def test_read_is_loads_of_the_full_width_folded_and_little_else():
    body = loop("read")
    steps, rest = divmod(len(re.findall(rf"\(%[^)]*\), (%\w+, )*%{REGISTER}", body)), VECTORS)
    assert (steps >= 1, rest) == (True, 0)
    three_way = "vpternlog" in body  # with AVX-512, two loads are folded by one instruction
    assert three_way == (REGISTER == "zmm")
    folds = len(re.findall(rf"(vpternlog[dq]|vpxorq?)\s.*%{REGISTER}", body))
    assert folds == steps * (VECTORS // 2 if three_way else VECTORS)
    others = 5 + (stream.STREAMS if steps > 1 else 0)  # the count, the addresses, the jump; the totals back to their registers
    assert len(body.splitlines()) <= steps * (VECTORS + VECTORS // 2) + others


@NEEDS_X86
@pytest.mark.parametrize(("name", "loads", "stores"), [("write", 0, 1), ("update", 1, 1), ("copy", 1, 1), ("triad", 2, 1)])
@pytest.mark.parametrize("past_caches", [False, True])
def test_loads_and_stores_are_of_the_full_width(name, loads, stores, past_caches):
    if past_caches and name == "update":
        return  # what has just been read is in the cache
    body = loop(name + "_past_caches" * past_caches)
    kind = "nt" if past_caches else "[au]"
    steps, rest = divmod(len(re.findall(rf"vmov{kind}p[sd]\s+%{REGISTER}\d+, .*\(", body)), stores * VECTORS)
    assert (steps >= 1, rest) == (True, 0)
    assert len(re.findall(rf"\(%[^)]*\), (%\w+, )*%{REGISTER}", body)) == steps * loads * VECTORS


@NEEDS_X86
@pytest.mark.skipif("fma" not in detect.isa(), reason="no FMA")
def test_triad_is_fused():
    fused = len(re.findall(rf"vfmadd\w+pd\s.*%{REGISTER}", loop("triad")))
    assert (fused >= VECTORS, fused % VECTORS) == (True, 0)
