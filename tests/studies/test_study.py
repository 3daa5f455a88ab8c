"""Studies as folders: their points on this machine, their pages from results, results of several machines, a study of one's own."""

from types import SimpleNamespace

import msgspec
import pytest
import torch

from rooflines.errors import DataError, DeviceError, UsageError
from rooflines.reports.document import texts
from rooflines.reports.render.html import render
from rooflines.serial import write_json
from rooflines.sweeps.records import PointResult, Sweep
from rooflines.sweeps.results import round_directory
from rooflines_studies import study as studies
from rooflines_studies.study import StudyOptions, find_study, merge_studies, page, read_study, run_study, study_points
from tests.commands import call, traced_processes, write_ceilings

NAMES = ("environments", "optimizations", "training-profile")
WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="a GPU is here")


@WITHOUT_GPU
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quick", [False, True])
def test_every_point_of_a_study_could_run_and_those_for_a_gpu_are_named(name, quick):
    points, missing = study_points(find_study(name), StudyOptions(quick=quick, seed=3))
    assert points
    assert len({point.id for point in points}) == len(points)
    assert {point.options["device"] for point in points if not point.function} == {"cpu"}
    assert {point.options["seed"] for point in points} == {3}
    assert any(one.reason == studies.NO_GPU for one in missing)


def test_a_gpu_gets_its_points(monkeypatch):
    monkeypatch.setattr(studies, "gpu_here", lambda: "cuda")
    folder = find_study("training-profile")
    points, missing = study_points(folder, StudyOptions())
    assert missing == ()
    assert {point.options["device"] for point in points if point.part == "training"} == {"cpu", "cuda"}
    assert {point.options["parallel"] for point in points if point.part == "two GPUs"} == {"dp"}
    only, _ = study_points(folder, StudyOptions(device="cuda"))
    assert {point.options["device"] for point in only} == {"cuda"}


def test_parts_and_quick_options():
    folder = find_study("environments")
    full, _ = study_points(folder, StudyOptions(parts=("batch sweep",), device="cpu"))
    quick, _ = study_points(folder, StudyOptions(parts=("batch sweep",), device="cpu", quick=True))
    assert [point.options["batch_size"] for point in full] == [32, 64, 128]
    assert [point.options["batch_size"] for point in quick] == [4, 8, 16]
    assert {point.part for point in quick} == {"batch sweep"}
    with pytest.raises(UsageError, match="has no part 'sweeps'"):
        study_points(folder, StudyOptions(parts=("sweeps",)))


def results_of(points, directory, device, factor, others=0.0):
    """Plausible results of every point as a machine called ``device`` would leave them."""
    sweep = Sweep(name="s", repeats=1, points=tuple(points))
    directory.mkdir()
    write_json(directory / "sweep.json", sweep)
    for number, point in enumerate(points, 1):
        values = {
            "samples_per_s": 10.0 * number * factor, "step_s": 0.1 / factor, "sample_s": 0.01 / factor, "peak_memory_bytes": 1e9,
            "flops": 1e9, "matrix_flops": 1e9, "bytes": 1e8, "intensity_flop_per_byte": 10.0, "flop_per_s": 1e10 * factor,
            "efficiency": 0.5, "lower_bound_s": 0.05, "first_step_s": 1.0, "input_fraction": 0.4, "epoch_s": 2.0, "accuracy": 0.9,
            "others_cores": others,
        }  # fmt: skip
        folder = round_directory(directory, point, 0)
        folder.mkdir(parents=True)
        facts = {"device": "cpu", "device_name": device, "limited_by": "input", "data": "CIFAR-10"}
        write_json(folder / "result.json", PointResult(point=point.id, round=0, values=values, facts=facts))


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_a_study_has_its_sections_and_merges_machines(name, tmp_path):
    folder = find_study(name)
    points, _ = study_points(folder, StudyOptions(device="cpu"))
    for machine, factor in (("slow", 1.0), ("fast", 2.0)):
        results_of(points, tmp_path / machine, machine, factor)
    alone, both = merge_studies(folder, [tmp_path / "slow"]), merge_studies(folder, [tmp_path / "slow", tmp_path / "fast"])
    assert (alone.devices, both.devices) == (("slow",), ("slow", "fast"))
    assert len(both.rows) == 2 * len(points)
    for found in (alone, both):
        made = page(found, folder)
        assert made.verdict == found.findings[0]
        assert [section.name for section in made.sections][-2:] == ["missing", "method"]
        assert "fast" in render(made) or found is alone
    assert msgspec.json.decode(msgspec.json.encode(both), type=studies.Study) == both


@pytest.mark.parametrize("name", NAMES)
def test_no_finding_rests_on_points_beside_other_programs(name, tmp_path):
    folder = find_study(name)
    points, _ = study_points(folder, StudyOptions(device="cpu"))
    for machine, others in (("quiet", 0.0), ("shared", 1.5)):
        results_of(points, tmp_path / machine, machine, 1.0, others)
    quiet, shared = (merge_studies(folder, [tmp_path / machine]) for machine in ("quiet", "shared"))
    assert not any("Shared machine" in text for text in quiet.findings)
    first, *others = shared.findings
    assert first.startswith(
        f"Shared machine: other programs used up to 1.5 processors while {len(points)} of {len(points)} points ran."
    )
    assert not any("shared" in text for text in others), "what is left are findings about the paper"
    assert len(shared.rows) == len(points)


def test_the_same_machine_twice_keeps_two_names(tmp_path):
    folder = find_study("environments")
    points, _ = study_points(folder, StudyOptions(device="cpu", parts=("training",)))
    for number in (1, 2):
        results_of(points, tmp_path / str(number), "same", 1.0)
    both = merge_studies(folder, [tmp_path / "1", tmp_path / "2"])
    assert both.devices == ("same", "same (2)")
    assert len(both.rows) == 2 * len(points)


@pytest.mark.ci
def test_the_paper_s_peaks_of_memory_fit_images_of_224_pixels():
    """Activations of a training step, counted for the paper's batches, beside what it printed for its T4."""
    from rooflines_studies.environments import memory, page

    printed = {one["model"]: 1e6 * (one["peak_gpu_memory_mb"] or 0) for one in page.table("throughput")}
    point = {"id": "memory-1", "options": {"model": "squeezenet1_1", "batch_size": 64}}
    silent = SimpleNamespace(stage=lambda *_: None)
    found = memory.count_memory({"point": point, "round": 0}, None, silent).values
    assert found["peak_224_bytes"] == pytest.approx(printed["squeezenet1_1"], rel=0.1)
    assert found["peak_64_bytes"] < 0.1 * printed["squeezenet1_1"]


@pytest.mark.parametrize(("times", "fits"), [(1.0, True), (2.0, False)])
def test_the_size_of_images_is_found_only_where_the_counted_memory_fits(times, fits):
    from rooflines.sweeps.records import MeasuredValue, SweepPoint, SweepRow
    from rooflines_studies.environments import page

    rows = tuple(
        SweepRow(
            point=SweepPoint(id=one["model"], label="", part="memory", options={"model": one["model"]}), rounds=1,
            estimates={
                "peak_64_bytes": MeasuredValue(value=1e5 * one["peak_gpu_memory_mb"]),
                "peak_224_bytes": MeasuredValue(value=times * 1e6 * one["peak_gpu_memory_mb"]),
            },
        )
        for one in page.table("throughput") if one["peak_gpu_memory_mb"]
    )  # fmt: skip
    found = studies.Study(name="environments", title="", created="", command="", rows=rows)
    assert any("its images were scaled up" in text for text in page._image_size(found)) == fits


OWN = {
    "study.toml": """
name = "own"
title = "A study of one's own"
repeats = 1
[[points]]
part = "steps"
device = ["cpu", "gpu"]
model = "MODEL"
batch_size = [2, 4]
steps = 2
warmup = 1
""",
    "page.py": """
from rooflines.reports.document import Section
from rooflines_studies.study import decided
from rooflines.sweeps.page import points_table

def findings(study):
    rates = [(row.point.label, row.estimates["samples_per_s"]) for row in study.part("steps")]
    best, *others = sorted(rates, key=lambda pair: -pair[1].value)
    yield from decided([(*best, *other) for other in others], "runs", "many samples/s")

def sections(study):
    return (Section(name="points", title="Points", blocks=(points_table(study.part("steps")),)),)
""",
    "model.py": """
import torch

def small(batch_size):
    return torch.nn.Linear(8, 8), torch.randn(batch_size, 8)
""",
}


@pytest.mark.ci
def test_a_study_of_one_s_own_is_a_folder(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "own"
    folder.mkdir()
    for name, text in OWN.items():
        (folder / name).write_text(text.replace("MODEL", f"{folder / 'model.py'}:small"))
    monkeypatch.chdir(tmp_path)
    answer = call(capsys, monkeypatch, "study", "run", folder, "--ceilings", write_ceilings(tmp_path), "--device", "cpu", "-o", "out")
    assert answer.code == 0, answer
    assert "times as many samples/s as" in answer.out or "The rounds do not decide: " in answer.out
    assert (tmp_path / "out" / "report.html").is_file()
    assert (tmp_path / "out" / "results.csv").is_file()
    first, second = traced_processes(tmp_path / "out")
    assert len(first) == len(second) == len(first | second) - 1 == 1
    with pytest.raises(DeviceError, match="nothing of own can run here"):
        run_study(folder, StudyOptions(device="cuda"), output=tmp_path / "none")
    (folder / "study.toml").write_text("name = 3")
    with pytest.raises(DataError, match="is not a study"):
        read_study(folder)
    with pytest.raises(UsageError, match="unknown study 'nothing'"):
        find_study("nothing")


TABLES = """
name = "own"
title = "A study without a page of its own"

[[points]]
part = "steps"
model = ["resnet18", "squeezenet1_1"]
batch_size = [2, 4]

[[tables]]
section = "rates"
name = "rates"
parts = ["steps"]
names = 2
columns = [
  { label = "network", format = "text", here = "model" },
  { label = "batch", format = "text", here = "batch_size" },
  { label = "rate", unit = "images/s", here = "samples_per_s" },
]
"""


def test_a_study_without_a_page_shows_its_tables_and_what_a_sweep_shows(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "study.toml").write_text(TABLES)
    points, _ = study_points(folder, StudyOptions())
    results_of(points, tmp_path / "out", "here", 1.0)
    found = merge_studies(folder, [tmp_path / "out"])
    made = page(found, folder)
    assert [section.name for section in made.sections] == ["points", "curves", "rates", "missing", "method"]
    rates = next(table for table in made.tables() if table.name == "rates")
    assert texts(rates).rows == (
        ("resnet18", "2", "10.0"), ("resnet18", "4", "20.0"), ("squeezenet1_1", "2", "30.0"), ("squeezenet1_1", "4", "40.0"),
    )  # fmt: skip
    assert made.verdict.startswith("Highest throughput: squeezenet1_1")


def test_one_round_does_not_tell_which_configuration_is_faster(tmp_path):
    folder = find_study("optimizations")
    points, _ = study_points(folder, StudyOptions(device="cpu", parts=("train", "latency")))
    results_of(points, tmp_path / "out", "here", 1.0)
    text = "\n".join(merge_studies(folder, [tmp_path / "out"]).findings)
    assert "speed-up" not in text
    for what in ("time per epoch of training", "time per image in inference"):
        assert f"The rounds do not decide by how much the {what} differs between configurations of resnet18 on here" in text
    assert "Dynamic int8 converts the linear layers" in text


@pytest.mark.parametrize(("samples", "shown"), [(5000, True), (1500, False)])
def test_a_search_stands_beside_trainings_of_as_many_images_only(tmp_path, samples, shown):
    from rooflines.sweeps.records import MeasuredValue, SweepPoint, SweepRow

    def row(part, count):
        options = {"model": "resnet18", "device": "cpu", "train_samples": count, "batch_size": 32, "learning_rate": 0.1, "epochs": 1}
        return SweepRow(
            point=SweepPoint(id=part, label=part, part=part, kind="train", options=options), rounds=3,
            estimates={"epoch_s": MeasuredValue(value=1.0)}, facts={"device_name": "here", "data": "CIFAR-10", "best": "batch 16"},
        )  # fmt: skip

    study = studies.Study(
        name="optimizations", title="", created="", command="", rows=(row("train", 5000), row("tune", samples)), findings=("x",)
    )
    figure = next(one for one in page(study, find_study("optimizations")).figures() if one.name == "epoch-time")
    assert any("tuned" in beam.label for beam in figure.drawing.beams) is shown
