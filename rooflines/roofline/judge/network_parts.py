"""The part of a language model that an operator belongs to, by the names and types of the modules around it.

The first module from the outside that has a known name or type decides, so that a norm of queries is
attention. An MLP that contains a router or experts is experts. One row of ``_TYPES`` or ``_NAMES`` adds a
name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

Part = Literal["attention", "MLP", "experts", "embedding", "head", "normalization", "sampling", "other"]

# Types of modules, by how they end, and their names; of several rows that fit, the first, types before names.
# Other mixers of tokens (state spaces, convolutions) count as attention.
_TYPES: tuple[tuple[str, Part], ...] = (
    (r"\w*(Experts|MoE(Block|Layer)?|Router|TopKGate)", "experts"),
    (r"\w*(Attention|Attn|Mixer|RotaryEmbedding)", "attention"),
    (r"\w*(MLP|FeedForward|FFN)", "MLP"),
    (r"\w*Norm(\dd)?", "normalization"),
    (r"\w*(LMHead|LogitsProcessor)", "head"),
    (r"\w*Embeddings?", "embedding"),
)
_NAMES: tuple[tuple[str, Part], ...] = (
    (r"\w*norm(_?f|_?\d+|_\w+)?|ln(_?\w+)?|\w+_ln", "normalization"),
    (r"\w*experts?|\w*expert_gate|\w*moe|router|shared_mlp", "experts"),
    (
        r"\w*(attn|attention|mixer|mamba|ssm)\w*|rotary\w*|rope|alibi|temporal_block|conv"
        r"|[qkvo]_proj|[qo]_[ab]_proj|kv_[ab]_proj\w*",
        "attention",
    ),
    (
        r"\w*(mlp|ffn|feed_?forward)\w*|ff|fc_?\d|c_fc|intermediate|(gate|up|down|gate_up)_proj"
        r"|dense_4?h_to_4?h|w[123]|act(ivation)?(_fn)?",
        "MLP",
    ),
    (
        r"\w*lm_heads?|embed_out|output_(layer|projection)|cls|\w*predictions|logits_processor"
        r"|project_out|proj_out|head|lm_loss|pooler",
        "head",
    ),
    (r"w[tp]e|\w*embeddings?(_project)?|\w*embed(s|_\w+)?|\w*_emb|project_in|per_layer_\w+", "embedding"),
)
# Categories that decide where no module does.
_CATEGORIES: dict[str, Part] = {
    "attention": "attention",
    "moe": "experts",
    "embedding": "embedding",
    "normalization": "normalization",
}
_ROUTERS = ("gate", "wg")  # in an MLP; a gate of attention is attention
_SMALL = ("element-wise", "reduction")
_GENERATION = ("prefill", "decode")
_SAMPLING = re.compile(
    r"\w+::_?(argmax|multinomial|topk|sort|(log_)?softmax|exponential|cumsum|\w*sampl)\w*\Z"
)
_INDEX = re.compile(r"\d+|\*")


def part_of(
    path: str, name: str, category: str, *, phase: str = "", types: Mapping[str, str] | None = None
) -> Part:
    """Return the part that a row belongs to: the operator ``name`` of a ``category`` in the module ``path``
    ("": none, or the network).

    ``types`` are the types of the network's modules by their paths, where known. The residual additions of a
    block count as normalization, with which kernels fuse them, and what the network itself does to its scores
    as its head. Operators outside of every module that choose the next token are sampling; where ``types``
    are known, so are copies there in a generation.
    """
    modules = tuple(path.split(".")) if path else ()
    kinds = (
        tuple(types.get(".".join(modules[: depth + 1]), "") for depth in range(len(modules)))
        if types
        else ("",) * len(modules)
    )
    part = _part_of_module(modules, kinds) or _CATEGORIES.get(category)
    if part is not None:
        return part
    if modules:
        return "normalization" if _INDEX.fullmatch(modules[-1]) and category in _SMALL else "other"
    if phase in _GENERATION and (_SAMPLING.match(name) or (types and category == "copy")):
        return "sampling"
    return "head" if types and category == "element-wise" and phase != "optimizer" else "other"


@lru_cache(maxsize=8192)
def _part_of_module(modules: tuple[str, ...], types: tuple[str, ...]) -> Part | None:
    in_block = False
    for depth, (module, kind) in enumerate(zip(modules, types, strict=True)):
        part = _listed(module, kind)
        if part == "MLP":
            below = zip(modules[depth + 1 :], types[depth + 1 :], strict=True)
            return (
                "experts"
                if any(name in _ROUTERS or _listed(name, of) == "experts" for name, of in below)
                else "MLP"
            )
        if part is not None:
            return part
        if module == "output":  # of a block in BERT, of the network in Llama's own code
            return "MLP" if in_block else "head"
        if (module, kind) == ("decoder", "Linear"):
            return "head"
        in_block = in_block or _INDEX.fullmatch(module) is not None
    return None


def _listed(module: str, kind: str) -> Part | None:
    named = ((_TYPES, kind), (_NAMES, module))
    return next(
        (
            part
            for table, text in named
            for pattern, part in table
            if re.fullmatch(pattern, text, re.IGNORECASE)
        ),
        None,
    )
