"""Formulas for kernels that a library launches itself, below no operator with work of its own; one module a family.

A family is known by the kernel's name. Its module has ``CATEGORY``, and a function ``work(launch)`` that returns the tensors which the
kernel works on and its ``Work``, or raises NotCounted. The sizes come from what happened around the launch (``launch.py``). To add a
family, add its module here.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final, cast

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.kernels.launch import Launch
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import CallCount, count_by

# The pattern of a kernel's name -> the module of its family.
_FAMILIES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(r"_(p_)?matmul(_ogs)?_[NT]{3}_|_finalize_matmul_scatter|_topk_forward|_sum_bitmatrix_rows|_combined_routing_"),
        "triton_kernels",
    ),
    (re.compile(r"bmm_\w+_t\d+x\d+x\d+|(void )?(moe::dev::|tensorrt_llm::kernels::quantize_with_block_size)"), "tensorrt_llm"),
)


def family_of(kernel: str) -> str | None:
    """The family of a kernel; None for a kernel of no family here."""
    return next((module for pattern, module in _FAMILIES if pattern.match(kernel)), None)


def count_launch(launch: Launch, label: str) -> tuple[Signature, CallCount] | None:
    """One launch as a call named ``label``, and its count, unknown with a reason where it is not determined; None for a kernel of no
    family."""
    name = family_of(launch.kernel)
    if name is None:
        return None
    family = import_module(f"{__name__}.{name}")
    tensors: tuple[TensorArg, ...] = ()

    def work() -> Work:
        nonlocal tensors
        tensors, found = family.work(launch)
        return cast("Work", found)

    count = count_by(work, family.CATEGORY)
    return Signature(label, tensors), count
