"""Bytes of what generates: its parameters, and the tensors of its KV cache as they are at the end of a generation."""

from __future__ import annotations

from typing import Any

from rooflines.profiler.dispatch.memory import storages
from rooflines.profiler.records import GenerationSizes
from rooflines.profiler.workloads.causal_models import cache_tensors


def generation_sizes(network: Any, cache: Any) -> GenerationSizes:
    """The sizes of ``network``, a module or an object that has some, and of ``cache``, a transformers cache or None."""
    import torch

    inside = network if isinstance(network, torch.nn.Module) else torch.nn.ModuleList(
        value for value in vars(network).values() if isinstance(value, torch.nn.Module)
    )  # fmt: skip
    parameters = list(inside.parameters())
    layers = getattr(cache, "layers", ())
    held = [
        tensor
        for layer in layers
        for name in ("keys", "values")
        if isinstance(tensor := getattr(layer, name, None), torch.Tensor) and tensor.dim() == 4
    ]
    return GenerationSizes(
        parameters=sum(tensor.numel() for tensor in parameters),
        parameter_bytes=sum(storage.nbytes() for tensor in parameters for storage in storages(tensor)),
        # [batch, heads, tokens, head_dim]; a sliding window holds fewer tokens than the context.
        kv_bytes_per_token=sum(tensor.nbytes // (tensor.shape[0] * tensor.shape[2]) for tensor in held if tensor.numel()) or None,
        kv_bytes=sum(tensor.nbytes for tensor in cache_tensors(cache)) if layers else None,
    )
