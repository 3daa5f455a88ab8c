"""The Numba CUDA kernels: their results in Numba's CUDA simulator and on a GPU, their counts, and what the compiler made of them."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rooflines.kernels.micro import cuda_stream, cuda_vectors
from rooflines.kernels.micro.cuda_vectors import THREADS
from tests.kernels.cuda_results import CASES, outcome

NEEDS_GPU = pytest.mark.skipif(not (torch.cuda.is_available() and torch.version.cuda), reason="torch sees no NVIDIA GPU")
SPEC = importlib.util.spec_from_file_location("cuda_kernels", Path(__file__).resolve().parents[2] / "benchmarks" / "cuda_kernels.py")
cuda_kernels = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cuda_kernels)


@functools.cache
def simulated():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "tests.kernels.cuda_results"], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(found.stdout)


@pytest.mark.ci
@pytest.mark.parametrize("case", CASES)
def test_kernel_in_the_simulator(case):
    assert simulated()[case] == "ok"


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("case", CASES)
def test_kernel_on_the_gpu(case):
    from rooflines.device_specs.measure_gpu import unusable

    reason = unusable(torch.device("cuda", 0))
    if reason:
        pytest.skip(reason)
    assert outcome(CASES[case]) == "ok"


def test_bytes_and_arrays_of_streams():
    # Stream bytes.
    assert [cuda_stream.TRANSFERS[access] for access in ("read", "write", "copy", "triad")] == [1, 1, 2, 3]
    # Stream arrays are far larger than the cache and leave room.
    gib = 1 << 30
    assert cuda_stream.array_bytes(140 * gib, 60 << 20) == 64 * (60 << 20)  # an H200
    assert cuda_stream.array_bytes(24 * gib, 4 << 20) == gib
    assert cuda_stream.array_bytes(24 * gib, None) == gib
    assert 3 * cuda_stream.array_bytes(2 * gib, 60 << 20) <= 2 * gib * 3 / 8
    assert cuda_stream.array_bytes(999, None) == 1 << 20
    assert cuda_stream.array_bytes(8 * 1_999_999_9, 1) % 16 == 0
    # Working sets keep to what is resident and to small caches.
    assert {blocks for blocks, _ in cuda_stream.working_sets(50 << 20, 132, 3)} == {132, 264}
    assert {blocks for blocks, _ in cuda_stream.working_sets(50 << 20, 132, 0)} == {132}
    # half of 256 KiB is 8 steps of 256 threads and 4 vectors
    assert cuda_stream.working_sets(256 << 10, 40, 8) == ((8, 8 * 4 * 256),)


def test_patterns_and_working_sets():
    # Grid of a pattern.
    vectors = 4 * 256 * 10_000
    assert [cuda_stream.blocks_of(cuda_stream.Pattern(256, 4, fills), 100, vectors) for fills in (1, 16, 0)] == [100, 1600, 10_000]
    assert cuda_stream.blocks_of(cuda_stream.Pattern(1024, 8, 0), 100, vectors) == 10_000 / 8
    # never more blocks than there is work for
    assert cuda_stream.blocks_of(cuda_stream.Pattern(256, 4, 16), 100, 4 * 256 * 50) == 50
    assert cuda_stream.blocks_of(cuda_stream.Pattern(256, 4, 0), 100, 4 * 256 * 50 + 1) == 51
    # Patterns differ and cover what a ceiling may depend on.
    every = cuda_stream.PATTERNS + cuda_stream.MORE_PATTERNS
    assert len(set(every)) == len(every)
    assert {one.threads for one in every} == {256, 512, 1024}
    assert {one.unroll for one in every} == {4, 8}
    assert {one.fills for one in cuda_stream.PATTERNS} == {0, 1, 16}
    # Sums of a read stay in any cache.
    assert [cuda_stream.sums_of(threads) for threads in (1, 2, 3, 256, 1 << 18, 1 << 30)] == [1, 2, 4, 256, 1 << 18, 1 << 18]


# Compute capability, multiprocessors and L2 cache of the data sheets.
L2_CACHES = {
    "T4": ((7, 5), 40, 4 << 20),
    "A100": ((8, 0), 108, 40 << 20),
    "RTX 4090": ((8, 9), 128, 72 << 20),
    "H100": ((9, 0), 132, 50 << 20),
    "H200": ((9, 0), 132, 50 << 20),
    "B200": ((10, 0), 148, 126 << 20),
}


@pytest.mark.parametrize("device", L2_CACHES)
def test_every_thread_of_an_l2_read_has_whole_unrolled_steps(device, committed):
    capability, multiprocessors, l2_bytes = L2_CACHES[device]
    row = committed["L2 read", "{}.{}".format(*capability)]
    resident = cuda_kernels.resident_blocks(capability, THREADS, row["registers"])
    found = cuda_stream.working_sets(l2_bytes, multiprocessors, resident)
    assert {blocks // multiprocessors for blocks, _ in found} <= {1, 2, 4}
    assert len({blocks for blocks, _ in found}) > 1
    for blocks, vectors in found:
        threads = blocks * THREADS
        assert blocks % multiprocessors == 0
        assert blocks // multiprocessors * THREADS * row["registers"] <= 65536
        assert vectors >= cuda_stream.UNROLL * threads
        assert vectors % (cuda_stream.UNROLL * threads) == 0
        assert 16 * vectors <= l2_bytes // 2


class Stand:
    """A kernel as numba-cuda gives it, for a device of ``multiprocessors``."""

    def __init__(self, blocks):
        self.blocks = blocks

    def compile(self, signature):
        assert signature == ("types",)
        return self

    def max_cooperative_grid_blocks(self, threads):
        return self.blocks


def test_resident_blocks_are_those_of_the_driver(monkeypatch):
    monkeypatch.setattr(cuda_vectors.cuda, "get_current_device", lambda: SimpleNamespace(MULTIPROCESSOR_COUNT=132))
    assert cuda_vectors.resident_blocks(Stand(6 * 132), ("types",), 256, 2048) == 6
    assert cuda_vectors.resident_blocks(Stand(0), ("types",), 1024, 2048) == 0


@pytest.mark.parametrize(("threads", "most", "blocks"), [(256, 2048, 3), (256, 512, 2), (64, 2048, 12), (1024, 2048, 1)])
def test_resident_blocks_without_a_driver_are_cautious(threads, most, blocks):
    assert cuda_vectors.resident_blocks(object(), (), threads, most) == blocks
    assert blocks == 1 or blocks * threads * cuda_vectors.MOST_REGISTERS <= cuda_vectors.REGISTERS


@pytest.mark.parametrize(("capability", "threads", "registers", "shared", "blocks", "occupancy"), [
    # CUDA C++ Best Practices Guide, "Calculating Occupancy": 75 % and 63 %, on a multiprocessor with the limits of 8.0
    ((8, 0), 128, 37, 0, 12, 0.75),
    ((8, 0), 320, 37, 0, 4, 0.625),
    ((8, 0), 256, 32, 0, 8, 1.0),  # the same guide: at most 32 registers for all 2048 threads
    ((7, 5), 256, 64, 0, 4, 1.0),  # 1024 threads at most, so 64 registers
    ((8, 6), 64, 16, 0, 16, 32 / 48),  # sixteen blocks at most
    ((8, 9), 64, 16, 0, 24, 1.0),
    ((9, 0), 32, 16, 0, 32, 0.5),
    # 227 KiB a block at most, 1 KiB of 228 being the system's
    ((9, 0), 256, 32, 227 << 10, 1, 0.125),
    ((9, 0), 256, 32, 32 << 10, 6, 0.75),
    ((7, 5), 1024, 66, 32 << 10, 0, 0.0),
])  # fmt: skip
def test_occupancy(capability, threads, registers, shared, blocks, occupancy):
    assert cuda_kernels.resident_blocks(capability, threads, registers, shared) == blocks
    assert cuda_kernels.occupancy(capability, blocks, threads) == occupancy


def test_machine_code_is_read_for_loops_and_for_loads_before_use():
    code = cuda_kernels.Code(32, 0, 0, (
        (0x00, "MOV R1, c[0x0][0x28]"),
        (0x10, "LDG.E.128 R4, desc[UR4][R2.64]"),
        (0x20, "@P1 LDG.E.128 R8, [R16.64]"),
        (0x30, "IADD3 R16, R16, 0x10, RZ"),
        (0x40, "LDG.E.128 R12, [R16.64]"),
        (0x50, "FADD R20, R20, R11"),
        (0x60, "LDG.E.128 R4, [R16.64]"),
        (0x70, "@!P0 BRA 0x10"),
        (0x80, "LDG.E.128 R4, [R16.64]"),
        (0x90, "FADD R20, R20, R4"),
        (0xa0, "@P0 BRA 0x80"),
        (0xb0, "@P2 BRA 0x0"),
    ))  # fmt: skip
    loop = cuda_kernels.main_loop(code, cuda_kernels.LOAD)
    assert (loop[0], len(loop)) == ("LDG.E.128 R4, desc[UR4][R2.64]", 7)
    assert cuda_kernels.count_of(loop, cuda_kernels.LOAD) == 4
    assert cuda_kernels.loads_before_use(loop, cuda_kernels.LOAD) == 3
    assert cuda_kernels.main_loop(code, "FFMA") == []


def test_cycles_of_an_fma():
    # Best Practices Guide: 64 and 128 results of fp32 a cycle, 2 and 64 of fp64, fp16 two to an instruction
    assert [cuda_kernels.cycles(one, "fp32") for one in ((7, 5), (8, 0), (8, 9), (9, 0))] == [2, 2, 1, 1]
    assert [cuda_kernels.cycles(one, "fp64") for one in ((8, 6), (9, 0))] == [64, 2]
    assert [cuda_kernels.cycles(one, "fp16") for one in ((7, 5), (9, 0))] == [2, 1]


GOOD = {"kernel": "k", "capability": "9.0", "registers": 32, "spilled_bytes": 0, "local_accesses": 0, "shared_bytes": 0,
        "launches": [{"threads": 256, "blocks": 8, "occupancy": 1.0, "in_flight_bytes": 1}], "instruction": "LDG.E.128",
        "count": 4, "of": 40}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), [
    ({"spilled_bytes": 8}, "8 bytes spilled"),
    ({"local_accesses": 2}, "2 accesses to local memory"),
    ({"launches": [{"threads": 1024, "blocks": 0, "occupancy": 0.0, "in_flight_bytes": 0}]}, "does not start"),
    ({"registers": 40}, "need more than 65536 registers"),
    ({"launches": [{"threads": 256, "blocks": 8, "occupancy": 1.0}]}, "no loop of 16-byte loads"),
    ({"count": 0}, "no loop of LDG.E.128"),
    ({"share": 0.9, "instruction": "FFMA"}, "90.0% of the peak"),
])  # fmt: skip
def test_faults_of_a_row(change, words):
    assert cuda_kernels.faults(GOOD) == []
    assert words in " ".join(cuda_kernels.faults(GOOD | change))


@pytest.fixture(scope="module")
def committed():
    """The rows of the committed table by kernel and compute capability."""
    found = json.loads((cuda_kernels.RESULTS / "cuda_kernels.json").read_text())
    return {(row["kernel"], row["capability"]): row for row in found["rows"]}


def test_the_committed_table_is_lawful_and_on_the_page(committed):
    # Committed table is whole and lawful.
    names = [kernel.name for kernel in cuda_kernels.kernels()]
    assert len(set(names)) == len(names)
    assert set(committed) == {(name, "{}.{}".format(*one)) for name in names for one in cuda_kernels.LIMITS}
    assert [fault for row in committed.values() for fault in cuda_kernels.faults(row)] == []
    ours = [row["registers"] for row in committed.values() if not row["kernel"].startswith("network")]
    assert max(ours) <= cuda_vectors.MOST_REGISTERS
    # Loads in flight suffice for the memory of every device.
    found = list(cuda_kernels.model(list(committed.values())))
    assert len(found) == len(cuda_kernels.DEVICES)
    # Little's law for an H200: 4.8 TB/s for 1 us are 4.8 MB, by 132 multiprocessors
    assert next(need for name, _, need, _ in found if name.startswith("H200")) == pytest.approx(4.8e6 / 132)
    assert [name for name, _, need, have in found if have < need] == []
    # Page is made from the table.
    result = json.loads((cuda_kernels.RESULTS / "cuda_kernels.json").read_text())
    assert (cuda_kernels.RESULTS / "cuda_kernels.md").read_text(encoding="utf-8") == cuda_kernels.markdown(result)


def check_compiled(name, capability, committed):
    kernel = next(one for one in cuda_kernels.kernels() if one.name == name)
    try:
        row = cuda_kernels.row(kernel, capability, cuda_kernels.compiled(kernel, capability))
    except cuda_kernels.Missing as error:
        pytest.skip(str(error))
    assert cuda_kernels.faults(row) == []
    result = json.loads((cuda_kernels.RESULTS / "cuda_kernels.json").read_text())
    if cuda_kernels.versions() == result["versions"]:  # other compilers may need other registers
        assert row == committed[name, "{}.{}".format(*capability)]


@pytest.mark.ci
@pytest.mark.parametrize(("name", "capability"), [
    ("copy, 4 vectors", (9, 0)),
    ("triad, 8 vectors", (8, 6)),
    ("L2 read", (9, 0)),
    ("shared memory read", (7, 5)),
    ("FMA fp32", (9, 0)),
    ("FMA fp64", (12, 0)),
    ("FMA fp16", (8, 0)),
    ("network: dense1", (10, 0)),
])  # fmt: skip
def test_compiled_kernel(name, capability, committed):
    check_compiled(name, capability, committed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [kernel.name for kernel in cuda_kernels.kernels()])
def test_every_kernel_compiled_for_every_capability(name, committed):
    for capability in cuda_kernels.LIMITS:
        check_compiled(name, capability, committed)
