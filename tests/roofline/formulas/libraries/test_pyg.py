"""PyTorch Geometric: closed forms by hand at odd shapes. 11 edges, 5 nodes, 6 features."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import MISSING, Signature
from rooflines.roofline.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int64, reason

EDGES, NODES, F = 11, 5, 6
X, OF_EDGES, INDEX, ENDS = fp32(NODES, F), fp32(EDGES, F), int64(EDGES), int64(NODES + 1)
READ = 4 * EDGES * F


@pytest.mark.parametrize("library", ["pyg", "torch_scatter"])
def test_scatters(library):
    plain = (0, EDGES * F, READ + 8 * EDGES, 4 * NODES * F, "fp32")
    assert figures(f"{library}::scatter_sum", OF_EDGES, INDEX, 0, None, NODES) == plain
    assert figures(f"{library}::scatter_mean", OF_EDGES, INDEX, 0, None, NODES)[1] == EDGES * F + NODES * F
    assert figures(f"{library}::scatter_max", OF_EDGES, INDEX, 0, None, NODES)[3] == (4 + 8) * NODES * F
    added = figures(f"{library}::scatter_mul", OF_EDGES, INDEX, 0, X, None)
    assert added[2:4] == (READ + 8 * EDGES + 4 * NODES * F, 4 * NODES * F)
    assert figures(f"{library}::segment_sum_coo", OF_EDGES, INDEX, None, NODES) == plain
    assert figures(f"{library}::segment_sum_csr", OF_EDGES, ENDS, None) == (0, EDGES * F, READ + 8 * 6, 4 * NODES * F, "fp32")


def test_the_number_of_groups_is_data():
    call = Signature("torch_scatter::scatter_max", (OF_EDGES, INDEX, 0, None, None))
    assert count(call).reason == "number of groups not recorded"
    assert count(call, output_bytes=12 * NODES * F).work.bytes_written == 12 * NODES * F
    assert count(Signature("pyg::gather_csr", (X, ENDS, None)), output_bytes=READ).work.bytes_written == READ


def test_sparse_products():
    """A row of the matrix for each edge; no more than it has."""
    values = fp32(EDGES)
    plain = figures("torch_sparse::spmm_sum", None, ENDS, INDEX, None, None, None, X)
    assert plain == (0, EDGES * F, 48 + 8 * EDGES + 4 * NODES * F, 4 * NODES * F, "fp32")
    weighted = figures("torch_sparse::spmm_mean", None, ENDS, INDEX, values, None, None, None, X)
    assert weighted[1:3] == (2 * EDGES * F + NODES * F, plain[2] + 4 * EDGES)
    assert figures("torch_sparse::spmm_max", ENDS, INDEX, values, X)[3] == (4 + 8) * NODES * F


def test_products_of_groups():
    left, right = bf16(EDGES, F), bf16(3, F, 4)
    found = figures("pyg::segment_matmul", left, int64(4), right)
    assert found == (2 * EDGES * F * 4, 0, 2 * (EDGES * F + 3 * F * 4) + 32, 2 * EDGES * 4, "bf16")
    listed = counted("pyg::grouped_matmul", (fp32(5, F), fp32(6, F)), (fp32(F, 4), fp32(F, 4))).work
    assert (listed.matrix_flops, listed.bytes_written) == (2 * EDGES * F * 4, 4 * EDGES * 4)
    assert "float32" in listed.assumption
    assert reason("pyg::grouped_matmul", MISSING, MISSING) == "argument 'left' not recorded"
