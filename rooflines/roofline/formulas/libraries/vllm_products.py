"""vLLM's products of quantized numbers (``_C``), of few rows on ROCm (``_rocm_C``), and with low-rank adapters (LoRA).

Order of arguments: vLLM, ``csrc/torch_bindings.cpp`` (commit 00256d5), ``csrc/libtorch_stable/torch_bindings.cpp`` (commit 0135b6c) and
``csrc/rocm/torch_bindings.cpp`` (commit 001cd45), compared with the schemas in vLLM 0.11.0, 0.14.0, 0.19.0, 0.25.0 and 0.33.0;
``vllm/lora/ops/triton_ops/lora_shrink_op.py`` and ``lora_expand_op.py`` of 0.11.0 to 0.33.0.

Weights of 4 or 8 bits are widened: the precision is that of the activations. Which tokens have which adapter is in tensors, and the
dtypes of lists of weights are not in traces: weights of adapters have the dtype of the activations on their way to the narrow matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import NotCounted, size_of
from rooflines.roofline.formulas.costs import DEQUANTIZE, DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.experts import INTEGERS
from rooflines.roofline.formulas.matmul import layer_work
from rooflines.roofline.formulas.narrow import widened
from rooflines.roofline.formulas.nodes import tensors_only
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import FOUR_BIT, register_products

_SCALED: Final = "write out, left, right, read scale_a, read scale_b"
_PRODUCTS: Final[dict[str, str]] = {
    "_C::cutlass_scaled_mm": f"{_SCALED}, read bias?",
    "_C::cutlass_scaled_mm_azp": f"{_SCALED}, read azp_adj, read azp?, read bias?",
    "_C::cutlass_scaled_fp4_mm": f"{_SCALED}, read alpha",
    "_C::cutlass_w4a8_mm": "left, right, read group_scales, group_size, read channel_scales, read token_scales, out_dtype",
    "_C::dsv3_fused_a_gemm _moe_C::dsv3_router_gemm _C::fp32_router_gemm": "write out, left, right",
    "_moe_C::router_gemm_bf16_fp32": "left, right, out_dtype=6",
    "_moe_C::gpt_oss_router_gemm": "write out, left, right, read bias",
    "_C::matmul_mxf4_bf16_tn _C::matmul_nvf4_bf16_tn _C::matmul_ada_mxf4_bf16_tn _qutlass_C::matmul_mxf4_bf16_tn"
    " _qutlass_C::matmul_nvf4_bf16_tn _qutlass_C::matmul_ada_mxf4_bf16_tn _qutlass_C::matmul_mxf8_bf16_tn"
    " _qutlass_C::matmul_mxf8_bf16_nn": "left, right, read scale_a, read scale_b, read alpha, out_dtype=15",
    # The weight comes first: weight [n, k], activations [m, k].
    "_rocm_C::LLMM1": "right, left",
    "aiter::LLMM1 aiter::wvSpltK aiter::wv_splitk_small_fp16_bf16": "right, left, write out",
}
register_products(_PRODUCTS)
_HALF: Final = ("fp16", "bf16")


# weight [n, k], activations [m, k]; a bias since 2025. ``KQ`` is fp8 with two scales, the result before them.
_FEW: Final = "read weight[n k], read x[*m =k]"
_FEW_ROWS: Final = Row(
    f"{_FEW}, read bias?", matrix="2 * m * k * n", other="m * n * bool(bias)", writes="m * n * x.item", precision="x"
)
_SCALED_ROWS: Final = Row(
    f"{_FEW}, read bias, write out, read scale_a, read scale_b", matrix="2 * m * k * n", other="m * n * 2", precision="x"
)
_OF_FEW: Final[dict[str, Row | tuple[Row, ...]]] = {
    "_rocm_C::wvSplitK _rocm_C::wvSplitKrc": _FEW_ROWS,
    "_rocm_C::wvSplitKQ aiter::wvSplitKQ": (
        _SCALED_ROWS, replace(_SCALED_ROWS, schema=f"{_FEW}, write out, read scale_a, read scale_b", other="m * n")
    ),
}  # fmt: skip
register(_OF_FEW, "matmul", given=tensors_only)


# --- weights of 4 or 8 bits --------------------------------------------------------------------------------------------------------


def _widening(schema: str) -> Row:
    """Activations [m, k] with a weight of k * n numbers, which are widened."""
    return Row(schema, matrix="2 * m * k * n", other="DEQUANTIZE * k * n", writes="m * n * a.item")


_NARROW: Final[dict[str, Row]] = {
    # Weight [k / 8, n] of int32.
    "_C::gptq_gemm sgl_kernel::gptq_gemm": _widening("read a[*m k], read weight[*depth n], read zeros, read scales, read g_idx?"),
    # Weight [k, n / 8] of int32, scales [k / group, n].
    "_C::awq_gemm vllm::triton_w4a16_gemm": _widening("read a[*m k], read weight, read scales[*groups n], read zeros?"),
    # Weight [k / 8, n] of int32, repacked.
    "_C::machete_mm": _widening(
        "read a[*m k], read weight[*depth n], type, out_type, read group_scales?, read group_zeros?, group_size,"
        " read channel_scales?, read token_scales?"
    ),
    "_C::allspark_w8a16_gemm": _widening("read a[*m k], read weight, read scales, read zeros?, n"),
    # The activations become 8-bit integers; a row of the weight is a row of blocks of bytes.
    "_C::ggml_mul_mat_vec_a8 _C::ggml_mul_mat_a8 sgl_kernel::ggml_mul_mat_vec_a8 sgl_kernel::ggml_mul_mat_a8": Row(
        "read weight, read x[*m k], type, n",
        DYNAMIC_QUANTIZE,
        "x",
        matrix="2 * m * k * n",
        other="m * n",
        writes="m * n * x.item",
        precision="=int8",
    ),
}
register(_NARROW, "matmul")
# [k, n / 8] of int32 -> [k, n] of the dtype of the scales.
_AWQ: Final = Row(
    "read weight[k *words], read scales[*groups n], read zeros",
    other="DEQUANTIZE * k * n",
    writes="k * n * scales.item",
    precision="scales",
)
_GGML: Final = widened("read weight, type, m, n, dtype=None", "item('dtype', 'float16')", "m * n", "dtype=float16")
register({"_C::awq_dequantize sgl_kernel::awq_dequantize": _AWQ}, "element-wise")
register({"_C::ggml_dequantize sgl_kernel::ggml_dequantize": _GGML}, "element-wise")


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


# --- low-rank adapters: to the narrow matrix, and back to the width of a layer -------------------------------------------------------

_ONE: Final = "every token has an adapter, all the same"


# [tokens, width] to [slices, tokens, rank], with a weight [rank, width] a slice, and a scale for each result.
_SHRINK: Final = Row(
    "read input[tokens width], weights, write out[slices rows rank]",
    1,
    "out",
    matrix="2 * slices * tokens * width * rank",
    reads="input.size + slices * rank * width * input.item",
    assumption=_ONE,
)
# [slices, tokens, rank] to the columns of [tokens, width] from the first one on, perhaps added to what is there.
_ADAPTER: Final = "read input[slices tokens rank], weights, write out[rows width], mapping, order, counts, starts, ids, none"
_EXPAND: Final = Row(
    f"{_ADAPTER}, first=0, adds=False",
    matrix="2 * tokens * rank * width",
    other="out.n * adds",
    also="rank * width * out.item + out.size * adds",
    precision="out",
    assumption=_ONE,
    fits="(value('adds') is True or value('adds') is False) and first == 0",
)
_LORA: Final[dict[str, Row | tuple[Row, ...]]] = {
    "lora_shrink": _SHRINK,
    # Newer versions are given the number of adapters.
    "lora_expand": (_EXPAND, replace(_EXPAND, schema=f"{_ADAPTER}, active, first=0, adds=False", fits="first == 0")),
}
register(_LORA, "matmul", namespace="vllm::")
