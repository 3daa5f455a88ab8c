"""The inner kernels of the network on a CPU: convolution, ReLU and maximum in one, their gradients in one,
and tiles of a product.

Activations are stored with the channels innermost. A vector of sixteen floats is one register with AVX-512,
two with AVX2, four with NEON; the tiles are chosen by how many registers there are.

**What cannot matter is left out.** The last row and column of conv2's output lie in no window of its pooling,
so that of pool1 only ``SIDE1`` x ``SIDE1`` positions are ever read; neither is computed. Through a pooling a
gradient reaches one position in four: conv2's gradients of weights and of input are sums over the 25 maxima
of each channel, not over its 121 positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rooflines.ext import BYTE_TYPE, VectorCode, emitted_vectors, vector_bytes

LANES = vector_bytes() // 4
IMAGE = 28  # pixels a side
CHANNELS1, CHANNELS2 = 8, 16
SIDE1, SIDE2 = 12, 5  # pooled positions a side that are computed
ROW1 = SIDE1 * CHANNELS1  # floats of a row of pool1
TAPS = 3  # a side
WINDOW = TAPS * TAPS * CHANNELS1  # inputs of an output of conv2
WIDE = 16  # lanes of the vectors that kernels are written in
# pool1 for one image: floats, and as many bytes that say where each maximum was
POOL1 = SIDE1 * ROW1
# pool2 for one image: floats, and as many int32 offsets of the window of each maximum in pool1
POOL2 = SIDE2 * SIDE2 * CHANNELS2
INACTIVE = 4  # where a maximum was not above 0, so that ReLU stops its gradient
# Windows of conv2's pooling that are worked on side by side: 4 vectors of 16 floats each, of 32 registers or
# 16
_WINDOWS = 5 if LANES >= WIDE else 1


def _maximum(code: VectorCode, values: Sequence[Any], names: Sequence[Any]) -> tuple[Any, Any]:
    """The largest of ``values``, the first of equal ones, and its name."""
    best, name = values[0], names[0]
    for value, other in zip(values[1:], names[1:], strict=True):
        wins = code.later(value, best)
        best, name = code.select(wins, value, best), code.select(wins, other, name)
    return best, name


@emitted_vectors
def conv1_forward(
    code: VectorCode, image: Any, image_at: Any, weights: Any, bias: Any, pooled: Any, maxima: Any, at: Any
) -> None:
    """conv1, ReLU and the maximum of 2 x 2 for one image [28, 28].

    ``weights`` [9, 16] and ``bias`` [16] have every channel twice: the even lanes are the left of two
    neighboring positions, the odd ones the right, and two neighboring pixels are broadcast as one. Writes
    ``pooled`` [12, 12, 8] and to ``maxima`` (int8) which position of the window was largest, row by row, or
    ``INACTIVE``.
    """
    image, pooled, maxima = code.at(image, image_at), code.at(pooled, at), code.at(maxima, at)
    taps = [code.load(weights, WIDE * tap, WIDE) for tap in range(TAPS * TAPS)]
    start = code.load(bias, 0, WIDE)
    left = [*range(0, 2 * WIDE, 2)]  # of two windows: the channels of the first, then those of the second
    right = [lane + 1 for lane in left]
    places = [code.constants([place] * WIDE) for place in range(INACTIVE + 1)]
    with code.loop(SIDE1) as row:
        pixels = code.at(image, code.scaled(row, 2 * IMAGE))
        line = code.scaled(row, ROW1)
        with code.loop(SIDE1 // 2) as two:
            corner = code.at(pixels, code.scaled(two, 4))
            sums = {(window, down): start for window in (0, 1) for down in (0, 1)}
            for y in range(TAPS + 1):
                pairs = [code.broadcast_pair(corner, y * IMAGE + x, WIDE) for x in range(TAPS + 2)]
                for x in range(TAPS):
                    for window, down in sums:
                        if 0 <= y - down < TAPS:
                            tap = taps[(y - down) * TAPS + x]
                            sums[window, down] = code.fma(pairs[2 * window + x], tap, sums[window, down])
            values = [
                code.shuffle(sums[0, down], sums[1, down], side) for down in (0, 1) for side in (left, right)
            ]
            best, place = _maximum(code, values, places[:4])
            active = code.greater(best, code.zeros(WIDE))
            target = code.at(pooled, line), code.at(maxima, line)
            offset = code.scaled(two, WIDE)
            code.store(code.relu(best), target[0], offset)
            code.store(code.narrow(code.select(active, place, places[INACTIVE])), target[1], offset)


@emitted_vectors
def conv1_gradients(
    code: VectorCode,
    image: Any,
    image_at: Any,
    gradient: Any,
    at: Any,
    maxima: Any,
    maxima_at: Any,
    sums: Any,
) -> None:
    """Add to ``sums`` [2, 10, 16] the gradients of conv1's weights (9) and bias (1), each twice as in
    ``conv1_forward``.

    ``gradient`` [12, 12, 8] is that of pool1. The two halves of ``sums`` are those of the window's upper and
    lower row, to be added up at the end.
    """
    image, gradient, maxima = code.at(image, image_at), code.at(gradient, at), code.at(maxima, maxima_at)
    terms = TAPS * TAPS + 1
    totals = [code.variable(code.load(sums, WIDE * term, WIDE)) for term in range(2 * terms)]
    twice = [channel for channel in range(CHANNELS1) for _ in range(2)]
    places = [code.constants([2 * down, 2 * down + 1] * CHANNELS1, BYTE_TYPE) for down in (0, 1)]
    with code.loop(SIDE1) as row:
        pixels = code.at(image, code.scaled(row, 2 * IMAGE))
        line = code.scaled(row, ROW1)
        above, where = code.at(gradient, line), code.at(maxima, line)
        with code.loop(SIDE1) as column:
            corner = code.at(pixels, code.scaled(column, 2))
            offset = code.scaled(column, CHANNELS1)
            both, place = code.load(above, offset, CHANNELS1), code.load(where, offset, CHANNELS1)
            both, place = code.shuffle(both, both, twice), code.shuffle(place, place, twice)
            reached = [
                code.select(code.equal(place, places[down]), both, code.zeros(WIDE)) for down in (0, 1)
            ]
            for y in range(TAPS + 1):
                for x in range(TAPS):
                    pair = code.broadcast_pair(corner, y * IMAGE + x, WIDE)
                    for down in (0, 1):
                        if 0 <= y - down < TAPS:
                            total = totals[down * terms + (y - down) * TAPS + x]
                            code.set(total, code.fma(pair, reached[down], code.get(total)))
            for down in (0, 1):
                total = totals[down * terms + TAPS * TAPS]
                code.set(total, code.add(code.get(total), reached[down]))
    for term, total in enumerate(totals):
        code.store(code.get(total), sums, WIDE * term)


@emitted_vectors
def conv2_forward(
    code: VectorCode, inputs: Any, inputs_at: Any, weights: Any, bias: Any, pooled: Any, windows: Any, at: Any
) -> None:
    """conv2, ReLU and the maximum of 2 x 2 for one image: ``inputs`` is pool1 [12, 12, 8].

    ``weights`` [3, 3, 8, 16] and ``bias`` [16] have the output channels innermost. Writes ``pooled`` [5, 5,
    16], and to ``windows`` (int32) how far into pool1 the 3 x 3 inputs of each maximum begin.
    """
    inputs, pooled, windows = code.at(inputs, inputs_at), code.at(pooled, at), code.at(windows, at)
    start = code.load(bias, 0, WIDE)
    steps = [down * ROW1 + right * CHANNELS1 for down in (0, 1) for right in (0, 1)]
    outputs = [2 * CHANNELS1 * window + step for window in range(_WINDOWS) for step in steps]
    with code.loop(SIDE2) as row, code.loop(SIDE2 // _WINDOWS) as group:
        corner = code.plus(code.scaled(row, 2 * ROW1), code.scaled(group, 2 * CHANNELS1 * _WINDOWS))
        sums = [code.variable(start) for _ in outputs]
        for y in range(TAPS):
            line = code.at(inputs, code.plus(corner, code.number(y * ROW1)))
            block = code.at(weights, y * TAPS * CHANNELS1 * WIDE)
            with code.loop(TAPS * CHANNELS1) as step:
                tap = code.load(block, code.scaled(step, WIDE), WIDE)
                first = code.at(line, step)
                for total, output in zip(sums, outputs, strict=True):
                    code.set(total, code.fma(code.broadcast(first, output, WIDE), tap, code.get(total)))
        values = [code.get(total) for total in sums]
        for window in range(_WINDOWS):
            names = [code.constants([2 * CHANNELS1 * window + step] * WIDE) for step in steps]
            best, name = _maximum(code, values[4 * window : 4 * window + 4], names)
            number = code.plus(code.scaled(row, SIDE2), code.scaled(group, _WINDOWS))
            place = code.scaled(code.plus(number, code.number(window)), WIDE)
            code.store(code.relu(best), pooled, place)
            code.store(code.plus(name, code.spread(corner, WIDE)), windows, place)


@emitted_vectors
def conv2_gradients(
    code: VectorCode,
    inputs: Any,
    inputs_at: Any,
    above: Any,
    windows: Any,
    at: Any,
    weights: Any,
    of_weights: Any,
    of_bias: Any,
    of_inputs: Any,
    of_inputs_at: Any,
) -> None:
    """Add one image's gradients to those of conv2's weights [16, 3, 3, 8] and bias [16], and write that of
    its input [12, 12, 8].

    ``above`` [5, 5, 16] is the gradient of pool2, 0 where ReLU stops it; each of its 400 elements reaches the
    3 x 3 inputs of its maximum and nothing else.
    """
    inputs, above, windows = code.at(inputs, inputs_at), code.at(above, at), code.at(windows, at)
    of_inputs = code.at(of_inputs, of_inputs_at)
    with code.loop(POOL1 // WIDE) as part:
        code.store(code.zeros(WIDE), of_inputs, code.scaled(part, WIDE))
    bias = code.variable(code.load(of_bias, 0, WIDE))
    with code.loop(SIDE2 * SIDE2) as place:
        code.set(bias, code.add(code.get(bias), code.load(above, code.scaled(place, WIDE), WIDE)))
    code.store(code.get(bias), of_bias, 0)
    taps = [(y * ROW1 + x * CHANNELS1, (y * TAPS + x) * CHANNELS1) for y in range(TAPS) for x in range(TAPS)]
    with code.loop(CHANNELS2) as channel:
        own, target = (code.at(array, code.scaled(channel, WINDOW)) for array in (weights, of_weights))
        weight = [code.load(own, tap, CHANNELS1) for _, tap in taps]
        totals = [code.variable(code.load(target, tap, CHANNELS1)) for _, tap in taps]
        with code.loop(SIDE2 * SIDE2) as place:
            element = code.plus(code.scaled(place, WIDE), channel)
            gradient = code.broadcast(above, element, CHANNELS1)
            begin = code.index(windows, element)
            source, drain = code.at(inputs, begin), code.at(of_inputs, begin)
            for (offset, _), tap, total in zip(taps, weight, totals, strict=True):
                code.set(total, code.fma(gradient, code.load(source, offset, CHANNELS1), code.get(total)))
                # eight floats at a time, at multiples of eight: the next load of them finds exactly this
                # store
                code.store(code.fma(gradient, tap, code.load(drain, offset, CHANNELS1)), drain, offset)
        for (_, tap), total in zip(taps, totals, strict=True):
            code.store(code.get(total), target, tap)


def product(
    rows: int,
    vectors: int,
    *,
    lanes: int,
    left_row: int,
    left_step: int,
    right_step: int,
    result_row: int,
    start: Literal["zero", "bias", "sum"] = "zero",
    finish: Literal["", "relu", "where positive"] = "",
) -> Any:
    """A kernel for one tile of a matrix product: ``rows`` x (``vectors`` * ``lanes``) sums of ``steps``
    products, all in registers.

    Element (r, s) of the left matrix is ``left_row * r + left_step * s`` after ``left_at``, row s of the
    right one ``right_step * s`` after ``right_at``, row r of the result ``result_row * r`` after
    ``result_at``. The sums start at 0, at a bias for each column or at what is in the result; they end as
    they are, with ReLU, or as 0 where another matrix in the layout of the result is not positive. ``other``
    is that bias or matrix.
    """

    def tile(
        code: VectorCode,
        left: Any,
        left_at: Any,
        right: Any,
        right_at: Any,
        result: Any,
        result_at: Any,
        steps: Any,
        other: Any,
        other_at: Any,
    ) -> None:
        left, right, result = code.at(left, left_at), code.at(right, right_at), code.at(result, result_at)
        other = code.at(other, other_at)
        places = [(row, vector * lanes) for row in range(rows) for vector in range(vectors)]
        sums = []
        for row, column in places:
            if start == "zero":
                first = code.zeros(lanes)
            elif start == "bias":
                first = code.load(other, column, lanes)
            else:
                first = code.load(result, row * result_row + column, lanes)
            sums.append(code.variable(first))
        with code.loop(steps) as step:
            line = code.at(right, code.scaled(step, right_step))
            factors = [code.load(line, vector * lanes, lanes) for vector in range(vectors)]
            own = code.at(left, code.scaled(step, left_step))
            for row in range(rows):
                factor = code.broadcast(own, row * left_row, lanes)
                for vector in range(vectors):
                    total = sums[row * vectors + vector]
                    code.set(total, code.fma(factor, factors[vector], code.get(total)))
        for (row, column), total in zip(places, sums, strict=True):
            value = code.get(total)
            if finish == "relu":
                value = code.relu(value)
            elif finish == "where positive":
                kept = code.greater(code.load(other, row * result_row + column, lanes), code.zeros(lanes))
                value = code.select(kept, value, code.zeros(lanes))
            code.store(value, result, row * result_row + column)

    return emitted_vectors(tile)
