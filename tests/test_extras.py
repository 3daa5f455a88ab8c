"""The extras with CUDA kernels: which one fits a machine, what ``make`` installs there, and what pip makes of them."""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from rooflines.device_specs.detect import cuda_extra

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
HEADERS = {
    "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |": "cuda13",
    "| NVIDIA-SMI 535.183.01             Driver Version: 535.183.01   CUDA Version: 12.2     |": "cuda12",
    "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |": "cuda13",
    "| NVIDIA-SMI 470.256.02   Driver Version: 470.256.02   CUDA Version: 11.4     |": "",
    "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: N/A      |": "",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.": "",
}
CUDA12_WHEELS = "https://download.pytorch.org/whl/cu126"


@pytest.mark.parametrize(("torch_cuda", "driver_cuda", "extra"), [
    ("13.0", (13, 0), "cuda13"),
    ("12.6", (13, 0), "cuda12"),  # a newer driver runs an older CUDA
    ("12.6", (12, 2), "cuda12"),
    ("13.0", (12, 4), None),  # torch has to be replaced first
    ("13.0", None, "cuda13"),
    ("11.8", (12, 4), None),
    (None, (12, 4), "cuda12"),
    (None, (14, 0), "cuda13"),
    (None, (11, 4), None),
    (None, None, None),
])  # fmt: skip
def test_the_extra_is_that_of_torch_and_else_of_the_driver(torch_cuda, driver_cuda, extra):
    assert cuda_extra(torch_cuda, driver_cuda) == extra


def installs(tmp_path, header, *targets):
    """The arguments of ``pip install`` for ``targets`` in a fresh checkout whose ``nvidia-smi`` prints ``header``; asked how often."""
    calls = tmp_path / "calls"
    calls.write_text("")
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\necho asked >>{calls}\ncat <<"END"\n{header}\nEND\n')
    smi.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("EXTRA", "MAKEFLAGS", "MAKELEVEL")}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    command = ["make", "--dry-run", f"VENV={tmp_path / 'venv'}", *targets]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = [line.partition("-m pip install ")[2] for line in done.stdout.splitlines() if "-m pip install " in line]
    return found, calls.read_text().count("asked")


@pytest.mark.parametrize(("header", "extra"), HEADERS.items(), ids=lambda text: re.sub(r"[| ]+", " ", text).strip()[-30:])
def test_make_profile_installs_the_extra_that_fits_the_driver(tmp_path, header, extra):
    (install,), asked = installs(tmp_path, header, "profile")
    assert install.endswith(f'-e ".[all,{extra}]"' if extra else '-e ".[all]"')
    # a driver for CUDA 12 does not run the package index's torch
    assert (CUDA12_WHEELS in install) == (extra == "cuda12")
    assert asked == 1


def test_another_extra_can_be_chosen_and_none(tmp_path):
    driver, *_ = HEADERS
    (install,), asked = installs(tmp_path, driver, "profile", "EXTRA=cuda12")
    assert install.endswith('-e ".[all,cuda12]"')
    assert asked == 0
    (install,), _ = installs(tmp_path, driver, "profile", "EXTRA=")
    assert install.endswith('-e ".[all]"')


def test_another_extra_is_installed_over_the_one_that_is_there(tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / ".installed").touch()
    assert installs(tmp_path, "", "profile") == ([], 0)
    assert len(installs(tmp_path, "", "profile", "EXTRA=cuda13")[0]) == 1


@pytest.mark.parametrize(("header", "tools"), [("CUDA Version: 13.0", "dev,ptx"), ("CUDA Version: 12.2", "dev"), ("", "dev,ptx")])
def test_make_test_compiles_kernels_where_that_does_not_replace_torch(tmp_path, header, tools):
    (_, install), _ = installs(tmp_path, header, "test")
    assert install.endswith(f'-e ".[{tools}]"')


def dry_run(*requirements):
    """What pip would install for ``requirements`` into an empty environment."""
    command = [
        sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--retries", "0",
        "--disable-pip-version-check", *requirements,
    ]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def index():
    """Skips where pip cannot say what it would install."""
    version = tuple(map(int, metadata.version("pip").split(".")[:2])) if any(metadata.distributions(name="pip")) else (0, 0)
    if version < (23, 3):
        pytest.skip("pip is older than 23.3, or not there: a dry run downloads every wheel")
    probe = dry_run("--no-deps", "numba-cuda")
    if probe.returncode:
        pytest.skip(f"no package index answers: {probe.stderr.strip().splitlines()[-1]}")


def extra_requirements(extra):
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]


def chosen(done):
    """Package to version of a dry run that found a solution."""
    assert done.returncode == 0, done.stderr
    return {one["metadata"]["name"]: one["metadata"]["version"] for one in json.loads(done.stdout)["install"]}


# What the pinned torch requires of its CUDA on Linux, on the package index and built for CUDA 12.6: the parts that decide.
TORCH_FOR_13 = ("cuda-toolkit==13.0.3", "cuda-bindings>=13.0.3,<14")
TORCH_FOR_12 = ("cuda-toolkit==12.6.3",)


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="the CUDA packages are for Linux")
@pytest.mark.parametrize(("extra", "torch", "compiler"), [
    ("cuda13", TORCH_FOR_13, "nvidia-nvvm"),
    pytest.param("cuda12", TORCH_FOR_12, "nvidia-cuda-nvcc-cu12", marks=pytest.mark.slow),
])  # fmt: skip
def test_an_extra_brings_numba_cuda_with_its_compiler(index, extra, torch, compiler):
    found = chosen(dry_run("-c", "constraints.txt", *torch, *extra_requirements(extra)))
    assert tuple(map(int, found["numba-cuda"].split(".")[:2])) >= (0, 30)
    assert compiler in found
    assert any(name.startswith("nvidia-cublas") for name in found)  # of CuPy's [ctk]


@pytest.mark.skipif(sys.platform != "linux", reason="the CUDA packages are for Linux")
@pytest.mark.slow
def test_the_extra_for_another_cuda_than_torch_s_is_refused(index):
    done = dry_run(*TORCH_FOR_13, *extra_requirements("cuda12"))
    assert done.returncode, f"pip would install {chosen(done)}"
    assert "conflicting dependencies" in done.stderr
