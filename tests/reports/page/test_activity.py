"""The timeline of one step on the page: its sentences, its tables, and samples of the device where they cover it."""

import pytest
from msgspec.structs import replace

from rooflines.reports.charts.paper import as_svg, draw
from rooflines.reports.document import Figure
from rooflines.reports.page import run as view
from rooflines.reports.page.activity import timeline_section
from rooflines.reports.render import html
from tests.reports import variants
from tests.roofline.real import named
from tests.samples import analysis as sample
from tests.usage_samples import machine_analysis

replaced = replace


def sampled(name: str, after_s: float):
    """A real trace of which samples of two devices were taken; its step begins ``after_s`` after the samples' window."""
    analysis, usage = named(name), machine_analysis().usage
    began_ns = usage.began_ns + round(after_s * 1e9)
    return replaced(analysis, usage=usage, activity=replaced(analysis.activity, began_ns=began_ns))


def test_the_caption_says_what_the_tables_hold():
    analysis = named("resnet50_v100_training_2021_schema")
    figure, *_, note, _ = timeline_section(analysis, "").blocks
    whole = analysis.activity.duration_ns
    assert figure.caption == (
        "The device runs nothing for 43 % of this step: for 33 % the host was loading data, for 8 % the host had launched nothing."
    )
    assert note.text.startswith("ProfilerStep#6 (175 ms), nearest the median of 6 traced steps. Times are as traced")
    labels, lanes = zip(*figure.drawing.lanes, strict=True)
    assert [labels[0], labels[1], *labels[-2:]] == ["host's step", "stream 7", "main thread", "autograd thread"]
    busy, *idle = lanes[1:-2]
    assert labels[2:4] == ("I idle: data loading", "H idle: host")
    names = [figure.drawing.items[lane.longest].name for lane in idle[:2]]
    assert names == ["the host was loading data", "the host had launched nothing"]
    assert busy.busy_ns + sum(lane.busy_ns for lane in idle) == pytest.approx(whole)


def test_the_note_says_how_many_steps_were_considered():
    analysis = named("resnet50_v100_training_2021_schema")
    found = replaced(analysis, activity=replaced(analysis.activity, steps=4))
    *_, note, _ = timeline_section(found, "").blocks
    assert "nearest the median of the 4 of 6 traced steps that resemble the timed ones." in note.text


def test_a_processor_has_threads_and_the_time_outside_of_operators():
    figure, *_ = timeline_section(named("cpu_only"), "").blocks
    assert figure.caption == "No operator runs for 73 % of this trace: for 73 % the program was outside of operators."
    assert [label for label, _ in figure.drawing.lanes] == ["main thread", "H idle: host"]


def test_without_a_trace_one_line_says_so():
    block = timeline_section(sample(), "").blocks[0]
    assert block.text == "No timeline: no work was traced."


def test_samples_share_the_axis_of_the_step():
    (figure,) = (block for block in timeline_section(sampled("ddp_rank0", 1.0), "").blocks if isinstance(block, Figure))
    usage = figure.drawing.usage
    assert [row.name for row in usage.rows] == ["power", "memory", "clock"]
    assert usage.end == pytest.approx(0.607312)
    for row in usage.rows:
        for line in row.lines:
            assert sum(0 <= x <= usage.end for x in line.x) >= 3
    # The power of machine_analysis one second after its window began.
    whole = next(one for one in machine_analysis().usage.series if (one.device, one.field) == ("cuda:0", "power_instant_w"))
    first = next(at for at, time_s in enumerate(whole.times_s) if time_s >= 1.0)
    power = next(line for line in usage.rows[0].lines if line.device == "cuda:0")
    assert whole.values[first] in power.y
    assert "power, W" in as_svg(draw(figure.drawing))


@pytest.mark.parametrize(("name", "after_s", "why"), [
    ("bert-small_h100_inference", 1.0, "fewer than 3 device samples were taken in these 4.43 ms."),
    ("ddp_rank0", 60.0, "fewer than 3 device samples were taken in these 607 ms."),
])  # fmt: skip
def test_why_samples_are_not_shown(name, after_s, why):
    texts = [getattr(block, "text", "") for block in timeline_section(sampled(name, after_s), "").blocks]
    assert f"Power, clock and memory are not shown: {why}" in texts


@pytest.mark.ci
@pytest.mark.parametrize("name", ["resnet50_v100_training_2021_schema", "dlrm_a100_training", "nccl_collectives"])
def test_the_figure_stays_small(name):
    text = html.render(view.page(named(name)))
    figure = text[text.index('<figure id="figure-activity">') :]
    assert len(figure[: figure.index("</figure>")]) < 85_000


@pytest.mark.ci
def test_names_of_the_trace_are_text():
    analysis = named("toy_mi250_training")
    activity = replaced(
        analysis.activity, step=variants.HOSTILE, names=tuple(name and f"{variants.HOSTILE}$" for name in analysis.activity.names)
    )
    text = html.render(view.page(replaced(analysis, activity=activity)))
    assert variants.HOSTILE not in text
