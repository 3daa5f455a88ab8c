"""What the devices did, in every report: sentences, table, timeline, PDF, CSV, and nothing where nothing was sampled."""

import csv
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from pypdf import PdfReader

from rooflines.pipeline.reporting import report_run
from rooflines.profiler.samplers.fields import COLUMNS, DeviceSample, Field
from rooflines.reports.charts.paper import as_svg, draw
from rooflines.reports.page import run as view
from rooflines.reports.page.timeline import timeline_figure, usage_timeline
from rooflines.reports.page.usage import missing_usage, usage_remarks, usage_table, write_samples_csv
from rooflines.reports.render import html, pdf
from rooflines.reports.words.sentences import saving
from rooflines.roofline.analysis import Finding
from rooflines.roofline.judge.usage.device_usage import Window, usage, usage_of
from tests import samples
from tests.printing import in_terminal
from tests.reports import variants
from tests.usage_samples import BEGAN_NS, STEP_S, gpu_samples, host_samples, machine_analysis, machine_samples, run_of


@pytest.fixture(scope="module")
def machine():
    return machine_analysis()


def with_usage(found):
    return replace(samples.analysis(), usage=found)


def terminal_text(analysis, width=120):
    return in_terminal(view.page(analysis), width, color_system=None)


def test_sentences_say_joules_with_their_error_and_how_they_were_got(machine):
    together, first, second, _ = usage_remarks(machine)
    assert together.startswith("44.6 J a step (±1.6 %) on 2 devices, 1.39 J an image, ")
    assert first.startswith("cuda:0: 1.68 kJ (±1.6 %) in 5.00 s by its energy counter; 33.7 J a step, 1.05 J an image; ")
    assert "throttled for 1.10 s (software power cap 22 %)" in first
    assert "throttled" not in second


def test_a_refusal_says_why_and_offers_a_longer_run():
    short = with_usage(usage(run_of(gpu_samples(), steps=3)))
    (text,) = usage_remarks(short)
    needed = short.usage.of("cuda:0").no_energy.needs_steps
    assert "no joules, because the energy" in text
    assert f"would do (--steps {needed})" in text
    quiet = [one for one in host_samples() if one.source == "psutil"]
    text = "host: no joules, because neither energy nor power could be read."
    assert usage_remarks(with_usage(usage(run_of(quiet, device="cpu")))) == [text]


def test_which_remarks_are_made():
    # What was not sampled is neither said nor tabled.
    taken = [DeviceSample(time_ns=BEGAN_NS + i * 10**9, source="nvml", device="cuda:0", temperature_c=40.0 + i) for i in range(5)]
    only = with_usage(usage_of(taken))
    assert usage_remarks(only) == []
    assert [(one.label, one.unit) for one in usage_table(only).columns] == [("device", ""), ("temperature", "peak")]
    assert [row.name for row in usage_timeline(only).rows] == ["temperature"]
    # Memory errors and a lost device are told.
    wrong = [replace(one, ecc_uncorrected=int(one.time_ns > BEGAN_NS + 1e9)) for one in gpu_samples()]
    assert "1 uncorrected memory error." in usage_remarks(with_usage(usage(run_of(wrong))))[0]
    lost = [one for one in gpu_samples() if one.time_ns < BEGAN_NS + 2e9]
    assert usage_remarks(with_usage(usage(run_of(lost))))[0].endswith("its samples end before the window does.")


def test_remarks_on_many_devices_and_their_traffic():
    # Many devices are told in the table and only what stands out in words.
    eight = [one for index in range(8) for one in gpu_samples(f"cuda:{index}", process_memory_bytes=1 << 30)]
    counted = [int(one.device == "cuda:5" and one.time_ns > BEGAN_NS) for one in eight]
    wrong = [replace(one, ecc_corrected=count) for one, count in zip(eight, counted, strict=True)]
    together, energy, single = usage_remarks(with_usage(usage(run_of(wrong))))
    assert "J a step (±1.6 %) on 8 devices" in together
    assert energy.startswith("Energy over 5.00 s by their energy counters: cuda:0, cuda:1, ")
    assert single == "cuda:5: 1 corrected memory error."
    # Traffic is a mean rate.
    busy = [replace(one, pcie_rx_bytes_per_s=2.5e9, nvlink_tx_bytes=int((one.time_ns - BEGAN_NS) * 40)) for one in gpu_samples()]
    (text,) = usage_remarks(with_usage(usage(run_of(busy))))
    assert "PCIe 2.50 GB/s in; NVLink 40.0 GB/s out" in text
    # Shorter than the pause between two readings, it is the same rate.
    (text,) = usage_remarks(with_usage(usage_of(busy, (), Window(BEGAN_NS + 10**9 + 10**6, BEGAN_NS + 10**9 + 3 * 10**6))))
    assert "NVLink 40.0 GB/s out" in text


def test_the_table_has_a_row_a_device(machine):
    table = usage_table(machine)
    assert [row.cells[0] for row in table.rows] == ["cuda:0", "cuda:1", "host"]
    assert dict(zip([one.name for one in table.columns], table.rows[0].cells, strict=True))["energy_a_step"] == "33.7 J ±2 %"
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}


def test_the_timeline_and_its_steps(machine):
    # The timeline shares its time with the steps.
    timeline = usage_timeline(machine)
    assert [row.name for row in timeline.rows] == ["power", "busy", "memory", "temperature", "clock"]
    assert timeline.marks[0] == pytest.approx(STEP_S)
    assert timeline.marks[-1] == pytest.approx(5.0)
    assert (timeline.begin, timeline.end) == (-1.5, 6.5)
    assert timeline.focus == "cuda:0"
    (held,) = timeline.held
    assert (held.begin, held.end) == (pytest.approx(2.0), pytest.approx(3.1))
    power = timeline.rows[0]
    assert [(level.device, level.value) for level in power.levels] == [("cuda:0", 350.0), ("cuda:1", 350.0)]
    assert all(0 <= value <= row.top for row in timeline.rows for line in row.lines for value in line.y)
    assert "50 timed steps, a line at the end of each" in timeline_figure(timeline).caption
    # Many steps are a field without marks.
    timeline = usage_timeline(replace(machine, steps=replace(machine.steps, durations_s=(0.01,) * 500)))
    assert timeline.marks == ()
    assert "a line" not in timeline_figure(timeline).caption


def figure_texts(analysis):
    """The words of the timeline, which is valid as SVG; the page has none of them as a script."""
    assert "<script>alert(1)" not in html.render(view.page(analysis))
    ElementTree.fromstring(as_svg(draw(usage_timeline(analysis))))
    return {text.get_text() for axes in draw(usage_timeline(analysis)).axes for text in axes.texts}


@pytest.mark.ci
def test_names_of_devices_and_labels_of_declared_fields_are_text_on_the_page_and_in_the_figure():
    name = f"{variants.HOSTILE}$x$"
    assert name in figure_texts(with_usage(usage_of(gpu_samples(name))))
    samples = [DeviceSample(time_ns=BEGAN_NS + i * 10**9, source="mine", more={"fan": 900.0 + i, "load": i - 3.0}) for i in range(5)]
    hostile = with_usage(usage_of(samples, fields={"fan": Field(name, name), "load": Field("load", "")}))
    assert {f"{name}, {name}", "load"} <= figure_texts(hostile)
    _, second = usage_timeline(hostile).rows
    assert second.bottom < -3
    assert second.top > 1
    assert usage_table(hostile).rows[0].cells == ("host", f"902 {name}", f"904 {name}", "-1.00", "1.00")


@pytest.mark.ci
def test_every_report_says_what_the_devices_did(machine, tmp_path):
    page = html.render(view.page(machine))
    assert page.count("throttled for 1.10 s (software power cap 22 %)") == 1
    assert 'id="figure-timeline"' in page
    text = " ".join(" ".join(one.extract_text() for one in PdfReader(pdf.write(view.page(machine), tmp_path / "r.pdf")).pages).split())
    for expected in (
        "Device activity", "33.7 J ±2 %", "44.6 J a step", "limit 350 W", "seconds since the timed pass began",
    ):  # fmt: skip
        assert expected in text
    assert "44.6 J a step" in terminal_text(machine)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_terminal_keeps_its_width(machine, width):
    lines = terminal_text(machine, width).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("  cuda:0  33.7 J") for line in lines)


@pytest.mark.ci
def test_without_samples_each_report_says_so_or_nothing():
    bare = samples.analysis()
    assert usage_timeline(bare) is usage_table(bare) is None
    assert missing_usage(bare) in html.render(view.page(bare))
    assert "in the timed steps" not in terminal_text(bare)
    assert saving(Finding(title="", evidence="", suggestion=""), 1.0, "a step") == "saving not quantified"


def test_samples_as_csv(tmp_path):
    # Samples as csv hold every field that was read.
    taken = machine_samples()
    with write_samples_csv(taken, tmp_path / "samples.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(taken)
    assert set(rows[0]) == {name for name in COLUMNS if any(getattr(one, name) is not None for one in taken)}
    assert float(rows[0]["power_limit_w"]) == 350
    host = next(row for row in rows if row["core_utilization"])
    assert host["core_utilization"] == "0.9 0.5"
    assert host["gpu_utilization"] == ""
    # The csv reports hold the samples.
    run = replace(run_of(gpu_samples()), directory=tmp_path)
    assert report_run(run, ("csv",))["csv"] == tmp_path / "operators.csv"
    assert len((tmp_path / "samples.csv").read_text().splitlines()) == len(gpu_samples()) + 1
    bare = tmp_path / "bare"
    bare.mkdir()
    report_run(replace(run, directory=bare, samples=()), ("csv",))
    assert not (bare / "samples.csv").exists()


def test_a_cell_of_csv_is_no_formula(tmp_path):
    path = write_samples_csv([DeviceSample(time_ns=1, source="nvml", device="=cmd()", power_w=-1.0)], tmp_path / "samples.csv")
    assert path.read_text().splitlines()[1] == '1,"nvml","\'=cmd()",-1.0'
