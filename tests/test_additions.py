"""What is added to rooflines itself touches the files that docs/extending.md names for it and no other, and works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from rooflines.device_specs.records import Ceilings
from rooflines.serial import write_json
from tests import samples
from tests.pipeline.test_extension import NETWORK
from tests.test_extending import DOCUMENT, ROOT, TRACE, documented

PACKAGE = ROOT / "rooflines"
SECTION = """
from rooflines.reports.document import Paragraph, section


def longest_section(analysis):
    row = max(analysis.operators, key=lambda row: row.time_s)
    return section("longest", "The longest operator", Paragraph(f"It is {row.name}."))
"""
COMMAND = """
from rooflines.cli.app import app


@app.command()
def hello() -> None:
    \"\"\"Greet.\"\"\"
    print("Hello from a new command.")
"""
RULE = """
from rooflines.roofline.advise.case import Advice


def half(case):
    saved = {ran.key: ran.left_s / 2 for ran in case.ran(lambda ran: True)}
    return Advice("Do half of the work", sum(saved.values()), "all of it was done", "half=True", saved)
"""


INPLACE = """    if options.inplace:
        for module in network.modules():
            if hasattr(module, "inplace"):
                module.inplace = True
"""
ROW = """    RunOption(
        "inplace", lambda run: [] if run.analysis.workload.inplace else [("activations in place", True)], alters=True,
        facts=(WorkloadFact("inplace", "in place", "activations", "overwrite their input", flag=True),),
    ),
"""
ACTIVATIONS = """
import torch

def network():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()), torch.rand(1, 3, 32, 32)
"""


class Copy:
    """A copy of the package that a case edits; ``changed`` are the files that differ from the package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(PACKAGE, folder / "rooflines", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "docs").mkdir()
        (folder / "tests").symlink_to(ROOT / "tests")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        assert not path.exists()
        path.write_text(text, encoding="utf-8")

    def append(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")

    def insert(self, name: str, before: str, text: str) -> None:
        """Put ``text`` before the only place where ``before`` stands."""
        path = self.folder / name
        whole = path.read_text(encoding="utf-8")
        assert whole.count(before) == 1, (name, before)
        path.write_text(whole.replace(before, text + before), encoding="utf-8")

    def run(self, *command: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120"}
        ran = subprocess.run([sys.executable, *command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr

    def changed(self) -> list[str]:
        files = [path.relative_to(self.folder) for part in ("rooflines", "docs") for path in (self.folder / part).rglob("*")]
        return sorted(
            str(file)
            for file in files
            if (self.folder / file).is_file()
            and "__pycache__" not in file.parts
            and not ((ROOT / file).is_file() and (ROOT / file).read_bytes() == (self.folder / file).read_bytes())
        )


def add_operator(copy):
    """A row: one operation for each element, which is read and written."""
    copy.append("rooflines/roofline/count/formulas/optimizer.rows", "\n[element-wise]\nmylib::damp: read x -> x; cost = 1; per = x\n")
    (copy.folder / "network.py").write_text(NETWORK)
    answer = json.loads(copy.run("-m", "rooflines", "count", "network.py:network", "--format", "json"))
    assert (answer["flops"], answer["bytes"], answer["coverage"]) == (1000, 8000, 1.0)


def add_device(copy):
    sheet = re.search(
        r"^```toml\n(name = .*?)^```", (ROOT / "docs" / "devices.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )[1]
    copy.write("rooflines/device_specs/data/our-accelerator.toml", sheet)
    assert "Example · First · cuda" in copy.run("-m", "rooflines", "devices", "Our accelerator")


def add_field(copy):
    copy.insert(
        "rooflines/profiler/samplers/fields.py", "    # memory\n",
        '    load_average: Annotated[float | None, Field("load average", "", ("mean", "highest"))] = None\n',
    )  # fmt: skip
    copy.insert(
        "rooflines/profiler/samplers/host.py",
        "            cpu_utilization=cpu_utilization,",
        "            load_average=os.getloadavg()[0],\n",
    )
    copy.run("-m", "rooflines", "monitor", "--gpus", "none", "-o", "out", "--", sys.executable, "-c", "import time; time.sleep(1)")
    usage = json.loads((copy.folder / "out" / "analysis.json").read_text(encoding="utf-8"))["usage"]
    assert usage["devices"][0]["gauges"]["load_average"]["highest"] >= 0
    assert "load_average" in (copy.folder / "out" / "samples.csv").read_text(encoding="utf-8").partition("\n")[0]
    assert ">load average</text>" in (copy.folder / "out" / "report.html").read_text(encoding="utf-8")


def add_section(copy):
    copy.write("rooflines/reports/page/longest.py", SECTION)
    copy.insert(
        "rooflines/reports/page/run.py",
        "from rooflines.reports.page import ",
        "from rooflines.reports.page.longest import longest_section\n",
    )
    copy.insert("rooflines/reports/page/run.py", "memory_section(analysis),", "longest_section(analysis), ")
    copy.run("-m", "rooflines", "report", str(TRACE), "-o", "out", "--formats", "html,markdown")
    for file in ("report.html", "report.md"):
        assert "The longest operator" in (copy.folder / "out" / file).read_text(encoding="utf-8")


def add_format(copy):
    copy.write(
        "rooflines/reports/render/rst.py",
        documented("A report format")["rst_report.py"].replace("rooflines.ext", "rooflines.reports.document"),
    )
    copy.insert(
        "rooflines/reports/render/formats.py",
        '        Format("pdf",',
        '        Format("rst", "report.rst", "rst", "reStructuredText"),\n',
    )
    copy.run("-m", "rooflines", "devices", "A100", "--format", "rst", "-o", "a100.rst")
    assert ".. csv-table::" in (copy.folder / "a100.rst").read_text(encoding="utf-8")


def add_rule(copy):
    copy.write("rooflines/roofline/advise/half.py", RULE)
    copy.insert(
        "rooflines/roofline/advise/findings.py",
        "from rooflines.roofline.analysis import",
        "from rooflines.roofline.advise.half import half\n",
    )
    copy.insert("rooflines/roofline/advise/findings.py", "    host.load_faster,\n    matrix.emulated", "    half,\n")
    analysis = json.loads(copy.run("-m", "rooflines", "analyze", str(TRACE), "--format", "json"))
    assert "Do half of the work" in [finding["title"] for finding in analysis["findings"]]


def add_command(copy):
    copy.write("rooflines/cli/hello.py", COMMAND)
    copy.insert("rooflines/cli/app.py", '    "advise",\n', '    "hello",\n')
    assert "Hello from a new command." in copy.run("-m", "rooflines", "hello")
    assert "Greet." in copy.run("-m", "rooflines", "--help")


def add_option(copy):
    """``--inplace`` lets activations overwrite their input: declared, applied, recorded, and a row of the table of options."""
    declared = '    inplace: Annotated[bool, Option("Let activations overwrite their input.", "Execution")] = False\n'
    copy.insert("rooflines/profiler/options.py", "    compile: Annotated[\n        Compile", declared)
    copy.insert("rooflines/profiler/workloads/prepare.py", "    if options.checkpointing:\n        notes", INPLACE)
    copy.insert(
        "rooflines/profiler/workloads/prepare.py",
        "        channels_last=options.channels_last,\n        compiled",
        "        inplace=options.inplace,\n",
    )
    copy.insert("rooflines/profiler/workloads/prepare.py", '        "channels_last",\n        "compile",', '        "inplace",\n')
    copy.insert("rooflines/profiler/records.py", "    #: Whether ``torch.compile`` compiled", "    inplace: bool = False\n")
    copy.insert("rooflines/pipeline/options.py", '    "checkpointing",\n', '    "inplace",\n')
    copy.insert("rooflines/roofline/predict/options.py", '    RunOption("data", facts', ROW)
    (copy.folder / "network.py").write_text(ACTIVATIONS)
    write_json(copy.folder / "ceilings.json", Ceilings(device="", kind="cpu", ceilings=samples.ceilings()))
    for name, given in (("before", ()), ("after", ("--inplace",))):
        options = ("--steps", "6", "--warmup", "1", "--ceilings", "ceilings.json", "--formats", "markdown", "-o", name, *given)
        copy.run("-m", "rooflines", "profile", "--model", "network.py:network", *options)
    assert "activations in place" in copy.run("-m", "rooflines", "advise", "before", "--only", "inplace")
    comparison = json.loads(copy.run("-m", "rooflines", "compare", "before", "after", "--format", "json"))
    assert {"name": "in place", "before": "no", "after": "yes", "unlike": False} in comparison["differs"]
    assert "overwrite their input" in (copy.folder / "after" / "report.md").read_text(encoding="utf-8")


def named(what):
    """The files that the document names for an addition: patterns, with ``*`` for a name in capitals."""
    table = DOCUMENT.read_text(encoding="utf-8").partition("## In rooflines itself")[2]
    row = re.search(rf"^\| {what} \| (.*?) \|", table, flags=re.MULTILINE)
    return [re.sub(r"\b[A-Z]{2,}\b", "*", name) for name in re.findall(r"`([^`]+)`", row[1])]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("what", "add"),
    [
        ("an operator", add_operator),
        ("a device", add_device),
        ("a sampled field", add_field),
        ("a section", add_section),
        ("a format", add_format),
        ("a rule", add_rule),
        ("a command", add_command),
        ("an option that changes the work", add_option),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_addition_touches_the_files_that_are_documented(what, add, tmp_path):
    copy = Copy(tmp_path)
    assert copy.changed() == []
    add(copy)
    changed, patterns = copy.changed(), named(what)
    assert len(changed) == len(patterns)
    for file in changed:
        assert [pattern for pattern in patterns if fnmatch(file, pattern)], file
