"""FBGEMM's tables, sparse features and GenAI operators."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import MISSING, Signature, TensorArg
from rooflines.roofline.formulas import Work, count
from tests.roofline.formulas.libraries.calls import bf16, counted, fp4, fp8, fp32, int8, int32, int64, uint8

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
    assert (found.bytes_read, found.bytes_written, found.other_flops) == (24 * 80 + READ, 7 * 256 * 2, 24 * 128 * 3)


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


# 19 tokens, 37 to 53 features, 5 experts.
FP4 = fp4(19, 18)
PRODUCT = 2 * 19 * 36 * 53
RESULT = 19 * 53 * 2


@pytest.mark.parametrize(
    ("name", "args", "flops", "read", "precision"),
    [
        ("f4f4bf16", (FP4, fp4(53, 18), uint8(19, 2), uint8(53, 2)), PRODUCT, 72 * 18 + 72 * 2, "fp4"),
        ("f4f4bf16", (uint8(19, 18), uint8(53, 18), uint8(19, 2), uint8(53, 2), None, fp32(1)), PRODUCT + 19 * 53,
         72 * 18 + 72 * 2 + 4, "fp4"),
        ("mx8mx4bf16", (fp8(19, 36), uint8(53, 18), uint8(19, 2), uint8(53, 2)), PRODUCT, 19 * 36 + 53 * 18 + 144, "fp8"),
        ("bf16i4bf16_rowwise_batched", (bf16(3, 19, 36), int8(3, 53, 18), fp32(3, 53), fp32(3, 53)),
         3 * (PRODUCT + 2 * 53 * 36), 3 * (19 * 36 * 2 + 53 * 18 + 2 * 53 * 4), "bf16"),
        ("bf16i4bf16_shuffled_grouped", (bf16(19, 36), int8(5, 53, 18), bf16(5, 2, 53), bf16(5, 2, 53), int64(5)),
         PRODUCT + 2 * 5 * 53 * 36, 19 * 36 * 2 + 5 * 53 * 18 + 2 * 5 * 2 * 53 * 2 + 40, "bf16"),
        ("f4f4bf16_grouped_stacked", (FP4, fp4(5, 53, 18), uint8(19, 2), uint8(5, 53, 2), int64(5), fp32(5)),
         PRODUCT + 19 * 53, 19 * 18 + 5 * 53 * 18 + 38 + 530 + 40 + 20, "fp4"),
        ("mx8mx8bf16_grouped_mm", (fp8(19, 36), fp8(5, 36, 53), uint8(19, 2), uint8(5, 53, 2), int32(5)), PRODUCT,
         19 * 36 + 5 * 36 * 53 + 38 + 530 + 20, "fp8"),
        ("mx8mx4bf16_grouped_mm", (fp8(19, 36), uint8(5, 18, 53), uint8(19, 2), uint8(5, 53, 2), int32(5)), PRODUCT,
         19 * 36 + 5 * 18 * 53 + 38 + 530 + 20, "fp8"),
        ("f4f4bf16_grouped_mm", (FP4, fp4(5, 18, 53), uint8(19, 2), uint8(5, 53, 2), int32(5)), PRODUCT,
         19 * 18 + 5 * 18 * 53 + 38 + 530 + 20, "fp4"),
        ("f8f8bf16_rowwise_grouped_mm", (fp8(19, 36), fp8(5, 53, 36), fp32(19), fp32(5, 53), int32(5), bf16(19, 53)),
         PRODUCT + 19 * 53, 19 * 36 + 5 * 36 * 53 + 76 + 1060 + 20, "fp8"),
        ("f8f8bf16_rowwise_grouped", ((fp8(7, 36), fp8(12, 36)), (fp8(53, 36), fp8(53, 36)), (fp32(7), fp32(12)), (fp32(53), fp32(53))),
         PRODUCT + 19 * 53, 19 * 36 + 2 * 53 * 36 + 4 * (19 + 2 * 53), "fp8"),
    ],
)  # fmt: skip
def test_products_of_narrow_numbers(name, args, flops, read, precision):
    for library in ("fbgemm", "mslk"):
        found = counted(f"{library}::{name}", *args).work
        results = RESULT * (3 if name.endswith("batched") else 1)
        assert (found.flops, found.bytes_read, found.bytes_written, found.precision) == (flops, read, results, precision)


def test_padded_groups():
    found = counted("fbgemm::bf16bf16bf16_grouped_dynamic", bf16(5, 19, 36), bf16(5, 53, 36), int64(5)).work
    assert (found.matrix_flops, found.other_flops, found.assumption) == (5 * PRODUCT, 0, "no row is padding")


# 3 sequences of together 29 tokens, 4 heads of depth 16.
PACKED, ENDS = bf16(29, 4, 16), int32(4)


def test_attention_on_blackwell():
    query, key = bf16(2, 19, 4, 16), bf16(2, 23, 2, 16)
    found = counted("mslk::fmha_fwd", query, key, key).work
    assert (found.matrix_flops, found.bytes_written) == (2 * 2 * 4 * 19 * 23 * 32, 2 * 19 * 4 * (16 * 2 + 4))
    ends = (None, None, None, None, None, True, None, None, None, -1, 0)
    pairs = sum(place + 5 for place in range(19))
    assert counted("fbgemm::fmha_fwd", query, key, key, *ends).work.matrix_flops == 2 * 2 * 4 * pairs * 32
    upper = sum(place + 1 for place in range(19))
    assert counted("fbgemm::fmha_fwd", query, key, key, *ends, False).work.matrix_flops == 2 * 2 * 4 * upper * 32
    back = counted("mslk::cutlass_blackwell_fmha_bwd", query, query, key, key, query, fp32(2, 4, 19)).work
    assert back.matrix_flops == 5 * 2 * 2 * 4 * 19 * 23 * 16


def test_attention_over_a_cache():
    query, cache = bf16(3, 1, 8, 16), bf16(3, 64, 2, 16)
    found = counted("fbgemm::gqa_attn_splitk", query, cache, cache, int32(3), 0.25, 4).work
    assert (found.matrix_flops, found.bytes_written) == (2 * 3 * 8 * 64 * 32, 3 * 8 * 16 * 2)
    assert found.assumption.startswith("KV length")


def test_flash_attention_of_mslk_is_that_of_xformers():
    forward = (PACKED, PACKED, PACKED, ENDS, ENDS, None, 29, 29, 0.0, 0.25, True, -1, -1, False, None)
    assert counted("mslk_flash::flash_fwd", *forward).work == counted("xformers_flash::flash_fwd", *forward).work
