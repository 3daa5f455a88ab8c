"""vLLM's products of quantized numbers (``_C``), of few rows on ROCm (``_rocm_C``), and with low-rank adapters (LoRA).

Order of arguments: vLLM, ``csrc/torch_bindings.cpp`` (commit 00256d5), ``csrc/libtorch_stable/torch_bindings.cpp`` (commit 0135b6c) and
``csrc/rocm/torch_bindings.cpp`` (commit 001cd45), compared with the schemas in vLLM 0.11.0, 0.14.0, 0.19.0, 0.25.0 and 0.33.0;
``vllm/lora/ops/triton_ops/lora_shrink_op.py`` and ``lora_expand_op.py`` of 0.11.0 to 0.33.0.

Weights of 4 or 8 bits are widened: the precision is that of the activations. Which tokens have which adapter is in tensors, and the
dtypes of lists of weights are not in traces: weights of adapters have the dtype of the activations on their way to the narrow matrix.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.costs import DEQUANTIZE
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE, INTEGERS
from rooflines.roofline.formulas.matmul import layer_work, product_flops
from rooflines.roofline.formulas.narrow import widened
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.scaled import FOUR_BIT, register
from rooflines.roofline.formulas.table import formula

_SCALED: Final = "write out, left, right, read scale_a, read scale_b"
PRODUCTS: Final[dict[str, str]] = {
    "_C::cutlass_scaled_mm": f"{_SCALED}, read bias?",
    "_C::cutlass_scaled_mm_azp": f"{_SCALED}, read azp_adj, read azp?, read bias?",
    "_C::cutlass_scaled_fp4_mm": f"{_SCALED}, read alpha",
    "_C::cutlass_w4a8_mm": "left, right, read group_scales, group_size, read channel_scales, read token_scales, out_dtype",
    "_C::dsv3_fused_a_gemm": "write out, left, right",
    "_moe_C::dsv3_router_gemm": "write out, left, right",
    "_C::fp32_router_gemm": "write out, left, right",
    "_moe_C::router_gemm_bf16_fp32": "left, right, out_dtype=6",
    "_moe_C::gpt_oss_router_gemm": "write out, left, right, read bias",
    **{
        f"{library}::{name}": "left, right, read scale_a, read scale_b, read alpha, out_dtype=15"
        for library in ("_C", "_qutlass_C")
        for name in ("matmul_mxf4_bf16_tn", "matmul_nvf4_bf16_tn", "matmul_ada_mxf4_bf16_tn")
    },
    "_qutlass_C::matmul_mxf8_bf16_tn": "left, right, read scale_a, read scale_b, read alpha, out_dtype=15",
    "_qutlass_C::matmul_mxf8_bf16_nn": "left, right, read scale_a, read scale_b, read alpha, out_dtype=15",
    # the weight comes first: weight [n, k], activations [m, k]
    "_rocm_C::LLMM1": "right, left, rows_per_block",
    "aiter::LLMM1": "right, left, write out, rows_per_block",
    "aiter::wvSpltK": "right, left, write out, N_in, CuCount",
    "aiter::wv_splitk_small_fp16_bf16": "right, left, write out, N_in, CuCount",
}
register(PRODUCTS)
_HALF: Final = ("fp16", "bf16")


@formula("_rocm_C::wvSplitK", "_rocm_C::wvSplitKrc", "_rocm_C::wvSplitKQ", "aiter::wvSplitKQ", category="matmul")
def _few_rows(signature: Signature) -> Work:
    """weight [n, k], activations [m, k]; a bias since 2025. ``KQ`` is fp8 with two scales, the result before them."""
    weight, inputs, *others = signature.tensors
    n, k = weight.shape[-2:]
    rows = inputs.numel // k
    scaled = signature.name.endswith("KQ")
    bias, out, scales = (others[:-3], others[-3], others[-2:]) if scaled else (others, None, [])
    return Work(
        matrix_flops=product_flops(1, rows, k, n),
        other_flops=rows * n * (bool(bias) + bool(scales)),
        bytes_read=size(weight, inputs, *bias, *scales),
        bytes_written=written(out) if out else rows * n * size_of(inputs.dtype),
        precision=matrix_precision_of(inputs.dtype),
    )


# --- weights of 4 or 8 bits --------------------------------------------------------------------------------------------------------


@formula("_C::gptq_gemm", "sgl_kernel::gptq_gemm", category="matmul")
def _gptq(signature: Signature) -> Work:
    """Weight [k / 8, n] of int32."""
    args = Arguments(signature, "a weight zeros scales g_idx")
    inputs, weight, scales = args.tensor("a"), args.tensor("weight"), args.tensor("scales")
    return layer_work(inputs, weight.shape[-1], weight, args.tensor("zeros"), scales, args.optional("g_idx"), unpack=DEQUANTIZE)


@formula("_C::awq_gemm", "vllm::triton_w4a16_gemm", category="matmul")
def _awq(signature: Signature) -> Work:
    """Weight [k, n / 8] of int32, scales [k / group, n]."""
    args = Arguments(signature, "a weight scales zeros")
    scales = args.tensor("scales")
    others = (args.tensor("weight"), scales, args.optional("zeros"))
    return layer_work(args.tensor("a"), scales.shape[-1], *others, unpack=DEQUANTIZE)


@formula("_C::awq_dequantize", "sgl_kernel::awq_dequantize", category="element-wise")
def _awq_dequantize(signature: Signature) -> Work:
    """[k, n / 8] of int32 -> [k, n] of the dtype of the scales."""
    args = Arguments(signature, "weight scales zeros")
    weight, scales = args.tensor("weight"), args.tensor("scales")
    results = weight.shape[0] * scales.shape[-1]
    return widened(weight, scales, args.tensor("zeros"), dtype=scales.dtype, numbers=results)


def _marlin(signature: Signature) -> Work:
    """The weight is repacked, so the sizes are arguments: m, n and k are the last integers before the first flag.

    The tensors before them differ between versions: activations, perhaps the result, the weight (the first one of integers or fp8),
    scales, zeros, and the workspace, which is last. Of 8-bit activations the result has the dtype of the scales.
    """
    flag = next((place for place, arg in enumerate(signature.args) if isinstance(arg, bool)), len(signature.args))
    numbers = [arg for arg in signature.args[:flag] if isinstance(arg, int)]
    tensors = [arg for arg in signature.args[:flag] if isinstance(arg, TensorArg)]
    if len(numbers) < 3 or len(tensors) < 3:
        raise NotCounted("sizes of the product not recorded")
    m, n, k = numbers[-3:]
    inputs, *others = tensors[:-1]
    if others[0].shape == (m, n) and precision_of(others[0].dtype) in _HALF:
        others = others[1:]  # the result
    weight = next((tensor for tensor in others if tensor.dtype in (*INTEGERS, *FOUR_BIT, "int8") or size_of(tensor.dtype) == 1), None)
    if weight is None or inputs.numel != m * k:
        raise NotCounted("arguments of another version")
    scales = [tensor for tensor in others if tensor is not weight]
    return layer_work(inputs, n, weight, *scales, unpack=DEQUANTIZE, dtype=marlin_dtype(inputs, scales))


formula("_C::marlin_gemm", "_C::gptq_marlin_gemm", "_C::fp8_marlin_gemm", "_C::awq_marlin_gemm", "sgl_kernel::gptq_marlin_gemm",
        category="matmul")(_marlin)  # fmt: skip
formula("vllm::marlin_gemm", category="matmul", wraps=True)(_marlin)


def marlin_dtype(inputs: TensorArg, scales: list[TensorArg]) -> str:
    """The dtype of the result: that of the activations, or of the scales where these are of 8 bits."""
    if size_of(inputs.dtype) > 1:
        return inputs.dtype
    found = next((scale.dtype for scale in scales if precision_of(scale.dtype) in _HALF), None)
    if found is None:
        raise NotCounted("dtype of the result not recorded")
    return found


@formula("_C::machete_mm", category="matmul")
def _machete(signature: Signature) -> Work:
    """Weight [k / 8, n] of int32, repacked."""
    args = Arguments(signature, "a weight type out_type group_scales group_zeros group_size channel_scales token_scales")
    others = [args.optional(name) for name in ("group_scales", "group_zeros", "channel_scales", "token_scales")]
    weight = args.tensor("weight")
    return layer_work(args.tensor("a"), weight.shape[-1], weight, *others, unpack=DEQUANTIZE)


@formula("_C::allspark_w8a16_gemm", category="matmul")
def _allspark(signature: Signature) -> Work:
    args = Arguments(signature, "a weight scales zeros n")
    weight, inputs, n = args.tensor("weight"), args.tensor("a"), args.integer("n")
    return layer_work(inputs, n, weight, args.tensor("scales"), args.optional("zeros"), unpack=DEQUANTIZE)


@formula(
    "_C::ggml_mul_mat_vec_a8",
    "_C::ggml_mul_mat_a8",
    "sgl_kernel::ggml_mul_mat_vec_a8",
    "sgl_kernel::ggml_mul_mat_a8",
    category="matmul",
)
def _ggml(signature: Signature) -> Work:
    """The activations become 8-bit integers; a row of the weight is a row of blocks of bytes."""
    args = Arguments(signature, "weight x type rows")
    weight, inputs, outputs = args.tensor("weight"), args.tensor("x"), args.integer("rows")
    return layer_work(inputs, outputs, weight, each=1, besides=inputs.numel * DYNAMIC_QUANTIZE, precision="int8")


@formula("_C::ggml_dequantize", "sgl_kernel::ggml_dequantize", category="element-wise")
def _ggml_dequantize(signature: Signature) -> Work:
    args = Arguments(signature, "weight type m n dtype=None")
    dtype, results = args.dtype("dtype", "float16"), args.integer("m") * args.integer("n")
    return widened(args.tensor("weight"), dtype=dtype, numbers=results)


# --- low-rank adapters: to the narrow matrix, and back to the width of a layer -------------------------------------------------------

_ONE: Final = "every token has an adapter, all the same"


@formula("vllm::lora_shrink", category="matmul")
def _shrink(signature: Signature) -> Work:
    """[tokens, width] to [slices, tokens, rank], with a weight [rank, width] a slice, and a scale for each result."""
    args = Arguments(signature, "input weights out mapping")
    inputs, out = args.tensor("input"), args.tensor("out")
    if len(inputs.shape) != 2 or len(out.shape) != 3:
        raise NotCounted("shapes of the adapter not understood")
    (tokens, width), (slices, _, rank) = inputs.shape, out.shape
    return Work(
        matrix_flops=product_flops(slices, tokens, width, rank),
        other_flops=out.numel,
        bytes_read=size(inputs) + slices * rank * width * size_of(inputs.dtype),
        bytes_written=written(out),
        precision=matrix_precision_of(inputs.dtype),
        assumption=_ONE,
    )


@formula("vllm::lora_expand", category="matmul")
def _expand(signature: Signature) -> Work:
    """[slices, tokens, rank] to the columns of [tokens, width] from the first one on, perhaps added to what is there."""
    active = "" if isinstance(signature.arg(10, None), bool) else "active "  # the number of adapters, which older versions lack
    args = Arguments(signature, f"input weights out mapping order counts starts ids none {active}first=0 adds=False")
    inputs, out = args.tensor("input"), args.tensor("out")
    if len(inputs.shape) != 3 or len(out.shape) != 2 or args.integer("first"):
        raise NotCounted("shapes of the adapter not understood")
    _, tokens, rank = inputs.shape
    width = out.shape[-1]
    return Work(
        matrix_flops=product_flops(1, tokens, rank, width),
        other_flops=out.numel * args.flag("adds"),
        bytes_read=size(inputs) + rank * width * size_of(out.dtype) + (size(out) if args.flag("adds") else 0),
        bytes_written=written(out),
        precision=matrix_precision_of(out.dtype),
        assumption=_ONE,
    )
