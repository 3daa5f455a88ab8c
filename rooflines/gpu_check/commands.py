"""Commands that parts run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def checkout() -> Path | None:
    """The root of the repository that this package runs from; None for an installed one."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "tests").is_dir() else None


def environment() -> dict[str, str]:
    """This process's environment, with the repository importable: a GPU machine may not have the package installed."""
    root = checkout()
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])] if root else []
    return {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def run_logged(
    command: Sequence[str],
    log: Path,
    *,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` with ``variables`` added to the environment.

    What it prints is in ``log`` while it runs, errors in a file next to it. Raises subprocess.TimeoutExpired
    after ``timeout_s`` seconds.
    """
    errors = log.with_name(f"{log.stem}.errors{log.suffix}")
    environ = {**environment(), **(variables or {})}
    with log.open("wb") as out, errors.open("wb") as err:
        done = subprocess.run(command, cwd=cwd, env=environ, stdout=out, stderr=err, timeout=timeout_s, check=False)
    said, complained = (path.read_text(errors="replace") for path in (log, errors))
    return subprocess.CompletedProcess(done.args, done.returncode, said, complained)


def rooflines_command(*arguments: str) -> list[str]:
    """``rooflines ARGUMENTS`` with this interpreter."""
    return [sys.executable, "-m", "rooflines", *arguments]
