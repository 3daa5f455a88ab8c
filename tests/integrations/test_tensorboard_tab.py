"""The tab of TensorBoard: what it finds below a log directory, its routes behind TensorBoard's own application, and in a browser."""

import argparse
import gzip
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

import rooflines
from rooflines.pipeline.reporting import report_run
from rooflines.profiler.directory import load, save
from rooflines.reports.page import ranks
from rooflines.reports.render.html import render
from tests import commands
from tests.reports.render.browser import browser, violations  # noqa: F401

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytest.importorskip("tensorboard")
from tensorboard.backend import application
from tensorboard.plugins import base_plugin
from werkzeug.test import Client

from rooflines.integrations import tensorboard_tab
from rooflines.integrations.tensorboard_tab import plugin, sources
from rooflines.integrations.tensorboard_tab.sources import Scan

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
TRACES, RUNS = DATA / "traces", DATA / "gpu_runs"
RUN, CPU = "products-in-two-streams", TRACES / "cpu_only.json.gz"
PREFIX = "/data/plugin/rooflines"
HOSTILE = "a\"'><img src=x onerror=alert(1)>\n<script>alert(2)<!--" + "x" * 120


def age(*paths, by_s=3600):
    """Make files look as if nothing had written them for a while."""
    for path in paths:
        for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
            at = time.time() - by_s
            os.utime(file, (at, at))


def put(trace, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(trace, path)
    age(path)
    return path


class Tab:
    """The plugin behind all that TensorBoard puts around it, which logs what a response lacks."""

    def __init__(self, logdir):
        self.plugin = tensorboard_tab.RooflinesTab(base_plugin.TBContext(logdir=str(logdir), flags=argparse.Namespace()))
        self.client = Client(application.TensorBoardWSGI([self.plugin]))

    def get(self, route, **arguments):
        return self.client.get(f"{PREFIX}/{route}?{urlencode(arguments, doseq=True)}")

    def runs(self, *, filled=True):
        """The list by name; ``filled`` waits until nothing is to be analyzed any more."""
        for _ in range(600):
            found = {one["name"]: one for one in self.get("runs").json["runs"]}
            if not filled or all(one["state"] != "waiting" for one in found.values()):
                return found
            time.sleep(0.05)
        raise AssertionError(found)


@pytest.fixture(autouse=True)
def no_warning_of_tensorboard(caplog):
    yield
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text for text in said if "sending 404" not in text] == []


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """A run of ours, a directory of tensorboard_trace_handler with two ranks, and a mixture with files that are no traces."""
    folder = tmp_path_factory.mktemp("logs")
    shutil.copytree(RUNS / RUN, folder / RUN)
    for rank in (0, 1):
        put(TRACES / "dlrm_8ranks" / f"rank{rank}.json.gz", folder / "ddp" / f"host_{rank}7.169{rank}.pt.trace.json.gz")
    put(CPU, folder / "mixed" / "plain.json.gz")
    put(TRACES / "bert-small_h100_inference.pftrace", folder / "mixed" / "bert.pftrace")
    put(CPU, folder / "mixed" / ".hidden" / "trace.json.gz")
    (folder / "mixed" / "cut.pt.trace.json.gz").write_bytes((TRACES / "bert-small_h100_inference.json.gz").read_bytes()[:9000])
    (folder / "mixed" / "trainer_state.json").write_text('{"loss": [1, 2]}')
    (folder / "mixed" / "round").symlink_to(folder)
    put(CPU, folder / "mixed" / HOSTILE.replace("/", "|") / "cpu.json.gz")
    age(folder)
    return folder


@pytest.fixture(scope="module")
def tab(logdir):
    return Tab(logdir)


@pytest.mark.ci
def test_the_list_comes_first_and_figures_follow(tab, logdir):
    first = tab.runs(filled=False)
    hostile = f"mixed/{HOSTILE.replace('/', '|')}/cpu.json.gz"
    assert {name: one["kind"] for name, one in first.items()} == {
        RUN: "run", "ddp/host_07.1690.pt.trace.json.gz": "trace", "ddp/host_17.1691.pt.trace.json.gz": "trace",
        "ddp (2 ranks)": "ranks", "mixed/plain.json.gz": "trace", "mixed/bert.pftrace": "trace",
        "mixed/cut.pt.trace.json.gz": "trace", hostile: "trace",
    }  # fmt: skip
    assert tab.plugin.is_active()
    found = tab.runs()
    states = {one["name"]: one["state"] for one in found.values()}
    assert states.pop("mixed/cut.pt.trace.json.gz") == "failed"
    assert states.pop("ddp (2 ranks)") == "large"
    assert set(states.values()) <= {"done", "failed"}
    error = found["mixed/cut.pt.trace.json.gz"]["error"]
    assert error == "the trace 'cut.pt.trace.json.gz' is a damaged gzip file: unexpected end of file"
    expected = rooflines.analyze(logdir / RUN)
    assert found[RUN]["efficiency"] == expected.totals.efficiency
    assert found[RUN]["step_s"] == expected.steps.median_s
    assert found[RUN]["device"] == expected.environment.device_name


@pytest.mark.ci
def test_the_page_of_a_run_is_its_report(tab, logdir, tmp_path):
    folder = shutil.copytree(logdir / RUN, tmp_path / "copy")
    report_run(load(folder), ["html"])
    response = tab.get("page", run=RUN, theme="dark")
    assert response.text.replace(' data-theme="dark"', "", 1) == (folder / "report.html").read_text(encoding="utf-8")
    policy = response.headers["Content-Security-Policy"]
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert policy.count("sha256-") == response.text.count("<script>")


@pytest.mark.ci
def test_several_ranks_and_comparisons_have_their_pages(tab, logdir):
    names = [name for name, one in tab.runs().items() if name.startswith("ddp/")]
    assert render(ranks.page(rooflines.analyze_ranks(logdir / "ddp", jobs=1))) == tab.get("page", run="ddp (2 ranks)").text
    text = tab.get("page", run=names).text
    assert names[0] in text.partition("What was compared")[2]
    answer = tab.get("page", run=[RUN, "ddp (2 ranks)"])
    assert answer.mimetype == "text/plain"
    assert answer.text == "Only runs and traces can be compared."


@pytest.mark.parametrize(
    "name", ["../a.json.gz", "/etc/passwd", "mixed/../mixed/plain.json.gz", "mixed/.hidden/trace.json.gz", "", "."]
)
def test_only_what_is_in_the_list_is_served(tab, name):
    for response in (tab.get("page", run=name), tab.client.get(f"{PREFIX}/{name}"), tab.client.get(f"{PREFIX}/page/{name}")):
        assert response.status_code == 404
        assert response.mimetype == "text/plain"
    assert tab.get("page", run=[RUN] * 3).status_code == 404


def test_the_answer_to_a_hostile_name_is_escaped(tab):
    name = next(name for name in tab.runs() if "onerror" in name)
    for response in (tab.get("page", run=name), tab.get("page", run=[name, "mixed/plain.json.gz"])):
        assert response.mimetype == "text/html"
        assert "<img src=x" not in response.text
        assert "<script>alert" not in response.text


def test_a_run_that_is_being_recorded_becomes_a_result(tmp_path):
    tab, trace = Tab(tmp_path), CPU.read_bytes()
    assert not tab.plugin.is_active()
    (tmp_path / "new.pt.trace.json.gz").write_bytes(trace[:500])
    shutil.copytree(RUNS / RUN, tmp_path / "run")
    facts = load(tmp_path / "run").facts
    save(tmp_path / "run", replace(facts, status="running"))
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / ".samples.jsonl").write_text("")
    names = ("new.pt.trace.json.gz", "run", "begun")
    assert {name: one["state"] for name, one in tab.runs().items()} == dict.fromkeys(names, "recording")
    assert "is being recorded" in tab.get("page", run="run").text
    (tmp_path / "new.pt.trace.json.gz").write_bytes(trace)
    save(tmp_path / "run", facts)
    age(tmp_path / "new.pt.trace.json.gz", tmp_path / "begun")
    found = tab.runs()
    assert (found["new.pt.trace.json.gz"]["state"], found["run"]["state"]) == ("done", "done")
    assert "it has no run.json" in found["begun"]["error"]
    shutil.rmtree(tmp_path / "run")
    assert "run" not in tab.runs()


def test_a_file_is_read_again_only_if_it_changed(tmp_path):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}', mtime=0))
    age(path)
    scan, before = Scan(str(tmp_path)), path.stat()
    assert scan().keys() == {"a.json.gz"}
    path.write_bytes(gzip.compress(b'{"otherEvents": []}', mtime=0))
    os.truncate(path, before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert scan().keys() == {"a.json.gz"}
    age(path, by_s=99)
    assert scan().keys() == set()


def test_a_stored_analysis_is_used_if_it_is_newer_and_of_this_version(tmp_path):
    folder = shutil.copytree(RUNS / RUN, tmp_path / RUN)
    report_run(load(folder), [])
    stored = folder / "analysis.json"
    record = json.loads(stored.read_text(encoding="utf-8"))
    batch = rooflines.analyze(folder).environment.device_name
    stored.write_text(json.dumps(record | {"environment": record["environment"] | {"device_name": "stored"}}))
    assert Tab(tmp_path).runs()[RUN]["device"] == "stored"
    for change in (lambda: age(stored, by_s=99999999), lambda: stored.write_text('{"schema": "rooflines.analysis/0"}')):
        change()
        assert Tab(tmp_path).runs()[RUN]["device"] == batch


def test_large_files_are_analyzed_when_opened_and_limits_are_told(tmp_path, monkeypatch):
    put(CPU, tmp_path / "a" / "b" / "large.json.gz")
    put(CPU, tmp_path / "large.json.gz")
    monkeypatch.setattr(sources, "LARGE_COMPRESSED_BYTES", 100)
    monkeypatch.setattr(sources, "MOST_ENTRIES", 1)
    tab = Tab(tmp_path)
    assert {one["name"]: one["state"] for one in tab.runs().values()} == {"large.json.gz": "large"}
    assert tab.get("runs").json["cut"]
    assert tab.get("page", run="large.json.gz").mimetype == "text/html"
    assert tab.runs()["large.json.gz"]["state"] == "done"


@pytest.mark.ci
def test_the_analyses_kept_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("rooflines.integrations.tensorboard_tab.results.MOST_KEPT", 2)
    for name in "abc":
        put(CPU, tmp_path / f"{name}.json.gz")
    tab = Tab(tmp_path)
    for name in tab.runs():
        assert tab.get("page", run=name).mimetype == "text/html"
    assert [kept.cache_info().currsize for kept in (tab.plugin._results._text, tab.plugin._results._analysis)] == [2, 2]


def test_the_entry_point_is_the_plugin():
    with open(ROOT / "pyproject.toml", "rb") as file:
        module, _, name = tomllib.load(file)["project"]["entry-points"]["tensorboard_plugins"]["rooflines"].partition(":")
    assert module == tensorboard_tab.__name__
    assert issubclass(getattr(tensorboard_tab, name), base_plugin.TBPlugin)
    assert plugin.RooflinesTab.plugin_name == "rooflines"


def test_a_directory_that_is_missing_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    answer = commands.call(capsys, monkeypatch, "view")
    assert (answer.code, answer.complaint[0]) == (2, "rooflines: 'runs' is not a directory.")


@pytest.fixture(scope="module")
def served(logdir):
    process = commands.start("view", logdir, "--port", "0", cwd=logdir)
    lines = [process.stdout.readline().split(maxsplit=1) for _ in range(2)]
    assert [line[0] for line in lines] == ["view", "stop"]
    yield lines[0][1].strip()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out.strip(), err.strip()) == (0, "", "")


@pytest.mark.ci
def test_the_tab_in_a_browser(browser, served):  # noqa: F811
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    origin, foreign, complaints = served.partition("#")[0], [], []
    page.on("request", lambda request: request.url.startswith((origin, "data:", "blob:")) or foreign.append(request.url))
    # TensorBoard's own scripts have warnings of their own.
    page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(f"{served}&p.rooflines.run={RUN}&p.rooflines.view=operators")
    tab = page.frame_locator("iframe[src*='plugin_entry']")
    report = tab.frame_locator("iframe")
    report.locator("#operators h2").wait_for(timeout=30000)
    assert report.locator("#operators h2").evaluate("title => title.getBoundingClientRect().top < 200")
    assert report.locator("html").get_attribute("data-theme") == "light"
    assert tab.locator("iframe").get_attribute("sandbox") == "allow-scripts allow-downloads"
    tab.locator("li.failed").wait_for(timeout=30000)
    assert tab.locator("li").count() == 8
    assert tab.locator("li[aria-current=true] b").inner_text() == RUN
    frame = next(frame for frame in page.frames if "plugin_entry" in frame.url)
    assert violations(frame) == []
    page.evaluate("document.body.classList.add('dark-mode')")
    report.locator("html[data-theme=dark] #verdict").wait_for()
    assert violations(frame) == []

    tab.get_by_label("Filter runs").fill("host_")
    tab.locator("li:not(.waiting)").nth(1).wait_for()
    for box in tab.locator("li > input").all():
        box.check()
    report.get_by_role("heading", name="What was compared").wait_for(timeout=30000)
    assert re.search(r"p.rooflines.run=ddp%2F\S+&p.rooflines.with=ddp%2F", page.url)
    tab.get_by_label("Filter runs").fill("")
    tab.locator("li > button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    tab.locator("li:nth-child(2)[aria-current=true]").wait_for()
    tab.locator("li", has_text="cut.pt.trace").locator("button").click()
    tab.locator("main p", has_text="unexpected end of file").wait_for()
    assert tab.locator("li", has_text="onerror").count() == 1
    assert tab.locator("img, li script").count() == 0
    assert (foreign, complaints) == ([], [])
    context.close()
