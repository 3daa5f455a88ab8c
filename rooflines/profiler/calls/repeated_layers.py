"""Layers of a language model that do the same: the first and the last of each kind are recorded for all of
them.

A model of 80 layers takes 20 times as long to record as one of four, and the calls are the same but for the
path of the layer. The last one, too, because memory peaks there, beside the whole KV cache.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from rooflines.profiler.calls.recorder import StepCalls
from rooflines.profiler.hooks.replaced import Function
from rooflines.profiler.tree.tree import Module

_NUMBERED = frozenset({"layer_idx"})  # what tells layers of a kind apart


class RepeatedLayers:
    """Skips layers of ``network``, a causal model of transformers, that do what a recorded one has done.

    Layers are of a kind where their modules, their attributes but for the layer's number, and the shapes and
    types of their weights and inputs are equal. One that was skipped returns its input, which has the shape
    of its result.
    """

    def __init__(self, network: torch.nn.Module) -> None:
        config: Any = network.config
        depth = config.get_text_config(decoder=True).num_hidden_layers
        lists = [
            (path, part)
            for path, part in network.named_modules()
            if isinstance(part, torch.nn.ModuleList) and len(part) == depth
        ]
        self._path, self._layers = [*lists, ("", torch.nn.ModuleList())][0]
        self._kinds = [_kind(layer) for layer in self._layers]
        self._last = {kind: number for number, kind in enumerate(self._kinds)}
        self._paths = {id(part): f"{path}." for path, part in network.named_modules()}
        self._ran: dict[Any, int] = {}
        self._like: dict[int, int] = {}  # skipped layers, and the recorded ones that they are like
        self._inside = ""  # the path of the layer that runs

    @contextmanager
    def skipped(self) -> Iterator[None]:
        """Inside, layers are skipped."""
        self._ran.clear()
        self._like.clear()
        try:
            for number, layer in enumerate(self._layers):
                layer.forward = self._forward(number, layer.forward)
            with register_module_forward_pre_hook(self._entered):
                yield
        finally:
            for layer in self._layers:
                vars(layer).pop("forward", None)

    def _forward(self, number: int, forward: Function) -> Function:
        @functools.wraps(forward)
        def called(hidden: Any, *args: Any, **kwargs: Any) -> Any:
            key = self._kinds[number], _shapes((hidden, args, kwargs))
            like = self._ran.get(key)
            if like is None or number == self._last[self._kinds[number]]:
                self._inside = f"{self._path}.{number}."
                result = forward(hidden, *args, **kwargs)
                if self._inside and isinstance(result, torch.Tensor) and _shapes(result) == _shapes(hidden):
                    self._ran.setdefault(key, number)
                return result
            self._like[number] = like
            for value in (*args, *kwargs.values()):
                for cache in caches_in(value):
                    if isinstance(layers := getattr(cache, "layers", None), list):
                        _fill(layers[number], layers[like])
            return hidden

        return called

    def _entered(self, module: torch.nn.Module, _: Any) -> None:
        """Calls in a module of another layer, or of none, lack the path of the layer, which is then recorded
        each time."""
        if not self._paths.get(id(module), "").startswith(self._inside):
            self._inside = ""

    def completed(self, recording: StepCalls) -> StepCalls:
        """``recording``, which was made with skipped layers, with their calls; ``lossy`` calls are those that
        were made."""
        skipped = {f"{self._path}.{number}": f"{self._path}.{like}" for number, like in self._like.items()}
        if strangers := skipped.keys() - {module.path for module in recording.modules}:
            raise RuntimeError(f"{min(strangers)} ran outside of the network that it is in")
        parts = {  # the modules in each recorded layer, itself included
            like: [
                at for at, module in enumerate(recording.modules) if f"{module.path}.".startswith(f"{like}.")
            ]
            for like in set(skipped.values())
        }
        modules: list[Module] = []
        calls_of: list[int] = []
        places: dict[int, list[int]] = {-1: [-1]}  # of a module's calls
        for at, module in enumerate(recording.modules):
            like = skipped.get(module.path)
            for part in [at] if like is None else parts[like]:
                places.setdefault(part, []).append(len(modules))
                of = recording.modules[part]
                modules.append(
                    of if like is None else Module(module.path + of.path.removeprefix(like), of.type)
                )
                calls_of.append(recording.module_calls[part])
        calls = {
            replace(call, module=place): count
            for call, count in recording.calls.items()
            for place in places.get(call.module, ())
        }
        return replace(recording, calls=calls, modules=modules, module_calls=calls_of)


def _kind(layer: torch.nn.Module) -> tuple[Any, ...]:
    """What layers that do the same have in common."""
    return tuple(
        (
            name,
            type(part),
            tuple(
                (key, _shapes(tensor)) for key, tensor in (*part._parameters.items(), *part._buffers.items())
            ),
            tuple(
                (key, value) for key, value in vars(part).items() if key not in _NUMBERED and _is_plain(value)
            ),
        )
        for name, part in layer.named_modules()
    )


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | torch.dtype)


def _shapes(values: Any) -> tuple[Any, ...]:
    """The shapes and types of the tensors in ``values``, and everything else in them."""
    return tuple(
        (leaf.shape, leaf.dtype, leaf.stride())
        if isinstance(leaf, torch.Tensor)
        else leaf
        if _is_plain(leaf)
        else id(leaf)
        for leaf in tree_leaves(values)
    )


def caches_in(cache: Any) -> tuple[Any, ...]:
    """The cache of a decoder, and behind it that of what an encoder gave, where there is one."""
    names = "self_attention_cache", "cross_attention_cache"
    return tuple(getattr(cache, name) for name in names) if hasattr(cache, names[0]) else (cache,)


def _fill(layer: Any, like: Any) -> None:
    """Give ``layer`` of a KV cache, if it holds nothing, room as ``like`` has, which has run."""
    for name, value in vars(like).items():
        if not isinstance(value, torch.Tensor) or getattr(layer, name, None) is None:
            setattr(
                layer,
                name,
                torch.empty_like(value) if isinstance(value, torch.Tensor) and value.dim() > 1 else value,
            )
