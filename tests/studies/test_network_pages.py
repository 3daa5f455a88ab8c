"""The pages of the studies of networks: what the page, the pictures and the terminal show."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest
from rich.console import Console

from rooflines.reports.charts.curves import Beam, Beams, Curves, Series
from rooflines.reports.charts.palette import INK, THEMES, category_colour, category_mark, contrast
from rooflines.reports.charts.paper import draw
from rooflines.reports.document import texts
from rooflines.reports.render import html
from rooflines.reports.render.figures import write_figures
from rooflines.reports.render.terminal import print_page
from rooflines.studies.backends import page as backends_page
from rooflines.studies.from_scratch import page as from_scratch_page
from rooflines.studies.networks import BACKENDS, LIBRARIES, bounded
from rooflines.studies.study import Missing
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
    def test_it_is_one_file_that_fetches_nothing_and_runs_nothing(self, text):
        HTMLParser().feed(text)
        assert not re.search(r"<script[^>]+src", text)
        assert not re.search(r'(?:src|href)="(?!data:|#)', text)

    def test_no_two_elements_share_an_id(self, text):
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(ids) == len(set(ids))

    def test_references_inside_figures_are_found(self, text):
        ids = set(re.findall(r'\bid="([^"]+)"', text))
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids

    def test_data_is_labelled_on_the_page_and_in_the_terminal(self, page, text):
        assert "synthetic images of MNIST&#39;s size" in text
        assert "synthetic images of MNIST's size" in " ".join(printed(page).split())

    def test_eighty_columns_are_enough(self, page):
        assert max(map(len, printed(page).splitlines())) <= 80

    def test_what_did_not_run_is_said(self, page, text):
        (facts,) = next(section for section in page.sections if section.name == "missing").blocks
        ((_, reason),) = facts.rows
        assert reason in text
        assert " ".join(reason.split()) in " ".join(printed(page).split())

    def test_figures_are_written_as_vectors_and_pixels(self, page, tmp_path):
        written = write_figures(page, tmp_path / "figures")
        assert len(written) == 2 * len(page.figures())
        assert all(path.stat().st_size > 1000 for path in written)
        assert len({figure.name for figure in page.figures()}) == len(page.figures())


def printed(page, **options):
    file = io.StringIO()
    print_page(page, Console(file=file, width=80, **options))
    return file.getvalue()


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


@pytest.mark.parametrize("name", RESULTS)
def test_results_of_two_machines_keep_their_names(tmp_path, name):
    ours = RESULTS[name]()
    theirs = tuple(msgspec.structs.replace(one, device_name="other CPU") for one in ours)
    made, page = study(tmp_path, *ours, *theirs, name=name)
    assert made.devices == ("test CPU", "other CPU")
    assert f"{ours[0].name} (other CPU)" in html.render(page)
    rooflines = [figure.name for figure in page.figures() if figure.name.startswith("roofline")]
    assert rooflines == ["roofline-1", "roofline-2"]
    for figure in page.figures():
        draw(figure.drawing)


def test_text_from_outside_is_escaped(tmp_path):
    _, page = study(tmp_path, *backends(), missing=(Missing(what="cupy", reason="<script>alert(1)</script>"),))
    assert "<script>alert" not in html.render(page)


@pytest.mark.parametrize("name", RESULTS)
def test_a_study_without_results_still_has_a_page(tmp_path, name):
    _, page = study(tmp_path, name=name)
    assert "Nothing was measured." in html.render(page)
    assert "Nothing was measured." in printed(page)


def test_names_at_the_ends_of_curves_do_not_touch():
    series = tuple(Series(backend=name, x=(1.0, 2.0), y=(1.0, 1.0)) for name in BACKENDS)
    picture = draw(Curves(x_title="epoch", y_title="time, s", series=series))
    (axes,) = picture.axes
    names = [text for text in axes.texts if text.get_text() in BACKENDS]
    assert len(names) == len(BACKENDS)
    pixels = axes.get_window_extent().height
    places = sorted(text.xyann[1] * pixels for text in names)
    tall = max(text.get_size() for text in names) * picture.dpi / 72
    assert all(higher - lower >= tall for lower, higher in pairwise(places))
    assert places[-1] <= pixels


def test_every_value_of_a_bar_lies_inside_the_picture():
    bars = tuple(Beam(backend=name, label=name, value=10.0**n, text=f"{10**n:,}", paper=5.0) for n, name in enumerate(BACKENDS))
    picture = draw(Beams(x_title="samples/s", beams=bars))
    picture.canvas.draw()
    width = picture.bbox.width
    assert all(text.get_window_extent().x0 >= 0 and text.get_window_extent().x1 <= width for text in picture.axes[0].texts)


def test_backends_of_a_study_have_colours_and_shapes_of_their_own():
    for names in (BACKENDS, LIBRARIES):
        assert len({category_mark(name) for name in names}) == len(names)
        for theme in THEMES:
            colours = {category_colour(name, theme) for name in names}
            assert len(colours) == len(names)
            assert all(contrast(colour, INK[theme].page) >= 3 for colour in colours)
