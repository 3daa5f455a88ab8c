"""The pages of the studies of networks: what the page, the pictures and the terminal show."""

import math
import re
from itertools import pairwise

import msgspec
import pytest

from rooflines.errors import RooflinesError
from rooflines.reports.charts.curves import Beam, Beams, Curves, CurveSeries
from rooflines.reports.charts.palette import INK, THEMES, category_color, category_mark, contrast
from rooflines.reports.charts.paper import draw
from rooflines.reports.document import texts
from rooflines.reports.render import html
from rooflines.reports.render.figures import write_figures
from rooflines.serial import read_json
from rooflines.sweeps.process import messages
from rooflines.sweeps.records import Job, PointResult
from rooflines.sweeps.worker import Advance, Failed, Found, Stage
from rooflines_studies import network_runs
from rooflines_studies.backends import page as backends_page
from rooflines_studies.backends.train import NetworkTraining
from rooflines_studies.from_scratch import page as from_scratch_page
from rooflines_studies.from_scratch.train import Iterations
from rooflines_studies.network_runs import BACKENDS, bounded, check_losses
from rooflines_studies.networks.perceptron import LIBRARIES
from rooflines_studies.records import DETAIL_FILE
from rooflines_studies.study import Missing, StudyOptions, find_study, study_points
from tests.printing import in_terminal
from tests.studies.samples import CEILINGS, MEMORY, SIZES, library_result, operator, result, study, through_loader


def backends():
    operators = bounded((operator(time_s=15e-3), operator("relu", "conv1", flops=100_000, matrix_flops=0)), CEILINGS)
    return result(operators=operators), result("torch-cpu", epoch_s=6.0, loader=through_loader(), operators=operators)


def libraries():
    numpy = library_result(operators=bounded((operator("matrix product", "dense1"),), CEILINGS), memory=MEMORY, sizes=SIZES)
    return numpy, library_result("torch-cpu")


RESULTS = {"backends": backends, "from-scratch": libraries}


@pytest.fixture(scope="module", params=RESULTS)
def page(request, tmp_path_factory):
    return study(tmp_path_factory.mktemp("results"), *RESULTS[request.param](), name=request.param)[1]


@pytest.fixture(scope="module")
def text(page):
    return html.render(page)


class TestPage:
    def test_it_is_one_file_that_fetches_nothing_and_whose_references_are_found(self, text):
        assert not re.search(r"<script[^>]+src", text)
        assert not re.search(r'(?:src|href)="(?!data:|#)', text)
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)

    def test_data_is_labeled_on_the_page_and_in_the_terminal_of_eighty_columns(self, page, text):
        assert "synthetic images of MNIST&#39;s size" in text
        assert "synthetic images of MNIST's size" in " ".join(in_terminal(page).split())
        assert max(map(len, in_terminal(page).splitlines())) <= 80

    def test_what_did_not_run_is_said(self, page, text):
        (facts,) = next(section for section in page.sections if section.name == "missing").blocks
        ((_, reason),) = facts.rows
        assert reason in text
        assert " ".join(reason.split()) in " ".join(in_terminal(page).split())

    @pytest.mark.ci
    def test_figures_are_written_as_vectors_and_pixels(self, page, tmp_path):
        written = write_figures(page, tmp_path / "figures")
        assert len(written) == 2 * len(page.figures())
        assert all(path.stat().st_size > 1000 for path in written)
        assert len({figure.name for figure in page.figures()}) == len(page.figures())


def test_the_papers_values_stand_beside_ours(tmp_path):
    _, page = study(tmp_path, *backends())
    table = next(one for one in page.tables() if one.name == "backends")
    names = [row.cells[:3] for row in table.rows]
    assert names == [
        ("numba-cpu", "test CPU", "in place"),
        ("numba-cpu", "paper", ""),
        ("torch-cpu", "test CPU", "in place"),
        ("torch-cpu", "test CPU", "paper's loader"),
        ("torch-cpu", "paper", ""),
        ("numba-cuda", "paper", ""),
        ("torch-cuda", "paper", ""),
        ("torch-mps", "paper", ""),
    ]
    shown = texts(table).rows
    assert shown[0][3:6] == ("2.00", "6.00", "30200")
    assert shown[1][3:6] == ("2.0928", "20.928", "30501"), "as printed"
    assert table.rows[1].muted
    assert shown[0][6:8] == ("98.0", "98.0"), "of the digits: synthetic images have no accuracy"
    # 60,000 samples at 5,000 a second
    assert shown[3][3] == "12.0"


def test_the_note_says_that_device_memory_holds_the_training_set(tmp_path):
    def note(name, *results):
        _, page = study(tmp_path / name, *results)
        return next(table.note for table in page.tables() if table.name == "backends")

    for name in ("without", "with"):
        (tmp_path / name).mkdir()
    assert "training set" not in note("without", *backends())
    one = result("torch-cuda", device="cuda:0")
    epochs = tuple(msgspec.structs.replace(epoch, device_memory_bytes=300_000_000) for epoch in one.speed.epochs)
    on_a_device = msgspec.structs.replace(one, speed=msgspec.structs.replace(one.speed, epochs=epochs))
    # 118 batches of 512 images of 28 x 28 float32
    assert 118 * 512 * 28 * 28 * 4 == 189_464_576
    assert "(images: 189 MB)" in note("with", result(), on_a_device)


def test_each_library_says_how_its_memory_was_measured(tmp_path):
    cupy = library_result("cupy", memory=msgspec.structs.replace(MEMORY, how="hooks"))
    _, page = study(tmp_path, library_result(memory=MEMORY), cupy, library_result("torch-cuda"), name="from-scratch")
    (note,) = [one.note for one in page.tables() if one.name == "memory"]
    assert note == "MB is 1e6 bytes. Measured (numpy: tracemalloc; cupy: hooks). Not told apart by component: torch-cuda."


@pytest.mark.parametrize("name", RESULTS)
def test_results_read_back_are_those_that_were_measured(tmp_path, name):
    made, _ = study(tmp_path, *RESULTS[name](), name=name)
    module = backends_page if name == "backends" else from_scratch_page
    assert module.results_of(made) == RESULTS[name]()
    tables = module.tables(made)
    assert {row["backend"] for row in tables["operators"]} == {one.name for one in RESULTS[name]() if one.operators}
    first = tables.pop("epochs" if name == "backends" else "iterations")[0]
    assert (first["backend"], first["data"]) == (RESULTS[name]()[0].name, "synthetic")


@pytest.mark.ci
@pytest.mark.parametrize("name", RESULTS)
def test_results_of_two_machines_keep_their_names(tmp_path, name):
    ours = RESULTS[name]()
    theirs = tuple(msgspec.structs.replace(one, device_name="other CPU") for one in ours)
    made, page = study(tmp_path, *ours, *theirs, name=name)
    assert made.devices == ("test CPU", "other CPU")
    assert f"{ours[0].name} (other CPU)" in html.render(page)
    rooflines = [figure.name for figure in page.figures() if figure.name.startswith("roofline")]
    assert rooflines == ["roofline-1", "roofline-2"]


@pytest.mark.ci
def test_text_from_outside_is_escaped(tmp_path):
    _, page = study(tmp_path, *backends(), missing=(Missing(what="cupy", reason="<script>alert(1)</script>"),))
    assert "<script>alert" not in html.render(page)


@pytest.mark.parametrize("name", RESULTS)
def test_a_study_without_results_still_has_a_page(tmp_path, name):
    _, page = study(tmp_path, name=name)
    assert "Nothing was measured." in html.render(page)
    assert "Nothing was measured." in in_terminal(page)


def test_names_and_values_lie_inside_the_picture():
    # Names at the ends of curves do not touch.
    series = tuple(CurveSeries(name=name, x=(1.0, 2.0), y=(1.0, 1.0)) for name in BACKENDS)
    picture = draw(Curves(x_title="epoch", y_title="time, s", series=series))
    (axes,) = picture.axes
    names = [text for text in axes.texts if text.get_text() in BACKENDS]
    assert len(names) == len(BACKENDS)
    pixels = axes.get_window_extent().height
    places = sorted(text.xyann[1] * pixels for text in names)
    tall = max(text.get_size() for text in names) * picture.dpi / 72
    assert all(higher - lower >= tall for lower, higher in pairwise(places))
    assert places[-1] <= pixels
    # Every value of a bar lies inside the picture.
    bars = tuple(Beam(color=name, label=name, value=10.0**n, text=f"{10**n:,}", paper=5.0) for n, name in enumerate(BACKENDS))
    picture = draw(Beams(x_title="samples/s", beams=bars))
    picture.canvas.draw()
    width = picture.bbox.width
    assert all(text.get_window_extent().x0 >= 0 and text.get_window_extent().x1 <= width for text in picture.axes[0].texts)


def test_backends_of_a_study_have_colors_and_shapes_of_their_own():
    for names in (BACKENDS, LIBRARIES):
        assert len({category_mark(name) for name in names}) == len(names)
        for theme in THEMES:
            colors = {category_color(name, theme) for name in names}
            assert len(colors) == len(names)
            assert all(contrast(color, INK[theme].page) >= 3 for color in colors)


# --- points


def said(directory, name, part, *, data_dir=None, **settings):
    """Everything that the process of the only point of ``part`` says, its results decoded."""
    options = StudyOptions(parts=(part,), threads=1, settings={name: str(value) for name, value in settings.items()})
    ((point,), _) = study_points(find_study(name), options)
    task = {"point": msgspec.to_builtins(point), "round": 0}
    task["point"]["options"] |= {"data_dir": data_dir} if data_dir is not None else {}
    for one in messages(Job(function=point.function, options=task, threads=1, directory=str(directory))):
        yield msgspec.json.decode(one.result, type=PointResult) if isinstance(one, Found) else one


def detail(directory, kind):
    return read_json(directory / "run" / DETAIL_FILE, kind)


def test_what_the_worker_cannot_do_comes_back_as_its_reason(tmp_path):
    *before, last = said(tmp_path, "backends", "speed", backend="torch-cpu", samples=8, data_dir="/absent")
    assert isinstance(last, Failed)
    assert "'/absent' is not a directory" in last.reason
    assert all(isinstance(one, Stage) for one in before)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numba-cpu", "torch-cpu"])
def test_the_digits_setting_reaches_97_percent(tmp_path, backend):
    pytest.importorskip("sklearn")
    results = [one for one in said(tmp_path, "backends", "accuracy", backend=backend) if isinstance(one, PointResult)]
    epochs = detail(tmp_path, NetworkTraining).epochs
    assert len(epochs) == 20 == len(results) - 1
    assert results[-1].values["accuracy"] == epochs[-1].test_accuracy >= 0.97
    assert epochs[-1].train_loss < 0.1 * epochs[0].train_loss


@pytest.mark.slow
@pytest.mark.parametrize("library", ["numpy", "torch-cpu"])
def test_the_perceptron_s_setting_reaches_97_percent_of_the_digits(tmp_path, library):
    pytest.importorskip("sklearn")
    *_, last = said(tmp_path, "from-scratch", "accuracy", backend=library)
    found = detail(tmp_path, Iterations)
    assert found.widths == (784, 128, 10)
    assert last.values["accuracy"] == found.accuracies[-1] >= 0.97


DEEP = "-".join(map(str, (784, *[256] * 12, 10)))
"""So many layers that ten samples, at the study's learning rate, are learnt to infinity within a few steps."""


def test_a_loss_that_is_no_number_ends_the_job_with_the_step(tmp_path):
    *before, last = said(tmp_path, "from-scratch", "speed", backend="numpy", widths=DEEP, samples=10, iterations=50)
    assert isinstance(last, Failed)
    found = re.fullmatch(r"the loss is not finite \(step (\d+)\)\.", last.reason)
    assert found
    assert sum(isinstance(one, Advance) for one in before) == int(found[1]) - 1
    assert not any(isinstance(one, PointResult) for one in before)


@pytest.mark.ci
def test_memory_is_measured_in_a_process_that_has_loaded_nothing_else(tmp_path):
    *_, last = said(tmp_path, "from-scratch", "memory", backend="numpy", samples=2_000)
    assert isinstance(last, PointResult), last
    parts = [last.values[f"{name}_bytes"] for name in ("parameters", "input", "activations", "gradients", "overhead")]
    assert sum(parts) == pytest.approx(last.values["total_bytes"], rel=0.05)
    # the library itself: what had been imported before would not be in it
    assert last.values["overhead_bytes"] > 10e6
    assert "tracemalloc" in last.facts["how"]


def test_losses_are_looked_at_in_their_order():
    check_losses([1.0, 0.0], 10)
    for wrong in (math.nan, math.inf):
        with pytest.raises(RooflinesError, match=r"\(step 12\)"):
            check_losses([1.0, wrong, 1.0, math.nan], 10)


# --- backends


@pytest.mark.parametrize("backend", ["numba-cpu", "torch-cpu", "numpy"])
def test_what_computes_on_the_cpu_runs_everywhere(backend):
    assert network_runs.device_of(backend) == "cpu"
    assert network_runs.why_not(backend) is None
