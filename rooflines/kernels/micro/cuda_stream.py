"""Memory bandwidth of an NVIDIA GPU: read, write, copy and triad over device memory, and reads of the L2
cache and of shared memory.

Every thread takes several 16-byte vectors before it uses the first, so that enough loads are on their way,
and all threads together walk the arrays in strides of the whole grid, so that neighbors always touch
neighboring lines. The bytes follow the STREAM convention (J. McCalpin, "Memory Bandwidth and Machine
Balance"): every byte read plus every byte written.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

from numba import complex128, cuda, float32, int64

from rooflines.kernels.micro.cuda_vectors import (
    LANES,
    THREADS,
    compiled_cuda,
    load4,
    load4_l2,
    load4_shared,
    store4,
)

Access = Literal["read", "write", "copy", "triad"]
UNROLL = 4
# How often an access moves the length of one array.
TRANSFERS: dict[Access, int] = {"read": 1, "write": 1, "copy": 2, "triad": 3}
# The types that the kernels are launched with.
SIGNATURES: dict[Access, tuple[Any, ...]] = {
    "read": (float32[::1], float32[::1], int64),
    "write": (float32[::1], float32, int64),
    "copy": (float32[::1], float32[::1], int64),
    "triad": (float32[::1], float32[::1], float32[::1], float32, int64),
}
READ_AGAIN = (float32[::1], float32[::1], int64, int64)
# A read leaves no more sums than this (1 MiB), a power of two: they stay in the L2 cache, so that storing
# them costs no device memory.
MOST_SUMS = 1 << 18
_VECTOR_BYTES = 4 * LANES
# Reads of shared memory.
# few enough for any number of registers; with 1024 and 66 registers no block starts on compute capability 7.5
SHARED_THREADS = 256
SHARED_VECTORS = 2 * SHARED_THREADS  # 8 KiB
SHARED_UNROLL = 8
READ_SHARED = (float32[::1], float32[::1], int64)  # the types that the kernel is launched with


class Pattern(NamedTuple):
    """A way to walk an array: threads of a block, 16-byte vectors a thread has on their way at once, and how
    many blocks there are.

    ``fills`` is a multiple of the blocks that the device holds at once; 0 stands for one unrolled step a
    thread.
    """

    threads: int
    unroll: int
    fills: int


# Which is fastest depends on how a device hands out its blocks and on how its memory likes to be walked.
PATTERNS: tuple[Pattern, ...] = (
    Pattern(256, UNROLL, 1),
    Pattern(256, UNROLL, 16),
    Pattern(256, UNROLL, 0),
    Pattern(1024, UNROLL, 0),
    Pattern(256, 2 * UNROLL, 0),
)
MORE_PATTERNS: tuple[Pattern, ...] = (
    Pattern(512, UNROLL, 1),
    Pattern(512, UNROLL, 16),
    Pattern(512, UNROLL, 0),
    Pattern(1024, UNROLL, 16),
    Pattern(256, 2 * UNROLL, 16),
    Pattern(512, 2 * UNROLL, 0),
)


def array_bytes(free_bytes: int, l2_bytes: int | None) -> int:
    """The size of each of three arrays: 64 times the L2 cache, at least 1 GiB, but all three in three eighths
    of what is free.

    So large that what the L2 cache keeps from one launch to the next is below 2 %. A multiple of 16 bytes.
    """
    wanted = max(1 << 30, 64 * (l2_bytes or 0))
    return max(1 << 20, min(wanted, free_bytes // 8)) // _VECTOR_BYTES * _VECTOR_BYTES


def blocks_of(pattern: Pattern, fill: int, vectors: int) -> int:
    """The number of blocks of ``pattern`` where the device holds ``fill`` at once; never more than one
    unrolled step a thread needs."""
    at_once = -(-vectors // (pattern.unroll * pattern.threads))
    return min(at_once, pattern.fills * fill) if pattern.fills else at_once


def sums_of(threads: int) -> int:
    """How many sums a read by ``threads`` threads leaves: the next power of two, at most ``MOST_SUMS``."""
    return min(MOST_SUMS, 1 << max(0, threads - 1).bit_length())


class WorkingSet(NamedTuple):
    """Reads that stay in a cache: a grid of ``blocks`` and the ``vectors`` of 16 bytes that it reads again
    and again."""

    blocks: int
    vectors: int


def working_sets(l2_bytes: int, multiprocessors: int, resident_blocks: int) -> tuple[WorkingSet, ...]:
    """The grids and working sets worth trying for an L2 cache: one, two or four blocks of ``THREADS`` a
    multiprocessor.

    ``resident_blocks`` of them is what a multiprocessor holds at once. Each working set is the whole number
    of unrolled steps of the whole grid that is next below an eighth, a quarter or a half of the cache, so
    that no thread has a remainder. Not more than half, because large L2 caches are in two parts and may keep
    a line that both read in each of them. A cache too small for a grid of one block a multiprocessor is read
    by fewer blocks.
    """
    most = l2_bytes // 2 // _VECTOR_BYTES
    step = UNROLL * THREADS
    most_blocks = max(1, most // step)
    wanted = [count * multiprocessors for count in (1, 2, 4) if count <= resident_blocks]
    grids = [blocks for blocks in wanted if blocks <= most_blocks] or [min(multiprocessors, most_blocks)]
    found = {
        WorkingSet(blocks, most // part // (blocks * step) * blocks * step)
        for blocks in grids
        for part in (1, 2, 4)
    }
    return tuple(sorted(one for one in found if one.vectors))


@functools.cache
def read(unroll: int) -> Any:
    """A kernel that adds up ``vectors`` 16-byte vectors of ``source`` (float32).

    Thread t writes what it found to ``sums[t % len(sums)]``, where ``len(sums)`` is a power of two. Where it
    is smaller than the grid, several threads write the same element and one of them wins.
    """
    numbers = LANES * unroll

    @compiled_cuda
    def kernel(source: Any, sums: Any, vectors: int) -> None:
        thread, stride = cuda.grid(1), cuda.gridsize(1)
        total0 = total1 = total2 = total3 = float32(0)
        taken = cuda.local.array(numbers, float32)
        at = thread
        while at + (unroll - 1) * stride < vectors:
            for step in range(unroll):
                a0, a1, a2, a3 = load4(source, at + step * stride)
                taken[4 * step], taken[4 * step + 1], taken[4 * step + 2], taken[4 * step + 3] = (
                    a0,
                    a1,
                    a2,
                    a3,
                )
            for step in range(unroll):
                total0 += taken[4 * step]
                total1 += taken[4 * step + 1]
                total2 += taken[4 * step + 2]
                total3 += taken[4 * step + 3]
            at += unroll * stride
        while at < vectors:
            a0, a1, a2, a3 = load4(source, at)
            total0 += a0
            total1 += a1
            total2 += a2
            total3 += a3
            at += stride
        sums[thread & (sums.size - 1)] = (total0 + total1) + (total2 + total3)

    return kernel


@functools.cache
def write(unroll: int) -> Any:
    """A kernel that fills ``vectors`` 16-byte vectors of ``target`` (float32) with ``value``."""

    @compiled_cuda
    def kernel(target: Any, value: Any, vectors: int) -> None:
        at, stride = cuda.grid(1), cuda.gridsize(1)
        values = value, value, value, value
        while at + (unroll - 1) * stride < vectors:
            for step in range(unroll):
                store4(target, at + step * stride, values)
            at += unroll * stride
        while at < vectors:
            store4(target, at, values)
            at += stride

    return kernel


@functools.cache
def copy(unroll: int) -> Any:
    """A kernel that copies ``vectors`` 16-byte vectors of float32 from ``source`` to ``target``."""

    @compiled_cuda
    def kernel(source: Any, target: Any, vectors: int) -> None:
        at, stride = cuda.grid(1), cuda.gridsize(1)
        # complex128 for its 16 bytes, as in shared memory: an array of float32 would begin on any four
        taken = cuda.local.array(unroll, complex128)
        while at + (unroll - 1) * stride < vectors:
            for step in range(unroll):
                store4(taken, step, load4(source, at + step * stride))
            for step in range(unroll):
                store4(target, at + step * stride, load4(taken, step))
            at += unroll * stride
        while at < vectors:
            store4(target, at, load4(source, at))
            at += stride

    return kernel


@functools.cache
def triad(unroll: int) -> Any:
    """A kernel of ``target = first + scale * second`` over ``vectors`` 16-byte vectors of float32; half the
    loads are of each."""
    pairs = unroll // 2
    numbers = LANES * pairs

    @compiled_cuda
    def kernel(first: Any, second: Any, target: Any, scale: Any, vectors: int) -> None:
        at, stride = cuda.grid(1), cuda.gridsize(1)
        ours = cuda.local.array(numbers, float32)
        theirs = cuda.local.array(numbers, float32)
        while at + (pairs - 1) * stride < vectors:
            for step in range(pairs):
                a0, a1, a2, a3 = load4(first, at + step * stride)
                b0, b1, b2, b3 = load4(second, at + step * stride)
                ours[4 * step], ours[4 * step + 1], ours[4 * step + 2], ours[4 * step + 3] = a0, a1, a2, a3
                theirs[4 * step], theirs[4 * step + 1], theirs[4 * step + 2], theirs[4 * step + 3] = (
                    b0,
                    b1,
                    b2,
                    b3,
                )
            for step in range(pairs):
                sums = (
                    ours[4 * step] + scale * theirs[4 * step],
                    ours[4 * step + 1] + scale * theirs[4 * step + 1],
                    ours[4 * step + 2] + scale * theirs[4 * step + 2],
                    ours[4 * step + 3] + scale * theirs[4 * step + 3],
                )
                store4(target, at + step * stride, sums)
            at += pairs * stride
        while at < vectors:
            a0, a1, a2, a3 = load4(first, at)
            b0, b1, b2, b3 = load4(second, at)
            store4(target, at, (a0 + scale * b0, a1 + scale * b1, a2 + scale * b2, a3 + scale * b3))
            at += stride

    return kernel


@compiled_cuda
def read_again(source: Any, sums: Any, vectors: int, passes: int) -> None:
    """Read the same ``vectors`` of ``source`` ``passes`` times, past the L1 cache; thread t writes what it
    found to ``sums[t]``.

    ``vectors`` is a multiple of ``UNROLL`` times the threads of the grid. With a ``source`` that fits the L2
    cache, this reads from there.
    """
    thread, stride = cuda.grid(1), cuda.gridsize(1)
    total0 = total1 = total2 = total3 = float32(0)
    for _ in range(passes):
        at = thread
        while at < vectors:
            a0, a1, a2, a3 = load4_l2(source, at)
            b0, b1, b2, b3 = load4_l2(source, at + stride)
            c0, c1, c2, c3 = load4_l2(source, at + 2 * stride)
            d0, d1, d2, d3 = load4_l2(source, at + 3 * stride)
            total0 += (a0 + b0) + (c0 + d0)
            total1 += (a1 + b1) + (c1 + d1)
            total2 += (a2 + b2) + (c2 + d2)
            total3 += (a3 + b3) + (c3 + d3)
            at += UNROLL * stride
    sums[thread] = (total0 + total1) + (total2 + total3)


def shared_bytes(blocks: int, passes: int, threads: int = SHARED_THREADS) -> int:
    """Bytes that one launch of ``read_shared`` reads from shared memory: ``SHARED_UNROLL`` 16-byte vectors a
    thread and pass."""
    return blocks * threads * SHARED_UNROLL * passes * LANES * 4


@compiled_cuda
def read_shared(source: Any, sums: Any, passes: int) -> None:
    """Every block of at most ``SHARED_THREADS`` threads copies ``source`` to shared memory and reads that.

    ``source`` has ``SHARED_VECTORS`` vectors of float32.

    Neighboring threads read neighboring vectors, which no two banks have to serve one after the other. Each
    of the ``passes`` reads ``SHARED_UNROLL`` vectors a thread, two of them in turn; thread t of the grid
    writes the sum of all it read to ``sums[t]``.
    """
    block = cuda.shared.array(SHARED_VECTORS, complex128)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    for vector in range(thread, SHARED_VECTORS, threads):
        store4(block, vector, load4(source, vector))
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


def kernel_of(access: Access, unroll: int) -> Any:
    """The kernel of ``access`` that has ``unroll`` vectors a thread on their way at once."""
    return {"read": read, "write": write, "copy": copy, "triad": triad}[access](unroll)
