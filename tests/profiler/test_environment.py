"""The facts of a run: each from where the system keeps it, absent where it does not."""

import os
import platform
import subprocess

import psutil
import pytest
import torch

from rooflines._version import __version__
from rooflines.errors import DeviceError
from rooflines.profiler.machine import environment
from rooflines.profiler.machine.environment import collect_environment, dotted_cudnn, git_commit, package_version
from rooflines.profiler.records import Environment
from rooflines.serial import from_plain, to_plain

# A commit needs an author; the machine that runs the tests may have none, or settings that sign every commit.
GIT = {
    **os.environ,
    **{f"GIT_{role}_{part}": "tester" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, env=GIT).stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The working directory: a repository with one commit of one file, and a tag that must not be mistaken for the commit."""
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    (tmp_path / "model.py").write_text("x = 1\n")
    git("add", "model.py")
    git("commit", "--quiet", "-m", "first")
    git("tag", "-a", "v1", "-m", "v1")
    return tmp_path


def test_facts_of_this_machine_and_a_device_that_does_not_exist():
    # Cpu environment has the facts of this machine and none of a gpu.
    facts = collect_environment("cpu")
    assert facts.device == "cpu"
    assert facts.device_name == facts.cpu
    assert facts.host == platform.node()
    assert facts.python == platform.python_version()
    assert facts.rooflines == __version__
    assert facts.torch == torch.__version__
    assert facts.torch.startswith(package_version("torch").partition("+")[0])
    assert facts.threads == torch.get_num_threads()
    assert facts.memory_bytes == psutil.virtual_memory().total
    assert facts.cpu_cores == psutil.cpu_count(logical=False)
    assert facts.os.startswith({"Darwin": "macOS"}.get(platform.system(), platform.system()))
    assert facts.driver is facts.cuda is facts.cudnn is facts.device_memory_bytes is None
    # A device that does not exist is named.
    with pytest.raises(DeviceError, match="unknown device 'gpu'"):
        collect_environment("gpu")


def test_facts_that_are_absent_or_of_the_moment():
    # Absent facts stay absent in a file.
    facts = collect_environment("cpu")
    plain = to_plain(facts)
    assert "driver" not in plain
    assert from_plain(plain, Environment) == facts
    # Threads are those of the moment.
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert collect_environment("cpu").threads == 1
    finally:
        torch.set_num_threads(before)
    # A package that is not installed has no version.
    assert package_version("rooflines-no-such-package") is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_without_a_gpu_points_to_the_doctor():
    with pytest.raises(DeviceError, match="doctor"):
        collect_environment("cuda:0")


@pytest.mark.parametrize(("number", "version"), [(8902, "8.9.2"), (7605, "7.6.5"), (90100, "9.1.0"), (92400, "9.24.0")])
def test_cudnn_numbers(number, version):
    assert dotted_cudnn(number) == version


def test_the_commit_of_a_directory(repository, monkeypatch):
    # Git commit of a clean directory.
    assert git_commit() == git("rev-parse", "--short", "HEAD")
    # Git commit of a changed directory is dirty and new files do not count.
    (repository / "notes.txt").write_text("new")
    assert git_commit() == git("rev-parse", "--short", "HEAD")
    (repository / "model.py").write_text("x = 2\n")
    assert git_commit() == git("rev-parse", "--short", "HEAD") + "-dirty"
    # Outside of a repository and without git there is none.
    with monkeypatch.context() as without:
        without.setenv("PATH", "")
        assert git_commit() is None
    (repository / ".git").rename(repository / "no repository")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repository.parent))
    assert git_commit() is None


def test_isa_falls_back_to_what_the_cpu_has(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr(environment.detect, "isa", lambda: ("asimd", "sve"))
    assert environment.cpu_isa() == "asimd sve"
    monkeypatch.setattr(environment.detect, "isa", lambda: ())
    assert environment.cpu_isa() is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_cuda_environment_names_the_gpu_and_its_software():
    facts = collect_environment("cuda")
    assert facts.device == f"cuda:{torch.cuda.current_device()}"
    assert facts.device_name == torch.cuda.get_device_name()
    assert facts.cuda == torch.version.cuda
    assert facts.driver
    assert facts.cudnn.count(".") == 2
    assert facts.device_memory_bytes > 1 << 30
