"""The tables: as DataFrames, and as the files that pandas and spreadsheets read."""

import pandas as pd
import pytest
from msgspec.structs import replace

from rooflines.reports.views import measured
from rooflines.roofline.analysis import OperatorRow
from tests import samples

FORMULAS = ("=cmd()", "+1", "-1", "@SUM(A1)", "\tx", "\rx")


def test_the_frame_has_a_column_for_every_field():
    frame = samples.analysis().to_dataframe("operators")
    assert list(frame.columns) == ["time_share", *OperatorRow.__struct_fields__]
    assert len(frame) == 12
    # 12.1 ms of a span of 73.33 ms
    assert frame["time_share"][0] == pytest.approx(0.0121 / 0.07328)


def test_types_do_not_depend_on_what_was_measured():
    empty = replace(samples.analysis(), operators=()).to_dataframe("operators")
    assert dict(empty.dtypes) == dict(samples.analysis().to_dataframe("operators").dtypes)


def test_what_was_not_measured_is_missing_and_not_zero():
    sample = samples.analysis()
    row = replace(sample.operators[0], efficiency=None, precision=None)
    frame = replace(sample, operators=(row,)).to_dataframe("operators")
    assert frame["efficiency"].isna().all()
    assert frame["precision"].isna().all()


def test_csv_holds_the_operators_modules_and_steps(tmp_path):
    paths = measured.write_csv(samples.analysis(), tmp_path / "tables")
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
    operators, *_ = measured.write_csv(replace(sample, operators=(row,)), tmp_path)
    assert f"'{name}".encode() in operators.read_bytes()
    # A negative number is a number and stays one.
    assert pd.read_csv(operators)["time_s"][0] == row.time_s


def test_a_negative_number_stays_a_number(tmp_path):
    operators, *_ = measured.write_csv(samples.analysis(), tmp_path)
    assert pd.read_csv(operators)["headroom_s"].min() < 0


def test_csv_of_a_run_without_a_trace_has_its_headers(tmp_path):
    bare = replace(samples.analysis(), operators=(), modules=(), steps=None, timeline=None, bound_breakdown=None)
    read = [pd.read_csv(path) for path in measured.write_csv(bare, tmp_path)]
    assert [len(frame) for frame in read] == [0, 0, 0]
    assert "headroom_s" in read[0].columns


def test_parquet_keeps_names_as_they_are(tmp_path):
    sample = samples.analysis()
    analysis = replace(sample, operators=(replace(sample.operators[0], name="=cmd()"), *sample.operators[1:]))
    frame = pd.read_parquet(measured.write_parquet(analysis, tmp_path / "new" / "operators.parquet"))
    assert frame["name"].tolist()[0] == "=cmd()"
    assert frame["time_s"].sum() == pytest.approx(sample.totals.time_s)
