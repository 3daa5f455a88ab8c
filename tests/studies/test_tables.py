"""Tables of a ``study.toml``: what was measured beside what the paper printed."""

import csv
import importlib.util
import os
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from rooflines.errors import DataError
from rooflines.profiler.samplers.fields import FIELDS
from rooflines.reports.document import texts
from rooflines.sweeps.records import MeasuredValue, SweepPoint, SweepRow
from rooflines_studies import data
from rooflines_studies.environments.memory import SIZES
from rooflines_studies.from_scratch.memory import PARTS
from rooflines_studies.study import HERE, page_module, read_study
from rooflines_studies.tables import TableFile, by_name, make_table, printed
from tests import image_data

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
    return SweepRow(
        point=SweepPoint(id=f"{part}-{model}", label="", part=part, options={"model": model}), rounds=1, facts={"device_name": device},
        estimates={name: MeasuredValue(value=value) for name, value in estimates.items()},
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


def test_tables_with_odd_values(tmp_path):
    # A joined table has one line for a name.
    columns = [COLUMNS[0], {"label": "here", "here": "samples_per_s"}, {"label": "paper", "paper": "rate"}]
    made = table(tmp_path, names=1, joined=True, columns=columns)
    assert texts(made).rows == (("large", "40.0", "–"), ("small", "20.0", "200"))
    assert not any(one.muted for one in made.rows)
    # A rate of zero has no time.
    made = table(tmp_path, rows=(row("train", "small", 0.0),), paper="")
    assert texts(made).rows == (("small", "here", "0", "–", "–", "–"),)
    # A function of the page goes before a value.
    made = table(tmp_path, paper="", functions={"samples_per_s": lambda one: 7.0 if one.point.options["model"] == "small" else None})
    assert [cells[2] for cells in texts(made).rows] == ["–", "7.00"]
    # Nothing measured and nothing printed is no table.
    assert table(tmp_path, rows=(), paper="") is None
    assert table(tmp_path, parts=["other"], paper="") is None
    # A cell of a paper is a number words or nothing.
    (tmp_path / "cells.csv").write_text("a,b,c,d\n1.50,2 to 3,,nan\n")
    assert printed(tmp_path / "cells.csv") == ({"a": 1.5, "b": "2 to 3", "c": None, "d": None},)


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
    results = [HERE.parent / "rooflines" / "sweeps" / name for name in ("point.py", "search_point.py")]
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


# --- citations


FILES = sorted(path for path in HERE.glob("*/*.csv") if (path.parent / "study.toml").is_file())
PAPERS = os.environ.get("ROOFLINES_PAPERS")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# All numbers of a row must be within this many lines of the text: the environments paper has those of one row in tables 3, 4 and 5.
NEAR = 60


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def values_of(path, row):
    """The numbers of a row as the text has them, without its names."""
    cells = [
        value for name, value in list(row.items())[1:] if name not in ("where", "unit", "configuration", "device", "beside") and value
    ]
    return [number for cell in cells for number in NUMBER.findall(cell) if float(number)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_row_names_its_place_in_the_paper_and_each_file_is_read_by_a_page_of_its_study(path):
    for row in rows_of(path):
        assert re.match(r"(table|figure|section)s? [\dIVX]", row["where"]), row
    name = path.name.removeprefix("environments_").removesuffix(".csv")
    texts = [file.read_text(encoding="utf-8") for file in (*path.parent.glob("*.py"), path.parent / "study.toml")]
    assert any(path.name in text or f'table("{name}")' in text for text in texts)


@pytest.mark.skipif(PAPERS is None, reason="the texts of the papers are not part of the project")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_value_is_in_the_text(path):
    text = (Path(str(PAPERS)) / f"{path.parent.name.replace('_', '-')}.txt").read_text(encoding="utf-8").replace(",", "")
    lines = [{float(number) for number in NUMBER.findall(line)} for line in text.splitlines()]
    for row in rows_of(path):
        values = {float(number) for number in values_of(path, row)}
        places = (set().union(*lines[at : at + NEAR]) for at in range(len(lines)))
        assert any(values <= place for place in places), f"{row}: these numbers do not stand together in the text"


def test_no_sentence_of_a_page_types_a_value_of_a_paper():
    """Values beside "the paper" in the sentences come from the files: a literal is a year, a count of things or a definition.

    Remarks in a ``study.toml`` are about nothing else; ``test_remarks.py`` derives their numbers.
    """
    literal = re.compile(r"[Tt]he paper[^\"{]*?[^\w.{]\d+(?:\.\d+)?(?: %| MB| GB| s\b| ms| images/s| samples/s)")
    for path in HERE.glob("*/*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.lstrip().startswith(("#", '"""')):
                assert not literal.search(line), f"{path.name}: {line.strip()}"


# --- data


needs_digits = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed")


def test_mnist_is_read_from_its_folder_or_said_to_be_missing(tmp_path):
    # Mnist is read from the folder.
    found = data.load("mnist", str(image_data.mnist(tmp_path)), train_samples=20)
    assert found.train_images.shape == (20, 28, 28)
    assert found.test_classes.shape == (12,)
    assert found.facts.label == "MNIST"
    np.testing.assert_array_equal(found.train_images, image_data.digits(30)[0][:20])
    # A folder without mnist says what was expected.
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no MNIST that can be read") as raised:
        data.load("mnist", str(tmp_path / "empty"))
    assert "train.csv" in raised.value.hint
    with pytest.raises(DataError, match="requires a folder"):
        data.load("mnist")


@pytest.mark.parametrize(("tests", "sizes", "remark"), [(False, (48, 12), "12 images held out for tests"), (True, (60, 20), "")])
def test_mnist_as_csv_has_its_labeled_test_file_or_a_part_held_out(tmp_path, tests, sizes, remark):
    found = data.load("mnist", str(image_data.mnist_csv(tmp_path, tests=tests)))
    assert (len(found.train_images), len(found.test_images)) == sizes
    assert found.remark.endswith(remark)
    whole = np.concatenate((found.train_images, found.test_images[: 60 - sizes[0]]))
    assert whole.sum() == image_data.digits(60)[0].sum()


@pytest.mark.parametrize(("change", "said"), [
    (lambda text: text.replace("label", "digit"), "does not have the columns label, pixel0"),
    (lambda text: text.replace("255", "256"), "values that are no pixels"),
    (lambda text: text.partition("\n")[0], "does not have the columns label, pixel0"),
    (lambda _: "", "cannot be read as CSV"),
])  # fmt: skip
def test_a_broken_csv_file_is_named(tmp_path, change, said):
    path = image_data.mnist_csv(tmp_path) / "train.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=r"train\.csv") as raised:
        data.load("mnist", str(tmp_path))
    assert said in raised.value.message


def test_synthetic_images_have_mnists_size_and_say_that_they_mean_nothing():
    found = data.load("synthetic", train_samples=500, test_samples=100)
    assert (found.train_images.shape, found.test_images.shape) == ((500, 28, 28), (100, 28, 28))
    assert "accuracy not meaningful" in found.facts.label
    assert set(found.train_classes) == set(range(10))
    same = data.load("synthetic", train_samples=500, test_samples=100)
    np.testing.assert_array_equal(found.train_images, same.train_images)
    other = data.load("synthetic", seed=1, train_samples=500, test_samples=100)
    assert (found.train_images != other.train_images).any()


@needs_digits
def test_digits_are_split_alike_everywhere():
    found = data.load("digits")
    assert (len(found.train_images), len(found.test_images)) == (1437, 360)
    assert "not MNIST" in found.facts.label
    np.testing.assert_array_equal(found.test_classes[:8], data.load("digits", seed=5).test_classes[:8])


def test_scaling_up():
    # Scaling up keeps a flat image flat inside mnists border.
    grown = data.scaled_up(np.full((2, 8, 8), 200, np.float32))
    assert (grown[:, 4:24, 4:24] == 200).all()
    assert grown.sum() == 2 * 400 * 200
    # Scaling up is bilinear.
    # A ramp stays one: from pixel center to pixel center it rises by 8 / 20 of a step of the small image.
    ramp = np.broadcast_to(np.arange(8, dtype=np.float32) * 20, (1, 8, 8))
    row = data.scaled_up(ramp)[0, 14, 4:24].astype(int)
    assert (np.diff(row)[1:-1] == 8).all()


def test_normalizing_is_the_papers():
    images = np.zeros((1, 28, 28), np.uint8)
    images[0, 0, 0] = 255
    found = data.normalized(images)
    assert found.shape == (1, 1, 28, 28)
    assert found.dtype == np.float32
    assert found[0, 0, 0, 0] == pytest.approx((1 - 0.1307) / 0.3081, rel=1e-6)
    assert found[0, 0, 1, 1] == pytest.approx(-0.1307 / 0.3081, rel=1e-6)


@pytest.mark.parametrize(("count", "batch", "filled"), [(60_000, 512, 60_416), (512, 512, 512), (3, 8, 8)])
def test_sets_are_filled_up_to_whole_batches_from_their_start(count, batch, filled):
    order = data.padded(count, batch)
    assert len(order) == filled
    np.testing.assert_array_equal(order[:count], np.arange(count))
    np.testing.assert_array_equal(order[count:], np.arange(filled - count) % count)
