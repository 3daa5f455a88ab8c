"""What the CUDA kernels compute, checked case by case: by ``test_cuda_kernels``, in Numba's CUDA simulator and on a GPU.

Run as a module it prints a JSON object: the name of each case and "ok" or what went wrong.
"""

import json
import traceback

import numpy as np
from numba import cuda

from rooflines.kernels.micro import cuda_fma, cuda_stream
from rooflines.kernels.micro.cuda_vectors import CUDA_IS_SIMULATED, cuda_launcher

BLOCKS, THREADS = 2, 8
# Not a multiple of anything the loops are unrolled by: full strides, then a tail that only some threads have.
VECTORS = 8 * BLOCKS * THREADS + BLOCKS * THREADS + 3
UNROLLS = (cuda_stream.UNROLL, 2 * cuda_stream.UNROLL)


def floats(count, start=0):
    return (np.arange(start, start + count) % 251).astype(np.float32)


def launched(kernel, *arguments, blocks=BLOCKS, threads=THREADS):
    cuda_launcher(kernel, blocks, threads, *arguments)()
    cuda.synchronize()


def case_read():
    source = floats(4 * VECTORS)
    by_thread = [source.reshape(-1, 4)[thread :: BLOCKS * THREADS].sum() for thread in range(BLOCKS * THREADS)]
    for unroll in UNROLLS:
        sums = cuda.to_device(np.full(BLOCKS * THREADS, -1, np.float32))
        launched(cuda_stream.read(unroll), cuda.to_device(source), sums, VECTORS)
        np.testing.assert_array_equal(sums.copy_to_host(), by_thread)


def case_read_leaves_few_sums():
    source, sums = floats(4 * VECTORS), cuda.to_device(np.full(THREADS + 1, -1, np.float32))
    launched(cuda_stream.read(cuda_stream.UNROLL), cuda.to_device(source), sums[:THREADS], VECTORS)
    found = sums.copy_to_host()
    by_thread = [source.reshape(-1, 4)[thread :: BLOCKS * THREADS].sum() for thread in range(BLOCKS * THREADS)]
    assert all(found[thread] in by_thread[thread::THREADS] for thread in range(THREADS))
    assert found[THREADS] == -1


def case_read_again():
    vectors = 3 * cuda_stream.UNROLL * BLOCKS * THREADS
    source, sums = floats(4 * vectors), cuda.to_device(np.full(BLOCKS * THREADS, -1, np.float32))
    launched(cuda_stream.read_again, cuda.to_device(source), sums, vectors, 3)
    by_thread = [3 * source.reshape(-1, 4)[thread :: BLOCKS * THREADS].sum() for thread in range(BLOCKS * THREADS)]
    np.testing.assert_array_equal(sums.copy_to_host(), by_thread)


def streamed(made, sources, scalars, expected):
    """All vectors of the target are written, and nothing behind them."""
    for unroll in UNROLLS:
        target = cuda.to_device(np.full(4 * VECTORS + 4, -1, np.float32))
        launched(made(unroll), *map(cuda.to_device, sources), target, *scalars, VECTORS)
        np.testing.assert_array_equal(target.copy_to_host(), [*expected, -1, -1, -1, -1])


def case_write():
    streamed(cuda_stream.write, (), (np.float32(7),), [7] * 4 * VECTORS)


def case_copy():
    streamed(cuda_stream.copy, (floats(4 * VECTORS),), (), floats(4 * VECTORS))


def case_triad():
    first, second = floats(4 * VECTORS), floats(4 * VECTORS, 77)
    streamed(cuda_stream.triad, (first, second), (np.float32(3),), first + 3 * second)


def case_shared():
    source, passes = floats(4 * cuda_stream.SHARED_VECTORS), 2
    sums = cuda.to_device(np.full(BLOCKS * THREADS, -1, np.float32))
    launched(cuda_stream.read_shared, cuda.to_device(source), sums, passes)
    vectors = source.reshape(-1, 4).sum(axis=1)
    per_thread = [cuda_stream.SHARED_UNROLL // 2 * passes * (vectors[t] + vectors[t + THREADS]) for t in range(THREADS)]
    np.testing.assert_array_equal(sums.copy_to_host(), per_thread * BLOCKS)
    assert cuda_stream.shared_bytes(BLOCKS, passes, THREADS) == BLOCKS * THREADS * passes * cuda_stream.SHARED_UNROLL * 16


def recurrence(dtype):
    """The recurrences against the same ones in float64."""
    iterations, scale, shift = 2, dtype(0.875), dtype(1.0)
    start = np.linspace(0.5, 4, BLOCKS * THREADS).astype(dtype)
    values = cuda.to_device(start)
    launched(cuda_fma.recur_fma, values, scale, shift, iterations)
    x = start.astype(np.float64)[:, None] + np.arange(cuda_fma.RECURRENCES)
    for _ in range(iterations * cuda_fma.UNROLL):
        x = x * 0.875 + 1.0
    np.testing.assert_allclose(values.copy_to_host(), x.sum(axis=1), rtol=1e-6 if dtype == np.float32 else 1e-14)


def case_fma_fp32():
    recurrence(np.float32)


def case_fma_fp64():
    recurrence(np.float64)


def case_fma_fp16():
    iterations = 1
    pairs = np.linspace(0.5, 4, 2 * BLOCKS * THREADS).astype(np.float16)
    packed = [np.array([number, number], np.float16).view(np.int32)[0] for number in (0.875, 1.0)]
    values = cuda.to_device(pairs.view(np.int32))
    launched(cuda_fma.recur_half2, values, *packed, iterations)
    expected = np.zeros(BLOCKS * THREADS, np.int32)
    for number in range(cuda_fma.RECURRENCES):
        x = (pairs.view(np.int32) ^ number).view(np.float16)
        for _ in range(iterations * cuda_fma.UNROLL):
            x = (x.astype(np.float64) * 0.875 + 1.0).astype(np.float16)  # one rounding, as an FMA has
        expected ^= x.view(np.int32)
    np.testing.assert_array_equal(values.copy_to_host(), expected)


CASES = {name.removeprefix("case_"): check for name, check in dict(globals()).items() if name.startswith("case_")}


def outcome(check):
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return "ok"


if __name__ == "__main__":
    assert CUDA_IS_SIMULATED
    print(json.dumps({name: outcome(check) for name, check in CASES.items()}))
