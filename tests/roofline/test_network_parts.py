"""The part of a language model that an operator belongs to, over the architectures of transformers on fake tensors."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("transformers")

from rooflines.profiler.options import PointOptions
from rooflines.roofline.dry_run.count import Count, count_network
from rooflines.roofline.judge.network_parts import part_of

BATCH, LENGTH = 2, 32
TOKENS = BATCH * LENGTH
# Those of the configuration class, with this many layers; some need more to be built.
SMALL: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "attention_layers": ["global", "local"] * 2},
    "deepseek_v3": {"num_hidden_layers": 5},
}
ARCHITECTURES = [
    "gpt2", "llama", "mixtral", "qwen3_moe", "gemma3_text", "falcon", "bloom", "opt", "gpt_neo", "gpt_neox", "deepseek_v3", "gpt_oss",
    "mpt", "nemotron_h", "modernbert-decoder",
]  # fmt: skip
OTHERS = [
    "mistral", "qwen2", "qwen2_moe", "qwen3", "qwen3_next", "gemma", "gemma2", "phi", "phi3", "gptj", "gpt_bigcode", "olmo", "olmo2",
    "olmoe", "starcoder2", "stablelm", "cohere", "granitemoe", "llama4_text", "glm4_moe", "minimax_m2", "mamba2", "smollm3",
]  # fmt: skip


@cache
def counted(architecture: str) -> tuple[Count, dict[str, Any]]:
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config = CONFIG_MAPPING[architecture]().to_dict()
    for name in {"num_hidden_layers", "n_layer", "num_layers", "n_layers"} & config.keys():
        config[name] = min(config[name], 4)
    if config.get("layer_types"):
        config["layer_types"] = config["layer_types"][:4]
    heads = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[architecture]
    config |= {"model_type": architecture, "architectures": [heads]} | SMALL.get(architecture, {})
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config, default=str))
        return count_network(f"hf:{folder}", PointOptions(batch_size=BATCH, sequence_length=LENGTH))[1], config


def by_part(count: Count, figure: str) -> Counter[str]:
    types = {module.path: module.type for module in count.modules}
    found: Counter[str] = Counter()
    for row in count.operators:
        found[part_of(row.module, row.name, row.category, phase=row.phase, types=types)] += getattr(row, figure) or 0
    return found


@pytest.mark.ci
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_nearly_all_work_belongs_to_a_named_part(architecture: str) -> None:
    count, _ = counted(architecture)
    for figure in ("flops", "bytes"):
        parts = by_part(count, figure)
        assert parts["other"] <= 0.01 * parts.total(), parts
        assert parts["attention"] > 0
        assert parts["head"] > 0


@pytest.mark.ci
@pytest.mark.parametrize("architecture", ["gpt2", "llama", "mistral", "qwen2", "phi3", "olmo", "starcoder2"])
def test_matrix_flops_of_dense_models_by_part(architecture: str) -> None:
    count, config = counted(architecture)
    layers, hidden = config.get("n_layer") or config["num_hidden_layers"], config.get("n_embd") or config["hidden_size"]
    heads = config.get("n_head") or config["num_attention_heads"]
    depth = config.get("head_dim") or hidden // heads
    groups = config.get("num_key_value_heads") or heads
    inner = config.get("n_inner") or config.get("intermediate_size") or 4 * hidden
    mlp_matrices = 3 if config.get("hidden_act") == "silu" else 2
    projections = 2 * TOKENS * hidden * depth * (2 * heads + 2 * groups)  # query and output, key and value
    core = BATCH * heads * LENGTH * (LENGTH + 1) // 2 * 2 * (depth + depth)
    found = by_part(count, "matrix_flops")
    assert found["MLP"] == layers * mlp_matrices * 2 * TOKENS * hidden * inner
    assert found["head"] == 2 * TOKENS * hidden * config["vocab_size"]
    rest = found["attention"] - layers * (projections + core)
    assert 0 <= rest <= 0.0001 * found["attention"]  # angles of rotary embeddings
    assert set(found) - {part for part, flops in found.items() if not flops} == {"attention", "MLP", "head"}


@pytest.mark.parametrize(
    ("architecture", "experts", "chosen", "inner", "shared"),
    [
        ("mixtral", "num_local_experts", "num_experts_per_tok", "intermediate_size", 0),
        ("qwen3_moe", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", 0),
        ("deepseek_v3", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", 1),
    ],
)
def test_matrix_flops_of_experts(architecture: str, experts: str, chosen: str, inner: str, shared: int) -> None:
    count, config = counted(architecture)
    layers, hidden = config["num_hidden_layers"] - config.get("first_k_dense_replace", 0), config["hidden_size"]
    router = 2 * TOKENS * hidden * config[experts]
    routed = 3 * 2 * TOKENS * hidden * config[inner] * (config[chosen] + shared)
    assert by_part(count, "matrix_flops")["experts"] == layers * (router + routed)


@pytest.mark.parametrize(
    ("path", "name", "category", "part"),
    [
        ("model.layers.3.self_attn.q_norm", "aten::mul", "element-wise", "attention"),
        ("model.layers.3.post_attention_layernorm", "aten::mul", "element-wise", "normalization"),
        ("model.layers.3", "aten::add", "element-wise", "normalization"),  # residual
        ("model.layers.3", "aten::mm", "matmul", "other"),
        ("transformer.h.0.attn.c_proj", "aten::addmm", "matmul", "attention"),
        ("transformer.h.0.mlp.c_proj", "aten::addmm", "matmul", "MLP"),
        ("model.layers.*.block_sparse_moe.gate", "aten::mm", "matmul", "experts"),
        ("model.layers.0.mlp.gate", "aten::mm", "matmul", "experts"),
        ("model.layers.0.mlp.gate_proj", "aten::mm", "matmul", "MLP"),
        ("model.layers.0.self_attn.gate", "aten::mm", "matmul", "attention"),
        ("model.layers.0.mlp.shared_expert.up_proj", "aten::mm", "matmul", "experts"),
        ("bert.encoder.layer.0.output.dense", "aten::addmm", "matmul", "MLP"),
        ("output", "aten::mm", "matmul", "head"),
        ("transformer.wpe", "aten::embedding", "embedding", "embedding"),
        ("", "aten::_scaled_dot_product_flash_attention", "attention", "attention"),
        ("", "vllm::moe_forward", "moe", "experts"),
        ("", "aten::mm", "matmul", "other"),
        ("", "aten::argmax", "reduction", "sampling"),
        ("", "aten::multinomial", "random", "sampling"),
        ("", "aten::_softmax", "reduction", "sampling"),
        ("model.layers.0.self_attn", "aten::_softmax", "reduction", "attention"),
        ("", "aten::cat", "copy", "other"),  # nothing tells that a trace without modules is outside of them
    ],
)
def test_names(path: str, name: str, category: str, part: str) -> None:
    assert part_of(path, name, category, phase="decode") == part


def test_types_decide_where_they_are_known() -> None:
    types = {"": "Net", "blocks": "ModuleList", "blocks.0": "Block", "blocks.0.mixer": "MLP", "blocks.0.layer": "CausalAttention"}
    assert part_of("blocks.0.mixer", "aten::mm", "matmul") == "attention"
    assert part_of("blocks.0.mixer", "aten::mm", "matmul", types=types) == "MLP"
    assert part_of("blocks.0.layer", "aten::mm", "matmul", types=types) == "attention"
    assert part_of("", "aten::cat", "copy", phase="decode", types=types) == "sampling"
    assert part_of("", "aten::tanh", "element-wise", phase="decode", types=types) == "head"  # scores that are capped


def test_outside_of_a_generation_nothing_is_sampled() -> None:
    assert part_of("", "aten::_foreach_add_", "element-wise", phase="optimizer", types={"": "Net"}) == "other"
    assert part_of("", "aten::argmax", "reduction", phase="forward") == "other"
