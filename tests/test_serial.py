"""Records to JSON and back: absent instead of null, whole files only, wrong types named."""

import json
import os
from types import NoneType
from typing import get_args

import msgspec
import pytest

from rooflines.device_specs.history import History
from rooflines.profiler.compiled.records import CompiledCode
from rooflines.profiler.monitor.monitored import MonitorFile
from rooflines.profiler.records import RunFile
from rooflines.profiler.training.records import Training
from rooflines.roofline.analysis import Analysis
from rooflines.serial import from_plain, part, read_json, to_plain, write_json
from rooflines.sweeps.records import PointResult


class Point(msgspec.Struct, frozen=True):
    x: float
    label: str | None = None
    inner: "tuple[Point, ...]" = ()


def test_none_is_left_out_at_every_depth():
    assert to_plain(Point(1.0, inner=(Point(2.0), Point(0.0, "zero")))) == {
        "x": 1.0, "inner": [{"x": 2.0, "inner": []}, {"x": 0.0, "label": "zero", "inner": []}],
    }  # fmt: skip


@pytest.mark.parametrize("point", [Point(1.5), Point(-0.0, "ü · µ"), Point(1e-300, "", (Point(3.0),))])
def test_what_is_written_reads_back(tmp_path, point):
    write_json(tmp_path / "point.json", point)
    assert read_json(tmp_path / "point.json", Point) == point
    assert from_plain(json.loads((tmp_path / "point.json").read_text()), Point) == point


def records_in(kind):
    """The records that a field of type ``kind`` can hold, itself among them where it is one."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from records_in(field.type)
    for inner in get_args(kind):
        if inner is not kind:
            yield from records_in(inner)


@pytest.mark.parametrize("stored", [Analysis, RunFile, MonitorFile, Training, PointResult, History, CompiledCode])
def test_what_may_be_absent_from_a_file_has_a_default(stored):
    """What is None is left out, and a record without a default for it could not be read again."""
    fields = [(kind, field) for kind in set(records_in(stored)) for field in msgspec.structs.fields(kind)]
    assert fields
    assert [f"{kind.__name__}.{field.name}" for kind, field in fields if field.required and NoneType in get_args(field.type)] == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_not_written_and_the_old_file_stays(tmp_path, value):
    path = tmp_path / "point.json"
    write_json(path, Point(1.0))
    # msgspec makes null of NaN where JSON has no word for it; then it is absent, never a wrong figure
    try:
        write_json(path, Point(value))
    except ValueError:
        assert read_json(path, Point) == Point(1.0)
    else:
        assert "x" not in json.loads(path.read_text())
    assert [entry.name for entry in tmp_path.iterdir()] == ["point.json"]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "point.json"
    write_json(path, Point(1.0))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, Point(2.0))
    assert read_json(path, Point) == Point(1.0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["point.json"]


@pytest.mark.parametrize(("text", "message"), [("{", "truncated"), ('{"x": "one"}', r"\$\.x"), ("{}", "x"), ("[]", "object")])
def test_what_does_not_fit_is_named(tmp_path, text, message):
    (tmp_path / "point.json").write_text(text)
    with pytest.raises(msgspec.DecodeError, match=message):
        read_json(tmp_path / "point.json", Point)


def test_written_files_are_readable_by_others(tmp_path):
    write_json(tmp_path / "point.json", Point(1.0))
    assert (tmp_path / "point.json").stat().st_mode & 0o777 == 0o644


def test_a_pointer_selects_places_and_fields():
    plain = {"rows": [{"time_s": number, "calls": 1, "name": "a"} for number in range(9)], "a,b": 3}
    assert part(plain, "/rows/1,3-5/time_s") == [1, 3, 4, 5]
    assert part(plain, "/rows/0-1/calls,time_s") == [{"calls": 1, "time_s": 0}, {"calls": 1, "time_s": 1}]
    assert part(plain, "/a,b") == 3
    for wrong in ("/rows/8-999999999/time_s", "/rows/1-/time_s", "/rows/1,/time_s", "/rows/0/calls,none"):
        with pytest.raises(KeyError, match="there is no"):
            part(plain, wrong)
