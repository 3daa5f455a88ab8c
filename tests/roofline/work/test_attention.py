"""Attention: closed forms, the causal triangle, the flash backward, and the fused layers of nn.TransformerEncoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.work import count
from rooflines.roofline.work.attention import pairs

pytestmark = pytest.mark.unit


def tensor(*shape, dtype="float32"):
    return TensorArg(shape, dtype)


def work(name, *args):
    outcome = count(Signature(name, args))
    assert outcome.kind == "counted", outcome
    return outcome.work


def test_flash_attention_of_a_published_trace():
    # BERT-small on an H100: 8 heads of 141 x 64. The source has 40,716,288 FLOPs and 577,536 bytes.
    heads = tensor(1, 8, 141, 64, dtype="bfloat16")
    found = work("aten::_scaled_dot_product_flash_attention", heads, heads, heads, 0.0, False, False, 0.125)
    assert found.matrix_flops == 2 * 2 * 8 * 141 * 141 * 64 == 40_716_288
    assert found.bytes == 4 * 2 * 8 * 141 * 64 == 577_536


@given(st.integers(1, 40), st.integers(1, 40))
def test_causal_pairs_are_those_on_and_below_the_diagonal(queries, keys):
    assert pairs(queries, keys, causal=True) == sum(1 for query in range(queries) for key in range(keys) if key <= query)


def test_causal_square_attention_is_s_s_plus_1_over_2():
    heads = tensor(2, 3, 10, 4)
    full = work("aten::scaled_dot_product_attention", heads, heads, heads, None, 0.0, False)
    causal = work("aten::scaled_dot_product_attention", heads, heads, heads, None, 0.0, True)
    assert causal.matrix_flops * 100 == full.matrix_flops * (10 * 11 // 2)
    assert causal.bytes == full.bytes


def test_flash_backward_is_five_products_where_the_forward_has_two():
    heads, log_sum = tensor(2, 3, 10, 4), tensor(2, 3, 10)
    forward = work("aten::_scaled_dot_product_flash_attention_for_cpu", heads, heads, heads, 0.0, False, None, None)
    backward = work(
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward", *[heads] * 5, log_sum, 0.0, False, None, None
    )  # fmt: skip
    assert 2 * backward.matrix_flops == 5 * forward.matrix_flops
    assert backward.bytes_read == 4 * (5 * 240 + 60)  # gradient, q, k, v, output; one log-sum a row
    assert backward.bytes_written == 4 * 3 * 240


BACKWARDS = {
    "aten::_scaled_dot_product_flash_attention_backward": (None, None, 10, 10, 0.0, False, None, None, None),
    "aten::_scaled_dot_product_cudnn_attention_backward": (None, None, None, None, None, 10, 10, 0.0, False, None),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_backends_agree(name):
    heads, log_sum = tensor(2, 3, 10, 4), tensor(2, 3, 10)
    reference = work("aten::_scaled_dot_product_flash_attention_for_cpu_backward", *[heads] * 5, log_sum, 0.0, False)
    assert work(name, *[heads] * 5, log_sum, *BACKWARDS[name]).matrix_flops == reference.matrix_flops
    efficient = ("aten::_scaled_dot_product_efficient_attention_backward", *[heads] * 4, None, heads, log_sum, None, None, 0.0)
    assert work(*efficient, (True, True, True, False), False, None).matrix_flops == reference.matrix_flops


def test_keys_and_values_of_another_length_and_depth():
    # cross attention: 7 queries meet 11 keys, values are 5 deep
    found = work("aten::scaled_dot_product_attention", tensor(1, 2, 7, 3), tensor(1, 2, 11, 3), tensor(1, 2, 11, 5), None, 0.0, False)
    assert found.matrix_flops == 2 * 2 * 7 * 11 * (3 + 5)
    assert found.bytes_written == 4 * 2 * 7 * 5


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


def test_an_encoder_layer_is_attention_and_two_linear_layers():
    src, width, hidden = tensor(2, 10, 16), 16, 64
    vector = tensor(width)
    found = work(
        "aten::_transformer_encoder_layer_fwd", src, width, 4, tensor(48, 16), tensor(48), tensor(16, 16), vector, True, False, 1e-5,
        vector, vector, vector, vector, tensor(hidden, 16), tensor(hidden), tensor(16, hidden), vector, None, None,
    )  # fmt: skip
    attention = 2 * 20 * 16 * (48 + 16) + 2 * 2 * (2 * 4) * 10 * 10 * 4
    assert found.matrix_flops == attention + 2 * (2 * 20 * 16 * 64)


def test_packed_sequences_are_unknown():
    packed = tensor(100, 4, 8)
    outcome = count(
        Signature("aten::_flash_attention_forward", (packed, packed, packed, tensor(5, dtype="int32"), None, 30, 30, 0.0, False))
    )
    assert (outcome.kind, outcome.reason) == ("unknown", "sequences of different lengths are packed into one tensor")
