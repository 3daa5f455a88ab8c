"""Generated kernels of a trace with inductor's cache at hand: the work of their code instead of that of their names."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooflines
from rooflines.errors import UsageError
from rooflines.profiler.compiled.inductor_cache import read_cache
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.cached_kernels import count_cached
from rooflines.roofline.count.formulas import count
from tests.roofline.rooms import attributed
from tests.traces import kernel, launch, op

DATA = Path(__file__).parents[2] / "data" / "inductor"
NORM = "triton_per_fused_native_layer_norm_0"


@pytest.fixture
def cache(tmp_path):
    for name in ("rope", "ln", "embed", "cpp"):
        (tmp_path / f"{name}.py").write_text((DATA / f"{name}.txt").read_text())
    return read_cache(tmp_path)


def t(*shape, dtype="bfloat16"):
    return TensorArg(shape, dtype)


def counted(cache, name, *args):
    return count_cached(Signature(name, args), cache[name])


def test_a_reduction_has_the_operators_of_its_graph(cache):
    """Each of the 11520 elements: var_mean 4, (x - m) * r * w + b 4; each of the 120 rows: + eps, rsqrt."""
    found = counted(cache, NORM, t(2, 60, 96), t(96), t(96), t(2, 60, 96), 120, 96)
    assert found.work.other_flops == 11520 * 8 + 120 * 2
    assert (found.work.bytes_read, found.work.bytes_written) == (11520 * 2 + 2 * 96 * 2, 11520 * 2)
    assert found.work.assumption == ""


def test_tables_and_halves_are_read_once(cache):
    name = "triton_poi_fused_add_cat_mul_slice_sub_0"
    table = t(60, 1, 32, dtype="float32")
    found = counted(cache, name, t(2, 60, 4, 64), table, table, t(2, 60, 4, 64, dtype="float32"), 30720)
    assert found.work.other_flops == 6 * 15360  # four products, a difference and a sum of halves
    assert (found.work.bytes_read, found.work.bytes_written) == (30720 * 2 + 2 * 1920 * 4, 30720 * 4)


def test_an_index_reads_a_row_for_each_result(cache):
    found = counted(cache, "triton_poi_fused_embedding_mul_0", t(60, dtype="int64"), t(1000, 96), t(60, 96), 5760)
    assert (found.work.other_flops, found.work.bytes_read) == (5760, 60 * 8 + 5760 * 2)


def test_a_kernel_of_the_same_name_with_other_sizes_is_another_kernel(cache):
    assert counted(cache, NORM, t(2, 7, 96), t(96), t(96), t(2, 7, 96), 14, 96) is None
    assert counted(cache, NORM, t(2, 60, 96), t(2, 60, 96), 120, 96) is None


def test_without_the_comment_the_flops_are_those_of_the_name(tmp_path):
    (tmp_path / "kernel.py").write_text((DATA / "ln.txt").read_text().split("'''")[1])
    args = (t(2, 60, 96), t(96), t(96), t(2, 60, 96), 120, 96)
    found = counted(read_cache(tmp_path), NORM, *args)
    assert found.work.other_flops == count(Signature(NORM, args)).work.other_flops
    assert found.work.bytes_read == 11520 * 2 + 2 * 96 * 2


def test_two_kernels_that_fit_and_differ_are_not_counted(tmp_path, cache):
    text = (DATA / "ln.txt").read_text()
    (tmp_path / "other.py").write_text(text.replace("tl.load(in_ptr1 + (r0_1)", "tl.load(in_ptr1 + (0)"))
    assert counted(read_cache(tmp_path), NORM, t(2, 60, 96), t(96), t(96), t(2, 60, 96), 120, 96) is None


NORM_CALL = {
    "dims": [[2, 60, 96], [96], [96], [2, 60, 96], [], []],
    "types": ["c10::BFloat16"] * 4 + ["Scalar"] * 2,
    "concrete": ["", "", "", "", "120", "96"],
}


def divided(cache, *events):
    return attributed(*events, inductor_cache=cache)


def test_a_trace_is_counted_with_the_cache(cache):
    events = (op(NORM, 0, 10, **NORM_CALL), launch(2, 2, 1), kernel(NORM, 20, 5, 1))
    (row,) = divided(cache, *events).rows
    assert row.count.work.assumption == ""
    (row,) = divided(None, *events).rows
    assert row.count.work.assumption


def test_kernels_without_arguments_in_the_trace_are_counted_by_the_code_that_calls_them(cache):
    result = divided(cache, op("graph_0_cpp_fused_gelu_0", 0, 10), op("graph_0_cpp_fused_native_layer_norm_1", 20, 10))
    works = {row.signature.name: row.count.work for row in result.rows}
    assert works["graph_0_cpp_fused_gelu_0"].bytes == 2 * 60 * 384 * 4
    assert works["graph_0_cpp_fused_native_layer_norm_1"].bytes_written == 60 * 96 * 4 + 2 * 60 * 4


def test_kernels_that_the_cache_lacks_are_named_in_a_note(cache):
    events = (op("triton_poi_fused_relu_9", 0, 10), op(NORM, 20, 10, **NORM_CALL))
    (note,) = (note for note in divided(cache, *events).notes if "inductor" in note)
    assert "1 of the 2" in note
    assert "triton_poi_fused_relu_9" in note
    assert not [note for note in divided(None, *events).notes if "inductor" in note]


def test_the_option_reaches_the_analysis(tmp_path, cache):
    found = rooflines.analyze(DATA.parent / "traces" / "triton_kernel.json.gz", inductor_cache=tmp_path)
    assert [note for note in found.notes if "triton_poi_fused_add_cos_sin_0" in note]


def test_the_option_applies_to_one_run_or_trace(tmp_path):
    with pytest.raises(UsageError, match="inductor_cache"):
        rooflines.report(["a.json", "b.json"], inductor_cache=tmp_path)
