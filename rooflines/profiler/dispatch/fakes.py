"""Fake tensors, which have shapes and no data: their mode, and when they will not do."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch._guards import detect_fake_mode
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
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
