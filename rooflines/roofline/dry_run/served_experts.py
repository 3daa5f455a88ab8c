"""Mixtures of experts as servers compute them, of networks that transformers computes in another way.

Most networks of transformers call grouped products, which count. Those in ``_BLOCKS`` multiply every token
with every expert (Llama 4), or take the tokens of each expert out of the batch, whose number only data tells
(DBRX, JetMoe). Here the rows that tokens × experts per token make go through one grouped product.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def grouped_experts(generator: Any) -> Iterator[None]:
    """Inside, the experts of a causal model of transformers are grouped products."""
    network: Any = getattr(generator, "network", None)
    blocks = [module for module in network.modules() if type(module).__name__ in _BLOCKS] if network else ()
    for block in blocks:  # those of this network alone: the class may be in use elsewhere
        block.forward = functools.partial(_BLOCKS[type(block).__name__], block)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def _grouped(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """[rows, k] @ [experts, k, n], the rows in groups of one expert each."""
    import torch

    ends = torch.zeros(weights.shape[0], dtype=torch.int32)
    return torch._grouped_mm(rows, weights, ends)


def _of_llama4(block: Any, tokens: torch.Tensor) -> Any:
    tokens = tokens.reshape(-1, block.hidden_dim)
    _, logits = block.router(tokens)
    rows = tokens.repeat(block.top_k, 1)
    gate, up = _grouped(rows, block.experts.gate_up_proj).chunk(2, dim=-1)
    routed = _grouped(up * block.experts.act_fn(gate), block.experts.down_proj)
    return block.shared_expert(tokens) + routed.view(block.top_k, *tokens.shape).sum(0), logits


def _of_dbrx(experts: Any, tokens: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    flat = tokens.reshape(-1, experts.hidden_size)
    rows = flat.repeat(chosen.shape[-1], 1)
    sizes = experts.num_experts, experts.ffn_hidden_size, experts.hidden_size
    gate, up, down = (getattr(experts.mlp, name).view(sizes) for name in ("w1", "v1", "w2"))
    inner = experts.mlp.activation_fn(_grouped(rows, gate.transpose(1, 2)))
    routed = _grouped(inner * _grouped(rows, up.transpose(1, 2)), down)
    weighted = routed * weights.reshape(-1, 1)
    return weighted.view(chosen.shape[-1], *flat.shape).sum(0).view(tokens.shape)


def _of_jetmoe(experts: Any, rows: torch.Tensor, _: Any) -> torch.Tensor:
    return _grouped(rows, experts.weight.transpose(1, 2))


def _gates_of_jetmoe(router: Any, tokens: torch.Tensor) -> Any:
    logits = router.layer(tokens).float()
    scores, chosen = logits.topk(router.top_k, dim=1)
    gates = scores.softmax(dim=1).type_as(tokens)
    order = chosen.flatten().sort(0)[1]
    return order, order.div(router.top_k, rounding_mode="trunc"), gates.flatten()[order], None, logits


# By the class of the block in transformers.
_BLOCKS: dict[str, Callable[..., Any]] = {
    "Llama4TextMoe": _of_llama4,
    "DbrxExperts": _of_dbrx,
    "JetMoeParallelExperts": _of_jetmoe,
    "JetMoeTopKGating": _gates_of_jetmoe,
}
