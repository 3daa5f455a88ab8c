"""Kernels that are launched below no counted operator: in a real trace of a mixture of experts, and in traces written by hand."""

from __future__ import annotations

import pytest

from tests.roofline.real import named
from tests.roofline.rooms import divided
from tests.traces import add, kernel, launch, op, span

MATMUL = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"


@pytest.fixture
def b200():
    return named("gpt-oss_b200_prefill")


def test_all_kernels_below_a_mixture_of_experts_are_counted(b200):
    assert not [row for row in b200.coverage.unmodeled if row.name == "vllm::moe_forward"]
    moe = [row for row in b200.operators if row.category == "moe"]
    assert sum(row.calls for row in moe) == 36 * 7
    assert all("FusedMoE" in row.module for row in moe)  # the module around the launch


def test_the_grouped_products_have_the_work_of_their_rows_and_weights(b200):
    """888 tokens, 4 of 128 experts each, hidden 3072, inner 512; weights of 17/32 bytes, rows of 33/32."""
    rows = 888 * 4
    first = [row for row in b200.operators if "swiglu" in row.name]
    second = [row for row in b200.operators if "GEMM" in row.name and row not in first]
    assert {row.flops - row.matrix_flops for row in second} == {0}
    assert sum(row.matrix_flops for row in first) == 36 * 2 * rows * 3072 * 1024
    assert sum(row.matrix_flops for row in second) == 36 * 2 * rows * 512 * 3072
    assert {row.bytes // row.calls for row in second} == {rows * 512 * 33 // 32 + 128 * 512 * 3072 * 17 // 32 + rows * 3072 * 2}
    assert all(0 < row.efficiency < 1 for row in (*first, *second))


def dims(*shapes, types, concrete):
    return {"dims": list(shapes), "types": list(types), "concrete": list(concrete)}


def moe(ts, at=1):
    """A wrapper that launches one grouped product of 8 rows, 6 experts, k 64 and n 32."""
    empty = dims([], [], types=("ScalarList", "Scalar"), concrete=("[1, 8, 32]", "15"))
    x = dims([8, 64], [], types=("c10::BFloat16", "ScalarList"), concrete=("", "[8, 64]"))
    w = dims([6, 32, 32], [], types=("unsigned char", "ScalarList"), concrete=("", "[6, 32, 32]"))
    return (
        op("vllm::moe_forward", ts, 20, **dims([8, 64], types=("c10::BFloat16",), concrete=("",))),
        op("aten::empty", ts + 1, 1, **empty), op("aten::view", ts + 3, 1, **x), op("aten::view", ts + 5, 1, **w),
        launch(ts + 8, 2, at), kernel(MATMUL, ts + 30, 5, at),
    )  # fmt: skip


def test_a_launch_owns_the_time_of_its_kernel_and_others_stay_with_the_operator():
    result = divided(*moe(0), launch(12, 2, 2), kernel("mystery", 40, 7, 2))
    (row,) = (row for row in result.rows if row.count.work.matrix_flops)
    assert row.signature.name == "grouped GEMM bf16 x mxfp4 16x128x256 (triton_kernels)"
    assert (row.count.work.matrix_flops, row.time_ns) == (2 * 8 * 64 * 32, 5000)
    (gap,) = result.gaps
    assert (gap.name, gap.time_ns) == ("vllm::moe_forward", 7000)


def test_two_calls_with_the_same_sizes_are_one_row():
    (row,) = (row for row in divided(*moe(0, 1), *moe(100, 2)).rows if row.count.work.matrix_flops)
    assert row.calls == 2


def test_a_kernel_below_a_counted_operator_is_that_operators():
    (row,) = divided(add(0, 10), launch(2, 2, 1), kernel(MATMUL, 20, 5, 1)).rows
    assert row.signature.name == "aten::add"


def test_a_kernel_launched_from_python_has_the_module_around_the_launch():
    result = divided(span("nn.Module: mlp (MLP)", 0, 50), *moe(2)[1:])
    (row,) = (row for row in result.rows if row.count.work.matrix_flops)
    assert row.module == 0
    (gap,) = divided(span("nn.Module: mlp (MLP)", 0, 50), launch(2, 2, 1), kernel("mystery", 60, 5, 1)).gaps
    assert (gap.name, gap.module) == ("mystery", 0)


def test_kernels_of_compiled_code_without_operators_have_their_own_names():
    result = divided(op("CompiledFunction", 0, 20), launch(2, 2, 1), launch(6, 2, 2), kernel("one", 30, 5, 1), kernel("two", 40, 6, 2))
    assert {(gap.name, gap.time_ns) for gap in result.gaps} == {("one", 5000), ("two", 6000)}
    assert {gap.reason for gap in result.gaps} == {"launched by torch.compile, which recorded none of its arguments"}
