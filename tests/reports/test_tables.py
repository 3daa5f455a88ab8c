"""The tables: order, shortening, one scale for a column, and the files that pandas and spreadsheets read."""

from __future__ import annotations

import pandas as pd
import pytest
from msgspec.structs import replace

from rooflines.reports import tables
from rooflines.roofline.analysis import OperatorRow
from tests import samples

FORMULAS = ("=cmd()", "+1", "-1", "@SUM(A1)", "\tx", "\rx")


def test_the_frame_has_a_column_for_every_field():
    frame = tables.operators_frame(samples.analysis())
    assert list(frame.columns) == ["time_share", *OperatorRow.__struct_fields__]
    assert len(frame) == 12
    # 12.1 ms of a span of 73.33 ms
    assert frame["time_share"][0] == pytest.approx(0.0121 / 0.07328)


def test_types_do_not_depend_on_what_was_measured():
    empty = tables.operators_frame(replace(samples.analysis(), operators=()))
    assert dict(empty.dtypes) == dict(tables.operators_frame(samples.analysis()).dtypes)


def test_what_was_not_measured_is_missing_and_not_zero():
    sample = samples.analysis()
    row = replace(sample.operators[0], efficiency=None, precision=None)
    frame = tables.operators_frame(replace(sample, operators=(row,)))
    assert frame["efficiency"].isna().all()
    assert frame["precision"].isna().all()


def test_csv_holds_the_operators_modules_and_steps(tmp_path):
    paths = tables.write_csv(samples.analysis(), tmp_path / "tables")
    assert [path.name for path in paths] == ["operators.csv", "modules.csv", "steps.csv"]
    operators, modules, steps = (pd.read_csv(path) for path in paths)
    assert operators["name"][0] == "aten::conv2d"
    assert operators["flops"].sum() == pytest.approx(samples.analysis().totals.flops)
    assert modules["type"].tolist() == ["ResNet", "Sequential", "Bottleneck", "Linear"]
    assert steps["time_s"].tolist() == list(samples.analysis().steps.durations_s)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_cell_that_a_spreadsheet_would_run_is_made_inert(tmp_path, name):
    sample = samples.analysis()
    row = replace(sample.operators[0], name=name, flag=name)
    operators, *_ = tables.write_csv(replace(sample, operators=(row,)), tmp_path)
    assert f"'{name}".encode() in operators.read_bytes()
    # A negative number is a number and stays one.
    assert pd.read_csv(operators)["time_s"][0] == row.time_s


def test_a_negative_number_stays_a_number(tmp_path):
    operators, *_ = tables.write_csv(samples.analysis(), tmp_path)
    assert pd.read_csv(operators)["headroom_s"].min() < 0


def test_csv_of_a_run_without_a_trace_has_its_headers(tmp_path):
    bare = replace(samples.analysis(), operators=(), modules=(), steps=None, timeline=None, bound_breakdown=None)
    frames = [pd.read_csv(path) for path in tables.write_csv(bare, tmp_path)]
    assert [len(frame) for frame in frames] == [0, 0, 0]
    assert "headroom_s" in frames[0].columns


def test_parquet_keeps_names_as_they_are(tmp_path):
    sample = samples.analysis()
    analysis = replace(sample, operators=(replace(sample.operators[0], name="=cmd()"), *sample.operators[1:]))
    frame = pd.read_parquet(tables.write_parquet(analysis, tmp_path / "new" / "operators.parquet"))
    assert frame["name"].tolist()[0] == "=cmd()"
    assert frame["time_s"].sum() == pytest.approx(sample.totals.time_s)


@pytest.mark.parametrize(
    ("values", "unit", "texts"),
    [
        ([0.0302, 0.0093, 0.00001], "ms", ["30.2", "9.3", "<0.1"]),
        ([0.00302, None, -0.0015], "ms", ["3.02", "–", "-1.50"]),
        ([2.0, 0.0], "s", ["2.00", "0.00"]),
        ([None], "s", ["–"]),
    ],
)
def test_a_column_has_one_unit_and_one_number_of_decimals(values, unit, texts):
    scale = tables.column_scale(values, "s")
    assert scale.unit == unit
    assert [scale.text(value) for value in values] == texts


def test_an_efficiency_is_never_rounded_to_nothing_and_above_one_is_marked():
    assert [tables.efficiency_text(value) for value in (None, 0.0, 0.003, 0.42, 1.0, 1.71)] == ["–", "0", "<1", "42", "100", "!171"]


def test_a_name_is_abbreviated_before_it_is_cut():
    assert tables.shorten_name("convolution_backward", 20) == "convolution_backward"
    assert tables.shorten_name("convolution_backward", 16) == "convolution_bwd"
    assert tables.shorten_name("native_batch_norm_backward", 14) == "batch_norm_bwd"
    assert tables.shorten_name("scaled_dot_product_attention", 15) == "scaled_…tention"


@pytest.mark.parametrize(
    ("path", "width", "text"),
    [
        ("layer1.0.conv2", 14, "layer1.0.conv2"),
        ("backbone.layer1.0.conv2", 14, "…0.conv2"),
        ("encoder.layers.11.attention.output.dense", 16, "…11…output.dense"),
        ("encoder.layers.11.attention.output.dense", 12, "…11…dense"),
        ("encoder.attention.output.dense", 14, "…output.dense"),
        ("a_module_with_one_long_name", 10, "…long_name"),
        ("", 5, ""),
    ],
)
def test_a_path_keeps_its_end_and_the_number_of_its_layer(path, width, text):
    assert tables.shorten_path(path, width) == text
    assert len(tables.shorten_path(path, width)) <= width


def test_shapes_are_cut_between_shapes():
    assert tables.shorten_shapes("4x64x56x56, 64x64x3x3", 30) == "4x64x56x56, 64x64x3x3"
    assert tables.shorten_shapes("4x64x56x56, 64x64x3x3", 15) == "4x64x56x56…"
    assert tables.shorten_shapes("4x64x56x56, 64x64x3x3", 6) == "4x64x…"


def test_the_phase_is_told_where_the_name_does_not():
    row = samples.analysis().operators[0]
    assert tables.operator_name(replace(row, name="aten::mm", phase="backward")) == "mm (backward)"
    assert tables.operator_name(replace(row, name="aten::convolution_backward", phase="backward")) == "convolution_backward"
    assert tables.operator_module(replace(row, module="", phase="optimizer")) == "(optimizer)"
