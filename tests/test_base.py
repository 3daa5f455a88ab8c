"""What reads traces needs no torch, pandas, numba, Matplotlib or pyarrow; what needs one says which extra has it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import environment

TRACES = Path(__file__).parent / "data" / "traces"
BERT = TRACES / "bert-small_h100_inference.json.gz"
# Runs the command line as if the extras were not installed.
HIDDEN = """
import importlib.util, sys
hidden = {"torch", "torchvision", "pandas", "pyarrow", "numba", "llvmlite", "matplotlib", "typst", "tensorboard", "scipy"}
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.partition(".")[0] in hidden else find(name, package)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())
from rooflines.cli import main
main()
"""


def run(*arguments, cwd, code=HIDDEN):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.ci
@pytest.mark.parametrize(
    "command",
    [("analyze", BERT, "--format", "json"), ("analyze", TRACES / "dlrm_8ranks", "--format", "json"), ("summary", BERT), (BERT,),
     ("compare", BERT, BERT, "--format", "json"), ("devices", "A100", "--format", "json")],
    ids=lambda words: str(words[0]).rpartition("/")[2],
)  # fmt: skip
def test_the_answer_is_that_with_everything_installed(command, tmp_path):
    bare, whole = (run(*command, cwd=tmp_path, code=code) for code in (HIDDEN, "from rooflines.cli import main; main()"))
    assert bare.returncode == 0, bare.stderr
    assert bare.stdout == whole.stdout


@pytest.mark.ci
@pytest.mark.parametrize(
    ("form", "packages"),
    [("html", {"matplotlib"}), ("pdf", {"typst", "matplotlib"}), ("tensorboard", {"tensorboard", "matplotlib"})],
)
def test_a_format_needs_the_packages_of_its_extra_alone(form, packages, tmp_path):
    code = HIDDEN.replace('"scipy"}', f'"scipy"}} - {packages!r}')
    done = run("analyze", BERT, "--format", form, "-o", "out", cwd=tmp_path, code=code)
    assert done.returncode == 0, done.stderr
    if form == "html":
        assert "<svg" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.ci
def test_reports_and_monitor(tmp_path):
    done = run("report", BERT, "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"report.html", "report.json", "analysis.json", "operators.csv"}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Figures need matplotlib: pip install &#39;rooflines[charts]&#39;." in page
    done = run("monitor", "--gpus", "none", "-o", "seen", "--", sys.executable, "-c", "import time; time.sleep(1)", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen" / "samples.jsonl").is_file()
    again = run("analyze", "seen", "--format", "json", cwd=tmp_path)
    assert json.loads(again.stdout)["usage"]["devices"]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (("profile", "--model", "resnet18"), "torch", "torch"),
        (("count", "--model", "resnet18"), "torch", "torch"),
        (("train", "--model", "resnet18", "--data", "digits"), "torch", "torch"),
        (("report", BERT, "--formats", "pdf", "-o", "out"), "typst", "pdf"),
        (("report", BERT, "--formats", "tensorboard", "-o", "out"), "tensorboard", "tensorboard"),
        (("view", "."), "tensorboard", "tensorboard"),
    ],
)
def test_what_is_missing_is_one_line_with_the_command(command, package, extra, tmp_path):
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 2
    assert f"rooflines: this needs {package}, which is not installed.\n  pip install 'rooflines[{extra}]'\n" in done.stderr


@pytest.mark.ci
def test_profile_needs_torch_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path / "cache"))  # other tests measure ceilings
    (tmp_path / "small.py").write_text("import torch\ndef build(): return torch.nn.Linear(8, 8), torch.ones(4, 8)\n")
    code = HIDDEN.replace('"scipy"}', '"scipy"} - {"torch"}')
    done = run("profile", "--model", "small.py:build", "--steps", "3", "-o", "out", cwd=tmp_path, code=code)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "out" / "analysis.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in record["operators"]] == ["aten::addmm"]
    assert "is not installed (pip install 'rooflines[kernels]')" in " ".join(record["notes"])
