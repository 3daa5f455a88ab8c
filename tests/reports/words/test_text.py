"""Names and numbers as texts that fit."""

import pytest
from msgspec.structs import replace

from rooflines.reports import document
from rooflines.reports.words import text as words
from rooflines.reports.words.sentences import suggested
from rooflines.roofline.analysis import Finding
from tests import samples


@pytest.mark.parametrize(("values", "unit", "texts"), [
    ([0.0302, 0.0093, 0.00001], "ms", ["30.2", "9.3", "<0.1"]),
    ([0.00302, None, -0.0015], "ms", ["3.02", "–", "-1.50"]),
    ([2.0, 0.0], "s", ["2.00", "0.00"]),
    ([None], "s", ["–"]),
])  # fmt: skip
def test_a_column_has_one_unit_and_one_number_of_decimals(values, unit, texts):
    table = document.table("", [document.Column("time", "s", "scaled")], [(value,) for value in values])
    found = document.texts(table)
    assert found.units == (unit,)
    assert [text for (text,) in found.rows] == texts


def test_an_efficiency_is_never_rounded_to_nothing_and_above_one_is_marked():
    assert [words.efficiency_text(value) for value in (None, 0.0, 0.003, 0.42, 1.0, 1.71)] == ["–", "0", "<1", "42", "100", "!171"]


def test_names_and_shapes_are_cut():
    # A name is abbreviated before it is cut.
    assert words.shorten_name("convolution_backward", 20) == "convolution_backward"
    assert words.shorten_name("convolution_backward", 16) == "convolution_bwd"
    assert words.shorten_name("native_batch_norm_backward", 14) == "batch_norm_bwd"
    assert words.shorten_name("scaled_dot_product_attention", 15) == "scaled_…tention"
    # Of shapes the last matrix is kept, which is the weight.
    assert words.shorten_shapes("4x64x56x56, 64x64x3x3", 30) == "4x64x56x56, 64x64x3x3"
    assert words.shorten_shapes("4x64x56x56, 64x64x3x3", 15) == "…64x64x3x3"
    assert words.shorten_shapes("4x64x56x56, 64, 64, 64, 64", 15) == "…4x64x56x56"
    assert words.shorten_shapes("4x64x56x56, 64x64x3x3", 6) == "…4x3x3"
    # The phase is told where the name does not.
    row = samples.analysis().operators[0]
    assert words.operator_name(replace(row, name="aten::mm", phase="backward")) == "mm (backward)"
    assert words.operator_name(replace(row, name="aten::convolution_backward", phase="backward")) == "convolution_backward"
    assert words.operator_module(replace(row, module="", phase="optimizer")) == "(optimizer)"


@pytest.mark.parametrize(("path", "width", "text"), [
    ("layer1.0.conv2", 14, "layer1.0.conv2"),
    ("backbone.layer1.0.conv2", 14, "…0.conv2"),
    ("encoder.layers.11.attention.output.dense", 16, "…11…output.dense"),
    ("encoder.layers.11.attention.output.dense", 12, "…11…dense"),
    ("encoder.attention.output.dense", 14, "…output.dense"),
    ("a_module_with_one_long_name", 10, "…long_name"),
    ("", 5, ""),
])  # fmt: skip
def test_a_path_keeps_its_end_and_the_number_of_its_layer(path, width, text):
    assert words.shorten_path(path, width) == text
    assert len(words.shorten_path(path, width)) <= width


@pytest.mark.parametrize(("command", "option", "value", "expected"), [
    ("rooflines profile --model resnet50 -o OUT", "compile", "on", "rooflines profile --model resnet50 --compile on"),
    ("rooflines profile --model m --batch-size 4 -q", "batch_size", 8, "rooflines profile --model m --batch-size 8"),
    ("rooflines profile --model=m --precision=fp32 --formats pdf", "precision", "bf16", "rooflines profile --model=m --precision bf16"),
    ("rooflines profile train.py -- -o x --compile", "compile", "on", "rooflines profile train.py --compile on -- -o x --compile"),
    ("my_training.py", "channels_last", True, "what it says itself"),
    ("rooflines profile --model m", None, None, "what it says itself"),
])  # fmt: skip
def test_the_suggested_command_is_the_run_s_own_with_one_change(command, option, value, expected):
    finding = Finding(title="", saves_s=0.0, evidence="", suggestion="what it says itself", option=option, value=value)
    assert suggested(finding, command) == expected
