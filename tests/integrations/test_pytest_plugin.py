"""The pytest plugin, in a pytest of its own."""

import subprocess
import sys

import pytest

import rooflines
from tests.commands import environment, write_ceilings
from tests.integrations.reports import check_report

TESTS = """
import pytest

def test_a_step(rooflines):
    import torch
    model = torch.nn.Linear(8, 8)
    calls = []

    def step():
        calls.append(1)
        model(torch.randn(4, 8)).sum().backward()

    run = rooflines(step, ceilings={ceilings!r}, formats=["json"], steps=2, warmup=1)
    assert (run is None) == (len(calls) == 1)

@pytest.mark.parametrize("inputs", ["tensor", "tuple", "dict"])
def test_a_module(rooflines, inputs):
    import torch
    x = torch.randn(4, 8)
    given = {{"tensor": x, "tuple": (x,), "dict": {{"input": x}}}}[inputs]
    rooflines(torch.nn.Linear(8, 8), given, ceilings={ceilings!r}, steps=2, warmup=1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tests")
    (folder / "test_steps.py").write_text(TESTS.format(ceilings=str(write_ceilings(folder))))
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return folder


def pytest_of_its_own(folder, *options):
    # the plugins are named, so that it does not matter whether this environment has our entry point
    plugins = ["-p", "rooflines.integrations.pytest_plugin", "-p", "xdist.plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, *options]
    alone = {**environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.ci
def test_without_the_option_each_step_runs_once(folder):
    assert "4 passed" in pytest_of_its_own(folder, "--rooflines-dir", "off")
    assert not (folder / "off").exists()


@pytest.mark.ci
def test_with_the_option_each_test_has_a_report(folder):
    out = pytest_of_its_own(folder, "--rooflines", "-n", "1", "--rooflines-dir", "on")
    assert "4 passed" in out
    printed = [line for line in out.splitlines() if line.startswith("on/")]
    assert printed == [
        "on/test_steps.py-test_a_module-dict/report.html",
        "on/test_steps.py-test_a_module-tensor/report.html",
        "on/test_steps.py-test_a_module-tuple/report.html",
        "on/test_steps.py-test_a_step/analysis.json",
    ]
    assert all((folder / path).exists() for path in printed)
    check_report(rooflines.load(folder / "on/test_steps.py-test_a_step"), 100, phases={"forward"}, mode="inference", modules=False)
    again = pytest_of_its_own(folder, "--rooflines", "--rooflines-dir", "on", "-k", "test_a_step")
    assert "on/test_steps.py-test_a_step-2/" in again, "a second run has directories of its own"
