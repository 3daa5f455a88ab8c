"""Calls as other programs and machines record them: inside of wrapped tensors, on Windows, by old versions of PyTorch."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import rooflines
from tests.marks import recent_torch
from tests.roofline.rooms import analyzed, divided, recorded
from tests.traces import kernel, launch, mm, op


def test_the_inner_call_of_a_tensor_subclass_owns_the_work():
    """DTensor records the product of the whole operands around that of the part which this rank holds."""
    found = divided(
        mm(0, 100, 64, 32, 96), mm(10, 80, 64, 32, 48), launch(20, 5, 1), kernel("ampere_sgemm_128x64_tn", 40, 50, 1),
    )  # fmt: skip
    assert [(row.signature.shapes(), row.work.matrix_flops) for row in found.rows] == [("64x32, 32x48", 2 * 64 * 32 * 48)]


@pytest.mark.parametrize("inner", [mm(10, 80, 64, 32, 192), op("aten::mul", 10, 80, dims=[[4], [4]], types=["float", "float"])])
def test_a_larger_call_or_one_of_another_name_does_not(inner):
    found = divided(mm(0, 100, 64, 32, 96), inner, launch(20, 5, 1), kernel("ampere_sgemm_128x64_tn", 40, 50, 1))
    assert sum(row.work.matrix_flops for row in found.rows) == 2 * 64 * 32 * 96


@pytest.mark.ci
def test_ranks_count_what_they_hold(tmp_path):
    """20 rows: layers 64 to 96 to 32, of which each of two ranks has half, and 64 to 48 to 16, which are gathered; no gradient of the
    input."""
    subprocess.run([sys.executable, "-m", "tests.roofline.two_ranks", str(tmp_path)], check=True, capture_output=True, timeout=300)
    half, whole = (48 * 64, 48 * 32), (48 * 64, 16 * 48)
    for name, (first, second) in (("parallel", half), ("sharded", whole)):
        for rank in range(2):
            found = rooflines.analyze(tmp_path / f"{name}{rank}.json")
            assert found.totals.matrix_flops == 2 * 20 * (2 * first + 3 * second), (name, rank)


class _Logged(torch.Tensor):
    """A tensor subclass that does in Python what it is asked for."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(func(*(one.held if isinstance(one, cls) else one for one in args), **(kwargs or {})))


ROWS, WEIGHT = torch.ones(20, 64), torch.ones(64, 48)
PRODUCT = 2 * 20 * 64 * 48


@pytest.mark.parametrize(
    ("work", "flops"),
    [
        (lambda: torch.mm(_Logged(ROWS), WEIGHT), PRODUCT),
        # Traces of an older torch do not show that a subclass calls twice what it was called for.
        pytest.param(lambda: torch.mm(TwoTensor(ROWS, ROWS), WEIGHT), 2 * PRODUCT, marks=recent_torch),
        (lambda: torch.vmap(lambda one: one @ WEIGHT)(ROWS.expand(7, 20, 64)), 7 * PRODUCT),
        (lambda: torch.func.grad(lambda weight: (ROWS @ weight).sum())(WEIGHT), 2 * PRODUCT),
        (lambda: nn.functional.linear(torch.nested.nested_tensor([ROWS, ROWS], layout=torch.jagged), WEIGHT.t()), 2 * PRODUCT),
    ],
)
def test_what_is_inside_of_wrapped_tensors_counts(tmp_path, work, flops):
    work()
    assert recorded(tmp_path, work, record_shapes=True).totals.matrix_flops == flops


@pytest.mark.parametrize(("width", "size"), [("2u", 2), ("4u", 4), ("8", 8)])
def test_a_kernel_that_concatenates_names_the_size_of_an_element(tmp_path, width, size):
    name = f"void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<{width}>, int>"
    cat = op("aten::cat", 0, 20, dims=[[[16, 8], [16, 8]], []], types=["TensorList", "Scalar"], concrete=["", "0"])
    (row,) = analyzed(tmp_path, cat, launch(5, 5, 1), kernel(name, 12, 10, 1)).operators
    assert row.bytes == 2 * 2 * 16 * 8 * size


def test_integers_of_windows_are_integers(tmp_path):
    counter = op("aten::add_", 0, 20, dims=[[3], [], []], types=["__int64", "Scalar", "Scalar"], concrete=["", "1", "1"])
    (row,) = analyzed(tmp_path, counter).operators
    assert row.bytes == 2 * 8 * 3


def test_a_struct_of_windows_is_a_dtype(tmp_path):
    (row,) = analyzed(tmp_path, op("aten::mm", 0, 10, dims=[[4, 8], [8, 2]], types=["struct c10::BFloat16"] * 2)).operators
    assert (row.precision, row.matrix_flops) == ("bf16", 2 * 4 * 8 * 2)


def test_a_range_of_torch_1_8_is_no_operator(tmp_path):
    old = {"Trace name": "PyTorch Profiler"}
    add = op("aten::mul", 100, 50, dims=[[4], [4]], types=["float", "float"])
    events = [op("model_inference", 0, 1000) | {"cat": "Operator", "args": old}, add | {"args": add["args"] | old}]
    assert {row.name for row in analyzed(tmp_path, *events).rows} == {"aten::mul"}
