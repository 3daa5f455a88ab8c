"""Matrix products: a product of ones counts its own multiply-adds; arithmetic by hand; figures published for real traces."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import rooflines
from rooflines.profiler.calls.signatures import call_signature
from rooflines.profiler.read.signature import MISSING, Signature, from_kineto
from rooflines.roofline.count.formulas import Work, count
from rooflines.roofline.count.formulas.costs import COMPLEX_ADD, GELU
from tests.marks import recent_torch
from tests.roofline.formulas.by_hand import tensor, work
from tests.roofline.formulas.helpers import called, nbytes
from tests.roofline.formulas.traces import operator_events, outermost

aten = torch.ops.aten


size = st.integers(0, 7)
some = st.integers(1, 7)


# --- a product of ones with ones: each result is the number of products summed into it -----------------------------------------------

ones = torch.ones
PRODUCTS = {
    "mm": (aten.mm.default, lambda b, m, k, n: (ones(m, k), ones(k, n))),
    "bmm": (aten.bmm.default, lambda b, m, k, n: (ones(b, m, k), ones(b, k, n))),
    "mv": (aten.mv.default, lambda b, m, k, n: (ones(m, k), ones(k))),
    "dot": (aten.dot.default, lambda b, m, k, n: (ones(k), ones(k))),
    "vdot": (aten.vdot.default, lambda b, m, k, n: (ones(k), ones(k))),
    "matmul of vectors": (aten.matmul.default, lambda b, m, k, n: (ones(k), ones(k, n))),
    "matmul broadcast": (aten.matmul.default, lambda b, m, k, n: (ones(b, 1, m, k), ones(3, k, n))),
    "linear": (aten.linear.default, lambda b, m, k, n: (ones(b, m, k), ones(n, k))),
}


@pytest.mark.parametrize("name", PRODUCTS)
@settings(deadline=None, max_examples=25)
@given(b=size, m=size, k=size, n=size)
def test_multiply_adds_are_what_a_product_of_ones_counts(name, b, m, k, n):
    func, shapes = PRODUCTS[name]
    operands = shapes(b, m, k, n)
    found, result = called(func, *operands)
    assert found == Work(
        matrix_flops=2 * int(result.sum()), bytes_read=nbytes(*operands), bytes_written=nbytes(result), precision="fp32"
    )  # fmt: skip


WITH_ADDITION = {
    "addmm": (aten.addmm.default, lambda b, m, k, n: (ones(n), ones(m, k), ones(k, n))),
    "addmm_": (aten.addmm_.default, lambda b, m, k, n: (ones(m, n), ones(m, k), ones(k, n))),
    "addmv": (aten.addmv.default, lambda b, m, k, n: (ones(m), ones(m, k), ones(k))),
    "baddbmm": (aten.baddbmm.default, lambda b, m, k, n: (ones(b, m, n), ones(b, m, k), ones(b, k, n))),
    "baddbmm_": (aten.baddbmm_.default, lambda b, m, k, n: (ones(b, m, n), ones(b, m, k), ones(b, k, n))),
    "addbmm": (aten.addbmm.default, lambda b, m, k, n: (ones(m, n), ones(b, m, k), ones(b, k, n))),
    "addbmm_": (aten.addbmm_.default, lambda b, m, k, n: (ones(m, n), ones(b, m, k), ones(b, k, n))),
    "linear": (aten.linear.default, lambda b, m, k, n: (ones(b, m, k), ones(n, k), ones(n))),
}


@pytest.mark.parametrize("name", WITH_ADDITION)
@settings(deadline=None, max_examples=25)
@given(b=some, m=some, k=some, n=some)
def test_what_is_added_is_one_flop_a_result(name, b, m, k, n):
    func, shapes = WITH_ADDITION[name]
    operands = shapes(b, m, k, n)
    read = nbytes(*operands)
    found, result = called(func, *operands)
    results = result.numel()
    # every result has one more than its products
    assert found == Work(2 * (int(result.sum()) - results), results, read, nbytes(result), "fp32")


@settings(deadline=None, max_examples=20)
@given(some, some, some, st.booleans())
def test_backward_is_a_product_for_each_operand(m, k, n, both):
    left, right = torch.rand(m, k, requires_grad=True), torch.rand(k, n, requires_grad=both)
    forward = 2 * m * k * n
    assert rooflines.count(torch.mm, left, right, backward=True).matrix_flops == (2 + both) * forward


BACKWARDS = {
    "aten::linear_backward": lambda i, g, w, mask: (i, g, w, mask),
    "aten::mkldnn_linear_backward": lambda i, g, w, mask: (i, g, w, mask),
}


@pytest.mark.parametrize("name", BACKWARDS)
@settings(max_examples=20)
@given(rows=some, k=some, n=some, mask=st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_gradients_of_a_linear_layer_are_counted_as_far_as_asked_for(name, rows, k, n, mask):
    found = work(name, *BACKWARDS[name](tensor(rows, k), tensor(rows, n), tensor(n, k), mask))
    assert (found.matrix_flops, found.other_flops) == (2 * rows * k * n * (mask[0] + mask[1]), rows * n * mask[2])
    assert found.bytes_read == 4 * (rows * n * any(mask) + n * k * mask[0] + rows * k * mask[1])
    assert found.bytes_written == 4 * (rows * k * mask[0] + n * k * mask[1] + n * mask[2])


def test_onednn_makes_the_gradients_one_by_one():
    one = work("aten::mkldnn_linear_backward_input", (6, 5), tensor(6, 4), tensor(4, 5))
    other = work("aten::mkldnn_linear_backward_weights", tensor(6, 4), tensor(6, 5), tensor(4, 5), True)
    both = work("aten::mkldnn_linear_backward", tensor(6, 5), tensor(6, 4), tensor(4, 5), (True, True, True))
    assert one.matrix_flops + other.matrix_flops == both.matrix_flops
    assert one.bytes_written + other.bytes_written == both.bytes_written


@settings(deadline=None, max_examples=20)
@given(st.booleans(), st.booleans())
def test_matmul_backward_is_a_product_for_each_gradient(of_left, of_right):
    found = work("aten::matmul_backward", tensor(2, 4, 6), tensor(2, 4, 5), tensor(5, 6), (of_left, of_right))
    assert found.matrix_flops == (of_left + of_right) * 2 * 2 * 4 * 5 * 6
    assert found.bytes_written == 4 * (of_left * 40 + of_right * 30)


# --- complex numbers ---------------------------------------------------------------------------------------------------------------


class Counted:
    """A real number that counts what is done to it."""

    flops = 0

    def __add__(self, other):
        Counted.flops += 1
        return self

    __sub__ = __mul__ = __add__


@settings(deadline=None, max_examples=20)
@given(some, some, some)
def test_a_complex_multiply_add_is_8_flops(m, k, n):
    Counted.flops = 0
    a, b, c, d, real, imaginary = (Counted() for _ in range(6))
    for _ in range(m * k * n):  # (real + i imaginary) += (a + i b)(c + i d)
        real, imaginary = real + (a * c - b * d), imaginary + (a * d + b * c)
    found, result = called(aten.mm.default, ones(m, k, dtype=torch.complex64), ones(k, n, dtype=torch.complex64))
    assert found == Work(Counted.flops, 0, 8 * (m * k + k * n), nbytes(result), "fp32")


def test_complex_numbers_have_the_precision_of_their_parts():
    double = tensor(4, 5, dtype="complex128"), tensor(5, 6, dtype="complex128")
    assert work("aten::mm", *double).precision == "fp64"
    biased = work("aten::addmm", tensor(6, dtype="complex64"), tensor(4, 5, dtype="complex64"), tensor(5, 6, dtype="complex64"), 1, 1)
    assert (biased.matrix_flops, biased.other_flops) == (8 * 4 * 5 * 6, COMPLEX_ADD * 24)


# --- operators with more to them ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(some, some, st.integers(0, 1))
def test_addr_is_a_multiplication_and_an_addition_a_result(m, n, beta):
    operands = torch.rand(m, n), torch.rand(m), torch.rand(n)
    found, result = called(aten.addr.default, *operands, beta=beta)
    assert found == Work(0, 2 * m * n, nbytes(*operands[1 - beta :]), nbytes(result), "fp32")


def test_addmm_without_beta_does_not_read_what_it_ignores():
    shapes = (tensor(6), tensor(4, 5), tensor(5, 6))
    assert work("aten::addmm", *shapes, 0, 1).bytes_read == work("aten::addmm", *shapes, 1, 1).bytes_read - 4 * 6
    assert work("aten::addmm", *shapes, MISSING, MISSING) == work("aten::addmm", *shapes, 1, 1)


def test_results_have_the_dtype_asked_for():
    halves = tensor(4, 5, dtype="bfloat16"), tensor(5, 6, dtype="bfloat16")
    assert work("aten::mm", *halves, 6).bytes_written == 4 * 24  # 6 is float32
    assert work("aten::addmm", tensor(6), *halves, 6, 1, 1).bytes_written == 4 * 24
    # the tensor to write to is in the same place in another overload
    assert work("aten::mm", *halves, tensor(4, 6, dtype="bfloat16")).bytes_written == 2 * 24
    assert work("aten::addmm", tensor(6), *halves, 1, 1, tensor(4, 6, dtype="bfloat16")).bytes_written == 2 * 24


def test_a_fused_activation_is_done_to_every_result():
    operands = torch.rand(6), torch.rand(4, 5), torch.rand(5, 6)
    assert called(aten._addmm_activation.default, *operands)[0].other_flops == (1 + 1) * 24
    assert called(aten._addmm_activation.default, *operands, use_gelu=True)[0].other_flops == (1 + GELU) * 24


@recent_torch
@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(some, some, some), min_size=1, max_size=4))
def test_a_list_of_products_is_their_sum(sizes):
    lefts, rights = [torch.rand(m, k) for m, k, _ in sizes], [torch.rand(k, n) for _, k, n in sizes]
    found, results = called(aten._foreach_mm.default, lefts, rights)
    assert found.matrix_flops == sum(2 * m * k * n for m, k, n in sizes)
    assert (found.bytes_read, found.bytes_written) == (nbytes(*lefts, *rights), nbytes(*results))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), some, some, some)
def test_grouped_products_are_those_of_the_groups(lengths, m, k, n):
    """Groups of rows, of columns and of what is summed over, whatever their sizes."""
    groups, total = len(lengths), sum(lengths)
    offsets = tensor(groups, dtype="int32")
    expected = sum(2 * length * k * n for length in lengths)
    rows = work("aten::_grouped_mm", tensor(total, k), tensor(groups, k, n), offsets)
    columns = work("aten::_grouped_mm", tensor(groups, n, k), tensor(k, total), offsets)
    inner = work("aten::_grouped_mm", tensor(k, total), tensor(total, n), offsets, None, 15)
    assert rows.matrix_flops == columns.matrix_flops == inner.matrix_flops == expected
    assert (rows.bytes_written, columns.bytes_written) == (4 * total * n, 4 * n * total)
    assert inner.bytes_written == 2 * groups * k * n  # as bfloat16
    assert work("aten::_grouped_mm", tensor(groups, m, k), tensor(groups, k, n)).matrix_flops == 2 * groups * m * k * n


@settings(deadline=None, max_examples=10)
@given(b=some, o=some, i=some, j=some)
def test_trilinear_is_the_products_it_is_made_of(b, o, i, j, tmp_path_factory):
    """bilinear(x, y, weight): the products that run below the operator, against its formula."""
    x, y, weight = torch.rand(b, i), torch.rand(b, j), torch.rand(o, i, j)
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    found = rooflines.count(functional.bilinear, x, y, weight)
    below = 0

    def add(nodes):
        nonlocal below
        for event, children in nodes:
            if event["name"] == "aten::bmm":
                (batch, rows, inner), (_, _, columns) = event["args"]["Input Dims"]
                below += 2 * batch * rows * inner * columns
            add(children)

    add(outermost(operator_events(lambda: functional.bilinear(x, y, weight), path)))
    assert found.matrix_flops == below == 2 * (b * o * i * j + b * o * j)


def test_fused_linear_layers_of_compiled_code():
    inputs, weight, bias, other = torch.rand(3, 5), torch.rand(4, 5), torch.rand(4), torch.rand(3, 4)
    unary, result = called(torch.ops.mkldnn._linear_pointwise.default, inputs, weight, bias, "gelu", [], "none")
    binary, _ = called(torch.ops.mkldnn._linear_pointwise.binary, inputs, other, weight, bias, "add")
    assert unary == Work(2 * 3 * 5 * 4, (1 + GELU) * 12, nbytes(inputs, weight, bias), nbytes(result), "fp32")
    assert binary == Work(2 * 3 * 5 * 4, (1 + 1) * 12, nbytes(inputs, weight, bias, other), nbytes(result), "fp32")
    # a trace does not record the name of the activation
    assert work("mkldnn::_linear_pointwise", tensor(3, 5), tensor(4, 5), tensor(4), None, (), None).other_flops == 12
    opaque, _ = called(aten.mkldnn_linear.default, inputs.to_mkldnn(), weight, bias)
    assert opaque.matrix_flops == unary.matrix_flops


def test_the_sum_of_two_products():
    found = work("inductor::_mm_plus_mm", tensor(2, 3), tensor(3, 4), tensor(2, 5), tensor(5, 4), tensor(2, 4))
    assert found == Work(2 * 8 * (3 + 5), 8, 4 * (6 + 12 + 10 + 20), 4 * 8, "fp32")


# --- what cannot be counted --------------------------------------------------------------------------------------------------------


def test_dimensions_that_do_not_meet_are_unknown():
    assert count(Signature("aten::mm", (tensor(4, 5), tensor(6, 7)))).reason == "inner dimensions 5 and 6 differ"


@pytest.mark.parametrize(("layout", "places"), [(torch.sparse_coo, 2 * 4 * 8), (torch.sparse_csr, 4 * 8 + 5 * 8)])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_a_sparse_operand_counts_what_it_stores(layout, places):
    matrix, dense = torch.eye(4).to_sparse(layout=layout), torch.rand(4, 3)
    for operands, stored, others in (((matrix, dense), 4, 3), ((dense.t(), matrix), 4, 3)):
        found = count(call_signature(aten.mm.default, operands, {})).work
        assert (found.matrix_flops, found.bytes_read) == (2 * stored * others, 4 * 4 + places + 4 * 4 * 3)
    both = count(call_signature(aten.mm.default, (matrix, matrix), {}))
    assert both.reason == "the elements that a sparse tensor stores are not in its shape"


def test_a_sparse_operand_of_a_trace_is_not_taken_for_a_dense_one(tmp_path):
    matrix, vector = torch.eye(4).to_sparse(), torch.rand(4, 3)
    (event, _), *_ = outermost(operator_events(lambda: torch.mm(matrix, vector), tmp_path / "trace.json"))
    found = count(from_kineto(event["name"], event["args"]))
    assert found.reason == "the elements that a sparse tensor stores are not in its shape"


# --- rows of the table of what is wrong elsewhere, and published figures -----------------------------------------------------------


def test_addmm_keeps_the_bias_apart():
    # BERT-small on an H100: [141, 512] @ [512, 512] + [512] in bf16. The source counts 73,996,800 with the bias and 814,080 bytes.
    found = work(
        "aten::addmm", tensor(512, dtype="bfloat16"), tensor(141, 512, dtype="bfloat16"), tensor(512, 512, dtype="bfloat16"), 1, 1
    )
    assert (found.matrix_flops, found.other_flops, found.flops) == (2 * 141 * 512 * 512, 141 * 512, 73_996_800)
    assert (found.bytes, found.precision) == (814_080, "bf16")


def test_work_adds_and_keeps_the_precision_of_the_larger_part():
    product, cast = Work(matrix_flops=100, bytes_read=8, precision="bf16"), Work(other_flops=900, bytes_written=4, precision="fp32")
    total = product + cast
    assert total == Work(100, 900, 8, 4, "bf16")
    assert (total.flops, total.bytes) == (1000, 12)
    assert Work() + cast == cast
