"""Hyper-connections: closed forms of the product, the weights of the streams, and the mixing."""

from __future__ import annotations

import pytest

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import count
from tests.roofline.formulas.libraries.calls import bf16, figures, fp32

T, N, D = 5, 4, 30  # tokens, streams, width
OUT = 2 * N + N * N
STREAMS, FN, SCALE, BASE = bf16(T, N, D), fp32(OUT, N * D), fp32(3), fp32(OUT)
POST, COMB = fp32(T, N, 1), fp32(T, N, N)


def weights(parts, iterations, norm=0):
    matrix = N * N * (14 + 4 * iterations)  # a softmax; sums and quotients of rows and columns
    return T * ((parts - 1) * (OUT + 1) + 2 * OUT + 2 * N * 13 + matrix + D * (2 * N - 1 + norm))


def test_the_weights_and_the_layers_input():
    args = (POST, COMB, bf16(T, D), fp32(3, T, OUT), fp32(3, T), SCALE, BASE, STREAMS)
    read = 2 * T * N * D + 4 * (3 * T * OUT + 3 * T + 3 + OUT)
    made = 4 * T * (N + N * N) + 2 * T * D
    plain = figures("aiter::mhc_pre_big_fuse", *args, 1e-6, 1e-6, 1e-6, 1.0, 20)
    assert plain == (0, weights(3, 20), read, made, "bf16")
    normed = figures("aiter::mhc_pre_big_fuse_rmsnorm", *args, bf16(D), 1e-6, 1e-6, 1e-6, 1e-6, 1.0, 7)
    assert normed == (0, weights(3, 7, 4), read + 2 * D, made, "bf16")
    post, comb, out, product, squares, scale, base, residual = args
    trtllm = (product, squares, residual, scale, base, post, comb, out, T, N * D, D, 1e-6, 1e-6, 1e-6, 1.0, 20, 3)
    assert figures("trtllm::mhc_big_fuse", *trtllm) == plain


@pytest.mark.parametrize(
    "name", ["aiter::mhc_pre", "aiter::mhc_fused_post_pre", "aiter::mhc_fused_post_pre_large_m", "vllm::mhc_pre_aiter",
             "vllm::mhc_post_aiter", "vllm::mhc_fused_post_pre_aiter"],
)  # fmt: skip
def test_what_only_calls_these_is_composite(name):
    assert count(Signature(name, (STREAMS, FN))).kind == "composite"
