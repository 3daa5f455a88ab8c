"""Latent attention as servers compute it: closed forms for small layers and for the sizes of DeepSeek-V3."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("transformers")

from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.costs import SOFTMAX
from rooflines.roofline.count.formulas.experts import experts_hit
from rooflines.roofline.dry_run.phases import count_generation

SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 20, "vocab_size": 128,
}  # fmt: skip
# As published (arXiv 2412.19437, section 4.2), with fewer layers.
LARGE = {
    "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 5, "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3,
    "moe_intermediate_size": 2048,
    "vocab_size": 129280, "max_position_embeddings": 8192,
}  # fmt: skip
OPTIONS = PointOptions(mode="generate", prompt_length=40, new_tokens=3, batch_size=3, precision="bf16")


def counted(tmp_path, config, options=OPTIONS, keys=None, served=True):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], **config})
    )
    return count_generation(f"hf:{tmp_path}", options, keys=keys, served=served)


def phases(generation):
    return {phase.phase: phase.count for phase in generation.phases}


@pytest.mark.ci
@pytest.mark.parametrize(("config", "batch", "context"), [(SMALL, 3, 41), (LARGE, 1, 4096), (LARGE, 64, 4096)])
def test_flops_of_a_token_are_twice_the_active_parameters_and_attention(tmp_path, config, batch, context):
    options = replace(OPTIONS, batch_size=batch, prompt_length=context - 1)
    found = counted(tmp_path, config, options, keys=(context,))
    c, decode = config, phases(found)["decode"]
    layers, dense = c["num_hidden_layers"], c["first_k_dense_replace"]
    h, heads, rank, rope = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"], c["qk_rope_head_dim"]
    key, value, queries = c["qk_nope_head_dim"], c["v_head_dim"], c["q_lora_rank"]
    attention = h * queries + queries * heads * (key + rope) + h * (rank + rope) + rank * heads * (key + value) + heads * value * h
    active_experts = c["num_experts_per_tok"] + 1
    experts = h * c["n_routed_experts"] + active_experts * 3 * h * c["moe_intermediate_size"]
    active = layers * attention + dense * 3 * h * c["intermediate_size"] + (layers - dense) * experts + h * c["vocab_size"]
    core = 2 * heads * (2 * rank + rope) * context
    assert decode.matrix_flops == pytest.approx(batch * (2 * active + layers * core), rel=1e-6)  # and the angles of rotary embeddings
    assert decode.matrix_flops >= batch * (2 * active + layers * core)
    # Every weight once, of the experts those that are used, and the latents of the context; activations are small beside them.
    used = experts_hit(c["n_routed_experts"], c["num_experts_per_tok"], batch)
    weights = active + (layers - dense) * (used - c["num_experts_per_tok"]) * 3 * h * c["moe_intermediate_size"]
    latents = layers * (rank + rope) * context * batch
    if config is LARGE:
        assert 1 <= decode.bytes_read / (2 * (weights + latents)) < 1.05


@pytest.mark.ci
def test_one_layer_to_the_byte(tmp_path):
    found = counted(tmp_path, SMALL)
    batch, tokens, heads, rank, rope, key, value = 3, 40, 4, 16, 8, 12, 10
    for phase, context in (("prefill", tokens), ("decode", tokens + 1)):
        rows = {row.shapes: row for row in phases(found)[phase].operators if "layers.1.self_attn" in row.module}
        kernel = next(row for row in rows.values() if row.name == "latent_attention")
        if phase == "prefill":
            pairs = batch * heads * tokens * (tokens + 1) // 2
            assert kernel.matrix_flops == 2 * pairs * (key + rope + value)
            read = batch * tokens * (heads * (key + rope + key + value) + rope)
            written = batch * tokens * (heads * value + rank + rope)
        else:
            pairs = batch * heads * context
            assert kernel.matrix_flops == 2 * pairs * (2 * rank + rope)
            read = batch * (heads * (rank + rope) + context * (rank + rope))
            written = batch * (heads * rank + rank + rope)
            into, out = rows[f"{heads}x{batch}x{key}, {heads}x{key}x{rank}"], rows[f"{heads}x{batch}x{rank}, {heads}x{rank}x{value}"]
            assert into.flops + out.flops == 2 * batch * rank * heads * (key + value)
            assert into.bytes_read + out.bytes_read == 2 * heads * (rank * (key + value) + batch * (key + rank))
        assert (kernel.bytes_read, kernel.bytes_written) == (2 * read, 2 * written)
        assert kernel.flops - kernel.matrix_flops == pairs * (1 + SOFTMAX)


@pytest.mark.ci
def test_totals_are_those_of_the_rows_and_of_the_modules(tmp_path):
    generation, found = (counted(tmp_path, SMALL, served=served) for served in (False, True))
    for before, after in zip(generation.phases, found.phases, strict=True):
        for field in ("flops", "matrix_flops", "bytes", "bytes_read", "bytes_written"):
            assert getattr(after.count, field) == sum(getattr(row, field) or 0 for row in after.count.operators)
        assert after.count.flops < before.count.flops
        assert after.count.bytes < before.count.bytes
        of = {module.path: module for module in after.count.modules}
        inside = [row for row in after.count.operators if row.module.startswith("model.layers.1.self_attn")]
        assert of["model.layers.1.self_attn"].flops == sum(row.flops or 0 for row in inside)
        assert of["model.layers.1.self_attn"].bytes == sum(row.bytes or 0 for row in inside)


@pytest.mark.ci
def test_context_costs_the_latents_alone(tmp_path):
    generation = counted(tmp_path, SMALL, keys=(41, 141))
    near, far = (phase.count for phase in generation.phases[1:])
    per_token = 3 * 3 * 4 * (2 * (2 * 16 + 8) + 1 + SOFTMAX)  # layers, sequences, heads
    assert far.flops - near.flops == 100 * per_token
    assert far.bytes - near.bytes == 100 * 3 * 3 * (16 + 8) * 2


@pytest.mark.ci
def test_without_a_cache_decode_is_a_prefill(tmp_path):
    generation = counted(tmp_path, SMALL, replace(OPTIONS, kv_cache="none"))
    rows = phases(generation)["decode"].operators
    assert not [row for row in rows if row.name == "aten::bmm" and row.module.endswith("kv_b_proj")]
    assert [row for row in rows if row.name == "latent_attention"]


@pytest.mark.ci
def test_other_networks_stay_as_they_are(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 99,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    as_called, served = (count_generation(f"hf:{tmp_path}", OPTIONS, served=served) for served in (False, True))
    assert served == as_called
