"""The dense layers of the network as CUDA kernels: one tiled matrix product, with what comes before and after
it fused in.

``out[rows, columns] = a[rows, depth] @ b[depth, columns]``. A block computes a tile of 16 x 32 outputs from
tiles of ``a`` and ``b`` of 64 in depth in shared memory. The network's products have few outputs and long
sums, so a block divides the depth of a tile among its eight warps: each computes all 512 outputs over its
eighth, 4 x 4 in the registers of a thread (8 reads of shared memory for 16 FMAs), and at the end the eight
are added in a fixed order. With N = 512, ``dense1`` gives forward 4 x 32 blocks, about one a multiprocessor,
its weight gradient 13 x 8 x 8.

Shared memory: 16 KiB, first for the two tiles (64 x 17 and 64 x 33 numbers, the odd lengths so that neither
loading nor reading meets a bank twice), then for the sums of the warps. The loads of a tile are all on their
way at once, which takes up to 128 registers: two blocks a multiprocessor, 16 warps.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32

from rooflines.ext import compiled_cuda
from rooflines_studies.networks.cnn_numba_cuda_convolution import WARP, CudaKernel

TILE_ROWS = 16
TILE_COLUMNS = 32
TILE_DEPTH = 64
WARPS = 8
THREADS = WARPS * WARP

_TILE = TILE_ROWS * TILE_COLUMNS
_LEFT = TILE_ROWS + 1
_RIGHT = TILE_COLUMNS + 1
_RIGHT_BEGIN = TILE_DEPTH * _LEFT
_SHARED = max(WARPS * _TILE, TILE_DEPTH * (_LEFT + _RIGHT))
_SHARE = TILE_DEPTH // WARPS

# How an operand lies in memory: one output's numbers along the depth side by side, or all outputs' of one
# depth.
_ALONG_DEPTH = 0
_ACROSS = 1
_NOTHING = 0
_BIAS = 1
_BIAS_RELU = 2
_RELU_GRADIENT = 3
_WEIGHT_GRADIENT = 4


def grid(rows: int, columns: int, splits: int = 1) -> tuple[int, int, int]:
    """The blocks of a product."""
    return -(-columns // TILE_COLUMNS), -(-rows // TILE_ROWS), splits


def chunk(samples: int, most_splits: int) -> int:
    """The number of samples per split of a weight gradient: whole tiles, as few as ``most_splits`` splits
    allow."""
    return -(-samples // (most_splits * TILE_DEPTH)) * TILE_DEPTH


def forward(relu: bool) -> CudaKernel:
    """``out = x @ weight.T + bias``, then ReLU: ``x [rows, depth]``, ``weight [columns, depth]``; ``extra``
    is the bias."""
    return _product(_ALONG_DEPTH, _ALONG_DEPTH, _BIAS_RELU if relu else _BIAS)


def input_gradient(through_relu: bool) -> CudaKernel:
    """``out = gradient @ weight``: ``gradient [rows, depth]``, ``weight [depth, columns]``.

    ``through_relu`` lets it pass where ``extra``, the output of the ReLU before the layer, is above 0;
    otherwise ``extra`` is not read.
    """
    return _product(_ALONG_DEPTH, _ACROSS, _RELU_GRADIENT if through_relu else _NOTHING)


def weight_gradient() -> CudaKernel:
    """``gradient.T @ x`` over the samples: ``gradient [depth, rows]``, ``x [depth, columns - 1]``; ``extra``
    is not read.

    ``columns`` is one more than ``x`` has: in the last one every sample has a 1, which makes that column the
    gradient of the bias. The blocks of one ``blockIdx.z`` add up ``chunk`` samples and write them to a row of
    ``out``: the weight's gradient [rows, columns - 1] and right behind it the bias's [rows].
    """
    return _product(_ACROSS, _ACROSS, _WEIGHT_GRADIENT)


@functools.cache
def _product(left_layout: int, right_layout: int, finish: int) -> CudaKernel:
    # All that decides is known when the kernel is compiled; what does not apply leaves no code behind.
    ones = int(finish == _WEIGHT_GRADIENT)

    @compiled_cuda
    def kernel(
        left: Any, right: Any, extra: Any, out: Any, rows: int, columns: int, depth: int, chunk: int
    ) -> None:
        """Block (x, y, z): tile y of the rows, tile x of the columns, from depth ``z * chunk`` to ``(z + 1) *
        chunk``."""
        shared = cuda.shared.array(_SHARED, float32)
        thread = cuda.threadIdx.x
        warp = thread // WARP
        lane = thread % WARP
        first_row = cuda.blockIdx.y * TILE_ROWS
        first_column = cuda.blockIdx.x * TILE_COLUMNS
        begin = cuda.blockIdx.z * chunk
        end = begin + chunk
        if end > depth:
            end = depth
        stored = columns - ones
        my_row = lane // 8 * 4
        my_column = lane % 8
        sums = cuda.local.array(16, float32)
        four = cuda.local.array(4, float32)
        for at in range(16):
            sums[at] = float32(0)
        for start in range(begin, end, TILE_DEPTH):
            cuda.syncthreads()  # no thread reads the previous tiles any more
            for at in range(thread, TILE_ROWS * TILE_DEPTH, THREADS):
                if left_layout == _ALONG_DEPTH:
                    row = at // TILE_DEPTH
                    deep = at % TILE_DEPTH
                    place = (first_row + row) * depth + start + deep
                else:
                    row = at % TILE_ROWS
                    deep = at // TILE_ROWS
                    place = (start + deep) * rows + first_row + row
                value = float32(0)
                if first_row + row < rows and start + deep < end:
                    value = left[place]
                shared[deep * _LEFT + row] = value
            for at in range(thread, TILE_COLUMNS * TILE_DEPTH, THREADS):
                if right_layout == _ALONG_DEPTH:
                    column = at // TILE_DEPTH
                    deep = at % TILE_DEPTH
                    place = (first_column + column) * depth + start + deep
                else:
                    column = at % TILE_COLUMNS
                    deep = at // TILE_COLUMNS
                    place = (start + deep) * stored + first_column + column
                value = float32(0)
                if start + deep < end:
                    if first_column + column < stored:
                        value = right[place]
                    elif first_column + column < columns:
                        value = float32(1)
                shared[_RIGHT_BEGIN + deep * _RIGHT + column] = value
            cuda.syncthreads()
            for step in range(_SHARE):
                deep = warp * _SHARE + step
                for column in range(4):
                    four[column] = shared[_RIGHT_BEGIN + deep * _RIGHT + my_column + 8 * column]
                for row in range(4):
                    number = shared[deep * _LEFT + my_row + row]
                    for column in range(4):
                        sums[4 * row + column] += number * four[column]
        cuda.syncthreads()  # the tiles' place takes the sums
        for row in range(4):
            for column in range(4):
                shared[warp * _TILE + (my_row + row) * TILE_COLUMNS + my_column + 8 * column] = sums[
                    4 * row + column
                ]
        cuda.syncthreads()
        for at in range(thread, _TILE, THREADS):
            total = shared[at]
            for other in range(1, WARPS):
                total += shared[other * _TILE + at]
            row = first_row + at // TILE_COLUMNS
            column = first_column + at % TILE_COLUMNS
            if row < rows and column < columns:
                if finish in (_BIAS, _BIAS_RELU):
                    total += extra[column]
                if finish == _BIAS_RELU and total <= float32(0):
                    total = float32(0)
                if finish == _RELU_GRADIENT and extra[row * columns + column] <= float32(0):
                    total = float32(0)
                if finish == _WEIGHT_GRADIENT:
                    line = cuda.blockIdx.z * rows * columns
                    if column < stored:
                        out[line + row * stored + column] = total
                    else:
                        out[line + rows * stored + row] = total
                else:
                    out[row * columns + column] = total

    return CudaKernel(kernel, THREADS)
