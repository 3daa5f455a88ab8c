"""What the vector kernels are made of: instructions, no allocations, the same bits every time."""

import itertools
import os
import platform
import re
import subprocess
import sys
import tracemalloc

import numba
import numpy as np
import pytest
from numba import njit

from rooflines.device_specs import detect
from rooflines_studies.networks import cnn
from rooflines_studies.networks import cnn_numba_kernels as kernels
from rooflines_studies.networks import cnn_numba_step as steps
from rooflines_studies.networks.cnn_numba import NumbaCpu
from tests.studies.networks import reference

# Takes seconds to compile or to start.
pytestmark = pytest.mark.ci

X86 = platform.machine().lower() in ("x86_64", "amd64")
avx512 = pytest.mark.skipif(not X86 or "avx512f" not in detect.isa(), reason="the register names are those of AVX-512")

TILE = kernels.product(4, 4, lanes=16, left_row=400, left_step=1, right_step=128, result_row=128)
# Each kernel with arguments, and how many FMAs its innermost loop has, of which registers.
KERNELS = {
    "conv1_forward": (lambda a, b, c, d, n: kernels.conv1_forward(a, n, a, a, b, d, n), 36, "zmm"),
    "conv2_forward": (lambda a, b, c, d, n: kernels.conv2_forward(a, n, a, a, b, c, n), 20, "zmm"),
    "conv1_gradients": (lambda a, b, c, d, n: kernels.conv1_gradients(a, n, a, n, d, n, b), 18, "zmm"),
    "conv2_gradients": (lambda a, b, c, d, n: kernels.conv2_gradients(a, n, a, c, n, a, b, b, b, n), 18, "[yz]mm"),
    "product": (lambda a, b, c, d, n: TILE(a, n, a, n, b, n, n, a, n), 16, "zmm"),
}


def assembly(name):
    """The instructions of a kernel without the code around it that unpacks Python's arguments."""
    fresh = njit(KERNELS[name][0])
    fresh.compile("void(float32[::1], float32[::1], int32[::1], int8[::1], int64)")
    (text,) = fresh.inspect_asm().values()
    return text.partition(".Lfunc_end0")[0]


@avx512
@pytest.mark.parametrize("name", KERNELS)
def test_assembly_is_vector_fma_on_registers(name):
    text = assembly(name)
    _, least, register = KERNELS[name]
    assert len(re.findall(rf"vfmadd\w+ps\s.*%{register}\d+$", text, re.MULTILINE)) >= least
    # neither one at a time nor a multiplication and an addition apart
    assert not re.findall(r"vfmadd\w+ss\s", text)
    assert not re.findall(r"vmul[sp]s\s", text)
    # no vector lives on the stack
    assert not re.findall(r".*\(%rsp.*%[xyz]mm.*|.*%[xyz]mm.*\(%rsp.*", text)


@pytest.fixture(scope="module")
def trained():
    """A network and a batch with which it has made a step, so that everything is compiled."""
    network = NumbaCpu()
    generator = np.random.default_rng(0)
    x = network.resident(generator.standard_normal((512, *cnn.IMAGE)).astype(np.float32))
    y = network.resident(generator.integers(0, cnn.CLASSES, 512))
    network.step(x, y)
    return network, x, y


def test_a_step_allocates_nothing(trained):
    network, x, y = trained
    network.step(x, y)
    tracemalloc.start()
    try:
        for count in (512, 100, 512):
            network.step(x[:count], y[:count])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # the objects that stand for views of the batch; its smallest activation, the logits, has 40 bytes an image
    assert peak < 512 * 40 / 2


@pytest.mark.parametrize("function", ["train_part", "add_up", "sgd", "spread_out"])
def test_compiled_code_of_a_step_allocates_nothing(function, trained):
    network, x, y = trained
    weights, kept, sums = network._weights, network._kept, network._sums
    arguments = {
        "train_part": (x.reshape(-1), y, 0, 1, steps.BLOCK, weights, kept, sums),
        "add_up": (0, 1, sums),
        "sgd": (0, 1, weights, sums.total, np.float32(0), np.float32(0)),
        "spread_out": (0, 1, weights),
    }
    fresh = njit(getattr(steps, function).py_func)  # code from Numba's cache cannot be inspected
    fresh.compile(tuple(numba.typeof(argument) for argument in arguments[function]))
    assert all("NRT_MemInfo_alloc" not in text and "NRT_Allocate" not in text for text in fresh.inspect_llvm().values())


def test_the_same_numbers_come_out_every_time(trained):
    _, x, y = trained
    networks = [NumbaCpu() for _ in range(2)]
    losses = [[network.step(x[:300], y[:300]) for _ in range(5)] for network in networks]
    assert losses[0] == losses[1]
    first, second = (network.parameters() for network in networks)
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [1, 9, 70])
def test_any_number_of_threads_shares_any_batch(threads, count, trained):
    network, x, y = trained
    other = NumbaCpu(network.parameters(), threads=threads)
    found, expected = other.gradients(x[:count], y[:count]), network.gradients(x[:count], y[:count])
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 1e-5 * np.abs(value).max()
    assert other.predict(x[:count]).tolist() == network.predict(x[:count]).tolist()


@pytest.mark.parametrize("count", [0, 1, 8, 9, 512, 513])
@pytest.mark.parametrize("parts", [1, 2, 3, 64])
def test_parts_cover_a_batch_in_whole_units(count, parts):
    edges = [steps.part(number, parts, count, steps.ROWS) for number in range(parts)]
    assert edges[0][0] == 0
    assert edges[-1][1] == count
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(edges))
    assert all(begin % steps.ROWS == 0 or begin == count for begin, _ in edges)
    assert max(end - begin for begin, end in edges) <= -(-count // (parts * steps.ROWS)) * steps.ROWS


def test_unused_columns_stay_zero(trained):
    network, x, y = trained
    network.step(x, y)
    padded = network._weights.parameters[steps.DENSE2 : steps.DENSE2_BIAS].reshape(128, 16)
    assert padded[:, : cnn.CLASSES].any()
    assert not padded[:, cnn.CLASSES :].any()


@pytest.mark.skipif(not X86 or "avx2" not in detect.isa(), reason="needs a CPU that runs AVX2")
@pytest.mark.parametrize(("cpu", "features", "lanes"), [
    pytest.param("haswell", "+avx,+avx2,+fma", 8, marks=pytest.mark.slow),
    pytest.param("x86-64", "+sse2", 4, marks=pytest.mark.slow),
])  # fmt: skip
def test_narrower_registers_compute_the_same(cpu, features, lanes, tmp_path):
    code = (
        "from rooflines_studies.networks import cnn, cnn_numba, cnn_numba_kernels\n"
        "from tests.studies.networks import reference\n"
        "network = cnn_numba.NumbaCpu()\n"
        "x, y = reference.batch(cnn.initial_parameters(), 70, 0)\n"
        "_, expected = reference.gradients(cnn.initial_parameters(), x, y)\n"
        "found = network.gradients(x, y)\n"
        "print(cnn_numba_kernels.LANES, max(reference.error(found[name], expected[name]) for name in expected))"
    )
    environment = os.environ | {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300)
    found, error = result.stdout.split()
    assert int(found) == lanes
    assert float(error) < reference.GRADIENT_TOLERANCE
