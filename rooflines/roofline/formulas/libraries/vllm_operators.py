"""vLLM's operators that are written in Python (``vllm``), without attention and mixtures of experts.

Most wrap others: what those below do not count is counted here. Order of arguments: ``vllm/_aiter_ops.py`` (commit 0002bde),
``vllm/model_executor/layers/utils.py``, ``vllm/model_executor/layers/quantization/utils/fp8_utils.py``, ``vllm/utils/flashinfer.py``
and ``vllm/distributed/parallel_state.py``.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.kv_cache import stored
from rooflines.roofline.formulas.libraries.vllm_kernels import to_fp4
from rooflines.roofline.formulas.matmul import linear_work
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.rotary import rotary_work
from rooflines.roofline.formulas.scaled import register as register_products
from rooflines.roofline.formulas.table import formula

_SCALED: Final = "left, right, read scale_a, read scale_b"
PRODUCTS: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "vllm::rocm_aiter_gemm_a8w8_blockscale", "vllm::rocm_aiter_triton_gemm_a8w8_blockscale",
            "vllm::rocm_aiter_gemm_a8w8_blockscale_bpreshuffle",
        ), f"{_SCALED}, out_dtype",
    ),
    **dict.fromkeys(
        (
            "vllm::rocm_aiter_gemm_a8w8", "vllm::rocm_aiter_w8a8_gemm", "vllm::rocm_aiter_preshuffled_per_token_w8a8_gemm",
            "vllm::rocm_aiter_hipb_mm_fp8",
        ), f"{_SCALED}, read bias?, out_dtype",
    ),
    **dict.fromkeys(
        (
            "vllm::w8a8_triton_block_scaled_mm_func", "vllm::w8a8_block_fp8_matmul_deepgemm", "vllm::w8a8_deepgemm_block_scaled_mm",
            "vllm::padded_cutlass",
        ), f"{_SCALED}, block, out_dtype",
    ),
    "vllm::rocm_per_tensor_float_w8a8_scaled_mm_impl": "left, right, out_dtype, read scale_a, read scale_b, read bias?",
    "vllm::flashinfer_mm_fp4": f"{_SCALED}, read scale, out_dtype",
    "vllm::bmm_fp8": f"{_SCALED}, out_dtype",
}  # fmt: skip
register_products(PRODUCTS, wraps=True)

# The quantized result is one byte a number; scales of a row or a group are small and not counted where they are returned.
NORMS: Final[dict[str, Pass]] = {
    "vllm::rocm_aiter_rms_norm": Pass("read input, read weight, eps", costs.RMS_NORM, result="input"),
    "vllm::rocm_aiter_rmsnorm2d_fwd_with_add": Pass(
        "update input, read residual, read weight, eps", costs.RMS_NORM + 1, result="residual"
    ),
}
register(NORMS, "normalisation", wraps=True)


@formula("vllm::rocm_unquantized_gemm", "vllm::rocm_unquantized_gemm_gfx908", category="matmul", wraps=True)
def _linear(signature: Signature) -> Work:
    args = Arguments(signature, "input weight bias=None")
    return linear_work(args.tensor("input"), args.tensor("weight"), args.optional("bias"))


@formula("vllm::rocm_aiter_per_tensor_quant", "vllm::rocm_aiter_per_token_quant", "vllm::rocm_aiter_group_fp8_quant",
         category="element-wise", wraps=True)  # fmt: skip
def _quantized(signature: Signature) -> Work:
    """One byte for each number; the scale, where it is given, is the only other tensor."""
    inputs, *scales = signature.tensors
    return Work(
        other_flops=inputs.numel * (costs.QUANTIZE if scales else DYNAMIC_QUANTIZE),
        bytes_read=size(inputs, *scales),
        bytes_written=inputs.numel,
        precision=precision_of(inputs.dtype),
    )


@formula("vllm::flashinfer_nvfp4_quantize", category="element-wise", wraps=True)
def _to_fp4(signature: Signature) -> Work:
    return to_fp4(signature, "input scale out=None block_scale=None")


@formula("vllm::flashinfer_rotary_embedding", "vllm::rocm_aiter_triton_rotary_embedding",
         category="element-wise", wraps=True)  # fmt: skip
def _rotary(signature: Signature) -> Work:
    args = Arguments(signature, "positions query key head_size cos_sin_cache is_neox")
    rotated = (args.tensor("query"), args.optional("key"))
    return rotary_work(args.tensor("positions"), rotated, args.tensor("cos_sin_cache"), args.integer("head_size"))


@formula("vllm::unified_kv_cache_update", category="copy", wraps=True)
def _cache_update(signature: Signature) -> Work:
    """The cache is found by the layer's name; the operator below has it as an argument."""
    args = Arguments(signature, "key value")
    new = (args.tensor("key"), args.tensor("value"))
    work = stored(new[0].shape[0], new, new)
    return Work(bytes_read=work.bytes_read, bytes_written=work.bytes_written, assumption="the cache has the dtype of the keys")


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


@formula("_C_custom_ar::all_reduce", "_C_custom_ar::qr_all_reduce", "sgl_kernel::all_reduce", "sgl_kernel::all_reduce_reg",
         "sgl_kernel::all_reduce_unreg", "sgl_kernel::deterministic_all_reduce_reg", "sgl_kernel::deterministic_all_reduce_unreg",
         "sgl_kernel::mscclpp_allreduce", "sgl_kernel::qr_all_reduce", category="communication")  # fmt: skip
def _custom_all_reduce(signature: Signature) -> Work:
    """A handle, what this rank has, perhaps a buffer that all ranks see, and the result."""
    inputs, *_, out = signature.tensors
    return Work(bytes_read=size(inputs), bytes_written=out.numel * size_of(out.dtype))


@formula("vllm::flashinfer_trtllm_fused_allreduce_norm", category="communication")
def _all_reduce_and_norm(signature: Signature) -> Work:
    """An all-reduce, the residual added in place, and the norm in place of the input, or to a result of its own, perhaps narrow."""
    args = Arguments(
        signature,
        "input residual weight eps world_size launch fp32 tokens pattern norm_out=None quant_out=None scale_out=None scale=None",
    )
    inputs, residual = args.tensor("input"), args.tensor("residual")
    made = [args.optional(name) for name in ("norm_out", "quant_out", "scale_out")]
    return Work(
        other_flops=inputs.numel * (costs.RMS_NORM + 1 + costs.QUANTIZE * (made[1] is not None)),
        bytes_read=size(inputs, residual, args.tensor("weight")),
        bytes_written=written(residual, *(made if any(made) else [inputs])),
        precision=precision_of(inputs.dtype),
    )
