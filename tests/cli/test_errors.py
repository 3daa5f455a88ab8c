"""Errors name arguments in Python's words; the command line makes options of them."""

import ast
import pickle
import re
from pathlib import Path

import pytest
import typer

import rooflines
from rooflines.arguments import arg, as_options
from rooflines.cli.app import app, load
from rooflines.errors import UsageError

PACKAGE = Path(rooflines.__file__).parent
LIBRARY = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] != "cli"]


@pytest.mark.parametrize(("argument", "in_python", "on_the_command_line"), [
    (arg("steps"), "steps", "--steps"),
    (arg("batch_size", 8), "batch_size=8", "--batch-size 8"),
    (arg("precision", "amp-bf16"), "precision='amp-bf16'", "--precision amp-bf16"),
    (arg("ceilings", "my file.json"), "ceilings='my file.json'", "--ceilings 'my file.json'"),
    (arg("partial", True), "partial=True", "--partial"),
    (arg("duration_s", 60), "duration_s=60", "--duration 60"),
    (arg("memory_limit_bytes"), "memory_limit_bytes", "--memory-limit"),
])  # fmt: skip
def test_an_argument_is_spelled_for_its_reader(argument, in_python, on_the_command_line):
    error = UsageError(f"{argument} is wrong.", hint=f"Omit {argument}.")
    assert (error.message, error.hint) == (f"{in_python} is wrong.", f"Omit {in_python}.")
    assert str(error) == f"{in_python} is wrong. Omit {in_python}."
    assert [as_options(error.marked_message), as_options(error.marked_hint)] == [
        f"{on_the_command_line} is wrong.",
        f"Omit {on_the_command_line}.",
    ]
    assert pickle.loads(pickle.dumps(error)).marked_hint == error.marked_hint


def calls(name):
    """The first arguments of all calls of ``name`` in the library."""
    for path in LIBRARY:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


@pytest.mark.ci
def test_arguments_are_options_in_commands_only():
    # Every argument in an error is an option.
    load([])
    commands = list(typer.main.get_command(app).commands.values())
    for command in commands:
        commands += getattr(command, "commands", {}).values()
    options = {spelled for command in commands for parameter in command.params for spelled in parameter.opts}
    named = set(calls("arg"))
    assert len(named) > 20
    assert {name for name in named if as_options(arg(name)) not in options} == set()
    # No error of the library names an option.
    found = []
    for path in LIBRARY:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise):
                texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
                # A whole command (rooflines devices --remove NAME) is the same from Python.
                found += [(path.name, text) for text in texts if re.search(r"--[a-z]", text) and "rooflines " not in text]
    assert found == []
