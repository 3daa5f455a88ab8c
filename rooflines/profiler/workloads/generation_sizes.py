"""Bytes of what generates: its parameters, and the tensors of its KV cache as they are at the end of a generation."""

from __future__ import annotations

from typing import Any

from rooflines.profiler.dispatch.memory import storages
from rooflines.profiler.records import GenerationSizes
from rooflines.profiler.workloads.causal_models import cache_tensors, longest_context, make_cache


def generation_sizes(generator: Any, cache: Any) -> GenerationSizes:
    """The sizes of what generates, a module or an object that has some, and of ``cache``, a transformers cache or None."""
    import torch

    layers = getattr(cache, "layers", ())
    each = [
        sum(
            tensor.nbytes // (tensor.shape[0] * tensor.shape[-2])  # [batch, heads, tokens, depth] or [batch, tokens, depth]
            for name, tensor in vars(layer).items()
            if name.endswith(("keys", "values")) and getattr(tensor, "ndim", 0) > 2 and tensor.numel()
        )
        for layer in layers
    ]
    modules = torch.nn.ModuleList(value for value in (generator, *vars(generator).values()) if isinstance(value, torch.nn.Module))
    parameters = list(modules.parameters())  # each once
    config = next((one for module in modules if hasattr(one := getattr(module, "config", None), "get_text_config")), None)
    windows: dict[int, int] = {}
    if config is not None and any(getattr(layer, "is_sliding", False) for layer in layers):
        # A cache that grows knows its windows; one with fewer slots than that does not.
        for size, layer in zip(each, make_cache(config, "dynamic", 0).layers, strict=False):
            if size and (window := getattr(layer, "sliding_window", None)):
                windows[window] = windows.get(window, 0) + size
    return GenerationSizes(
        parameters=sum(map(torch.numel, parameters)),
        parameter_bytes=sum(storage.nbytes() for tensor in parameters for storage in storages(tensor)),
        kv_bytes_per_token=sum(each) or None,
        kv_bytes=sum(tensor.nbytes for tensor in cache_tensors(cache)) if layers else None,
        kv_windows=tuple(sorted(windows.items())),
        longest_context=longest_context(config) if config is not None else None,
    )  # fmt: skip
