"""Gathers and scatters: what an operator selects is seen by running it on a tensor whose elements are numbered."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.calls.signatures import tensor_arg
from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.helpers import nbytes
from tests.roofline.formulas.traces import operator_events
from tests.traces import trace

sides = st.integers(1, 6)


def numbered(*shape: int) -> torch.Tensor:
    """A tensor whose elements are all different."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def calls_of(step):
    """The calls that move something, as recorded, with their counts."""
    found = [(call, count(call.signature, outputs=call.outputs)) for call in record(step, None).calls]
    return [(call, outcome) for call, outcome in found if outcome.work != Work()]


def only(step):
    """The one call that moves something."""
    (found,) = calls_of(step)
    return found


@pytest.mark.parametrize("mask_shape", [(4,), (4, 5), (4, 5, 6)])
def test_one_value_by_mask_is_a_masked_fill_in_a_recording_and_in_a_trace(mask_shape, tmp_path):
    tensor, mask = numbered(4, 5, 6), torch.rand(mask_shape) > 0.5

    def step():
        tensor[mask] = 0.0

    (recording,) = [outcome.work for _, outcome in calls_of(step)]
    traced = [count(one) for one in trace(*operator_events(step, tmp_path / "t.json")).signatures]
    assert [one.work for one in traced if one.kind == "counted" and one.work != Work()] == [recording]
    assert (recording.bytes_written, recording.bytes_read) == (nbytes(tensor), nbytes(tensor, mask))


def test_a_mask_selects_as_many_positions_as_the_indices_beside_it():
    target, mask, column = numbered(4, 5, 3), torch.tensor([True, False, True, True]), torch.tensor([0, 4, 1])
    put = Signature("aten::index_put_", (tensor_arg(target), (tensor_arg(mask), tensor_arg(column)), TensorArg(()), False))
    before = target.clone()
    target[mask, column] = -1.0
    changed = int((target != before).sum())
    assert changed == 3 * 3
    assert count(put).work == Work(bytes_read=4 + nbytes(mask, column), bytes_written=4 * changed)
    one = Signature("aten::index_put_", (*put.args[:1], (tensor_arg(mask), TensorArg((1,), "int64")), TensorArg(()), False))
    assert count(one).reason == "number of elements selected by the mask not recorded"


def test_values_for_a_mask_are_one_for_each_position():
    target, mask = TensorArg((4, 5)), TensorArg((4,), "bool")
    put = lambda values, *more: count(Signature("aten::index_put_", (target, (mask,), values, *more)))  # noqa: E731
    assert put(TensorArg((3, 5))).work == Work(bytes_read=60 + 4, bytes_written=60)
    # the same row for each: as much as there is, as where all are filled with one number
    assert put(TensorArg((5,))).work.bytes_written == put(TensorArg((1, 5))).work.bytes_written == 80
    assert put(TensorArg(()), True).reason == "number of elements selected by the mask not recorded"


def test_traces_leave_out_indices():
    """``index`` from what was allocated, ``index_put_`` from its values; the bytes of the indices are missing from both."""
    target = TensorArg((10, 4))
    assert count(Signature("aten::index", (target, None))).reason == "index shapes not recorded"
    assert count(Signature("aten::index", (target, None)), output_bytes=48).work == Work(bytes_read=48, bytes_written=48)
    assert count(Signature("aten::index", (target, None)), output_bytes=480).work == Work(bytes_read=160, bytes_written=480)
    found = count(Signature("aten::index_put_", (target, None, TensorArg((3, 4)), False)))
    assert found.work == Work(bytes_read=48, bytes_written=48)
    assert count(Signature("aten::index_put_", (target, None, TensorArg((1,)), False))).reason == "index shapes not recorded"
    assert count(Signature("aten::index_put_", (target, None, TensorArg((3, 4)), MISSING))).kind == "unknown"


def test_a_row_taken_twice_is_read_once_and_written_twice():
    table, index = TensorArg((3, 8)), TensorArg((7,), "int64")
    assert count(Signature("aten::index_select", (table, 0, index))).work == Work(bytes_read=96 + 56, bytes_written=7 * 32)


# In place: FLOPs an element, whether what is there is read.
SCATTERS = [
    ("scatter_", lambda t, i, s: t.scatter_(0, i, s), 0, False),
    ("scatter_ add", lambda t, i, s: t.scatter_(0, i, s, reduce="add"), 1, True),
    ("scatter_add_", lambda t, i, s: t.scatter_add_(0, i, s), 1, True),
    ("scatter_reduce_", lambda t, i, s: t.scatter_reduce_(0, i, s, "amax"), 1, True),
    ("scatter_reduce_ anew", lambda t, i, s: t.scatter_reduce_(0, i, s, "sum", include_self=False), 1, False),
]


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize(("name", "call", "cost", "old"), SCATTERS)
@given(rows=sides, columns=sides, part=st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_scatters(name, call, cost, old, rows, columns, part):
    """The elements hit are written, and read where they take part; of ``src`` as many are read as there are indices."""
    hit = min(part, rows)
    target, src = torch.zeros(rows, columns), torch.rand(rows + 1, columns)
    index = torch.stack([torch.randperm(rows)[:hit] for _ in range(columns)], 1)
    _, outcome = only(lambda: call(target, index, src))
    elements = hit * columns
    assert outcome.work == Work(
        other_flops=cost * elements,
        bytes_read=8 * elements + 4 * elements + (4 * elements if old else 0),
        bytes_written=4 * elements,
        precision="fp32" if cost else None,
    )


@given(rows=sides, columns=sides, part=st.integers(1, 6), alpha=st.sampled_from([1, 2]))
@settings(deadline=None)
def test_along_a_dimension(rows, columns, part, alpha):
    chosen = min(part, columns)
    index, source = torch.randperm(columns)[:chosen], torch.rand(rows, chosen)
    elements = rows * chosen
    indices = 8 * chosen
    target = torch.zeros(rows, columns)
    _, added = only(lambda: target.index_add_(1, index, source, alpha=alpha))
    assert added.work == Work(0, alpha * elements, 8 * elements + indices, 4 * elements, "fp32")
    _, copied = only(lambda: target.index_copy_(1, index, source))
    assert copied.work == Work(bytes_read=4 * elements + indices, bytes_written=4 * elements)
    _, filled = only(lambda: target.index_fill_(1, index, 2.0))
    assert filled.work == Work(bytes_read=indices, bytes_written=4 * elements)
    _, out_of_place = only(lambda: torch.ops.aten.index_copy(target, 1, index, source))
    rest = 4 * (rows * columns - elements)
    assert out_of_place.work == Work(bytes_read=4 * elements + indices + rest, bytes_written=nbytes(target))


def test_put_and_take():
    tensor, index, source = numbered(3, 4), torch.tensor([11, 0, 5]), torch.rand(3)
    _, taken = only(lambda: tensor.take(index))
    assert taken.work == Work(bytes_read=3 * 4 + 3 * 8, bytes_written=3 * 4)
    _, put = only(lambda: tensor.put_(index, source))
    assert put.work == Work(bytes_read=3 * 8 + 3 * 4, bytes_written=3 * 4)
    _, added = only(lambda: tensor.put_(index, source, accumulate=True))
    assert added.work == Work(0, 3, 3 * 8 + 2 * 3 * 4, 3 * 4, "fp32")


def test_bins_are_as_many_as_the_largest_value():
    values = torch.tensor([3, 0, 3, 7])
    call, outcome = only(lambda: torch.bincount(values))
    assert outcome.work == Work(other_flops=4, bytes_read=32, bytes_written=8 * 8)
    assert count(call.signature).reason == "number of bins not recorded"
