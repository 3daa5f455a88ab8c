"""QuACK's operators: closed forms by hand at odd shapes."""

from __future__ import annotations

from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int32, int64

M, N, K = 37, 52, 19
FLOPS = 2 * 37 * 52 * 19
A, B, OUT = bf16(M, K), bf16(K, N), bf16(M, N)
READ = 2 * (M * K + K * N)


def test_products():
    assert figures("quack::gemm_out", A, B, OUT, None, 1.0, None) == (FLOPS, 0, READ, 2 * M * N, "bf16")
    assert figures("quack::gemm", A, B, bf16(N)) == (FLOPS, M * N, READ + 2 * N, 2 * M * N, "bf16")
    added = (FLOPS, M * N, READ + 2 * M * N, 2 * M * N, "bf16")
    assert figures("quack::gemm_add_out", A, B, OUT, OUT, None, 1.0, 1.0) == added
    assert figures("quack::gemm_add_out", A, B, OUT, OUT, 1.0, 1.0) == added  # December 2025
    assert figures("quack::gemm_add", A, B, OUT) == added
    into = figures("quack::gemm_add_inplace", A, B, fp32(M, N), None, 1.0)
    assert into == (FLOPS, M * N, READ + 4 * M * N, 4 * M * N, "bf16")
    batch = figures("quack::gemm_out", bf16(3, M, K), bf16(3, K, N), bf16(3, M, N), None)
    assert batch == (3 * FLOPS, 0, 3 * READ, 6 * M * N, "bf16")


def test_products_of_groups():
    rows = counted("quack::gemm_out", A, bf16(3, K, N), OUT, None, 1.0, None, int32(4), None, None).work
    assert (rows.matrix_flops, rows.bytes_read) == (FLOPS, 2 * (M * K + 3 * K * N) + 16)
    assert "experts" in rows.assumption
    gathered = counted("quack::gemm_out", bf16(9, K), bf16(3, K, N), OUT, None, 1.0, None, int32(4), None, int32(M)).work
    assert gathered.matrix_flops == FLOPS
    inner = counted("quack::gemm_out", bf16(M, 2 * K), bf16(2 * K, N), bf16(3, M, N), None, 1.0, None, None, int32(4)).work
    assert (inner.matrix_flops, inner.bytes_written) == (2 * FLOPS, 6 * M * N)


def test_a_symmetric_product_is_computed_once():
    assert figures("quack::gemm_symmetric_out", A, bf16(K, M), bf16(M, M), None)[0] == M * (M + 1) * K


def test_two_losses_of_one_name():
    """TransformerEngine's has a number after the labels, and leaves the gradient in place of the logits."""
    ours = counted("CrossEntropyFunction", A, int64(M), None, None, -100, False).work
    assert (ours.flops, ours.bytes_written, ours.assumption) == (14 * M * K, 8 * M, "")
    assert counted("CrossEntropyFunction", A, int64(M), 0.0, False, None, -100).work.bytes_written == 2 * M * K + 4 * M
