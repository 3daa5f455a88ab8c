"""Read bandwidth of the shared memory of an NVIDIA GPU: all multiprocessors together."""

from __future__ import annotations

from typing import Any

from numba import complex128, cuda, float32, int64

from rooflines.kernels.micro.cuda_vectors import LANES, compiled, load4, load4_shared, store4

THREADS = 256  # few enough for any number of registers; with 1024 and 66 registers no block starts on compute capability 7.5
VECTORS = 2 * THREADS  # 8 KiB
UNROLL = 8
SIGNATURE = (float32[::1], float32[::1], int64)  # the types that the kernel is launched with


def read_bytes(blocks: int, passes: int, threads: int = THREADS) -> int:
    """Bytes that one launch of ``read`` reads from shared memory: ``UNROLL`` 16-byte vectors a thread and pass."""
    return blocks * threads * UNROLL * passes * LANES * 4


@compiled
def read(source: Any, sums: Any, passes: int) -> None:
    """Every block of at most ``THREADS`` threads copies ``source`` (``VECTORS`` vectors of float32) to shared memory and reads that.

    Neighbouring threads read neighbouring vectors, which no two banks have to serve one after the other. Each of the ``passes`` reads
    ``UNROLL`` vectors a thread, two of them in turn; thread t of the grid writes the sum of all it read to ``sums[t]``.
    """
    # complex128 for its 16 bytes: an array of float32 would begin on any four
    block = cuda.shared.array(VECTORS, complex128)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    for vector in range(thread, VECTORS, threads):
        first, second, third, fourth = load4(source, vector)
        store4(block, vector, first, second, third, fourth)
    cuda.syncthreads()
    other = thread + threads
    total0 = total1 = total2 = total3 = float32(0)
    for _ in range(passes):
        a0, a1, a2, a3 = load4_shared(block, thread)
        b0, b1, b2, b3 = load4_shared(block, other)
        c0, c1, c2, c3 = load4_shared(block, thread)
        d0, d1, d2, d3 = load4_shared(block, other)
        e0, e1, e2, e3 = load4_shared(block, thread)
        f0, f1, f2, f3 = load4_shared(block, other)
        g0, g1, g2, g3 = load4_shared(block, thread)
        h0, h1, h2, h3 = load4_shared(block, other)
        total0 += ((a0 + b0) + (c0 + d0)) + ((e0 + f0) + (g0 + h0))
        total1 += ((a1 + b1) + (c1 + d1)) + ((e1 + f1) + (g1 + h1))
        total2 += ((a2 + b2) + (c2 + d2)) + ((e2 + f2) + (g2 + h2))
        total3 += ((a3 + b3) + (c3 + d3)) + ((e3 + f3) + (g3 + h3))
    sums[cuda.grid(1)] = (total0 + total1) + (total2 + total3)
