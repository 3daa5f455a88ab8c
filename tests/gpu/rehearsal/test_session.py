"""A session of the GPU tests without a GPU: the record of an H100 judged again, and what is said where there is nothing to test."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from rooflines.serial import read_json
from tests.gpu import MODULES
from tests.gpu.evidence import EVIDENCE_S, SHARES_S, TOTAL_S, limit_s
from tests.gpu.parts import ROOT, Record

# Takes seconds to compile or to start.
pytestmark = pytest.mark.ci

H100 = ROOT / "benchmarks" / "results" / "gpu_check_nvidia-h100-80gb-hbm3.json"
NAMED = {f"{check.subject}: {check.law}": check for part in read_json(H100, Record).parts for check in part.findings.checks}
# Not in the record: the exit code of rooflines monitor, and the runs of which tests/data has no copy.
NOT_KEPT = {"the exit code was not recorded", "the run was not kept"}


def run(*arguments, plugin=True):
    """``make gpu-check ARGS=...``, or without its plugin as in ``make test``."""
    options = ["-p", "tests.gpu.evidence"] if plugin else []
    command = [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    asked = [*command, "--ignore=tests/gpu/rehearsal", *map(str, arguments)]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)


@dataclass
class Judged:
    """What a session left that judged a record again."""

    code: int
    out: str
    folder: Path
    stem: str = "gpu_check_nvidia-h100-80gb-hbm3-rejudged"

    @property
    def record(self):
        return read_json(self.folder / f"{self.stem}.json", Record)

    def outcomes(self):
        checks = [check for part in self.record.parts for check in part.findings.checks]
        return {f"{check.subject}: {check.law}": check for check in checks}


def judge_again(folder, change=lambda record: None, *arguments):
    """Judge the record of the H100 again, after a ``change``, with the four runs of it that are test data."""
    plain = json.loads(H100.read_text())
    change(plain)
    (folder / "record.json").write_text(json.dumps(plain))
    (folder / plain["evidence"]).mkdir()
    (folder / plain["evidence"] / "profiles").symlink_to(ROOT / "tests" / "data" / "gpu_runs")
    done = run("--evidence", folder / "judged", "--rejudge", folder / "record.json", *arguments)
    return Judged(done.returncode, done.stdout + done.stderr, folder / "judged")


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    return judge_again(tmp_path_factory.mktemp("record"))


def test_every_check_of_the_h100_is_a_test_and_has_the_same_result(judged):
    assert judged.code == 0, judged.out
    outcomes = judged.outcomes()
    assert len(NAMED) == 164  # 161 passed
    assert set(outcomes) >= set(NAMED)
    kept = {name: check for name, check in NAMED.items() if outcomes[name].found not in NOT_KEPT}
    assert {name: outcomes[name].outcome for name in kept} == {name: check.outcome for name, check in kept.items()}
    # The same figures as on the H100; what an analysis says of a run may change.
    of_runs = {check.subject for check in NAMED.values() if check.law == "rooflines profile succeeds"}
    differ = {name for name, check in kept.items() if check.subject not in of_runs and outcomes[name].found != check.found}
    assert differ == {"hardware counters: ncu counts"}  # the exit code of ncu is not kept
    # the four runs that are test data, and the parts whose laws need no more than the record
    judged_again = {name for name in kept if outcomes[name].outcome == "ok"}
    assert len(judged_again) == 73
    assert "script on cuda:0: matrix FLOPs equal the closed form within 0.1 %" in judged_again
    assert "resnet50 inference in a CUDA graph: one launch of a CUDA graph per step" in judged_again
    assert outcomes["ceilings: HBM copy >= 4.10 TB/s"].found == "a target of another device"


def test_the_evidence_of_a_session(judged):
    record = judged.record
    assert record.rehearsal.startswith("The figures are those of 2026-")
    assert [part.name for part in record.parts] == list(SHARES_S)
    assert {part.outcome for part in record.parts} == {"ok"}
    assert record.device.environment.device_name == "NVIDIA H100 80GB HBM3"
    old = read_json(H100, Record)
    assert [part.findings.figures for part in record.parts] == [part.findings.figures for part in old.parts]
    page = (judged.folder / f"{judged.stem}.html").read_text()
    for words in ("GPU check passed: 73 checks passed.", "nothing was measured", "3.03 TB/s; goal 3.00 TB/s"):
        assert words in page, words
    assert "GPU check passed: 73 checks passed. 105 checks left out." in judged.out
    (zipped,) = judged.folder.glob("*.zip")
    assert f"for a bug report: {zipped}" in judged.out
    with zipfile.ZipFile(zipped) as archive:
        names = set(archive.namelist())
    raw = {f"{record.evidence}/{name}" for name in ("device.json", "packages.txt", "nvidia-smi.txt", "left_out.txt")}
    assert {f"{judged.stem}.json", f"{judged.stem}.html", *raw} <= names
    assert "torch==" in (judged.folder / record.evidence / "packages.txt").read_text()


def test_laws_that_fail_and_figures_that_are_missing(tmp_path):
    def change(record):
        parts = {part["name"]: part["findings"] for part in record["parts"]}
        parts["energy"]["figures"]["held"]["power"]["energy_j"] *= 1.1
        parts["networks"]["figures"].clear()
        parts["networks"]["left_out"].append({"what": "numba-cuda beside torch-cuda", "reason": "there is no NVVM"})
        del parts["counters"]["figures"]["operators"]["mm bf16"]["bytes_ratio"]
        parts["tests"]["figures"]["results"]["failed"] = 1

    judged = judge_again(tmp_path, change, "-k", "not profiles and not ceilings")
    assert judged.code == 1
    assert "GPU check failed: 2 of 14 checks failed. 5 checks left out." in judged.out
    outcomes = {name: (check.outcome, check.found) for name, check in judged.outcomes().items()}
    (energy,) = (found for name, found in outcomes.items() if name.startswith("a matrix product held"))
    assert energy == ("failed", "13946 J ±281 by counter, 15362 J ±29 by power, +10.2 % apart")
    assert outcomes["tests: the tests that need a GPU pass"] == ("failed", "1 failed, 78 passed, 1 skipped")
    assert outcomes["numba-cuda beside torch-cuda: 13 kernels per step"] == ("left out", "there is no NVVM")
    bytes_of = "mm bf16: bytes by hardware counters within 10 % of ours"
    assert outcomes[bytes_of] == ("left out", "the hardware has no such counter")
    assert {part.name: part.outcome for part in judged.record.parts} == {
        "energy": "failed", "networks": "left out", "counters": "ok", "tests": "failed",
    }  # fmt: skip


# --- no GPU, no evidence, no packages


def test_without_evidence_nothing_is_measured():
    done = run("-q", plugin=False)
    assert done.returncode == 0
    assert set(re.findall(r"^SKIPPED \[\d+\] \S+ (.*)$", done.stdout, re.MULTILINE)) == {"measured by make gpu-check"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would measure")
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(("option", "code"), [("", 0), ("--require-gpu", 2)])
def test_without_a_gpu_everything_is_skipped_with_the_reason(tmp_path, option, code):
    arguments = f"-k ceilings --evidence {tmp_path / 'here'} {option}"
    done = subprocess.run(
        ["make", "gpu-check", f"PYTHON={sys.executable}", f"ARGS={arguments}"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode == 0) is (code == 0)
    assert code == 0 or f"Error {code}" in done.stderr
    assert re.search("finds no usable NVIDIA GPU or driver", done.stdout)
    assert not any(tmp_path.iterdir())


def test_packages_that_are_missing_are_one_line():
    code = "import sys; sys.modules['torch'] = None; import importlib.util as util; find = util.find_spec;"
    code += "util.find_spec = lambda name: None if name == 'torch' else find(name); import tests.gpu.evidence"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "lacks torch: nothing was tested." in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 2


def test_packages_that_are_looked_for_are_declared():
    text = (ROOT / "pyproject.toml").read_text()
    assert {"pynvml": "nvidia-ml-py"}.keys() <= set(MODULES)
    for name in MODULES:
        assert re.search(rf"""["']{ {"pynvml": "nvidia-ml-py"}.get(name, name) }[>"'=]""", text), name


# --- the time of a session


def test_the_documentation_has_the_parts_and_their_time():
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) s \|$", (ROOT / "docs" / "gpu-check.md").read_text(), re.MULTILINE)
    assert {name: int(share_s) for name, share_s in rows} == SHARES_S
    assert sum(SHARES_S.values()) + EVIDENCE_S <= TOTAL_S == 600


def test_a_part_may_use_what_others_left_over_but_nothing_of_those_that_follow():
    most, chosen = TOTAL_S - EVIDENCE_S, {"ceilings", "energy", "tests"}
    assert limit_s("ceilings", chosen, 0) == most - 32 - 128
    assert limit_s("energy", chosen, 20) == most - 20 - 128
    assert limit_s("tests", chosen, most - 60) == 60
    assert limit_s("tests", chosen, most + 60) > 0  # never none: it fails at once instead of running without a limit
    # however long each takes of its limit, the whole takes no longer
    elapsed = 0.0
    for name in SHARES_S:
        elapsed += limit_s(name, set(SHARES_S), elapsed)
    assert elapsed == most
