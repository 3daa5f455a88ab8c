"""Files of operators are read on demand, and count what they count when all are read; marks of evidence are true."""

from __future__ import annotations

import ast
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rooflines.roofline.count.formulas.families import evidence_of, files, is_librarys, paragraphs
from rooflines.roofline.count.formulas.library_names import canonical

TESTS = Path(__file__).parents[2]
ASKED = """
import json, sys
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import counter, registry
if sys.argv[1] == "all":
    counter.registered()
calls = [(name, Signature(name, (TensorArg((4, 4), "float32"),) * 2)) for name in sys.argv[2:]]
counts = {name: repr(counter.count(signature)) for name, signature in calls}
package = "rooflines.roofline.count.formulas."
modules = sorted(name.removeprefix(package) for name in sys.modules if name.startswith(package))
print(json.dumps([counts, modules, len(registry.FORMULAS)]))
"""


def run(*arguments):
    return json.loads(subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("aten::mm", None), ("mylib::unknown", None), ("_C::rms_norm", "traced"), ("torchao::mx_fp8_bf16", "called"),
        ("_C::rms_norm_weightless", "read"), ("mslk::f8f8bf16", "read"),
    ],
)  # fmt: skip
def test_evidence(name, evidence):
    assert evidence_of(name) == evidence


def marked(mark):
    return {
        name for path in files() if is_librarys(path) for paragraph in paragraphs(path)
        for name, found in paragraph.operators.items() if found == mark
    }  # fmt: skip


def test_traced_operators_are_in_a_recorded_trace_or_in_a_test_of_a_call_that_was_copied_from_one():
    texts = [gzip.decompress(path.read_bytes()).decode(errors="replace") for path in sorted(TESTS.glob("data/traces/**/*.json.gz"))]
    for path in sorted((TESTS / "roofline").rglob("test_*.py")):
        functions = (
            ast.unparse(node) for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)
        )
        texts += [text.replace("'", '"') for text in functions if "TraceLens" in text]
    strings = {name for text in texts for name in re.findall(r'"([A-Za-z_][^"\n]*)"', text)}
    assert marked("traced") - {name for string in strings for name in (string, canonical(string))} == set()


def test_called_operators_are_called_by_a_test_whose_library_is_installed_for_tests():
    text = (Path(__file__).parent / "libraries" / "test_real_calls.py").read_text(encoding="utf-8")
    calls = set(re.findall(r'(?:check\(tmp_path|counted\(trace), "([^"]+)"', text))
    assert marked("called") <= calls
    project = (TESTS.parent / "pyproject.toml").read_text(encoding="utf-8")
    installed = {name for name in ("bitsandbytes", "fbgemm", "torchao") if re.search(rf'"{name}\b', project)}
    assert {name.partition("::")[0] for name in marked("called")} <= installed


def test_an_operator_reads_its_family_alone_and_counts_the_same():
    names = ["aten::mm", "aten::view", "mylib::unknown", "aten::unknown", "autograd::engine::evaluate_function: MmBackward0"]
    counts, loaded, operators = run("-c", ASKED, "few", *names)
    everything, _, all_operators = run("-c", ASKED, "all", *names)
    assert counts == everything
    assert "matmul" in loaded
    assert {"optimizer", "recurrent", "attention", "packed_attention", "quantized"}.isdisjoint(loaded)
    assert operators < 200 < 3000 < all_operators


def test_an_operator_with_a_formula_is_refused_before_its_family_is_loaded():
    code = "import rooflines\ntry: rooflines.formula('torchvision::nms', category='')(print)\nexcept ValueError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torchvision::nms" in done.stdout
    assert "registered twice" in done.stdout
