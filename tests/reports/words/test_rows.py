"""Rows of operator tables: repeated layers fold, operators without a count are rows, and sums are those of the analysis."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import rooflines
from rooflines.reports.document import Paragraph
from rooflines.reports.page import run as view
from rooflines.reports.page.operators import operator_table
from rooflines.reports.render import markdown, pdf
from rooflines.reports.words.rows import flagged_rows, module_text, table_order, table_rows, table_title
from rooflines.reports.words.sentences import flag_sentence
from rooflines.reports.words.text import operator_name, shorten_path
from rooflines.roofline.analysis import Coverage, Kernel, LineShare, OperatorRow, Unmodeled
from tests.printing import in_terminal
from tests.reports import variants
from tests.samples import analysis as sample

TRACES = Path(__file__).parent.parent.parent / "data" / "traces"
REAL = ["bert-small_h100_inference", "vit-b16_mi300x_inference", "nccl_collectives", "ddp_rank0", "toy_mi250_training"]


def operator(name: str = "aten::mm", module: str = "", **fields) -> OperatorRow:
    given = {"time_s": 1e-3, "lower_bound_s": 2.5e-4, "efficiency": 0.25, "headroom_s": 7.5e-4, "bound": "memory"} | fields
    return OperatorRow(name=name, module=module, phase="forward", shapes="8x8", category="matmul", calls=1, flops=10, matrix_flops=10,
                       bytes=20, **given)  # fmt: skip


def rows_of(*rows: OperatorRow):
    return table_rows(replace(sample(), operators=rows, coverage=None))


def shown(analysis, width=80):
    return in_terminal(view.page(analysis), width)


@pytest.mark.parametrize(("paths", "pattern"), [
    (["layers.3.attention", "layers.7.attention"], "layers.*.attention ×2"),
    (["Bert_0.Layer_3.Linear_18", "Bert_0.Layer_7.Linear_42"], "Bert_0.Layer_*.Linear_* ×2"),
    (["enc.0.sub.1", "enc.1.sub.1"], "enc.*.sub.1 ×2"),
])  # fmt: skip
def test_modules_that_differ_in_an_index_are_one_row(paths, pattern):
    (one,) = rows_of(*(operator(module=path) for path in paths))
    assert module_text(one) == pattern
    assert (one.row.calls, one.row.time_s, one.row.flops) == (2, pytest.approx(2e-3), 20)
    assert {member.module for member in one.members} == set(paths)


@pytest.mark.parametrize("other", [
    operator(module="layer.4.mlp"), operator("aten::bmm", module="layer.4.attention"),
    replace(operator(module="layer.4.attention"), shapes="8x9"), replace(operator(module="layer.4.attention"), phase="backward"),
    replace(operator(module="layer.4.attention"), precision="bf16"), replace(operator(module="layer.4.attention"), flops=11),
    operator(module="layers.4.attention"), operator(module="layer.4.x.attention"),
])  # fmt: skip
def test_what_differs_in_more_stays_apart(other):
    assert len(rows_of(operator(module="layer.3.attention"), other)) == 2


def test_order_and_times_of_rows():
    # Bound and headroom of a folded row are its time.
    fast = operator(module="a.0", time_s=1e-3, lower_bound_s=1.2e-3, efficiency=1.2, headroom_s=0.0, flag="too fast")
    slow = operator(module="a.1", time_s=3e-3, lower_bound_s=1e-3, efficiency=1 / 3, headroom_s=2e-3)
    (one,) = rows_of(fast, slow)
    assert one.row.lower_bound_s + one.row.headroom_s == pytest.approx(one.row.time_s)
    assert one.row.efficiency == pytest.approx(0.5)
    assert one.row.flag is None
    # The flag of a part is kept, and says which part.
    assert [flag_sentence(row) for row in flagged_rows(replace(sample(), operators=(fast, slow), coverage=None))] == [
        "mm in a.* ×2 (1 of 2) reaches 120 % efficiency: too fast"
    ]
    (both,) = rows_of(fast, replace(fast, module="a.1"))
    assert (both.row.flag, both.row.efficiency) == ("too fast", pytest.approx(1.2))
    # The order is by what could be gained.
    unbounded = operator("aten::b", time_s=8e-4, lower_bound_s=None, efficiency=None, headroom_s=None)
    rows = rows_of(operator("aten::a"), unbounded, operator("aten::c", headroom_s=9e-4, time_s=9.5e-4))
    assert [one.row.name for one in rows] == ["aten::c", "aten::b", "aten::a"]
    assert table_order(rows) == "most headroom first, rows without a bound by time"
    assert table_order(rows_of(unbounded)) == "longest first"
    assert table_order(rows_of(operator("aten::a"))) == "most headroom first"


def test_operators_without_a_count_are_rows_in_every_report(tmp_path):
    analysis = variants.repeated()
    for text in (shown(analysis), markdown.render(view.page(analysis)).replace("\\", "")):
        assert "element-wise fill" in text or "element-w" in text
        assert "unknown" in text
        assert "×12" in text
    sections = pdf.content(view.page(analysis))["sections"]
    tables = [block for section in sections for block in section["blocks"] if block["kind"] == "table"]
    assert any("element-wise" in cell["text"] for table in tables for row in table["rows"] for cell in row["cells"])
    table = operator_table(analysis)
    remarks = [part.text for row in table.rows for part in row.detail if isinstance(part, Paragraph)]
    assert remarks == ["No count: launched outside any operator."]
    assert "FillFunctor" in table.rows[[one.reason != "" for one in table_rows(analysis)].index(True)].cells[1].hover


def test_kernels_and_names_of_rows():
    # Kernels are short and their full name is kept.
    analysis = variants.repeated()
    one = next(row for row in table_rows(analysis) if row.row.name == "aten::mm")
    assert (one.row.kernels[0].calls, one.row.kernels[0].streams) == (12, (7,))
    modules, kernels = operator_table(analysis).rows[table_rows(analysis).index(one)].detail
    cell = kernels.rows[0].cells[1]
    assert (cell.value, cell.hover) == ("GEMM bf16 128x128x64 (cuBLAS)", one.row.kernels[0].name)
    assert len(modules.rows) == 12
    # Names of rows.
    # An operator that is named as its kernel is no kernel.
    (one,) = rows_of(operator("triton_poi_fused_0", kernels=(Kernel(name="triton_poi_fused_0", calls=1, time_s=1e-3),)))
    assert table_title([one]) == "Operators"
    # A shortened path keeps its number of modules.
    assert shorten_path("model.encoder.layers.*.attention.self ×12", 22) == "…*.attention.self ×12"


@pytest.mark.parametrize("name", REAL)
def test_sums_over_the_rows_are_those_of_the_analysis(name):
    analysis = rooflines.analyze(TRACES / f"{name}.json.gz")
    rows = table_rows(analysis)
    coverage = analysis.coverage or Coverage(modeled_time_fraction=None)
    assert sum(len(one.members) for one in rows) == len(analysis.operators) + len(coverage.unmodeled)
    whole = sum(row.time_s for row in (*analysis.operators, *coverage.unmodeled))
    assert sum(one.row.time_s for one in rows) == pytest.approx(whole)
    for one in rows:
        assert one.row.time_s == pytest.approx(sum(member.time_s for member in one.members))
        assert operator_name(one.row)
        if one.row.lower_bound_s is not None and not one.row.flag:
            unjudged_s = sum(member.time_s for member in one.members if member.lower_bound_s is None)
            assert one.row.lower_bound_s + one.row.headroom_s + unjudged_s == pytest.approx(one.row.time_s, rel=0.051)
    headroom = sum(one.row.headroom_s or 0.0 for one in rows)
    assert headroom == pytest.approx(analysis.totals.headroom_s, abs=1e-12) or analysis.totals.headroom_s is None


def test_a_row_without_a_count_keeps_its_lines_and_the_times_of_its_steps():
    lines = (LineShare(place="net.py:7", share=1.0),)
    gap = Unmodeled(name="mine::op", calls=1, time_s=0.01, reason="no formula", lines=lines, step_times_s=(0.009, 0.011))
    made = replace(sample(), operators=(), coverage=Coverage(modeled_time_fraction=0.0, unmodeled=(gap,)))
    (row,) = (one.row for one in table_rows(made) if one.reason)
    assert (row.lines, row.step_times_s) == (lines, (0.009, 0.011))
