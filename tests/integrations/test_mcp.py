"""``rooflines mcp`` with the official client: five tools over stdio, and nothing outside the folders given."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

from tests import commands
from tests.commands import environment

TRACES = Path(__file__).parents[1] / "data" / "traces"

mcp = pytest.importorskip("mcp")
BERT = TRACES / "bert-small_h100_inference.json.gz"


def run(*arguments):
    return commands.run(*arguments, cwd=TRACES)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Calls tools of a server that was given one folder; returns whether each failed, and its text."""
    folder = tmp_path_factory.mktemp("traces")
    shutil.copy(BERT, folder)
    (folder / "link.json.gz").symlink_to(BERT)
    (folder / "links").mkdir()
    (folder / "links" / "rank0.json.gz").symlink_to(BERT)
    (folder / "local").write_text("{}")
    command = ["-m", "rooflines", "mcp", str(folder)]
    server = mcp.StdioServerParameters(command=sys.executable, args=command, env=environment(), cwd=folder)

    async def session(calls):
        async with mcp.stdio_client(server) as (read, write), mcp.ClientSession(read, write) as client:
            await client.initialize()
            names = [tool.name for tool in (await client.list_tools()).tools]
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
        return names, [(bool(result.is_error), result.content[0].text) for result in results]

    return folder, lambda *calls: asyncio.run(session(calls))


@pytest.mark.ci
def test_six_tools_answer_with_the_json_of_the_commands(ask):
    folder, call = ask
    trace = str(folder / BERT.name)
    names, answers = call(
        ("summary", {"source": trace, "question": "idle"}),
        ("analyze", {"source": trace, "at": "/totals"}),
        ("compare", {"before": trace, "after": trace}),
        ("count", {"model": "resnet18"}),
        ("devices", {"name": "A100"}),
        ("predict", {"model": "resnet18", "device": "H200 SXM5"}),
    )
    assert sorted(names) == ["analyze", "compare", "count", "devices", "predict", "summary"]
    assert [failed for failed, _ in answers] == [False] * 6
    texts = [json.loads(text) for _, text in answers]
    assert texts[0]["question"] == "idle"
    assert texts[1] == json.loads(run("analyze", trace, "--format", "json", "--at", "/totals").out)
    assert texts[2]["of"] == "comparison"
    assert texts[3]["flops"] > 3e9
    assert all("A100" in sheet["name"] for sheet in texts[4])
    assert texts[5]["units_per_s"] == pytest.approx(1 / texts[5]["lower_bound_s"])


@pytest.mark.ci
def test_paths_outside_the_folders_are_refused(ask):
    folder, call = ask
    outside = (
        *(BERT, folder / ".." / BERT.name, folder / "link.json.gz", folder / "links", folder / "l*" / "*.gz"),
        *("https://example.org/t.json", "/etc/passwd"),
    )
    models = (f"{folder}/net.py:make", "hf:local")
    calls = [("summary", {"source": str(source)}) for source in outside] + [("count", {"model": model}) for model in models]
    calls.append(("predict", {"model": "resnet18", "device": "/etc/passwd"}))
    _, answers = call(*calls)
    for failed, text in answers:
        assert failed
        assert "nothing was read" in text


@pytest.mark.ci
def test_a_name_is_one_of_the_folder_and_an_unknown_one_is_answered_with_those_there_are(tmp_path):
    from mcp.server.mcpserver.exceptions import ToolError

    from rooflines.integrations.mcp_server import make_server

    shutil.copy(BERT, tmp_path / "bert.json.gz")
    (tmp_path / "notes.txt").write_text("")
    server = make_server([tmp_path])
    (answer,) = asyncio.run(server.call_tool("analyze", {"source": "bert.json.gz", "at": "/workload/mode"})).content
    assert json.loads(answer.text) == "inference"
    with pytest.raises(ToolError, match=r"There are: bert\.json\.gz\.$"):
        asyncio.run(server.call_tool("analyze", {"source": "gpt.json.gz"}))


@pytest.mark.ci
def test_an_argument_is_no_option(ask):
    folder, call = ask
    _, ((failed, _),) = call(("devices", {"name": "--output=written.json"}))
    assert failed
    assert not (folder / "written.json").exists()


@pytest.mark.ci
def test_an_error_is_the_sentence_of_the_command(ask):
    folder, call = ask
    _, ((failed, text),) = call(("analyze", {"source": str(folder / BERT.name), "at": "/nothing"}))
    assert failed
    assert "there is no 'nothing'" in text
