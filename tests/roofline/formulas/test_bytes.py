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

from rooflines.roofline.count.formulas import count
from tests.roofline.formulas.oracle import storage, tensors_of
from tests.roofline.formulas.traces import signatures

torch.manual_seed(0)
X = torch.rand(2, 6, 9, 8) + 0.1
ROW = torch.rand(8)
BF16 = torch.rand(2, 6, 9, 8).bfloat16()
CHANNELS = [torch.rand(6) + 0.1 for _ in range(4)]
BATCH = torch.rand(3, 4, 7)
LOGITS = torch.rand(5, 10)
CLASSES = torch.randint(0, 10, (5,))
PROBABILITIES = torch.rand(5, 10).softmax(1)
TABLE = torch.rand(11, 6)
HEADS = [torch.rand(2, 3, 7, 4) for _ in range(3)]
LOGIT_MASK = torch.rand(1, 1, 7, 7)


# Operator with its tensors. It reads all of them and writes what it returns; an in-place one returns its first tensor.
CASES: dict[str, tuple[Callable[..., object], list[Any]]] = {
    "softmax": (lambda x: x.softmax(-1), [X]),
    "log_softmax": (lambda x: x.log_softmax(1), [LOGITS]),
    "softmax as float32": (lambda x: x.softmax(-1, dtype=torch.float32), [BF16]),
    "prelu": (functional.prelu, [X, CHANNELS[0]]),
    "norm old": (torch.norm, [X]),
    "matmul broadcast": (torch.matmul, [torch.rand(2, 1, 4, 7), torch.rand(3, 7, 2)]),
    "linear": (functional.linear, [BATCH, torch.rand(5, 7), torch.rand(5)]),
    "conv2d": (functional.conv2d, [X, torch.rand(4, 6, 3, 3), torch.rand(4)]),
    "conv2d grouped": (lambda x, w: functional.conv2d(x, w, groups=3, padding=1), [X, torch.rand(9, 2, 3, 3)]),
    "conv1d": (functional.conv1d, [BATCH, torch.rand(5, 4, 3)]),
    "conv3d": (functional.conv3d, [torch.rand(1, 2, 5, 6, 7), torch.rand(3, 2, 2, 3, 2)]),
    "conv_transpose2d": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2),
        [X, torch.rand(6, 2, 3, 3)],
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
    "adaptive_avg_pool2d": (lambda x: functional.adaptive_avg_pool2d(x, (4, 3)), [X]),
    "upsample bilinear": (lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), [X]),
    "upsample nearest": (lambda x: functional.interpolate(x, size=(18, 16)), [X]),
    "cross_entropy": (functional.cross_entropy, [LOGITS, CLASSES]),
    "cross_entropy probabilities": (lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1), [LOGITS, PROBABILITIES]),
    "bce with logits": (functional.binary_cross_entropy_with_logits, [LOGITS, torch.rand(5, 10)]),
}  # fmt: skip

# Operators that do not read what they are given, or not all of it: the bytes by hand.
BY_HAND: dict[str, tuple[Callable[..., object], list[Any], int, int]] = {
    # only row 0 can be needed twice over: 22 lookups touch at most the 11 rows that there are
    "embedding repeated": (lambda i: functional.embedding(i, TABLE), [torch.arange(22) % 11], 11 * 24 + 22 * 8, 22 * 24),
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
