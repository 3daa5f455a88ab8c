"""Arguments as traces record them: types in the spellings of Kineto and of other tools."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import MISSING, TensorArg, from_kineto


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
