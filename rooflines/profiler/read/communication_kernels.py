"""Kernels that exchange data with other devices, by name: one row for each family of libraries."""

from __future__ import annotations

import re
from functools import lru_cache

# What a kernel is stands at the beginning of its name.
_READ = 512
_EXCHANGING = (
    r"^(?:nccl|rccl|msccl|oneccl|hccl)",
    # DeepEP in its own namespaces or those of a fork (dpsk::ep::internode in DeepSeek's training trace). Its
    # get_dispatch_layout computes, and is none.
    r"\b(?:deep_ep|ep|uccl|intranode|internode|internode_ll)::(?:cached_)?(?:notify|dispatch"
    r"|combine|barrier)(?:_dispatch|_combine)?\b",
    # Exchange of tokens between experts in mori, pplx, FlashInfer and TensorRT-LLM: read in their sources.
    r"\bEp(?:Dispatch|Combine)\w*Kernel|\bpplx::\w*(?:dispatch|combine)|moeA2A(?:Dispatch|Combine)"
    r"|moeAllToAllKernel|fusedMoeCommKernel",
    r"nvshmem|rocshmem|barrier_(?:all_)?on_stream",
    # Custom all-reduce of vLLM, SGLang and AITER (traces of their servers), and of FlashInfer, TensorRT-LLM
    # and quickreduce (sources).
    r"cross_device_(?:reduce|store)|(?:one|two)_?shot_?all_?reduce|\ball_?reduce|userbuffers_|\bmscclpp::",
    # Symmetric memory of PyTorch: multimem_all_reduce_kernel in a trace of gpt-oss on a B200, the others by
    # their source.
    r"\bmultimem_|\bsymm_mem::|\b(?:put|wait)_signal_kernel|\ballToAllV\b",
)
_NAMES = re.compile("|".join(_EXCHANGING), re.IGNORECASE)


def function_of(name: str) -> str:
    """The qualified name of a kernel's function, without its type, template arguments and parameters."""
    return re.split(
        r"[<(]", name[:_READ].removeprefix("void ").replace("(anonymous namespace)::", ""), maxsplit=1
    )[0]


@lru_cache(maxsize=4096)
def communicates(name: str) -> bool:
    """Whether a kernel of this name sends data to another device or waits for it."""
    return _NAMES.search(function_of(name)) is not None
