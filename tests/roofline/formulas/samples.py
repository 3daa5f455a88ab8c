"""Small real calls of as many operators as can be called on a CPU: torch's own test samples (OpInfo), and a table of ours."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import torch

from tests.roofline.formulas.calls import GROUPS
from tests.roofline.formulas.oracle import Collection, mapped, tensors_of

DTYPES: Final = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
SAMPLES_A_DTYPE: Final = {torch.float32: 10}
MAX_INPUT: Final = 1500
# Their samples are large, slow or about something else than one operator.
SKIPPED: Final = frozenset({"sparse.mm", "to_sparse", "empty", "histogramdd", "nn.functional.ctc_loss"})


def opinfos() -> list[Any]:
    """torch's table of operators with sample inputs, which torch installs with itself."""
    missing = "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None
    flags = "__allow_nonbracketed_mutation_flag"
    frozen = getattr(torch.backends, flags)
    if missing:  # its base class for tests, of which none is run here
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.testing._internal.common_methods_invocations import op_db
    finally:
        setattr(torch.backends, flags, frozen)  # the import forbids setting torch.backends' flags
        if missing:
            del sys.modules["expecttest"]
    return [info for info in op_db if info.name not in SKIPPED and not info.name.startswith("jiterator")]


def calls(info: Any, dtype: torch.dtype, limit: int) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Small inputs of one operator: those with the fewest elements first, of different forms."""
    differentiable = info.supports_autograd and dtype in info.supported_dtypes("cpu") and dtype.is_floating_point
    samples = []
    for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=differentiable), 30):
        size = sum(tensor.numel() for tensor in tensors_of([sample.input, *sample.args, *sample.kwargs.values()]))
        if size <= MAX_INPUT:
            samples.append((size == 0, len(samples), sample))
    for _, _, sample in sorted(samples, key=lambda item: item[:2])[:limit]:
        yield sample.input, tuple(sample.args), dict(sample.kwargs)


def train(operator: Any, *args: Any, **kwargs: Any) -> None:
    """Back-propagate random gradients through every output that has one."""
    outputs = [tensor for tensor in tensors_of(operator(*args, **kwargs)) if tensor.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.rand_like(tensor) for tensor in outputs])


def fill(operator: Any, *args: Any, **kwargs: Any) -> None:
    """Let the operator write into tensors of ours."""
    operator(*args, **kwargs, out=mapped(operator(*args, **kwargs), torch.empty_like))


def change(operator: Any, given: Any, *args: Any, **kwargs: Any) -> None:
    """Let the operator change a copy."""
    operator(mapped(given, lambda tensor: tensor.detach().clone()), *args, **kwargs)


def run_opinfo(collection: Collection, info: Any, dtype: torch.dtype, limit: int) -> None:
    """The operator's calls: forward and backward, in place, and into ``out``."""
    name = f"{info.formatted_name} {dtype}"
    try:
        inputs = list(calls(info, dtype, limit))
    except Exception:  # samples that this build of torch cannot make
        return
    for given, args, kwargs in inputs:
        forms = [
            ("", False, partial(info.op, given, *args, **kwargs)),
            (" backward", True, partial(train, info.op, given, *args, **kwargs)),
        ]
        if info.inplace_variant is not None:
            forms.append((" in place", False, partial(change, info.inplace_variant, given, *args, **kwargs)))
        if info.supports_out:
            forms.append((" out", False, partial(fill, info.op, given, *args, **kwargs)))
        for form, gradients, body in forms:
            # not every sample of an operator may be broadcast in place, or has a gradient; every operator refuses in its own way
            with contextlib.suppress(RuntimeError, TypeError, ValueError, IndexError), torch.set_grad_enabled(gradients):
                collection.capture(name + form, body)


def own() -> Collection:
    """Our calls. Those that this torch or machine does not have are in ``failed``."""
    collection = Collection()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        for group, calls_of_group in GROUPS.items():
            for name, call in calls_of_group().items():
                torch.default_generator.manual_seed(0)  # the data of a call do not depend on others
                collection.attempt(f"{group}: {name}", call)
    return collection


def torchs() -> Collection:
    """torch's samples."""
    collection = Collection()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)
        for dtype in DTYPES:
            for info in opinfos():
                if dtype in info.supported_dtypes("cpu"):
                    run_opinfo(collection, info, dtype, SAMPLES_A_DTYPE.get(dtype, 3))
    return collection
