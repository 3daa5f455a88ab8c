"""``numba-cuda``: its kernels in Numba's CUDA simulator and on a GPU, what the compiler made of them, and the work they declare."""

import functools
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from rooflines.errors import DeviceError, UsageError
from rooflines_studies.networks import cnn
from rooflines_studies.networks import cnn_numba_cuda as network
from rooflines_studies.networks import cnn_numba_cuda_convolution as convolution
from rooflines_studies.networks import cnn_numba_cuda_dense as dense
from rooflines_studies.networks import cnn_numba_cuda_update as ends
from rooflines_studies.networks.cnn_numba_cuda import declared
from tests.studies.networks import reference
from tests.studies.networks.cuda_cases import CASES, close, outcome

DOCUMENT = Path(__file__).resolve().parents[3] / "rooflines_studies" / "README.md"
CAPABILITY = (9, 0)
TABLE = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "cuda_kernels.json"
FIRST, SECOND = (1, 28, 28, 8), (8, 13, 13, 16)  # channels, height, width, filters of the two convolutions
KERNELS = {
    "forward 1": convolution.forward(*FIRST),
    "forward 2": convolution.forward(*SECOND),
    "weight gradient 1": convolution.weight_gradient(*FIRST),
    "weight gradient 2": convolution.weight_gradient(*SECOND),
    "input gradient 2": convolution.input_gradient(*SECOND),
    "dense forward": dense.forward(True),
    "dense logits": dense.forward(False),
    "dense input gradient": dense.input_gradient(False),
    "dense input gradient through ReLU": dense.input_gradient(True),
    "dense weight gradient": dense.weight_gradient(),
    "loss": ends.loss(cnn.CLASSES),
    "update": ends.update(),
}


# --- results -----------------------------------------------------------------------------------------------------------------------


KERNEL_CASES = tuple(case for case in CASES if case != "network")


@functools.cache
def simulated(*cases):
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-m", "tests.studies.networks.cuda_cases", *cases]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


# The simulator takes seconds for each of these.
LONG_CASES = ("dense_forward", "dense_weight_gradient", "update")
SHORT_CASES = tuple(case for case in KERNEL_CASES if case not in LONG_CASES)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("case", "together"),
    [
        *((case, SHORT_CASES) for case in SHORT_CASES),
        *(pytest.param(case, LONG_CASES, marks=pytest.mark.slow) for case in LONG_CASES),
    ],
)
def test_in_the_simulator(case, together):
    """The results, and that no thread reads or writes what another one may be writing."""
    assert simulated(*together)[case] == "ok"


@pytest.mark.slow
def test_the_network_in_the_simulator():
    assert simulated("network")["network"] == "ok"


@pytest.mark.slow
def test_the_watch_sees_what_a_wrong_kernel_does():
    faults = " / ".join(simulated(*KERNEL_CASES)["wrong"])
    for words in (
        "two threads at one place without a barrier",
        "two threads at one place without an order",
        "read but not written",
        "before the begin",
        "2 of 4 threads",
    ):
        assert words in faults


def ran(code, **variables):
    line = [sys.executable, "-c", code]
    return subprocess.run(line, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


@pytest.mark.ci
def test_says_why_it_cannot_run():
    code = "from rooflines_studies.networks.cnn_numba_cuda import unusable; print(unusable())"
    hidden = ran(code, NUMBA_ENABLE_CUDASIM="0", CUDA_VISIBLE_DEVICES="").stdout
    assert hidden.strip(), "a machine whose GPUs are hidden cannot run it"
    code += (
        "\nfrom rooflines.errors import DeviceError\nfrom rooflines_studies import network_runs\n"
        "try: network_runs.network('numba-cuda', 0.01, 0.9, 0)\nexcept DeviceError as error: print(error.message)\n"
        "import numpy as np; from rooflines_studies.networks.cnn_numba_cuda import NumbaCuda\n"
        "NumbaCuda().operators(np.zeros((1, 1, 28, 28), np.float32), np.zeros(1, np.int64))"
    )
    simulated = ran(code, NUMBA_ENABLE_CUDASIM="1")
    assert "NUMBA_ENABLE_CUDASIM is set" in simulated.stdout
    # The network itself runs in the simulator, for its tests; a study would publish the simulator's times.
    assert "numba-cuda cannot run here: NUMBA_ENABLE_CUDASIM is set: Numba simulates a GPU." in simulated.stdout
    assert "times of a simulated GPU are not meaningful" in simulated.stderr
    if network.unusable():
        with pytest.raises(DeviceError, match="numba-cuda needs an NVIDIA GPU"):
            network.NumbaCuda()


def test_resident_data_is_cut_without_copying():
    flat = object()
    data = network.Resident(flat, 3, (10, 1, 28, 28))
    part = data[4:][2:100]
    assert (part.flat, part.first, part.shape, len(part)) == (flat, 9, (4, 1, 28, 28), 4)
    assert data[-2:].first == 11
    assert len(data[5:5]) == 0
    with pytest.raises(UsageError, match="step 1, got 2"):
        data[::2]


# --- the work and how it is divided ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 512, 513])
def test_launches_declare_the_work_of_the_network(batch):
    """Whatever is fused into one launch: the FLOPs are those of the operators one by one, and the traffic is less."""
    mine, apart = declared(batch).values(), cnn.work(batch, index_bytes=1)
    assert sum(one.matrix_flops for one in mine) == sum(one.matrix_flops for one in apart)
    assert sum(one.other_flops for one in mine) == sum(one.other_flops for one in apart)
    if batch > 1:
        assert sum(one.bytes for one in mine) < sum(one.bytes for one in apart)
    assert len(mine) == 13


def test_the_table_in_the_documentation_is_that_of_the_launches():
    rows = re.findall(r"^\| `(\w.*?)` \| .* \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    expected = [
        (name, f"{one.flops / 1e6:.1f}", f"{(one.executed_flops or one.flops) / 1e6:.1f}", f"{one.bytes / 1e6:.2f}")
        for name, one in declared(512).items()
    ]
    assert rows == expected


def test_executed_flops_are_those_of_the_kernels():
    batch, work = 7, declared(7)
    # 5 x 5 windows of 4 outputs out of 11 x 11; 72 FMAs each, and bias, maximum and ReLU
    assert work["conv2"].executed_flops == batch * 16 * 25 * (4 * (2 * 72 + 1) + 4 + 1)
    # one living position a window: 72 FMAs, and the bias in the threads of all 8 channels
    assert work["conv2 weight"].executed_flops == batch * 16 * 25 * (2 * 72 + 8)
    # every input from 16 filters and 9 taps, zeros around included
    assert work["conv2 input"].executed_flops == batch * 8 * 169 * 2 * 16 * 9
    assert work["conv2 input"].executed_flops > work["conv2 input"].flops
    assert all(one.executed_flops is None or one.executed_flops < 1.4 * one.flops for name, one in work.items() if name != "update")


@pytest.mark.parametrize("samples", [1, 63, 64, 65, 255, 256, 257, 512, 1000, 4096, 100_000])
def test_every_sample_has_its_row_of_partial_sums(samples):
    convolved, _, split, _, lost = counts = ends.row_counts(samples)
    assert all(1 <= count <= most for count, most in zip(counts, ends.MOST_ROWS, strict=True))
    assert convolved <= samples
    chunk = dense.chunk(samples, ends.DENSE_ROWS)
    assert chunk % dense.TILE_DEPTH == 0
    assert (split - 1) * chunk < samples <= split * chunk  # no split without samples, and none too few
    assert lost == min(math.ceil(samples / ends.LOSS_THREADS), ends.LOSS_ROWS)


def test_update_covers_every_parameter_once():
    sizes = [80, 1168, 51_328, 1290, 1]
    layout = ends.layout([ends.Region(size, most) for size, most in zip(sizes, ends.MOST_ROWS, strict=True)])
    table = layout.table.reshape(-1, 5)
    covered = np.concatenate([np.arange(first, first + count) for first, count, *_ in table])
    np.testing.assert_array_equal(covered, np.arange(sum(sizes)))
    assert layout.partials == sum(size * most for size, most in zip(sizes, ends.MOST_ROWS, strict=True))
    for (first, count, source, stride, most), region in zip(table, layout.regions, strict=True):
        begin = layout.begins[region]
        assert source - begin == first - sum(sizes[:region])
        assert source + (most - 1) * stride + count <= begin + stride * most
        assert count <= (ends.UPDATE_THREADS if most <= ends.FEW_ROWS else 32)


# --- what the compiler made of it --------------------------------------------------------------------------------------------------


@functools.cache
def ptx(name):
    """What NVVM makes of a kernel; skips where there is no NVVM."""
    from numba import cuda, types

    floats, bytes_, words, classes = (types.Array(kind, 1, "C") for kind in (types.float32, types.int8, types.int32, types.int64))
    size, rate = types.int64, types.float32
    signature = {
        "forward": (floats, size, floats, floats, bytes_),
        "weight": (floats, size, size, floats, bytes_, floats),
        "input": (floats, bytes_, floats, floats),
        "dense": (floats, floats, floats, floats, size, size, size, size),
        "loss": (floats, classes, size, floats, floats, size),
        "update": (floats, words, words, floats, floats, floats, rate, rate, size),
    }[name.split()[0]]
    try:
        return cuda.compile_ptx(KERNELS[name].function.py_func, signature, cc=CAPABILITY)[0]
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


@pytest.mark.ci
@pytest.mark.parametrize("name", KERNELS)
def test_arrays_of_a_thread_are_registers(name):
    """No local memory, no double precision, and shared memory that every block gets without asking."""
    text = ptx(name)
    assert ".local" not in text
    assert not re.search(r"\b(add|sub|mul|div|fma|cvt)[.\w]*\.f64", text)
    # "_cudapy_smem_5[3136]", once an array
    shared = [int(size) for size in re.findall(r"\.shared \.align \d+ \.b8 \S+\[(\d+)\]", text)]
    assert shared
    assert sum(shared) <= 48 << 10


@pytest.mark.parametrize(("name", "fmas", "reads"), [
    ("forward 2", 144, 52),  # a channel: the window, nine taps of four filters
    ("weight gradient 1", 9, 11),  # a cell: the window under it, its gradient, where it is
    ("weight gradient 2", 9, 11),
    ("input gradient 2", 78, 21),  # a row of a filter: its numbers, three taps of two channels
    ("dense forward", 16, 8),  # 4 x 4 outputs, one step in depth
    ("dense input gradient", 16, 8),
    ("dense weight gradient", 16, 8),
])  # fmt: skip
def test_inner_loop_is_register_blocked(name, fmas, reads):
    """For so many FMAs so many reads of shared memory, in whatever multiple the compiler unrolled."""
    found = [instructions(loop) for loop in loops(ptx(name))]
    ratios = [(loop["fma.rn.f32"], sum(count for one, count in loop.items() if one.startswith("ld.shared"))) for loop in found]
    assert any(multiplied and multiplied % fmas == 0 and loaded <= reads * multiplied // fmas for multiplied, loaded in ratios), ratios


def test_multiprocessors_of_every_generation_hold_two_blocks():
    """By the committed table, which ``tests/kernels/test_cuda_kernels.py`` compares with what the compilers say."""
    rows = [row for row in json.loads(TABLE.read_text())["rows"] if row["kernel"].startswith("network")]
    assert len({row["kernel"] for row in rows}) == len(KERNELS)
    assert sorted({launch["threads"] for row in rows for launch in row["launches"]}) == sorted(
        {one.threads for one in KERNELS.values()}
    )
    assert min(launch["blocks"] for row in rows for launch in row["launches"]) >= 2


# --- on a GPU ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu():
    if reason := network.unusable():
        pytest.skip(reason)
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@functools.cache
def decided(count):
    """The random samples of the network in which maxima and ReLUs depend least on the last bits, and their classes.

    That float32 itself is not the difference then, ``test_gradients_are_autograds`` shows of torch on a CPU.
    """
    generator = np.random.default_rng(0)
    x = generator.standard_normal((count + count // 4 + 8, *cnn.IMAGE)).astype(np.float32)
    best = reference.margins(cnn.initial_parameters(), x).argsort()[::-1][:count]
    return x[best], generator.integers(0, cnn.CLASSES, count)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_on_the_gpu(gpu, case):
    assert outcome(CASES[case]) == "ok"


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 81, 512])
def test_gradients_on_the_gpu(gpu, batch):
    x, y = (array[:batch] for array in decided(512))
    _, expected = reference.gradients(cnn.initial_parameters(), x, y)
    mine = network.NumbaCuda()
    for name, gradient in mine.gradients(x, y).items():
        close(gradient, expected[name])
    mine.close()


@pytest.mark.gpu
def test_hundred_steps_on_the_gpu_as_torch_takes_them(gpu):
    from rooflines_studies.networks.cnn_torch import TorchCnn

    batch, steps = cnn.BATCH_SIZE, 100
    generator = np.random.default_rng(1)
    y = generator.integers(0, cnn.CLASSES, 4 * batch)
    x = (generator.standard_normal((cnn.CLASSES, *cnn.IMAGE))[y] + generator.standard_normal((len(y), *cnn.IMAGE))).astype(np.float32)
    curves = []
    for one in (network.NumbaCuda(), TorchCnn("cuda")):
        images, classes = one.resident(x), one.resident(y)
        begins = [step % 4 * batch for step in range(steps)]
        curves.append([one.step(images[begin : begin + batch], classes[begin : begin + batch]) for begin in begins])
    assert curves[0][0] > 2 > 0.5 > curves[0][-1]  # it learned
    # Sums in different orders: at first the same, then as far apart as two backends of a CPU are (1.6e-4).
    np.testing.assert_allclose(curves[0][:10], curves[1][:10], rtol=1e-4)
    np.testing.assert_allclose(curves[0], curves[1], rtol=0, atol=2e-3)


@pytest.mark.gpu
def test_a_step_on_the_gpu_allocates_nothing_and_repeats_its_bits(gpu):
    from numba import cuda

    x, y = decided(512)
    first, second = network.NumbaCuda(), network.NumbaCuda()
    losses = [[one.step(x, y) for _ in range(3)] for one in (first, second)]
    assert losses[0] == losses[1]
    images, classes = first.resident(x), first.resident(y)
    first.step(images, classes)
    held, free = first.memory.held, cuda.current_context().get_memory_info().free
    for _ in range(20):
        first.step(images, classes)
    assert (first.memory.held, cuda.current_context().get_memory_info().free) == (held, free)


@pytest.mark.gpu
def test_operators_on_the_gpu(gpu):
    x, y = decided(512)
    mine = network.NumbaCuda()
    before = mine.parameters()
    found = mine.operators(mine.resident(x), mine.resident(y), rounds=3)
    assert [one.operator for one in found] == list(declared(512).values())
    assert all(0 < one.seconds < 0.01 and one.rounds == 3 for one in found)
    for name, value in mine.parameters().items():
        np.testing.assert_array_equal(value, before[name])
