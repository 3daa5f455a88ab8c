"""``rooflines ceilings``: what it prints and writes, what it refuses and when, what it takes from the cache."""

import csv
import datetime
import io
import json
import re

import pytest
import torch
from msgspec.structs import replace

from rooflines import pipeline
from rooflines.device_specs import detect, measure, measure_cpu
from rooflines.device_specs.history import History, HistorySeries, HistorySession, load_file
from rooflines.device_specs.records import Conditions
from rooflines.errors import UsageError
from rooflines.profiler.records import Environment, Run, RunFile, Workload
from rooflines.serial import read_json, write_json
from tests import samples
from tests.commands import call, run

FURTHER = replace(
    samples.ceilings()[0], variant="1 thread", threads=1, value=230e9,
    source=replace(samples.MEASURED, detail="FMA kernel, 1 thread"),
)  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def instant(monkeypatch):
    """A measurement that takes no time: four rounds of the sample's ceilings and of a further one, which no second round confirms.

    Returns what it was asked for.
    """
    asked = []

    def found(plan, threads, *, full=False):
        asked.append((threads, full))
        plan.clock_hz = 3e9
        for ceiling in (*samples.ceilings(), FURTHER):
            others = 0.8 if ceiling is FURTHER else 1.0
            plan.series.append(HistorySeries(ceiling=ceiling, values=(ceiling.value, *[others * ceiling.value] * 3), quiet=(True,) * 4))

    monkeypatch.setattr(measure_cpu, "measure_cpu", found)
    return asked


@pytest.fixture
def ask(place, instant, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: call(capsys, monkeypatch, "ceilings", "--device", "cpu", *arguments)


def cached(place):
    (path,) = (place / "cache" / "ceilings").iterdir()
    return path


def change(place, **fields):
    """Store the only measurement in the cache with other ``fields``."""
    history = read_json(cached(place), History)
    (session,) = history.sessions
    write_json(cached(place), replace(history, sessions=(replace(session, **fields),)))


def test_the_table_has_value_spread_scope_age_and_how_in_80_columns(ask, instant):
    answer = ask("--threads", "2")
    assert answer.code == 0
    assert instant == [(2, True)]
    assert max(map(len, answer.out.splitlines())) <= 80
    text = " ".join(answer.out.split())
    assert "2 threads · 3.00 GHz sustained · every figure measured just now" in text
    assert f"method {measure.METHOD}, torch {torch.__version__.split('+')[0]}" in text
    assert "FMA fp32 460 GFLOP/s 0.0 4/4 1" in text
    assert "GEMM bf16 sums in fp32 900 GFLOP/s 0.0 4/4" in text
    assert "L2 read up to 2.00 MiB 410 GB/s 0.0 4/4" in text
    assert "further arithmetic FMA fp32 (1 thread) 230 GFLOP/s ! 11.8 1/4" in text
    assert text.index("FMA fp64") < text.index("further arithmetic") < text.index("L2 read")
    assert "! unconfirmed: FMA fp32 (1 thread): no second round came within 5 % of the best." in text
    assert "kernel, unconfirmed" not in text  # what is told below the table is not told again


@pytest.mark.ci
def test_nothing_is_said_on_the_way_in_a_pipe(place):
    """The cached set of a real process answers a second one, which prints the table and nothing else."""
    facts = measure._facts(torch.device("cpu"), 1, None)
    fingerprint = measure.hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    then = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=3, minutes=5)
    stored = HistorySession(
        measured_at=then.isoformat(), series=tuple(HistorySeries(ceiling=one) for one in samples.ceilings()), full=True
    )
    path = place / "cache" / "ceilings" / f"cpu-{fingerprint}.json"
    path.parent.mkdir(parents=True)
    write_json(path, History(device="x", kind="cpu", fingerprint=fingerprint, method=4, sessions=(stored,)))
    answer = run("ceilings", "--device", "cpu", "--threads", "1", cwd=place)
    assert (answer.code, answer.err) == (0, "")
    assert "measured 3 days ago" in answer.out


def test_the_second_call_is_answered_from_the_cache_with_its_age(ask, instant, place):
    ask()
    then = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=5, minutes=1)
    change(place, measured_at=then.isoformat())
    assert "measured 5 hours ago" in ask().out
    assert len(instant) == 1
    text = " ".join(ask("--remeasure").out.split())
    assert "measured just now" in text
    assert f"best of 2 measurements since {then.date()}" in text
    assert len(instant) == 2


def test_a_figure_that_breaks_a_law_is_told_with_the_law(ask, place):
    ask("--threads", 2)
    first, *rest = read_json(cached(place), History).sessions[0].series
    threads = {"threads": 2}
    half = replace(first, ceiling=replace(first.ceiling, **threads), values=(230e9,) * 4)  # GFLOP/s of fp32, no more than fp64
    double = replace(rest[0], ceiling=replace(rest[0].ceiling, **threads))
    change(place, series=(half, double, *rest[1:]))
    text = " ".join(ask("--threads", 2).out.split())
    assert "FMA fp32 230 GFLOP/s ! 0.0 4/4" in text
    assert "! contradicts: FMA fp32 is 50 % of 2 x FMA fp32 (1 thread) (230 GFLOP/s)" in text
    assert "and 50 % of 2 x FMA fp64 (230 GFLOP/s): it contradicts another figure" in text


def test_figures_of_another_day_and_conditions_are_told(ask, place):
    ask()
    first, *rest = read_json(cached(place), History).sessions[0].series
    other = replace(
        first.ceiling,
        source=replace(first.ceiling.source, date="2026-11-18"),
        conditions=Conditions(clock_hz=1.98e9, power_w=690.4, temperature_c=64, throttled=("power cap",)),
    )
    change(place, series=(replace(first, ceiling=other), *rest))
    text = " ".join(ask().out.split())
    assert "FMA fp32 460 GFLOP/s ! 0.0 4/4 1.98 690 64 1" in text
    assert "1 numba FMA kernel, median of 7, 2026-11-18" in text
    assert "! throttled: FMA fp32: the device ran below the requested clock (power cap)." in text


def test_json_is_a_file_for_ceilings(ask, place):
    answer = ask("--format", "json")
    assert ask("-o", "mine.json").out == ""
    assert (place / "mine.json").read_text() == answer.out
    found = load_file(place / "mine.json")
    assert [(one.key, one.value) for one in found.ceilings] == [(one.key, one.value) for one in (*samples.ceilings(), FURTHER)]
    assert found.full
    (session,) = json.loads(answer.out)["sessions"]
    assert session["series"][0]["values"] == [460e9] * 4


@pytest.mark.ci
def test_csv_has_a_row_a_ceiling_and_the_suffix_of_output_decides_the_format(ask, place):
    rows = list(csv.DictReader(io.StringIO(ask("--format", "csv").out)))
    assert [row["name"] for row in rows] == [one.name for one in (*samples.ceilings(), FURTHER)]
    assert float(rows[0]["value"]) == 460e9
    assert (rows[-1]["variant"], rows[-1]["source"], rows[3]["precision"]) == ("1 thread", "measured", "")
    for options in (("a.csv",), ("b.txt",), ("d.html",), ("c.csv", "--format", "json")):
        ask("-o", *options)
    assert (place / "d.html").read_text().lower().startswith("<!doctype html>")
    assert (place / "a.csv").read_text().startswith('"kind","name","value"')
    assert "every figure" in (place / "b.txt").read_text()
    assert json.loads((place / "c.csv").read_text())["full"] is True


def test_measured_beside_the_sheet(ask, place, monkeypatch):
    detect.cpu()  # kept for the process, with its own name
    monkeypatch.setattr(detect, "cpu_name", lambda: "AMD EPYC 7763 64-Core Processor")
    ask("--threads", "1")
    answer = ask("--threads", "1", "--compare")
    assert max(map(len, answer.out.splitlines())) <= 80
    text = " ".join(answer.out.split())
    rows = json.loads(ask("--threads", "1", "--compare", "--format", "json").out)["compare"]
    row = next(row for row in rows if row["name"] == "FMA fp32")
    assert row["fraction"] == pytest.approx(row["measured"] / row["spec"])
    assert row["fraction"] > 1
    assert f"{row['fraction'] * 100:.0f} %" in text
    assert "above 100 %: FMA fp32" in text
    assert "of 64 cores" in text
    assert "without a reference" in text
    first = next(csv.DictReader(io.StringIO(ask("--threads", "1", "--compare", "--format", "csv").out)))
    assert float(first["fraction"]) == pytest.approx(row["fraction"])
    assert ask("--threads", "1", "--compare", "-o", "both.json").code == 0
    assert len(load_file(place / "both.json").ceilings) == len(samples.ceilings()) + 1


def test_without_a_sheet_it_says_so(ask, monkeypatch):
    detect.cpu()  # kept for the process, with its own name
    monkeypatch.setattr(detect, "cpu_name", lambda: "Zorblax 9000")
    text = " ".join(ask("--compare").out.split())
    assert "No data sheet for 'Zorblax 9000'" in text
    assert "data sheet:" not in text


@pytest.mark.parametrize(("name", "start"), [("c.png", b"\x89PNG"), ("c.svg", b"<?xml"), ("c.html", b"<!doctype html>")])
def test_charts(ask, place, name, start):
    answer = ask("--chart", name, "--compare")
    assert answer.code == 0
    assert "FMA fp32" in answer.out
    content = (place / name).read_bytes()
    assert content.startswith(start)
    if name != "c.png":
        assert b"GEMM bf16" in content
    if name == "c.html":  # it fetches nothing
        assert not re.search(rb'(src|xlink:href|href)="(?!data:|#)|url\((?!#)', content)


REFUSED = [
    (("--threads", "0"), "invalid value for '--threads'"),
    (("--sustained", "0"), "invalid value for '--sustained'"),
    (("--sustained", "5"), "sustained rates are measured on CUDA devices only; the device is cpu"),
    (("--format", "xml"), "unknown report format 'xml'"),
    (("--device", "gpu7"), "unknown device 'gpu7'"),
    (("--chart", "roofs.pdf"), "--chart 'roofs.pdf': unknown file type"),
    (("--chart", "nowhere/roofs.png"), "directory not found: 'nowhere'"),
    (("--output", "nowhere/mine.json"), "directory not found: 'nowhere'"),
    (("--colour",), "no such option: --colour"),
    (("extra",), "unexpected extra argument"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_what_cannot_be_done_is_refused_before_anything_is_measured(ask, instant, place, arguments, message):
    answer = ask(*arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]
    assert len(answer.complaint) == 2
    assert instant == []
    assert not (place / "cache").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(ask):
    answer = ask("--device", "cuda:0")
    assert answer.code == 2
    assert "cuda:0" in answer.complaint[0]


def test_a_file_that_cannot_be_written_is_one_line(ask, place):
    (place / "full.json").symlink_to("/dev/full")
    answer = ask("-o", "full.json")
    assert (answer.code, answer.complaint[0]) == (2, "rooflines: cannot write 'full.json': No space left on device.")


def recorded_on(directory, **environment):
    """A run without a trace, recorded on a device that need not be here."""
    known = {"host": "h", "os": "o", "python": "3", "rooflines": "0", "torch": "2", **environment}
    facts = RunFile(status="complete", workload=Workload(name="net", mode="inference"), environment=Environment(**known))
    return Run(directory=directory, facts=facts)


def test_a_recorded_slice_of_a_gpu_is_judged_by_its_share_of_the_sheet(tmp_path):
    name = "NVIDIA H100 80GB HBM3"
    whole = pipeline.analyze(recorded_on(tmp_path, device="cuda:0", device_name=name, device_units=132), ceilings="spec")
    part = pipeline.analyze(recorded_on(tmp_path, device="cuda:0", device_name=f"{name} MIG 1g.10gb", device_units=16), ceilings="spec")
    of_whole = {one.name: one.value for one in whole.ceilings}
    assert of_whole
    for one in part.ceilings:
        share = {"memory": 1 / 8, "compute": 16 / 132, "link": 1}[one.kind]
        assert one.value == pytest.approx(share * of_whole[one.name])
        assert one.source.kind == "derived"
    with pytest.raises(UsageError):  # of unknown size
        pipeline.analyze(recorded_on(tmp_path, device="cuda:0", device_name=f"{name} MIG 1g.10gb"), ceilings="spec")
