"""The pictures in the documentation show the pages that the product makes."""

import json

import pytest

import rooflines

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
