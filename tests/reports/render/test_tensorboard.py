"""The event files, read back with TensorBoard's own reader."""

import pytest
from msgspec.structs import replace

from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.reports.charts.paper import SMALL
from tests import samples
from tests.printing import curves as events
from tests.usage_samples import BEGAN_NS, machine_analysis, machine_samples

pytest.importorskip("torch")

from rooflines.reports.page import measured
from rooflines.reports.page import run as view
from rooflines.reports.render import tensorboard

READINGS = tuple(
    DeviceSample(time_ns=10**18 + index * 500_000_000, source="nvml", device="cuda:0", power_w=200.0 + index, gpu_utilization=0.5)
    for index in range(4)
)


def write(analysis, directory, taken=()):
    return tensorboard.write(view.page(analysis), directory / "report", measured.of_run(analysis, taken))


def text_of(accumulator, tag: str) -> str:
    return accumulator.Tensors(f"{tag}/text_summary")[0].tensor_proto.string_val[0].decode()


@pytest.mark.ci
def test_steps_and_totals_are_scalars(tmp_path):
    path = write(samples.analysis(), tmp_path / "runs" / "a")
    assert path.parent == tmp_path / "runs" / "a"
    found = events(path.parent)
    steps = found.Scalars("step/time_s")
    assert [event.step for event in steps] == list(range(12))
    assert [event.value for event in steps] == pytest.approx(samples.analysis().steps.durations_s)
    assert found.Scalars("step/images_per_s")[0].value == pytest.approx(4 / 0.084)
    assert found.Scalars("summary/efficiency")[0].value == pytest.approx(samples.analysis().totals.efficiency)


@pytest.mark.ci
def test_samples_are_curves_of_their_device(tmp_path):
    write(samples.analysis(), tmp_path, READINGS)
    found = events(tmp_path)
    power = found.Scalars("cuda:0/power_w")
    assert [(event.step, event.value) for event in power] == [(0, 200.0), (500, 201.0), (1000, 202.0), (1500, 203.0)]
    assert power[0].wall_time == pytest.approx(1e9)
    assert "cuda:0/temperature_c" not in found.Tags()["scalars"]


@pytest.mark.ci
def test_every_figure_of_a_sample_is_a_curve_and_steps_are_marked_on_their_axis(tmp_path):
    write(machine_analysis(), tmp_path, machine_samples())
    found = events(tmp_path)
    tags = set(found.Tags()["scalars"])
    assert {"cuda:1/temperature_c", "cuda:0/power_w", "host/energy_j"} <= tags
    assert not {"cuda:0/ecc_uncorrected", "host/process_major_faults"} & tags  # they do not change
    assert not {tag for tag in tags if tag.endswith(("core_utilization", "throttle_reasons", "source", "time_ns"))}
    held = found.Scalars("cuda:0/throttled")
    assert next(event.step for event in held if event.value) == pytest.approx(1500 + 2000, abs=1)
    ended = found.Scalars("step/ended")
    assert [(event.step, event.value) for event in ended[:3]] == [(1500, 0), (1600, 1), (1700, 2)]
    assert ended[-1].wall_time == pytest.approx(BEGAN_NS / 1e9 + 5)
    assert found.Scalars("summary/energy_j")[0].value == pytest.approx(44.8, rel=0.01)
    assert found.Scalars("summary/cuda:1/busy")[0].value == pytest.approx(0.14, rel=0.01)
    assert "timeline" in found.Tags()["images"]


def test_what_was_not_measured_has_no_curve(tmp_path):
    write(replace(samples.analysis(), steps=None, totals=None, memory=None, operators=(), coverage=None), tmp_path)
    found = events(tmp_path)
    assert found.Tags()["scalars"] == ["summary/idle_s"]
    assert "No operators: this run has no trace" in text_of(found, "report")


@pytest.mark.ci
def test_writing_again_replaces_our_file_and_no_other(tmp_path):
    other = tmp_path / "events.out.tfevents.1.host.1.0"
    other.write_bytes(b"")
    write(samples.analysis(), tmp_path)
    write(samples.analysis(), tmp_path)
    assert len(events(tmp_path).Scalars("step/time_s")) == 12
    assert len(list(tmp_path.iterdir())) == 2
    assert other.exists()


@pytest.mark.ci
def test_figures_are_images_whose_thumbnail_can_be_read_and_the_report_is_text(tmp_path):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    write(samples.analysis(), tmp_path)
    found = events(tmp_path)
    image = found.Images("roofline")[0]
    assert (image.width, image.height) == (1104, 696)
    # The smallest type of a figure, on a thumbnail 400 pixels wide.
    assert SMALL / 72 * tensorboard.IMAGE_DPI * 400 / image.width > 7
    report = text_of(found, "report")
    assert report.startswith("**47.6 images/s")
    assert "Run the convolutions in bf16" in report
    rows = text_of(found, "operators").splitlines()
    assert rows[2].startswith("| 41.2 | convolution\\_backward | layer1.0.conv2 |")
    # Settings are hyperparameters of the same run.
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = HParamsPluginData.FromString(content).session_start_info.hparams
    assert settings["model"].string_value == "resnet50"
    assert settings["batch_size"].number_value == 4
    assert settings["compiled"].string_value == "no"
    assert [path.is_file() for path in tmp_path.iterdir()] == [True]


@pytest.mark.ci
def test_a_name_is_not_markup(tmp_path):
    from tensorboard.plugin_util import markdown_to_safe_html

    sample = samples.analysis()
    row = replace(sample.operators[2], name="<script>|[x](http://a)*y*", module="`z` #let [red] =cmd()")
    write(replace(sample, operators=(row, *sample.operators)), tmp_path)
    page = markdown_to_safe_html(text_of(events(tmp_path), "operators"))
    assert "&lt;script&gt;|[x](http://a)*y* (backward)</td>" in page
    assert "`z` #let [red] =cmd()</td>" in page
    assert "<a " not in page
