"""``rooflines summary``, ``schema`` and a path as the first argument."""

import itertools
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest

import rooflines
from rooflines.cli.schema import HOMES
from rooflines.serial import part
from rooflines.sweeps.records import RESULT_FILE, SWEEP_FILE, PointResult, Sweep, SweepPoint
from rooflines.sweeps.results import round_directory
from rooflines.sweeps.run import write_record
from tests import commands

TRACES = Path(__file__).parents[1] / "data" / "traces"

BERT = TRACES / "bert-small_h100_inference.json.gz"
RANKS = TRACES / "dlrm_8ranks"
DDP = tuple(TRACES / f"ddp_rank{number}.json.gz" for number in (0, 1))
GPU_RUN = TRACES.parent / "gpu_runs" / "resnet18-inference-compiled"


def run(*arguments):
    return commands.run(*arguments, cwd=TRACES)


def schema(name):
    return json.loads(run("schema", name).out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a run, a monitored program and a sweep of which one point failed and one has not run."""
    folder = tmp_path_factory.mktemp("records")
    shutil.copytree(GPU_RUN, folder / "run")
    assert commands.run("monitor", "-o", "monitored", "--", sys.executable, "-c", "pass", cwd=folder).code == 0
    points = tuple(
        SweepPoint(id=f"b{size}", label=f"batch {size}", options={"model": "m", "batch_size": size}) for size in (1, 2, 4, 8)
    )
    write_record(folder / "swept" / SWEEP_FILE, Sweep(name="m", repeats=3, points=points))
    for point, number in itertools.product(points[:2], range(3)):
        values = {"step_s": 1e-3 + 1e-5 * number, "samples_per_s": point.options["batch_size"] / 1e-3}
        result = PointResult(point=point.id, round=number, values=values, facts={"limited_by": "host"})
        write_record(round_directory(folder / "swept", point, number) / RESULT_FILE, result)
    write_record(
        round_directory(folder / "swept", points[2], 0) / RESULT_FILE, PointResult(point="b4", round=0, reason="out of memory")
    )
    return folder


QUESTIONS = ("operators", "memory", "communication", "idle", "host", "kernel gemm", "module BertLMHeadModel_0")
SOURCES = {
    "run": ("run",), "trace": (BERT,), "ranks": (RANKS,), "comparison": (DDP[1], "--against", DDP[0]), "monitored": ("monitored",),
    "sweep": ("swept",),
}  # fmt: skip
# What prints a record as JSON.
OUTPUTS = {
    "analysis": [("analyze", "run"), ("analyze", BERT)],
    "ranks": [("analyze", RANKS)],
    "comparison": [("compare", *DDP, "--anyway")],
    "monitor": [("analyze", "monitored")],
    "sweep": [("analyze", "swept")],
    "prediction": [
        ("predict", "resnet18", "--mode", "training", "--device", "NVIDIA H200", "--device", "Tesla T4", "--precision", "bf16"),
        ("predict", "hf:gpt2", "--mode", "generate", "--device", "NVIDIA H200", "--like", "public", "--layout", "2"),
    ],
    "whatif": [("whatif", BERT, "--no-gaps", "--at-bound", "matmul")],
    "summary": [("summary", *source) for source in SOURCES.values()] + [("summary", BERT, "--question", one) for one in QUESTIONS],
}


def closed(part):
    """A schema that knows no fields but its own."""
    if isinstance(part, dict):
        part = {name: closed(value) for name, value in part.items()}
        return {"additionalProperties": False, **part} if "properties" in part else part
    return [closed(value) for value in part] if isinstance(part, list) else part


@pytest.mark.ci
@pytest.mark.parametrize("name", HOMES)
def test_every_json_fits_its_published_schema(name, folder):
    published = closed(schema(name))
    for command in OUTPUTS[name]:
        answer = commands.run(*command, "--format", "json", cwd=folder)
        assert answer.code == 0, answer.err
        record = json.loads(answer.out)
        jsonschema.validate(record, published)
    newer = record | {"schema": f"{record['schema']}0"}
    with pytest.raises(jsonschema.ValidationError, match="was expected"):
        jsonschema.validate(newer, published)


@pytest.mark.ci
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_commands_of_a_summary_print_its_figures(source, folder):
    statements = json.loads(commands.run("summary", *source, "--format", "json", cwd=folder).out)["statements"]
    printing = {statement["verify"].partition(" --at ")[0] for statement in statements}
    assert len(printing) == 1
    words = shlex.split(printing.pop())[1:]
    record = json.loads(commands.run(*words, cwd=folder).out)
    pointed = [statement for statement in statements if statement["figures"]]
    assert pointed
    for statement in pointed:
        assert all(part(record, pointer) == value for pointer, value in statement["figures"].items())
        part(record, shlex.split(statement["verify"])[-1])
    at = shlex.split(pointed[-1]["verify"])[-1]
    assert json.loads(commands.run(*words, "--at", at, cwd=folder).out) == part(record, at)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "few"), "--budget 'few' is not a number of tokens or lines."),
        (("--question", "why"), "unknown question 'why'."),
        (("--against", BERT, "--question", "idle"), "a question needs one run or trace"),
        (("--against", BERT, "--capture", "graphs"), "--capture cannot be used with --against."),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_line(arguments, message):
    answer = run("summary", BERT, *arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]


@pytest.mark.ci
def test_a_path_as_the_first_argument_is_analyzed():
    assert run(BERT).out == run("analyze", BERT).out


@pytest.mark.ci
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "json", "--at", "/totals/none"), "there is no 'none' in flops"),
        (("--format", "json", "--at", "/operators/900"), "there is no '900' in a list of"),
        (("--at", "/totals"), "--at is a part of the JSON that is printed."),
    ],
)
def test_a_pointer_that_names_nothing(arguments, message):
    answer = run("analyze", BERT, *arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]


def test_a_sweep_is_summarized_the_fastest_point_first(folder):
    found = json.loads(commands.run("summary", "swept", "--format", "json", cwd=folder).out)
    assert found["verdict"].startswith("Highest throughput: batch 2")
    assert [one["text"].partition(":")[0] for one in found["statements"] if one["about"] == "point"] == [
        f"batch {size}" for size in (2, 1, 4, 8)
    ]


@pytest.mark.ci
def test_a_corrupt_result_is_named(folder, tmp_path):
    shutil.copytree(folder / "swept", tmp_path / "swept")
    (tmp_path / "swept" / "points" / "b1" / "round-0" / RESULT_FILE).write_text("{")
    answer = commands.run("summary", "swept", cwd=tmp_path)
    assert answer.code == 2
    assert "result.json' is corrupt" in answer.complaint[0]


@pytest.mark.ci
@pytest.mark.parametrize("format", ["md", "json"])
@pytest.mark.parametrize("budget", [400, 800, 2000])
def test_a_budget_is_that_of_what_is_printed(format, budget):
    assert len(run("summary", BERT, "--format", format, "--budget", budget).out) <= 4 * budget


@pytest.mark.ci
def test_a_statement_is_checked_without_writing_into_the_run(tmp_path):
    shutil.copytree(GPU_RUN, tmp_path / "run")
    assert commands.run("analyze", "run", "--format", "json", "--at", "/totals", cwd=tmp_path).code == 0
    assert not (tmp_path / "run" / "analysis.json").exists()


# What stands for something else in the commands of SKILL.md.
MEANT = {
    "SOURCE": BERT, "RUN": "run", "TRACES_FOLDER": RANKS, "AFTER": DDP[1], "BEFORE": DDP[0], "MODEL": "resnet18",
    "kernel NAME": "kernel gemm",
}  # fmt: skip
COMMANDS = [
    tuple(MEANT.get(word, word) for word in shlex.split(line)[1:])
    for line in re.findall("`(rooflines [^`]+)`", (Path(rooflines.__file__).parent / "SKILL.md").read_text())
]


@pytest.mark.ci
@pytest.mark.parametrize("command", [one for one in COMMANDS if one[0] != "profile"], ids=lambda one: " ".join(map(str, one[::2])))
def test_the_commands_that_an_agent_is_told_run_as_printed(command, folder):
    answer = commands.run(*command, cwd=folder)
    assert answer.code == 0, answer.err
    assert answer.out


def test_a_report_of_a_run_stands_for_the_run(tmp_path):
    shutil.copytree(GPU_RUN, tmp_path / "run")
    report = tmp_path / "run" / "report.html"
    report.write_text("<p>")
    of_run, of_report = (json.loads(run("summary", source, "--format", "json").out) for source in (report.parent, report))
    assert [one["text"] for one in of_report["statements"]] == [one["text"] for one in of_run["statements"]]


def test_the_instructions_for_agents_are_printed():
    assert run("skill").out == (Path(rooflines.__file__).parent / "SKILL.md").read_text()


def test_the_plugin_manifest_names_the_skill_the_tools_and_this_version():
    root = Path(rooflines.__file__).parents[1]
    manifest = json.loads((root / ".claude-plugin" / "plugin.json").read_text())
    assert manifest["version"] == rooflines.__version__
    assert [(root / folder / "SKILL.md").is_file() for folder in manifest["skills"]] == [True]
    (server,) = manifest["mcpServers"].values()
    assert (server["command"], server["args"][0]) == ("rooflines", "mcp")
