"""Embeddings and bags: rows looked up, added and scattered back, by hand and against real calls."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count
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


def test_a_sparse_gradient_is_a_row_for_each_index():
    table = torch.rand(50, 4, requires_grad=True)
    indices, offsets = torch.tensor([3, 40, 7, 3]), torch.tensor([0, 1])

    def step():
        functional.embedding_bag(indices, table, offsets, mode="mean", sparse=True).sum().backward()

    _, found = recorded("_embedding_bag_backward", step)
    assert (found.work.bytes_written, found.work.other_flops) == (4 * 4 * 4, 4 * 4)


def test_what_was_allocated_tells_a_trace_how_much_was_written(tmp_path):
    table, indices, offsets = torch.rand(9, 4), torch.tensor([1, 5, 5, 8]), torch.tensor([0, 1])

    def step():
        functional.embedding_bag(indices, table, offsets, mode="mean")

    _, found = recorded("_embedding_bag_forward_only", step)
    recording = record_trace(step, tmp_path / "trace.json")
    (row,) = [row for row in attributed(of=recording).rows if row.signature.name == "aten::_embedding_bag_forward_only"]
    # for which bag an index is in, a CPU allocates one entry more than it returns
    assert row.count.work == replace(found.work, bytes_written=found.work.bytes_written + 8)
