# ruff: noqa: T201 (a command line prints)
"""``rooflines skill``: what an agent should know of the commands."""

from __future__ import annotations

from importlib.resources import files

from rooflines.cli.app import app


@app.command()
def skill() -> None:
    """Print instructions for agents: which command answers which question, and how to check an answer.

    [bold]rooflines skill > .claude/skills/rooflines/SKILL.md[/bold]
    """
    print(files("rooflines").joinpath("SKILL.md").read_text(encoding="utf-8"), end="")
