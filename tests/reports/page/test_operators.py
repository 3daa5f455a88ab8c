"""The tables of operators: what has no count and how to add a formula, and the marks of what was inferred."""

import re

import pytest
from msgspec.structs import replace

import rooflines
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.reports.document import Paragraph, Table
from rooflines.reports.page import operators, run
from rooflines.reports.page import run as view
from rooflines.reports.page.operators import operator_table
from rooflines.reports.render import html
from rooflines.reports.words.sentences import inferred_sentence
from rooflines.roofline.analysis import Unmodeled
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.families import load_file
from tests import samples
from tests.printing import in_terminal


def without_count(*missing):
    sample = samples.analysis()
    return replace(sample, coverage=replace(sample.coverage, unmodeled=missing))


def one(name, time_s, reason="no formula", **more):
    return Unmodeled(name=name, calls=2, time_s=time_s, reason=reason, phase="forward", **more)


def section_of(*missing):
    return operators.coverage_section(without_count(*missing), "Measurement quality")


def table_of(section):
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    return table


def code_of(section):
    return [block.text for block in section.blocks if isinstance(block, Paragraph) and block.kind == "code"]


def test_an_operator_of_many_modules_and_shapes_is_one_row():
    table = table_of(section_of(one("lib::a", 0.25, module="x", shapes="2x3"), one("lib::b", 0.5), one("lib::a", 0.375, module="y")))
    names = [row.cells[1].value for row in table.rows]
    assert names == ["lib::a", "lib::b"]  # 0.625 s together, so before b's 0.5 s
    assert [row.cells[2] for row in table.rows] == [0.625, 0.5]
    assert [row.cells[3] for row in table.rows] == [4, 2]


def test_the_lines_for_a_formula_work_as_they_stand_once_completed(tmp_path):
    section = section_of(one("lib::covered", 0.5, reason="argument 'k' not recorded"), one("lib::halve", 0.25))
    (code,) = code_of(section)
    assert code.count("\n") == 2
    assert '"lib::halve"' in code
    completed = code.replace("other_flops=...", "other_flops=op.tensors[0].numel").replace("...", "op.tensors[0].nbytes")
    path = tmp_path / "formulas.py"
    path.write_text(f"{completed}\n")
    load_file(path)
    found = count(Signature("lib::halve", (TensorArg((3, 5), "float16"),)))
    assert found.work == rooflines.Work(other_flops=15, bytes_read=30, bytes_written=30)


def test_rows_and_lines_for_a_formula():
    # No lines are given where a formula exists.
    assert code_of(section_of(one("aten::mm", 0.5, reason="shape of 'self' not recorded"))) == []
    # Half of the step in such an operator; one of a recorded trace has evidence.
    sample, step_s = samples.analysis(), samples.analysis().timeline.span_s
    rows = [
        replace(sample.operators[0], name=name, time_s=step_s / 4) for name in ("_C::rms_norm_weightless", "_C::rms_norm", "aten::mm")
    ]
    section = operators.coverage_section(replace(sample, operators=tuple(rows)), "Measurement quality")
    (text,) = (block.text for block in section.blocks if isinstance(block, Paragraph) and "source code" in block.text)
    assert text.startswith("Work models for 25 % of the step")
    assert text.endswith("_C::rms_norm_weightless.")
    assert not any("source code" in getattr(block, "text", "") for block in section_of().blocks)


def test_the_list_of_operators_without_a_formula():
    # A terminal lists the operators only where they take a noticeable share.
    step_s = samples.analysis().timeline.span_s
    assert table_of(section_of(one("lib::a", step_s / 10))).show == "always"
    assert table_of(section_of(one("lib::a", step_s / 1000))).show == "full"
    # The lines fit into 80 columns.
    text = in_terminal(run.page(without_count(one("vllm::unified_attention", step_s / 2))))
    assert '@formula("vllm::unified_attention", category="other")\n' in text
    assert "def work(op): return Work(other_flops=..., bytes_read=..., bytes_written=...)\n" in text
    # A formula that returns no numbers is named as the reason.
    rooflines.formula("lib::incomplete", category="other")(lambda call: rooflines.Work(bytes_read=...))
    rooflines.formula("lib::none", category="other")(lambda call: None)
    for name in ("lib::incomplete", "lib::none"):
        found = count(Signature(name))
        assert (found.kind, found.reason) == ("unknown", "its formula does not return rooflines.Work with whole numbers")


SOURCE = "output from its backward call"
SENTENCE = "* work inferred or estimated: the trace does not record all arguments"


def marked():
    sample = samples.analysis()
    rows = sorted(sample.operators, key=lambda row: -row.time_s)
    return replace(sample, operators=(replace(rows[0], inferred=SOURCE), *rows[1:]))


def printed(analysis):
    return " ".join(in_terminal(view.page(analysis), 100).split())


@pytest.mark.ci
def test_an_assumption_is_marked_in_every_report():
    assert inferred_sentence(marked()) == SENTENCE
    assert inferred_sentence(samples.analysis()) == ""
    # The terminal marks the name.
    assert SENTENCE in printed(marked())
    assert re.search(r" conv\S* \* ", printed(marked()))
    assert SENTENCE not in printed(samples.analysis())
    # The page marks the name and shows the source.
    first = operator_table(marked()).rows[0]
    assert first.cells[1].value.endswith(" *")
    assert any(SOURCE in remark.text for remark in first.remarks)
    assert SENTENCE in html.render(view.page(marked()))
    assert SENTENCE not in html.render(view.page(samples.analysis()))
    # The json and the table hold it where it is.
    first, second, *_ = marked().to_dict()["operators"]
    assert first["inferred"] == SOURCE
    assert "inferred" not in second
    assert marked().to_dataframe("operators")["inferred"].dropna().tolist() == [SOURCE]
