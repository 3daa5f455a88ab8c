"""Selections by index that really ran: what their traces leave out is found in the views inside the calls."""

from __future__ import annotations

import pytest
import torch

from tests.roofline.real import named
from tests.roofline.rooms import attributed

ROWS, COLUMNS, DEPTH = 61, 47, 19
FIRST, SECOND, THIRD = torch.tensor([3, 46, 3, 0, 17]), torch.tensor([[2], [46], [9]]), torch.tensor([1, 18, 7, 7])
MASK = torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)) > 0.9
SELECTIONS = {
    "rows": (FIRST,),
    "columns": (slice(None), FIRST),
    "last": (..., THIRD),
    "one row": (torch.tensor([5]),),
    "broadcast": (SECOND, THIRD),
    "broadcast behind": (slice(None), SECOND, THIRD),
    "not adjacent": (SECOND, slice(None), THIRD),
    "mask": (MASK,),
    "mask of all dimensions": (torch.ones(ROWS, COLUMNS, DEPTH, dtype=torch.bool),),
}


def recorded(tmp_path, run):
    """The rows of what ran under the profiler, with memory events left out."""
    with torch.profiler.profile(record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    return attributed(of=tmp_path / "trace.json")


def index_bytes(index):
    return sum(one.numel() * one.element_size() for one in index if isinstance(one, torch.Tensor))


@pytest.mark.parametrize("index", SELECTIONS.values(), ids=SELECTIONS.keys())
def test_a_selection_moves_its_result_and_reads_its_indices(tmp_path, index):
    source = torch.randn(ROWS, COLUMNS, DEPTH)
    result = source[index].numel()
    found = recorded(tmp_path, lambda: source[index])
    (row,) = (row for row in found.rows if row.signature.name == "aten::index")
    assert row.count.work.bytes_read == min(result, source.numel()) * 4 + index_bytes(index)
    assert row.count.work.bytes_written == result * 4
    assert row.inferred == "its indices from the views inside it"


@pytest.mark.parametrize("index", [SELECTIONS[name] for name in ("rows", "columns", "last", "broadcast", "broadcast behind")])
def test_values_put_by_index_are_written_with_the_indices_read(tmp_path, index):
    target = torch.randn(ROWS, COLUMNS, DEPTH)
    values = torch.randn(target[index].shape)
    found = recorded(tmp_path, lambda: target.__setitem__(index, values))
    (row,) = (row for row in found.rows if row.signature.name == "aten::index_put_")
    assert row.count.work.bytes_read == values.numel() * 4 + index_bytes(index)
    assert row.count.work.bytes_written == values.numel() * 4


def test_one_number_put_at_many_positions_is_written_to_all_of_them(tmp_path):
    target = torch.randn(ROWS, COLUMNS, DEPTH)
    found = recorded(tmp_path, lambda: target.__setitem__(FIRST, 0.0))
    (row,) = (row for row in found.rows if row.signature.name == "aten::index_put_")
    assert row.count.work.bytes_written == len(FIRST) * COLUMNS * DEPTH * 4
    assert row.count.work.bytes_read == len(FIRST) * 8 + 4


def test_an_index_that_is_added_to_several_times_is_one_of_the_gradient(tmp_path):
    table = torch.zeros(ROWS, DEPTH, requires_grad=True)
    found = recorded(tmp_path, lambda: table[FIRST].square().sum().backward())
    rows = {row.signature.name: row.count.work for row in found.rows}
    assert rows["aten::index"].bytes_read == len(FIRST) * (DEPTH * 4 + 8)
    assert rows["aten::_index_put_impl_"].bytes_read == 2 * len(FIRST) * DEPTH * 4 + len(FIRST) * 8


def test_positions_and_elements_that_a_mask_selects_are_known_from_the_view_of_the_result(tmp_path):
    source, number = torch.randn(ROWS, COLUMNS), int(MASK.sum())
    rows = {row.signature.name: row.count.work for row in recorded(tmp_path, lambda: (MASK.nonzero(), source.masked_select(MASK))).rows}
    assert rows["aten::nonzero"].bytes_written == number * 2 * 8
    assert rows["aten::masked_select"].bytes_written == number * 4


def test_weights_of_experts_that_a_gpu_selects_by_index():
    analysis = named("moe_b300_inference")
    selected = [row for row in analysis.operators if row.name == "aten::index"]
    # 16 tokens with 2 experts each, of 64 matrices in bf16: 32 matrices are read and written.
    sizes = {"64x512x1024": 512 * 1024, "64x1024x512": 1024 * 512}
    assert {row.shapes.split(",")[0] for row in selected} == sizes.keys()
    assert {row.bytes / row.calls for row in selected} == {2 * 32 * 512 * 1024 * 2 + 32 * 8}
    assert analysis.coverage.modeled_time_fraction == 1
