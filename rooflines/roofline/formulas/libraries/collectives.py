"""Collectives of inference servers, alone and fused with the norm behind them.

Order of arguments: vLLM 0.11.0 and 0.33.0 (``vllm/distributed/parallel_state.py``, ``vllm/_aiter_ops.py``, the ``TORCH_LIBRARY`` of
``_C_custom_ar``); SGLang 0.5.4 to 0.5.23 (``srt/distributed/parallel_state.py``, ``srt/layers/flashinfer_comm_fusion.py``) and
``sgl_kernel`` 0.3.21; ROCm/aiter 9e44c0f, 6e50988, 9a9f684 and e404860 (``aiter/ops/custom_all_reduce.py``, ``quick_all_reduce.py``,
``aiter/dist/parallel_state.py``); NVIDIA/TensorRT-LLM 00d6f28 (``_torch/custom_ops/cpp_custom_ops.py``).
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import formula, words
from rooflines.roofline.formulas.rotary import rotary_work

# --- alone -------------------------------------------------------------------------------------------------------------------------


# Return a new tensor, or write in place. Copies to and from shared memory and the collective below have their own rows.
_REDUCED: Final = (
    "vllm::all_reduce vllm::all_reduce_symmetric_with_copy sglang::outplace_all_reduce sglang::inplace_all_reduce"
    " sglang::flashinfer_allreduce sglang::diffusion_all_reduce aiter::all_reduce_ aiter::tbo_all_reduce"
    " trtllm::userbuffers_allreduce_finalize"
)
_WRAPPERS: Final[dict[str, Pass]] = {
    _REDUCED: Pass("read input", result="input"),
    "vllm::all_gather": Pass("read input, dim, world_size", writes="world_size * input.n * input.item"),
    "vllm::reduce_scatter": Pass("read input, dim, world_size", writes="input.n * input.item // world_size"),
    "sglang::reg_all_gather_into_tensor sglang::reg_reduce_scatter_tensor sglang::reg_all_to_all_single": Pass("write out, read input"),
}
register(_WRAPPERS, "communication", wraps=True)


@formula("trtllm::allgather", "trtllm::allgather_pg", "trtllm::reducescatter", "trtllm::reducescatter_pg", category="communication")
def _of_group(signature: Signature) -> Work:
    """The rows of each rank where they differ, and the ranks of the group."""
    args = Arguments(signature, "input rows ranks")
    inputs, ranks = args.tensor("input"), len(args.sizes("ranks"))
    rows = args.value("rows")
    if "reducescatter" in signature.name:
        return Work(bytes_read=size(inputs), bytes_written=written(inputs) // ranks, assumption=_EQUAL if rows else "")
    gathered = sum(args.sizes("rows")) if isinstance(rows, tuple) else ranks * inputs.shape[0]
    return Work(bytes_read=size(inputs), bytes_written=written(inputs) // max(inputs.shape[0], 1) * gathered)


_EQUAL: Final = "each rank keeps equally many rows"
_CUSTOM: Final = (
    *(f"_C_custom_ar::{name}" for name in words(
        "all_reduce qr_all_reduce custom_all_gather custom_reduce_scatter mnnvl_lamport_all_gather mnnvl_lamport_reduce_scatter"
        " mnnvl_multimem_reduce_scatter"
    )),
    *(f"sgl_kernel::{name}" for name in words(
        "all_reduce all_reduce_reg all_reduce_unreg mscclpp_allreduce qr_all_reduce deterministic_all_reduce_reg"
        " deterministic_all_reduce_unreg"
    )),
)  # fmt: skip


@formula(*_CUSTOM, category="communication")
def _custom(signature: Signature) -> Work:
    """A handle, what this rank has, perhaps a buffer that all ranks see, and the result."""
    inputs, *_, out = signature.tensors
    return Work(bytes_read=size(inputs), bytes_written=out.numel * size_of(out.dtype))


_OF_AITER: Final = (
    "aiter::all_reduce aiter::all_reduce_reg aiter::all_reduce_gfx1250 aiter::qr_all_reduce aiter::all_gather_reg"
    " aiter::all_gather_gfx1250 aiter::reduce_scatter aiter::reduce_scatter_gfx1250"
)
_AITER: Final[dict[str, Pass]] = {
    _OF_AITER: Pass("handle, read input, write out"),
    "aiter::all_reduce_unreg aiter::all_gather_unreg": Pass("handle, read input, buffer, write out"),
}
register(_AITER, "communication")

# --- with a norm -------------------------------------------------------------------------------------------------------------------


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


_ADDED: Final = "handle, read input, read residual, write residual_out, write out"
_NARROW: Final = costs.RMS_NORM + 1 + DYNAMIC_QUANTIZE
FUSED: Final[dict[str, Pass]] = {
    **dict.fromkeys(
        words("fused_allreduce_rmsnorm fused_allreduce_rmsnorm_pad qr_all_reduce_rmsnorm"),
        Pass(f"{_ADDED}, read weight, eps", costs.RMS_NORM + 1),
    ),
    **dict.fromkeys(
        words("fused_allreduce_rmsnorm_quant fused_allreduce_rmsnorm_quant_per_group fused_allreduce_rmsnorm_mxfp4_quant"),
        Pass(f"{_ADDED}, write scale, read weight, eps", _NARROW),
    ),
}
register({f"aiter::{name}": one for name, one in FUSED.items()}, "communication")


# Operators that return the norm, the sum with the residual, and the scales of narrow results; "bf16" has the norm as well.
_SUMMED: Final = "read input[*rows k], update residual, read weight, eps"
_GROUPS: Final = "input.n + 4 * (input.n // group)"
_EMITTING: Final = "aiter::fused_allreduce_rmsnorm_quant_{}emit_bf16_"
_FROM_VLLM: Final = "vllm::rocm_aiter_fused_allreduce_rmsnorm"
_RETURNED: Final[dict[str, Pass]] = {
    f"aiter::fused_allreduce_rmsnorm_ sglang::flashinfer_allreduce_residual_rmsnorm {_FROM_VLLM}": Pass(
        _SUMMED, costs.RMS_NORM + 1, result="input"
    ),
    "aiter::fused_allreduce_rmsnorm_quant_": Pass(_SUMMED, _NARROW, writes="input.n + 4 * rows"),
    "aiter::fused_allreduce_rmsnorm_quant_per_group_": Pass(f"{_SUMMED}, name, group=128", _NARROW, writes=_GROUPS),
    f"{_FROM_VLLM}_quant_per_group": Pass(f"{_SUMMED}, group", _NARROW, writes=_GROUPS),
    _EMITTING.format(""): Pass(_SUMMED, _NARROW, result="input", writes="input.n + 4 * rows"),
    _EMITTING.format("per_group_"): Pass(f"{_SUMMED}, name, group=128", _NARROW, result="input", writes=_GROUPS),
    f"{_FROM_VLLM}_quant_per_group_with_bf16_norm": Pass(f"{_SUMMED}, group", _NARROW, result="input", writes=_GROUPS),
}
register(_RETURNED, "communication", wraps=True)


@formula("trtllm::allreduce", "trtllm::autotuned_allreduce", "trtllm::allreduce_pg", "trtllm::allreduce_pg_by_name",
         category="communication")  # fmt: skip
def _of_tensorrt(signature: Signature) -> Work:
    group = "rank group " if "_pg" in signature.name else ""
    args = Arguments(signature, f"input residual weight scale bias workspace ranks {group}strategy fusion eps")
    return _with_fusion(args, args.integer("fusion"))


# Calls trtllm::allreduce with the fastest strategy.
formula("trtllm::tunable_allreduce", category="communication", wraps=True)(_of_tensorrt)


@formula("trtllm::mnnvl_fusion_allreduce", category="communication")
def _of_nvlink(signature: Signature) -> Work:
    """A flag says that the norm follows, in newer versions a number what does."""
    args = Arguments(signature, "input weight residual eps buffer flags norm scale=None fusion=0")
    return _with_fusion(args, args.integer("fusion") or int(args.flag("norm")))


def _with_fusion(args: Arguments, fusion: int) -> Work:
    """A number says what follows: 1 is the sum with the residual and its norm, 4 and 6 in fp8, 5 and 7 in NVFP4, of which 6 and 7
    return the norm too; 3 has a norm before the sum."""
    inputs, residual, bias = args.tensor("input"), args.optional("residual"), args.optional("bias") if args.has("bias") else None
    numbers = inputs.numel
    wide = numbers * size_of(inputs.dtype)
    if fusion == 0:
        return Work(bytes_read=size(inputs), bytes_written=wide)
    if fusion not in range(1, 8) or fusion == 2 or residual is None:
        raise NotCounted(f"unknown fusion {fusion}")
    narrow = {4: numbers, 6: numbers, 5: numbers // 2 + numbers // 16, 7: numbers // 2 + numbers // 16}.get(fusion, 0)
    cost = costs.RMS_NORM * (2 if fusion == 3 else 1) + 1
    cost += costs.QUANTIZE if fusion in (4, 6) else DYNAMIC_QUANTIZE if narrow else 0
    return Work(
        other_flops=numbers * (cost + (bias is not None)),
        bytes_read=size(inputs, residual, args.optional("weight"), args.optional("scale"), bias),
        bytes_written=wide + narrow + (0 if fusion in (4, 5) else wide),
        precision=precision_of(inputs.dtype),
    )


# The rows of each token's experts, weighted and added, the row of a shared expert, the sum with the residual and its norm.
_OF_EXPERTS: Final = Pass(
    "read input, read residual[*tokens k], read weight, read places, read shared?, read scale?",
    costs.RMS_NORM + 1,
    per="residual",
    other="places.n * k * (1 + bool(scale)) + residual.n * bool(shared)",
    reads="places.n * k * input.item + residual.size + weight.size + places.size + shared.size + scale.size",
    result="residual residual",
)
register({"trtllm::moe_finalize_allreduce": _OF_EXPERTS}, "communication")


@formula("aiter::fused_qknorm_allreduce", "aiter::fused_qknorm_allreduce_rope", category="communication")
def _heads_and_norm(signature: Signature) -> Work:
    """The norms of queries and keys whose sum of squares is that of all ranks; values are copied. Positions may follow."""
    args = Arguments(signature, "handle qkv q_weight k_weight q k v table positions")
    qkv, q, k, v = (args.tensor(name) for name in ("qkv", "q", "k", "v"))
    rotation = Work()
    if signature.name.endswith("_rope"):
        head = Arguments(signature, "handle qkv q_weight k_weight q k v table positions head rotary").integer("head")
        turned = rotary_work(args.tensor("positions"), (q, k), args.tensor("table"), head)
        rotation = Work(other_flops=turned.other_flops, bytes_read=turned.bytes_read - turned.bytes_written)
    return rotation + Work(
        other_flops=(q.numel + k.numel) * costs.RMS_NORM,
        bytes_read=size(qkv, args.tensor("q_weight"), args.tensor("k_weight")),
        bytes_written=written(q, k, v),
        precision=precision_of(qkv.dtype),
    )
