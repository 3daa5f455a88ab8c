"""Collectives of inference servers, alone and fused with the norm behind them."""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.registry import words
from rooflines.roofline.formulas.rotary import rotation
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.tables import table

# --- alone -------------------------------------------------------------------------------------------------------------------------


_VLLM: Final = words(
    "all_reduce qr_all_reduce custom_all_gather custom_reduce_scatter mnnvl_lamport_all_gather mnnvl_lamport_reduce_scatter"
    " mnnvl_multimem_reduce_scatter"
)
_SGLANG: Final = words(
    "all_reduce all_reduce_reg all_reduce_unreg mscclpp_allreduce qr_all_reduce deterministic_all_reduce_reg"
    " deterministic_all_reduce_unreg"
)
_CUSTOM: Final = (*(f"_C_custom_ar::{name}" for name in _VLLM), *(f"sgl_kernel::{name}" for name in _SGLANG))

# --- with a norm -------------------------------------------------------------------------------------------------------------------

# The sum with the residual takes its place, and the norm that of the input, or results of its own, perhaps narrow. Five numbers and
# flags come before these, in newer versions eight.
_ADDED_AND_NORMED: Final = "read input, update residual, read weight, eps, n4, n5, n6, n7, n8"
_RESULTS: Final = "write norm?, write narrow?, write scales?"

_ADDED: Final = "handle, read input, read residual, write residual_out, write out"
_NARROW: Final = costs.RMS_NORM + 1 + DYNAMIC_QUANTIZE
FUSED: Final[dict[str, Row]] = {
    **dict.fromkeys(
        words("fused_allreduce_rmsnorm fused_allreduce_rmsnorm_pad qr_all_reduce_rmsnorm"),
        Row(f"{_ADDED}, read weight, eps", costs.RMS_NORM + 1),
    ),
    **dict.fromkeys(
        words("fused_allreduce_rmsnorm_quant fused_allreduce_rmsnorm_quant_per_group fused_allreduce_rmsnorm_mxfp4_quant"),
        Row(f"{_ADDED}, write scale, read weight, eps", _NARROW),
    ),
}
register({f"aiter::{name}": one for name, one in FUSED.items()}, "communication")

# Operators that return the norm, the sum with the residual, and the scales of narrow results; "bf16" has the norm as well.
_SUMMED: Final = "read input[*rows k], update residual, read weight, eps"
_GROUPS: Final = "input.n + 4 * (input.n // group)"
_EMITTING: Final = "aiter::fused_allreduce_rmsnorm_quant_{}emit_bf16_"
_FROM_VLLM: Final = "vllm::rocm_aiter_fused_allreduce_rmsnorm"


def _with_fusion(schema: str, fusion: str = "fusion", bias: str = "bias") -> Row:
    """A number says what follows: 1 is the sum with the residual and its norm, 4 and 6 in fp8, 5 and 7 in NVFP4, of which 6 and 7
    return the norm too; 3 has a norm before the sum."""
    return Row(
        schema,
        where=f"kind = {fusion}; fp8 = kind in (4, 6); fp4 = kind in (5, 7); wide = input.n * input.item",
        other="input.n * bool(kind) * (RMS_NORM * (1 + (kind == 3)) + 1 + QUANTIZE * fp8 + DYNAMIC_QUANTIZE * fp4"
        f" + {f'bool({bias})' if bias else 0})",
        reads=f"input.size + bool(kind) * (residual.size + weight.size + scale.size + {f'{bias}.size' if bias else 0})",
        writes="wide + bool(kind) * (input.n * fp8 + (input.n // 2 + input.n // 16) * fp4 + wide * (kind not in (4, 5)))",
        fits="kind == 0 or residual and kind in (1, 3, 4, 5, 6, 7)",
    )


_OPERANDS: Final = "read input, read residual?, read weight?, read scale?, read bias?, workspace, ranks"
_TENSORRT: Final = _with_fusion(f"{_OPERANDS}, strategy, fusion, eps")


# The norms of queries and keys whose sum of squares is that of all ranks; values are copied. Positions may follow.
_HEADS: Final = "handle, read qkv, read q_weight, read k_weight, write q, write k, write v"


table(f"""
[communication wraps]
vllm::all_reduce vllm::all_reduce_symmetric_with_copy sglang::outplace_all_reduce sglang::inplace_all_reduce
    sglang::flashinfer_allreduce sglang::diffusion_all_reduce aiter::all_reduce_ aiter::tbo_all_reduce
    trtllm::userbuffers_allreduce_finalize: read input -> input
vllm::all_gather: read input, dim, world_size; writes = world_size * input.n * input.item
vllm::reduce_scatter: read input, dim, world_size; writes = input.n * input.item // world_size
sglang::reg_all_gather_into_tensor sglang::reg_reduce_scatter_tensor sglang::reg_all_to_all_single: write out, read input
aiter::fused_allreduce_rmsnorm_ sglang::flashinfer_allreduce_residual_rmsnorm {_FROM_VLLM}: {_SUMMED} -> input; cost = RMS_NORM + 1
aiter::fused_allreduce_rmsnorm_quant_: {_SUMMED}; cost = {_NARROW}; writes = input.n + 4 * rows
aiter::fused_allreduce_rmsnorm_quant_per_group_: {_SUMMED}, name, group=128; cost = {_NARROW}; writes = {_GROUPS}
{_FROM_VLLM}_quant_per_group: {_SUMMED}, group; cost = {_NARROW}; writes = {_GROUPS}
{_EMITTING.format("")}: {_SUMMED} -> input; cost = {_NARROW}; writes = input.n + 4 * rows
{_EMITTING.format("per_group_")}: {_SUMMED}, name, group=128 -> input; cost = {_NARROW}; writes = {_GROUPS}
{_FROM_VLLM}_quant_per_group_with_bf16_norm: {_SUMMED}, group -> input; cost = {_NARROW}; writes = {_GROUPS}
# Calls trtllm::allreduce with the fastest strategy.
trtllm::tunable_allreduce: {_TENSORRT}
[communication trtllm::]
# The rows of each rank where they differ, and the ranks of the group.
allgather allgather_pg: read input, rows*, ranks*;
    writes = input.n * input.item // max(input[0], 1) * (sum(rows) if rows else len(ranks) * input[0])
reducescatter reducescatter_pg: read input, rows*, ranks*; writes = input.n * input.item // len(ranks);
    assumption = each rank keeps equally many rows; given = rows
allreduce autotuned_allreduce: {_TENSORRT}
allreduce_pg allreduce_pg_by_name: {_with_fusion(f"{_OPERANDS}, rank, group, strategy, fusion, eps")}
# A flag says that the norm follows, in newer versions a number what does.
mnnvl_fusion_allreduce:
    {_with_fusion("read input, read weight?, read residual?, eps, buffer, flags, norm, read scale?, fusion=0", "fusion or bool(norm)", bias="")}
[communication]
aiter::all_reduce aiter::all_reduce_reg aiter::all_reduce_gfx1250 aiter::qr_all_reduce aiter::all_gather_reg
    aiter::all_gather_gfx1250 aiter::reduce_scatter aiter::reduce_scatter_gfx1250: handle, read input, write out
aiter::all_reduce_unreg aiter::all_gather_unreg: handle, read input, buffer, write out
vllm::flashinfer_trtllm_fused_allreduce_norm: {_ADDED_AND_NORMED}, n9, n10, n11, {_RESULTS}; cost = RMS_NORM + 1; number = n9;
    other = input.n * QUANTIZE * bool(narrow); writes = 0 if norm or narrow else input.n * input.item
    | {_ADDED_AND_NORMED}, {_RESULTS}; cost = RMS_NORM + 1; other = input.n * QUANTIZE * bool(narrow);
    writes = 0 if norm or narrow else input.n * input.item
# The rows of each token's experts, weighted and added, the row of a shared expert, the sum with the residual and its norm.
trtllm::moe_finalize_allreduce: read input, read residual[*tokens k], read weight, read places, read shared?,
    read scale? -> residual residual; cost = RMS_NORM + 1; per = residual;
    other = places.n * k * (1 + bool(scale)) + residual.n * bool(shared);
    reads = places.n * k * input.item + residual.size + weight.size + places.size + shared.size + scale.size
[communication tensors_only]
# A handle, what this rank has, perhaps a buffer that all ranks see, and the result.
{" ".join(_CUSTOM)}: read input, buffer, write out
    | read input, write out
[communication aiter::]
fused_qknorm_allreduce: {_HEADS}; cost = RMS_NORM; per = q k
fused_qknorm_allreduce_rope: {_HEADS}, view table, read positions, head; cost = RMS_NORM; per = q k; other = {rotation("q k")};
    also = selected(table, positions.n * table[-1])
""")
