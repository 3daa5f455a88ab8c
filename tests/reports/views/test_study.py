"""A study's report: what the page, the pictures and the terminal show."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest
from rich.console import Console

from rooflines.reports.charts.draw import draw
from rooflines.reports.charts.kinds import Beam, Beams, Curves, Series
from rooflines.reports.charts.palette import INK, THEMES, category_colour, category_mark, contrast
from rooflines.reports.render import html
from rooflines.reports.render.figures import write_figures
from rooflines.reports.render.terminal import print_page
from rooflines.studies import backends_page, from_scratch_page
from rooflines.studies.backends_findings import findings
from rooflines.studies.networks import BACKENDS, LIBRARIES
from rooflines.studies.operator_bounds import bounded
from rooflines.studies.records import Missing
from tests.studies.samples import CEILINGS, MEMORY, SIZES, from_scratch, library_result, operator, result, study, through_loader


def backends_study():
    operators = bounded((operator(time_s=15e-3), operator("relu", "conv1", flops=100_000, matrix_flops=0)), CEILINGS)
    torch = result("torch-cpu", epoch_s=6.0, loader=through_loader(), operators=operators)
    made = study(result(operators=operators), torch)
    return msgspec.structs.replace(made, findings=findings(made))


def pages():
    numpy = library_result(operators=bounded((operator("matrix product", "dense1"),), CEILINGS), memory=MEMORY, sizes=SIZES)
    return (backends_page.page(backends_study()), from_scratch_page.page(from_scratch(numpy, library_result("torch-cpu"))))


@pytest.fixture(scope="module", params=[0, 1], ids=["backends", "from-scratch"])
def page(request):
    return pages()[request.param]


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


def test_the_papers_values_stand_beside_ours():
    page = backends_page.page(backends_study())
    table = next(one for one in page.tables() if one.name == "backends")
    names = [row.cells[0].strip() for row in table.rows]
    assert names == [
        "numba-cpu",
        "paper",
        "torch-cpu",
        "paper",
        "paper's loader",
        "numba-cuda, paper",
        "torch-cuda, paper",
        "torch-mps, paper",
    ]
    ours, papers = table.rows[:2]
    assert ours.cells[1:4] == ("2.00", "6.00", "30,208")
    assert papers.cells[1:4] == ("2.09", "20.9", "30,501")
    assert papers.muted
    # 60,000 samples at 5,000 a second
    assert table.rows[4].cells[1] == "12.0"


def test_the_note_says_that_device_memory_holds_the_training_set():
    def note(made):
        return next(one for one in backends_page.page(made).tables() if one.name == "backends").note

    assert "training set" not in note(backends_study())
    on_a_device = result("torch-cuda", device="cuda:0")
    epochs = tuple(msgspec.structs.replace(epoch, device_memory_bytes=300_000_000) for epoch in on_a_device.speed.epochs)
    on_a_device = msgspec.structs.replace(on_a_device, speed=msgspec.structs.replace(on_a_device.speed, epochs=epochs))
    # 118 batches of 512 images of 28 x 28 float32
    assert 118 * 512 * 28 * 28 * 4 == 189_464_576
    assert "(images: 189 MB)" in note(study(result(), on_a_device))


def test_each_library_says_how_its_memory_was_measured():
    cupy = library_result("cupy", memory=msgspec.structs.replace(MEMORY, how="hooks"))
    page = from_scratch_page.page(from_scratch(library_result(memory=MEMORY), cupy, library_result("torch-cpu")))
    (note,) = [one.note for one in page.tables() if one.name == "memory"]
    assert note == "Measured (numpy: tracemalloc; cupy: hooks). torch-cpu: nobody looked. MB is 1e6 bytes."


def test_the_combined_csv_has_the_papers_columns():
    header, rows = backends_page.combined_rows(backends_study())
    assert header[:5] == ("backend", "epoch_s", "epoch_s_paper", "total_s", "total_s_paper")
    by_name = {row["backend"]: row for row in rows}
    assert by_name["numba-cpu"]["samples_per_s"] == pytest.approx(30_208)
    assert by_name["numba-cpu"]["final_test_accuracy_percent"] == pytest.approx(98)
    assert by_name["numba-cpu"]["accuracy_data"] == "digits"
    assert all(name == "backend" or name.endswith("_paper") for name in by_name["torch-mps"])


def test_text_from_outside_is_escaped():
    made = msgspec.structs.replace(backends_study(), missing=(Missing(backend="cupy", reason="<script>alert(1)</script>"),))
    assert "<script>alert" not in html.render(backends_page.page(made))


def test_a_study_without_results_still_has_a_page():
    for page in (backends_page.page(study()), from_scratch_page.page(from_scratch())):
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
