"""Files of operators: every one is right, and what is wrong in one is told with its line."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas.families import files, paragraphs
from rooflines.roofline.count.formulas.record import Work
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.tables import formulas_of, problems

LEFT, RIGHT = TensorArg((4, 6), "bfloat16"), TensorArg((6, 5), "bfloat16")
GOOD = """# A library.

let OPERANDS = read left[*rows k],
    read right[k n]

[matmul lib:: other:: wraps]
# A comment.
gemm(traced) gemm2: {OPERANDS}; matrix = 2 * rows * k * n;
    writes = 2 * rows * n
    | flag, read left[*rows k], read right[=k n]
gemm_relu like gemm: ; other = rows * n

[other lib:: by=scaled.scaled_work]
scaled: left, right, out_dtype=15

[other dispatches]
lib::layer: its weights are no arguments
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "lib.rows"
        path.write_text(text)
        return path

    return written


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_every_file_is_right(path):
    count, found = problems(path)
    assert count
    assert found == []


def test_what_a_file_says(write):
    formulas = formulas_of(write(GOOD))
    assert set(formulas) == {
        *(f"{space}::{name}" for space in ("lib", "other") for name in ("gemm", "gemm2", "gemm_relu")), "lib::scaled", "lib::layer",
    }  # fmt: skip

    def work(name, *args):
        return formulas[name](Signature(name, args), Hints())

    assert work("other::gemm2", LEFT, RIGHT) == work("lib::gemm", True, LEFT, RIGHT) == Work(240, 0, 48 + 60, 40, "bf16")
    assert work("lib::gemm_relu", LEFT, RIGHT).other_flops == 20
    assert work("lib::scaled", LEFT, RIGHT).matrix_flops == 240
    first = next(paragraphs(write(GOOD)))
    assert (first.operators["lib::gemm"], first.operators["lib::gemm2"]) == ("traced", "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("op: read x; other = 2 * y.n", "3: nothing is called 'y' in '2 * y.n'"),
        ("op: read x; other = 2 *", "3: invalid syntax in '2 *'"),
        ("op: read x[; cost = 1", "3: 'read x[' is no argument of a schema"),
        ("op: read x -> y", "3: no argument is called 'y'"),
        ("op: read x\nop: read y", "4: 'op' stands in lib.rows:3 too"),
        ("op like missing: ; cost = 1", "3: no operator 'missing' in this file"),
        ("[other by=scaled.missing]\nop: left", "4: module 'rooflines.roofline.count.formulas.scaled' has no attribute 'missing'"),
        ("[other by=scaled.scaled_work]\nop: left, right; rank = 2", "4: got an unexpected keyword argument 'rank'"),
        ("[other warps]\nop: read x", "4: 'warps' is no option of a heading"),
    ],
)
def test_an_error_has_its_line(write, text, reason):
    path = write(f"[other]\n# one operator\n{text}\n")
    _, (found, *_) = problems(path)
    assert found.replace(str(path), "lib.rows").startswith(f"lib.rows:{reason}")
