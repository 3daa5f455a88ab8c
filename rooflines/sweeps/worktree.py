"""Two versions of a git repository as folders: a commit in a temporary worktree, and the working tree."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rooflines.arguments import arg
from rooflines.errors import UsageError


class Tree(NamedTuple):
    """A version: its ``name`` in reports, its top folder, and the ``folder`` that commands run in."""

    name: str
    top: Path
    folder: Path

    def variables(self, working: Tree) -> dict[str, str]:
        """The variables of a process that imports from this version what is imported from the ``working``
        tree here.

        An editable install would find the working tree.
        """
        paths = [
            working.top,
            working.top / "src",
            *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))),
        ]
        ours = [
            self.top / path.relative_to(working.top) if path.is_relative_to(working.top) else path
            for path in paths
        ]
        return {"PYTHONPATH": os.pathsep.join(str(path) for path in ours if path.exists())}


@contextlib.contextmanager
def worktrees(ref: str) -> Iterator[tuple[Tree, Tree]]:
    """Check out the commit ``ref`` for the length of the block; yields it and the working tree.

    Raises UsageError outside of a repository, for an unknown ``ref``, and for a commit without the current
    folder.
    """
    here = Path.cwd().resolve()
    top = Path(
        _git("rev-parse", "--show-toplevel", refused=f"{arg('against')} requires a git repository")
    ).resolve()
    hint = f"Fetch it first: git fetch origin {ref}. In GitHub Actions: actions/checkout with fetch-depth: 0."
    commit = _git(
        "rev-parse",
        "--verify",
        "--short",
        f"{ref}^{{commit}}",
        refused=f"no commit {ref!r} in this repository",
        hint=hint,
    )
    head = _git("rev-parse", "--short", "HEAD", refused="the repository has no commit")
    changes = _git(
        "status",
        "--porcelain",
        "--untracked-files=no",
        refused="git cannot compare the working tree with its commit",
    )
    place = Path(tempfile.mkdtemp(prefix="rooflines-")).resolve()
    copy = place / top.name
    try:
        # A hook of the repository may do anything, such as installing the version.
        command = ("-c", f"core.hooksPath={os.devnull}", "worktree", "add", "--detach", str(copy), commit)
        _git(*command, refused=f"git cannot check out {ref!r}")
        baseline = Tree(f"{ref} ({commit})" if ref != commit else ref, copy, copy / here.relative_to(top))
        if not baseline.folder.is_dir():
            raise UsageError(
                f"the folder {str(here.relative_to(top))!r} does not exist at {ref!r}.",
                hint="Choose another commit.",
            )
        yield (
            baseline,
            Tree(f"working tree ({head}{', with uncommitted changes' if changes else ''})", top, here),
        )
    finally:
        # Twice: a worktree is locked until it is complete.
        with contextlib.suppress(UsageError):
            _git("worktree", "remove", "--force", "--force", str(copy), refused="", folder=top)
        shutil.rmtree(place, ignore_errors=True)


def check_scripts(arguments: Sequence[str], baseline: Tree, working: Tree) -> None:
    """Raise UsageError for a script or factory among ``arguments`` that the ``baseline`` does not have."""
    for argument in arguments[: arguments.index("--")] if "--" in arguments else arguments:
        if (found := re.fullmatch(r"(?:--\w+=)?(.+\.py)(?::\w+)?", argument)) is None:
            continue
        script = Path(found[1])
        if script.is_absolute() and script.resolve().is_relative_to(working.top):
            raise UsageError(
                f"{str(script)!r} is the same file for both versions.",
                hint="Give its path relative to this folder.",
            )
        if (working.folder / script).is_file() and not (baseline.folder / script).is_file():
            raise UsageError(
                f"{str(script)!r} does not exist at {baseline.name}.",
                hint="Choose a commit that contains it.",
            )


def _git(*arguments: str, refused: str, hint: str = "", folder: Path | None = None) -> str:
    """What git prints; raises UsageError that begins with ``refused``."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UsageError(f"{refused}: git is not installed.") from None
    if done.returncode:
        words = done.stderr.strip().rpartition("\n")[2].removeprefix("fatal: ").rstrip(".")
        raise UsageError(f"{refused}: {words}." if words else f"{refused}.", hint=hint)
    return done.stdout.strip()
