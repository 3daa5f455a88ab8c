"""Matrix products: arithmetic by hand, and figures published for real traces."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import MISSING, Signature, TensorArg
from rooflines.roofline.work import Work, count

pytestmark = pytest.mark.unit


def tensor(*shape, dtype="float32"):
    return TensorArg(shape, dtype)


def work(name, *args):
    outcome = count(Signature(name, args))
    assert outcome.kind == "counted", outcome
    return outcome.work


def test_mm_by_hand():
    # [4, 5] @ [5, 6]: 24 results of 5 multiply-adds
    assert work("aten::mm", tensor(4, 5), tensor(5, 6)) == Work(
        matrix_flops=2 * 4 * 5 * 6, bytes_read=4 * (20 + 30), bytes_written=4 * 24, precision="fp32"
    )


def test_addmm_keeps_the_bias_apart():
    # BERT-small on an H100: [141, 512] @ [512, 512] + [512] in bf16. The source counts 73,996,800 with the bias and 814,080 bytes.
    found = work(
        "aten::addmm", tensor(512, dtype="bfloat16"), tensor(141, 512, dtype="bfloat16"), tensor(512, 512, dtype="bfloat16"), 1, 1
    )
    assert found.matrix_flops == 2 * 141 * 512 * 512
    assert found.other_flops == 141 * 512
    assert found.flops == 73_996_800
    assert found.bytes == 814_080
    assert found.precision == "bf16"


def test_addmm_without_beta_does_not_read_what_it_ignores():
    shapes = (tensor(6), tensor(4, 5), tensor(5, 6))
    assert work("aten::addmm", *shapes, 0, 1).bytes_read == work("aten::addmm", *shapes, 1, 1).bytes_read - 4 * 6
    assert work("aten::addmm", *shapes, MISSING, MISSING) == work("aten::addmm", *shapes, 1, 1)


@pytest.mark.parametrize(
    ("left", "right", "macs", "results"),
    [
        ((4, 5), (5, 6), 4 * 5 * 6, 24),
        ((5,), (5,), 5, 1),
        ((4, 5), (5,), 20, 4),
        ((5,), (5, 6), 30, 6),
        ((2, 4, 5), (5, 6), 2 * 4 * 5 * 6, 48),
        ((2, 1, 4, 5), (3, 5, 6), 2 * 3 * 4 * 5 * 6, 144),
        ((0, 5), (5, 6), 0, 0),
    ],
)
def test_matmul_by_the_rule_for_dimensions(left, right, macs, results):
    found = work("aten::matmul", tensor(*left), tensor(*right))
    assert (found.matrix_flops, found.bytes_written) == (2 * macs, 4 * results)


def test_linear_is_the_product_of_its_rows():
    found = work("aten::linear", tensor(2, 197, 768), tensor(3072, 768), tensor(3072))
    assert found.matrix_flops == 2 * (2 * 197) * 768 * 3072
    assert found.other_flops == 2 * 197 * 3072


def test_eight_bit_integers_multiply_as_int8_and_accumulate_in_32():
    found = work("aten::_int_mm", tensor(8, 16, dtype="int8"), tensor(16, 4, dtype="int8"))
    assert (found.precision, found.bytes_written) == ("int8", 4 * 32)


def test_scaled_mm_writes_the_dtype_asked_for():
    eighth = [tensor(16, 32, dtype="float8_e4m3fn"), tensor(32, 8, dtype="float8_e4m3fn")]
    found = work("aten::_scaled_mm", *eighth, tensor(), tensor(), None, None, 15, False)
    assert found.precision == "fp8"
    assert found.bytes_read == 16 * 32 + 32 * 8 + 2 * 4
    assert found.bytes_written == 2 * 16 * 8  # 15 is bfloat16


def test_dimensions_that_do_not_meet_are_unknown():
    assert count(Signature("aten::mm", (tensor(4, 5), tensor(6, 7)))).reason == "inner dimensions 5 and 6 differ"


def test_complex_products_have_no_formula():
    assert count(Signature("aten::mm", (tensor(4, 5, dtype="complex64"), tensor(5, 6, dtype="complex64")))).kind == "unknown"


def test_work_adds_and_keeps_the_precision_of_the_larger_part():
    product, cast = Work(matrix_flops=100, bytes_read=8, precision="bf16"), Work(other_flops=900, bytes_written=4, precision="fp32")
    total = product + cast
    assert total == Work(100, 900, 8, 4, "bf16")
    assert (total.flops, total.bytes) == (1000, 12)
    assert Work() + cast == cast
