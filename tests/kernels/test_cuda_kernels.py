"""The Numba CUDA kernels: their results in Numba's CUDA simulator and on a GPU, their counts, and what the compiler made of them."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from rooflines.kernels.micro import cuda_fma, cuda_shared, cuda_stream
from rooflines.kernels.micro.cuda_vectors import blocks_to_fill
from tests.kernels.cuda_results import CASES, outcome

NEEDS_GPU = pytest.mark.skipif(not (torch.cuda.is_available() and torch.version.cuda), reason="torch sees no NVIDIA GPU")
FMAS = cuda_fma.RECURRENCES * cuda_fma.UNROLL


@functools.cache
def simulated():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "tests.kernels.cuda_results"], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(found.stdout)


@pytest.mark.parametrize("case", CASES)
def test_kernel_in_the_simulator(case):
    assert simulated()[case] == "ok"


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("case", CASES)
def test_kernel_on_the_gpu(case):
    from rooflines.device_specs.measure_kernels import unusable

    reason = unusable(torch.device("cuda", 0))
    if reason:
        pytest.skip(reason)
    assert outcome(CASES[case]) == "ok"


def test_stream_bytes():
    assert [cuda_stream.moved_bytes(access, 48) for access in ("read", "write", "copy", "triad")] == [48, 48, 96, 144]


def test_stream_arrays_are_far_larger_than_the_cache_and_leave_room():
    gib = 1 << 30
    assert cuda_stream.array_bytes(140 * gib, 60 << 20) == 64 * (60 << 20)  # an H200
    assert cuda_stream.array_bytes(24 * gib, 4 << 20) == gib
    assert cuda_stream.array_bytes(24 * gib, None) == gib
    assert 3 * cuda_stream.array_bytes(2 * gib, 60 << 20) <= 2 * gib * 3 / 8
    assert cuda_stream.array_bytes(999, None) == 1 << 20
    assert cuda_stream.array_bytes(8 * 1_999_999_9, 1) % 16 == 0


def test_grids_cover_small_and_large_arrays():
    assert cuda_stream.grids(100, 4 * 256 * 50) == (50, 100)
    assert cuda_stream.grids(100, 4 * 256 * 10_000) == (100, 400, 1600, 10_000)


def test_shared_bytes():
    assert cuda_shared.read_bytes(3, 5) == 3 * 1024 * 5 * 8 * 16
    assert cuda_shared.VECTORS * 16 <= 48 << 10


def test_fma_flops():
    assert cuda_fma.flops(1, 1) == 2 * 8 * 16
    assert cuda_fma.flops(1024, 100, lanes=2) == 2 * 2 * 8 * 16 * 1024 * 100


def test_blocks_fill_the_device():
    assert blocks_to_fill(132, 2048, 256) == 132 * 8
    assert blocks_to_fill(128, 1536, 1024) == 128
    assert blocks_to_fill(40, 1024, 2048) == 40


def ptx(name):
    """What NVVM makes of a kernel for compute capability 8.0; skips where there is no NVVM."""
    from numba import cuda, types

    single, double, word = (types.Array(kind, 1, "C") for kind in (types.float32, types.float64, types.int32))
    size = types.int64
    kernel, signature = {
        "read": (cuda_stream.read, (single, single, size)),
        "write": (cuda_stream.write, (single, types.float32, size)),
        "copy": (cuda_stream.copy, (single, single, size)),
        "triad": (cuda_stream.triad, (single, single, single, types.float32, size)),
        "read_again": (cuda_stream.read_again, (single, single, size, size)),
        "shared": (cuda_shared.read, (single, single, size)),
        "fp32": (cuda_fma.recur, (single, types.float32, types.float32, size)),
        "fp64": (cuda_fma.recur, (double, types.float64, types.float64, size)),
        "fp16": (cuda_fma.recur_half2, (word, types.int32, types.int32, size)),
    }[name]
    try:
        return cuda.compile_ptx(kernel.py_func, signature, cc=(8, 0))[0]
    except Exception as error:
        if "nvvm" in f"{type(error).__name__} {error}".lower():
            pytest.skip(f"no NVVM here: {str(error).splitlines()[0]}")
        raise


def loops(text):
    """The loops of ``text``: what stands between each label and the last backward branch to it."""
    lines = text.splitlines()
    labels = {line.rstrip(":"): number for number, line in enumerate(lines) if re.fullmatch(r"\$\w+:", line)}
    for number, line in enumerate(lines):
        target = re.search(r"bra(?:\.uni)?\s+(\$\w+);", line)
        if target and labels[target[1]] < number:
            yield lines[labels[target[1]] : number]


def instructions(lines):
    return Counter(found[1] for line in lines if (found := re.match(r"\s+(?:@!?%p\d+\s+)?([a-z][\w.:]*)", line)))


@pytest.mark.parametrize(
    ("name", "instruction", "count"),
    [
        ("read", "ld.global.v4.f32", cuda_stream.UNROLL),
        ("write", "st.global.v4.f32", cuda_stream.UNROLL),
        ("copy", "ld.global.v4.f32", cuda_stream.UNROLL),
        ("copy", "st.global.v4.f32", cuda_stream.UNROLL),
        ("triad", "ld.global.v4.f32", 4),
        ("triad", "st.global.v4.f32", 2),
        ("read_again", "ld.global.cg.v4.f32", cuda_stream.UNROLL),
        ("shared", "ld.volatile.shared.v4.f32", cuda_shared.UNROLL),
        ("fp32", "fma.rn.f32", FMAS),
        ("fp64", "fma.rn.f64", FMAS),
        ("fp16", "fma.rn.f16x2", FMAS),
    ],
)
def test_loop_is_made_of_what_is_counted(name, instruction, count):
    found = [instructions(loop) for loop in loops(ptx(name))]
    # the compiler may unroll further
    assert any(loop[instruction] and loop[instruction] % count == 0 for loop in found), found


@pytest.mark.parametrize(
    ("name", "instruction", "least"),
    [
        ("read", "LDG.E.128", cuda_stream.UNROLL),
        ("copy", "STG.E.128", cuda_stream.UNROLL),
        ("shared", "LDS.128", cuda_shared.UNROLL),
        ("fp32", "FFMA", FMAS),
        ("fp64", "DFMA", FMAS),
        ("fp16", "HFMA2", FMAS),
    ],
)
def test_machine_code_keeps_what_is_counted(tmp_path, name, instruction, least):
    text = ptx(name)
    assembler, disassembler = tool("ptxas"), tool("cuobjdump")
    (tmp_path / "kernel.ptx").write_text(text)
    binary = tmp_path / "kernel.cubin"
    made = subprocess.run(
        [assembler, "-arch=sm_80", tmp_path / "kernel.ptx", "-o", binary], capture_output=True, text=True, check=False
    )
    if made.returncode and "Unsupported .version" in made.stderr:
        pytest.skip("this ptxas is older than NVVM")
    assert made.returncode == 0, made.stderr
    code = subprocess.run([disassembler, "--dump-sass", binary], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\d+ )?([A-Z][A-Z0-9_.]+)", code)
    assert sum(one.startswith(instruction) for one in found) >= least, Counter(found)
    assert not [one for one in found if one.startswith(("LDL", "STL"))]  # nothing was spilled to local memory


def tool(name):
    """A program of the CUDA toolkit: on the path, or the one that Triton ships."""
    candidates = [shutil.which(name)]
    triton = Path(torch.__file__).parent.parent / "triton" / "backends" / "nvidia" / "bin" / name
    candidates += [str(triton)] if triton.exists() else []
    found = next(filter(None, candidates), None)
    if found is None:
        pytest.skip(f"no {name} here")
    return found
