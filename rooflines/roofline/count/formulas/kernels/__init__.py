"""Formulas for kernels that a library launches itself, below no operator with work of its own; one module a
family.

A family is known by the kernel's name. Its module has ``CATEGORY``, and a function ``work(launch)`` that
returns the tensors which the kernel works on and its ``Work``, or raises NotCounted. The sizes come from what
happened around the launch (``Launch``). To add a family, add its module here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from rooflines.profiler.read.signature import SCALAR_TYPES, Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import NotCounted, TensorArgs
from rooflines.roofline.count.formulas.record import Work
from rooflines.roofline.count.formulas.registry import CallCount, count_by

# The position of the sizes and of the dtype among the arguments of the operators that allocate; all others
# call one of these (native_functions.yaml, torch 2.0 to 2.14).
_ALLOCATIONS: dict[str, tuple[int, int]] = {"aten::empty": (0, 1), "aten::empty_strided": (0, 2)}
_DEFAULT = "float32"
# What a family says of a launch: the tensors that the kernel works on, and its work.
LaunchWork = tuple[TensorArgs, Work]


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of ``kernel``. ``wrapper`` is the outermost operator around it, ``operator`` the innermost,
    None where there is none; ``before`` are the operators called before it under the wrapper, ``inside``
    those of them that the innermost operator called. ``grid`` is the number of blocks along x, y and z, None
    where it is not recorded."""

    kernel: str
    before: tuple[Signature, ...]
    wrapper: Signature | None = None
    operator: Signature | None = None
    inside: tuple[Signature, ...] = ()
    grid: tuple[int, int, int] | None = None

    @property
    def allocated(self) -> TensorArgs:
        """The tensors allocated before the launch, in order."""
        return allocations(self.before)

    def wrapped(self, position: int) -> TensorArg:
        """A tensor argument of the wrapper; raises NotCounted."""
        found = self.wrapper.arg(position) if self.wrapper is not None else None
        if not isinstance(found, TensorArg):
            raise NotCounted("the tensors of the operator around the kernel are not recorded")
        return found


def allocations(calls: tuple[Signature, ...]) -> TensorArgs:
    """The tensors that ``calls`` allocated, in order."""
    return tuple(tensor for call in calls if (tensor := _allocation(call)) is not None)


def _allocation(call: Signature) -> TensorArg | None:
    places = _ALLOCATIONS.get(call.name)
    if places is None:
        return None
    sizes, dtype = (call.arg(place, None) for place in places)
    if not isinstance(sizes, tuple) or not all(isinstance(size, int) and size >= 0 for size in sizes):
        return None
    name = _DEFAULT if dtype is None else SCALAR_TYPES.get(dtype) if isinstance(dtype, int) else None
    return None if name is None else TensorArg(sizes, name)


# The module of a family -> the pattern of its kernels' names.
_FAMILIES: dict[str, re.Pattern[str]] = {
    "triton_kernels": re.compile(
        r"_(p_)?matmul(_ogs)?_[NT]{3}_|_finalize_matmul_scatter|_topk_forward"
        r"|_sum_bitmatrix_rows|_combined_routing_"
    ),
    "tensorrt_llm": re.compile(
        r"bmm_\w+_t\d+x\d+x\d+|(void )?(moe::dev::|tensorrt_llm::kernels::quantize_with_block_size)"
    ),
}


def family_of(kernel: str) -> str | None:
    """The family of a kernel; None for a kernel of no family here."""
    return next((module for module, pattern in _FAMILIES.items() if pattern.match(kernel)), None)


def count_launch(launch: Launch, label: str) -> tuple[Signature, CallCount] | None:
    """One launch as a call named ``label``, and its count, unknown with a reason where it is not determined;
    None for a kernel of no family."""
    name = family_of(launch.kernel)
    if name is None:
        return None
    family = import_module(f"{__name__}.{name}")
    tensors: TensorArgs = ()

    def work() -> Work:
        nonlocal tensors
        tensors, found = family.work(launch)
        return cast("Work", found)

    count = count_by(work, family.CATEGORY)
    return Signature(label, tensors), count
