"""The work of a fused kernel from facts written by hand: FLOPs of its operators, bytes at its edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.compiled.records import Access, Buffer, CompiledKernel
from rooflines.profiler.read.signature import Signature, StoredCall, TensorArg
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.costs import ERF, TRANSCENDENTAL
from rooflines.roofline.count.formulas.graph import count_kernel

N = 1000
VECTOR = Buffer((N,), "float32", (1,))
X = TensorArg((N,), "float32", (1,))


def whole(buffer, size=N, **more):
    """An access that reaches every one of ``size`` elements."""
    return Access(buffer, size, 0, size - 1, **more)


def call(name, *args, results=(X,)):
    return StoredCall.of(Signature(name, args), results)


def test_operators_add_up_and_only_the_edges_move():
    # relu(a + b) * 2: three operators, two vectors in, one out; what is between them is in no fact
    nodes = [call("aten::add", X, X, 1), call("aten::relu", X), call("aten::mul", X, 2.0)]
    kernel = CompiledKernel(name="k", nodes=(0, 1, 2), reads=(whole(0), whole(1)), writes=(whole(2),))
    found = count_kernel(kernel, [VECTOR] * 3, nodes)
    assert found.kind == "counted"
    assert (found.work.other_flops, found.work.matrix_flops) == (3 * N, 0)
    assert (found.work.bytes_read, found.work.bytes_written, found.work.precision) == (2 * 4 * N, 4 * N, "fp32")
    assert found.category == "element-wise"


def test_the_kernel_belongs_to_what_costs_most():
    nodes = [call("aten::erf", X), call("aten::sum", X, results=(TensorArg((), "float32", ()),))]
    found = count_kernel(CompiledKernel(name="k", nodes=(0, 1), reads=(whole(0),)), [VECTOR], nodes)
    assert found.category == "element-wise"
    assert found.work.other_flops == ERF * N + count(nodes[1].signature).work.other_flops
    reduction = count_kernel(CompiledKernel(name="k", nodes=(1,), reads=(whole(0),)), [VECTOR], nodes)
    assert reduction.category == "reduction"


def test_a_product_in_a_kernel_is_matrix_work():
    left, right = TensorArg((8, 16), "bfloat16", (16, 1)), TensorArg((16, 4), "bfloat16", (4, 1))
    result = TensorArg((8, 4), "bfloat16", (4, 1))
    nodes = [call("aten::mm", left, right, results=(result,)), call("aten::relu", result, results=(result,))]
    work = count_kernel(CompiledKernel(name="k", nodes=(0, 1)), [], nodes).work
    assert (work.matrix_flops, work.other_flops, work.bytes, work.precision) == (2 * 8 * 16 * 4, 8 * 4, 0, "bf16")


def test_views_cost_nothing_and_a_kernel_without_arithmetic_is_a_copy():
    nodes = [call("aten::reshape", X, (10, 100)), call("aten::permute", X, (0,))]
    found = count_kernel(CompiledKernel(name="k", nodes=(0, 1), reads=(whole(0),), writes=(whole(1),)), [VECTOR] * 2, nodes)
    assert (found.kind, found.category, found.work.flops, found.work.bytes) == ("counted", "copy", 0, 8 * N)


def test_one_operator_without_a_formula_makes_the_kernel_unknown():
    nodes = [call("aten::relu", X), call("mylib::secret", X)]
    found = count_kernel(CompiledKernel(name="k", nodes=(0, 1), reads=(whole(0),)), [VECTOR], nodes)
    assert (found.kind, found.work, found.reason) == ("unknown", None, "mylib::secret in it: no formula")


def test_a_reason_is_kept():
    assert count_kernel(CompiledKernel(name="k", reason="because"), [], []).reason == "because"


def test_a_dtype_without_a_size_is_a_reason():
    found = count_kernel(CompiledKernel(name="k", reads=(whole(0),)), [Buffer((N,), "bits1x8", (1,))], [])
    assert (found.kind, found.reason) == ("unknown", "unknown dtype 'bits1x8'")


# --- bytes of the accesses to a buffer ---------------------------------------------------------------------------------------------


TABLE = Buffer((100, 8), "float32", (8, 1))
EVEN, ODD = Access(0, N // 2, 0, N - 2), Access(0, N // 2, 1, N - 1)
FIRST, SECOND = Access(0, N // 2, 0, N // 2 - 1), Access(0, N // 2, N // 2, N - 1)
GATHER = Access(0, 24, 0, 799, anywhere=True)
# Accesses, the buffers, the bytes that are reached.
TOUCHED = {
    "each buffer at its own dtype": (
        [whole(index) for index in range(4)], [VECTOR, *(Buffer((N,), dtype, (1,)) for dtype in ("bfloat16", "int64", "bool"))],
        (4 + 2 + 8 + 1) * N,
    ),
    "the same elements in another order are read once": ([whole(0), whole(0)], [VECTOR], 4 * N),
    "a half": ([FIRST], [VECTOR], 4 * (N // 2)),
    "two halves are the whole": ([FIRST, SECOND], [VECTOR], 4 * N),
    "every other element is a half though it spans the whole": ([EVEN], [VECTOR], 4 * (N // 2)),
    "even and odd ones are the whole": ([EVEN, ODD], [VECTOR], 4 * N),
    "windows that overlap, 0 to 108": ([Access(0, 100, start, start + 99) for start in range(10)], [VECTOR], 4 * 109),
    "an expanded buffer holds its storage once": ([whole(0, 64 * N)], [Buffer((64, N), "float32", (0, 1))], 4 * N),
    "a gather reads what it asks for": ([GATHER], [TABLE], 4 * 24),
    "two places that depend on values are two": ([GATHER] * 2, [TABLE], 4 * 48),
    "at most the table": ([Access(0, 800, 0, 799, anywhere=True)] * 2, [TABLE], 4 * 800),
}  # fmt: skip


@pytest.mark.parametrize("name", TOUCHED)
def test_bytes_that_accesses_reach(name):
    accesses, buffers, reached = TOUCHED[name]
    assert count_kernel(CompiledKernel(name="k", reads=tuple(accesses)), buffers, []).work.bytes_read == reached


def test_what_is_added_to_memory_is_read_too():
    added = Access(0, 24, 0, N - 1, adds=True, anywhere=True)
    work = count_kernel(CompiledKernel(name="k", writes=(added,)), [VECTOR], []).work
    assert (work.bytes_read, work.bytes_written) == (4 * 24, 4 * 24)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50), st.integers(1, 4)), min_size=1, max_size=5))
def test_it_is_never_less_than_the_elements_that_strided_accesses_reach(strides):
    """Against the elements themselves: ``size`` of them from ``start``, each ``step`` from the last."""
    reached = {start + step * turn for start, size, step in strides for turn in range(size)}
    extent = max(reached) + 1
    accesses = [Access(0, size, start, start + step * (size - 1)) for start, size, step in strides]
    kernel = CompiledKernel(name="k", reads=tuple(accesses))
    found = count_kernel(kernel, [Buffer((extent,), "uint8", (1,))], []).work.bytes_read
    assert len(reached) <= found <= extent


def test_softmax_statistics_are_softmax_without_its_division():
    rows = TensorArg((4, N), "float32", (N, 1))
    row = TensorArg((4, 1), "float32", (1, 1))
    online = count(Signature("prims::prepare_softmax_online", (rows, 1)), outputs=(row, row)).work
    softmax = count(Signature("aten::_softmax", (rows, 1, False)), outputs=(rows,)).work
    assert online.other_flops == softmax.other_flops - 4 * N
    assert (online.bytes_read, online.bytes_written) == (4 * 4 * N, 2 * 4 * 4)


def test_random_numbers_say_their_kind():
    seed = TensorArg((), "int64", ())
    uniform = count(Signature("prims::inductor_random", ((N,), seed, "rand")), outputs=(X,)).work
    normal = count(Signature("prims::inductor_random", ((N,), seed, "randn")), outputs=(X,)).work
    assert uniform.other_flops == 2 * N
    assert normal.other_flops == (2 * TRANSCENDENTAL + 2) * N
    unknown = count(Signature("prims::inductor_random", ((N,), seed, "zipf")), outputs=(X,))
    assert (unknown.kind, unknown.work) == ("unknown", None)


def test_a_pool_that_keeps_offsets_costs_its_windows():
    image, pooled = TensorArg((2, 3, 8, 8)), TensorArg((2, 3, 4, 4))
    offsets = TensorArg((2, 3, 4, 4), "int8")
    args = (image, (3, 3), (2, 2), (1, 1), (1, 1), False)
    work = count(Signature("prims::_low_memory_max_pool_with_offsets", args), outputs=(pooled, offsets)).work
    assert work.other_flops == 9 * 2 * 3 * 4 * 4
    assert (work.bytes_read, work.bytes_written) == (4 * 2 * 3 * 64, (4 + 1) * 2 * 3 * 16)


def test_fma_is_two_flops_also_with_a_number():
    assert count(Signature("prims::fma", (X, X, X))).work.other_flops == 2 * N
    work = count(Signature("prims::fma", (X, 0.9, X))).work
    assert (work.other_flops, work.bytes_read, work.bytes_written) == (2 * N, 8 * N, 4 * N)


def test_a_packed_linear_layer_of_a_trace_has_the_original_weights_work():
    # mkl::_mkl_linear(x, packed, weight, bias, batch): the packed weight has no strides in a trace
    x, packed, weight = TensorArg((2, 8), "float32", (8, 1)), TensorArg((999, 1), "float32", ()), TensorArg((16, 8), "float32", (8, 1))
    work = count(Signature("mkl::_mkl_linear", (x, packed, weight, None, 2))).work
    assert (work.matrix_flops, work.bytes_read, work.bytes_written) == (2 * 2 * 8 * 16, 4 * (2 * 8 + 16 * 8), 4 * 2 * 16)


def test_a_scatter_into_a_constant_is_a_choice_for_each_result():
    # inductor::scatter_upon_const_tensor is where(index == selector, value, background): compare and choose
    work = count(Signature("inductor::scatter_upon_const_tensor"), outputs=(X,)).work
    assert (work.other_flops, work.bytes_read, work.bytes_written) == (2 * N, 0, 4 * N)
