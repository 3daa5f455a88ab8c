"""Manifold-constrained hyper-connections (DeepSeek-V4): n residual streams [tokens, n, width] instead of one.

Before a layer, a product of the flat streams with ``fn`` [n + n + n * n, n * width] gives for each token the weights of the streams in
the layer's input, those of its output in the streams, and an n x n matrix that mixes the streams, doubly stochastic by Sinkhorn's
iteration. After the layer, its output and the mixed streams are added.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.tables import table

# n streams of w numbers for each of batch * steps tokens.
_STREAMS: Final = "read residual[batch *steps n w]"
_LAYER: Final = f"read x, {_STREAMS}, read post, read comb"
_EPSILONS: Final = "rms_eps, pre_eps, sinkhorn_eps"
# The product with ``fn``, in whose dtype it is, and the sum of squares.
_PRODUCT: Final = "2 * residual.n * outputs"
_SQUARES: Final = "2 * residual.n"
# Partial sums of the product and of the squares, added.
_SUMS: Final = "batch * steps * (parts - 1) * (n * (n + 2) + 1)"
# For each token a scale and a base of each of the 2 n + n * n numbers, sigmoids, a softmax, and in each iteration of Sinkhorn sums and
# quotients of the rows and columns of the matrix; the layer's input is a weighted sum of the streams.
_WEIGHTS: Final = (
    "batch * steps * (2 * n * (n + 2 + SIGMOID) + n * n * (SOFTMAX + 4 * iterations)) + residual.n // n * (2 * n - 1 + {norm})"
)
_PLAIN, _NORMED = _WEIGHTS.format(norm=0), _WEIGHTS.format(norm="RMS_NORM * bool(weight)")
# Each new stream is a sum of n streams and of the layer's output, all with weights.
_MIXED: Final = "residual.n * (2 * n + 1)"
# The layer's input, and in float32 the weights of its output and the mixing matrix.
_RESULTS: Final = "residual.n // n * residual.item + batch * steps * (n + n * n) * 4"

_PARTIAL: Final = "read product[*parts tokens numbers], read squares"
_MADE: Final = "write post, write comb, write out"
_SMALL: Final = "read scale, read base"
_END: Final = f"read fn[outputs inner], {_SMALL}, {_EPSILONS}, post_mult, iterations, splits=1"


table(f"""
[matmul]
aiter::mhc_pre_gemm_sqrsum: write out, write squares, read residual, read fn[outputs inner]; matrix = {_PRODUCT}; other = {_SQUARES};
    precision = fn
aiter::mhc_fused_post_pre_gemm_sqrsum: write product, write squares, write next, {_LAYER}, read fn[outputs inner];
    matrix = {_PRODUCT}; other = {_SQUARES} + {_MIXED}; precision = fn residual
# All of it in one call, whose partial sums are not its results.
vllm::mhc_pre_tilelang: {_STREAMS}, {_END}, read weight?; matrix = {_PRODUCT}; other = {_SQUARES} + {_NORMED}; writes = {_RESULTS};
    precision = fn residual
vllm::mhc_fused_post_pre_tilelang: {_LAYER}, {_END}, tile=1, read weight? -> residual; matrix = {_PRODUCT};
    other = {_SQUARES} + {_NORMED} + {_MIXED}; writes = {_RESULTS}; precision = fn residual
[element-wise]
aiter::mhc_pre_big_fuse: {_MADE}, {_PARTIAL}, {_SMALL}, {_STREAMS}, {_EPSILONS}, post_mult=1.0, iterations=20;
    other = {_SUMS} + {_PLAIN}; precision = residual
aiter::mhc_pre_big_fuse_rmsnorm: {_MADE}, {_PARTIAL}, {_SMALL}, {_STREAMS}, read weight?, {_EPSILONS}, eps, post_mult=1.0,
    iterations=20; other = {_SUMS} + {_NORMED}; precision = residual
trtllm::mhc_big_fuse: {_PARTIAL}, {_STREAMS}, {_SMALL}, {_MADE}, m, k, width, {_EPSILONS}, post_mult, iterations;
    other = {_SUMS} + {_PLAIN}; precision = residual
vllm::mhc_post_tilelang: read x, read residual[*tokens n w], read post, read comb -> residual; other = {_MIXED};
    precision = residual; fits = residual.rank > 2
aiter::mhc_post like vllm::mhc_post_tilelang: out, read x, read residual[*tokens n w], read post, read comb
trtllm::mhc_post_mapping like vllm::mhc_post_tilelang: read residual[*tokens n w], read x, read post, read comb
[element-wise dispatches]
# Each of their parts is an operator of AITER.
aiter::mhc_pre aiter::mhc_fused_post_pre aiter::mhc_fused_post_pre_large_m vllm::mhc_pre_aiter vllm::mhc_post_aiter
    vllm::mhc_fused_post_pre_aiter:
""")
