"""What strangers put into a trace, in every output: names cannot become code, and what is no name of an operator, module, kernel or
device is in none of them."""

import csv
import gzip
import io
import json
import re
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import pytest

from rooflines import pipeline
from rooflines.reports.page import run as view
from tests.commands import call
from tests.printing import HtmlPage, curves, in_terminal, pdf_text, unpacked
from tests.traces import add, allocation, kernel, launch, mm, op, span

NAMES = (
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", '=HYPERLINK("http://x","y")',
    "+1+1", "-2+3", "@SUM(1)", "\t=1+1", "\uff1d1+1", " =1+1", "\x1b[31mred\x1b]0;title\x07", "\x9b31m", "two\nlines\r\nand three",
    "nul\x00nul",
    '#read("/etc/passwd")', "$ x^2 $ *bold* _it_ `raw` #eval(\"1\")", "{{ 7*7 }}{% for x in y %}", "\u202egnp.exe", "[red]rich[/red]",
    "| a | b |", "[link](javascript:alert(1))", "\ud800half", "\\u003cscript\\u003e", "${7*7}", "%(x)s {0}", "'; DROP TABLE x; --",
)  # fmt: skip
SECRET = "hf_sEcReTtOkEn"


def _declared(name: str) -> str:
    return f"rooflines.work: name={quote(name.encode(errors='replace'))}&matrix_flops=4000000&bytes_read=4096&precision=fp32"


def _hostile() -> dict[str, Any]:
    """Every name as an operator with work, an operator without, a module, a kernel and a step; some as a device."""
    events = [span(f"ProfilerStep#{NAMES[0]}", 0, 1e6)]
    for i, name in enumerate(NAMES):
        at = 10 + 100 * i
        events += [
            span(f"nn.Module: {name} (Kind{name})", at, 90), op(name, at + 1, 20), launch(at + 2, 1, 3 * i + 1),
            kernel(name, at + 3, 4, 3 * i + 1), span(_declared(name), at + 25, 20), launch(at + 26, 1, 3 * i + 2),
            kernel(f"work {name}", at + 27, 7, 3 * i + 2), launch(at + 60, 1, 3 * i + 3), kernel(f"{name} alone", at + 61, 4,
            3 * i + 3),
            mm(at + 70, 5, 64, 64, 64),
        ]  # fmt: skip
    return {"deviceProperties": [{"id": 0, "name": f"NVIDIA {NAMES[0]} {NAMES[10]}"}], "traceEvents": events}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("untrusted") / "trace.json"
    path.write_text(json.dumps(_hostile()))
    return path


@pytest.fixture(scope="module")
def written(trace):
    """The reports of the hostile trace by format."""
    return pipeline.report(trace, output=trace.parent / "reports")


@pytest.fixture(scope="module")
def page(written):
    return HtmlPage(written["html"].read_text(encoding="utf-8"))


def programs(page: HtmlPage) -> set[str]:
    """The scripts of a page that run."""
    kinds = [attrs.get("type") for tag, attrs in page.elements if tag == "script"]
    return {text.strip() for text, kind in zip(page.scripts, kinds, strict=True) if kind is None}


def test_the_page_has_no_script_or_handler_but_its_own(page, tmp_path):
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps([mm(0, 5, 64, 64, 64), launch(1, 1, 1), kernel("gemm", 2, 9, 1)]))
    ours = HtmlPage(pipeline.report(plain, ["html"], output=tmp_path / "plain")["html"].read_text(encoding="utf-8"))
    # Only a page with modules has the script of the icicle.
    icicle = (files("rooflines.reports.render") / "templates" / "icicle.js").read_text("utf-8")
    assert {text.partition(icicle[:40])[0].strip() for text in programs(page)} == programs(ours)
    # Rows, advice and marks that the small trace has not.
    more = {"td", "tr", "details", "summary", "span", "b", "ol", "circle", "noscript", "button"}
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in ours.elements} | more
    attributes = [(name, value or "") for _, attrs in page.elements for name, value in attrs.items()]
    assert not [name for name, _ in attributes if name.startswith("on")]
    assert not [value for name, value in attributes if name in ("href", "src", "action") and "script" in value]


def test_names_are_text_and_data_is_json_on_the_page(page, written):
    # The page shows names as text.
    text = page.text
    for name in (NAMES[0], NAMES[2], NAMES[16]):
        assert name in text
    # The data in the page cannot end its element.
    kinds = [attrs.get("type") for tag, attrs in page.elements if tag == "script"]
    data = [text for text, kind in zip(page.scripts, kinds, strict=True) if kind == "application/json"]
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", text) for text in data)
    assert any(NAMES[0] in strings for strings in (json.dumps(unpacked(text), ensure_ascii=False) for text in data))
    # No control or direction character reaches the page.
    text = written["html"].read_text(encoding="utf-8")
    assert not {"\x00", "\x1b", "\x9b", "\x07", "\u202e"} & set(text)


def test_the_pdf_is_set(written):
    content = written["pdf"].read_bytes()
    assert content.startswith(b"%PDF")
    assert "root:" not in pdf_text(written["pdf"])
    assert "/JavaScript" not in content.decode("latin-1")
    assert "/Launch" not in content.decode("latin-1")


@pytest.mark.parametrize("name", ["operators", "modules", "steps"])
def test_a_spreadsheet_runs_no_cell(written, name):
    rows = list(csv.DictReader(io.StringIO(written["csv"].with_name(f"{name}.csv").read_text(encoding="utf-8"), newline="")))
    assert rows or name == "steps"
    for row in rows:
        for column, cell in row.items():
            if cell and (cell[0] in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20" or cell.lstrip()[:1] in tuple("=+-@")):
                float(cell)  # a number may begin with a sign
            assert None not in (column, cell), "a name has ended its row"
            assert not {"\x00", "\x1b"} & set(cell)
    assert all(float(row["time_s"]) >= 0 for row in rows)


def test_tensorboard_text_is_no_markup(written):
    events = curves(written["tensorboard"].parent, size_guidance={"tensors": 0})
    texts = [
        value.decode(errors="replace")
        for tag in events.Tags()["tensors"]
        if events.summary_metadata[tag].plugin_data.plugin_name == "text"
        for event in events.Tensors(tag)
        for value in event.tensor_proto.string_val
    ]
    assert texts
    for text in texts:
        assert "<script" not in text
        assert "<img" not in text
        assert "\x1b" not in text


def test_the_terminal_gets_no_control_code(trace):
    analysis = pipeline.analyze_source(trace).analysis
    for width in (60, 160):
        assert not {"\x1b", "\x9b", "\x07", "\x00", "\r", "\u202e"} & set(in_terminal(view.page(analysis), width))


def test_the_analysis_is_json_with_the_names_as_they_are_but_for_control_characters(written):
    analysis = json.loads(written["analysis"].read_text(encoding="utf-8"))
    names = {row["name"] for row in analysis["operators"]} | {row["name"] for row in analysis["coverage"]["unmodeled"]}
    assert {name for name in NAMES if name.isprintable()} <= names
    assert "two\ufffdlines\ufffd\ufffdand three" in names
    assert "control characters in names were replaced" in analysis["notes"]


# --- secrets -------------------------------------------------------------------------------------------------------------------------


def _with_secrets() -> dict[str, Any]:
    """A trace with a token wherever a profiler, a launcher or a cluster writes down something of its own."""
    hidden = {"Call stack": f"/home/{SECRET}/train.py(3): main", "Ev Idx": SECRET, "External id": SECRET, "env": {"HF_TOKEN": SECRET},
              "Module Hierarchy": f"/home/{SECRET}", "Python parent id": SECRET, "Trace name": SECRET, SECRET: SECRET}  # fmt: skip
    events = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": f"python /home/{SECRET}/train.py"}},
        {"ph": "M", "name": "process_labels", "pid": 7, "tid": 0, "ts": 0, "args": {"labels": SECRET}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "ts": 0, "args": {"name": SECRET}},
        {"ph": "X", "cat": "Trace", "name": f"PyTorch Profiler ({SECRET})", "pid": "Spans", "tid": SECRET, "ts": 0, "dur": 99,
        "args": hidden},
        {"ph": "X", "cat": "python_function", "name": f"/home/{SECRET}/train.py(3): main", "pid": 7, "tid": 1, "ts": 0, "dur": 90,
         "args": hidden},
        {"ph": "X", "cat": "overhead", "name": SECRET, "pid": 7, "tid": 1, "ts": 0, "dur": 90, "args": hidden},
        {"ph": "i", "cat": "x", "name": f"Record Window End {SECRET}", "pid": SECRET, "tid": SECRET, "ts": 99, "s": "g"},
        {"ph": "s", "cat": SECRET, "name": SECRET, "pid": 7, "tid": 1, "ts": 5, "id": SECRET},
        *(span("ProfilerStep#1", 0, 100), mm(1, 10, 64, 64, 64), launch(2, 3, 1), kernel("gemm", 5, 20, 1), add(40, 5)),
        *(launch(41, 1, 2), kernel("elementwise", 45, 6, 2), allocation(41, 4000)),
    ]  # fmt: skip
    for event in events[-6:]:
        event["args"] |= hidden
        event["id"] = event["bp"] = event["sf"] = event["stack"] = SECRET
    fields = ("env", "environment", "trace_id", "user", "hostname", "displayTimeUnit", "command", "argv", "WANDB_API_KEY", "tags")
    return {
        **{field: {"token": SECRET} if field.startswith("env") else SECRET for field in fields},
        "traceName": f"/home/{SECRET}/run/trace.json",
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85 * 10**9, "computeMajor": 9,
        "computeMinor": 0,
                              "numSms": 132, "uuid": SECRET, "serial": SECRET, SECRET: SECRET}],
        "distributedInfo": {"rank": 0, "world_size": 1, "backend": "nccl", "master_addr": SECRET, "pg_config": [{"pg_desc": SECRET}]},
        "traceEvents": events,
        "with_stack": SECRET, "record_shapes": SECRET, "baseTimeNanoseconds": SECRET, "host": {"name": SECRET}, "SLURM": [SECRET],
    }  # fmt: skip


def test_what_the_metadata_hides_is_in_no_output(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(_with_secrets()))
    written = pipeline.report(path, output=tmp_path / "reports")
    analysis = pipeline.analyze_source(path).analysis
    assert {row.name for row in analysis.operators} == {"aten::mm", "aten::add"}
    token = SECRET.encode()
    files = [file for file in (tmp_path / "reports").rglob("*") if file.is_file()]
    assert len(files) >= len(written) >= 5
    assert not [file.name for file in files if token in file.read_bytes()]
    assert SECRET not in in_terminal(view.page(analysis), 160)
    assert SECRET not in pdf_text(written["pdf"])


def test_a_refusal_does_not_quote_the_metadata(tmp_path):
    from rooflines.errors import TraceError
    from tests.traces import parse_trace

    whole = json.dumps(_with_secrets())
    for damaged in (
        whole[:-20],
        whole.replace('"gemm"', '"gemm'),
        whole.replace('"ph"', '"hp"'),
        whole.replace("traceEvents", "events"),
    ):
        with pytest.raises(TraceError) as refused:
            parse_trace(damaged.encode())
        assert SECRET not in str(refused.value)


# --- URLs ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "name"), [
    (f"https://h.org/b/t.json?X-Amz-Credential=A/{SECRET}&X-Amz-Signature={SECRET}", "https://h.org/b/t.json"),
    (f"https://me:{SECRET}@h.org:8443/b/t.json#{SECRET}", "https://h.org:8443/b/t.json"),
    (f"s3://me:{SECRET}#@{SECRET}@b/t@2.json", "s3://b/t@2.json"),
    (f"simplecache::https://{SECRET}@h.org/t.json?{SECRET}", "simplecache::https://h.org/t.json"),
    (f"zip://t.json::https://{SECRET}@h.org/a.zip?{SECRET}", "zip://t.json::https://h.org/a.zip"),
    ("runs/what?/a#b@c.json", "runs/what?/a#b@c.json"),
])  # fmt: skip
def test_of_a_url_only_the_place_is_shown(source, name):
    from rooflines.profiler.read.sources import shown, shown_reason

    assert shown(source) == name
    assert shown_reason(f"403, url='{source}'", source) == f"403, url='{name}'"


def test_a_library_s_reason_may_quote_a_url_in_parts_or_encoded_anew():
    from rooflines.profiler.read.sources import shown_reason

    source = f"https://h.org/t.json?key={SECRET}/+"
    for reason, says in (
        (f"Does it exist? no: /t.json?key={SECRET}", "Does it exist? no: /t.json"),
        (f'403 "https://h.org/t.json?key={SECRET}%2F%2B" now', '403 "https://h.org/t.json" now'),
    ):
        assert shown_reason(reason, source) == says


@pytest.fixture
def behind_a_url():
    """Puts a trace into fsspec's memory and returns a URL of it that holds a credential, as presigned ones do."""
    import fsspec

    memory = fsspec.filesystem("memory")

    def put(name: str, content: bytes) -> str:
        url = f"memory://secrets/{name}?X-Amz-Credential=me/1&X-Amz-Signature={SECRET}"
        memory.pipe(url.removeprefix("memory:/"), content)
        return url

    yield put
    memory.rm("/secrets", recursive=True)


def test_credentials_in_a_url_are_in_no_output(behind_a_url, tmp_path, capsys, monkeypatch):
    url = behind_a_url("t.json", json.dumps({"traceEvents": [mm(0, 5, 64, 64, 64)]}).encode())
    assert call(capsys, monkeypatch, "report", url, "-o", tmp_path / "reports").code == 0
    files = [file for file in (tmp_path / "reports").rglob("*") if file.is_file()]
    assert len(files) >= 5
    assert not [file.name for file in files if SECRET.encode() in file.read_bytes()]
    analysis = json.loads((tmp_path / "reports" / "analysis.json").read_text())
    assert analysis["workload"]["name"] == "t.json"
    assert analysis["command"].startswith("rooflines report memory://secrets/t.json -o ")
    for answer in (
        call(capsys, monkeypatch, "analyze", url, "--format", "json"),
        call(capsys, monkeypatch, "compare", url, url, "--format", "json"),
    ):
        assert (answer.code, "memory://secrets/t.json" in answer.out) == (0, True)
        assert SECRET not in answer.out + answer.err


def test_credentials_in_the_urls_of_ranks_are_in_no_output(behind_a_url, tmp_path, capsys, monkeypatch):
    events = json.dumps({"traceEvents": [launch(0, 1, 1), kernel("ncclDevKernel_AllReduce", 2, 3, 1)]}).encode()
    urls = [behind_a_url(f"rank{rank}.json", events) for rank in range(2)]
    assert call(capsys, monkeypatch, "report", *urls, "-o", tmp_path, "--jobs", "1").code == 0
    assert [row["source"] for row in json.loads((tmp_path / "ranks.json").read_text())["ranks"]] == ["rank0.json", "rank1.json"]
    assert not [file.name for file in tmp_path.iterdir() if SECRET.encode() in file.read_bytes()]
    again = call(capsys, monkeypatch, "analyze", urls[0], urls[0], "--jobs", "1")
    assert "two traces belong to rank 0: 'memory://secrets/rank0.json' and" in again.err
    assert SECRET not in again.err


def test_credentials_in_a_url_are_in_no_refusal(behind_a_url, capsys, monkeypatch):
    whole = json.dumps({"traceEvents": [mm(0, 5, 64, 64, 64)]}).encode()
    urls = [behind_a_url(f"{number}.json", content) for number, content in enumerate(
        (b"", b"[]", b"{}", whole[:-9], b"PK\x03\x04", gzip.compress(whole)[:40], b"\x28\xb5\x2f\xfd\xff", b'[{"ph": "M"}]')
    )]  # fmt: skip
    urls += [f"memory://secrets/none.json?{SECRET}", f"none://me:{SECRET}@host/t.json", f"memory://secrets/*none?{SECRET}",
             f"none://me:{SECRET}@host/*"]  # fmt: skip
    for url in urls:
        for sources in ([url], [url, url, "--jobs", "1"]):
            answer = call(capsys, monkeypatch, "analyze", *sources)
            assert (answer.code, len(answer.complaint)) in ((2, 1), (2, 2)), answer.err
            assert SECRET not in answer.out + answer.err
            assert "://" in answer.err, "it does not say which"
