"""The figures of a page: as files, and as SVG inside a page, where a script finds every mark by its name."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.reports.charts.palette import VARIABLE_OF
from rooflines.reports.charts.paper import POINTS_PER_INCH, Drawing, Mark, PaperSheet, as_png, as_svg, draw
from rooflines.reports.document import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRECTORY = "figures"
_TAG = re.compile(r"<[^>]+>")
_NUMBER = re.compile(r"-?\d+\.\d+")
_COLOR = re.compile("|".join(VARIABLE_OF))
_FONT = re.compile(r"font-family: [^;\"]+;? ?|(?<=font: )([\d.]+px)[^;\"]+")
# Rotations by zero, the default shapes of line ends, and the ids of everything except the axes: the page does
# not need them.
_NEEDLESS = re.compile(
    r' transform="rotate\(-?0 [^"]*"|; stroke-line(?:join|cap): (?:miter|square)|; text-anchor: '
    r'start| id="(?!axes_)[A-Za-z0-9]+_\d+"'
)
# The mark of a tick is a line, which has its style where it is defined.
_TICK = re.compile(r'(<use [^>]*) style="fill: ([^;]*); stroke: \2; stroke-width: 0.[46]"/>')
_TICK_SHAPE = re.compile(r'<path id="(\w+)" d="M0 0L(-?[\d.]+ -?[\d.]+)" style="([^"]*)"/>')
_ID = re.compile(r'(?<= id=")|(?<=url\(#)|(?<=href="#)')
_MADE_ID = re.compile(r' id="([mp][0-9a-f]{10})"')
_STYLE = re.compile(r'(?<= style=")[^"]*')
# The marks of a figure have their kind and name as id, several in one artist a kind in the plural and all
# names.
_ONE = re.compile(r'<g id="([a-z-]+:[^",]*)">')
_MANY = re.compile(r'<g id="([a-z]+)s:([^"]+)">')
_ELEMENT = re.compile(r'<(?P<tag>path|use)(?![^>]* id=) (?P<facts>[^>]*?)style="(?P<style>[^"]*)"/>')
# Discs have the color of the category that switches them, by the style sheet of the page.
_CATEGORY_FILL = re.compile(r'(<circle [^>]*data-to="([\w-]+)"[^>]*) style="fill:var\(--c-\2\)"')
_GROUPED = re.compile(r"<g>((?:<(?:use|path|text)[^>]*(?:/>|>[^<]*</text>))*)</g>")
_PATH = re.compile(r'(?<= d=")[^"]*')
# The stretches of a lane, which its script redraws: M x y L x y.
_LANE = re.compile(r'(?<=<g id="lane:)[^>]*>.*?</g>')
_FLAT = re.compile(r"(M[\d.-]+ ([\d.-]+)L[\d.-]+) \2")
_COMMAND = re.compile(" ?([A-Za-z]) ?")
_DISC = re.compile(r'd="([^"]*C[^"]*)"')
_VALUE = re.compile(r"-?[\d.]+")


def write_figures(page: Page, directory: Path) -> tuple[Path, ...]:
    """Every figure of ``page`` as NAME.svg and NAME.png in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in page.figures():
        picture = draw(figure.drawing)
        for suffix, content in ((".svg", as_svg(picture).encode()), (".png", as_png(picture))):
            path = directory / f"{figure.name}{suffix}"
            path.write_bytes(content)
            written.append(path)
    return tuple(written)


def page_svg(drawing: Drawing, width_in: float, name: str) -> str:
    """The SVG of ``drawing`` for a page: colors are variables, numbers are short, and ids begin with
    ``name``.

    A mark has its kind and name as ``data-mark`` and the switch that it belongs to as ``data-to``.
    ``data-axes`` has the place and the limits of every axes, logarithms on a logarithmic axis.
    """
    picture, marks = drawing.figure(PaperSheet(width_in, page=True)), drawing.page_marks()
    text = as_svg(picture)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style .*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r">\s+<", "><", _TAG.sub(_short, text))
    for number, made in enumerate(_MADE_ID.findall(text)):
        text = text.replace(made, str(number))
    text = _TICK.sub(r"\1/>", text)
    while (flat := _GROUPED.sub(r"\1", text)) != text:
        text = flat
    text = _joined_ticks(text)
    for many in _MANY.finditer(text):
        text = text[: many.start()] + _named(text[many.start() :], many[1], many[2].split(","), marks)
    text = _LANE.sub(lambda lane: _FLAT.sub(lambda flat: flat[1].replace("L", "H"), lane[0]), text)
    text = _ONE.sub(lambda one: f"<g{_attributes(one[1], marks)}>", text)
    text = _STYLE.sub(lambda style: style[0].replace(": ", ":").replace("; ", ";"), _ID.sub(f"{name}-", text))
    text = _CATEGORY_FILL.sub(r"\1", text)
    axes = html.escape(json.dumps(_places(picture), separators=(",", ":")))
    return text.replace("<svg ", f'<svg stroke-linejoin="round" stroke-linecap="butt" data-axes="{axes}" ', 1)


def _short(tag: re.Match[str]) -> str:
    """A tag with short numbers, variables as colors and the font of the page."""
    text = _NUMBER.sub(lambda number: _rounded(float(number[0])), tag[0])
    text = _COLOR.sub(lambda color: f"var(--{VARIABLE_OF[color[0]]})", text)
    text = _FONT.sub(lambda font: font[1] or "", text).replace("font: ", "font-size: ")
    text = _NEEDLESS.sub("", text).replace(" \n", " ").replace("\n", "")
    return _PATH.sub(lambda path: _COMMAND.sub(r"\1", path[0]).rstrip(), text)


def _rounded(value: float) -> str:
    """A number of points, or an opacity, with the decimals that can be seen."""
    return f"{round(value, 1 if abs(value) >= 10 else 2) + 0.0:g}"


def _joined_ticks(text: str) -> str:
    """Ticks that follow each other as one path: minor ones have no numbers between them."""
    for name, step, style in _TICK_SHAPE.findall(text):
        place = rf'<use xlink:href="#{name}" x="([\d.]+)" y="([\d.]+)"/>'
        for run in re.finditer(f"(?:{place}){{2,}}", text):
            path = re.sub(place, rf"M\1 \2l{step}", run[0])
            text = text.replace(run[0], f'<path d="{path}" style="{style}"/>')
    return text


def _attributes(key: str, marks: dict[str, Mark]) -> str:
    mark = marks.get(key, Mark())
    facts = {"data-mark": key, "data-to": mark.to, "visibility": "hidden" if mark.off else ""}
    return "".join(f' {name}="{html.escape(value)}"' for name, value in facts.items() if value)


def _named(text: str, kind: str, names: list[str], marks: dict[str, Mark]) -> str:
    """``text`` with names for the first elements in it, and on their group the style that most of them have.

    A disc is a circle, which is much shorter than its path.
    """
    elements = list(itertools.islice(_ELEMENT.finditer(text), len(names)))
    if not elements:
        return text
    styles = [element["style"].split("; ") for element in elements]
    common = [part for part, count in Counter(itertools.chain(*styles)).items() if count > len(styles) / 2]
    pieces = [f'<g style="{"; ".join(common)}">' + text[: elements[0].start()].partition(">")[2]]
    end = elements[0].start()
    for element, name, style in zip(elements, names, styles, strict=True):
        tag, facts = element["tag"], re.sub(r'clip-path="[^"]*" ?', "", element["facts"])
        disc = _DISC.search(facts)
        if disc:
            x, y = ([float(value) for value in _VALUE.findall(disc[1])[axis::2]] for axis in (0, 1))
            tag = "circle"
            facts = f'cx="{_middle(x)}" cy="{_middle(y)}" r="{_rounded((max(x) - min(x)) / 2)}"'
        own = "; ".join(part for part in style if part not in common)
        facts = f'{facts.strip()} style="{own}"' if own else facts.strip()
        pieces += [text[end : element.start()], f"<{tag}{_attributes(f'{kind}:{name}', marks)} {facts}/>"]
        end = element.end()
    return "".join([*pieces, text[end:]])


def _middle(values: list[float]) -> str:
    return _rounded((min(values) + max(values)) / 2)


def _places(picture: Figure) -> list[dict[str, list[float]]]:
    """For each axes left, top, width and height in points, and the limits of both axes."""
    width, height = (inches * POINTS_PER_INCH for inches in picture.get_size_inches())
    places = []
    for axes in picture.axes:
        box = axes.get_position()
        limits = {"x": (axes.get_xscale(), axes.get_xlim()), "y": (axes.get_yscale(), axes.get_ylim())}
        places.append(
            {
                "box": [
                    round(v, 2)
                    for v in (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
                ]
            }
            | {
                name: [float(f"{math.log10(v) if scale == 'log' else v:.6g}") for v in ends]
                for name, (scale, ends) in limits.items()
            }
        )
    return places
