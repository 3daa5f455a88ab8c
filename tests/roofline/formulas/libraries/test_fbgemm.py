"""FBGEMM's operators: closed forms by hand at odd shapes."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import MISSING, Signature, TensorArg
from rooflines.roofline.formulas import Work, count

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
    ("pooling", "factors", "flops", "extra"),
    [(0, None, 240, 0), (1, None, 240 + 7 * 20, 0), (0, TensorArg((24,)), 480, 24 * 4)],
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
    assert found.other_flops == 240 + 240 * cost
    assert found.bytes_read == 7 * 20 * 4 + READ + ROWS + state
    assert found.bytes_written == ROWS + state
    assert count(Signature(name, (grad,))).reason == "its forward call is not in the trace"


def test_the_operator_inside_a_node_has_the_same_work():
    args = (
        TensorArg((7, 20)),
        WEIGHTS,
        EMPTY,
        EMPTY,
        TensorArg((2,), "int32"),
        TABLES,
        WIDTHS,
        12,
        True,
        WIDTHS,
        8,
        INDICES,
        OFFSETS,
        0,
    )
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


def test_packed_tables():
    """128 elements of 4 bits, a scale and an offset: 68 bytes, aligned to 80."""
    widths = (0, 128, 0, 0, 0)
    args = (
        TensorArg((8000,), "uint8"),
        TensorArg((0,), "uint8"),
        TABLES,
        TABLES,
        TABLES,
        WIDTHS,
        256,
        *widths,
        INDICES,
        OFFSETS,
        0,
        None,
        1,
    )
    found = work(Signature("fbgemm::int_nbit_split_embedding_codegen_lookup_function", args))
    assert (found.bytes_read, found.bytes_written) == (24 * 80 + READ, 7 * 256 * 2)
    assert found.other_flops == 24 * 128 * 3


PERMUTE, LENGTHS, VALUES = TensorArg((5,), "int32"), TensorArg((3, 7), "int32"), TensorArg((11,), "int64")
HALF, FLOAT = TensorArg((6, 10), "float16"), TensorArg((6, 10))
CALLS = [
    ("permute_2D_sparse_data", (TensorArg((3,), "int32"), LENGTHS, VALUES, None, MISSING), 0, 12 + 84 + 88, 84 + 88),
    ("permute_2D_sparse_data", (PERMUTE, LENGTHS, VALUES, None, 9), 0, 20 + 84 + 72, 140 + 72),
    ("permute_2D_sparse_data", (PERMUTE, LENGTHS, VALUES, None, MISSING), 0, 20 + 84 + 88, 140 + 18 * 8),  # 11 * 5 // 3 values
    ("block_bucketize_sparse_features", (LENGTHS, VALUES, False, True, PERMUTE, 4), 22, 84 + 88 + 20, 4 * 84 + 2 * 88),
    ("bounds_check_indices", (TABLES, INDICES, OFFSETS, 1), 48, 16 + READ, 0),
    ("asynchronous_complete_cumsum", (TensorArg((9,), "int32"),), 9, 36, 40),
    ("asynchronous_complete_cumsum", (LENGTHS,), 21, 84, 3 * 8 * 4),
    ("asynchronous_inclusive_cumsum", (TensorArg((9,), "int32"),), 9, 36, 36),
    ("permute_pooled_embs_auto_grad", (FLOAT, TABLES, TABLES, TABLES, TABLES), 0, 240 + 64, 240),
    ("recat_embedding_grad_output_mixed_D_batch", (FLOAT, TABLES, TABLES), 0, 240 + 32, 240),
    ("FloatToFP8RowwiseQuantized", (FLOAT, True), 60 * 7, 240, 6 * (12 + 8)),
    ("FP8RowwiseQuantizedToFloat", (TensorArg((6, 20), "uint8"), True, 5), 72 * 2, 120, 72 * 2),
    ("FloatToFusedNBitRowwiseQuantizedSBHalf", (FLOAT, 4), 60 * 7, 240, 6 * (5 + 4)),
    ("FusedNBitRowwiseQuantizedSBHalfToFloat", (TensorArg((6, 9), "uint8"), 4), 60 * 2, 54, 240),
    ("FloatToHFP8Quantized", (FLOAT, 4, 14, 1.0), 60, 240, 60),
    ("HFP8QuantizedToFloat", (TensorArg((60,), "uint8"), 4, 14), 60, 60, 240),
    ("jagged_to_padded_dense", (FLOAT, (TensorArg((4,), "int64"),), (5,), 0.0), 0, 240 + 32, 3 * 5 * 10 * 4),
    ("jagged_2d_to_dense", (FLOAT, TensorArg((4,), "int64"), 1), 0, 3 * 10 * 4 + 32, 120),
    ("dense_to_jagged", (TensorArg((3, 5, 10)), (TensorArg((4,), "int64"),), 6), 0, 240 + 32, 240),
    ("jagged_dense_bmm", (FLOAT, TensorArg((4,), "int64"), TensorArg((3, 10, 7)), 5), 2 * 6 * 10 * 7, 240 + 32 + 840, 6 * 7 * 4),
    ("quantize_fp8_per_row", (HALF, None, None), 60 * 7, 120, 60 + 24),
    ("f8f8bf16_rowwise", (TensorArg((5, 16), "float8_e4m3fn"), TensorArg((7, 16), "float8_e4m3fn"), TensorArg((5,)), TensorArg((7,))),
     2 * 5 * 16 * 7 + 35, 80 + 112 + 20 + 28, 70),
    ("bf16i4bf16_rowwise", (TensorArg((5, 16), "bfloat16"), TensorArg((7, 8), "int8"), TensorArg((2, 7)), TensorArg((2, 7))),
     2 * 5 * 16 * 7 + 2 * 7 * 16, 160 + 56 + 112, 70),
    ("bf16bf16bf16_grouped_stacked", (TensorArg((5, 16), "bfloat16"), TensorArg((9, 7, 16), "bfloat16"), TensorArg((9,), "int64")),
     2 * 5 * 16 * 7, 160 + 5 * 7 * 16 * 2 + 72, 70),
    ("bf16bf16bf16_grouped_stacked", (TensorArg((5, 16), "bfloat16"), TensorArg((9, 7, 16), "bfloat16"), TensorArg((9,), "int64"),
                                      TensorArg((5, 7), "bfloat16"), 132), 2 * 5 * 16 * 7, 160 + 5 * 7 * 16 * 2 + 72, 70),  # given
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "flops", "read", "written"), CALLS)
def test_operators_by_hand(name, args, flops, read, written):
    found = work(Signature(f"fbgemm::{name}", args))
    assert (found.flops, found.bytes_read, found.bytes_written) == (flops, read, written)


def test_values_of_features_left_out_are_an_estimate():
    args = (PERMUTE, LENGTHS, VALUES, None, MISSING)
    assert work(Signature("fbgemm::permute_2D_sparse_data", args)).assumption == "features have equally many values"
