"""What the studies of networks run, by backend and by the options of the command line."""

import pytest

from rooflines.errors import DataError, UsageError
from rooflines_studies.backends.train import LoaderOptions, batches_of
from rooflines_studies.network_runs import BACKENDS
from rooflines_studies.study import StudyOptions, find_study, read_study, study_points
from tests import image_data


def chosen(name="backends", **options):
    """The points by part and backend, and what is missing by name."""
    points, missing = study_points(find_study(name), StudyOptions(**options))
    return [(point.part, point.options["backend"]) for point in points], {one.what: one.reason for one in missing}


def test_parts_of_backends_and_what_is_missing():
    # Each backend has its parts.
    points, missing = chosen(settings={"backend": "numba-cpu, torch-cpu,torch-mps,torch-cpu-compile"}, device="cpu")
    assert points == [
        ("speed", "numba-cpu"), ("speed", "torch-cpu"), ("speed", "torch-cpu-compile"), ("accuracy", "numba-cpu"),
        ("accuracy", "torch-cpu"), ("loader", "torch-cpu"),
    ]  # fmt: skip
    assert missing == {}
    points, missing = chosen("from-scratch", settings={"backend": "numpy,torch-cpu", "size": "784-10-10@100"})
    assert points == [
        ("speed", "numpy"), ("speed", "torch-cpu"), ("accuracy", "numpy"), ("accuracy", "torch-cpu"), ("memory", "numpy"),
        ("memory", "torch-cpu"), ("sizes", "numpy"), ("sizes", "torch-cpu"),
    ]  # fmt: skip
    # What is not here is missing with its reason.
    points, missing = chosen(quick=True)
    assert {backend for _, backend in points} | set(missing) == set(BACKENDS)
    assert "compiling takes longer than running" in missing["torch-cpu-compile"]
    points, missing = chosen(quick=True, settings={"backend": "torch-cpu-compile"})
    assert (points, missing) == ([("speed", "torch-cpu-compile")], {})


def test_mnist_gives_the_accuracy_too_and_is_looked_for_before_anything_runs(tmp_path):
    points, _ = chosen(settings={"backend": "numba-cpu"}, data_dir=str(image_data.mnist(tmp_path)))
    assert points == [("speed", "numba-cpu")]
    with pytest.raises(DataError, match="is not a directory"):
        chosen(data_dir=str(tmp_path / "absent"))


DATA = {"optimizations": image_data.cifar, "environments": image_data.tiny_imagenet, "training-profile": image_data.photographs}


@pytest.mark.parametrize("name", DATA)
def test_a_folder_is_for_the_points_with_the_data_of_the_study(tmp_path, name):
    file = read_study(find_study(name))
    points, _ = study_points(find_study(name), StudyOptions(device="cpu", data_dir=str(DATA[name](tmp_path))))
    given = {point.part: point.options.get("data") for point in points if point.options.get("data_dir")}
    assert set(given.values()) == {file.options["data"]}
    without = {point.part: point.options["data"] for point in points if not point.options.get("data_dir")}
    assert set(without.values()) <= {"resident"}
    # Without a folder, what needs labels that mean something has digits.
    points, _ = study_points(find_study(name), StudyOptions(device="cpu"))
    real = {point.part for table in file.points for point in points if table["part"] == point.part and table.get("data") == "real"}
    assert {point.options["data"] for point in points if point.part in real} <= {"digits"}


@pytest.mark.parametrize("name", DATA)
def test_a_folder_without_the_data_is_refused_before_anything_runs(tmp_path, name):
    with pytest.raises(DataError, match=r"holds no .* that can be read") as refused:
        study_points(find_study(name), StudyOptions(device="cpu", data_dir=str(tmp_path)))
    assert "FOLDER" in refused.value.hint


def test_settings_replace_options_of_all_parts_or_of_one():
    settings = {"backend": "torch-cpu", "batch_size": "64", "speed.epochs": "2"}
    points, _ = study_points(find_study("backends"), StudyOptions(settings=settings))
    found = {point.part: point.options for point in points}
    assert {part: options["batch_size"] for part, options in found.items()} == {"speed": 64, "accuracy": 64, "loader": 64}
    assert (found["speed"]["epochs"], found["accuracy"]["epochs"]) == (2, 20)
    assert {point.label for point in points} == {"torch-cpu"}
    points, _ = study_points(
        find_study("environments"), StudyOptions(device="cpu", settings={"model": "resnet18", "precision": "fp32,bf16"})
    )
    assert {(point.options["model"], point.options["precision"]) for point in points if point.part != "memory"} == {
        ("resnet18", "fp32"),
        ("resnet18", "bf16"),
    }


@pytest.mark.parametrize(("settings", "message"), [
    ({"backend": "jax"}, "unknown backend 'jax' for this study"),
    ({"backend": ""}, "unknown backend '' for this study"),
    ({"loader.epochs": "3"}, "the study has no option 'loader.epochs'"),
    ({"batch_size": "64,128"}, "compares backends in one setting, got another one: numba-cpu · batch 128"),
    ({"epochs": "0"}, r"Expected `int` >= 1 - at `\$.epochs`"),
    ({"samples": "many"}, r"Expected `int`, got `str` - at `\$.samples`"),
])  # fmt: skip
def test_settings_that_a_study_does_not_have_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        chosen(settings=settings)


@pytest.mark.parametrize(
    ("batch_size", "samples", "batches"), [(512, 60_000, 20), (512, 1_000, 2), (60_000, 60_000, 1), (7_000, 60_000, 9)]
)
def test_the_loader_reads_no_more_than_there_is(batch_size, samples, batches):
    options = LoaderOptions(
        backend="torch-cpu", data="mnist", samples=samples, batch_size=batch_size, batches=20, learning_rate=0.01, momentum=0.9, seed=0
    )
    assert batches_of(options) == batches
