"""Tables of a ``study.toml``: what was measured beside what the paper printed."""

from __future__ import annotations

import msgspec
import pytest

from rooflines.profiler.samplers.fields import FIELDS
from rooflines.reports.document import texts
from rooflines.studies.environments.memory import SIZES
from rooflines.studies.from_scratch.memory import PARTS
from rooflines.studies.study import HERE, page_module, read_study
from rooflines.studies.tables import TableFile, by_name, make_table, printed
from rooflines.sweeps.records import Estimate, Point, Row

PAPER = """network,machine,rate,memory_mb,where
small,CPU,10.50,,table 1
small,GPU,200,300,table 1
large,GPU,nan,2 to 3,table 1
"""
COLUMNS = [
    {"label": "network", "format": "text", "here": "model", "paper": "network"},
    {"label": "machine", "format": "text", "here": "device_name", "paper": "machine"},
    {"label": "rate", "unit": "1/s", "here": "samples_per_s", "paper": "rate"},
    {"label": "epoch", "unit": "s", "here": "samples_per_s", "over": 1000},
    {"label": "tested", "unit": "1/s", "here": "test.samples_per_s", "factor": 2},
    {"label": "memory", "unit": "B", "format": "scaled", "here": "peak or size", "paper": "memory_mb", "paper_factor": 1e6},
]


def row(part, model, rate, device="here", **values):
    estimates = {"samples_per_s": rate, **values}
    return Row(
        point=Point(id=f"{part}-{model}", label="", part=part, options={"model": model}), rounds=1, facts={"device_name": device},
        estimates={name: Estimate(value=value) for name, value in estimates.items()},
    )  # fmt: skip


ROWS = (row("train", "large", 40.0, size=5e8), row("train", "small", 20.0), row("test", "small", 30.0))


def table(tmp_path, rows=ROWS, functions=None, **changes):
    (tmp_path / "paper.csv").write_text(PAPER)
    file = {"section": "s", "name": "t", "parts": ["train"], "names": 2, "paper": "paper.csv", "columns": COLUMNS, **changes}
    return make_table(msgspec.convert(file, TableFile), rows, tmp_path, functions or {})


def test_the_paper_stands_behind_what_was_measured_of_the_same_first_name(tmp_path):
    made = table(tmp_path)
    assert texts(made).rows == (
        ("large", "here", "40.0", "25.0", "–", "500"),
        ("large", "GPU (paper)", "–", "–", "–", "2 to 3"),
        ("small", "here", "20.0", "50.0", "60.0", "–"),
        ("small", "CPU (paper)", "10.5", "–", "–", "–"),
        ("small", "GPU (paper)", "200", "–", "–", "300"),
    )
    assert texts(made).units[-1] == "MB"
    assert [one.muted for one in made.rows] == [False, True, False, True, True]


def test_a_joined_table_has_one_line_for_a_name(tmp_path):
    columns = [COLUMNS[0], {"label": "here", "here": "samples_per_s"}, {"label": "paper", "paper": "rate"}]
    made = table(tmp_path, names=1, joined=True, columns=columns)
    assert texts(made).rows == (("large", "40.0", "–"), ("small", "20.0", "200"))
    assert not any(one.muted for one in made.rows)


def test_a_rate_of_zero_has_no_time(tmp_path):
    made = table(tmp_path, rows=(row("train", "small", 0.0),), paper="")
    assert texts(made).rows == (("small", "here", "0", "–", "–", "–"),)


def test_a_function_of_the_page_goes_before_a_value(tmp_path):
    made = table(tmp_path, paper="", functions={"samples_per_s": lambda one: 7.0 if one.point.options["model"] == "small" else None})
    assert [cells[2] for cells in texts(made).rows] == ["–", "7.00"]


def test_a_turned_table_has_the_lines_side_by_side_with_their_units(tmp_path):
    (tmp_path / "turned.csv").write_text("quantity,unit,small,tiny,where\nstep,ms,84.6,30.2,table 3\nmemory,MB,7.9,7.9,table 5\n")
    columns = [
        {"label": "library", "here": "model"},
        {"label": "device", "here": "device_name"},
        {"label": "a step", "unit": "s", "format": "scaled", "here": "step_s", "paper": "step"},
        {"label": "memory", "unit": "B", "format": "scaled", "here": "size", "paper": "memory"},
    ]
    rows = (row("train", "small", 1.0, step_s=0.04), row("train", "small", 1.0, "other", step_s=0.02))
    alone, both = (table(tmp_path, rows=some, columns=columns, paper="turned.csv", turned=True) for some in (rows[:1], rows))
    assert [(one.label, one.unit) for one in alone.columns] == [("", ""), ("small", "here"), ("small", "paper"), ("tiny", "paper")]
    assert [one.cells for one in alone.rows] == [
        ("a step", "40.0 ms", "84.6 ms", "30.2 ms"), ("memory", None, "7.90 MB", "7.90 MB")
    ]  # fmt: skip
    assert [one.label for one in both.columns] == ["", "small (here)", "small (other)", "small", "tiny"]
    assert by_name(tmp_path / "turned.csv")["tiny"] == {"step": pytest.approx(30.2e-3), "memory": pytest.approx(7.9e6)}


OURS = sorted(path.parent for path in HERE.glob("*/study.toml"))


@pytest.mark.parametrize("folder", OURS, ids=lambda folder: folder.name)
def test_every_column_of_a_study_names_something_that_exists(folder):
    """A misspelt name would be a column of dashes. Values stand in the sources or are fields of samples, a paper's in its file."""
    results = [HERE.parent / "sweeps" / name for name in ("point.py", "search_point.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in (*HERE.rglob("*.py"), *results))
    file, values = read_study(folder), getattr(page_module(folder), "VALUES", {})
    options = {name for point in (file.options, *file.parts.values(), *file.points) for name in point}
    own = {"device_name", "limited_by", "part", "model", "backend", *values, *options}
    printed_units = {f"{name}_s" for name in ("matrix_multiplication", "relu", "softmax", "gradient_computation", "bias", "update")}
    passes = {"forward_s", "backward_s"}
    memory = {f"{name}_bytes" for name in (*PARTS, "total")} | {f"peak_{size}_bytes" for size in SIZES}
    for table in file.tables:
        for column in table.columns:
            for name in (column.here or ("" if column.paper else column.label)).split(" or "):
                plain = name.rpartition(".")[2]
                field = plain.removeprefix("device_").removeprefix("host_")
                known = own | printed_units | passes | memory | set(FIELDS)
                assert not plain or plain in known or field in known or f'"{plain}"' in source, f"{table.name}: {name}"
        if table.paper:
            rows = printed(folder / table.paper)
            columns = {row["quantity"] for row in rows} if table.turned else set(rows[0])
            assert {column.paper for column in table.columns if column.paper} <= columns, table.name


def test_nothing_measured_and_nothing_printed_is_no_table(tmp_path):
    assert table(tmp_path, rows=(), paper="") is None
    assert table(tmp_path, parts=["other"], paper="") is None


def test_a_cell_of_a_paper_is_a_number_words_or_nothing(tmp_path):
    (tmp_path / "cells.csv").write_text("a,b,c,d\n1.50,2 to 3,,nan\n")
    assert printed(tmp_path / "cells.csv") == ({"a": 1.5, "b": "2 to 3", "c": None, "d": None},)
