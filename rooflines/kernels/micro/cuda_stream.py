"""Memory bandwidth of an NVIDIA GPU: read, write, copy and triad over device memory, and reads that the L2 cache answers.

Every thread takes ``UNROLL`` 16-byte vectors before it uses the first, so that enough loads are on their way, and all threads
together walk the arrays in strides of the whole grid, so that neighbours always touch neighbouring lines. The bytes follow the
STREAM convention (J. McCalpin, "Memory Bandwidth and Machine Balance"): every byte read plus every byte written.
"""

from __future__ import annotations

from typing import Any, Literal

from numba import cuda, float32

from rooflines.kernels.micro.cuda_vectors import THREADS, compiled, load4, load4_l2, store4

Access = Literal["read", "write", "copy", "triad"]
UNROLL = 4
# How often an access moves the length of one array.
TRANSFERS: dict[Access, int] = {"read": 1, "write": 1, "copy": 2, "triad": 3}


def moved_bytes(access: Access, array_bytes: int) -> int:
    """Bytes of one launch of ``access`` on arrays of ``array_bytes``."""
    return TRANSFERS[access] * array_bytes


def array_bytes(free_bytes: int, l2_bytes: int | None) -> int:
    """The size of each of three arrays: 64 times the L2 cache, at least 1 GiB, but all three in three eighths of what is free.

    So large that what the L2 cache keeps from one launch to the next is below 2 %. A multiple of 16 bytes.
    """
    wanted = max(1 << 30, 64 * (l2_bytes or 0))
    return max(1 << 20, min(wanted, free_bytes // 8)) // 16 * 16


def grids(fill: int, vectors: int) -> tuple[int, ...]:
    """Numbers of blocks worth trying: multiples of what the device holds at once (``fill``), and one unrolled step a thread.

    Which is fastest depends on how a device hands out its blocks and on how its memory likes to be walked.
    """
    at_once = -(-vectors // (UNROLL * THREADS))
    return tuple(sorted({fill, 4 * fill, 16 * fill, at_once} if at_once > 16 * fill else {fill, at_once}))


@compiled
def read(source: Any, sums: Any, vectors: int) -> None:
    """Add up ``vectors`` 16-byte vectors of ``source`` (float32); thread t writes what it found to ``sums[t]``."""
    thread, stride = cuda.grid(1), cuda.gridsize(1)
    total0 = total1 = total2 = total3 = float32(0)
    at = thread
    while at + 3 * stride < vectors:
        a0, a1, a2, a3 = load4(source, at)
        b0, b1, b2, b3 = load4(source, at + stride)
        c0, c1, c2, c3 = load4(source, at + 2 * stride)
        d0, d1, d2, d3 = load4(source, at + 3 * stride)
        total0 += (a0 + b0) + (c0 + d0)
        total1 += (a1 + b1) + (c1 + d1)
        total2 += (a2 + b2) + (c2 + d2)
        total3 += (a3 + b3) + (c3 + d3)
        at += UNROLL * stride
    while at < vectors:
        a0, a1, a2, a3 = load4(source, at)
        total0 += a0
        total1 += a1
        total2 += a2
        total3 += a3
        at += stride
    sums[thread] = (total0 + total1) + (total2 + total3)


@compiled
def write(target: Any, value: Any, vectors: int) -> None:
    """Fill ``vectors`` 16-byte vectors of ``target`` (float32) with ``value``."""
    at, stride = cuda.grid(1), cuda.gridsize(1)
    while at + 3 * stride < vectors:
        store4(target, at, value, value, value, value)
        store4(target, at + stride, value, value, value, value)
        store4(target, at + 2 * stride, value, value, value, value)
        store4(target, at + 3 * stride, value, value, value, value)
        at += UNROLL * stride
    while at < vectors:
        store4(target, at, value, value, value, value)
        at += stride


@compiled
def copy(source: Any, target: Any, vectors: int) -> None:
    """Copy ``vectors`` 16-byte vectors of float32 from ``source`` to ``target``."""
    at, stride = cuda.grid(1), cuda.gridsize(1)
    while at + 3 * stride < vectors:
        a0, a1, a2, a3 = load4(source, at)
        b0, b1, b2, b3 = load4(source, at + stride)
        c0, c1, c2, c3 = load4(source, at + 2 * stride)
        d0, d1, d2, d3 = load4(source, at + 3 * stride)
        store4(target, at, a0, a1, a2, a3)
        store4(target, at + stride, b0, b1, b2, b3)
        store4(target, at + 2 * stride, c0, c1, c2, c3)
        store4(target, at + 3 * stride, d0, d1, d2, d3)
        at += UNROLL * stride
    while at < vectors:
        a0, a1, a2, a3 = load4(source, at)
        store4(target, at, a0, a1, a2, a3)
        at += stride


@compiled
def triad(first: Any, second: Any, target: Any, scale: Any, vectors: int) -> None:
    """``target = first + scale * second`` over ``vectors`` 16-byte vectors of float32."""
    at, stride = cuda.grid(1), cuda.gridsize(1)
    while at + stride < vectors:
        a0, a1, a2, a3 = load4(first, at)
        b0, b1, b2, b3 = load4(second, at)
        c0, c1, c2, c3 = load4(first, at + stride)
        d0, d1, d2, d3 = load4(second, at + stride)
        store4(target, at, a0 + scale * b0, a1 + scale * b1, a2 + scale * b2, a3 + scale * b3)
        store4(target, at + stride, c0 + scale * d0, c1 + scale * d1, c2 + scale * d2, c3 + scale * d3)
        at += 2 * stride
    while at < vectors:
        a0, a1, a2, a3 = load4(first, at)
        b0, b1, b2, b3 = load4(second, at)
        store4(target, at, a0 + scale * b0, a1 + scale * b1, a2 + scale * b2, a3 + scale * b3)
        at += stride


@compiled
def read_again(source: Any, sums: Any, vectors: int, passes: int) -> None:
    """``read``, ``passes`` times over the same memory and past the L1 cache: with a ``source`` that fits the L2 cache, from there."""
    thread, stride = cuda.grid(1), cuda.gridsize(1)
    total0 = total1 = total2 = total3 = float32(0)
    for _ in range(passes):
        at = thread
        while at + 3 * stride < vectors:
            a0, a1, a2, a3 = load4_l2(source, at)
            b0, b1, b2, b3 = load4_l2(source, at + stride)
            c0, c1, c2, c3 = load4_l2(source, at + 2 * stride)
            d0, d1, d2, d3 = load4_l2(source, at + 3 * stride)
            total0 += (a0 + b0) + (c0 + d0)
            total1 += (a1 + b1) + (c1 + d1)
            total2 += (a2 + b2) + (c2 + d2)
            total3 += (a3 + b3) + (c3 + d3)
            at += UNROLL * stride
        while at < vectors:
            a0, a1, a2, a3 = load4_l2(source, at)
            total0 += a0
            total1 += a1
            total2 += a2
            total3 += a3
            at += stride
    sums[thread] = (total0 + total1) + (total2 + total3)
