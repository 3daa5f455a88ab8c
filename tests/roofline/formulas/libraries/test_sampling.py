"""Sampling, Hadamard transforms, hyper-connections and xformers: closed forms by hand."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, figures, fp32, int32, int64, reason, uint8

B, V = 7, 99
LOGITS = 4 * B * V


def test_names_of_flashinfers_builds():
    for namespace in ("sampling", "flashinfer_kernels"):
        assert figures(f"{namespace}::sampling_from_probs", fp32(B, V), int32(B), None, True, None)[1:4] == (2 * B * V, LOGITS, 4 * B)
        assert figures(f"{namespace}::top_k_sampling_from_probs", fp32(B, V), int32(B), None, None, 5, True, None)[3] == 4 * B
    assert figures("sampling::sampling_from_logits", fp32(B, V), int32(B), None, True, None)[1] == 23 * B * V
    assert figures("sampling::softmax", uint8(99), fp32(B, V), fp32(B, V), None, 1.0, False)[1:4] == (15 * B * V, LOGITS, LOGITS)
    old = ("sampling::sampling_from_probs", fp32(B, V), fp32(B), int32(B), True)
    assert reason(*old) == "arguments of another version of this operator"


@pytest.mark.parametrize("name", ["sgl_kernel::fast_hadamard_transform", "sglang::hadamard_transform", "_C::hadacore_transform"])
def test_a_hadamard_transform_adds_in_each_of_log2_steps(name):
    assert figures(name, bf16(B, 64), 1.0) == (0, (6 + 1) * B * 64, 2 * B * 64, 2 * B * 64, "bf16")
    assert figures(name, bf16(B, 48), 1.0)[1] == (6 + 1) * B * 48


T, N, D = 5, 4, 30  # tokens, streams, width
OUT = 2 * N + N * N
STREAMS, SCALE, BASE = bf16(T, N, D), fp32(3), fp32(OUT)
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


def test_rows_by_index():
    call = (bf16(7, 5, 11), int64(3), bf16(3, 5, 11), bf16(11), 1.5)
    assert figures("_ScaledIndexAdd", *call) == (0, 165 * 3, 24 + 330 + 22 + 330, 330, "bf16")
    assert figures("_ScaledIndexAddBackward", (bf16(7, 5, 11),), *call) == (0, 165 * 4, 330 + 24 + 22 + 330, 660, "bf16")
