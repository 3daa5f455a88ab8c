"""``rooflines summary``, ``schema`` and a path as the first argument."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests import commands
from tests.commands import quick

TRACES = Path(__file__).parents[1] / "data" / "traces"

BERT = TRACES / "bert-small_h100_inference.json.gz"
RANKS = TRACES / "dlrm_8ranks"


def run(*arguments):
    return commands.run(*arguments, cwd=TRACES)


def schema(name):
    return json.loads(run("schema", name).out)


@pytest.mark.parametrize(
    "sources", [(BERT,), (RANKS,), (BERT, "--against", BERT), (BERT, "--question", "idle")], ids=lambda value: str(len(value))
)
def test_a_summary_fits_its_schema(sources):
    answer = run("summary", *sources, "--format", "json")
    assert answer.code == 0, answer.err
    jsonschema.validate(json.loads(answer.out), schema("summary"))


@pytest.mark.parametrize(
    ("command", "name"), [(("analyze", BERT), "analysis"), (("analyze", RANKS), "ranks"), (("compare", BERT, BERT), "comparison")]
)
def test_a_record_fits_its_schema(command, name):
    answer = run(*command, "--format", "json")
    assert answer.code == 0, answer.err
    jsonschema.validate(json.loads(answer.out), schema(name))


def test_the_command_of_a_statement_prints_its_figures():
    statements = json.loads(run("summary", BERT, "--format", "json").out)["statements"]
    checked = next(one for one in statements if one["about"] == "step")
    words = checked["verify"].split()
    printed = json.loads(run(*words[1:]).out)
    assert {f"/bound_breakdown/{name}": value for name, value in printed.items()} == checked["figures"]


def test_a_small_budget_leaves_the_verdict():
    answer = run("summary", BERT, "--budget", "5")
    assert answer.code == 0
    assert "Host-bound" in answer.out
    assert "statements are left out (--budget)." in answer.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "few"), "--budget 'few' is not a number of tokens or lines."),
        (("--question", "why"), "unknown question 'why'."),
        (("--against", BERT, "--question", "idle"), "a question needs one run or trace"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_line(arguments, message):
    answer = run("summary", BERT, *arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]


def test_a_path_as_the_first_argument_is_analyzed():
    assert run(BERT).out == run("analyze", BERT).out


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


def test_a_sweep_is_summarized_and_no_command_is_named_that_does_not_print_it(tmp_path):
    (tmp_path / "model.py").write_text(
        "import torch\ndef small(batch_size):\n    return torch.nn.Linear(64, 64), torch.randn(batch_size, 64)\n"
    )
    options = ("--batch-size", "1,8", "--repeats", "1", "--threads", "1", "--formats", "json", "-o", "swept", *quick(tmp_path)[:2])
    done = commands.run("sweep", "--model", "model.py:small", *options, cwd=tmp_path)
    assert done.code == 0, done.err
    # Each profile is made in a process of its own: kernels of later sessions of one process may be lost.
    first, second = commands.traced_processes(tmp_path / "swept")
    assert len(first) == len(second) == 1
    assert first != second
    answer = commands.run("summary", "swept", "--format", "json", cwd=tmp_path)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    jsonschema.validate(found, schema("summary"))
    assert found["of"] == "sweep"
    assert "batch" in found["verdict"]
    assert not any(statement["verify"] for statement in found["statements"])
