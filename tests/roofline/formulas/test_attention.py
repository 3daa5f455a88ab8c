"""Attention: pairs against materialised masks and running kernels, closed forms of every backend, and the fused encoder layers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import CausalVariant, causal_lower_right, causal_upper_left

import rooflines
from rooflines.profiler.calls.recorder import record
from rooflines.profiler.calls.signatures import call_signature, tensor_arg
from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.costs import SOFTMAX
from rooflines.roofline.count.formulas.lengths import EQUAL, Sequences, pairs
from tests.marks import recent_torch
from tests.roofline.formulas.by_hand import tensor, work
from tests.roofline.formulas.helpers import called, meta, nbytes, work_of_trace

aten = torch.ops.aten


small = st.integers(1, 9)


# --- which pairs meet --------------------------------------------------------------------------------------------------------------


def mask(queries, keys, left, right, lower_right):
    """True where a query may see a key, written out element by element."""
    offset = keys - queries if lower_right else 0
    return [
        [(left is None or key >= query + offset - left) and (right is None or key <= query + offset + right) for key in range(keys)]
        for query in range(queries)
    ]


bound = st.none() | st.integers(0, 12)


@settings(max_examples=25)
@given(small, small)
def test_the_two_alignments_are_those_of_torch(queries, keys):
    upper, lower = causal_upper_left(queries, keys), causal_lower_right(min(queries, keys), keys)
    assert pairs(queries, keys, right=0) == int(upper._materialize().sum())
    assert pairs(min(queries, keys), keys, right=0, lower_right=True) == int(lower._materialize().sum())


@settings(deadline=None, max_examples=25)
@given(small, small, st.booleans())
def test_the_cpu_kernel_sees_the_pairs_that_are_counted(queries, keys, causal):
    """With the identity for values the result is the probabilities: those that are not 0 are the pairs that met."""
    query, value = torch.rand(1, 1, queries, keys), torch.eye(keys)[None, None]
    found, (out, _) = called(
        aten._scaled_dot_product_flash_attention_for_cpu.default, query, torch.rand(1, 1, keys, keys), value, 0.0, causal
    )
    assert found.matrix_flops == 2 * 2 * keys * int(out.count_nonzero())
    with sdpa_kernel(SDPBackend.MATH):  # the other backend on this device agrees about the mask
        reference = functional.scaled_dot_product_attention(query, torch.zeros(1, 1, keys, keys), value, is_causal=causal)
    assert torch.equal(reference != 0, out != 0)


# --- every backend -----------------------------------------------------------------------------------------------------------------

# Operator -> how it is called with [b, h, s, d] tensors: (query, key, value, causal), and the alignment of its causal mask.
FORWARD = {
    "cpu": (lambda q, k, v, c: (aten._scaled_dot_product_flash_attention_for_cpu.default, (q, k, v, 0.0, c)), False),
    "flash": (lambda q, k, v, c: (aten._scaled_dot_product_flash_attention.default, (q, k, v, 0.0, c)), True),
    "efficient": (lambda q, k, v, c: (aten._scaled_dot_product_efficient_attention.default, (q, k, v, None, True, 0.0, c)), False),
    "cudnn": (lambda q, k, v, c: (aten._scaled_dot_product_cudnn_attention.default, (q, k, v, None, True, 0.0, c)), False),
    "overrideable": (
        lambda q, k, v, c: (aten._scaled_dot_product_fused_attention_overrideable.default, (q, k, v, None, 0.0, c)), False,
    ),
    "flash, sequence first": (
        lambda q, k, v, c: (
            aten._flash_attention_forward.default,
            (*turned(q, k, v), None, None, q.shape[2], k.shape[2], 0.0, c, False),
        ),
        True,
    ),
    "efficient, upper left": (
        lambda q, k, v, c: (
            aten._efficient_attention_forward.default,
            (*turned(q, k, v), None, None, None, None, None, 0.0, int(c), True),
        ),
        False,
    ),
    "efficient, lower right": (
        lambda q, k, v, c: (
            aten._efficient_attention_forward.default,
            (*turned(q, k, v), None, None, None, None, None, 0.0, 2 * int(c), True),
        ),
        True,
    ),
}  # fmt: skip


@recent_torch
@pytest.mark.parametrize("backend", FORWARD)
@settings(deadline=None, max_examples=25)
@given(batch=small, heads=small, queries=small, keys=small, depth=small, causal=st.booleans())
@example(batch=1, heads=1, queries=3, keys=5, depth=2, causal=True)
@example(batch=1, heads=1, queries=5, keys=3, depth=2, causal=True)
def test_forward_closed_form(backend, batch, heads, queries, keys, depth, causal):
    make, lower_right = FORWARD[backend]
    func, args = make(meta(batch, heads, queries, depth), meta(batch, heads, keys, depth), meta(batch, heads, keys, depth), causal)
    found, returned = called(func, *args)
    meeting = sum(map(sum, mask(queries, keys, None, 0 if causal else None, lower_right)))
    assert found.matrix_flops == batch * heads * meeting * 2 * (depth + depth)
    assert found.other_flops == batch * heads * meeting * (1 + SOFTMAX)
    assert found.bytes_read == 4 * batch * heads * depth * (queries + 2 * keys)
    # the attention, its log-sum-exp, random state: whatever torch says is returned
    assert found.bytes_written == nbytes(returned)


def test_mask_types_of_the_efficient_kernel_are_torchs():
    assert (CausalVariant.UPPER_LEFT.value, CausalVariant.LOWER_RIGHT.value) == (1, 2)


def turned(*tensors):
    """[b, h, s, d] -> [b, s, h, d]."""
    return tuple(tensor.transpose(1, 2) for tensor in tensors)


# Operator -> how it is called with the forward's tensors, [b, h, s, d].
BACKWARD = {
    "cpu": lambda g, q, k, v, o, s, c: (aten._scaled_dot_product_flash_attention_for_cpu_backward.default, (g, q, k, v, o, s, 0.0, c)),
    "flash": lambda g, q, k, v, o, s, c: (
        aten._scaled_dot_product_flash_attention_backward.default,
        (g, q, k, v, o, s, None, None, q.shape[2], k.shape[2], 0.0, c, SEED, SEED),
    ),
    "efficient": lambda g, q, k, v, o, s, c: (
        aten._scaled_dot_product_efficient_attention_backward.default,
        (g, q, k, v, None, o, s, SEED, SEED, 0.0, [True, True, True, False], c),
    ),
    "cudnn": lambda g, q, k, v, o, s, c: (
        aten._scaled_dot_product_cudnn_attention_backward.default,
        (g, q, k, v, o, s, SEED, SEED, None, None, None, q.shape[2], k.shape[2], 0.0, c),
    ),
    "overrideable": lambda g, q, k, v, o, s, c: (
        aten._scaled_dot_product_fused_attention_overrideable_backward.default,
        (g, q, k, v, None, [True, True, True, False], o, s, None, None, q.shape[2], k.shape[2], 0.0, c, SEED, SEED),
    ),
    "flash, sequence first": lambda g, q, k, v, o, s, c: (
        aten._flash_attention_backward.default,
        (*turned(g, q, k, v, o), s, None, None, q.shape[2], k.shape[2], 0.0, c, SEED, SEED),
    ),
    "efficient, upper left": lambda g, q, k, v, o, s, c: (
        aten._efficient_attention_backward.default,
        (*turned(g, q, k, v), None, *turned(o), None, None, q.shape[2], k.shape[2], s, 0.0, SEED, SEED, int(c), False),
    ),
    "efficient, lower right": lambda g, q, k, v, o, s, c: (
        aten._efficient_attention_backward.default,
        (*turned(g, q, k, v), None, *turned(o), None, None, q.shape[2], k.shape[2], s, 0.0, SEED, SEED, 2 * int(c), False),
    ),
    "cudnn, its own": lambda g, q, k, v, o, s, c: (
        aten._cudnn_attention_backward.default,
        (g, q, k, v, o, s, SEED, SEED, None, None, None, q.shape[2], k.shape[2], 0.0, c),
    ),
}  # fmt: skip
LOWER_RIGHT = ("flash", "flash, sequence first", "efficient, lower right")
SEED = meta(dtype=torch.int64)


@recent_torch
@pytest.mark.parametrize("backend", BACKWARD)
@settings(deadline=None, max_examples=25)
@given(batch=small, heads=small, queries=small, keys=small, depth=small, causal=st.booleans())
@example(batch=1, heads=1, queries=3, keys=5, depth=2, causal=True)
def test_backward_recomputes_the_scores_and_makes_two_products_of_each(backend, batch, heads, queries, keys, depth, causal):
    query, key = meta(batch, heads, queries, depth), meta(batch, heads, keys, depth)
    log_sum = meta(batch, heads, queries)
    func, args = BACKWARD[backend](query, query, key, key, query, log_sum, causal)
    outcome = count(call_signature(func, args, {}))
    meeting = sum(map(sum, mask(queries, keys, None, 0 if causal else None, backend in LOWER_RIGHT)))
    rows = batch * heads * queries
    scores = values = batch * heads * meeting * 2 * depth
    assert outcome.work.matrix_flops == scores + 2 * (scores + values)
    assert outcome.work.bytes_read == 4 * (batch * heads * depth * (3 * queries + 2 * keys) + rows)  # g, q, k, v, out, log-sum
    assert outcome.work.bytes_written == 4 * batch * heads * depth * (queries + 2 * keys)


@given(small, st.integers(1, 4), st.integers(1, 4), small, small, st.booleans())
def test_grouped_query_attention_is_counted_by_query_heads_and_reads_the_few_keys(batch, groups, heads_each, length, depth, causal):
    query, key = meta(batch, groups * heads_each, length, depth), meta(batch, groups, length, depth)
    few, _ = called(aten._scaled_dot_product_flash_attention.default, query, key, key, 0.0, causal)
    many, _ = called(aten._scaled_dot_product_flash_attention.default, query, query, query, 0.0, causal)
    assert few.matrix_flops == many.matrix_flops
    assert many.bytes_read - few.bytes_read == 4 * 2 * batch * groups * (heads_each - 1) * length * depth


def test_values_of_another_depth():
    # 7 queries meet 11 keys of depth 3, values are 5 deep
    found, returned = called(
        aten._scaled_dot_product_efficient_attention.default, meta(1, 2, 7, 3), meta(1, 2, 11, 3), meta(1, 2, 11, 5), None, False
    )
    assert found.matrix_flops == 2 * 2 * 7 * 11 * (3 + 5)
    assert found.bytes_written == nbytes(returned) == 4 * 2 * 7 * 5 + 16


def test_a_broadcast_mask_is_read_once_and_added_to_every_score():
    heads, bias = meta(2, 3, 7, 4), meta(1, 1, 7, 7).expand(2, 3, 7, 7)
    plain, _ = called(aten._scaled_dot_product_efficient_attention.default, heads, heads, heads, None, False)
    biased, _ = called(aten._scaled_dot_product_efficient_attention.default, heads, heads, heads, bias, False)
    boolean = count(
        Signature("aten::_scaled_dot_product_cudnn_attention", (*[tensor(2, 3, 7, 4)] * 3, tensor(1, 1, 1, 7, dtype="bool"), False))
    )
    assert biased.bytes_read - plain.bytes_read == 4 * 7 * 7
    assert biased.other_flops - plain.other_flops == 2 * 3 * 7 * 7
    assert boolean.work.bytes_read - plain.bytes_read == 7


def test_the_gradient_of_a_mask_is_written_where_it_is_asked_for():
    heads, log_sum, bias = meta(2, 3, 7, 4), meta(2, 3, 32), meta(2, 3, 7, 7)

    def backward(asked):
        args = (heads, heads, heads, heads, bias, heads, log_sum, SEED, SEED, 0.0, [True, True, True, asked])
        return called(aten._scaled_dot_product_efficient_attention_backward.default, *args)

    with_mask, without = backward(True), backward(False)
    assert with_mask[0].bytes_written == nbytes(with_mask[1])
    assert with_mask[0].bytes_written - without[0].bytes_written == 4 * 2 * 3 * 7 * 7


def test_dropout_draws_and_multiplies_a_score_and_its_backward_needs_the_random_state():
    heads, scores = meta(1, 2, 8, 4), 2 * 8 * 8
    plain, _ = called(aten._scaled_dot_product_flash_attention.default, heads, heads, heads, 0.0)
    random, _ = called(aten._scaled_dot_product_flash_attention.default, heads, heads, heads, 0.1)
    assert random.other_flops - plain.other_flops == 2 * scores
    assert random.matrix_flops == plain.matrix_flops
    state = (meta(2, dtype=torch.uint64), meta(dtype=torch.uint64))
    tail = (heads, meta(1, 2, 8), None, None, 8, 8)
    backwards = [
        count(
            call_signature(aten._scaled_dot_product_flash_attention_backward.default, (*[heads] * 4, *tail, p, False, *state), {})
        ).work
        for p in (0.0, 0.1)
    ]
    assert backwards[1].bytes_read - backwards[0].bytes_read == 3 * 8
    assert backwards[1].other_flops - backwards[0].other_flops == 4 * scores


@given(small, small, small, st.integers(-1, 9), st.integers(-1, 9), st.booleans())
def test_windows_of_flash_attention_end_at_the_last_key(queries, keys, depth, left, right, causal):
    query, key = meta(1, queries, 2, depth), meta(1, keys, 2, depth)
    found, _ = called(
        aten._flash_attention_forward.default, query, key, key, None, None, queries, keys, 0.0, causal, False,
        window_size_left=left, window_size_right=right,
    )  # fmt: skip
    bounds = (None if left < 0 else left, 0 if causal else None if right < 0 else right)
    assert found.matrix_flops == 2 * 2 * 2 * depth * sum(map(sum, mask(queries, keys, *bounds, True)))


@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 2]))
def test_a_window_of_the_efficient_kernel_is_so_many_keys_up_to_the_diagonal(length, window, kind):
    heads = meta(1, length, 1, 4)
    found, _ = called(
        aten._efficient_attention_forward.default, heads, heads, heads, None, None, None, None, None, 0.0, kind, window_size=window
    )
    assert found.matrix_flops == 2 * 2 * 4 * sum(min(window, query + 1) for query in range(length))


@recent_torch
def test_eight_bit_flash_attention_reads_scales_and_returns_bfloat16():
    heads, scale = meta(1, 2, 16, 32, dtype=torch.float8_e4m3fn), meta(1, 2)
    found, returned = called(aten._scaled_dot_product_flash_attention.quantized, heads, heads, heads, scale, scale, scale, 0.0, True)
    assert (found.precision, found.matrix_flops) == ("fp8", 2 * 2 * 2 * (16 * 17 // 2) * 32)
    assert (found.bytes_read, found.bytes_written) == (3 * 2 * 16 * 32 + 3 * 4 * 2, nbytes(returned))
    first = heads.transpose(1, 2)
    packed, _ = called(aten._flash_attention_forward.quantized, *[first] * 3, None, None, 16, 16, 0.0, True, False, scale, scale, scale)
    assert (packed.matrix_flops, packed.bytes_read) == (found.matrix_flops, found.bytes_read)


@recent_torch
def test_in_place_flash_attention_writes_to_the_tensor_it_is_given():
    heads = meta(1, 16, 2, 32)
    found, log_sum = called(
        aten._flash_attention_forward_no_dropout_inplace.default, heads, heads, heads, heads, None, None, 16, 16, 0.0, True, False
    )
    assert (found.matrix_flops, found.bytes_read) == (2 * 2 * 2 * (16 * 17 // 2) * 32, 3 * nbytes(heads))
    assert found.bytes_written == nbytes(heads) + nbytes(log_sum)


@recent_torch
def test_metal_computes_the_whole_product_and_returns_the_probabilities():
    query, key = meta(2, 3, 7, 4), meta(2, 3, 5, 4)
    found, returned = called(aten._scaled_dot_product_attention_math_for_mps.default, query, key, key, None, 0.0, True)
    assert (found.matrix_flops, found.bytes_written) == (2 * 2 * (2 * 3) * 7 * 5 * 4, nbytes(returned))


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("aten::_efficient_attention_forward", (*[tensor(1, 4, 2, 8)] * 3, None, None, None, 4, 0.0, 1, True), "another version"),
        ("aten::_scaled_dot_product_flash_attention", (*[tensor(1, 2, 4, 8)] * 3, MISSING, MISSING), "'causal' not recorded"),
        ("aten::_scaled_dot_product_flash_attention", (*[tensor(1, 2, 4, 8, dtype="complex64")] * 3, 0.0, True), "complex"),
    ],
)
def test_what_cannot_be_counted_says_why(name, args, reason):
    outcome = count(Signature(name, args))
    assert outcome.kind == "unknown"
    assert reason in outcome.reason


# --- packed sequences --------------------------------------------------------------------------------------------------------------


def packed(*args, **keywords):
    return count(packed_call(*args, **keywords))


def packed_call(total_q, total_k, batch, longest_q, longest_k, causal=False, **keywords):
    """Sequences packed into [total, heads, depth]; where each ends is a tensor of batch + 1 numbers."""
    offsets = meta(batch + 1, dtype=torch.int32)
    query, key = meta(total_q, 4, 8), meta(total_k, 4, 8)
    args = (query, key, key, offsets, offsets, longest_q, longest_k, 0.0, causal, False)
    return call_signature(aten._flash_attention_forward.default, args, keywords)


@given(small, small, small, st.booleans())
def test_sequences_of_one_length_are_a_batch(batch, queries, keys, causal):
    found = packed(batch * queries, batch * keys, batch, queries, keys, causal).work
    query, key = meta(batch, queries, 4, 8), meta(batch, keys, 4, 8)
    dense, _ = called(aten._flash_attention_forward.default, query, key, key, None, None, queries, keys, 0.0, causal, False)
    assert found.matrix_flops == dense.matrix_flops
    assert found.bytes_read - dense.bytes_read == 2 * 4 * (batch + 1)
    assert found.bytes_written == dense.bytes_written  # [h, total] log-sums instead of [b, h, s]


@given(st.lists(small, min_size=1, max_size=5), small)
def test_without_a_mask_equally_long_queries_are_enough(lengths, queries):
    batch = len(lengths)
    found = packed(batch * queries, sum(lengths), batch, queries, max(lengths)).work
    assert found.matrix_flops == 2 * 2 * 4 * 8 * sum(queries * keys for keys in lengths)
    turned = packed(sum(lengths), batch * queries, batch, max(lengths), queries).work
    assert turned.matrix_flops == found.matrix_flops


@recent_torch
def test_of_sequences_of_different_lengths_the_longest_is_known():
    found = packed(10, 10, 3, 6, 6, causal=True)  # 6 and 4 more in two sequences
    assert found.work.matrix_flops == 2 * 2 * 4 * 8 * (21 + 3 + 3)
    assert packed(12, 10, 3, 4, 6, causal=True).work.assumption == found.work.assumption == EQUAL
    lengths = Sequences(3, 10, 10, 36 + 9 + 1, 36 + 9 + 1)
    known = count(packed_call(10, 10, 3, 6, 6, causal=True), sequences=lengths)
    assert (known.work.matrix_flops, known.work.assumption) == (2 * 2 * 4 * 8 * (21 + 6 + 1), "")


@recent_torch
def test_keys_in_a_cache_are_unknown():
    used = meta(3, dtype=torch.int32)
    assert "number of keys" in packed(12, 12, 3, 4, 4, seqused_k=used).reason
    assert "paged keys" in packed(12, 12, 3, 4, 4, block_table=meta(3, 2, dtype=torch.int32)).reason


def test_packed_sequences_of_the_other_backends():
    offsets, heads = tensor(3 + 1, dtype="int32"), tensor(1, 12, 4, 8)
    efficient = work("aten::_efficient_attention_forward", *[heads] * 3, None, offsets, offsets, 4, 4, 0.0, 1, True)
    assert efficient.matrix_flops == 3 * 4 * (4 * 5 // 2) * 2 * 2 * 8
    assert efficient.bytes_written == 4 * 12 * 4 * 8 + 4 * (3 * 4 * 32) + 16  # log-sums [b, h, 32], seed and offset
    whole = tensor(12, 4, 8)
    cudnn = work("aten::_cudnn_attention_forward", *[whole] * 3, None, offsets, offsets, 4, 4, True, 0.0, True)
    assert (cudnn.matrix_flops, cudnn.bytes_written) == (efficient.matrix_flops, 4 * 12 * 4 * 8 + 4 * 12 * 4 + 16)
    public = work("torch_attn::_varlen_attn", *[whole] * 3, offsets, offsets, 4, 4, False, None, (-1, 0))
    assert public.matrix_flops == efficient.matrix_flops  # a window of (-1, 0) is causal
    backward = work(
        "torch_attn::_varlen_attn_backward", *[whole] * 5, tensor(4, 12), offsets, offsets, 4, 4, True, tensor(2, dtype="uint64")
    )
    assert 2 * backward.matrix_flops == 5 * efficient.matrix_flops


def test_the_public_operators_for_packed_sequences_return_what_is_counted():
    pytest.importorskip("torch.nn.attention.varlen")  # registers them

    ops = torch.ops.torch_attn
    whole, offsets = meta(12, 4, 8), meta(3 + 1, dtype=torch.int32)
    sequences = (whole, whole, whole, offsets, offsets, 4, 4, True)
    found, returned = called(ops._varlen_attn.default, *sequences)
    assert found.bytes_written == nbytes(returned)
    in_place, log_sum = called(ops._varlen_attn_out.default, whole, *sequences)
    assert in_place.bytes_written == nbytes(whole) + nbytes(log_sum)
    assert in_place.matrix_flops == found.matrix_flops == 3 * 4 * (4 * 5 // 2) * 2 * 2 * 8
    backward, gradients = called(ops._varlen_attn_backward.default, *[whole] * 5, *returned[1:2], *sequences[3:], returned[2])
    assert backward.bytes_written == nbytes(gradients)


# --- flex attention ----------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
@recent_torch
def test_flex_attention_without_a_block_mask_is_all_pairs():
    from torch.nn.attention.flex_attention import flex_attention

    query, key = torch.rand(2, 4, 16, 8), torch.rand(2, 2, 24, 8)  # two query heads share a key head
    calls = record(lambda: flex_attention(query, key, key, enable_gqa=True), None).calls
    (call,) = [call for call in calls if call.signature.name == "higher_order::flex_attention"]
    found = count(call.signature, outputs=call.outputs).work
    assert found.matrix_flops == 2 * 2 * (2 * 4) * 16 * 24 * 8
    assert found.bytes_read == 4 * (2 * 4 * 16 * 8 + 2 * 2 * 2 * 24 * 8)
    assert found.bytes_written == 4 * (2 * 4 * 16 * 8 + 2 * (2 * 4 * 16))  # log-sum and largest score of each row


def test_what_a_block_mask_leaves_out_is_unknown():
    blocks = tensor(1, 1, 2, dtype="int32")
    block_mask = (256, 256, blocks, blocks, 128, 128, MISSING)
    outcome = count(Signature("higher_order::flex_attention", (*[tensor(1, 4, 256, 8)] * 3, MISSING, block_mask, 0.1, MISSING)))
    assert outcome.reason == "blocks skipped by the mask not recorded"


def test_flex_attention_backward_is_five_products():
    heads, rows = tensor(1, 4, 16, 8), tensor(1, 4, 16)
    block_mask = (1, 1, 1 << 30, 1 << 30, MISSING)
    args = (heads, heads, heads, heads, rows, heads, None, MISSING, MISSING, block_mask, 0.1, MISSING)
    found = count(Signature("higher_order::flex_attention_backward", args), outputs=(heads, heads, heads)).work
    assert (found.matrix_flops, found.bytes_written) == (5 * 2 * 4 * 16 * 16 * 8, 3 * 4 * 4 * 16 * 8)


# --- fused layers ------------------------------------------------------------------------------------------------------------------


def test_vit_multi_head_attention_in_one_operator():
    # ViT-B/16: 197 tokens of 768, 12 heads of 64
    tokens = tensor(2, 197, 768)
    found = work(
        "aten::_native_multi_head_attention", tokens, tokens, tokens, 768, 12, tensor(2304, 768), tensor(2304), tensor(768, 768),
        tensor(768), None, False, True, None,
    )  # fmt: skip
    projections = 2 * (2 * 197) * 768 * (2304 + 768)
    scores_and_values = 2 * 2 * (2 * 12) * 197 * 197 * 64
    assert found.matrix_flops == projections + scores_and_values
    # the tokens once, as query, key and value are one tensor; four parameters; one output
    assert found.bytes_read == 4 * (2 * 197 * 768 + 2304 * 768 + 2304 + 768 * 768 + 768)
    assert found.bytes_written == 4 * 2 * 197 * 768


@pytest.mark.parametrize(("needed", "average", "weights"), [(True, True, 2 * 5 * 5), (True, False, 2 * 4 * 5 * 5), (False, True, 0)])
def test_the_attention_weights_are_written_where_they_are_asked_for(needed, average, weights):
    tokens, layer = torch.rand(2, 5, 16), torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    args = (tokens, tokens, tokens, 16, 4, layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias)
    with torch.no_grad():
        found, returned = called(aten._native_multi_head_attention.default, *args, None, needed, average)
    assert found.bytes_written == 4 * (2 * 5 * 16 + weights)
    assert nbytes(returned[0]) + (nbytes(returned[1]) if needed else 0) == found.bytes_written


# --- rows of the table of what is wrong elsewhere ----------------------------------------------------------------------------------


def test_cpu_sdpa_is_counted_forward_and_backward(tmp_path):
    # torch's counter: 0. 2 * 4 heads, 100 x 100 pairs, depth 32; the backward is 5 products of the forward's 2
    product = 2 * (2 * 4) * 100 * 100 * 32
    heads = torch.rand(2, 4, 100, 32, requires_grad=True)
    assert rooflines.count(functional.scaled_dot_product_attention, heads, heads, heads).matrix_flops == 2 * product
    assert rooflines.count(functional.scaled_dot_product_attention, heads, heads, heads, backward=True).matrix_flops == 7 * product

    def step():
        functional.scaled_dot_product_attention(heads, heads, heads).sum().backward()

    assert work_of_trace(step, tmp_path).matrix_flops == 7 * product


def test_flash_attention_of_a_published_trace():
    # BERT-small on an H100: 8 heads of 141 x 64. The source has 40,716,288 FLOPs and 577,536 bytes: query, key, value and result.
    heads = tensor(1, 8, 141, 64, dtype="bfloat16")
    found = work("aten::_scaled_dot_product_flash_attention", heads, heads, heads, 0.0, False, False, 0.125)
    assert found.matrix_flops == 2 * 2 * 8 * 141 * 141 * 64 == 40_716_288
    assert found.bytes == 577_536 + 4 * 8 * 141 + 24  # and a log-sum-exp a row, the random state


@recent_torch
def test_arguments_of_this_torch_are_those_of_the_schemas():
    """An operator that gains or loses an argument would be misread in silence: their number is held here."""
    lengths = {"_flash_attention_forward": 17, "_efficient_attention_forward": 14, "_cudnn_attention_forward": 15}
    for name, length in lengths.items():
        assert len(getattr(aten, name).default._schema.arguments) == length
    assert tensor_arg(torch.empty(2, 3)) == TensorArg((2, 3), "float32", (3, 1))
