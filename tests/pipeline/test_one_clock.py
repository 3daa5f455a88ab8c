"""Every time and every share of a report refers to the same step, in every format: no two numbers disagree."""

import html
import re
import shutil
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

import rooflines
from rooflines.device_specs.records import Ceilings
from rooflines.pipeline import analyze_source
from rooflines.pipeline.reporting import report_run
from rooflines.profiler.directory import load
from rooflines.profiler.records import Run, StepTimes
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.reports.document import Bar, Cell, Table
from rooflines.reports.page.roofline import chart_caption
from rooflines.reports.page.run import bound_bar
from rooflines.reports.page.run import page as page_of
from rooflines.roofline.advise.verdict import ONE_THREAD
from rooflines.roofline.analyze import analyze
from rooflines.roofline.judge.judge import Judged
from tests.commands import write_ceilings
from tests.printing import pdf_text

# Takes seconds to compile or to start.
pytestmark = pytest.mark.ci

DATA = Path(__file__).parent.parent / "data"
FORMATS = ("text", "markdown", "html", "pdf", "json", "tensorboard")
TIME, SHARE = r"(\d[\d.,]* (?:ns|µs|ms|s))", r"(<?\d[\d.]*) %"
# A time and its share of the step, as sentences and bars write them.
PAIRS = (
    (re.compile(rf"{TIME} a step \({SHARE}"), (1, 2)),
    (re.compile(rf"{SHARE} of the step \({TIME}"), (2, 1)),
    (re.compile(rf"(?:compute|memory|inefficient|latency|host|input|idle|lower bound|headroom) {SHARE} \({TIME}"), (2, 1)),
)
# Times of a step that are not of the step which is divided say so.
OTHERS = re.compile(r"percentile|interval|profiler|first step|traced step|Warm-up|median")


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 15 * 15, 10))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("clock")


@pytest.fixture(scope="module")
def options(folder):
    return {"ceilings": str(write_ceilings(folder)), "formats": ("json",), "device": "cpu"}


@pytest.fixture(scope="module")
def inference(folder, options):
    return rooflines.profile(convolutions(), torch.randn(4, 3, 32, 32), output=folder / "inference", steps=30, **options)


def training(folder, options, inference):
    """A loop of the user with a loader that is waited for."""
    network = convolutions()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(400, 3, 32, 32)), batch_size=4)
    with rooflines.record(folder / "training", steps=20, batch_size=4, **options) as recording:
        for (images,) in loader:
            optimizer.zero_grad()
            network(images).square().mean().backward()
            optimizer.step()
            recording.step()
    return recording.run, analyze(recording.run).analysis


def step_function(folder, options, inference):
    layers, values = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8))), torch.randn(16, 16)
    run = rooflines.profile(lambda: layers(values), output=folder / "function", steps=100, **options)
    return run, analyze(run).analysis


def with_timed_steps(folder, options, inference):
    """A GPU whose host is slower under the profiler: only the idle time shrinks."""
    trace = next(DATA.rglob("bert-small_h100_inference*.json.gz"))
    directory = folder / "gpu"
    directory.mkdir()
    shutil.copy(trace, directory / trace.name)
    run, bare, _ = analyze_source(trace)
    timed = StepTimes(timed_ns=(round(0.6 * bare.timeline.span_s * 1e9),) * 6, traced_ns=(round(bare.timeline.span_s * 1e9),))
    facts = msgspec.structs.replace(run.facts, steps=timed, trace=trace.name)
    run = Run(directory=directory, facts=facts)
    return run, analyze(run, Ceilings(device="", kind="", ceilings=bare.ceilings)).analysis


def trace_alone(folder, options, inference):
    return analyze_source(inference.trace_path, ceilings=options["ceilings"])[:2]


def disturbed(folder, options, inference):
    """The same run beside a program that took one of two processors and delayed every step."""
    run = load(inference.directory)
    times, environment = run.facts.steps, msgspec.structs.replace(run.facts.environment, cpu_threads=2)
    began = times.timed_began_ns or 0
    busy = DeviceSample(time_ns=began, source="psutil", cpu_utilization=1.0, process_cpu_utilization=1.0)
    samples = tuple(msgspec.structs.replace(busy, time_ns=began + number * 100_000_000) for number in range(4))
    queues = {"timed_queue_ns": times.timed_ns, "traced_queue_ns": times.traced_ns}
    facts = msgspec.structs.replace(run.facts, environment=environment, steps=msgspec.structs.replace(times, **queues))
    run = Run(directory=run.directory, facts=facts, samples=samples)
    return run, analyze(run).analysis


def inference_run(folder, options, inference):
    return inference, analyze(inference).analysis


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in (step_function, trace_alone)]


@pytest.fixture(scope="module", params=[inference_run, training, with_timed_steps, disturbed, *SLOW])
def reported(request, folder, options, inference):
    run, analysis = request.param(folder, options, inference)
    output = folder / f"reports-{request.param.__name__}"
    output.mkdir()
    return request.param, analysis, report_run(run, FORMATS, judged=Judged(analysis), output=output)


def text_of(name, path):
    """The words of a report, with single spaces."""
    if name == "pdf":
        pytest.importorskip("pypdf")
        text = pdf_text(path)
    else:
        text = path.read_bytes().decode("utf-8", errors="ignore")
    if name == "html":
        text = html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)))
    # The sign of micro has two code points, and a font may lack the space that is a thousandth.
    return " ".join(text.replace("μ", "µ").split())


def seconds_of(text):
    value, unit = text.replace(",", "").split()
    return float(value) * {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def is_judged(analysis):
    return analysis.other_programs is None or analysis.other_programs.judged


def agree(time_s, share, step_s):
    """Whether a time of three figures and a share in whole percent can be of one step."""
    if share.startswith("<"):
        return time_s <= 0.0101 * step_s
    return abs(time_s / step_s - float(share) / 100) <= 0.0051 + 0.006 * time_s / step_s


def test_the_parts_of_the_step_add_up_to_it(reported):
    _, analysis, _ = reported
    step_s = analysis.timeline.span_s
    if analysis.basis.timed:
        assert step_s == pytest.approx(analysis.steps.median_s)
    division = sum(getattr(analysis.division, field) or 0.0 for field in analysis.division.__struct_fields__[2:-1])
    rows_s = sum(row.time_s for row in analysis.operators) + sum(row.time_s for row in analysis.coverage.unmodeled)
    whole = (division, sum(analysis.bound_breakdown.values()), rows_s + analysis.timeline.idle_s - analysis.timeline.overlap_s)
    assert whole == pytest.approx((step_s,) * 3, rel=1e-9)
    assert sum(analysis.category_breakdown.values()) == pytest.approx(analysis.timeline.busy_s)
    assert (analysis.totals.headroom_s or 0.0) + (analysis.totals.lower_bound_s or 0.0) <= step_s * 1.001
    assert sum(finding.most_s for finding in analysis.findings) <= step_s * 1.001


def test_no_two_numbers_of_a_page_disagree(reported):
    _, analysis, _ = reported
    step_s, checked = analysis.timeline.span_s, 0
    for block in (block for section in page_of(analysis).sections for block in section.blocks):
        if isinstance(block, Bar):
            parts = [part for row in block.rows for part in row.parts]
            # One bar is the step; several are on the scale of the longest, which may be a traced step.
            whole_s = step_s if len(block.rows) == 1 else seconds_of(parts[0].text) / parts[0].share
            for part in parts:
                # Beside other programs the range of the share follows the time.
                time, _, share_range = part.text.partition(", ")
                assert seconds_of(time) == pytest.approx(part.share * whole_s, rel=0.012), part
                if share_range:
                    ends = [0.0 if sign else float(end) / 100 for sign, end in re.findall(r"(<?)([\d.]+)", share_range)]
                    assert ends[0] - 0.006 <= part.share <= max(ends[-1], 0.01) + 0.006, part
                checked += 1
            assert max(sum(part.share for part in row.parts) for row in block.rows) == pytest.approx(1, abs=1e-3)
        if isinstance(block, Table) and {"share", "time"} <= {column.label for column in block.columns}:
            at = {column.label: place for place, column in enumerate(block.columns)}
            for row in block.rows:
                share, time_s = (cell.value if isinstance(cell := row.cells[at[name]], Cell) else cell for name in ("share", "time"))
                assert time_s == pytest.approx(share * step_s, rel=1e-3)
                checked += 1
    assert checked > 5


@pytest.mark.parametrize("name", FORMATS)
def test_no_two_numbers_of_a_format_disagree(reported, name):
    _, analysis, written = reported
    text, step_s, checked = text_of(name, written[name]), analysis.timeline.span_s, 0
    for pattern, (time, share) in PAIRS:
        for found in pattern.finditer(text):
            assert agree(seconds_of(found[time]), found[share], step_s), found[0]
            checked += 1
    for found in re.finditer(rf"{TIME} a step", text):
        if not OTHERS.search(text[max(0, found.start() - 40) : found.end() + 60]):
            assert seconds_of(found[1]) <= 1.006 * step_s, text[max(0, found.start() - 60) : found.end() + 60]
            checked += 1
    assert checked or not is_judged(analysis)


def test_a_disturbed_run_says_what_is_known_and_that_its_times_are_upper_limits(reported):
    kind, analysis, written = reported
    if is_judged(analysis):  # as every other kind is, unless this machine is busy just now
        assert kind is not disturbed
        return
    assert "Shared machine: other programs took" in analysis.verdict
    option = None if analysis.workload.source == "loop" else "wait_quiet"
    others = [one.option for one in analysis.findings if one.title == ONE_THREAD]
    assert others == [option and "threads"] * (analysis.environment.threads > 1)
    # What the sentence says to try first is the first of the list.
    assert [one.option for one in analysis.findings][: len(others) + 1] == [*others, option]
    assert ("Try first: one thread" in analysis.verdict) == bool(others)
    assert len(analysis.findings) == len({one.evidence for one in analysis.findings}) > 1
    assert any(row.lower_bound_s for row in analysis.operators)
    assert analysis.totals.flops
    text = text_of("text", written["text"])
    assert "rooflines advise RUN --try" in text
    assert "Inefficient for" not in analysis.verdict
    shown = {part.name for row in bound_bar(analysis).rows for part in row.parts}
    assert "inefficient" not in shown
    assert "efficiency or more" in chart_caption(analysis)


def test_numbers_among_the_arguments_do_not_make_another_step(folder, options):
    """An index, a step size or a factor may differ in every step: the steps make the same calls."""
    values, rows = torch.randn(64, 64), torch.randn(64, 64)
    with rooflines.record(folder / "numbers", steps=10, **options) as recording:
        for step in range(40):
            torch.add(values, rows[step % 64], alpha=step)
            recording.step()
    assert not [note for note in analyze(recording.run).analysis.notes if "make the same calls" in note]
