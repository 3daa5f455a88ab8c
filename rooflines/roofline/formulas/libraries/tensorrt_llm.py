"""TensorRT-LLM's operators for PyTorch (``trtllm``, ``tensorrt_llm``): products, norms, activations, positions, conversions and
mixtures of experts.

Order of arguments: NVIDIA/TensorRT-LLM 00d6f28 (``tensorrt_llm/_torch/custom_ops/cpp_custom_ops.py``), 53b897c
(``flashinfer_custom_ops.py``), ``torch_custom_ops.py`` of 2025 and 2026 (a371b9f), ``trtllm_gen_custom_ops.py``,
``cpp/tensorrt_llm/thop/fusedQKNormRopeOp.cpp``, and the schemas in tokenspeed-trtllm-kernel 1.3.0. Operators that choose between
kernels, and those around flashinfer, count where nothing below them is counted. Of layers of experts, versions differ in what follows
the weights.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE, fused_experts
from rooflines.roofline.formulas.libraries.vllm_experts import trtllm_experts
from rooflines.roofline.formulas.libraries.vllm_operators import narrowed_product
from rooflines.roofline.formulas.matmul import layer_work
from rooflines.roofline.formulas.narrow import narrowed, to_8_bits, to_blocks
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.rotary import rotary_work
from rooflines.roofline.formulas.scaled import register as register_products
from rooflines.roofline.formulas.scaled import scaled_work
from rooflines.roofline.formulas.table import dispatches, formula, words

# --- products ----------------------------------------------------------------------------------------------------------------------

_SCALED: Final = "left, right, read scale_a, read scale_b"
KERNELS: Final[dict[str, str]] = {
    **dict.fromkeys(words("cublas_scaled_mm cuda_scaled_mm"), f"{_SCALED}, read bias?, out_dtype"),
    **dict.fromkeys(words("cublas_mm dsv3_router_gemm_op dsv3_fused_a_gemm_op"), "left, right, read bias?, out_dtype=None"),
    "fp4_gemm": f"{_SCALED}, read alpha, e8m0, out_dtype",
    "cuda_core_nvfp4_gemm": f"{_SCALED}, read alpha, read bias?, out_dtype",
    "mxfp8_mxfp8_gemm": "left, read scale_a, right, read scale_b, read alpha, out_dtype=15",
    "fp8_block_scaling_gemm_impl": f"{_SCALED}, out_dtype=15",
    "tinygemm2": "left, right, read bias",
}
WRAPPERS: Final[dict[str, str]] = {
    "fp8_block_scaling_gemm": f"{_SCALED}, tokens, out_dtype=15",
    "fp8_rowwise_gemm": f"{_SCALED}, out_dtype",
    "nvfp4_gemm_cublaslt": f"{_SCALED}, read alpha, out_dtype",
}
register_products({f"trtllm::{name}": schema for name, schema in KERNELS.items()})
register_products({f"trtllm::{name}": schema for name, schema in WRAPPERS.items()}, wraps=True)


@formula("trtllm::nvfp4_gemm", category="matmul", wraps=True)
def _fp4_product(signature: Signature) -> Work:
    """Versions of early 2025 have a flag for the scales before the dtype."""
    flag = "e8m0, " if isinstance(signature.arg(5), bool) else ""
    return scaled_work(signature, f"{_SCALED}, read alpha, {flag}out_dtype")


formula("trtllm::fp8_swap_ab_gemm", category="matmul")(partial(narrowed_product, schema="input weight scale dtype=15"))


@formula("trtllm::finegrained_mixed_dtype_gemm", "trtllm::weight_only_quant_gemm", category="matmul")
def _widened(signature: Signature) -> Work:
    """A repacked weight of 4 or 8 bits with a scale for each column, or for each group of a column [k / group, n]."""
    groups = "finegrained" in signature.name
    args = Arguments(
        signature,
        "input weight scales group zero_point dtype alpha=None bias=None zeros=None" if groups else "input weight type scales dtype",
    )
    inputs, scales, bias = args.tensor("input"), args.tensor("scales"), args.optional("bias")
    others = (args.tensor("weight"), scales, bias, args.optional("zeros"))
    each, unpack = (bias is not None) + (not groups), costs.DEQUANTIZE * groups
    return layer_work(inputs, scales.shape[-1], *others, each=each, unpack=unpack, dtype=args.dtype("dtype", inputs.dtype))


# --- norms, activations, positions -------------------------------------------------------------------------------------------------

NORMS: Final[dict[str, Pass]] = {
    **dict.fromkeys(
        ("flashinfer_rmsnorm", "flashinfer_gemma_rmsnorm"), Pass("read input, read weight, eps", costs.RMS_NORM, result="input")
    ),
    **dict.fromkeys(
        ("flashinfer_fused_add_rmsnorm", "flashinfer_gemma_fused_add_rmsnorm"),
        Pass("update input, update residual, read weight, eps", costs.RMS_NORM + 1),
    ),
    "flashinfer_fused_add_add_rmsnorm": Pass("update input, read more, update residual, read weight, eps", costs.RMS_NORM + 2),
    "flashinfer_fused_add_rmsnorm_quant": Pass(
        "write out, read input, update residual, read weight, read scale, eps", costs.RMS_NORM + 1 + costs.QUANTIZE
    ),
}
register({f"trtllm::{name}": one for name, one in NORMS.items()}, "normalisation", wraps=True)


@formula("trtllm::fused_add_rmsnorm_fp4_quantize", "trtllm::fused_rmsnorm_fp4_quantize", category="normalisation")
def _fp4_norm(signature: Signature) -> Work:
    """NVFP4 with a scale of a byte for each 16, the sum with the residual, and the norm itself if a flag is set."""
    added = "add" in signature.name
    args = Arguments(signature, f"input {'residual ' if added else ''}weight scale eps both")
    inputs, residual = args.tensor("input"), args.optional("residual")
    others = (residual, args.tensor("weight"), args.tensor("scale"))
    wide = Work(bytes_written=written(residual, inputs if args.flag("both") else None))
    cost = costs.RMS_NORM + added + DYNAMIC_QUANTIZE
    return narrowed(inputs, *others, scales=inputs.numel // 16, bits=4, cost=cost) + wide


@formula("trtllm::flashinfer_silu_and_mul", "trtllm::flashinfer_gelu_tanh_and_mul", "trtllm::silu_and_mul", category="element-wise")
def _gated(signature: Signature) -> Work:
    """Returns half as many numbers, narrow ones after a scale."""
    args = Arguments(signature, "input scale=None dtype=None")
    inputs, scale = args.tensor("input"), args.optional("scale")
    results = inputs.numel // 2
    cost = (costs.GELU if "gelu" in signature.name else costs.SILU) + 1 + costs.QUANTIZE * (scale is not None)
    return Work(
        other_flops=results * cost,
        bytes_read=size(inputs, scale),
        bytes_written=results * size_of(args.dtype("dtype", inputs.dtype)),
        precision=precision_of(inputs.dtype),
    )


@formula("trtllm::flashinfer_apply_rope_with_cos_sin_cache_inplace", category="element-wise")
def _rotary(signature: Signature) -> Work:
    args = Arguments(signature, "positions query key head_size table")
    rotated = (args.tensor("query"), args.tensor("key"))
    return rotary_work(args.tensor("positions"), rotated, args.tensor("table"), args.integer("head_size"))


@formula("trtllm::mla_rope_inplace", category="element-wise")
def _latent_rotary(signature: Signature) -> Work:
    """The last ``rope`` numbers of each head rotate in place."""
    args = Arguments(signature, "data positions table heads nope rope")
    return rotary_work(
        args.tensor("positions"),
        (args.tensor("data"),),
        args.tensor("table"),
        args.integer("nope") + args.integer("rope"),
        args.integer("rope"),
    )


# --- conversions -------------------------------------------------------------------------------------------------------------------

formula("trtllm::mxfp8_quantize", category="element-wise")(partial(to_blocks, bits=8, group=32))
formula("trtllm::fp8_quantize_1x128_packed_ue8m0", category="element-wise")(partial(to_blocks, bits=8, group=128))
formula("trtllm::fp8_quantize_1x128", category="element-wise")(partial(to_8_bits, schema="input e8m0=False group_size=128"))
formula("tensorrt_llm::quantize_e4m3_activation", category="element-wise")(partial(to_8_bits, schema="input"))


@formula("tensorrt_llm::quantize_e4m3_per_tensor", "tensorrt_llm::static_quantize_e4m3_per_tensor", category="element-wise")
def _of_tensor(signature: Signature) -> Work:
    """Returns the scale too, one number, which a static conversion is given."""
    args = Arguments(signature, "input scale=None")
    inputs, scale = args.tensor("input"), args.optional("scale")
    made = size_of(scale.dtype if scale else inputs.dtype)
    return narrowed(inputs, scale, scales=made, cost=costs.QUANTIZE if scale else DYNAMIC_QUANTIZE)


@formula("trtllm::fused_cat_fp8", category="element-wise")
def _joined(signature: Signature) -> Work:
    """Two parts of each head side by side in fp8, with a scale for each head."""
    args = Arguments(signature, "first second")
    first, second = args.tensor("first"), args.tensor("second")
    heads = first.numel // first.shape[-1]
    return narrowed(first, second, scales=heads * size_of("float32"), numbers=first.numel + second.numel)


# --- layers ------------------------------------------------------------------------------------------------------------------------


# The layer is found by its number; attention itself is a function without an operator.
dispatches("trtllm::attn_custom_op_inplace", "trtllm::mla_custom_op_inplace",
           category="attention", reason="weights and the KV cache of the layer are not arguments")  # fmt: skip


# --- mixtures of experts -----------------------------------------------------------------------------------------------------------


@formula("trtllm::fused_moe", category="moe", wraps=True)
def _fused(signature: Signature) -> Work:
    """Weights [experts, 2 * inner, width] and [experts, width, inner], since August 2025 each with a bias, then the dtype of the result
    and scales. Ids may be of experts on other ranks."""
    args = Arguments(signature, "hidden ids weights first first_bias second second_bias dtype scales")
    if not isinstance(signature.arg(6), TensorArg | None):  # a dtype is a number
        args = Arguments(signature, "hidden ids weights first second dtype scales")
    hidden, first, second = args.tensor("hidden"), args.tensor("first"), args.tensor("second")
    others = [args.optional("first_bias"), args.optional("second_bias"), *args.tensors("scales")]
    return fused_experts(
        hidden, first, second, (args.tensor("weights"), args.tensor("ids")), others, widened=first.dtype == "int8",
        out=args.dtype("dtype", hidden.dtype), ranks=True,
    )  # fmt: skip


_RUNNERS: Final = (
    "fp8_block_scale_moe_runner", "fp4_block_scale_moe_runner", "bf16_mxe2m1_block_scale_moe_runner",
    "mxe4m3_mxe2m1_block_scale_moe_runner", "e4m3_mxe2m1_block_scale_moe_runner",
)  # fmt: skip


@formula(*(f"trtllm::{name}" for name in _RUNNERS), category="moe", wraps=True)
def _runner(signature: Signature) -> Work:
    """With the routing, whose scores come first; without them the chosen experts are among the last arguments."""
    if not isinstance(signature.arg(0), TensorArg):
        raise NotCounted("scores of the experts not recorded")
    return trtllm_experts(signature)


@formula("trtllm::renorm_moe_routing_op", "trtllm::default_moe_routing_op", category="moe")
def _chosen(signature: Signature) -> Work:
    """Returns ids and weights of the experts of a token."""
    args = Arguments(signature, "scores kept dtype=None")
    scores, kept = args.tensor("scores"), args.tensor("scores").shape[0] * args.integer("kept")
    return Work(
        other_flops=scores.numel * (costs.SOFTMAX + 1),
        bytes_read=size(scores),
        bytes_written=kept * (size_of("int32") + size_of(args.dtype("dtype", "float32"))),
        precision=precision_of(scores.dtype),
    )


@formula("trtllm::noaux_tc_op", category="moe")
def _of_groups(signature: Signature) -> Work:
    """Scores and scores with a bias, one comparison each; weights and ids are returned."""
    args = Arguments(signature, "scores biased groups groups_kept kept")
    scores, biased = args.tensor("scores"), args.tensor("biased")
    kept = scores.shape[0] * args.integer("kept")
    return Work(
        other_flops=scores.numel + 2 * kept,
        bytes_read=size(scores, biased),
        bytes_written=kept * (size_of(biased.dtype) + size_of("int32")),
        precision=precision_of(scores.dtype),
    )


@formula("trtllm::moe_unpermute", category="moe")
def _unpermute(signature: Signature) -> Work:
    """The rows of each token, weighted and added; ids of padding are not read."""
    args = Arguments(signature, "rows places weights")
    rows, places = args.tensor("rows"), args.tensor("places")
    numbers = places.numel * rows.shape[-1]
    return Work(
        other_flops=2 * numbers,
        bytes_read=numbers * size_of(rows.dtype) + size(places, args.tensor("weights")),
        bytes_written=places.shape[0] * rows.shape[-1] * size_of(rows.dtype),
        precision=precision_of(rows.dtype),
    )
