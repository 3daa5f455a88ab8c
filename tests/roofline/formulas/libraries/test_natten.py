"""NATTEN: closed forms by hand at odd shapes, and pairs by enumeration."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int32, reason

# 2 images of 9 by 11 tokens, 3 heads of depth 16, values of depth 8.
Q, V, SUMS = bf16(2, 9, 11, 3, 16), bf16(2, 9, 11, 3, 8), fp32(2, 9, 11, 3)
TOKENS = 2 * 99 * 3
FREE = ((1, 1), (1, 1), (False, False), 0.25)


def test_every_token_has_a_whole_neighborhood():
    found = figures("natten::na2d_forward", Q, Q, V, (3, 5), *FREE, (8, 8), (8, 8))
    pairs = TOKENS * 15
    assert found == (2 * pairs * 24, 15 * pairs, 2 * TOKENS * 40, TOKENS * (2 * 8 + 4), "bf16")
    back = counted("natten::na2d_backward", Q, Q, V, V, V, SUMS, (3, 5), *FREE).work
    assert back.matrix_flops == 2 * pairs * (3 * 16 + 2 * 8)
    assert counted("natten::na2d_forward", Q, Q, V, (3, 5), (2, 3), (3, 2), (False, False), 0.25).work.matrix_flops == found[0]


@pytest.mark.parametrize(("kernel", "dilation"), [(5, 1), (3, 2), (2, 5)])
def test_a_causal_neighborhood_starts_at_the_border(kernel, dilation):
    query = bf16(1, 11, 1, 16)
    pairs = sum(min(place // dilation + 1, kernel) for place in range(11))
    found = counted("natten::na1d_forward", query, query, query, (kernel,), (1,), (dilation,), (True,), 0.25).work
    assert found.matrix_flops == 2 * pairs * 32
    assert reason("natten::na1d_forward", query, query, query, (kernel,), (2,), (dilation,), (True,), 0.25).startswith("a causal")


@pytest.mark.parametrize("kind", ["hopper", "blackwell"])
def test_padding_and_dilation_of_tiles_do_not_count(kind):
    """9 by 11 tokens in tiles of 4 by 4, dilated by 1 and 2: 2 * 2 batches of 12 by 8 tokens."""
    query, value = bf16(4, 96, 3, 16), bf16(4, 96, 3, 8)
    geometry = ((3, 5), (1, 1), (1, 2), (False, False), 0.25, (12, 8), (12, 8), (9, 11))
    found = counted(f"natten::{kind}_na2d_forward", query, query, value, *geometry, (4, 4), (4, 4)).work
    assert (found.matrix_flops, found.bytes_read) == (2 * TOKENS * 15 * 24, 2 * 4 * 96 * 3 * 40)
    back = counted(f"natten::{kind}_na2d_backward", query, query, value, value, value, fp32(4, 96, 3), *geometry).work
    assert back.matrix_flops == 2 * TOKENS * 15 * (3 * 16 + 2 * 8)


def test_tokens_in_tiles():
    """9 by 11 -> 3 tiles by 3, rounded up to 4 for the dilation: 12 by 16 tokens."""
    row = 2 * 3 * 16
    assert figures("natten::token_permute_2d", Q, (4, 4), (1, 2), True)[2:4] == (2 * 99 * row, 2 * 12 * 16 * row)
    tiled = bf16(4, 96, 3, 16)
    assert figures("natten::token_unpermute_2d", tiled, (9, 11), (4, 4), (1, 2), True)[2:4] == (2 * 99 * row, 2 * 99 * row)


def test_attention_to_all_tokens():
    query, key = bf16(2, 7, 3, 16), bf16(2, 9, 3, 16)
    for name, more in (("fmha", ()), ("hopper_fmha", (0,)), ("blackwell_fmha", (True,))):
        args = (query, key, key, False, 0.25, 64, 64, *more, None, None, 0, 0)
        assert counted(f"natten::{name}_forward", *args).work.matrix_flops == 2 * 6 * 63 * 32
    args = (query, key, key, query, query, fp32(2, 7, 3), False, 0.25, 64, 64, None, True, None, None, 0, 0)
    assert counted("natten::fmha_backward", *args).work.matrix_flops == 5 * 2 * 6 * 63 * 16
    packed = (bf16(1, 14, 3, 16), bf16(1, 14, 3, 16), bf16(1, 14, 3, 16), True, 0.25, 64, 64, int32(3), int32(3), 7, 7)
    assert counted("natten::fmha_forward", *packed).work.matrix_flops == 2 * 6 * 28 * 32
