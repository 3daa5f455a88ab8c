"""Kernels that a captured launch cannot have run, for captures that do not record the names of kernels.

The name of the kernel is compared with the operator around the launch. An unknown operator may run any kernel.
"""

from __future__ import annotations

import re

from rooflines.profiler.trace.records import OPERATOR, Int64s
from rooflines.roofline.attribution.origins import CountedTrace
from rooflines.roofline.kernel_names import short_kernel

# What Inductor calls every kernel unless it is asked for unique names.
_UNNAMED = "triton__"
# How the short names of matrix products begin.
_PRODUCT_KERNELS = ("GEMM", "grouped GEMM")
# Operators of these categories run no matrix product.
_NO_PRODUCTS = {"copy", "embedding", "reduction", "normalisation", "element-wise", "optimizer", "communication"}
_NO_COLLECTIVES = _NO_PRODUCTS - {"communication"} | {"matmul", "attention", "convolution"}
_COLLECTIVE = re.compile(r"(?:void )?(?:nccl|rccl)(?:Dev)?Kernel")
_COLLECTIVE_OPERATOR = re.compile(r"nccl|c10d|comm|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send|recv")
_ATTENTION = re.compile(r"flash_?(?:fwd|bwd|attn|attention)|flash::|fmha|attention|sdpa", re.IGNORECASE)
_OF_PYTORCH = re.compile(r"(?:void )?at::native::")
# The namespaces whose operators PyTorch itself implements.
_PYTORCH = {
    "aten",
    "prims",
    "prim",
    "quantized",
    "c10d",
    "_c10d_functional",
    "c10d_functional",
    "symm_mem",
    "inductor",
    "autograd",
    "sparse",
}
_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm"}


def contradiction(name: str, launch: int, launches: Int64s, captured: CountedTrace) -> str:
    """Return what the capture has instead of a kernel of this name, by the operators around the launch; empty if they allow it.

    ``launches`` are all of the captured graph.
    """
    operator, owner = int(captured.calls.operator[launch]), int(captured.ownership.owner[launch])
    if operator < 0 or name.startswith(_UNNAMED):
        return ""
    called: str = captured.trace.names[captured.trace.host.name[operator]]
    if called.startswith("triton_"):
        return "" if name.startswith(called) or called.startswith(name) else called
    if name.startswith("triton_"):
        return called if called.startswith("aten::") else ""
    excluded = (
        _runs_no_collective(called, operator, captured) if _COLLECTIVE.match(name)
        else _runs_no_attention(owner, captured) if _ATTENTION.search(name) and not short_kernel(name).startswith(_PRODUCT_KERNELS)
        else _runs_no_kernel_of_pytorch(called, operator, captured) or _is_only_a_product(name, called, operator, launches, captured)
        if _OF_PYTORCH.match(name)
        else _runs_no_product(owner, captured) if short_kernel(name).startswith(_PRODUCT_KERNELS)
        else False
    )  # fmt: skip
    return called if excluded else ""


def _category(event: int, captured: CountedTrace) -> str:
    """Return the category of the event's counted work; empty if it has none."""
    variant = captured.counts.of_event[event] if event >= 0 else -1
    count = captured.counts.variants[variant].count if variant >= 0 else None
    return count.category if count is not None and count.work is not None else ""


def _runs_no_collective(called: str, operator: int, captured: CountedTrace) -> bool:
    if called.startswith(("aten::", "prims::")):
        return True
    return _category(operator, captured) in _NO_COLLECTIVES and not _COLLECTIVE_OPERATOR.search(called)


def _runs_no_attention(owner: int, captured: CountedTrace) -> bool:
    return _category(owner, captured) in {"matmul", "normalisation"}


def _runs_no_product(owner: int, captured: CountedTrace) -> bool:
    if _category(owner, captured) not in _NO_PRODUCTS:
        return False
    work = captured.counts.variants[captured.counts.of_event[owner]].count.work
    return work is not None and not work.matrix_flops


def _runs_no_kernel_of_pytorch(called: str, operator: int, captured: CountedTrace) -> bool:
    """Return whether this operator belongs to another library and calls no operator of ATen."""
    space, found, _ = called.partition("::")
    if not found or space in _PYTORCH or space.startswith("torch"):
        return False
    host, below = captured.trace.host, slice(operator + 1, int(captured.calls.after[operator]))
    inside = host.name[below][host.kind[below] == OPERATOR]
    return not any(captured.trace.names[code].startswith("aten::") for code in inside.tolist())


def _is_only_a_product(name: str, called: str, operator: int, launches: Int64s, captured: CountedTrace) -> bool:
    """Return whether an element-wise kernel is the only kernel of a matrix product. With other kernels it may copy the bias."""
    if called not in _PRODUCTS or not short_kernel(name).startswith("element-wise"):
        return False
    return int(((launches > operator) & (launches < captured.calls.after[operator])).sum()) == 1
