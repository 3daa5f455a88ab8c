"""A page as a TensorBoard event file: its words and tables as text, its figures as images, and the numbers of
its record as curves.

Written without torch's ``SummaryWriter``, which is a shell around the same and takes seconds to import.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rooflines.reports.charts.paper import as_png, draw
from rooflines.reports.document import Figure, Measured, Page, Table
from rooflines.reports.render.markdown import inert, markdown

# Ours end in this, so that writing again replaces them and leaves the training's own event files alone.
SUFFIX = ".rooflines"
_ROWS = 25
# TensorBoard shows images as thumbnails: on a small sheet the type is large, and only the names with room are
# written.
_IMAGE_IN, IMAGE_DPI = 4.8, 230


def write(page: Page, path: Path, measured: Measured | None = None) -> Path:
    """Write ``page`` and what was ``measured`` into the directory of ``path`` as one event file, and return
    that.

    An event file that an earlier call left there is replaced, so that no curve is drawn twice.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.summary import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    measured = measured or Measured()
    directory = path.parent
    directory.mkdir(parents=True, exist_ok=True)
    for earlier in _event_files(directory):
        earlier.unlink()
    writer = EventFileWriter(str(directory), max_queue_size=1000, filename_suffix=SUFFIX)
    last_s = 0.0
    try:
        for point in measured.points:
            last_s = max(last_s, point.wall_s)
            value = Summary.Value(tag=point.tag, simple_value=float(point.value))
            writer.add_event(Event(wall_time=point.wall_s, step=point.step, summary=Summary(value=[value])))
        values = [
            Summary.Value(tag=f"summary/{name}", simple_value=float(value))
            for name, value in measured.summary.items()
        ]
        values += [
            value for tag, text in _texts(page) for value in text_pb(f"{tag}/text_summary", text).value
        ]
        if measured.pictures:
            values += [_image(one.name, one) for one in page.figures()]
        writer.add_event(Event(wall_time=last_s, step=0, summary=Summary(value=values)))
        for summary in _hyperparameters(measured):
            writer.add_event(Event(wall_time=last_s, step=0, summary=summary))
    finally:
        writer.close()
    return _event_files(directory)[-1]


def _event_files(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"events.out.tfevents.*{SUFFIX}"))


def _texts(page: Page) -> Iterable[tuple[str, str]]:
    """The report without its tables, and each table by its name."""
    said = [f"**{inert(page.verdict)}**", inert(page.title)]
    said += [inert(text) for text in (page.status[1] if page.status else "", page.label, *page.said) if text]
    tables: dict[str, list[str]] = {}
    for section in page.sections:
        blocks = section.of_full_form()
        for block in blocks:
            if isinstance(block, Table):
                tables.setdefault(block.name, []).extend(markdown(block, _ROWS))
        words = [
            text for block in blocks if not isinstance(block, Table | Figure) for text in markdown(block)
        ]
        if words:
            said += [f"## {inert(section.title)}", *words]
    return (("report", "\n\n".join(said)), *((name, "\n\n".join(parts)) for name, parts in tables.items()))


def _image(tag: str, figure: Figure) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    picture = draw(figure.drawing, width_in=_IMAGE_IN)
    width, height = (round(inches * IMAGE_DPI) for inches in picture.get_size_inches())
    image = Summary.Image(
        height=height, width=width, colorspace=3, encoded_image_string=as_png(picture, IMAGE_DPI)
    )
    return Summary.Value(tag=tag, image=image)


def _hyperparameters(measured: Measured) -> Iterable[Any]:
    """What was run as hyperparameters. They go into this event file: ``add_hparams`` would start another
    run."""
    if not measured.settings:
        return ()
    from tensorboard.plugins.hparams import summary_v2 as hparams

    metrics = [hparams.Metric(f"summary/{name}") for name in measured.summary]
    names = [hparams.HParam(name) for name in measured.settings]
    return hparams.hparams_config_pb(names, metrics), hparams.hparams_pb(dict(measured.settings))
