"""The layers of the network over a block of images, and a training step made of them.

A step runs through all layers, forward and backward, with one block of images after the other, so that
everything between the image and the gradients stays in the cache of the core that works on it. Every thread
adds its blocks up in its own gradients, which are added in the order of the threads at the end: with the same
number of threads the same numbers come out to the last bit.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from rooflines.ext import aligned_array, compiled_vectors
from rooflines_studies.networks import cnn_numba_kernels as kernels
from rooflines_studies.networks.cnn_numba_kernels import IMAGE, LANES, POOL1, POOL2, WIDE, WINDOW, product

Floats = NDArray[np.float32]

PIXELS = IMAGE * IMAGE
HIDDEN = 128
CLASSES = 10
# Images that a thread takes through the network at once: 10 KiB each, plus 600 KiB of weights and gradients.
# Tiles of products have four or eight of them as rows, so a block begins at a multiple of ``ROWS``.
BLOCK = 32
ROWS = 8

# Where each parameter begins in the one array that holds all, and what lies there; a gradient and the
# momentum are laid out alike. Everything is padded to a multiple of WIDE. [9, 8] and the bias [8] of conv1
CONV1 = 0
CONV1_BIAS = 72
CONV2 = 80  # [16, 3, 3, 8]
CONV2_BIAS = CONV2 + 16 * WINDOW
DENSE1 = CONV2_BIAS + 16  # [5, 5, 16, 128], the inputs in the order of pool2 here
DENSE1_BIAS = DENSE1 + POOL2 * HIDDEN
DENSE2 = DENSE1_BIAS + HIDDEN  # [128, 16], of which ten columns are used and the others are 0
DENSE2_BIAS = DENSE2 + HIDDEN * WIDE
SIZE = DENSE2_BIAS + WIDE
# What ``spread_out`` writes, in the order of ``Weights``, without the padding of dense2.
COPIES = 9 * WIDE + WIDE + 9 * 8 * WIDE + HIDDEN * POOL2 + CLASSES * HIDDEN
CONV1_SUMS = 2 * 10 * WIDE  # conv1's gradient before the halves are added up


class Weights(NamedTuple):
    """The parameters, and copies of them in the order in which kernels read them (``spread_out`` makes
    them)."""

    parameters: Floats
    momentum: Floats
    conv1: Floats  # [9, 16], every channel twice
    conv1_bias: Floats
    conv2: Floats  # [3, 3, 8, 16]
    dense1: Floats  # [128, 400]
    dense2: Floats  # [10, 128]


class Gradients(NamedTuple):
    """The sums of each thread [threads, ...], and what they add up to."""

    conv1: Floats
    others: Floats
    losses: NDArray[np.float64]
    total: Floats


class Activations(NamedTuple):
    """Values kept for each image in flight, [images, ...]; ``of_`` are gradients."""

    pool1: Floats
    maxima: NDArray[np.int8]
    pool2: Floats
    windows: NDArray[np.int32]
    hidden: Floats
    logits: Floats
    of_logits: Floats
    of_hidden: Floats
    of_pool2: Floats
    of_pool1: Floats


def make_weights() -> Weights:
    """All zero."""
    return Weights(*_arrays(SIZE, SIZE, 9 * WIDE, WIDE, 9 * 8 * WIDE, HIDDEN * POOL2, WIDE * HIDDEN))


def make_gradients(threads: int) -> Gradients:
    """Sums for this many threads."""
    conv1, others, losses, total = _arrays(threads * CONV1_SUMS, threads * SIZE, 2 * threads, SIZE)
    return Gradients(conv1, others, losses.view(np.float64), total)


def make_activations(images: int, of_pool1: int) -> Activations:
    """Room for this many images, a multiple of ``ROWS``, and for the gradient of pool1 of ``of_pool1`` of
    them."""
    sizes = [POOL1, POOL1 // 4, POOL2, POOL2, HIDDEN, WIDE, WIDE, HIDDEN, POOL2]
    made = _arrays(*(images * size for size in sizes), of_pool1 * POOL1)
    made[1], made[3] = made[1].view(np.int8), made[3].view(np.int32)
    return Activations(*made)


def _arrays(*sizes: int) -> list[Any]:
    """Arrays of float32 zeros in one piece of memory, each from a cache line on."""
    line = 32  # floats of the longest cache line in use
    ends = np.cumsum([-(-size // line) * line for size in sizes])
    whole = aligned_array(int(ends[-1]) // 2).view(np.float32)
    return [whole[end - -(-size // line) * line :][:size] for end, size in zip(ends, sizes, strict=True)]


# --- tiles of the dense layers' products ------------------------------------------------------------------
_LANES = min(LANES, WIDE)
_FOUR = 4 if LANES >= WIDE else 2  # vectors of a tile whose row is a multiple of four of them
_FIVE = 5 if LANES >= WIDE else 2
_SMALL = WIDE // _LANES  # vectors of a row of the padded logits
_dense1 = product(
    4,
    _FOUR,
    lanes=_LANES,
    left_row=POOL2,
    left_step=1,
    right_step=HIDDEN,
    result_row=HIDDEN,
    start="bias",
    finish="relu",
)
_of_dense1 = product(
    4, _FOUR, lanes=_LANES, left_row=1, left_step=POOL2, right_step=HIDDEN, result_row=HIDDEN, start="sum"
)
_of_pool2 = product(
    4,
    _FIVE,
    lanes=_LANES,
    left_row=HIDDEN,
    left_step=1,
    right_step=POOL2,
    result_row=POOL2,
    finish="where positive",
)
_dense2 = product(
    8, _SMALL, lanes=_LANES, left_row=HIDDEN, left_step=1, right_step=WIDE, result_row=WIDE, start="bias"
)
_of_dense2 = product(
    8, _SMALL, lanes=_LANES, left_row=1, left_step=HIDDEN, right_step=WIDE, result_row=WIDE, start="sum"
)
_of_hidden = product(
    4,
    _FOUR,
    lanes=_LANES,
    left_row=WIDE,
    left_step=1,
    right_step=HIDDEN,
    result_row=HIDDEN,
    finish="where positive",
)


# --- layers: images ``first`` to ``first + count`` of the batch, kept at ``slot`` and behind --------------


@compiled_vectors
def conv1(x: Floats, first: int, count: int, slot: int, weights: Weights, kept: Activations) -> None:
    """conv1, ReLU, maximum."""
    for image in range(count):
        kernels.conv1_forward(
            x,
            (first + image) * PIXELS,
            weights.conv1,
            weights.conv1_bias,
            kept.pool1,
            kept.maxima,
            (slot + image) * POOL1,
        )


@compiled_vectors
def conv2(count: int, slot: int, weights: Weights, kept: Activations) -> None:
    """conv2, ReLU, maximum."""
    bias = weights.parameters[CONV2_BIAS:]
    for image in range(slot, slot + count):
        kernels.conv2_forward(
            kept.pool1, image * POOL1, weights.conv2, bias, kept.pool2, kept.windows, image * POOL2
        )


@compiled_vectors
def dense1(count: int, slot: int, weights: Weights, kept: Activations) -> None:
    """dense1, ReLU. Rounds ``count`` up to whole tiles, as all dense layers do."""
    for column in range(0, HIDDEN, _FOUR * _LANES):
        for image in range(slot, slot + count, 4):
            _dense1(
                kept.pool2,
                image * POOL2,
                weights.parameters,
                DENSE1 + column,
                kept.hidden,
                image * HIDDEN + column,
                POOL2,
                weights.parameters,
                DENSE1_BIAS + column,
            )


@compiled_vectors
def dense2(count: int, slot: int, weights: Weights, kept: Activations) -> None:
    """dense2."""
    for image in range(slot, slot + count, 8):
        _dense2(
            kept.hidden,
            image * HIDDEN,
            weights.parameters,
            DENSE2,
            kept.logits,
            image * WIDE,
            HIDDEN,
            weights.parameters,
            DENSE2_BIAS,
        )


@compiled_vectors
def loss(y: NDArray[np.int64], first: int, count: int, slot: int, kept: Activations) -> float:
    """The sum of the cross-entropies of softmax, and its gradient for the mean over the whole batch."""
    total = 0.0
    scale = np.float32(1.0 / y.size)
    for image in range(count):
        row = (slot + image) * WIDE
        largest = kept.logits[row]
        for column in range(1, CLASSES):
            largest = max(largest, kept.logits[row + column])
        sum_ = np.float32(0.0)
        for column in range(CLASSES):
            power = np.float32(math.exp(kept.logits[row + column] - largest))
            kept.of_logits[row + column] = power
            sum_ += power
        right = y[first + image]
        total += math.log(sum_) - (kept.logits[row + right] - largest)
        for column in range(CLASSES):
            kept.of_logits[row + column] *= scale / sum_
        kept.of_logits[row + right] -= scale
    return total


@compiled_vectors
def dense2_gradients(
    count: int, slot: int, weights: Weights, kept: Activations, sums: Floats, at: int
) -> None:
    """Gradients of dense2's weights and bias, and of dense1's output before ReLU."""
    for row in range(0, HIDDEN, 8):
        _of_dense2(
            kept.hidden,
            slot * HIDDEN + row,
            kept.of_logits,
            slot * WIDE,
            sums,
            at + DENSE2 + row * WIDE,
            count,
            sums,
            at,
        )
    for image in range(slot, slot + count):
        for column in range(CLASSES):
            sums[at + DENSE2_BIAS + column] += kept.of_logits[image * WIDE + column]
    for column in range(0, HIDDEN, _FOUR * _LANES):
        for image in range(slot, slot + count, 4):
            place = image * HIDDEN + column
            _of_hidden(
                kept.of_logits,
                image * WIDE,
                weights.dense2,
                column,
                kept.of_hidden,
                place,
                CLASSES,
                kept.hidden,
                place,
            )


@compiled_vectors
def dense1_weight_gradients(count: int, slot: int, kept: Activations, sums: Floats, at: int) -> None:
    """Gradients of dense1's weights and bias."""
    for row in range(0, POOL2, 4):
        for column in range(0, HIDDEN, _FOUR * _LANES):
            begin = at + DENSE1 + row * HIDDEN + column
            _of_dense1(
                kept.pool2,
                slot * POOL2 + row,
                kept.of_hidden,
                slot * HIDDEN + column,
                sums,
                begin,
                count,
                sums,
                at,
            )
    for image in range(slot, slot + count):
        for column in range(HIDDEN):
            sums[at + DENSE1_BIAS + column] += kept.of_hidden[image * HIDDEN + column]


@compiled_vectors
def dense1_input_gradients(count: int, slot: int, weights: Weights, kept: Activations) -> None:
    """Gradients of conv2's output before ReLU, at the maxima."""
    for column in range(0, POOL2, _FIVE * _LANES):
        for image in range(slot, slot + count, 4):
            place = image * POOL2 + column
            _of_pool2(
                kept.of_hidden,
                image * HIDDEN,
                weights.dense1,
                column,
                kept.of_pool2,
                place,
                HIDDEN,
                kept.pool2,
                place,
            )


@compiled_vectors
def conv2_gradients(
    image: int, gradient: int, weights: Weights, kept: Activations, sums: Floats, at: int
) -> None:
    """Gradients of conv2's weights and bias, and of pool1: of one image, to place ``gradient``."""
    kernels.conv2_gradients(
        kept.pool1,
        image * POOL1,
        kept.of_pool2,
        kept.windows,
        image * POOL2,
        weights.parameters[CONV2:],
        sums[at + CONV2 :],
        sums[at + CONV2_BIAS :],
        kept.of_pool1,
        gradient * POOL1,
    )


@compiled_vectors
def conv1_gradients(
    x: Floats, number: int, image: int, gradient: int, kept: Activations, sums: Floats, at: int
) -> None:
    """Gradients of conv1's weights and bias: of image ``number`` of the batch, kept at ``image``."""
    kernels.conv1_gradients(
        x, number * PIXELS, kept.of_pool1, gradient * POOL1, kept.maxima, image * POOL1, sums[at:]
    )


# --- a step -----------------------------------------------------------------------------------------------


_parallel = functools.partial(compiled_vectors, parallel=True)


@compiled_vectors
def part(number: int, parts: int, count: int, unit: int) -> tuple[int, int]:
    """Begin and end of the ``number``-th of ``parts`` equal parts of ``count``, in whole ``unit``s."""
    units = (count + unit - 1) // unit
    return min(number * units // parts * unit, count), min((number + 1) * units // parts * unit, count)


@compiled_vectors
def fold_conv1(sums: Floats, sums_at: int, target: Floats, at: int) -> None:
    """Add the quarters of conv1's sums [2, 10, 8, 2] up to the gradient [10, 8]."""
    for entry in range(10 * 8):
        upper, lower = sums_at + 2 * entry, sums_at + 2 * entry + 10 * WIDE
        target[at + CONV1 + entry] = (sums[upper] + sums[upper + 1]) + (sums[lower] + sums[lower + 1])


@compiled_vectors
def forward_block(x: Floats, first: int, count: int, slot: int, weights: Weights, kept: Activations) -> None:
    """All layers up to the logits."""
    conv1(x, first, count, slot, weights, kept)
    conv2(count, slot, weights, kept)
    dense1(count, slot, weights, kept)
    dense2(count, slot, weights, kept)


@compiled_vectors
def train_part(
    x: Floats,
    y: NDArray[np.int64],
    thread: int,
    threads: int,
    block: int,
    weights: Weights,
    kept: Activations,
    sums: Gradients,
) -> None:
    """A thread's part of a batch: the sum of its losses and gradients."""
    at, conv1_at, slot = thread * SIZE, thread * CONV1_SUMS, thread * block
    sums.others[at : at + SIZE] = np.float32(0)
    sums.conv1[conv1_at : conv1_at + CONV1_SUMS] = np.float32(0)
    total = 0.0
    begin, end = part(thread, threads, y.size, ROWS)
    for first in range(begin, end, block):
        count = min(block, end - first)
        forward_block(x, first, count, slot, weights, kept)
        total += loss(y, first, count, slot, kept)
        dense2_gradients(count, slot, weights, kept, sums.others, at)
        dense1_weight_gradients(count, slot, kept, sums.others, at)
        dense1_input_gradients(count, slot, weights, kept)
        for image in range(count):
            conv2_gradients(slot + image, thread, weights, kept, sums.others, at)
            conv1_gradients(x, first + image, slot + image, thread, kept, sums.conv1, conv1_at)
    fold_conv1(sums.conv1, conv1_at, sums.others, at)
    sums.losses[thread] = total


@compiled_vectors
def add_up(thread: int, threads: int, sums: Gradients) -> None:
    """A thread's part of the gradient: the sums of all threads, in their order."""
    begin, end = part(thread, threads, SIZE, WIDE)
    total, first = sums.total[begin:end], sums.others[begin:end]
    for entry in range(total.size):
        total[entry] = first[entry]
    for other in range(1, threads):
        # slices of one length: with offsets in the loop it would not become vectors
        own = sums.others[other * SIZE + begin : other * SIZE + end]
        for entry in range(total.size):
            total[entry] += own[entry]


@compiled_vectors
def sgd(
    thread: int,
    threads: int,
    weights: Weights,
    gradient: Floats,
    learning_rate: np.float32,
    momentum: np.float32,
) -> None:
    """A thread's part of the update."""
    begin, end = part(thread, threads, SIZE, WIDE)
    parameters, velocities, own = (
        weights.parameters[begin:end],
        weights.momentum[begin:end],
        gradient[begin:end],
    )
    for entry in range(parameters.size):
        velocity = momentum * velocities[entry] + own[entry]
        velocities[entry] = velocity
        parameters[entry] -= learning_rate * velocity


@compiled_vectors
def spread_out(thread: int, threads: int, weights: Weights) -> None:
    """A thread's part of the copies of the parameters."""
    parameters = weights.parameters
    begin, end = part(thread, threads, POOL2, WIDE)
    for row in range(begin, end, WIDE):
        for column in range(HIDDEN):
            for entry in range(row, min(row + WIDE, end)):
                weights.dense1[column * POOL2 + entry] = parameters[DENSE1 + entry * HIDDEN + column]
    if thread > 0:
        return
    for tap in range(9):
        for lane in range(WIDE):
            weights.conv1[tap * WIDE + lane] = parameters[CONV1 + tap * 8 + lane // 2]
    for lane in range(WIDE):
        weights.conv1_bias[lane] = parameters[CONV1_BIAS + lane // 2]
    for channel in range(WIDE):
        for entry in range(WINDOW):
            weights.conv2[entry * WIDE + channel] = parameters[CONV2 + channel * WINDOW + entry]
    for column in range(CLASSES):
        for entry in range(HIDDEN):
            weights.dense2[column * HIDDEN + entry] = parameters[DENSE2 + entry * WIDE + column]


@_parallel
def train(
    x: Floats,
    y: NDArray[np.int64],
    threads: int,
    block: int,
    weights: Weights,
    kept: Activations,
    sums: Gradients,
) -> float:
    """The mean loss of a batch; its gradient is then in ``sums.total``."""
    for thread in prange(threads):
        train_part(x, y, thread, threads, block, weights, kept, sums)
    for thread in prange(threads):
        add_up(thread, threads, sums)
    total = 0.0
    for thread in range(threads):
        total += sums.losses[thread]
    return total / y.size


@_parallel
def update(
    threads: int, weights: Weights, gradient: Floats, learning_rate: np.float32, momentum: np.float32
) -> None:
    """SGD with momentum."""
    for thread in prange(threads):
        sgd(thread, threads, weights, gradient, learning_rate, momentum)
    for thread in prange(threads):
        spread_out(thread, threads, weights)


@compiled_vectors
def operator_part(
    number: int,
    x: Floats,
    y: NDArray[np.int64],
    thread: int,
    threads: int,
    weights: Weights,
    kept: Activations,
    sums: Gradients,
) -> None:
    """A thread's part of the ``number``-th operator of ``cnn_numba.work``, over the whole batch: image i is
    kept at i."""
    begin, end = part(thread, threads, y.size, ROWS)
    count, at, conv1_at = end - begin, thread * SIZE, thread * CONV1_SUMS
    if number == 0:
        conv1(x, begin, count, begin, weights, kept)
    elif number == 1:
        conv2(count, begin, weights, kept)
    elif number == 2:
        dense1(count, begin, weights, kept)
    elif number == 3:
        dense2(count, begin, weights, kept)
    elif number == 4:
        sums.losses[thread] = loss(y, begin, count, begin, kept)
    elif number == 5:
        dense2_gradients(count, begin, weights, kept, sums.others, at)
    elif number == 6:
        dense1_weight_gradients(count, begin, kept, sums.others, at)
    elif number == 7:
        dense1_input_gradients(count, begin, weights, kept)
    elif number == 8:
        for image in range(begin, end):
            conv2_gradients(image, image, weights, kept, sums.others, at)
    elif number == 9:
        for image in range(begin, end):
            conv1_gradients(x, image, image, image, kept, sums.conv1, conv1_at)
        fold_conv1(sums.conv1, conv1_at, sums.others, at)
    else:
        add_up(thread, threads, sums)


@_parallel
def operator(
    number: int,
    x: Floats,
    y: NDArray[np.int64],
    threads: int,
    weights: Weights,
    kept: Activations,
    sums: Gradients,
) -> None:
    """The ``number``-th operator of ``cnn_numba.work`` on all threads; of the last one what comes before
    ``update``."""
    for thread in prange(threads):
        operator_part(number, x, y, thread, threads, weights, kept, sums)


@_parallel
def classify(
    x: Floats, threads: int, block: int, weights: Weights, kept: Activations, classes: NDArray[np.int64]
) -> None:
    """The class with the largest logit of each image, the first of equal ones."""
    for thread in prange(threads):
        slot = thread * block
        begin, end = part(thread, threads, classes.size, ROWS)
        for first in range(begin, end, block):
            count = min(block, end - first)
            forward_block(x, first, count, slot, weights, kept)
            for image in range(count):
                row = (slot + image) * WIDE
                best = 0
                for column in range(1, CLASSES):
                    if kept.logits[row + column] > kept.logits[row + best]:
                        best = column
                classes[first + image] = best
