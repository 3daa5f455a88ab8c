"""FLOPs per element of everything that is not a matrix product: the one table, with its reasons.

The basic operations (add, multiply, divide, square root, compare, minimum, rounding, bit and logic
operations) cost 1: processors issue each as one instruction, and a table that weighted division by its
latency would be a table of one processor. A transcendental is what its usual single-precision code does:
range reduction and a polynomial of degree 5 or 6, about 10 operations. Everything else is written out of
these two.
"""

from __future__ import annotations

from math import ceil, inf, log2

from rooflines.profiler.read.signature import Argument

BASIC = 1
# exp, log, sin, cos: reduce the range (3), then 5 or 6 multiply-adds, some of them fused with the rest
TRANSCENDENTAL = 10

SPECIAL = (
    4 * TRANSCENDENTAL
)  # Bessel, gamma, inverse error functions: two polynomials of degree 7, a transcendental, 2 to join
ORTHOGONAL_POLYNOMIAL = (
    2 * TRANSCENDENTAL + 1
)  # cos(n * acos(x)); a recurrence of 5 steps of 4; the degree is data
INCOMPLETE_GAMMA = (
    40 + SPECIAL + 2 * TRANSCENDENTAL
)  # a series of 10 terms of 4, times exp(a * log(x) - x - lgamma(a))
ZETA = 9 * (2 * TRANSCENDENTAL + 2) + 36  # Euler-Maclaurin: 9 powers added, then 12 corrections of 3

SIGMOID = TRANSCENDENTAL + 3  # 1 / (1 + exp(-x))
TANH = TRANSCENDENTAL + 4  # e = exp(2x); (e - 1) / (e + 1)
ERF = 2 * TRANSCENDENTAL  # exp(-x²) times a rational polynomial of degree 5
SOFTPLUS = 2 * TRANSCENDENTAL + 1  # log(1 + exp(x))
LOG_ADD = SOFTPLUS + 3  # max(x, y) + log(1 + exp(-abs(x - y)))
GELU = (
    ERF + 4
    # x * 0.5 * (1 + erf(x * 0.707)); the tanh form costs the same, for traces do not record which was asked
    # for
)
SILU = SIGMOID + 1  # x * sigmoid(x)
HARDSIGMOID = 4  # min(max(x + 3, 0), 6) / 6
HARDSWISH = HARDSIGMOID + 1  # x * hardsigmoid(x)
MISH = SOFTPLUS + TANH + 1  # x * tanh(softplus(x))
POW = 2 * TRANSCENDENTAL + 1  # exp(y * log(x)); a square is 1, see elementwise.py

COMPLEX_ADD = 2  # the real and the imaginary parts
# four products, a subtraction, an addition; and each basic operation of a function that has no row here
COMPLEX_MULTIPLY = 6
COMPLEX_DIVIDE = 11  # a product with the conjugate 6, c² + d² 3, two divisions
COMPLEX_ABS = 4  # sqrt(a² + b²)
COMPLEX_SQRT = COMPLEX_ABS + 6  # t = sqrt((abs(z) + abs(a)) / 2), b / (2t), the sign
COMPLEX_TRANSCENDENTAL = 3 * TRANSCENDENTAL + 2  # exp(a) * (cos(b) + i sin(b)); log(abs(z)) + i atan2(b, a)
ARCTANGENT = TRANSCENDENTAL + 4  # atan(y / x), in its quadrant

REJECTION = (
    6 * TRANSCENDENTAL
)  # Poisson, binomial, gamma numbers: a normal 22, a logarithm, a test 8; a try and a half

SOFTMAX = TRANSCENDENTAL + 4  # max, subtract, exp, sum, divide
SOFTMAX_BACKWARD = 4  # y * (g - sum(g * y)): multiply and add for the sum, subtract, multiply
SOFTMAX_FROM_LOG_SUM = (
    TRANSCENDENTAL + 1
)  # exp(x - log_sum): attention's backward has the sum from its forward
LOG_SOFTMAX_BACKWARD = TRANSCENDENTAL + 3  # g - exp(y) * sum(g)

MEAN_AND_VARIANCE = 4  # add; subtract, multiply, add
SCALE_AND_SHIFT = 2  # x * a + b, the statistics folded into a and b
BATCH_NORM_BACKWARD = (
    9  # sum(g) 1, sum(g * (x - m)) 3, (g - a - (x - m) * b) * c 5; without what was not asked for
)
BATCH_NORM_EVAL_BACKWARD = 5  # g * scale 1, sum(g) 1, sum(g * (x - m)) 3
GATHER_STATISTICS = (
    10  # a device's mean and deviation into those of all: variance 3, difference 1, mean 2, squares 4
)
LAYER_NORM = MEAN_AND_VARIANCE + SCALE_AND_SHIFT + 2  # with a weight and a bias
LAYER_NORM_BACKWARD = (
    14  # normalize x 2, g * w 1, two row sums 3, combine 5, weight gradient 2, bias gradient 1
)
RMS_NORM = 4  # multiply and add for the mean square, x * r * w
RMS_NORM_BACKWARD = 10  # normalize x 1, g * w 1, one row sum 2, combine 4, weight gradient 2
ROTARY_EMBEDDING = 3  # x * cos - y * sin
WEIGHT_NORM = 3  # multiply and add for the norm, multiply by g / norm
WEIGHT_NORM_BACKWARD = 5  # multiply and add for sum(g * v), (g - v * a) * b 3

LSTM_CELL = (
    3 * SIGMOID + 2 * TANH + 8
)  # four gates, their two products added 4; f * c + i * g 3, o * tanh(c) 1; biases apart
LSTM_CELL_BACKWARD = (
    TANH + 23
)  # tanh(c) again; of c 5, of o, i, f and g 4 each, of the c before 1, joining two gradients of h 1
GRU_CELL = (
    2 * SIGMOID + TANH + 7
)  # three gates, two sums; n's r * h and sum 2, n + z * (h - n) 3; biases apart
GRU_CELL_BACKWARD = (
    16  # of z 5, of n 4, of r 4, of n's r * h 1, of the h before 1, joining two gradients of h 1
)
RNN_CELL = TANH + 1  # tanh of a sum of two products; with relu 2; biases apart
RNN_CELL_BACKWARD = 4  # g * (1 - h²) 3, joining two gradients of h 1; with relu 2

QUANTIZE = 5  # x * (1 / scale), round, add the zero point, minimum, maximum
DYNAMIC_QUANTIZE = QUANTIZE + 2  # a range and a scale for each block, then the number itself
DEQUANTIZE = 2  # (q - zero) * scale
FAKE_QUANTIZE = QUANTIZE + DEQUANTIZE + 3  # to integers and back; was it inside: two compares, one and
FAKE_QUANTIZE_BACKWARD = (
    QUANTIZE + 10
)  # the integers again, inside 3; g for x 1, for the scale 4, for the zero point 2

PIXEL_POSITION = 4  # ((x + 1) * size - 1) / 2: where a coordinate of a grid is among the pixels
CUBIC_WEIGHT = 5  # ((a + 2) * x - (a + 3)) * x² + 1
OVERLAP = 13  # of two boxes over their union: corners 4, sides 4, product 1, union 2, divide, compare

CTC_STEP = (
    4 * TRANSCENDENTAL + 9
)  # log(exp + exp + exp) of three paths: two maxima, three subtractions, two sums, two additions

SGD = 2  # p - lr * g
SGD_MOMENTUM = 3  # m * momentum + g * (1 - dampening)
SGD_NESTEROV = 2  # g + momentum * m
WEIGHT_DECAY = 2  # g + decay * p, or p * (1 - lr * decay)
ADAM = 13  # m: 3 (lerp), v: 4, sqrt / c + eps: 3, p - step * m / d: 3
AMSGRAD = 1  # max(v, v_max)
ADAGRAD = 7  # s + g²: 2, sqrt + eps: 2, p - lr * g / d: 3
UNSCALE = 2  # g * scale, is it finite


def norm_cost(order: Argument, complex_numbers: bool = False) -> int:
    """FLOPs an element of a vector norm: its absolute value to the power of ``order``, added; or its largest
    absolute value."""
    plain = order is None or order in (0, 1, 2, inf, -inf)
    if plain:
        return 4 if complex_numbers else 2
    return POW + 2 + (COMPLEX_ABS - 1) * complex_numbers


def compares(length: int) -> int:
    """Compares that one element takes on its way through a sort of ``length``, or a search among as many
    sorted ones."""
    return ceil(log2(length)) if length > 1 else 0
