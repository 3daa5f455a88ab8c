"""vLLM's operators that are written in Python (``vllm``), without attention and mixtures of experts.

Most wrap others: what those below do not count is counted here. Order of arguments: vLLM 0.11.0 and 0.33.0, the functions given to
``direct_register_custom_op``, in ``vllm/_aiter_ops.py``, ``vllm/model_executor/layers/utils.py``, ``vllm/utils/flashinfer.py`` and
``vllm/model_executor/layers/quantization/utils/``; 0.10's ``w8a8_block_fp8_matmul_deepgemm``. Custom all-reduces: the ``TORCH_LIBRARY``
of vLLM's ``_C_custom_ar`` and of ``sgl_kernel``.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, Dispatches, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.kv_cache import stored
from rooflines.roofline.formulas.libraries.vllm_kernels import to_fp4
from rooflines.roofline.formulas.matmul import linear_work
from rooflines.roofline.formulas.passes import Pass, pass_work, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.rotary import rotary_work
from rooflines.roofline.formulas.scaled import register as register_products
from rooflines.roofline.formulas.table import formula, words

# --- products ----------------------------------------------------------------------------------------------------------------------

_SCALED: Final = "left, right, read scale_a, read scale_b"
_SCHEMAS: Final[dict[str, str]] = {
    f"{_SCALED}, out_dtype": "rocm_aiter_gemm_a8w8_blockscale rocm_aiter_gemm_a8w8_blockscale_bpreshuffle rocm_aiter_gemm_a8wfp4"
    " rocm_aiter_triton_gemm_a8w8_blockscale rocm_aiter_triton_gemm_a8w8_blockscale_preshuffle mm_mxfp8 bmm_fp8",
    f"{_SCALED}, read bias?, out_dtype": "rocm_aiter_gemm_w8a8 rocm_aiter_w8a8_gemm rocm_aiter_hipb_mm_fp8"
    " _rocm_aiter_preshuffled_per_token_w8a8_gemm",
    f"{_SCALED}, block, out_dtype": "w8a8_triton_block_scaled_mm_func w8a8_block_fp8_matmul_deepgemm rocm_aiter_gemm_w8a8_blockscale",
    "left, right, out_dtype, read scale_a, read scale_b, read bias?": "rocm_per_tensor_float_w8a8_scaled_mm_impl"
    " rocm_per_tensor_w8a8_scaled_mm_impl",
    f"{_SCALED}, out_dtype, read bias?": "int8_scaled_mm_func",
    "left, read scale_a, right, read scale_b, write out": "fp8_gemm_nt_op",
    f"{_SCALED}, read scale, out_dtype": "flashinfer_mm_fp4",
    "left, right, read scale_b, read scale": "flashinfer_mm_bf16_fp4",
    "left, right, read bias?": "cuda_flashinfer_bf16_gemm",
}
register_products({f"vllm::{name}": schema for schema, names in _SCHEMAS.items() for name in words(names)}, wraps=True)


@formula("vllm::rocm_unquantized_gemm", "vllm::rocm_unquantized_gemm_impl", category="matmul", wraps=True)
def _linear(signature: Signature) -> Work:
    args = Arguments(signature, "input weight bias=None")
    return linear_work(args.tensor("input"), args.tensor("weight"), args.optional("bias"))


# --- norms, routing, conversions, positions ----------------------------------------------------------------------------------------

NORMS: Final[dict[str, Pass]] = {
    "vllm::rocm_aiter_rms_norm": Pass("read input, read weight, eps", costs.RMS_NORM, result="input"),
    # returns the norm and the sum
    "vllm::rocm_aiter_rmsnorm2d_fwd_with_add": Pass(
        "update input, read residual, read weight, eps", costs.RMS_NORM + 1, result="residual"
    ),
}
ROUTING: Final[dict[str, Pass]] = {
    "vllm::rocm_aiter_topk_softmax": Pass("write weights, write ids, write places, read input", costs.SOFTMAX + 1),
    "vllm::rocm_aiter_topk_gating": Pass("write weights, write ids, write places, read input", costs.SIGMOID + 2),
    "vllm::rocm_aiter_topk_sigmoid": Pass("write weights, write ids, read input", costs.SIGMOID + 1),
    "vllm::rocm_aiter_biased_grouped_topk": Pass("read input, read bias, write weights, write ids", costs.SIGMOID + 2),
    "vllm::rocm_aiter_grouped_topk": Pass("read input, write weights, write ids", costs.SOFTMAX + 1),
}
register(NORMS, "normalisation", wraps=True)
register(ROUTING, "moe", wraps=True)

# Operators that return 8-bit numbers: their arguments, and FLOPs of what comes before the conversion.
_TO_8_BITS: Final[dict[str, tuple[str, int]]] = {
    "rocm_aiter_per_token_quant": ("input dtype scale=None", 0),
    "rocm_aiter_group_fp8_quant": ("input group_size", 0),
    "rocm_aiter_rmsnorm_fp8_group_quant": ("input weight eps group_size", costs.RMS_NORM),
    "rocm_aiter_rmsnorm_with_add_fp8_group_quant": ("input residual weight eps group_size", costs.RMS_NORM + 1),
    "rocm_aiter_rmsnorm_fused_dynamic_quant": ("input weight eps dtype", costs.RMS_NORM),
    "rocm_aiter_rmsnorm_fused_add_dynamic_quant": ("input residual weight eps dtype", costs.RMS_NORM + 1),
    "rocm_aiter_fused_rms_fp8_per_tensor_static_quant": ("input weight eps scale dtype", costs.RMS_NORM),
    "rocm_aiter_fused_add_rms_fp8_per_tensor_static_quant": ("input residual weight eps scale dtype", costs.RMS_NORM + 1),
    "rocm_aiter_act_mul_and_fp8_group_quant": ("input group_size", costs.SILU + 1),
}


def _to_8_bits(signature: Signature, schema: str, cost: int) -> Work:
    """Returns a byte for each number, scales where none was given (of rows or groups), and the sum with the residual."""
    args = Arguments(signature, schema)
    inputs, residual, scale = args.tensor("input"), args.optional("residual"), args.optional("scale")
    results = inputs.numel // 2 if "act_mul" in signature.name else inputs.numel
    scales = results // (args.integer("group_size") if args.has("group_size") else inputs.shape[-1])
    return Work(
        other_flops=results * (cost + (costs.QUANTIZE if scale else DYNAMIC_QUANTIZE)),
        bytes_read=size(inputs, residual, args.optional("weight"), scale),
        bytes_written=results + size_of("float32") * (0 if scale else scales) + written(residual),
        precision=precision_of(inputs.dtype),
    )


for _name, (_schema, _cost) in _TO_8_BITS.items():
    formula(f"vllm::{_name}", category="normalisation" if "rms" in _name else "element-wise", wraps=True)(
        partial(_to_8_bits, schema=_schema, cost=_cost)
    )


@formula("vllm::rocm_aiter_per_tensor_quant", category="element-wise", wraps=True)
def _to_8_bits_by_tensor(signature: Signature) -> Work:
    """Given the result and its scale; older versions return them, computed unless a scale is given."""
    if isinstance(signature.arg(1), TensorArg):
        return pass_work(signature, Pass("write out, read input, read scale", costs.QUANTIZE))
    return _to_8_bits(signature, "input dtype scale=None", 0)


@formula("vllm::flashinfer_nvfp4_quantize", category="element-wise", wraps=True)
def _to_fp4(signature: Signature) -> Work:
    return to_fp4(signature, "input scale out=None block_scale=None")


@formula("vllm::flashinfer_rotary_embedding", "vllm::rocm_aiter_triton_rotary_embedding", category="element-wise", wraps=True)
def _rotary(signature: Signature) -> Work:
    args = Arguments(signature, "positions query key head_size cos_sin_cache is_neox")
    rotated = (args.tensor("query"), args.optional("key"))
    return rotary_work(args.tensor("positions"), rotated, args.tensor("cos_sin_cache"), args.integer("head_size"))


# --- what is found by the name of a layer ------------------------------------------------------------------------------------------


@formula("vllm::unified_kv_cache_update", "vllm::unified_mla_kv_cache_update", category="copy", wraps=True)
def _cache_update(signature: Signature) -> Work:
    """The cache is found by the layer's name; the operator below has it as an argument."""
    args = Arguments(signature, "key value")
    new = (args.tensor("key"), args.tensor("value"))
    work = stored(new[0].shape[0], new, new)
    return Work(bytes_read=work.bytes_read, bytes_written=work.bytes_written, assumption="the cache has the dtype of the keys")


_LAYERS: Final = words(
    "mamba_mixer mamba_mixer2 plamo2_mamba_mixer linear_attention short_conv gdn_attention gdn_attention_core qwen_gdn_attention_core"
    " apply_w8a8_block_fp8_linear _fused_mul_mat_gguf _fused_moe_gguf"
)


@formula(*(f"vllm::{name}" for name in _LAYERS), category="other")
def _wrapper(_: Signature) -> Work:
    """A layer, or a choice between operators."""
    raise Dispatches("weights and states of the layer are not arguments")


# --- communication -----------------------------------------------------------------------------------------------------------------


@formula("vllm::all_reduce", "sglang::outplace_all_reduce", "sglang::inplace_all_reduce", category="communication", wraps=True)
def _all_reduce(signature: Signature) -> Work:
    """Returns a new tensor, or writes in place. Copies to and from shared memory and the collective below have their own rows."""
    inputs = Arguments(signature, "input").tensor("input")
    return Work(bytes_read=size(inputs), bytes_written=written(inputs))


@formula("vllm::all_gather", category="communication", wraps=True)
def _all_gather(signature: Signature) -> Work:
    args = Arguments(signature, "input dim world_size")
    inputs = args.tensor("input")
    return Work(bytes_read=size(inputs), bytes_written=written(inputs) * args.integer("world_size"))


@formula("vllm::reduce_scatter", category="communication", wraps=True)
def _reduce_scatter(signature: Signature) -> Work:
    args = Arguments(signature, "input dim world_size")
    inputs = args.tensor("input")
    return Work(bytes_read=size(inputs), bytes_written=written(inputs) // args.integer("world_size"))


_CUSTOM: Final = (
    *(f"_C_custom_ar::{name}" for name in ("all_reduce", "qr_all_reduce", "custom_all_gather", "custom_reduce_scatter")),
    *(f"sgl_kernel::{name}" for name in ("all_reduce", "all_reduce_reg", "all_reduce_unreg", "mscclpp_allreduce", "qr_all_reduce",
                                         "deterministic_all_reduce_reg", "deterministic_all_reduce_unreg")),
)  # fmt: skip


@formula(*_CUSTOM, category="communication")
def _custom(signature: Signature) -> Work:
    """A handle, what this rank has, perhaps a buffer that all ranks see, and the result."""
    inputs, *_, out = signature.tensors
    return Work(bytes_read=size(inputs), bytes_written=out.numel * size_of(out.dtype))


@formula("vllm::flashinfer_trtllm_fused_allreduce_norm", category="communication")
def _all_reduce_and_norm(signature: Signature) -> Work:
    """An all-reduce, the residual added in place, and the norm in place of the input, or to results of its own, perhaps narrow."""
    args = Arguments(signature, "input residual weight eps")
    inputs, residual = args.tensor("input"), args.tensor("residual")
    first = 12 if isinstance(signature.arg(9), int) else 9  # numbers and flags before the results differ
    norm, narrow, scales = (found if isinstance(found := signature.arg(first + n, None), TensorArg) else None for n in range(3))
    made = (norm, narrow, scales) if norm or narrow else (inputs,)
    return Work(
        other_flops=inputs.numel * (costs.RMS_NORM + 1 + costs.QUANTIZE * (narrow is not None)),
        bytes_read=size(inputs, residual, args.tensor("weight")),
        bytes_written=written(residual, *made),
        precision=precision_of(inputs.dtype),
    )
