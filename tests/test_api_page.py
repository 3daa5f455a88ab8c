"""docs/api.md names everything that is public, and its examples run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import rooflines
from rooflines.device_specs.records import Ceilings
from tests.samples import ceilings

TRACES = Path(__file__).parent / "data" / "traces"
PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# What an example states in a comment: a value, as repr shows it.
STATED = re.compile(r"^(\S.*?)  # (\(.*\)|[\d.]+|'.*'|PosixPath\(.*\)|True|False)$", re.MULTILINE)


def test_the_page_names_every_public_name():
    table = PAGE.partition("\n## ")[0]
    listed = {
        name for cell in re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE) for name in re.findall(r"\b(?!md\b)\w+(?=[`,])", cell)
    }
    assert listed >= set(rooflines.__all__)
    assert {name for name in listed - {"name"} if not hasattr(rooflines, name)} == set()
    for name in rooflines.__all__:
        assert name == "__version__" or getattr(rooflines, name).__doc__, f"{name} has no docstring"


def test_the_examples_run_and_give_what_they_state(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(TRACES / "cpu_only.json.gz", "trace.json.gz")
    Path("traces").mkdir()
    for rank in (0, 7):
        shutil.copy(TRACES / "dlrm_8ranks" / f"rank{rank}.json.gz", "traces")
    measured = Ceilings(device="test CPU", kind="cpu", ceilings=ceilings())
    monkeypatch.setattr("rooflines.pipeline.recording.given_ceilings", lambda *_: lambda *_: measured)
    monkeypatch.setattr(rooflines, "measure_ceilings", lambda: measured)
    scope = {}
    for example in EXAMPLES:
        exec(compile(example, "docs/api.md", "exec"), scope)
        for expression, value in STATED.findall(example):
            assert repr(eval(expression, scope)) == value, expression
    assert "steps must be at least 1, got 0" in capsys.readouterr().out
