"""The tables: as DataFrames, and as the files that pandas and spreadsheets read."""

import pandas as pd
import pytest
from msgspec.structs import replace

from rooflines.reports.page import measured
from rooflines.roofline.analysis import OperatorRow
from tests import samples

FORMULAS = ("=cmd()", "+1", "-1", "@SUM(A1)", "\tx", "\rx")


def test_columns_and_their_types_do_not_depend_on_what_was_measured():
    # The frame has a column for every field.
    frame = samples.analysis().to_dataframe("operators")
    assert list(frame.columns) == ["time_share", *OperatorRow.__struct_fields__]
    assert len(frame) == 12
    # 12.1 ms of a span of 73.33 ms
    assert frame["time_share"][0] == pytest.approx(0.0121 / 0.07328)
    # Types do not depend on what was measured.
    empty = replace(samples.analysis(), operators=()).to_dataframe("operators")
    assert dict(empty.dtypes) == dict(samples.analysis().to_dataframe("operators").dtypes)
    # What was not measured is missing and not zero.
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


def test_csv_and_parquet_keep_numbers_and_names(tmp_path):
    # A negative number stays a number.
    operators, *_ = measured.write_csv(samples.analysis(), tmp_path)
    assert pd.read_csv(operators)["headroom_s"].min() < 0
    # Csv of a run without a trace has its headers.
    bare = replace(samples.analysis(), operators=(), modules=(), steps=None, timeline=None, bound_breakdown=None)
    read = [pd.read_csv(path) for path in measured.write_csv(bare, tmp_path)]
    assert [len(frame) for frame in read] == [0, 0, 0]
    assert "headroom_s" in read[0].columns
    # Parquet keeps names as they are.
    sample = samples.analysis()
    analysis = replace(sample, operators=(replace(sample.operators[0], name="=cmd()"), *sample.operators[1:]))
    frame = pd.read_parquet(measured.write_parquet(analysis, tmp_path / "new" / "operators.parquet"))
    assert frame["name"].tolist()[0] == "=cmd()"
    assert frame["time_s"].sum() == pytest.approx(sample.totals.time_s)
