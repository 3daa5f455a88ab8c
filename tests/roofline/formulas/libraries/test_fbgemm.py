"""FBGEMM's tables and their nodes, features whose values are left out, and attention."""

from __future__ import annotations

import pytest

from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, counted, int32

# Two tables of 101 x 8 and 53 x 12 elements, 7 bags each, 24 indices: rows of 10 elements on average.
WEIGHTS, EMPTY = TensorArg((101 * 8 + 53 * 12,)), TensorArg((0,))
OFFSETS, INDICES = TensorArg((2 * 7 + 1,), "int64"), TensorArg((24,), "int64")
TABLES, WIDTHS = TensorArg((2,), "int64"), TensorArg((3,), "int32")
ROWS = 24 * 10 * 4
READ = 24 * 8 + 15 * 8
SPREAD = "each index selects another row; indices spread evenly over tables of different widths"


def lookup(optimizer="rowwise_adagrad", widest=12, total=20, pooling=0, factors=None):
    args = (TensorArg((0,)), WEIGHTS, EMPTY, EMPTY, TensorArg((2,), "int32"), TABLES, WIDTHS, total, widest, WIDTHS, 8)
    name = f"fbgemm::split_embedding_codegen_lookup_{optimizer}_function"
    return Signature(name, (*args, INDICES, OFFSETS, pooling, factors, None, EMPTY))


def work(signature, **hints):
    found = count(signature, **hints)
    assert found.kind == "counted", found.reason
    return found.work


@pytest.mark.parametrize(
    ("pooling", "factors", "flops", "extra"), [(0, None, 240, 0), (1, None, 240 + 7 * 20, 0), (0, TensorArg((24,)), 480, 24 * 4)]
)
def test_bags_add_up_rows(pooling, factors, flops, extra):
    found = work(lookup(pooling=pooling, factors=factors))
    assert found == Work(0, flops, ROWS + READ + extra, 7 * 20 * 4, "fp32", SPREAD + "; results of float32")


def test_rows_without_bags_are_copied():
    rows = work(lookup(pooling=2, widest=10))
    assert (rows.other_flops, rows.bytes_read, rows.bytes_written) == (0, ROWS + READ, ROWS)


def test_tables_of_one_width_need_no_assumption_about_it():
    assert work(lookup(widest=10)).assumption == "each index selects another row; results of float32"


def test_the_result_says_how_wide_the_tables_are():
    unknown = lookup(total=MISSING, pooling=MISSING)
    assert count(unknown).reason == "argument 'total_D' not recorded"
    bags = work(unknown, outputs=(TensorArg((7, 20), "float16"),))
    assert (bags.bytes_read, bags.bytes_written) == (ROWS + READ, 7 * 20 * 2)
    rows = work(unknown, outputs=(TensorArg((24, 10)),))
    assert (rows.other_flops, rows.bytes_written) == (0, 24 * 10 * 4)


def test_no_more_is_read_than_the_tables_have():
    many = Signature(lookup().name, (*lookup().args[:11], TensorArg((5000,), "int64"), *lookup().args[12:]))
    assert work(many).bytes_read == 1444 * 4 + 5000 * 8 + 15 * 8


@pytest.mark.parametrize(
    ("optimizer", "cost", "state"),
    [
        ("sgd", 2, 0),
        ("rowwise_adagrad", 4, 24 * 4),
        ("adagrad", 7, ROWS),
        ("adam", 13, 2 * ROWS),
        ("partial_rowwise_adam", 13, ROWS + 96),
    ],
)
def test_a_node_updates_the_rows_of_its_forward_call(optimizer, cost, state):
    name = f"torch::autograd::CppNode<SplitLookupFunction_{optimizer}_Op>"
    grad = TensorArg((7, 20))
    found = work(Signature(name, ((grad,), *lookup(optimizer, total=MISSING, widest=MISSING).args)))
    assert (found.other_flops, found.bytes_read) == (240 + 240 * cost, 7 * 20 * 4 + READ + ROWS + state)
    assert found.bytes_written == ROWS + state
    assert count(Signature(name, (grad,))).reason == "its forward call is not in the trace"


def test_the_operator_inside_a_node_has_the_same_work():
    tables = (WEIGHTS, EMPTY, EMPTY, TensorArg((2,), "int32"), TABLES, WIDTHS, 12, True, WIDTHS, 8)
    args = (TensorArg((7, 20)), *tables, INDICES, OFFSETS, 0)
    inside = work(Signature("fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda", (*args, EMPTY)))
    node = Signature("torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", ((args[0],), *lookup().args))
    assert inside == work(node)


def test_a_dense_gradient_is_as_large_as_the_tables():
    args = (WEIGHTS, TABLES, WIDTHS, 20, 12, WIDTHS, 8, INDICES, OFFSETS, 0, None)
    node = Signature("torch::autograd::CppNode<SplitLookupFunction_Dense_Op>", ((TensorArg((7, 20)),), *args))
    assert work(node).bytes_written == 1444 * 4


@pytest.mark.parametrize("name", ["lookup_adam_function_pt2", "forward_unweighted_pt2_wrapper"])
def test_what_only_hands_on_is_not_counted(name):
    assert count(Signature(f"fbgemm::split_embedding_codegen_{name}", (INDICES,))).kind == "composite"


PERMUTE, LENGTHS, VALUES = TensorArg((5,), "int32"), TensorArg((3, 7), "int32"), TensorArg((11,), "int64")


def test_values_of_features_left_out_are_an_estimate():
    args = (PERMUTE, LENGTHS, VALUES, None, MISSING)
    assert work(Signature("fbgemm::permute_2D_sparse_data", args)).assumption == "features have equally many values"


# 3 sequences of together 29 tokens, 4 heads of depth 16.
PACKED, ENDS = bf16(29, 4, 16), int32(4)


def test_attention_over_a_cache():
    query, cache = bf16(3, 1, 8, 16), bf16(3, 64, 2, 16)
    found = counted("fbgemm::gqa_attn_splitk", query, cache, cache, int32(3), 0.25, 4).work
    assert (found.matrix_flops, found.bytes_written) == (2 * 3 * 8 * 64 * 32, 3 * 8 * 16 * 2)
    assert found.assumption.startswith("KV length")


def test_flash_attention_of_mslk_is_that_of_xformers():
    forward = (PACKED, PACKED, PACKED, ENDS, ENDS, None, 29, 29, 0.0, 0.25, True, -1, -1, False, None)
    assert counted("mslk_flash::flash_fwd", *forward).work == counted("xformers_flash::flash_fwd", *forward).work
