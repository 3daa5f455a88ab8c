"""The peak kernel computes its recurrence, in vector FMAs of the full register width."""

import mmap
import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from rooflines.device_specs import detect
from rooflines.kernels.micro import fma, matmul, vectors
from rooflines.kernels.micro.ladder import LadderPoint, Reach, curve, reaches
from rooflines.kernels.micro.page_fault import page_s
from rooflines.kernels.micro.repeats import Timing, calls_for
from rooflines.kernels.micro.team import Team

X86 = platform.machine().lower() in ("x86_64", "amd64")


VARIANTS = list(fma.KERNELS)
NAMES = {np.float32: "s", np.float64: "d"}


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


def test_flops_count_a_multiplication_and_an_addition_per_lane():
    lanes = fma.ACCUMULATORS * vectors.vector_bytes() // 4
    assert fma.lanes(np.float32) == fma.lanes(np.float32, "no FMA") == lanes
    assert fma.flops(np.float32, 10) == 2 * lanes * fma.UNROLL * 10
    assert fma.lanes(np.float64) == lanes // 2
    assert fma.lanes(np.float32, "scalar") == fma.lanes(np.float64, "scalar") == fma.ACCUMULATORS
    assert fma.flops(np.float64, 10, "scalar") == 2 * fma.ACCUMULATORS * fma.UNROLL * 10


REGISTER = "zmm" if "avx512f" in detect.isa() else "ymm"


@pytest.mark.skipif(not X86 or "fma" not in detect.isa(), reason="the register names are those of x86 with FMA")
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize(("variant", "instructions", "never"), [
    # nothing narrower, and no accumulator lives on the stack
    ("", [rf"vfmadd\w+p{{}}\s.*%{REGISTER}"], [r"vfmadd\w+s[sd]\s", rf"vfmadd.*\(%rsp\).*%{REGISTER}"]),
    ("scalar", [r"vfmadd\w+s{}\s"], [r"vf?n?m(add|ul)\w*p[sd]\s"]),
    ("no FMA", [rf"vmulp{{}}\s.*%{REGISTER}", rf"vaddp{{}}\s.*%{REGISTER}"], ["vfmadd"]),
])  # fmt: skip
def test_kernels_are_the_instructions_that_they_are_named_after(variant, instructions, never, dtype):
    text = assembly(variant, dtype)
    for pattern in instructions:
        assert len(re.findall(pattern.format(NAMES[dtype]), text)) >= fma.ACCUMULATORS * fma.UNROLL
    assert not any(re.findall(pattern, text) for pattern in never)


@pytest.mark.ci
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


fma.chain(1, 3, 1)  # compiles, which takes longer than an example may


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 300))
def test_the_chain_is_an_xor_and_an_addition_an_iteration(value, step, iterations):
    expected = value
    for index in range(iterations):
        expected = ((expected ^ index) + step) % 2**64
    assert fma.chain(value, step, iterations) % 2**64 == expected


@pytest.mark.ci
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="reads x86 assembly")
def test_every_link_is_one_instruction_on_two_registers():
    # A process of its own: assembly is not kept with what comes from the compiler's cache.
    code = "from rooflines.kernels.micro.fma import chain; from numba import njit\n"
    code += "own = njit(nogil=True)(chain.py_func); own(1, 3, 5); print(next(iter(own.inspect_asm().values())))"
    assembly = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loops = [block for block in re.split(r"\n(?=\.LBB)", assembly) if len(re.findall(r"\txorq\t%r\w+, %r\w+", block)) > 1]
    assert loops
    for block in loops:
        links = re.findall(r"\t(xorq|addq)\t%r\w+, %r\w+", block)
        assert links.count("xorq") == links.count("addq")
        assert not re.search(r"%[xyz]mm", block)


def test_kernels_compile_without_a_cache_directory(monkeypatch):
    # GIVEN a Numba that finds no directory to cache in
    real, asked = vectors.njit, []

    def njit(**options):
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'double': no locator available for file 'double.py'")
        return real(**options)

    monkeypatch.setattr(vectors, "njit", njit)
    kernel = vectors.compiled_vectors(lambda number: number * 2)
    assert asked == [True, False]
    assert kernel(4) == 8


needs_advice = pytest.mark.skipif(not hasattr(mmap, "MADV_NOHUGEPAGE"), reason="Linux lets a process choose its pages")


@needs_advice
def test_every_page_is_taken_from_the_system():
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert page_s() > 0
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert taken >= 5 * (64 << 20) // mmap.PAGESIZE


def test_nothing_is_said_where_the_kind_of_pages_cannot_be_chosen(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert page_s(huge=True) is None


def test_calls_for_scales_to_the_duration():
    # each call takes 1 ms: 20 of them fill 20 ms
    assert calls_for(0.020, lambda calls: Timing(0.001 * calls)) == 20
    # one call is longer than the sample: one is made
    assert calls_for(0.020, lambda calls: Timing(3.0 * calls)) == 1


SHAPE = (32, 16, 64)


def test_operands_are_the_same_number_signed_and_unsigned():
    left, right = matmul.int8_operands(SHAPE)
    assert (left.shape, right.shape) == ((32, 64), (64, 16))
    assert left.dtype == right.dtype == torch.int8
    assert left.min() >= 0
    assert right.min() < 0 < right.max()


@pytest.mark.parametrize("name", ["torch._int_mm", "onednn::qlinear_pointwise"])
def test_products_are_exact(name):
    found = matmul.int8_products(SHAPE)
    if name not in found:
        pytest.skip(f"this build of torch has no {name} for this CPU")
    left, right = matmul.int8_operands(SHAPE)
    exact = left.to(torch.int64) @ right.to(torch.int64)  # 64 products of at most 127 * 128: far from the ends of int32
    result = found[name]()
    if name == "torch._int_mm":
        assert result.dtype == torch.int32
        assert torch.equal(result.long(), exact)
    else:  # what does not fit into uint8 is cut off
        assert result.dtype == torch.uint8
        assert torch.equal(result.long(), exact.clamp(0, 255))


def test_some_operator_multiplies_on_every_cpu():
    assert matmul.int8_products(SHAPE)


KIB, MIB = 1 << 10, 1 << 20
CACHES = (("L1", 32 * KIB), ("L2", 1 * MIB), ("L3", 32 * MIB))


def ladder(l1=32 * KIB, l2=1 * MIB, l3=32 * MIB, rates=(400e9, 100e9, 30e9, 10e9)):
    """A curve that drops exactly at the given sizes: two points an octave from 8 KiB to 64 MiB."""
    sizes = [round(8 * KIB * 2 ** (number / 2)) for number in range(27)]
    ends = (l1, l2, l3, float("inf"))
    return [LadderPoint(size, next(rate for end, rate in zip(ends, rates, strict=True) if size <= end)) for size in sizes]


def test_where_a_curve_is_read_against_the_stated_caches():
    # A curve as stated.
    found = reaches(ladder(), CACHES)
    assert [(reach.level, reach.reach_bytes) for reach in found] == [("L1", 32 * KIB), ("L2", 1 * MIB), ("L3", 32 * MIB)]
    assert not any(reach.contradicts for reach in found)
    # A shared last cache ends early.
    *inner, last = reaches(ladder(l3=8 * MIB), CACHES)
    assert last == Reach("L3", 32 * MIB, 8 * MIB)
    assert last.contradicts
    assert not any(reach.contradicts for reach in inner)
    # Without a step nothing is said.
    # behind L2 everything comes at the same rate: the curve cannot tell where L3 ends
    *inner, last = reaches(ladder(rates=(400e9, 100e9, 10e9, 10e9)), CACHES)
    assert last.reach_bytes is None
    assert not last.contradicts
    assert [reach.reach_bytes for reach in inner] == [32 * KIB, 1 * MIB]
    # A cache larger than stated.
    (only,) = reaches(ladder(l1=32 * KIB, l2=4 * MIB, l3=4 * MIB, rates=(400e9, 100e9, 100e9, 10e9))[:], (("L2", 1 * MIB),))
    assert only.reach_bytes == 4 * MIB
    assert only.contradicts
    # Half and twice are within what a curve can tell.
    assert not Reach("L2", 1000, 500).contradicts
    assert not Reach("L2", 1000, 2000).contradicts
    assert Reach("L2", 1000, 499).contradicts
    assert Reach("L2", 1000, 2001).contradicts
    # No caches and no points.
    assert reaches((), CACHES) == tuple(Reach(level, size, None) for level, size in CACHES)
    assert reaches(ladder(), ()) == ()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_measured_curve_covers_the_sizes_asked_for(threads):
    with Team(threads) as team:
        points = curve(team, 256 * KIB, passes_s=1e-5)
    sizes = [point.working_set_bytes for point in points]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 8 * KIB * threads
    assert sizes[-1] == 256 * KIB
    assert all(point.byte_per_s > 0 for point in points)
