"""The pictures in the documentation show the pages that the product makes."""

import json

import numpy as np
import pytest
from PIL import Image

import rooflines
from rooflines.reports.charts.palette import category_color

pytest.importorskip("playwright")

from benchmarks.gallery import EXAMPLE, IMAGES, PICTURES, SHOWN, recorded, words_of


@pytest.mark.ci
@pytest.mark.parametrize("name", sorted(recorded()))
def test_a_picture_shows_the_page_of_today(name, tmp_path):
    written = rooflines.report(recorded()[name], formats=["html"], output=tmp_path / "report")
    page = written["html"].read_text(encoding="utf-8")
    assert json.loads(SHOWN.read_text())[name] == words_of(page), f"python benchmarks/gallery.py --only {name}"


def test_every_picture_is_there_and_the_example_is_the_first_page():
    assert {one.name for one in PICTURES} == {path.stem for path in IMAGES.glob("*.png")}
    assert words_of(EXAMPLE.read_text(encoding="utf-8")) == json.loads(SHOWN.read_text())[PICTURES[0].name]


@pytest.mark.parametrize("name", ["h100", "gpu"])
def test_a_picture_keeps_the_colors_of_the_categories(name):
    """A picture of few colors may merge those of small points."""
    rows = rooflines.analyze(recorded()[name]).operators
    total_s = sum(row.time_s for row in rows)
    seen = {row.category for row in rows if row.time_s > 0.02 * total_s and row.bound != "unknown"}
    pixels = np.unique(np.asarray(Image.open(IMAGES / f"{name}.png").convert("RGB")).reshape(-1, 3), axis=0).astype(int)
    for category in seen:
        color = [int(category_color(category)[start : start + 2], 16) for start in (1, 3, 5)]
        assert np.linalg.norm(pixels - color, axis=1).min() < 40, f"{category} is drawn in another color"
