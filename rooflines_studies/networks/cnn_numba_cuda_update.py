"""The two ends of a step as CUDA kernels: loss and its gradient; the sums of all gradients and the update of
all parameters."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32
from numpy.typing import NDArray

from rooflines.ext import compiled_cuda
from rooflines_studies.networks.cnn_numba_cuda_convolution import WARP, CudaKernel
from rooflines_studies.networks.cnn_numba_cuda_dense import chunk

LOSS_THREADS = 64
UPDATE_THREADS = 256
FEW_ROWS = 8  # up to here one thread adds all partial sums of a parameter
# Rows of partial sums, at most: blocks that share the samples. Two for each multiprocessor of an H100 in the
# convolutions, where every thread keeps its sums for many samples; few in dense1, whose 51,328 gradients fill
# a device anyway.
CONVOLUTION_ROWS = 256
DENSE_ROWS = 8
LOSS_ROWS = 256
MOST_ROWS = (
    CONVOLUTION_ROWS,
    CONVOLUTION_ROWS,
    DENSE_ROWS,
    DENSE_ROWS,
    LOSS_ROWS,
)  # of the layers and the loss
_FIELDS = 5  # numbers that describe a block of the update


def row_counts(samples: int) -> tuple[int, int, int, int, int]:
    """The rows of partial sums that ``samples`` samples give: of conv1, conv2, dense1, dense2 and the
    loss."""
    convolved = min(samples, CONVOLUTION_ROWS)
    split = -(-samples // chunk(samples, DENSE_ROWS))
    return convolved, convolved, split, split, min(-(-samples // LOSS_THREADS), LOSS_ROWS)


@functools.cache
def loss(classes: int) -> CudaKernel:
    """Mean softmax cross-entropy and its gradient for ``logits``, a thread a sample.

    ``loss = log(sum(exp(x - max))) + max - x[y]`` and ``(softmax(x) - [y]) / N``, with the maximum subtracted
    before any exponential, so that none overflows. Each block adds its samples' losses in shared memory,
    always in the same order, to one number in ``partials``. A class that does not exist gives a loss that is
    not a number.
    """
    nothing = float("nan")

    @compiled_cuda
    def kernel(logits: Any, y: Any, first: int, gradient: Any, partials: Any, samples: int) -> None:
        """``y`` from sample ``first`` on; all threads of the grid walk over the samples."""
        lost = cuda.shared.array(LOSS_THREADS, float32)
        thread = cuda.threadIdx.x
        share = float32(1) / float32(samples)
        mine = float32(0)
        for sample in range(cuda.grid(1), samples, cuda.gridsize(1)):
            at = sample * classes
            right = y[first + sample]
            most = logits[at]
            for number in range(1, classes):
                value = logits[at + number]
                if value > most or value != value:
                    most = value
            total = float32(0)
            score = float32(nothing)
            for number in range(classes):
                value = logits[at + number] - most
                total += math.exp(value)
                if number == right:
                    score = value
            mine += math.log(total) - score
            for number in range(classes):
                probability = math.exp(logits[at + number] - most) / total
                if number == right:
                    probability -= float32(1)
                gradient[at + number] = probability * share
        lost[thread] = mine * share
        cuda.syncthreads()
        step = LOSS_THREADS // 2
        while step > 0:
            if thread < step:
                lost[thread] += lost[thread + step]
            cuda.syncthreads()
            step //= 2
        if thread == 0:
            partials[cuda.blockIdx.x] = lost[0]

    return CudaKernel(kernel, LOSS_THREADS)


@functools.cache
def update() -> CudaKernel:
    """Adds up the partial sums of every gradient and of the loss and, if asked, updates all parameters, in
    one launch.

    ``m = momentum * m + gradient``, ``p = p - learning_rate * m``, which is SGD as torch defines it. A block
    has up to 256 parameters of one layer where there are few rows of partial sums, and 32 where there are
    many; there its eight warps share the rows. Neighboring threads read neighboring parameters.
    """

    @compiled_cuda
    def kernel(
        partials: Any,
        table: Any,
        rows: Any,
        sums: Any,
        parameters: Any,
        velocity: Any,
        learning_rate: Any,
        momentum: Any,
        train: int,
    ) -> None:
        """``sums`` has the parameters' gradients in their order and behind them the loss, which nothing is
        updated by."""
        parts = cuda.shared.array(UPDATE_THREADS, float32)
        thread = cuda.threadIdx.x
        block = _FIELDS * cuda.blockIdx.x
        first = table[block]
        count = table[block + 1]
        source = table[block + 2]
        stride = table[block + 3]
        lanes = UPDATE_THREADS
        if table[block + 4] > FEW_ROWS:
            lanes = WARP
        lane = thread % lanes
        row_count = rows[cuda.blockIdx.x]
        total = float32(0)
        if lane < count:
            for row in range(thread // lanes, row_count, UPDATE_THREADS // lanes):
                total += partials[source + row * stride + lane]
        parts[thread] = total
        cuda.syncthreads()
        if thread < lanes and lane < count:
            for other in range(thread + lanes, UPDATE_THREADS, lanes):
                total += parts[other]
            at = first + lane
            sums[at] = total
            if train and at < parameters.size:
                speed = momentum * velocity[at] + total
                velocity[at] = speed
                parameters[at] -= learning_rate * speed

    return CudaKernel(kernel, UPDATE_THREADS)


class Region(NamedTuple):
    """Neighboring numbers with the same rows of partial sums: the parameters of a layer, or the loss."""

    size: int
    most_rows: int


class BufferLayout(NamedTuple):
    """The layout of partial sums, and the work of each block of the update."""

    begins: tuple[int, ...]  # of each region, in ``partials``
    partials: int  # numbers in all
    table: NDArray[np.int32]  # flat, ``_FIELDS`` a block
    regions: NDArray[np.intp]  # of each block


def layout(regions: Sequence[Region]) -> BufferLayout:
    """Regions in the order of their numbers, a row of partial sums being ``size`` long."""
    table, owners, begins = [], [], []
    number = source = 0
    for owner, region in enumerate(regions):
        begins.append(source)
        lanes = UPDATE_THREADS if region.most_rows <= FEW_ROWS else WARP
        for first in range(0, region.size, lanes):
            table.append(
                (
                    number + first,
                    min(lanes, region.size - first),
                    source + first,
                    region.size,
                    region.most_rows,
                )
            )
            owners.append(owner)
        number += region.size
        source += region.size * region.most_rows
    return BufferLayout(
        tuple(begins), source, np.array(table, np.int32).reshape(-1), np.array(owners, np.intp)
    )
