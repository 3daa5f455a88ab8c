"""FLOPs per element of everything that is not a matrix product: the one table, with its reasons.

The basic operations (add, multiply, divide, square root, compare, minimum, rounding, bit and logic operations) cost 1: processors issue
each as one instruction, and a table that weighted division by its latency would be a table of one processor. A transcendental is what
its usual single-precision code does: range reduction and a polynomial of degree 5 or 6, about 10 operations. Everything else is
written out of these two.
"""

from __future__ import annotations

from typing import Final

BASIC: Final = 1
TRANSCENDENTAL: Final = 10  # exp, log, sin, cos: reduce the range (3), then 5 or 6 multiply-adds, some of them fused with the rest

SIGMOID: Final = TRANSCENDENTAL + 3  # 1 / (1 + exp(-x))
TANH: Final = TRANSCENDENTAL + 4  # e = exp(2x); (e - 1) / (e + 1)
ERF: Final = 2 * TRANSCENDENTAL  # exp(-x²) times a rational polynomial of degree 5
SOFTPLUS: Final = 2 * TRANSCENDENTAL + 1  # log(1 + exp(x))
GELU: Final = ERF + 4  # x * 0.5 * (1 + erf(x * 0.707)); traces do not record whether the tanh form was asked for
SILU: Final = SIGMOID + 1  # x * sigmoid(x)
HARDSIGMOID: Final = 4  # min(max(x + 3, 0), 6) / 6
HARDSWISH: Final = HARDSIGMOID + 1  # x * hardsigmoid(x)
MISH: Final = SOFTPLUS + TANH + 1  # x * tanh(softplus(x))
POW: Final = 2 * TRANSCENDENTAL + 1  # exp(y * log(x)); a square is 1, see elementwise.py

SOFTMAX: Final = TRANSCENDENTAL + 4  # max, subtract, exp, sum, divide
SOFTMAX_BACKWARD: Final = 4  # y * (g - sum(g * y)): multiply and add for the sum, subtract, multiply
LOG_SOFTMAX_BACKWARD: Final = TRANSCENDENTAL + 3  # g - exp(y) * sum(g)

MEAN_AND_VARIANCE: Final = 4  # add; subtract, multiply, add
SCALE_AND_SHIFT: Final = 2  # x * a + b, the statistics folded into a and b
BATCH_NORM_BACKWARD: Final = 9  # sum(g) 1, sum(g * (x - m)) 3, (g - a - (x - m) * b) * c 5
BATCH_NORM_EVAL_BACKWARD: Final = 5  # g * scale 1, sum(g) 1, sum(g * (x - m)) 3
LAYER_NORM_BACKWARD: Final = 14  # normalise x 2, g * w 1, two row sums 3, combine 5, weight gradient 2, bias gradient 1
RMS_NORM: Final = 4  # multiply and add for the mean square, x * r * w
RMS_NORM_BACKWARD: Final = 10  # normalise x 1, g * w 1, one row sum 2, combine 4, weight gradient 2

SGD: Final = 2  # p - lr * g
SGD_MOMENTUM: Final = 3  # m * momentum + g * (1 - dampening)
SGD_NESTEROV: Final = 2  # g + momentum * m
WEIGHT_DECAY: Final = 2  # g + decay * p, or p * (1 - lr * decay)
ADAM: Final = 13  # m: 3 (lerp), v: 4, sqrt / c + eps: 3, p - step * m / d: 3
AMSGRAD: Final = 1  # max(v, v_max)
ADAGRAD: Final = 7  # s + g²: 2, sqrt + eps: 2, p - lr * g / d: 3
UNSCALE: Final = 2  # g * scale, is it finite
