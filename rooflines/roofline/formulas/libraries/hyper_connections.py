"""Manifold-constrained hyper-connections (DeepSeek-V4): n residual streams [tokens, n, width] instead of one.

Before a layer, a product of the flat streams with ``fn`` [n + n + n * n, n * width] gives for each token the weights of the streams in
the layer's input, those of its output in the streams, and an n x n matrix that mixes the streams, doubly stochastic by Sinkhorn's
iteration. After the layer, its output and the mixed streams are added.

Order of arguments: ROCm/aiter e404860 (``aiter/ops/mhc.py``); vLLM 0.33.0 (``vllm/model_executor/kernels/mhc/``);
NVIDIA/TensorRT-LLM as in tokenspeed-trtllm-kernel 1.3.0.
"""

from __future__ import annotations

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import dispatches, formula


def _streams(residual: TensorArg) -> tuple[int, int, int]:
    if len(residual.shape) < 3:
        raise NotCounted("number of streams not recorded")
    streams, width = residual.shape[-2:]
    return residual.numel // max(streams * width, 1), streams, width


def _product(streams: TensorArg, fn: TensorArg) -> Work:
    """The product with ``fn``, in whose dtype it is, and the sum of squares; what it reads and writes is the caller's."""
    outputs, inner = fn.shape
    return Work(
        matrix_flops=product_flops(1, streams.numel // inner, inner, outputs),
        other_flops=2 * streams.numel,
        precision=matrix_precision_of(fn.dtype),
    )


def _weights(residual: TensorArg, parts: int, iterations: int, normalised: bool) -> Work:
    """Weights from ``parts`` partial sums of the product, and the layer's input, a weighted sum of the streams, perhaps normalised.

    For each token: a scale and a base of each of the 2 n + n * n numbers, sigmoids, a softmax, and in each iteration of Sinkhorn sums
    and quotients of the rows and columns of the matrix.
    """
    tokens, streams, width = _streams(residual)
    square = streams * streams
    numbers = 2 * streams + square
    mixing = square * (costs.SOFTMAX + 4 * iterations)
    scalars = (parts - 1) * (numbers + 1) + 2 * numbers + 2 * streams * costs.SIGMOID + mixing
    return Work(
        other_flops=tokens * (scalars + width * (2 * streams - 1 + costs.RMS_NORM * normalised)), precision=precision_of(residual.dtype)
    )


def _mixed(residual: TensorArg) -> Work:
    """Each new stream is a sum of n streams and of the layer's output, all with weights."""
    tokens, streams, width = _streams(residual)
    return Work(other_flops=tokens * streams * width * (2 * streams + 1), precision=precision_of(residual.dtype))


def _small(residual: TensorArg) -> int:
    """Bytes of the weights of the layer's output and of the mixing matrix, in float32."""
    tokens, streams, _ = _streams(residual)
    return tokens * (streams + streams * streams) * size_of("float32")


@formula("aiter::mhc_pre_gemm_sqrsum", category="matmul")
def _pre_product(signature: Signature) -> Work:
    args = Arguments(signature, "out squares streams fn")
    streams, fn = args.tensor("streams"), args.tensor("fn")
    return _product(streams, fn) + Work(bytes_read=size(streams, fn), bytes_written=written(args.tensor("out"), args.tensor("squares")))


@formula("aiter::mhc_pre_big_fuse", "aiter::mhc_pre_big_fuse_rmsnorm", "trtllm::mhc_big_fuse", category="element-wise")
def _pre(signature: Signature) -> Work:
    schema = "post comb out product squares scale base residual rms_eps pre_eps sinkhorn_eps post_mult=1.0 iterations=20"
    if signature.name.endswith("_rmsnorm"):
        schema = "post comb out product squares scale base residual weight rms_eps pre_eps sinkhorn_eps eps post_mult=1.0 iterations=20"
    if signature.name.startswith("trtllm::"):
        schema = "product squares residual scale base post comb out m k width rms_eps pre_eps sinkhorn_eps post_mult iterations"
    args = Arguments(signature, schema)
    product, residual, weight = args.tensor("product"), args.tensor("residual"), args.optional("weight")
    parts = product.shape[0] if len(product.shape) == 3 else 1
    return _weights(residual, parts, args.integer("iterations"), weight is not None) + Work(
        bytes_read=size(residual, product, weight, *(args.tensor(name) for name in ("squares", "scale", "base"))),
        bytes_written=written(*(args.tensor(name) for name in ("post", "comb", "out"))),
    )


@formula("aiter::mhc_post", "trtllm::mhc_post_mapping", "vllm::mhc_post_tilelang", category="element-wise")
def _post(signature: Signature) -> Work:
    schema = "out x residual post comb" if signature.name.startswith("aiter::") else "x residual post comb out=None"
    args = Arguments(signature, "residual x post comb out" if signature.name.startswith("trtllm::") else schema)
    residual = args.tensor("residual")
    return _mixed(residual) + Work(
        bytes_read=size(residual, *(args.tensor(name) for name in ("x", "post", "comb"))), bytes_written=written(residual)
    )


@formula("aiter::mhc_fused_post_pre_gemm_sqrsum", category="matmul")
def _post_and_product(signature: Signature) -> Work:
    args = Arguments(signature, "product squares next x residual post comb fn")
    residual, fn = args.tensor("residual"), args.tensor("fn")
    return _product(residual, fn) + _mixed(residual) + Work(
        bytes_read=size(residual, fn, *(args.tensor(name) for name in ("x", "post", "comb"))),
        bytes_written=written(*(args.tensor(name) for name in ("product", "squares", "next"))),
    )  # fmt: skip


@formula("vllm::mhc_pre_tilelang", "vllm::mhc_fused_post_pre_tilelang", category="matmul")
def _layer(signature: Signature) -> Work:
    """All of it in one call, whose partial sums are not its results."""
    both = "post_pre" in signature.name
    end = "fn scale base rms_eps pre_eps sinkhorn_eps post_mult iterations splits=1" + (" tile=1" if both else "")
    args = Arguments(signature, f"{'x residual post comb' if both else 'residual'} {end} weight=None")
    residual, fn, weight = args.tensor("residual"), args.tensor("fn"), args.optional("weight")
    tokens, _, width = _streams(residual)
    work = _product(residual, fn) + _weights(residual, 1, args.integer("iterations"), weight is not None)
    if both:
        work += _mixed(residual) + Work(
            bytes_read=size(*(args.tensor(name) for name in ("x", "post", "comb"))), bytes_written=written(residual)
        )
    return work + Work(
        bytes_read=size(residual, fn, weight, args.tensor("scale"), args.tensor("base")),
        bytes_written=tokens * width * size_of(residual.dtype) + _small(residual),
    )


# Each of their parts is an operator of AITER.
dispatches("aiter::mhc_pre", "aiter::mhc_fused_post_pre", "aiter::mhc_fused_post_pre_large_m", "vllm::mhc_pre_aiter",
           "vllm::mhc_post_aiter", "vllm::mhc_fused_post_pre_aiter", category="element-wise")  # fmt: skip
