"""Families of formulas load on demand, and count what they count when all are loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rooflines.roofline.formulas import families
from rooflines.roofline.formulas.evidence import evidence_of

WRITER = Path(__file__).with_name("families.py")
ASKED = """
import json, sys
from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import counter
if sys.argv[1] == "all":
    counter.registered()
calls = [(name, Signature(name, (TensorArg((4, 4), "float32"),) * 2)) for name in sys.argv[2:]]
counts = {name: repr(counter.count(signature)) for name, signature in calls}
package = "rooflines.roofline.formulas."
print(json.dumps([counts, sorted(name.removeprefix(package) for name in sys.modules if name.startswith(package))]))
"""


def run(*arguments):
    return json.loads(subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout)


def test_the_generated_lists_are_what_the_modules_register():
    done = subprocess.run([sys.executable, str(WRITER), "--check"], capture_output=True, text=True, check=True)
    assert done.stdout == "", f"Run python {WRITER.name} in {WRITER.parent.name}."


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("aten::mm", None), ("mylib::unknown", None), ("_C::rms_norm", "trace"), ("bitsandbytes::quantize_4bit", "call"),
        ("_C::rms_norm_weightless", "read"), ("mslk::f8f8bf16", "read"),
    ],
)  # fmt: skip
def test_evidence(name, evidence):
    assert evidence_of(name) == evidence


def test_an_operator_loads_its_family_alone_and_counts_the_same():
    names = ["aten::mm", "aten::view", "mylib::unknown", "aten::unknown", "autograd::engine::evaluate_function: MmBackward0"]
    counts, loaded = run("-c", ASKED, "few", *names)
    everything, all_loaded = run("-c", ASKED, "all", *names)
    assert counts == everything
    assert "matmul" in loaded
    assert set(families.modules().values()) <= set(all_loaded)
    assert {"optimizer", "recurrent", "vision", "sparse", "quantized"}.isdisjoint(loaded)


def test_an_operator_with_a_formula_is_refused_before_its_family_is_loaded():
    code = "import rooflines\ntry: rooflines.formula('torchvision::nms', category='')(print)\nexcept ValueError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torchvision::nms" in done.stdout
    assert "registered twice" in done.stdout


@pytest.mark.parametrize("name", ["", "aten", "aten::", "mm"])
def test_what_is_no_operator_loads_nothing(name):
    assert families.load_family_of(name) is None
