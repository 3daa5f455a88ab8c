"""The points of a sweep: lists of options, their combinations, their names."""

import pytest

from rooflines.errors import DataError, RooflinesError, UsageError
from rooflines.sweeps.points import grid, make_points, parse, read_file, settings_of


@pytest.mark.parametrize(("name", "text", "kind", "values"), [
    ("batch_size", "8, 16,32", "profile", [8, 16, 32]),
    ("compile", "off,on,max-autotune", "profile", ["off", "on", "max-autotune"]),
    ("optimizer", "sgd,adamw,fused,adam", "profile", ["sgd", "adamw,fused", "adam"]),
    ("channels_last", "off,on", "profile", [False, True]),
    ("threads", "1,2", "profile", [1, 2]),
    ("device", "cpu,cuda:1", "profile", ["cpu", "cuda:1"]),
    ("learning_rate", "0.1,1e-3", "train", [0.1, 0.001]),
])  # fmt: skip
def test_lists_are_read_with_the_type_of_their_option(name, text, kind, values):
    assert parse(name, text, kind) == values


@pytest.mark.parametrize(("name", "text", "problem"), [
    ("batch_size", "8,many", "batch_size='many' is not an integer"),
    ("precision", "fp32,int3", "precision='int3' is not a choice"),
    ("channels_last", "maybe", "channels_last='maybe' is not on or off"),
])  # fmt: skip
def test_a_value_of_another_type_is_named(name, text, problem):
    with pytest.raises(UsageError, match=problem):
        parse(name, text)


def test_lists_are_crossed_and_the_last_one_changes_fastest():
    found = grid({"model": ["a", "b"], "precision": "bf16", "batch_size": [1, 2]})
    assert [(one["model"], one["batch_size"]) for one in found] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert {one["precision"] for one in found} == {"bf16"}
    with pytest.raises(UsageError, match="unknown option 'bach_size'"):
        grid({"model": "a", "bach_size": [1]})


def test_points_are_labelled_by_what_differs_and_are_there_once():
    settings = [("profile", {"model": "resnet18", "batch_size": size, "compile": mode, "threads": 1})
                for size in (8, 16) for mode in ("off", "on")]  # fmt: skip
    points = make_points([*settings, settings[0]])
    assert [point.label for point in points] == ["batch 8", "batch 8 · compiled", "batch 16", "batch 16 · compiled"]
    assert len({point.id for point in points}) == 4
    (single,) = make_points(settings[:1])
    assert single.label == "resnet18"
    again = make_points(settings[:1])
    assert again == (single,)


def test_what_no_machine_can_run_is_refused_before_anything_runs():
    with pytest.raises(RooflinesError, match="batch_size must be at least 1, got 0"):
        make_points([("profile", {"model": "resnet18", "batch_size": 0})])
    with pytest.raises(UsageError, match="requires a model"):
        make_points([("profile", {"batch_size": 1})])


def test_a_file_has_several_grids_and_the_command_line_replaces_its_options(tmp_path):
    path = tmp_path / "points.toml"
    path.write_text("""
name = "two"
repeats = 2
options = {device = "cpu", steps = 5}
[[points]]
model = ["a", "b"]
batch_size = [1, 2]
[[points]]
kind = "train"
model = "a"
data = "digits"
options_are_checked = 1
""")
    with pytest.raises(UsageError, match="unknown option 'steps' of train"):
        settings_of(read_file(path), {})
    path.write_text(path.read_text().replace("steps = 5", "threads = 1").replace("options_are_checked = 1\n", ""))
    found = settings_of(read_file(path), {"batch_size": [4]})
    assert [(kind, one["model"], one["batch_size"]) for kind, one in found] == [
        ("profile", "a", 4),
        ("profile", "b", 4),
        ("train", "a", 4),
    ]
    assert {one["threads"] for _, one in found} == {1}
    path.write_text("name = ")
    with pytest.raises(DataError, match="is not a sweep"):
        read_file(path)
    path.write_text("pionts = []")
    with pytest.raises(DataError, match="pionts"):
        read_file(path)
