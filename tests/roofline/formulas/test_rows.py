"""Rows of operators: what a schema binds, what expressions say, and which calls are not counted."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import NotCounted
from rooflines.roofline.count.formulas.record import Work
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.rows import FormulaRow, formula_of, function_work, row_work

LEFT, RIGHT, BIAS = TensorArg((4, 6), "bfloat16"), TensorArg((6, 5), "bfloat16"), TensorArg((5,), "float32")
PRODUCT = FormulaRow(
    "read left[*rows k], read right[k n], read bias[n]?",
    matrix="2 * rows * k * n",
    other="rows * n * bool(bias)",
    writes="2 * rows * n",
)


def work(row, *args, hints=None):
    return row_work(Signature("lib::op", args), row, hints)


def test_a_product_by_the_names_of_its_dimensions():
    """4 x 6 by 6 x 5: 240 FLOPs; 24 and 30 numbers of 2 bytes, 5 of 4; the leading dimensions are rows."""
    assert work(PRODUCT, LEFT, RIGHT, BIAS) == Work(240, 20, 48 + 60 + 20, 40, "bf16")
    assert work(PRODUCT, LEFT, RIGHT, None) == Work(240, 0, 48 + 60, 40, "bf16")
    assert work(PRODUCT, TensorArg((2, 2, 6), "bfloat16"), RIGHT, None) == Work(240, 0, 48 + 60, 40, "bf16")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ((LEFT, TensorArg((7, 5), "bfloat16")), "dimensions 6 and 7 differ"),
        ((LEFT, TensorArg((5,), "bfloat16")), "another version"),
        ((LEFT,), "shape of 'right' not recorded"),
        ((LEFT, RIGHT, TensorArg((6,), "float32")), "dimensions 5 and 6 differ"),
    ],
)
def test_a_call_that_does_not_fit_is_not_counted(args, reason):
    with pytest.raises(NotCounted, match=reason):
        work(PRODUCT, *args)


def test_an_absent_tensor_leaves_its_dimensions_to_others():
    row = FormulaRow("read bias[n]?, read x[m n]", other="m * n", precision="x")
    assert work(row, None, LEFT) == Work(0, 24, 48, 0, "bf16")
    assert work(FormulaRow("read bias[n]?, read x", other="n", precision="x"), None, LEFT) == Work(0, 0, 48, 0, None)


def test_verbs_say_what_is_moved_and_view_only_names():
    row = FormulaRow("write out, read x, update sum, view names[r s], eps=0", costs.RMS_NORM, "x", other="r * s")
    x = TensorArg((10,), "float16")
    assert work(row, x, x, x, TensorArg((3, 7), "int32")) == Work(0, 10 * costs.RMS_NORM + 21, 40, 40, "fp16")


def test_arguments_are_values_and_lists_of_tensors_add_up():
    row = FormulaRow("read parts*, groups, out_dtype=None", other="parts.n // groups", writes="parts.n * item('out_dtype', 'float32')")
    assert work(row, (LEFT, LEFT), 4) == Work(0, 12, 96, 192, "bf16")
    assert work(row, (LEFT, LEFT), 4, 5).bytes_written == 96
    with pytest.raises(NotCounted, match="argument 'groups' not recorded"):
        work(row, (LEFT,))
    with pytest.raises(NotCounted, match="invalid size"):
        work(row, (LEFT,), 0)
    with pytest.raises(NotCounted, match="shapes not recorded"):
        work(FormulaRow("read x", other="x[2]"), LEFT)


def test_steps_hints_and_an_assumption_that_depends_on_the_call():
    row = FormulaRow(
        "read x[n d], keep", where="kept = n // keep; made = kept * d", other="made", writes="returned('sizes not known')",
        assumption="even", given="keep > 1",
    )  # fmt: skip
    hints = Hints(output_bytes=77)
    assert work(row, LEFT, 2, hints=hints) == Work(0, 12, 48, 77, "bf16", "even")
    assert work(row, LEFT, 1, hints=hints).assumption == ""
    with pytest.raises(NotCounted, match="sizes not known"):
        work(row, LEFT, 2)


def test_a_backward_node_has_the_gradient_before_the_arguments_of_its_forward():
    row = FormulaRow("read grad, read x[m k], read rest*", other="grad.n + m * k + rest.n", result="x")
    node = Signature("FnBackward", ((BIAS,), LEFT, RIGHT, RIGHT))
    assert function_work(node, row) == Work(0, 5 + 24 + 60, 20 + 48 + 120, 48, "fp32")
    with pytest.raises(NotCounted, match="forward call is not in the trace"):
        function_work(Signature("FnBackward", (LEFT,)), row)


def test_rows_are_tried_in_their_order_and_a_condition_decides():
    """A newer version has a number before the tensor; of the older one the number of a kind says what is written."""
    newer = FormulaRow("number, read x", 1, "x", result="x")
    kinds = tuple(
        FormulaRow("read x, kind", 1, "x", writes=f"{item} * x.n", fits=f"kind == {kind}") for kind, item in {0: 2, 1: 4}.items()
    )

    def written(*args):
        return formula_of((newer, *kinds))(Signature("lib::two", args), Hints()).bytes_written

    assert [written(3, LEFT), written(LEFT, 0), written(LEFT, 1)] == [48, 48, 96]
    with pytest.raises(NotCounted, match="another version"):
        written(LEFT, 2)


def test_an_optional_tensor_of_a_function_is_told_by_its_dimensions():
    """[4, 6], perhaps a second one like it, and others: 24 or 12 results, each with one more operation for each other tensor."""
    row = FormulaRow("read x[*rows k], read up[*=rows =k]?, read more*", other="(x.n if up else x.n // 2) * (1 + len(more))")
    assert function_work(Signature("Fn", (LEFT, LEFT, BIAS)), row).other_flops == 24 * 2
    assert function_work(Signature("Fn", (LEFT, BIAS)), row).other_flops == 12 * 2
    assert function_work(Signature("Fn", (LEFT,)), row).other_flops == 12


def test_parts_of_experts_and_bytes_beside_the_operands():
    """3 rows use 3 of 8 experts' parts of a weight of 8 * 30 * 2 bytes; a flag that was recorded adds 7 bytes."""
    row = FormulaRow(
        "read x[rows k], view weight[experts n], flag=None", also="share(experts, rows, weight) + 7 * (value('flag') is True)"
    )
    x, weight = TensorArg((3, 6), "bfloat16"), TensorArg((8, 30), "bfloat16")
    assert work(row, x, weight).bytes_read == 36 + 480 * 3 // 8
    assert work(row, x, weight, True).bytes_read == 36 + 180 + 7
