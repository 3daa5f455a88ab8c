"""Activation checkpointing of a network's repeated blocks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rooflines.arguments import arg
from rooflines.errors import WorkloadError

if TYPE_CHECKING:
    import torch


def checkpoint_blocks(network: torch.nn.Module, name: str) -> str:
    """Make the blocks of ``network`` compute their activations again in the backward pass; returns what they are.

    Blocks are the outermost modules whose class occurs more than once and has children: ``BasicBlock`` of a ResNet, the layers of a
    transformer. A network with a method of its own for this (Hugging Face's) uses that. Raises WorkloadError without blocks.
    """
    from torch.utils.checkpoint import checkpoint

    # Transformers 6 renames the older one.
    enable: Any = getattr(network, "activation_checkpointing_enable", getattr(network, "gradient_checkpointing_enable", None))
    if callable(enable) and getattr(network, "supports_gradient_checkpointing", True):
        enable()
        return "checkpointed: the network's own layers"
    blocks = find_blocks(network)
    if not blocks:
        raise WorkloadError(
            f"{arg('checkpointing')} does not apply to {name}: it has no repeated blocks.", hint=f"Remove {arg('checkpointing')}."
        )
    for block in blocks:
        forward = block.forward

        def again(*inputs: Any, _forward: Any = forward, **keywords: Any) -> Any:
            return checkpoint(_forward, *inputs, use_reentrant=False, **keywords)

        block.forward = again
    counts = Counter(type(block).__name__ for block in blocks)
    return f"checkpointed: {', '.join(f'{count} × {kind}' for kind, count in counts.items())}"


def find_blocks(network: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the outermost modules below ``network`` with children whose class occurs more than once; containers are looked into."""
    import torch

    containers = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
    counts = Counter(
        type(module) for module in network.modules() if type(module) not in containers and next(module.children(), None) is not None
    )
    found: list[torch.nn.Module] = []
    waiting = list(reversed(list(network.children())))
    while waiting:
        module = waiting.pop()
        if counts[type(module)] > 1:
            found.append(module)
        else:
            waiting.extend(reversed(list(module.children())))
    return found
