"""What a network is called with: its arguments, the tensors in them, and their copies."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rooflines.profiler.read.signature import Keywords, Positional

if TYPE_CHECKING:
    import torch


def as_arguments(inputs: Any) -> tuple[Positional, Keywords]:
    """The positional arguments and keywords that ``inputs`` are: those in a tuple, those in a dict, or else
    one argument.

    Named tuples, packed sequences and what a network of transformers returns are one argument; what its
    tokenizers return are keywords.
    """
    if type(inputs) is tuple:
        return inputs, {}
    return ((), dict(inputs)) if type(inputs) is dict or isinstance(inputs, UserDict) else ((inputs,), {})


def batch_size_of(inputs: Any) -> int | None:
    """The first dimension of the first tensor, which most people call the batch, or the number of sequences
    that it packs."""
    from torch.nn.utils.rnn import PackedSequence

    first = inputs[0] if type(inputs) is tuple and inputs else inputs
    if isinstance(first, PackedSequence):
        return int(first.batch_sizes[0])
    return next((int(tensor.shape[0]) for tensor in tensors_in(inputs) if tensor.dim()), None)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in ``value``, however deep in its mappings, lists, tuples and dataclasses."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name, None))


def with_tensors(of: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """``value`` with ``of(tensor)`` in place of its tensors, however deep: the caller's own get no gradient
    and are not written to.

    A tensor that is given twice is one and the same afterwards, too: attention does other things with a query
    that is its key. Objects that hold tensors, as a cache of keys and values does, are copied: a step that
    adds to one leaves the caller's as it was.
    """
    import torch
    from torch.nn.utils.rnn import PackedSequence
    from torch.utils._pytree import tree_map

    made: dict[int, torch.Tensor] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = of(tensor)
        return made[id(tensor)]

    def replaced(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return once(leaf)
        if isinstance(leaf, PackedSequence):  # the lengths are the host's
            return leaf._replace(
                **{k: once(v) for k, v in leaf._asdict().items() if k != "batch_sizes" and v is not None}
            )
        return leaf if isinstance(leaf, _ATOMS) or callable(leaf) else _copy_with(once, leaf)

    return tree_map(replaced, value)


_ATOMS = (type(None), bool, int, float, complex, str, bytes)


def _copy_with(of: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """A deep copy with ``of(tensor)`` for each tensor; ``value`` itself if it cannot be copied or holds a
    module."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Copying(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is not torch.Tensor.__deepcopy__:
                return func(*args, **(kwargs or {}))
            return of(args[0])

    memo: dict[int, Any] = {}
    try:
        with Copying():
            copied = copy.deepcopy(value, memo)
    except Exception:  # what an object of the caller's raises when it is copied is its own affair
        return value
    return value if any(isinstance(item, torch.nn.Module) for item in memo.values()) else copied
