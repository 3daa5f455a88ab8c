"""``rooflines check --against``: a commit and the working tree run in turn, and nothing of it stays behind."""

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.commands import Answer, call, start, write_ceilings
from tests.processes import wait_until

# Imports a module from its own tree and adds that module's name to a file outside of both trees.
SCRIPT = """
import os, torch, version
with open(os.environ["ORDER"], "a") as file:
    print(version.NAME, os.getcwd(), file=file)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    model(torch.ones(version.BATCH, 8)).sum().backward()
    optimizer.step()
"""


def git(folder, *arguments):
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with the script in a folder; uncommitted changes double its batch and add a script. The order is in ``order``."""
    top = tmp_path / "repository"
    folder = top / "bench"
    folder.mkdir(parents=True)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("ORDER", str(tmp_path / "order"))
    (folder / "train.py").write_text(SCRIPT)
    # Where the package is installed from, its folder of sources is that of the version, too.
    (top / "src").mkdir()
    (top / "src" / "version.py").write_text("NAME, BATCH = 'old', 4\n")
    git(tmp_path, "init", "--initial-branch", "main", str(top))
    git(top, "add", ".")
    git(top, "commit", "--message", "old")
    (top / "src" / "version.py").write_text("NAME, BATCH = 'new', 8\n")
    (folder / "added.py").write_text(SCRIPT)
    monkeypatch.chdir(folder)
    return top


def is_clean(top):
    """Whether the repository has one tree, and the temporary directory none."""
    others = Path(os.environ["TMPDIR"]).glob("rooflines-*")
    return git(top, "worktree", "list", "--porcelain").count("worktree ") == 1 and not list(others)


@pytest.mark.ci
def test_both_versions_run_in_turn_from_their_trees(repository, tmp_path, capsys, monkeypatch):
    ceilings = write_ceilings(tmp_path)
    answer = call(
        capsys, monkeypatch, "check", "--against", "main", "--rounds", 3, "--runs", tmp_path / "kept", "--fail-above", 100000,
        "--format", "markdown", "--benchmark", tmp_path / "figures.json", "--", "train.py", "--ceilings", ceilings,
    )  # fmt: skip
    assert answer.code == 0
    names, folders = zip(*(line.split() for line in (tmp_path / "order").read_text().splitlines()), strict=True)
    assert names == ("old", "new", "new", "old", "old", "new")
    assert {folder for name, folder in zip(names, folders, strict=True) if name == "new"} == {str(repository / "bench")}
    (old,) = {folder for name, folder in zip(names, folders, strict=True) if name == "old"}
    assert old.endswith("repository/bench")
    assert not Path(old).exists()
    assert is_clean(repository)
    assert "version.py" in git(repository, "status", "--short"), "the uncommitted changes are still there"
    # The runs are kept, and each has its output.
    assert sorted(path.name for path in (tmp_path / "kept" / "round-3").iterdir()) == ["a", "a.log", "b", "b.log"]
    # The comment names both versions, the rounds and the command, and tells what no noise can hide.
    assert "working tree" in answer.out
    assert "with uncommitted changes" in answer.out
    assert "## Rounds" in answer.out
    assert "rooflines check --against main" in answer.out
    assert "FLOPs per step" in answer.out
    check_figures(json.loads((tmp_path / "figures.json").read_text()))


def check_figures(figures):
    """What github-action-benchmark reads of customSmallerIsBetter: https://github.com/benchmark-action/github-action-benchmark."""
    for one in figures:
        assert set(one) - {"range"} == {"name", "unit", "value", "extra"}
        assert isinstance(one["value"], float)
        assert all(isinstance(value, str) for name, value in one.items() if name != "value")
        assert one.get("range", "± 0.0").startswith("± ")
        assert float(one.get("range", "± 0.0")[2:]) >= 0
    assert len({one["name"] for one in figures}) == len(figures)
    assert [one["name"] for one in figures][:2] == ["train.py: step", "train.py: FLOPs per step"]
    assert [one["unit"] for one in figures][:3] == ["ms", "GFLOP", "ms"]


@pytest.mark.ci
def test_ctrl_c_leaves_no_worktree(repository, tmp_path):
    (repository / "bench" / "train.py").write_text("")
    git(repository, "commit", "--all", "--message", "newer")
    (repository / "bench" / "train.py").write_text(SCRIPT)
    process = start("check", "--against", "HEAD~1", "--", "train.py", "--ceilings", write_ceilings(tmp_path), cwd=repository / "bench")
    try:
        wait_until((tmp_path / "order").exists)
        assert not is_clean(repository)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    answer = Answer(process.returncode, out, err)
    assert answer.code == 130
    assert answer.complaint[0] == "rooflines: interrupted; nothing is compared."
    assert is_clean(repository)


@pytest.mark.ci
def test_what_cannot_be_checked_out_or_run_is_one_line(repository, tmp_path, capsys, monkeypatch):
    def complaint(*arguments):
        answer = call(capsys, monkeypatch, "check", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert is_clean(repository)
        return answer.complaint[0]

    assert complaint("--against", "nowhere", "train.py").startswith("rooflines: no commit 'nowhere' in this repository")
    assert complaint("--against", "main", "added.py").startswith("rooflines: 'added.py' does not exist at main (")
    script = repository / "bench" / "train.py"
    assert complaint("--against", "main", script) == f"rooflines: {str(script)!r} is the same file for both versions."
    assert "check chooses the directory" in complaint("--against", "main", "--", "train.py", "-o", "mine")
    assert "either --baseline or --against" in complaint("train.py")
    assert "--update cannot be combined with --against" in complaint("--against", "main", "--update", "train.py")
    assert "--rounds requires --against" in complaint("--baseline", "perf", "--rounds", "4", "train.py")
    # A folder that the commit does not have.
    (repository / "later").mkdir()
    monkeypatch.chdir(repository / "later")
    assert complaint("--against", "main", "train.py") == "rooflines: the folder 'later' does not exist at 'main'."
    # A script that fails. Nothing was recorded before.
    assert not list(repository.rglob("runs"))
    monkeypatch.chdir(repository / "bench")
    (repository / "src" / "version.py").unlink()
    git(repository, "commit", "--all", "--message", "without its module")
    said = complaint("--against", "HEAD", "--", "train.py", "--ceilings", write_ceilings(tmp_path))
    assert said.startswith("rooflines: HEAD (")
    assert "cannot be profiled" in said
    assert "version" in said
    monkeypatch.chdir(tmp_path)
    answer = call(capsys, monkeypatch, "check", "--against", "main", "train.py")
    assert answer.code == 2
    assert answer.complaint[0].startswith("rooflines: --against requires a git repository: not a git repository")
