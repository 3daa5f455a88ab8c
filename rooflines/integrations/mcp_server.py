"""The tools of ``rooflines mcp``: six commands whose JSON a program gets over the Model Context Protocol
(stdio).

Each call runs the command in a process of its own, so its answer is that of the command line. Only paths in
the folders given at the start are read; links, also those below a path, are followed before they are
compared, and URLs and patterns are refused.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from rooflines._version import __version__
from rooflines.reports.words.sentences import listed

# A longer answer would fill the context of the model that reads it.
_LONGEST = 100_000
# Names that an error lists.
_LISTED = 20
_TIMEOUT_S = 600
_INSTRUCTIONS = (
    "Roofline analysis of PyTorch traces and recorded runs. Start with summary: every statement "
    "names the figures that it rests on and"
    " a command to check them. Ask a question for the next level of detail. Use analyze with a "
    "JSON pointer for exact figures."
)


def make_server(folders: Sequence[Path]) -> MCPServer:
    """The server, which reads files in ``folders`` only."""
    roots = [folder.resolve() for folder in folders]
    server = MCPServer("rooflines", instructions=_INSTRUCTIONS, version=__version__)

    def path(source: str) -> str:
        # A name is one of a folder, else of where the server runs.
        tried = [(folder / source).resolve() for folder in (*roots, Path())]
        found = next((one for one in tried if one.exists()), tried[-1])
        inside = all(any(place.is_relative_to(root) for root in roots) for place in (found, *_links(found)))
        # A pattern is not a path: what it finds was not looked at.
        if "://" in source or not inside or not found.exists():
            where = ", ".join(map(str, roots))
            raise ToolError(
                f"{source!r} is not in {where}, or has a link that leads out of it; nothing was read. "
                f"There are: {listed(_sources(roots), _LISTED) or 'no traces and no runs'}."
            )
        return str(found)

    def named(model: str) -> None:
        if ".py" in model or "/" in model or Path(model.rpartition(":")[2]).exists():
            raise ToolError("only models and devices by name are taken; nothing was read.")

    def summary(source: str, question: str = "", budget: int = 2000, changes: tuple[str, ...] = ()) -> str:
        """Verdict, what to change first and how sure it is, of a trace, a recorded run, a folder of ranks or
        a sweep, in at most ``budget`` tokens. ``question`` is empty or one of: operators, memory,
        communication, idle, host, lines, kernel NAME, module PATH. With ``changes``, what the step would take
        with them: no-gaps, no-waits, graphs, compile, precision=bf16, at-bound=NAME, without=NAME,
        scale=NAME=FACTOR, where NAME is an operator, a pattern or a category, with @MODULE."""
        asked = ["--question", question] if question else []
        asked += [part for change in changes for part in ("--whatif", change)]
        return run("summary", path(source), "--format", "json", "--budget", str(budget), *asked)

    def analyze(source: str, at: str = "/totals") -> str:
        """The analysis of a trace or run as JSON, or the part of it that the JSON pointer ``at`` names, for
        example /totals, /bound_breakdown, /operators/0 or /findings; rooflines schema describes the
        fields."""
        return run("analyze", path(source), "--format", "json", "--at", at)

    def compare(before: str, after: str) -> str:
        """What is slower and faster in ``after`` than in ``before`` (traces or runs), and what is within the
        noise."""
        return run("summary", path(after), "--against", path(before), "--format", "json")

    def count(model: str, batch_size: int = 1, mode: str = "inference") -> str:
        """FLOPs and bytes of a model of torchvision (resnet50), timm (timm:NAME) or transformers (hf:NAME),
        without running it."""
        named(model)
        return run(
            "count", "--model", model, "--batch-size", str(batch_size), "--mode", mode, "--format", "json"
        )

    def predict(model: str, device: str, batch_size: int = 1, precision: str = "bf16") -> str:
        """Least time of a step of a model of torchvision, timm or transformers on the device of a data sheet,
        without running it: by phase, with what sets it, the rate, and the largest batch that fits."""
        named(model)
        named(device)
        return run(
            "predict",
            "--model",
            model,
            "--device",
            device,
            "--batch-size",
            str(batch_size),
            "--precision",
            precision,
            "--format",
            "json",
            "--at",
            "/devices/0/steps/0",
        )

    def devices(name: str) -> str:
        """Data sheets of GPUs and CPUs by name or words from it: rates, bandwidth, memory, and the source of
        each figure."""
        return run("devices", "--format", "json", "--", name)

    for tool in (summary, analyze, compare, count, predict, devices):
        server.add_tool(tool)
    return server


def _sources(roots: Sequence[Path]) -> list[str]:
    """The names of traces and of directories in the folders."""
    entries = sorted(entry for root in roots if root.is_dir() for entry in root.iterdir())
    return [
        entry.name
        for entry in entries
        if not entry.name.startswith(".") and (entry.is_dir() or entry.name.endswith((".json", ".json.gz")))
    ]


def _links(directory: Path) -> Iterator[Path]:
    """Where the links below ``directory`` lead."""
    for folder, directories, files in os.walk(directory):
        yield from (
            path.resolve() for name in (*directories, *files) if (path := Path(folder, name)).is_symlink()
        )


def run(*command: str) -> str:
    """The output of a command of rooflines. Raises ToolError with its message, and for an answer that is too
    long."""
    done = subprocess.run(
        [sys.executable, "-m", "rooflines", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise ToolError(done.stderr.strip())
    if len(done.stdout) > _LONGEST:
        raise ToolError(
            f"the answer has {len(done.stdout):,} characters; ask for a part of it with a longer "
            "JSON pointer."
        )
    return done.stdout
