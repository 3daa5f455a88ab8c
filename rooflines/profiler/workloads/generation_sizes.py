"""Bytes of what generates: its parameters, and the tensors of its KV cache as they are at the end of a generation."""

from __future__ import annotations

from typing import Any

from rooflines.profiler.dispatch.memory import storages
from rooflines.profiler.records import GenerationSizes
from rooflines.profiler.workloads.causal_models import cache_tensors, longest_context


def generation_sizes(generator: Any, cache: Any) -> GenerationSizes:
    """The sizes of what generates, a module or an object that has some, and of ``cache``, a transformers cache or None."""
    import torch

    layers = getattr(cache, "layers", ())
    held: Any = (getattr(layer, name, None) for layer in layers for name in ("keys", "values"))
    # [batch, heads, tokens, head_dim]; a sliding window holds fewer tokens than the context.
    tokens = [
        tensor.nbytes // (tensor.shape[0] * tensor.shape[2]) for tensor in held if getattr(tensor, "ndim", 0) == 4 and tensor.numel()
    ]
    modules = torch.nn.ModuleList(value for value in (generator, *vars(generator).values()) if isinstance(value, torch.nn.Module))
    parameters = list(modules.parameters())  # each once
    config = next((one for module in modules if hasattr(one := getattr(module, "config", None), "get_text_config")), None)
    return GenerationSizes(
        parameters=sum(map(torch.numel, parameters)),
        parameter_bytes=sum(storage.nbytes() for tensor in parameters for storage in storages(tensor)),
        kv_bytes_per_token=sum(tokens) or None,
        kv_bytes=sum(tensor.nbytes for tensor in cache_tensors(cache)) if layers else None,
        longest_context=longest_context(config) if config is not None else None,
    )  # fmt: skip
