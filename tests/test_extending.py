"""The examples of docs/extending.md, built from its text, installed and run."""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rooflines.errors import UsageError
from rooflines.installed import load_all
from rooflines.profiler.directory import JOURNAL_FILE
from rooflines.profiler.samplers.process import SamplerProcess
from rooflines.reports.page import run as view
from rooflines.reports.render import formats
from rooflines.roofline.advise.findings import find
from tests.printing import curves, unpacked
from tests.processes import wait_until
from tests.samples import analysis as sample

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "extending.md"
TRACE = ROOT / "tests" / "data" / "traces" / "bert-small_h100_inference.json.gz"
KEYS = ("network_sent_bytes", "network_received_bytes", "load_average")


def install(directory, files, monkeypatch):
    """Make a package of ``files`` importable, with the entry points of its pyproject.toml, here and in processes started from here."""
    project = tomllib.loads(files["pyproject.toml"])["project"]
    for name, text in files.items():
        (directory / name).write_text(text)
    information = directory / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    text = "".join(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()) for group, points in groups)
    (information / "entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(directory)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(directory), str(ROOT))))


def timeline_rows(page):
    """Every row of the timeline on a page: its name, the names of its lines, and the ends of its axis."""
    figure = page.partition('<figure id="figure-timeline">')[2].partition("</figure>")[0]
    svg = figure.partition("</svg>")[0]
    axes = json.loads(html.unescape(re.search(r'data-axes="([^"]*)"', svg)[1]))
    names = [re.search(r'x="0" y="[^"]*">([^<,]*)', part)[1] for part in svg.split("-axes_")[1:]]
    rows = unpacked(re.search(r'class="marks">(.*?)</script>', figure, flags=re.DOTALL)[1])["rows"]
    return [(name, [line[0] for line in lines], one["y"]) for name, lines, one in zip(names, rows, axes, strict=True)]


def documented(heading):
    """The files of a section's code blocks, by the names in their first lines."""
    section = re.split(r"^## ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = (part for part in section if part.startswith(f"{heading}\n"))
    return dict(re.findall(r"^```\w+\n# (\S+\.\w+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))


def package(group, name, value, files):
    """The ``files`` of a package with one entry point."""
    pyproject = f'[project]\nname = "{group}"\nversion = "1"\n[project.entry-points."rooflines.{group}"]\n{name} = "{value}"\n'
    return {"pyproject.toml": pyproject, **files}


def sampler_module(body):
    """The files of a package whose sampler has ``body`` as the code of its class."""
    start = (
        "import sys\n"
        "from rooflines.ext import DeviceSample, Field, Sampler, now_ns\n"
        "class Mine(Sampler):\n    def __init__(self, pid, period_s): pass\n"
    )
    code = start + "".join(f"    {line}\n" for line in body.splitlines())
    return package("samplers", "mine", "mine_sampler:Mine", {"mine_sampler.py": code})


def monitored(folder, key):
    """What ``rooflines monitor`` wrote and printed of a program that ends when the field ``key`` has been read five times."""
    waits = (
        "import time\nfrom pathlib import Path\n"
        f"while Path('out', {JOURNAL_FILE!r}).read_text().count('\"{key}\":') < 5: time.sleep(0.02)"
    )
    command = ["-m", "rooflines", "monitor", "--gpus", "none", "-o", "out", "--", sys.executable, "-c", waits]
    ran = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return folder / "out", ran.stderr


@pytest.mark.ci
def test_the_fields_of_the_documented_sampler_are_in_every_report(tmp_path, monkeypatch):
    install(tmp_path, documented("A sampler"), monkeypatch)
    out, err = monitored(tmp_path, "load_average")
    table = pq.read_table(out / "samples.parquet")
    for key in KEYS:
        read = [value for value in table[key].to_pylist() if value is not None]
        assert len(read) > 3
        assert key in (out / "samples.csv").read_text().partition("\n")[0]
        assert f"host/{key}" in curves(out).Tags()["scalars"]

    usage = json.loads((out / "analysis.json").read_text())["usage"]
    (host,) = (one for one in usage["devices"] if one["device"] == "host")
    sent = [value for value in table["network_sent_bytes"].to_pylist() if value is not None]
    assert 0 <= host["counts"]["network_sent_bytes"] <= sent[-1] - sent[0]
    assert host["gauges"]["load_average"]["highest"] in table["load_average"].to_pylist()

    # The table, in the terminal and on the page.
    page = (out / "report.html").read_text()
    for label in ("sent", "received", "load average"):
        assert re.search(rf"^ *{label} +", err, flags=re.MULTILINE)
        assert f'<td class="w">{label}</td>' in page
    # The chart.
    rows = {name: lines for name, lines, _ in timeline_rows(page)}
    assert rows["network"] == ["host, sent", "host, received"]
    assert rows["load average"] == ["host"]


@pytest.mark.ci
@pytest.mark.parametrize(("body", "sentence"), [
    ("def read(self):\n    raise ValueError('broken')", " stopped: ValueError: broken."),
    ("def read(self):\n    sys.exit('enough')", " stopped: SystemExit: enough."),
    ("raise ImportError('no driver')", " stopped: ImportError: no driver."),
    (
        "def read(self):\n    return (DeviceSample(time_ns=now_ns(), source='mine', more={'other': 1.0}),)",
        "it does not declare the field 'other'.",
    ),
    ("fields = {'power_w': Field('power', 'W')}", "is not used: 'power_w' is a built-in field and needs no declaration."),
    ("fields = {'time_ns': Field('time', 's')}", "is not used: 'time_ns' cannot be the key of a field"),
    ("fields = {'a/b': Field('time', 's')}", "is not used: 'a/b' cannot be the key of a field"),
    ("fields = {'fan': 'rpm'}", " stopped: ValidationError: Expected `object`, got `str` - at `$[...]`."),
    ("def read(self):\n    return (DeviceSample(time_ns=now_ns(), source='mine', power_w='much'),)", "got `str` - at `$.power_w`."),
    ("fields = {'fan': Field('fan', 'rpm', 'mean')}", " stopped: ValidationError: Expected `array`, got `str`"),
    (
        "fields = {'fan': Field('fan', 'rpm')}\n"
        "def read(self):\n    return (DeviceSample(time_ns=now_ns(), source='mine', more={'fan': 'fast'}),)",
        " stopped: ValueError: could not convert string to float: 'fast'.",
    ),
])  # fmt: skip
def test_a_sampler_that_fails_is_reported_and_ends_nothing_else(body, sentence, tmp_path, monkeypatch):
    install(tmp_path, sampler_module(body), monkeypatch)
    with SamplerProcess(os.getpid(), tmp_path / "samples.jsonl", 0.05, gpus={}) as sampler:
        wait_until(lambda: len(samples := sampler.samples()) > 1 and samples[-1].time_ns - samples[0].time_ns > 2e8)
    assert "The sampler 'mine' (mine_sampler:Mine)" in sampler.problem
    assert sentence in sampler.problem
    assert {sample.source for sample in sampler.samples()} >= {"psutil"}


@pytest.mark.ci
def test_a_sampler_that_hangs_delays_no_other(tmp_path, monkeypatch):
    install(tmp_path, sampler_module("__import__('time').sleep(600)"), monkeypatch)
    with SamplerProcess(os.getpid(), tmp_path / "samples.jsonl", 0.05, gpus={}) as sampler:
        pass
    assert "did not respond at the end" in sampler.problem
    assert sampler.samples()


@pytest.mark.ci
def test_a_device_of_its_own_with_power_has_energy_and_no_line_among_the_gpus(tmp_path, monkeypatch):
    body = (
        "fields = {'inlet_c': Field('inlet', '°C', ('mean', 'lowest'), 'temperature'), 'pump_w': Field('pump', 'W', ('integral',))}\n"
        "def read(self):\n"
        "    return (DeviceSample(time_ns=now_ns(), source='mine', device='rack', power_w=250.0,\n"
        "        more={'inlet_c': -4.0, 'pump_w': 20.0}),)"
    )
    install(tmp_path, sampler_module(body), monkeypatch)
    out, err = monitored(tmp_path, "inlet_c")
    assert "GPU" not in err
    assert re.search(r"^ *inlet +-4 °C .*rack", err, flags=re.MULTILINE)
    assert re.search(r"^ *pump .*J +rack", err, flags=re.MULTILINE)
    usage = json.loads((out / "analysis.json").read_text())["usage"]
    (rack,) = (one for one in usage["devices"] if one["device"] == "rack")
    assert rack["counts"]["pump_w"] == pytest.approx(20.0 * rack["counted_s"]["pump_w"])
    assert 0 < rack["counted_s"]["pump_w"] <= usage["window_s"]
    rows = timeline_rows((out / "report.html").read_text())
    ((bottom, top),) = (ends for name, lines, ends in rows if name == "temperature" and any("rack" in line for line in lines))
    assert bottom < -4.0 < top


@pytest.mark.ci
def test_the_documented_page_is_written_in_every_format(tmp_path):
    (script,) = documented("A page").items()
    (tmp_path / script[0]).write_text(script[1])
    ran = subprocess.run(
        [sys.executable, str(tmp_path / script[0]), str(TRACE), str(tmp_path)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert [Path(line).name for line in ran.stdout.splitlines()] == ["report.html", "report.pdf", "report.md", "report.txt"]
    for file in ("report.html", "report.md", "report.txt"):
        text = (tmp_path / file).read_text()
        assert "matmul takes" in text
        assert "element-wise" in text


@pytest.mark.ci
def test_the_documented_format_is_a_name_for_every_command(tmp_path, monkeypatch):
    install(tmp_path, documented("A report format"), monkeypatch)
    written = formats.write(view.page(sample()), *formats.check_formats(["rst"]), tmp_path)
    text = written.read_text()
    assert written.name == "report.rst"
    assert '"share %","operator","module","time ms"' in text
    assert '"41.2","convolution_backward","layer1.0.conv2","30.2"' in text
    with pytest.raises(UsageError) as caught:
        formats.check_formats(["doc"])
    assert caught.value.hint.endswith("tensorboard, rst, or all.")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "rooflines", "devices", "A100", "--formats", "rst,text", "-o", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert {path.name for path in out.iterdir()} == {"report.rst", "report.txt"}


def test_a_format_and_a_recommendation_that_cannot_be_imported_are_named(tmp_path, monkeypatch, rules):
    for kind in ("format", "finding"):
        (tmp_path / kind).mkdir()
    install(
        tmp_path / "format",
        package("formats", "slides", "slides_report", {"slides_report.py": "raise OSError('no fonts')\n"}),
        monkeypatch,
    )
    with pytest.raises(UsageError, match=r"the formats 'slides' \(slides_report\) cannot be loaded: OSError: no fonts\."):
        formats.write(view.page(sample()), *formats.check_formats(["slides"]), tmp_path)
    install(tmp_path / "finding", package("findings", "mine", "my_rule:rule", {"my_rule.py": "pass\n"}), monkeypatch)
    with pytest.raises(UsageError, match=r"the findings 'mine' \(my_rule:rule\) cannot be loaded: AttributeError"):
        find(sample())


@pytest.fixture
def rules():
    load_all.cache_clear()
    yield
    load_all.cache_clear()


def test_the_documented_recommendation_is_among_the_findings(tmp_path, monkeypatch, rules):
    install(tmp_path, documented("A recommendation"), monkeypatch)
    slow = replace(sample().operators[0], name="aten::silu", module="act", time_s=0.02)
    found = find(replace(sample(), operators=(*sample().operators, slow)))
    (own,) = (one for one in found if one.title == "Use in-place activations")
    assert own.saves_s == pytest.approx(0.01)
    assert "activations that write a new tensor take 20.0 ms" in own.evidence
    assert not [one for one in find(sample()) if one.title == own.title]


@pytest.mark.ci
def test_the_documented_command_is_one_of_rooflines(tmp_path, monkeypatch):
    install(tmp_path, documented("A command"), monkeypatch)

    def ran(*arguments):
        return subprocess.run([sys.executable, "-m", "rooflines", *arguments], capture_output=True, text=True)

    assert re.search(r"longest +Print the operator", ran("--help").stdout)
    assert re.fullmatch(r"aten::\w+: [\d.]+ µs\n", ran("longest", str(TRACE)).stdout)
    missing = ran("longest", "nowhere.json")
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 2)
