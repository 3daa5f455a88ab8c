"""What shapes do not say: masks, sequences of different lengths, sparse tensors: counted where lengths or results tell it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.ops import aten

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.helpers import UNCOUNTED

MATRIX = torch.arange(1.0, 13.0).reshape(3, 4)
MASK = torch.tensor([[True, False, True, False], [False] * 4, [True, True, False, False]])


def only(step):
    """The one call that moves something, and its count with what it returned."""
    found = [(call, count(call.signature, outputs=call.outputs)) for call in record(step, None).calls]
    ((call, outcome),) = [(call, outcome) for call, outcome in found if outcome.work != Work()]
    return call, outcome


def test_masks_select_what_their_values_say():
    call, found = only(lambda: MATRIX.masked_select(MASK))
    assert found.work == Work(bytes_read=12 + 4 * 4, bytes_written=4 * 4)
    assert count(call.signature).reason == "number of selected elements not recorded"
    assert count(call.signature, output_bytes=16).work == found.work
    call, found = only(lambda: MASK.nonzero())
    assert found.work == Work(bytes_read=12, bytes_written=4 * 2 * 8)
    assert count(call.signature).reason == "number of positions not recorded"
    call, found = only(lambda: torch.nonzero_static(MASK, size=7))
    assert found.work == count(call.signature).work == Work(bytes_read=12, bytes_written=7 * 2 * 8)


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4))
@settings(deadline=None, max_examples=20)
def test_jagged_to_padded_and_back(lengths):
    total, longest = sum(lengths), max(lengths)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    values, padded = torch.rand(total, 2), torch.rand(len(lengths), longest, 2)
    _, found = only(lambda: aten._jagged_to_padded_dense_forward(values, [offsets], [longest]))
    table = 8 * len(offsets)
    assert found.work == Work(bytes_read=8 * total + table, bytes_written=8 * len(lengths) * longest)
    call, found = only(lambda: aten._padded_dense_to_jagged_forward(padded, [offsets], total))
    assert found.work == count(call.signature).work == Work(bytes_read=8 * total + table, bytes_written=8 * total)


def test_positions_in_a_sparse_matrix():
    rows = torch.tensor([0, 0, 2])
    _, found = only(lambda: aten._convert_indices_from_coo_to_csr(rows, 4))
    assert found.work == Work(bytes_read=24, bytes_written=5 * 8)
    starts, columns = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 3, 0])
    _, found = only(lambda: aten._convert_indices_from_csr_to_coo(starts, columns, out_int32=True))
    assert found.work == Work(bytes_read=32 + 24, bytes_written=2 * 3 * 4)
    copied = Signature("aten::values_copy", (TensorArg((90, 90)),))
    assert count(copied, outputs=(TensorArg((12,)),)).work == Work(bytes_read=48, bytes_written=48)
    assert count(copied).reason == "sparse tensor: number of values not recorded"


@pytest.mark.parametrize("name", sorted(name for name in UNCOUNTED if name.startswith("aten::") and "search" not in name))
def test_what_no_shape_tells_is_unknown_with_the_reason(name):
    found = count(Signature(name, (TensorArg((4, 4)), TensorArg((4, 4)))))
    assert found.kind == "unknown"
    assert found.reason.startswith(("sparse tensor: ", "nested tensor: "))


def test_half_of_a_semi_structured_matrix_is_multiplied():
    """[8, 32 of 64] packed, times [64, 5]: two FLOPs for each value kept and each column."""
    packed, meta, dense = TensorArg((8, 32), "float16"), TensorArg((8, 4), "int16"), TensorArg((64, 5), "float16")
    found = count(Signature("aten::_sparse_semi_structured_mm", (packed, meta, dense, None))).work
    assert found == Work(2 * 8 * 32 * 5, 0, 2 * 256 + 2 * 32 + 2 * 320, 2 * 40, "fp16")
    rows, bias = TensorArg((3, 7, 64), "float16"), TensorArg((8,), "float16")
    linear = count(Signature("aten::_sparse_semi_structured_linear", (rows, packed, meta, bias, None, None))).work
    assert (linear.matrix_flops, linear.other_flops, linear.bytes_written) == (2 * 8 * 32 * 21, 8 * 21, 2 * 8 * 21)
    blob, result = TensorArg((8 * 64 * 9 // 16,), "float16"), TensorArg((8, 5), "float16")
    compressed = count(Signature("aten::_cslt_sparse_mm", (blob, dense)), outputs=(result,)).work
    assert compressed.matrix_flops == 2 * 8 * 32 * 5
