"""Embeddings and bags: rows looked up, added and scattered back, by hand and against real calls."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.helpers import nbytes
from tests.roofline.formulas.traces import record_trace
from tests.roofline.rooms import attributed

sides = st.integers(1, 7)


def recorded(name, step):
    """The one recorded call of this operator, and its count with what it returned."""
    (call,) = [call for call in record(step, None).calls if call.signature.name == f"aten::{name}"]
    return call, count(call.signature, outputs=call.outputs)


@given(rows=sides, depth=sides, lookups=st.lists(st.integers(0, 6), min_size=1, max_size=9))
def test_embedding_and_its_gradient(rows, depth, lookups):
    """At most the whole table is read; the gradient is a whole table."""
    table, indices = TensorArg((rows, depth)), TensorArg((len(lookups),), "int64")
    results = len(lookups) * depth
    found = count(Signature("aten::embedding", (table, indices, -1, False, False)))
    read = 4 * depth * min(rows, len(lookups)) + 8 * len(lookups)
    assert found.work == Work(bytes_read=read, bytes_written=4 * results)
    grad = TensorArg((len(lookups), depth))
    back = count(Signature("aten::embedding_dense_backward", (grad, indices, rows, -1, False)))
    assert back.work == Work(0, results, 4 * results + 8 * len(lookups), 4 * rows * depth, "fp32")
    scaled = count(Signature("aten::embedding_dense_backward", (grad, indices, rows, -1, True)))
    assert scaled.work.other_flops == 2 * results


@pytest.mark.parametrize(("mode", "weighted"), [("sum", False), ("mean", False), ("max", False), ("sum", True)])
@given(rows=st.integers(4, 9), depth=sides, lengths=st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any))
@settings(max_examples=10, deadline=None)
def test_bags(mode, weighted, rows, depth, lengths):
    """An addition or a compare for each row looked up, a product with its weight, a division of each mean."""
    total, bags = sum(lengths), len(lengths)
    table = torch.rand(rows, depth, requires_grad=True)
    offsets = torch.tensor([0, *lengths]).cumsum(0)[:-1]
    weights = torch.rand(total, requires_grad=True) if weighted else None

    def step():
        result = functional.embedding_bag(torch.arange(total) % rows, table, offsets, mode=mode, per_sample_weights=weights)
        result.backward(torch.ones_like(result))

    _, found = recorded("_embedding_bag", step)
    assert found.work.other_flops == depth * (total * (2 if weighted else 1) + (bags if mode == "mean" else 0))
    _, found = recorded("_embedding_bag_backward", step)
    each = 2 if weighted or mode == "mean" else 1
    assert (found.work.other_flops, found.work.bytes_written) == (
        bags * depth if mode == "max" else each * total * depth,
        nbytes(table),
    )
    if weighted:
        _, found = recorded("_embedding_bag_per_sample_weights_backward", step)
        assert (found.work.other_flops, found.work.bytes_written) == (2 * total * depth, 4 * total)


def test_a_sparse_gradient_is_a_row_for_each_index():
    table = torch.rand(50, 4, requires_grad=True)
    indices, offsets = torch.tensor([3, 40, 7, 3]), torch.tensor([0, 1])

    def step():
        functional.embedding_bag(indices, table, offsets, mode="mean", sparse=True).sum().backward()

    _, found = recorded("_embedding_bag_backward", step)
    assert (found.work.bytes_written, found.work.other_flops) == (4 * 4 * 4, 4 * 4)


def test_renormalizing_reads_and_writes_the_rows():
    """Norm: a multiply-add; scaling: a product. All rows looked up count as too long."""
    table, indices = TensorArg((9, 4)), TensorArg((3,), "int64")
    found = count(Signature("aten::embedding_renorm_", (table, indices, 1.0, 2.0)))
    assert found.work == Work(0, 3 * 4 * 3, 3 * 16 + 24, 3 * 16, "fp32")
    out_of_place = count(Signature("aten::embedding_renorm", (table, indices, 1.0, 2.0)))
    assert out_of_place.work == Work(0, 3 * 4 * 3, 9 * 16 + 24, 9 * 16, "fp32")


def test_what_was_allocated_tells_a_trace_how_much_was_written(tmp_path):
    table, indices, offsets = torch.rand(9, 4), torch.tensor([1, 5, 5, 8]), torch.tensor([0, 1])

    def step():
        functional.embedding_bag(indices, table, offsets, mode="mean")

    _, found = recorded("_embedding_bag_forward_only", step)
    recording = record_trace(step, tmp_path / "trace.json")
    (row,) = [row for row in attributed(of=recording).rows if row.signature.name == "aten::_embedding_bag_forward_only"]
    # for which bag an index is in, a CPU allocates one entry more than it returns
    assert row.count.work == replace(found.work, bytes_written=found.work.bytes_written + 8)
