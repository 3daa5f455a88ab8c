"""Arguments as traces record them: types in the spellings of Kineto and of other tools."""

import numpy as np
import pytest

from rooflines.profiler.read.distinct import distinct, distinct_rows
from rooflines.profiler.read.signature import MISSING, TensorArg, from_kineto


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("c10::BFloat16", "bfloat16"), ("c10::bfloat16", "bfloat16"), ("BFloat16", "bfloat16"), ("Float", "float32"), ("Long", "int64"),
     ("Half", "float16"), ("Int", "int32"), ("Double", "float64")],
)  # fmt: skip
def test_a_tensor_s_type_is_known_in_any_spelling(kind, dtype):
    assert from_kineto("aten::relu", {"Input Dims": [[3, 5]], "Input type": [kind]}).args == (TensorArg((3, 5), dtype),)


@pytest.mark.parametrize("kind", ["Int", "Double", "Bool", "Scalar", "IntList"])
def test_a_number_without_sizes_is_no_tensor(kind):
    assert from_kineto("aten::add", {"Input Dims": [[]], "Input type": [kind]}).args == (MISSING,)


def test_arguments_of_every_kind():
    # Signature arguments.
    found = from_kineto("aten::conv2d", {
        "Input Dims": [[4, 3, 8, 8], [64, 3, 7, 7], [], [], [], [], []],
        "Input type": ["float", "c10::BFloat16", "", "ScalarList", "ScalarList", "Scalar", "Scalar"],
        "Input Strides": [[192, 64, 8, 1], [147, 49, 7, 1], [], [], [], [], []],
        "Concrete Inputs": ["", "", "", "[2, 2]", "[3, 3]", "False", "1.0000000000000001e-05"],
    })  # fmt: skip
    assert found.args == (
        TensorArg((4, 3, 8, 8), "float32", (192, 64, 8, 1)), TensorArg((64, 3, 7, 7), "bfloat16", (147, 49, 7, 1)), None,
        (2, 2), (3, 3), False, 1e-5,
    )  # fmt: skip
    assert found.shapes() == "4x3x8x8, 64x3x7x7"
    # Arguments of odd kinds.
    # Infinity is a number.
    fields = {"Input Dims": [[3], [], []], "Input type": ["float", "Scalar", ""], "Concrete Inputs": ["", "-inf", ""]}
    assert from_kineto("aten::linalg_vector_norm", fields).args[1] == float("-inf")
    # A tensor list takes the dtype it is told.
    fields = {"Input Dims": [[[2, 3], [4]], []], "Input type": ["TensorList", "Scalar"], "Concrete Inputs": ["", "1"]}
    found = from_kineto("aten::cat", fields, "bfloat16")
    assert found.args == ((TensorArg((2, 3), "bfloat16"), TensorArg((4,), "bfloat16")), 1)
    # An expanded dimension is stored once.
    expanded = TensorArg((8, 16), "float32", (0, 1))
    assert (expanded.numel, expanded.distinct, expanded.nbytes) == (128, 16, 64)


RANGES = pytest.mark.parametrize("most", [1, 3, 100, 1 << 40, (1 << 63) - 1], ids=str)
LENGTHS = pytest.mark.parametrize("length", [0, 1, 2, 257])


def column(length, most, seed=0):
    return np.random.default_rng(seed).integers(-most, most, length)


@RANGES
@LENGTHS
def test_numbers(length, most):
    values = column(length, most)
    found, which = distinct(values)
    assert found.tolist() == sorted(set(values.tolist()))
    assert found[which].tolist() == values.tolist()
    assert distinct(values > 0)[0].tolist() == sorted({value > 0 for value in values.tolist()})


@RANGES
@LENGTHS
def test_rows(length, most):
    columns = (column(length, most), column(length, 2, seed=1).astype(np.int32), column(length, 5, seed=2).astype(np.int8))
    rows, which = distinct_rows(*columns)
    expected = list(zip(*(one.tolist() for one in columns), strict=True))
    assert [tuple(row) for row in rows.tolist()] == sorted(set(expected))
    assert [tuple(row) for row in rows[which].tolist()] == expected
    assert rows.shape[1] == 3
