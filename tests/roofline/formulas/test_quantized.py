"""Operators on quantized tensors: what the real ones read and write on small tensors, and their costs an element."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators of exported graphs

from rooflines.profiler.calls.signatures import call_signature, tensor_arg
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count
from rooflines.roofline.count.formulas.costs import (
    DEQUANTIZE,
    FAKE_QUANTIZE,
    FAKE_QUANTIZE_BACKWARD,
    HARDSWISH,
    MEAN_AND_VARIANCE,
    QUANTIZE,
    SCALE_AND_SHIFT,
    SIGMOID,
    SOFTMAX,
)
from tests.roofline.formulas.helpers import nbytes
from tests.roofline.formulas.oracle import tensors_of

pytestmark = [
    # torch 2.14 announces the end of quantized tensors
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel and other:UserWarning")
]
aten, quantized_ops, exported = torch.ops.aten, torch.ops.quantized, torch.ops.quantized_decomposed

X = torch.rand(2, 6, 9, 8)
ELEMENTS = X.numel()
VECTORS = [torch.rand(6) for _ in range(4)]
SCALES, ZEROS = torch.rand(6) + 0.1, torch.zeros(6, dtype=torch.int64)
ONE, NONE = torch.tensor([0.1]), torch.tensor([0])


def quantized(tensor=X, dtype=torch.quint8):
    return torch.quantize_per_tensor(tensor, 0.1, 3, dtype)


# Operator, its arguments, FLOPs an element of the first result. It reads every tensor it is given and writes what it returns.
CASES = {
    "to integers": lambda: (aten.quantize_per_tensor.default, (X, 0.1, 3, torch.quint8), QUANTIZE),
    "by tensors of one element": lambda: (aten.quantize_per_tensor.tensor_qparams, (X, ONE, NONE, torch.qint8), QUANTIZE),
    "to 32-bit integers": lambda: (aten.quantize_per_tensor.default, (X, 0.1, 3, torch.qint32), QUANTIZE),
    "by channel": lambda: (aten.quantize_per_channel.default, (X, SCALES, ZEROS, 1, torch.qint8), QUANTIZE),
    "by range": lambda: (aten.quantize_per_tensor_dynamic.default, (X, torch.quint8, False), 2 + QUANTIZE),
    "and back": lambda: (aten.dequantize.self, (quantized(),), DEQUANTIZE),
    "of bfloat16": lambda: (aten.dequantize.self, (X.bfloat16(),), 0),
    "integers of": lambda: (aten.int_repr.default, (quantized(),), 0),
    "from integers": lambda: (aten._make_per_tensor_quantized_tensor.default, (quantized().int_repr(), 0.1, 3), 0),
    "from integers by channel": lambda: (
        aten._make_per_channel_quantized_tensor.default, (quantized().int_repr(), SCALES, ZEROS, 1), 0,
    ),
    "fake": lambda: (aten.fake_quantize_per_tensor_affine_cachemask.default, (X, 0.1, 3, 0, 255), FAKE_QUANTIZE),
    "fake by channel": lambda: (
        aten.fake_quantize_per_channel_affine_cachemask.default, (X, SCALES, ZEROS.int(), 1, -128, 127), FAKE_QUANTIZE,
    ),
    "fake by tensors": lambda: (
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
        (X, ONE, NONE.int(), torch.ones(1, dtype=torch.int64), 0, 255), FAKE_QUANTIZE,
    ),
    "fake, learnt": lambda: (
        aten._fake_quantize_learnable_per_tensor_affine.default, (X, ONE, torch.zeros(1), 0, 255), QUANTIZE + DEQUANTIZE,
    ),
    "fake, learnt, backward": lambda: (
        aten._fake_quantize_learnable_per_tensor_affine_backward.default, (X, X, ONE, torch.zeros(1), 0, 255), FAKE_QUANTIZE_BACKWARD,
    ),
    "add": lambda: (quantized_ops.add.default, (quantized(), quantized(), 0.1, 0), 2 * DEQUANTIZE + 1 + QUANTIZE),
    "mul relu": lambda: (quantized_ops.mul_relu.default, (quantized(), quantized(), 0.1, 0), 2 * DEQUANTIZE + 2 + QUANTIZE),
    "add a number": lambda: (quantized_ops.add.Scalar, (quantized(), 1.5), DEQUANTIZE + 1 + QUANTIZE),
    "a number times": lambda: (quantized_ops.mul.Scalar2, (1.5, quantized()), DEQUANTIZE + 1 + QUANTIZE),
    "hardswish": lambda: (quantized_ops.hardswish.default, (quantized(), 0.1, 0), DEQUANTIZE + HARDSWISH + QUANTIZE),
    "sigmoid": lambda: (quantized_ops.sigmoid.default, (quantized(), 0.1, 0), DEQUANTIZE + SIGMOID + QUANTIZE),
    "softmax": lambda: (quantized_ops.softmax.default, (quantized(), 1, 0.1, 0), DEQUANTIZE + SOFTMAX + QUANTIZE),
    "leaky relu": lambda: (quantized_ops.leaky_relu.default, (quantized(), 0.1, False, 0.1, 0), DEQUANTIZE + 2 + QUANTIZE),
    "prelu": lambda: (quantized_ops.prelu.default, (quantized(), quantized(torch.rand(6)), 0.1, 0), DEQUANTIZE + 2 + QUANTIZE),
    "relu6": lambda: (quantized_ops.relu6.default, (quantized(),), 2),
    "clamp": lambda: (quantized_ops.clamp.default, (quantized(), 0.1, 0.5), 2),
    "cat": lambda: (quantized_ops.cat.default, ([quantized(), quantized()], 1, 0.1, 0), DEQUANTIZE + QUANTIZE),
    "batch norm": lambda: (
        quantized_ops.batch_norm2d_relu.default, (quantized(), *VECTORS, 1e-5, 0.1, 0), DEQUANTIZE + SCALE_AND_SHIFT + 1 + QUANTIZE,
    ),
    "batch norm of aten": lambda: (
        aten.quantized_batch_norm.default, (quantized(), *VECTORS, 1e-5, 0.1, 0), DEQUANTIZE + SCALE_AND_SHIFT + QUANTIZE,
    ),
    "group norm": lambda: (
        quantized_ops.group_norm.default, (quantized(), 3, *VECTORS[:2], 1e-5, 0.1, 0),
        DEQUANTIZE + MEAN_AND_VARIANCE + SCALE_AND_SHIFT + 2 + QUANTIZE,
    ),
    "instance norm": lambda: (
        quantized_ops.instance_norm.default, (quantized(), *VECTORS[:2], 1e-5, 0.1, 0),
        DEQUANTIZE + MEAN_AND_VARIANCE + SCALE_AND_SHIFT + 2 + QUANTIZE,
    ),
    "layer norm": lambda: (
        quantized_ops.layer_norm.default, (quantized(), [8], None, None, 1e-5, 0.1, 0),
        DEQUANTIZE + MEAN_AND_VARIANCE + SCALE_AND_SHIFT + QUANTIZE,
    ),
    "max pool": lambda: (quantized_ops.max_pool2d.default, (quantized(), [3, 2], [3, 2], [0, 0], [1, 1], False), 6),
    "max pool of aten": lambda: (aten.quantized_max_pool2d.default, (quantized(), [3, 3], [2, 2], [1, 1], [1, 1], True), 9),
    "max pool of one dimension": lambda: (aten.quantized_max_pool1d.default, (quantized(X[0]), [3], [2], [1], [1], False), 3),
    "exported": lambda: (exported.quantize_per_tensor.default, (X, 0.1, 3, 0, 255, torch.uint8), QUANTIZE),
    "exported, back": lambda: (
        exported.dequantize_per_tensor.default, (quantized().int_repr(), 0.1, 3, 0, 255, torch.uint8), DEQUANTIZE,
    ),
    "exported by channel": lambda: (
        exported.quantize_per_channel.default, (X, SCALES.double(), ZEROS, 1, -128, 127, torch.int8), QUANTIZE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_reads_what_it_is_given_and_writes_what_it_returns(name):
    func, args, cost = CASES[name]()
    signature = call_signature(func, args, {})
    results = tensors_of(func(*args))
    outcome = count(signature, outputs=tuple(map(tensor_arg, results)))
    assert outcome.kind == "counted", outcome
    assert (outcome.work.matrix_flops, outcome.work.other_flops) == (0, cost * results[0].numel())
    assert (outcome.work.bytes_read, outcome.work.bytes_written) == (nbytes(args), nbytes(*results))


def test_a_range_is_two_comparisons_an_element():
    args = (X, 0, 255, 1e-5, torch.uint8)
    results = exported.choose_qparams.tensor(*args)
    found = count(call_signature(exported.choose_qparams.tensor, args, {}), outputs=tuple(map(tensor_arg, results))).work
    assert found == Work(other_flops=2 * ELEMENTS, bytes_read=4 * ELEMENTS, bytes_written=nbytes(*results), precision="fp32")


def test_an_observer_updates_its_state():
    switches = [torch.ones(1, dtype=torch.int64) for _ in range(2)]
    state = [torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([0.1]), torch.tensor([0], dtype=torch.int32)]
    args = (X, *switches, *state, 0.01, 0, 255, -1)
    found = count(call_signature(aten._fused_moving_avg_obs_fq_helper.default, args, {})).work
    output, mask = aten._fused_moving_avg_obs_fq_helper.default(*args)
    assert (found.other_flops, found.bytes_read) == ((2 + FAKE_QUANTIZE) * ELEMENTS, nbytes(X, *switches, *state[:2]))
    assert found.bytes_written == nbytes(output, mask, *state)


def test_a_pooling_window_that_jumps_reads_what_it_covers():
    found = count(call_signature(quantized_ops.max_pool2d.default, (quantized(), [1, 1], [2, 2], [0, 0], [1, 1], False), {})).work
    assert found.bytes_read == found.bytes_written == 2 * 6 * 5 * 4


def test_in_a_trace_a_list_is_read_as_recorded():
    pair = (TensorArg((2, 3), "quint8"), TensorArg((2, 3), "quint8"))
    assert count(Signature("quantized::cat", (pair, 1, 0.1, 0))).work.bytes_written == 12
    assert count(Signature("quantized::cat", ((), 1, 0.1, 0))).reason == "shapes of 'self' not recorded"


@pytest.mark.parametrize(("kind", "row"), [("byte", 8 + 8), ("4bit", 4 + 4), ("2bit", 2 + 4)])
def test_embedding_tables_of_narrow_rows(kind, row):
    table, indices, offsets = torch.rand(10, 8), torch.tensor([1, 2, 3, 1]), torch.tensor([0, 2])
    pack, unpack, bag = (
        getattr(quantized_ops, f"embedding_bag_{kind}_{name}").default for name in ("prepack", "unpack", "rowwise_offsets")
    )
    packed = pack(table)
    assert count(call_signature(pack, (table,), {})).work == Work(0, 80 * (QUANTIZE + 2), nbytes(table), nbytes(packed), "fp32")
    assert count(call_signature(unpack, (packed,), {})).work == Work(
        0, 80 * DEQUANTIZE, nbytes(packed), nbytes(unpack(packed)), "fp32"
    )  # fmt: skip
    found = count(call_signature(bag, (packed, indices, offsets), {})).work
    # four rows looked up, of 8 elements each, and two bags of float32
    assert found == Work(0, 32 * (DEQUANTIZE + 1), 4 * row + nbytes(indices, offsets), nbytes(bag(packed, indices, offsets)), "fp32")
