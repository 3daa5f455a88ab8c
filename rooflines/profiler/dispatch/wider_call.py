"""An operator call repeated in a wider floating-point type: the result without the range and rounding of the narrow one."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves, tree_map

from rooflines.profiler.dispatch.signatures import tensors_in, written_tensors

# A second call would be seen by the other processes of a job.
_NOT_REPEATED: Final = ("c10d", "_c10d_functional")


def wider_than(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which a call whose result has ``dtype`` is repeated: float32 for 8 and 16 bits, else float64."""
    return torch.float32 if dtype.itemsize < 4 else torch.float64


def repeated_in(dtype: torch.dtype, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
    """Return what ``func`` returns and writes with every floating-point argument converted to ``dtype``.

    Conversions to a narrower type become conversions to ``dtype``. Neither the arguments nor the random generators change. Returns None
    where the call cannot be repeated: kernels of the narrow type alone (fused attention on CUDA), too little memory, collectives.
    """
    if not isinstance(func, torch._ops.OpOverload) or func.namespace in _NOT_REPEATED:
        return None

    def converted(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(dtype, copy=True) if value.is_floating_point() else value.clone()
        return dtype if isinstance(value, torch.dtype) and value.is_floating_point else value

    devices = {leaf.device.index for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.is_cuda}
    try:
        args, kwargs = tree_map(converted, (args, kwargs))
        with torch.random.fork_rng(sorted(devices)):
            result = func(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError):  # NotImplementedError is a RuntimeError
        return None
    changed, out = written_tensors(func, args, kwargs)
    return [*tensors_in(result), *changed, *out]
