"""``rooflines doctor --gpu``: what it says without a GPU and without a package, and its exit codes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rooflines.errors import DeviceError
from rooflines.extras import EXTRA_OF
from rooflines.gpu_check import MODULES, check
from rooflines.gpu_check.records import Check, Device, Findings, GpuCheck, Part
from rooflines.profiler.records import Environment
from tests.commands import call

ROOT = Path(__file__).parents[2]


@pytest.fixture
def doctor(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: call(capsys, monkeypatch, "doctor", *arguments)


@pytest.fixture
def no_gpu(monkeypatch):
    def find():
        raise DeviceError("torch finds no usable NVIDIA GPU or driver.")

    monkeypatch.setattr(check, "find_device", find)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_this_machine_has_none():
    with pytest.raises(DeviceError, match=r"torch finds no usable NVIDIA GPU or driver|built without CUDA|AMD"):
        check.find_device()


def test_without_a_gpu_one_line_says_that_nothing_was_checked(doctor, no_gpu, tmp_path):
    answer = doctor("--gpu")
    assert answer.code == 0
    assert answer.out == "GPU check: nothing was checked (torch finds no usable NVIDIA GPU or driver).\n"
    assert answer.err == ""
    assert not any(tmp_path.iterdir())


def test_a_gpu_that_is_required_fails_with_one_line(doctor, no_gpu):
    answer = doctor("--gpu", "--require-gpu")
    assert answer.code == 2
    assert answer.out == ""
    assert answer.complaint == ["rooflines: GPU check: no GPU to check: torch finds no usable NVIDIA GPU or driver."]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--require-gpu"], "--require-gpu requires --gpu."),
    (["--only", "tests"], "--only requires --gpu."),
    (["--gpu", "--only", "test"], "unknown part 'test' of the GPU check."),
    (["--gpu", "--formats", "pdf"], "--format does not apply to --gpu."),
])  # fmt: skip
def test_what_cannot_be_asked(doctor, arguments, message):
    answer = doctor(*arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]


@pytest.mark.parametrize(("outcome", "code"), [("ok", 0), ("failed", 1)])
def test_exit_codes_and_files(doctor, monkeypatch, tmp_path, outcome, code):
    gpu = Device(environment=Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H200"))
    found = Check(law="a law", subject="run", outcome=outcome, found="1.3")
    part = Part(name="profiles", outcome=outcome, wall_s=1.0, limit_s=2.0, findings=Findings(figures={"runs": {}}, checks=[found]))
    asked = []

    def run(parts, device, folder, *, progress):
        asked.append(([part.name for part in parts], folder))
        result = GpuCheck(created="2026-11-23T18:00:00+00:00", device=device, evidence="e", parts=(part,))
        return result, check.Files(*(folder / name for name in ("x.json", "x.html", "x.zip", "x")))

    monkeypatch.setattr(check, "find_device", lambda: gpu)
    monkeypatch.setattr(check, "run", run)
    answer = doctor("--gpu", "--require-gpu", "--only", "profiles", "--output", tmp_path)
    assert answer.code == code
    assert asked == [(["profiles"], tmp_path)]
    assert "GPU check of NVIDIA H200" in answer.out
    assert f"GPU check {'passed' if code == 0 else 'failed'}: " in answer.out
    assert f"for a bug report {tmp_path / 'x.zip'}" in answer.out


@pytest.mark.parametrize(("missing", "message"), [
    ("msgspec", "lacks msgspec: nothing was checked."),
    ("torch", "lacks torch: nothing was checked."),
    ("typer", "lacks typer. Install"),
])  # fmt: skip
def test_a_package_that_is_missing_is_one_line(missing, message):
    """As in a repository that is not installed: ``make gpu-check`` with any Python."""
    code = (
        f"import runpy, sys; sys.modules['{missing}'] = None; sys.argv = ['rooflines', 'doctor', '--gpu'];"
        "runpy.run_module('rooflines', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    assert message in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_packages_that_are_looked_for_are_dependencies():
    (declared,) = re.findall(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    names = set(re.findall(r"""^ +["']([\w-]+)""", declared, re.MULTILINE)) | set(EXTRA_OF)
    modules = {"nvidia-ml-py": "pynvml"}
    assert set(MODULES) <= {modules.get(name, name) for name in names}
