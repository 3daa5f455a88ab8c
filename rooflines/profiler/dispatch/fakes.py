"""Fake tensors, which have shapes and no data: their mode, when they will not do, and rules for results that torch's own rules miss."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

import torch
from torch._guards import detect_fake_mode
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

# How torch says that a fake tensor will not do.
_FAKE_ERRORS: Final = (
    fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException, fake_tensor.UnsupportedOperatorException,
    fake_tensor.UnsupportedFakeTensorException, fake_tensor.MetadataMismatchError,
)  # fmt: skip
_QUANTIZED: Final = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
_FAKE_WORDS: Final = (
    "FakeTensor",
    "NestedTensor",
    "fake tensor",
    "tensor subclass",
    "meta tensor",
    "'Meta' backend",
    "data-dependent",
    "data_ptr",
    "Couldn't swap",  # Module.to() of a module that has run
)
_RULES_OF_TORCH: Final = (
    "torch._meta_registrations", "torch._refs", "torch._decomp", "torch._prims", "torch._subclasses.fake_impls",
    "torch._subclasses.meta_utils", "torch._higher_order_ops",
)  # fmt: skip
_CACHED: Final = type(functools.lru_cache(lambda: None))
_DEPTH: Final = 4  # the function, its entries, an entry, the result, what the result holds


def fake_tensors() -> FakeTensorMode:
    """A mode in which everything that is created, or given real, is fake."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def fake_mode_of(*values: Any) -> FakeTensorMode | None:
    """The mode of the fake tensors in ``values`` (modules, mappings, lists), or the one that is active; None where all are real."""
    leaves: list[Any] = []
    for value in tree_leaves(values):
        if isinstance(value, torch.nn.Module):
            leaves += [*value.parameters(), *value.buffers()]
        else:
            leaves.append(value)
    mode: FakeTensorMode | None = detect_fake_mode(leaves)
    return mode


def is_quantized(*values: Any) -> bool:
    """Whether a module in ``values`` holds packed integer weights: their kernels read memory that a fake tensor does not have."""
    modules = [module for value in tree_leaves(values) if isinstance(value, torch.nn.Module) for module in value.modules()]
    return any(type(module).__module__.startswith(_QUANTIZED) for module in modules)


def needs_data(error: BaseException) -> bool:
    """Whether a step failed on fake tensors for being fake: a shape or a branch depends on values, or an operator has no shape rule."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _FAKE_ERRORS) or any(word in str(seen) for word in _FAKE_WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def refused_by_a_rule(error: BaseException) -> bool:
    """Whether one of torch's rules for fake tensors raised the error: kernels may accept what it refuses, or say it better."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(_RULES_OF_TORCH):
            return True
        trace = trace.tb_next
    return False


@contextlib.contextmanager
def quiet_refusals() -> Iterator[None]:
    """No traceback in the log for what a fake tensor refuses: the exception is enough."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def empty_caches_of_fakes() -> None:
    """Empty every cache of a function that has a fake tensor in it: the next call on real tensors would get that one."""
    for found in gc.get_objects():
        if type(found) is _CACHED and _holds_fake(found, _DEPTH):
            found.cache_clear()


def _holds_fake(value: Any, depth: int) -> bool:
    if isinstance(value, FakeTensor):
        return True
    if not depth or isinstance(value, (FunctionType, ModuleType, type)):
        return False
    return any(_holds_fake(held, depth - 1) for held in gc.get_referents(value))


def _grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """torch's rule (2.14) is that of the CUDA kernel for 16-bit numbers; all others run a matrix product a group.

    [m, k] @ [g, k, n], rows in groups: [m, n]. [g, m, k] @ [k, n], columns in groups: [m, n]. [m, k] @ [k, n], both along k: [g, m, n].
    """
    m, n = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim() == 3:
        return a.new_empty((a.shape[0], m, n), dtype=out_dtype)
    if a.dim() == b.dim() == 2 and offs is not None:
        return a.new_empty((offs.numel(), m, n), dtype=out_dtype)
    return a.new_empty((m, n), dtype=out_dtype)


def _layer_norm_backward(
    grad: torch.Tensor,
    inputs: torch.Tensor,
    shape: list[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mask: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    """Kernels return a contiguous gradient, torch's rule one that is laid out as ``grad``, which then seems to need a copy."""
    of = (inputs, weight, bias)
    return tuple(
        inputs.new_empty(x.shape, dtype=x.dtype) if x is not None and wanted else None for x, wanted in zip(of, mask, strict=True)
    )


# What is called in place of an operator whose rule in torch is not that of its kernels, by the operator's name.
RULES: Final[dict[str, Callable[..., Any]]] = {
    "aten::_grouped_mm": _grouped_mm, "aten::native_layer_norm_backward": _layer_norm_backward,
}  # fmt: skip
