"""Bytes of whole calls as a trace records them, also of operators that PyTorch decomposes: the storage they are given and give back.

``test_oracle.py`` has every operator below them, as a recording sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.ops import aten

from rooflines.roofline.formulas import count
from tests.roofline.formulas.oracle import storage, tensors_of
from tests.roofline.formulas.traces import signatures

torch.manual_seed(0)
X = torch.rand(2, 6, 9, 8) + 0.1
Y = torch.rand(2, 6, 9, 8) + 0.1
Z = torch.rand(2, 6, 9, 8) + 0.1
ROW = torch.rand(8)
COLUMN = torch.rand(9, 1)
EXPANDED = torch.rand(1, 6, 1, 8).expand(2, 6, 9, 8)
BF16 = torch.rand(2, 6, 9, 8).bfloat16()
INTEGERS = torch.randint(1, 5, (2, 6, 9, 8))
MASK = torch.rand(2, 6, 9, 8) > 0.5
CHANNELS = [torch.rand(6) + 0.1 for _ in range(4)]
MATRIX = torch.rand(7, 5)
BATCH = torch.rand(3, 4, 7)
LOGITS = torch.rand(5, 10)
CLASSES = torch.randint(0, 10, (5,))
PROBABILITIES = torch.rand(5, 10).softmax(1)
INDEX = torch.tensor([4, 0, 2])
TABLE = torch.rand(11, 6)
HEADS = [torch.rand(2, 3, 7, 4) for _ in range(3)]
LOGIT_MASK = torch.rand(1, 1, 7, 7)


# Operator with its tensors. It reads all of them and writes what it returns; an in-place one returns its first tensor.
CASES: dict[str, tuple[Callable[..., object], list[Any]]] = {
    "add": (torch.add, [X, Y]),
    "add broadcast": (torch.add, [X, ROW]),
    "add two broadcast": (torch.add, [COLUMN, ROW]),
    "add expanded": (torch.add, [X, EXPANDED]),
    "add mixed": (torch.add, [X, BF16]),
    "add in place": (lambda x, y: x.add_(y), [X.clone(), Y]),
    "sub": (torch.sub, [BF16, BF16.clone()]),
    "mul": (torch.mul, [X, COLUMN]),
    "div integers": (torch.div, [INTEGERS, INTEGERS.clone()]),
    "pow": (lambda x: x**2, [X]),
    "exp integers": (torch.exp, [INTEGERS]),
    "relu": (torch.relu, [X]),
    "relu in place": (torch.relu_, [X.clone()]),
    "gelu": (functional.gelu, [BF16]),
    "hardswish": (functional.hardswish, [X]),
    "sigmoid strided": (torch.sigmoid, [X[:, ::2]]),
    "silu in place": (lambda x: functional.silu(x, inplace=True), [X.clone()]),
    "hardtanh": (lambda x: functional.hardtanh(x, 0.0, 6.0), [X]),
    "clamp": (lambda x: x.clamp(0.1, 0.5), [X]),
    "eq": (lambda x: x == 1, [INTEGERS]),
    "lt": (torch.lt, [X, Y]),
    "logical_not": (torch.logical_not, [MASK]),
    "bitwise_and": (torch.bitwise_and, [MASK, MASK.clone()]),
    "where": (torch.where, [MASK, X, Y]),
    "masked_fill": (lambda x, m: x.masked_fill(m, 0.0), [X, MASK]),
    "addcmul": (torch.addcmul, [X, Y, Z]),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), [X, Y]),
    "threshold_backward": (lambda g, x: aten.threshold_backward(g, x, 0), [X, Y]),
    "gelu_backward": (aten.gelu_backward, [X, Y]),
    "sigmoid_backward": (aten.sigmoid_backward, [X, Y]),
    "glu": (functional.glu, [X]),
    "native_dropout": (lambda x: torch.native_dropout(x, 0.5, True), [X]),
    "softmax": (lambda x: x.softmax(-1), [X]),
    "log_softmax": (lambda x: x.log_softmax(1), [LOGITS]),
    "softmax backward": (lambda g, y: aten._softmax_backward_data(g, y, 1, torch.float32), [LOGITS, PROBABILITIES]),
    "sum": (torch.sum, [X]),
    "sum dims": (lambda x: x.sum((0, 2), keepdim=True), [X]),
    "sum expanded": (torch.sum, [EXPANDED]),
    "sum booleans": (torch.sum, [MASK]),
    "sum dims as float64": (lambda x: x.sum(1, dtype=torch.float64), [X]),
    "sum all as float32": (lambda x: x.sum(dtype=torch.float32), [BF16]),
    "mean as float32": (lambda x: x.mean(1, dtype=torch.float32), [BF16]),
    "softmax as float32": (lambda x: x.softmax(-1, dtype=torch.float32), [BF16]),
    "cumsum as int32": (lambda x: x.cumsum(-1, dtype=torch.int32), [INTEGERS]),
    "prelu": (functional.prelu, [X, CHANNELS[0]]),
    "var unbiased": (lambda x: x.var(unbiased=False), [X]),
    "min dim": (lambda x: x.min(-1), [BF16]),
    "std_mean": (torch.std_mean, [X]),
    "mean": (lambda x: x.mean((-1, -2)), [X]),
    "max": (torch.max, [X]),
    "max dim": (lambda x: x.max(1), [X]),
    "max of two": (torch.max, [X, Y]),
    "amax": (lambda x: x.amax(-1), [X]),
    "argmax": (lambda x: x.argmax(-1), [X]),
    "any": (torch.any, [MASK]),
    "all dim": (lambda x: x.all(1), [MASK]),
    "var": (lambda x: x.var(1), [X]),
    "var_mean": (lambda x: torch.var_mean(x, 1), [X]),
    "std": (torch.std, [X]),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), [X]),
    "norm old": (torch.norm, [X]),
    "prod": (torch.prod, [X]),
    "logsumexp": (lambda x: x.logsumexp(-1), [X]),
    "cumsum": (lambda x: x.cumsum(-1), [X]),
    "cumsum integers": (lambda x: x.cumsum(-1), [MASK]),
    "topk": (lambda x: x.topk(3, -1), [X]),
    "sort": (lambda x: x.sort(-1), [X]),
    "mm": (torch.mm, [MATRIX, torch.rand(5, 6)]),
    "mm transposed": (lambda a, b: torch.mm(a, b), [torch.rand(5, 7).t(), torch.rand(5, 6)]),
    "bmm": (torch.bmm, [BATCH, torch.rand(3, 7, 2)]),
    "bmm expanded": (torch.bmm, [BATCH, torch.rand(1, 7, 2).expand(3, 7, 2)]),
    "mv": (torch.mv, [MATRIX, torch.rand(5)]),
    "dot": (torch.dot, [ROW, ROW.clone()]),
    "matmul broadcast": (torch.matmul, [torch.rand(2, 1, 4, 7), torch.rand(3, 7, 2)]),
    "addmm": (torch.addmm, [torch.rand(6), MATRIX, torch.rand(5, 6)]),
    "baddbmm": (torch.baddbmm, [torch.rand(3, 4, 2), BATCH, torch.rand(3, 7, 2)]),
    "linear": (functional.linear, [BATCH, torch.rand(5, 7), torch.rand(5)]),
    "linear bf16": (functional.linear, [BATCH.bfloat16(), torch.rand(5, 7).bfloat16()]),
    "conv2d": (functional.conv2d, [X, torch.rand(4, 6, 3, 3), torch.rand(4)]),
    "conv2d grouped": (lambda x, w: functional.conv2d(x, w, groups=3, padding=1), [X, torch.rand(9, 2, 3, 3)]),
    "conv1d": (functional.conv1d, [BATCH, torch.rand(5, 4, 3)]),
    "conv3d": (functional.conv3d, [torch.rand(1, 2, 5, 6, 7), torch.rand(3, 2, 2, 3, 2)]),
    "conv_transpose2d": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2),
        [X, torch.rand(6, 2, 3, 3)],
    ),
    "convolution_backward": (
        lambda g, x, w: aten.convolution_backward(g, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]),
        [torch.rand(2, 4, 9, 8), X, torch.rand(4, 6, 3, 3)],
    ),
    "attention": (functional.scaled_dot_product_attention, HEADS),
    "attention masked": (functional.scaled_dot_product_attention, [*HEADS, LOGIT_MASK]),
    "batch_norm eval": (
        lambda x, w, b, m, v: functional.batch_norm(x, m, v, w, b),
        [X, *CHANNELS],
    ),
    "layer_norm": (lambda x, w, b: functional.layer_norm(x, (8,), w, b), [X, ROW, ROW.clone()]),
    "group_norm": (lambda x, w, b: functional.group_norm(x, 3, w, b), [X, CHANNELS[0], CHANNELS[1]]),
    "rms_norm": (lambda x, w: functional.rms_norm(x, (8,), w), [X, ROW]),
    "max_pool2d": (lambda x: functional.max_pool2d(x, 3, 2, 1), [X]),
    "max_pool2d indices": (lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]), [X]),
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 3, 2, 1), [X]),
    "adaptive_avg_pool2d": (lambda x: functional.adaptive_avg_pool2d(x, (4, 3)), [X]),
    "clone": (torch.clone, [X]),
    "cast": (lambda x: x.to(torch.bfloat16), [X]),
    "clone expanded": (lambda x: x.clone(memory_format=torch.contiguous_format), [EXPANDED]),
    "roll": (lambda x: x.roll(2, 1), [X]),
    "flip": (lambda x: x.flip(1), [X]),
    "cat": (lambda *x: torch.cat(x, 1), [X, Y, Z]),
    "stack": (lambda *x: torch.stack(x), [X, Y]),
    "constant_pad": (lambda x: functional.pad(x, (1, 2, 3, 0)), [X]),
    "reflection_pad": (lambda x: functional.pad(x, (1, 2, 3, 0), mode="reflect"), [X]),
    "repeat": (lambda x: x.repeat(2, 3), [MATRIX]),
    "pixel_shuffle": (lambda x: functional.pixel_shuffle(x, 2), [torch.rand(1, 8, 3, 3)]),
    "channel_shuffle": (lambda x: functional.channel_shuffle(x, 3), [X]),
    "index_select all": (lambda x, i: x.index_select(0, i), [TABLE, torch.randperm(11)]),
    "gather all": (lambda x, i: x.gather(1, i), [LOGITS, torch.stack([torch.randperm(10) for _ in range(5)])]),
    "embedding all": (lambda i, x: functional.embedding(i, x), [torch.randperm(11), TABLE]),
    "im2col": (lambda x: functional.unfold(x, 3), [X]),
    "upsample bilinear": (lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), [X]),
    "upsample nearest": (lambda x: functional.interpolate(x, size=(18, 16)), [X]),
    "mse_loss": (functional.mse_loss, [X, Y]),
    "mse_loss none": (lambda x, y: functional.mse_loss(x, y, reduction="none"), [X, Y]),
    "cross_entropy": (functional.cross_entropy, [LOGITS, CLASSES]),
    "cross_entropy probabilities": (lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1), [LOGITS, PROBABILITIES]),
    "cross_entropy none": (lambda x, y: functional.cross_entropy(x, y, reduction="none"), [LOGITS, CLASSES]),
    "binary_cross_entropy": (functional.binary_cross_entropy, [PROBABILITIES, torch.rand(5, 10)]),
    "bce with logits": (functional.binary_cross_entropy_with_logits, [LOGITS, torch.rand(5, 10)]),
    "kl_div": (lambda x, y: functional.kl_div(x, y, reduction="sum"), [LOGITS, PROBABILITIES]),
}  # fmt: skip

# Operators that do not read what they are given, or not all of it: the bytes by hand.
BY_HAND: dict[str, tuple[Callable[..., object], list[Any], int, int]] = {
    "zeros": (lambda: torch.zeros(3, 4), [], 0, 48),
    "zeros_like": (lambda: torch.zeros_like(BF16), [], 0, 2 * BF16.numel()),
    "full": (lambda: torch.full((3, 4), 2.0, dtype=torch.float64), [], 0, 96),
    "arange": (lambda: torch.arange(1, 8, 2), [], 0, 4 * 8),
    "fill_": (lambda: torch.empty(3, 4).fill_(1), [], 0, 48),
    "zero_": (Z.clone().zero_, [], 0, 4 * Z.numel()),
    "bernoulli_": (Z.clone().bernoulli_, [], 0, 4 * Z.numel()),
    "copy_": (lambda t: t.copy_(ROW), [torch.empty(9, 8)], 4 * 8, 4 * 72),
    # of 7 rows of 5 the lower triangle keeps 1 + 2 + 3 + 4 + 5 + 5 + 5
    "tril": (torch.tril, [MATRIX], 4 * 25, 4 * 35),
    # three rows of the table of 6 floats, three indices; three rows written
    "index_select": (lambda: TABLE.index_select(0, INDEX), [], 3 * 24 + 24, 3 * 24),
    "embedding": (lambda: functional.embedding(INDEX, TABLE), [], 3 * 24 + 24, 3 * 24),
    # only row 0 can be needed twice over: 22 lookups touch at most the 11 rows that there are
    "embedding repeated": (lambda i: functional.embedding(i, TABLE), [torch.arange(22) % 11], 11 * 24 + 22 * 8, 22 * 24),
    "gather": (lambda i: LOGITS.gather(1, i), [CLASSES[:, None]], 5 * 4 + 5 * 8, 5 * 4),
    "nll_loss": (lambda: functional.nll_loss(LOGITS, CLASSES), [], 5 * 4 + 5 * 8, 4),
    "embedding_dense_backward": (
        lambda g: aten.embedding_dense_backward(g, INDEX, 11, -1, False), [torch.rand(3, 6)], 3 * 24 + 24, 11 * 24,
    ),
    "index_add_": (
        lambda t, s: t.index_add_(0, INDEX, s), [TABLE.clone(), torch.rand(3, 6)], 3 * 24 + 24 + 3 * 24, 3 * 24,
    ),
    "scatter_": (
        lambda t, i, s: t.scatter_(1, i, s), [LOGITS.clone(), CLASSES[:, None], torch.rand(5, 1)], 5 * 4 + 5 * 8, 5 * 4,
    ),
    "slice_backward": (lambda g: aten.slice_backward(g, [7, 5], 0, 1, 3, 1), [torch.rand(2, 5)], 2 * 20, 7 * 20),
    # stride 2 with a window of 1 sees 5 of 9 rows and 4 of 8 columns
    "conv 1x1 stride 2": (
        lambda w: functional.conv2d(X, w, stride=2), [torch.rand(4, 6, 1, 1)], 4 * (2 * 6 * 5 * 4 + 24), 4 * 2 * 4 * 5 * 4,
    ),
    "batch_norm training": (
        lambda w, b, m, v: functional.batch_norm(X, m, v, w, b, training=True),
        [CHANNELS[0], CHANNELS[1], torch.zeros(6), torch.ones(6)],
        4 * (X.numel() + 4 * 6),
        4 * (X.numel() + 2 * 6),  # the running statistics are updated
    ),
    # gradients that need only the shape of what they belong to
    "nll_loss_backward": (
        lambda g, t: aten.nll_loss_backward(g, LOGITS, CLASSES, None, 1, -100, t), [torch.tensor(1.0), torch.tensor(5.0)],
        4 + 4 + 5 * 8,
        4 * 50,
    ),
    "avg_pool2d_backward": (
        lambda g: aten.avg_pool2d_backward(g, X, [3, 3], [3, 2], [0, 0], False, True, None), [torch.rand(2, 6, 3, 3)],
        4 * 2 * 6 * 9,
        4 * X.numel(),
    ),
    # the running statistics are not read, those of the batch are
    "batch_norm backward": (
        lambda g, w, m, v: aten.native_batch_norm_backward(g, X, w, m, v, m, v, True, 1e-5, [True, True, True]),
        [Y, *CHANNELS[:3]],
        4 * (2 * X.numel() + 3 * 6),
        4 * (X.numel() + 2 * 6),
    ),
    # one mean and one deviation for each of the 108 rows of 8; the bias gives only its shape
    "layer_norm backward": (
        lambda m, w, b: aten.native_layer_norm_backward(Y, X, [8], m, m, w, b, [True, True, True]),
        [torch.rand(2, 6, 9, 1), ROW, ROW],
        4 * (2 * X.numel() + 2 * 108 + 8),
        4 * (X.numel() + 2 * 8),
    ),
    "max_pool backward": (
        lambda g, i: aten.max_pool2d_with_indices_backward(g, X, [3, 3], [3, 2], [0, 0], [1, 1], False, i),
        [torch.rand(2, 6, 3, 3), torch.zeros(2, 6, 3, 3, dtype=torch.long)],
        (4 + 8) * 2 * 6 * 9,
        4 * X.numel(),
    ),
    # a trace shows the number as a 0-dimensional tensor: it travels with the call, and does not widen the result beyond float32
    "add scalar": (lambda: X + 2.0, [], 4 * X.numel(), 4 * X.numel()),
    "add float to integers": (lambda: INTEGERS + 2.0, [], 8 * X.numel(), 4 * X.numel()),
    "mul bf16 by number": (lambda: BF16 * 2.0, [], 2 * X.numel(), 2 * X.numel()),
    "mul by an imaginary number": (lambda: X * 1j, [], 4 * X.numel(), 8 * X.numel()),
    "foreach_add_": (lambda a, b: torch._foreach_add_(a, b), [[X.clone(), Y.clone()], [X, Y]], 4 * 4 * X.numel(), 2 * 4 * X.numel()),
    "foreach_zero_": (lambda a: torch._foreach_zero_(a), [[X.clone(), Y.clone()]], 0, 2 * 4 * X.numel()),
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    calls = {name: partial(function, *tensors) for name, (function, tensors) in CASES.items()}
    calls |= {f"by hand {name}": partial(function, *tensors) for name, (function, tensors, _, _) in BY_HAND.items()}
    with torch.no_grad():
        return signatures(calls, tmp_path_factory.mktemp("trace") / "trace.json")


@pytest.mark.parametrize("name", CASES)
def test_reads_what_it_is_given_and_writes_what_it_returns(name, recorded):
    found, results = recorded
    outcome = count(found[name])
    assert outcome.kind == "counted", (found[name], outcome)
    assert outcome.work.bytes_read == storage(*CASES[name][1]), found[name]
    assert outcome.work.bytes_written == storage(*tensors_of(results[name])), found[name]


@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_by_hand(name, recorded):
    found, _ = recorded
    _, _, read, written = BY_HAND[name]
    outcome = count(found[f"by hand {name}"])
    assert outcome.kind == "counted", (found[f"by hand {name}"], outcome)
    assert (outcome.work.bytes_read, outcome.work.bytes_written) == (read, written), found[f"by hand {name}"]
