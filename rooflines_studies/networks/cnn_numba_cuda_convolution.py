"""The convolutions of the network as CUDA kernels: forward with bias, ReLU and pooling in one, and both
gradients.

All are 3 x 3, stride 1, without padding, and followed by ReLU and the maximum of 2 x 2, whose windows
("cells") are numbered row by row. Forward keeps one byte a cell, its *switch*: which of the four positions
(row by row) had the maximum, or ``DEAD`` where ReLU cut it off. A switch is all that the gradients need of
the forward pass: of the gradient of the convolution's output only the switched position of a living cell is
not zero.

Arrays are flat float32 (switches: int8), samples in order, layouts those of torch. ``weights`` of a layer are
its weight and, right behind it, its bias; so are the rows of ``partials``. One block does one sample or, for
the gradient of the weights, every ``gridDim.x``-th; which threads add what up is fixed, so the same input
gives the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import cuda, float32, int32

from rooflines.ext import compiled_cuda, configured_cuda

TAPS = 9
DEAD = 4
WARP = 32


class CudaKernel(NamedTuple):
    """A kernel made for one layer, and how many threads its blocks have."""

    function: Any
    threads: int

    def over(self, blocks: int | tuple[int, int, int]) -> Callable[..., object]:
        """The kernel as a function of its arguments that launches ``blocks`` blocks on the default stream."""
        return configured_cuda(self.function, blocks, self.threads)


def divisor(count: int, most: int) -> int:
    """The largest divisor of ``count`` up to ``most``."""
    return next(size for size in range(most, 0, -1) if count % size == 0)


def whole_warps(threads: int) -> int:
    """``threads`` rounded up to whole warps."""
    return -(-threads // WARP) * WARP


@functools.cache
def forward(channels: int, height: int, width: int, filters: int) -> CudaKernel:
    """``pooled = max2x2(relu(convolution(x)))`` and its switches, a sample a block.

    A thread computes one cell for up to four filters: the 4 x 4 window under the cell stays in registers
    while each of its 9 x 4 products per filter takes one weight, which the whole warp reads at once. For the
    8 -> 16 layer that is 52 reads of shared memory for 144 FMAs. Shared memory: the sample and all weights,
    3.4 KiB for the first layer and 9.9 KiB for the second, where a multiprocessor has 163 KiB (sm_80) or 227
    KiB (sm_90); so registers limit it, about 50 a thread in the first layer and 70 in the second: three
    blocks of 352 threads, or seven of 128. A batch of 512 gives each of the multiprocessors of an H100 four.
    """
    columns = (width - 2) // 2
    cells = (height - 2) // 2 * columns
    group = divisor(filters, 4)
    accumulators = 4 * group
    items = cells * (filters // group)
    threads = min(384, whole_warps(items))
    plane = height * width
    pixels = channels * plane
    numbers = filters * channels * TAPS + filters
    first_bias = filters * channels * TAPS

    @compiled_cuda
    def kernel(x: Any, first: int, weights: Any, pooled: Any, switches: Any) -> None:
        """``x`` from sample ``first`` on; block b does sample b."""
        image = cuda.shared.array(pixels, float32)
        weight = cuda.shared.array(numbers, float32)
        thread = cuda.threadIdx.x
        sample = cuda.blockIdx.x
        begin = (first + sample) * pixels
        for at in range(thread, pixels, threads):
            image[at] = x[begin + at]
        for at in range(thread, numbers, threads):
            weight[at] = weights[at]
        cuda.syncthreads()
        for item in range(thread, items, threads):
            cell = item % cells
            first_filter = item // cells * group
            corner = 2 * (cell // columns) * width + 2 * (cell % columns)
            sums = cuda.local.array(accumulators, float32)
            window = cuda.local.array(16, float32)
            for filter in range(group):
                for position in range(4):
                    sums[4 * filter + position] = weight[first_bias + first_filter + filter]
            for channel in range(channels):
                for row in range(4):
                    for column in range(4):
                        window[4 * row + column] = image[channel * plane + corner + row * width + column]
                for filter in range(group):
                    taps = ((first_filter + filter) * channels + channel) * TAPS
                    for row in range(3):
                        for column in range(3):
                            number = weight[taps + 3 * row + column]
                            sums[4 * filter] += number * window[4 * row + column]
                            sums[4 * filter + 1] += number * window[4 * row + column + 1]
                            sums[4 * filter + 2] += number * window[4 * row + column + 4]
                            sums[4 * filter + 3] += number * window[4 * row + column + 5]
            for filter in range(group):
                most = sums[4 * filter]
                switch = 0
                for position in range(1, 4):
                    value = sums[4 * filter + position]
                    if (
                        value > most or value != value
                    ):  # as torch: the first of equals, and what is not a number wins
                        most = value
                        switch = position
                if most <= float32(0):
                    most = float32(0)
                    switch = DEAD
                to = (sample * filters + first_filter + filter) * cells + cell
                pooled[to] = most
                switches[to] = switch

    return CudaKernel(kernel, threads)


@functools.cache
def weight_gradient(channels: int, height: int, width: int, filters: int) -> CudaKernel:
    """Gradients of weight and bias from ``x``, the gradient of the pooled output and the switches; a row of
    ``partials`` a block.

    A thread owns the nine weights between one channel and one filter and walks over the cells: only living
    positions are multiplied, 9 FMAs a cell instead of 36. With 8 x 16 such pairs two threads share the cells
    of a pair, with 1 x 8 pairs 32 do; their sums are added in a fixed order at the end. Shared memory: the
    sample, the gradient and where it belongs, and ten sums a thread; 23.6 KiB for the first layer and 18.4
    KiB for the second. Its 80 (sm_90) or 114 (sm_80) registers allow three or two blocks of 256 threads on a
    multiprocessor, which 256 blocks do not ask for.
    """
    columns = (width - 2) // 2
    cells = (height - 2) // 2 * columns
    pairs = filters * channels
    slices = max(1, 256 // pairs)
    workers = pairs * slices
    threads = whole_warps(workers)
    plane = height * width
    pixels = channels * plane
    switched = filters * cells
    kept = (TAPS + 1) * workers
    numbers = pairs * TAPS + filters

    @compiled_cuda
    def kernel(x: Any, first: int, samples: int, gradient: Any, switches: Any, partials: Any) -> None:
        """``x`` from sample ``first`` on; block b does samples b, b + gridDim.x, ... and writes row b of
        ``partials``."""
        image = cuda.shared.array(pixels, float32)
        delta = cuda.shared.array(switched, float32)
        origin = cuda.shared.array(switched, int32)
        totals = cuda.shared.array(kept, float32)
        thread = cuda.threadIdx.x
        block = cuda.blockIdx.x
        pair = thread % pairs
        part = thread // pairs
        filter_cells = pair // channels * cells
        corner = pair % channels * plane
        sums = cuda.local.array(TAPS, float32)
        bias = float32(0)
        for tap in range(TAPS):
            sums[tap] = float32(0)
        for sample in range(block, samples, cuda.gridDim.x):
            cuda.syncthreads()  # no thread reads the previous sample any more
            begin = (first + sample) * pixels
            for at in range(thread, pixels, threads):
                image[at] = x[begin + at]
            for at in range(thread, switched, threads):
                switch = int32(switches[sample * switched + at])
                value = gradient[sample * switched + at]
                if switch == DEAD:
                    switch = 0
                    value = float32(0)
                cell = at % cells
                delta[at] = value
                origin[at] = (2 * (cell // columns) + switch // 2) * width + 2 * (cell % columns) + switch % 2
            cuda.syncthreads()
            if thread < workers:
                for cell in range(part, cells, slices):
                    value = delta[filter_cells + cell]
                    under = corner + origin[filter_cells + cell]
                    bias += value
                    for row in range(3):
                        for column in range(3):
                            sums[3 * row + column] += value * image[under + row * width + column]
        if thread < workers:
            for tap in range(TAPS):
                totals[tap * workers + thread] = sums[tap]
            totals[TAPS * workers + thread] = bias
        cuda.syncthreads()
        for at in range(thread, numbers, threads):
            begin = at % TAPS * workers + at // TAPS
            if at >= pairs * TAPS:  # a bias; all pairs of a filter have the same
                begin = TAPS * workers + (at - pairs * TAPS) * channels
            total = totals[begin]
            for other in range(1, slices):
                total += totals[begin + other * pairs]
            partials[block * numbers + at] = total

    return CudaKernel(kernel, threads)


@functools.cache
def input_gradient(channels: int, height: int, width: int, filters: int) -> CudaKernel:
    """The gradient of the convolution's input from the gradient of the pooled output, the switches and
    ``weights``, a sample a block.

    The gradient of the convolution's output is spread in shared memory, with two zeros around it, and every
    thread computes a whole row of the input's gradient for up to two channels: ``width + 2`` numbers of it
    and three weights a channel stay in registers for ``3 * width`` FMAs a channel. For the 8 -> 16 layer that
    is 21 reads of shared memory for 78 FMAs, and 52 busy threads in a block of 64. Rows are 15 numbers apart
    there, an odd number, so different rows are in different banks. Shared memory: 18.6 KiB and the one that
    each block costs, so eight blocks on sm_80 and eleven on sm_90; a batch of 512 has four for each
    multiprocessor of an H100.
    """
    columns = (width - 2) // 2
    cells = (height - 2) // 2 * columns
    group = divisor(channels, 2)
    items = height * (channels // group)
    threads = whole_warps(items)
    plane = height * width
    pixels = channels * plane
    switched = filters * cells
    padded = width + 2
    area = (height + 2) * padded
    spread = max(filters * area, pixels)
    numbers = filters * channels * TAPS
    accumulators = group * width

    @compiled_cuda
    def kernel(gradient: Any, switches: Any, weights: Any, target: Any) -> None:
        """Block b does sample b."""
        delta = cuda.shared.array(spread, float32)
        weight = cuda.shared.array(numbers, float32)
        thread = cuda.threadIdx.x
        sample = cuda.blockIdx.x
        for at in range(thread, filters * area, threads):
            delta[at] = float32(0)
        for at in range(thread, numbers, threads):
            weight[at] = weights[at]
        cuda.syncthreads()
        for at in range(thread, switched, threads):
            switch = int32(switches[sample * switched + at])
            if switch != DEAD:
                cell = at % cells
                row = 2 + 2 * (cell // columns) + switch // 2
                column = 2 + 2 * (cell % columns) + switch % 2
                delta[at // cells * area + row * padded + column] = gradient[sample * switched + at]
        cuda.syncthreads()
        row = thread % height
        first_channel = thread // height * group
        sums = cuda.local.array(accumulators, float32)
        line = cuda.local.array(padded, float32)
        for at in range(accumulators):
            sums[at] = float32(0)
        if thread < items:
            for filter in range(filters):
                for tap_row in range(3):
                    begin = filter * area + (row + 2 - tap_row) * padded
                    for column in range(padded):
                        line[column] = delta[begin + column]
                    for channel in range(group):
                        taps = (filter * channels + first_channel + channel) * TAPS + 3 * tap_row
                        left = weight[taps]
                        middle = weight[taps + 1]
                        right = weight[taps + 2]
                        for column in range(width):
                            sums[channel * width + column] += left * line[column + 2]
                            sums[channel * width + column] += middle * line[column + 1]
                            sums[channel * width + column] += right * line[column]
        # no thread reads the spread gradient any more: the result takes its place, to be stored in whole
        # lines
        cuda.syncthreads()
        if thread < items:
            for channel in range(group):
                for column in range(width):
                    delta[(first_channel + channel) * plane + row * width + column] = sums[
                        channel * width + column
                    ]
        cuda.syncthreads()
        for at in range(thread, pixels, threads):
            target[sample * pixels + at] = delta[at]

    return CudaKernel(kernel, threads)
