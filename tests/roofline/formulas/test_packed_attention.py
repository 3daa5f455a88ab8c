"""Attention over packed sequences and KV caches: lengths against sequences written out one by one, and flash-attn's calls by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.signature import MISSING, Signature
from rooflines.roofline.count.formulas import Work, count
from rooflines.roofline.count.formulas.costs import SOFTMAX, SOFTMAX_FROM_LOG_SUM, TANH
from rooflines.roofline.count.formulas.lengths import EQUAL, WINDOW, Sequences
from rooflines.roofline.count.formulas.packed_attention import LONGEST, NEW_ONLY, NO_WINDOW
from tests.roofline.formulas.by_hand import tensor
from tests.roofline.formulas.libraries.calls import reason

HALF = "bfloat16"


def work(name, *args, sequences=None):
    found = count(Signature(name, args), sequences=sequences)
    assert found.work is not None, found.reason
    assert found.category == "attention"
    return found.work


def sums(*lengths):
    """The sums over sequences of (queries, keys)."""
    return sum((Sequences(1, q, k, q * q, q * k) for q, k in lengths), Sequences(0, 0, 0, 0, 0))


def ends(batch):
    return tensor(batch + 1, dtype="int32")


# --- lengths -----------------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_causal_self_attention_is_bounded_from_below_by_what_the_arguments_say(batch):
    """The number of sequences, the longest and the total are recorded; equal others need the fewest pairs."""
    total, longest = sum(batch), max(batch)
    packed = tensor(total, 2, 8, dtype=HALF)
    found = varlen(packed, packed, packed, len(batch), longest, longest)
    exact = 2 * sum(length * (length + 1) // 2 for length in batch) * 4 * 8
    assert found.matrix_flops <= exact
    if total == len(batch) * longest:
        assert (found.matrix_flops, found.assumption) == (exact, "")
    else:
        assert found.assumption == EQUAL


# --- flash-attn 2 ------------------------------------------------------------------------------------------------------------------


def varlen(q, k, v, batch, max_q, max_k, causal=True, left=-1, right=-1, pages=None, used=None, softcap=0.0, sequences=None):
    return work(
        "flash_attn::_flash_attn_varlen_forward", q, k, v, ends(batch), ends(batch), max_q, max_k, 0.0, 0.125, causal, left, right,
        softcap, None, False, pages, None, used, False, 0, sequences=sequences,
    )  # fmt: skip


def test_fixed_lengths_with_grouped_queries_and_a_causal_mask():
    """5 queries meet 7 keys, the last the last: 3 + 4 + 5 + 6 + 7 pairs of each of 2 * 6 rows of heads."""
    q, k, v = tensor(2, 5, 6, 8, dtype=HALF), tensor(2, 7, 3, 8, dtype=HALF), tensor(2, 7, 3, 8, dtype=HALF)
    found = work("flash_attn::_flash_attn_forward", q, k, v, 0.0, 0.35, True, -1, -1, 0.0, None, False)
    meeting = 2 * 6 * (3 + 4 + 5 + 6 + 7)
    assert found == Work(
        matrix_flops=4 * 8 * meeting,
        other_flops=meeting * (1 + SOFTMAX),
        bytes_read=2 * (2 * 5 * 6 * 8 + 2 * 2 * 7 * 3 * 8),
        bytes_written=2 * 2 * 5 * 6 * 8 + 4 * 2 * 5 * 6,  # the result, and a float32 for each row
        precision="bf16",
    )


def test_a_window_a_softcap_dropout_and_slopes():
    """Window (2, 1) over 4 queries and 4 keys: 2 + 3 + 4 + 3 pairs."""
    q, slopes = tensor(1, 4, 5, 8, dtype="float16"), tensor(5)
    found = work("flash_attn::_flash_attn_forward", q, q, q, 0.1, 0.35, False, 2, 1, 30.0, slopes, False)
    meeting = 5 * (2 + 3 + 4 + 3)
    assert (found.matrix_flops, found.other_flops) == (4 * 8 * meeting, meeting * (1 + SOFTMAX + 2 + 2 + TANH + 1))
    assert found.bytes_read == 3 * 2 * 4 * 5 * 8 + 4 * 5


Q, K, Q16 = tensor(15, 4, 8, dtype=HALF), tensor(20, 2, 8, dtype=HALF), tensor(16, 2, 8, dtype=HALF)
# Causal calls without a cache: tensors, sequences and the longest ones; the pairs of every head, and what is assumed.
PACKED = {
    "5 queries meet 7 keys in each of 3 sequences": ((Q, tensor(21, 2, 8, dtype=HALF), 3, 5, 7), {}, 3 * (3 + 4 + 5 + 6 + 7), ""),
    "without a mask equally long queries are enough": ((Q, K, 3, 5, 9), {"causal": False}, 5 * 20, ""),
    "the longest has 8 of 16 tokens, the others are taken as equal": ((Q16, Q16, 3, 8, 8), {}, 36 + 2 * 10, EQUAL),
    "lengths of a server": ((Q16, Q16, 3, 8, 8), {"sequences": sums((8, 8), (7, 7), (1, 1))}, 36 + 28 + 1, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences(name):
    (q, k, *sizes), options, meeting, assumption = PACKED[name]
    found = varlen(q, k, k, *sizes, **options)
    assert (found.matrix_flops, found.assumption) == (4 * 8 * q.shape[1] * meeting, assumption)
    assert found.bytes_read == q.nbytes + 2 * k.nbytes + 2 * 4 * 4


@pytest.mark.parametrize("other", [sums((9, 9), (8, 8)), sums((4, 90), (2, 2)), sums((1, 1), (1, 1), (1, 1), (1, 1)), sums()])
def test_lengths_of_another_call_are_not(other):
    """More tokens or sequences than the call has, or more keys than it is given."""
    q = tensor(16, 2, 8, dtype=HALF)
    assert varlen(q, q, q, 3, 8, 8, sequences=other) == varlen(q, q, q, 3, 8, 8)


def test_a_cross_attention_does_not_take_the_lengths_of_the_language_model():
    q, k = tensor(3 * 5, 4, 8, dtype=HALF), tensor(20, 2, 8, dtype=HALF)
    known = sums((5, 5), (5, 5), (5, 5))
    assert varlen(q, k, k, 3, 5, 9, causal=False, sequences=known) == varlen(q, k, k, 3, 5, 9, causal=False)


# --- paged caches ------------------------------------------------------------------------------------------------------------------

CACHE = tensor(100, 16, 2, 8, dtype=HALF)  # 1600 tokens of 2 heads
TOKEN = 2 * 2 * 2 * 8  # bytes of a token's keys and values
TABLE = tensor(3, 10, dtype="int32")


STEP_OF_3 = sums((1, 33), (1, 90), (1, 5))


def queries(tokens):
    return tensor(tokens, 4, 8, dtype=HALF)


def table(sequences, pages=10):
    return tensor(sequences, pages, dtype="int32")


# Queries, the arguments of their sequences; the pairs of every head, the tokens that are read from the cache, what is assumed.
CACHED = {
    "recorded lengths": ((3, 3, 1, 90), {"sequences": STEP_OF_3}, 128, 128, ""),
    "a query that sees all keys needs no mask": ((3, 3, 1, 90), {"sequences": STEP_OF_3, "causal": False}, 128, 128, ""),
    "a padded batch has the tokens of the mark": ((8, 8, 1, 90), {"sequences": STEP_OF_3}, 128, None, ""),
    "tables of a captured graph have room for more sequences": ((3, 64, 1, 131072), {"pages": table(64, 8192)}, 3, None, NEW_ONLY),
    "and take the lengths of the step": ((3, 64, 1, 131072), {"pages": table(64, 8192), "sequences": STEP_OF_3}, 128, 128, ""),
    "a window reads no more": ((2, 2, 1, 40), {"left": 7, "sequences": sums((1, 40), (1, 40))}, 2 * 8, 2 * 8, WINDOW),
    "without a mark all are as long as the longest": ((3, 3, 1, 90), {}, 270, 270, LONGEST),
    "the longest length of the model says nothing": ((3, 3, 1, 131072), {"pages": table(3, 8192)}, 3, None, NEW_ONLY),
    "prompts without a prefix": ((60, 3, 20, 20), {}, 3 * 210, 60, ""),
}


@pytest.mark.parametrize("name", CACHED)
def test_paged_caches(name):
    (tokens, sequences, *longest), options, meeting, read, assumption = CACHED[name]
    found = varlen(queries(tokens), CACHE, CACHE, sequences, *longest, **{"pages": table(sequences), **options})
    assert (found.matrix_flops, found.assumption) == (4 * 8 * 4 * meeting, assumption)
    if read is not None:
        assert found.bytes_read == 2 * tokens * 4 * 8 + read * TOKEN + 2 * 4 * (sequences + 1)


def test_a_padded_batch_writes_the_rows_of_its_tokens_and_lengths_used_are_read():
    padded = varlen(queries(8), CACHE, CACHE, 8, 1, 90, pages=table(8), sequences=STEP_OF_3)
    assert padded.bytes_written == 3 * 4 * (2 * 8 + 4)
    plain, used = (
        varlen(queries(3), CACHE, CACHE, 3, 1, 90, pages=TABLE, used=one, sequences=STEP_OF_3)
        for one in (None, tensor(3, dtype="int32"))
    )
    assert used.bytes_read - plain.bytes_read == 3 * 4


def test_a_part_of_a_step_that_is_not_causal_does_not_take_its_lengths():
    """Attention to a common prefix: all queries see all of it."""
    args, known = (queries(20), CACHE, CACHE, 2, 10, 30), sums((10, 40), (10, 40))
    assert varlen(*args, causal=False, pages=TABLE, sequences=known) == varlen(*args, causal=False, pages=TABLE)


def test_appended_keys_are_written_and_not_read_from_the_cache():
    """fwd_kvcache: 2 sequences in a cache of 64 tokens each; one new token of each."""
    q, cache, new = tensor(2, 1, 4, 8, dtype=HALF), tensor(2, 64, 2, 8, dtype=HALF), tensor(2, 1, 2, 8, dtype=HALF)
    args = (q, cache, cache, new, new, tensor(2, dtype="int32"), *[None] * 7, 0.3, True, -1, -1, 0.0, False, 0)
    found = work("_vllm_fa2_C::fwd_kvcache", *args, sequences=sums((1, 30), (1, 11)))
    assert (found.matrix_flops, found.bytes_read) == (4 * 8 * 4 * 41, 2 * 2 * 4 * 8 + (41 - 2) * TOKEN + 2 * TOKEN + 2 * 4)
    assert found.bytes_written == 2 * 4 * (2 * 8 + 4) + 2 * TOKEN
    assert work("_vllm_fa2_C::fwd_kvcache", *args).assumption == LONGEST


def test_flash_attention_from_the_hub_has_the_commit_of_its_build_in_its_name():
    q, k, log_sum = tensor(15, 4, 8, dtype=HALF), tensor(21, 2, 8, dtype=HALF), tensor(4, 15)
    options = (0.0, 0.3, False, True, -1, -1, 0.0)
    found = work("_flash_attn2_cuda_1d39a44::varlen_fwd", q, k, k, None, ends(3), ends(3), *[None] * 4, 5, 7, *options, False, None)
    assert found == varlen(q, k, k, 3, 5, 7)
    back = work(
        "_flash_attn_1d39a44_dirty::varlen_bwd", q, q, k, k, q, log_sum, *[None] * 3, ends(3), ends(3), None, 5, 7, *options, False
    )
    assert back.matrix_flops == 5 * 2 * 8 * 4 * 3 * 25
    fixed, keys = tensor(3, 5, 4, 8, dtype=HALF), tensor(3, 7, 2, 8, dtype=HALF)
    options = (0.0, 0.3, True, -1, -1, 0.0, False, None)
    assert work("_flash_attn2_1d39a44::fwd", fixed, keys, keys, None, None, *options).matrix_flops == found.matrix_flops
    assert work("_flash_attn2_1d39a44::bwd", fixed, fixed, keys, keys, fixed, log_sum, *[None] * 4, *options).flops == back.flops
    third = work("_flash_attn3_48fe103::fwd", *three(fixed, keys, keys, end=(0, 0.0, True, None, 0, None, 0)))
    assert third.matrix_flops == found.matrix_flops
    diffusers = work(
        "_diffusers_flash_attn_3::_flash_attn_forward", fixed, keys, keys, 0.3, True, *[None] * 4, 0, 0.0, 1, None, False, 0
    )
    assert diffusers == third


# --- flash-attn 3 ------------------------------------------------------------------------------------------------------------------


def three(q, k, v, *, rest=None, cum_q=None, used=None, max_q=None, max_k=None, pages=None, middle=(), end=()):
    first = (q, k, v, None, None, rest, None, cum_q, None, None, None, used, max_q, max_k, pages, *[None] * 8)
    return (*first, *middle, 0.1, True, -1, -1, *end)


STEP = {"cum_q": ends(3), "used": tensor(3, dtype="int32"), "max_q": 1, "max_k": 90, "pages": TABLE}


@pytest.mark.parametrize(
    ("name", "middle", "end"),
    [
        ("flash_attn_3::fwd", (), (0, 0.0, False, None, 0, None, 0)),
        ("flash_attn_3::_flash_attn_forward", (), (0, 0.0, True, None, 1, None, 0)),
        ("_vllm_fa3_C::fwd", (None,), (0.0, True, None, 0, None, 0, None, 1, 0, None)),
        ("_vllm_fa3_C::fwd", (), (0.0, True, None, 0, None, 0)),
        ("sgl_kernel::fwd", (), (0.0, True, None, 0, None, 0)),
        ("sgl_kernel::fwd", (), (0, 0.0, True, None, 0, None, 0, None)),
    ],
)
def test_every_version_of_flash_attention_3_counts_alike(name, middle, end):
    q = tensor(3, 4, 8, dtype=HALF)
    found = work(name, *three(q, CACHE, CACHE, **STEP, middle=middle, end=end), sequences=sums((1, 33), (1, 90), (1, 5)))
    assert (found.matrix_flops, found.bytes_read) == (4 * 8 * 4 * 128, 2 * 3 * 4 * 8 + 128 * TOKEN + 4 * 4 + 3 * 4)
    assert found.bytes_written == 3 * 4 * (2 * 8 + 4)


def test_latent_attention_has_a_part_of_the_query_of_its_own():
    """Keys of 64 and values of 512, both multiplied by the query: 576 and 512 deep."""
    q, rest = tensor(2, 16, 64, dtype=HALF), tensor(2, 16, 512, dtype=HALF)
    k, v = tensor(30, 1, 1, 64, dtype=HALF), tensor(30, 1, 1, 512, dtype=HALF)
    step = {"cum_q": ends(2), "used": tensor(2, dtype="int32"), "max_q": 1, "max_k": None, "pages": tensor(2, 15, dtype="int32")}
    args = three(q, k, v, rest=rest, **step, end=(0, 0.0, False, None, 0, None, 0))
    found = work("flash_attn_3::fwd", *args, sequences=sums((1, 9), (1, 14)))
    assert found.matrix_flops == 2 * (576 + 512) * 16 * 23
    assert found.bytes_read == 2 * 2 * 16 * 576 + 2 * 23 * 576 + 3 * 4 + 2 * 4


def test_8_bit_inputs_multiply_in_8_bits_and_give_16():
    q, cache = tensor(3, 4, 8, dtype="float8_e4m3fn"), tensor(100, 16, 2, 8, dtype="float8_e4m3fn")
    found = work(
        "flash_attn_3::fwd",
        *three(q, cache, cache, **STEP, end=(0, 0.0, False, None, 0, None, 0)),
        sequences=sums((1, 33), (1, 90), (1, 5)),
    )
    assert (found.precision, found.bytes_read) == ("fp8", 3 * 4 * 8 + 128 * TOKEN // 2 + 4 * 4 + 3 * 4)
    assert found.bytes_written == 3 * 4 * (2 * 8 + 4)


# --- backward and autograd's functions ---------------------------------------------------------------------------------------------


def test_a_backward_is_five_products_and_writes_three_gradients():
    q, k, log_sum = tensor(15, 4, 8, dtype=HALF), tensor(21, 2, 8, dtype=HALF), tensor(4, 15)
    name = "flash_attn::_flash_attn_varlen_backward"
    options = (ends(3), ends(3), 5, 7, 0.0, 0.3, True, -1, -1, 0.0, None, False, None, False)
    found = work(name, q, q, k, k, q, log_sum, None, None, None, *options)
    meeting = 4 * 3 * 25
    assert found.matrix_flops == 5 * 2 * 8 * meeting
    assert found.other_flops == meeting * (1 + SOFTMAX_FROM_LOG_SUM + 3) + 2 * 15 * 4 * 8
    assert found.bytes_read == 2 * (3 * 15 * 4 * 8 + 2 * 21 * 2 * 8) + 4 * 4 * 15 + 2 * 4 * 4
    assert found.bytes_written == 2 * (15 * 4 * 8 + 2 * 21 * 2 * 8)


def test_the_two_operators_of_version_3_have_their_gradients_in_different_places():
    q, log_sum = tensor(2, 5, 4, 8, dtype=HALF), tensor(2, 4, 5)
    lengths, gradients = (None,) * 6, (q, q, q)
    options = (0.3, True, -1, -1, 0.0, False, 0)
    one = work("flash_attn_3::bwd", q, q, q, q, q, log_sum, *gradients, *lengths, *options)
    other = work("flash_attn_3::_flash_attn_backward", q, q, q, q, q, log_sum, *lengths, *gradients, *options)
    assert one == other
    assert one.matrix_flops == 5 * 2 * 8 * 2 * 4 * 15


def test_autograds_function_has_the_forward_and_no_window():
    """As the profiler records it: a tuple and None read as None, strings are left out."""
    q, k = tensor(2, 5, 6, 8, dtype=HALF), tensor(2, 7, 3, 8, dtype=HALF)
    found = work("FlashAttnFunc", q, k, k, 0.0, None, True, None, 0.0, None, False, False, True)
    assert found.matrix_flops == 4 * 8 * 2 * 6 * 25
    assert "no window" in found.assumption
    third = work("FlashAttnFunc", q, k, k, None, True, None, None, None, None, None, 0, 0.0, 1, None, False, 0)
    assert third.matrix_flops == found.matrix_flops
    packed = work("FlashAttnVarlenFunc", tensor(15, 4, 8), *[tensor(21, 2, 8)] * 2, ends(3), ends(3), 5, 7, 0.0, None, True, None)
    assert packed.matrix_flops == 4 * 8 * 4 * 3 * 25


def test_autograds_function_of_version_4():
    """2025: without queries of a latent space; sinks are no part of the depth. 2026: with them, and with an index of keys."""
    q, k, sinks = tensor(2, 5, 6, 8, dtype=HALF), tensor(2, 7, 3, 8, dtype=HALF), tensor(6, dtype=HALF)
    flops = 4 * 8 * 2 * 6 * 25
    for options in ((None, True, None, sinks, 0.0, None), (None, None, None, True, None, None, 0.0, 1, None, False)):
        assert work("FlashAttnFunc", q, k, k, *options).matrix_flops == flops
    latent = work("FlashAttnFunc", q, k, k, q, None, None, True, None, None, 0.0, 1, None, False)
    assert latent.matrix_flops == 2 * 2 * 6 * 25 * (16 + 8)
    packed = (tensor(15, 4, 8), *[tensor(21, 2, 8)] * 2)
    middle = work("FlashAttnVarlenFunc", *packed, ends(3), ends(3), None, None, 5, 7, None, None, True, None, None, 0.0)
    last = work("FlashAttnVarlenFunc", *packed, None, ends(3), ends(3), None, None, 5, 7, None, None, None, None, True, None, None, 0.0)
    assert middle.matrix_flops == last.matrix_flops == 4 * 8 * 4 * 3 * 25
    back = work("FlashAttnFuncBackward", (q,), q, k, k, None, None, None, True, None, None, 0.0)
    assert back.matrix_flops == 5 * flops // 2


# --- what is not counted -----------------------------------------------------------------------------------------------------------


def test_arguments_of_another_version_are_not_guessed():
    q = tensor(2, 5, 6, 8, dtype=HALF)
    assert "another version" in reason("flash_attn::_flash_attn_forward", q, q, q, 0.0, 0.35, 1.0, True, -1, -1, None, False)
    assert "another version" in reason("flash_attn::_flash_attn_forward", q, q, q)
    assert reason("flash_attn::_flash_attn_forward") == "shapes not recorded"
    assert "not recorded" in reason("FlashAttnFunc", q, q, q, 0.0, 0.35, MISSING, None, 0.0, None)


def test_attention_in_chunks_is_not_counted():
    q = tensor(2, 5, 6, 8, dtype=HALF)
    assert "chunks" in reason("flash_attn_3::fwd", *three(q, q, q, end=(64, 0.0, False, None, 0, None, 0)))


def test_a_function_whose_window_was_not_read_counts_without_one():
    q = tensor(2, 5, 8, 64, dtype=HALF)
    found = work("FlashAttnFunc", q, q, q, 0.0, 0.125, True, MISSING, 0.0, None, False, False, True)
    assert (found.matrix_flops, found.assumption) == (4 * 8 * 64 * 2 * 15, NO_WINDOW)


# --- lengths of a mark that are not those of the call ------------------------------------------------------------------------------


def cached(queries, sequences, longest_query, longest_key, pages, known):
    """flash-attn 3 in vLLM over pages of 16 tokens; 8 heads of 64."""
    q, cache, none = tensor(queries, 8, 64, dtype=HALF), tensor(1000, 16, 2, 64, dtype=HALF), (None,) * 8
    used, table = tensor(sequences, dtype="int32"), tensor(sequences, pages, dtype="int32")
    return work(
        "_vllm_fa3_C::fwd", q, cache, cache, None, None, None, q, ends(sequences), None, None, None, used, longest_query, longest_key,
        table, *none, 0.125, True, -1, -1, 0.0, True, None, 0, None, 0, None, sequences=known,
    )  # fmt: skip


DECODES, PROMPT = sums(*[(1, 1000)] * 4), sums((8, 8))


@pytest.mark.parametrize(
    ("call", "known", "pairs", "assumption"),
    [
        # keys after a common prefix of 800, which another call sees; the last 100 of 1000 tokens, 232 keys since the chunk before
        ((4, 4, 1, 200, 14), DECODES, 800, LONGEST), ((100, 1, 100, 232, 15), sums((100, 1000)), sum(range(133, 233)), LONGEST),
        # a list of pages bounds the lengths of the step
        ((4, 4, 1, MISSING, 14), DECODES, 4 * 14 * 16, LONGEST), ((4, 4, 1, MISSING, 63), DECODES, 4000, ""),
        # a decode, a prefill of as many tokens, and a graph that was captured with one token a sequence
        ((8, 8, 1, 900, 57), sums(*[(1, 900)] * 8), 7200, ""), ((8, 8, 1, 900, 57), PROMPT, 7200, LONGEST),
        ((8, 1, 8, 8, 1), PROMPT, 36, ""), ((4, 4, 1, 1, 64), DECODES, 4000, ""),
    ],
)  # fmt: skip
def test_a_call_takes_the_lengths_of_the_step_only_where_they_can_be_its_own(call, known, pairs, assumption):
    found = cached(*call, known)
    assert (found.matrix_flops, found.assumption) == (4 * 8 * 64 * pairs, assumption)
