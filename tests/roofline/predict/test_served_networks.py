"""Networks as servers compute them, in closed form: scans with states, sparse attention, experts of three networks."""

import json

import pytest

pytest.importorskip("transformers")

from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.experts import experts_hit
from rooflines.roofline.dry_run.phases import count_generation

BATCH, PROMPT, NEW, LAYERS, H, V = 2, 12, 8, 3, 32, 64
OPTIONS = PointOptions(mode="generate", prompt_length=PROMPT, new_tokens=NEW, batch_size=BATCH, precision="bf16")
COMMON = {"hidden_size": H, "num_hidden_layers": LAYERS, "vocab_size": V, "max_position_embeddings": 64}


def counted(folder, config):
    path = folder / "config.json"
    path.write_text(json.dumps(COMMON | config))
    return count_generation(f"hf:{path}", OPTIONS, served=True)


def rows(generation, phase, name):
    return [row for row in generation.phases[phase].count.operators if row.name == name]


@pytest.mark.ci
def test_a_state_stays_between_the_tokens_of_mamba(tmp_path):
    inner, states = 64, 8
    found = counted(
        tmp_path, {"model_type": "mamba", "state_size": states, "intermediate_size": inner, "time_step_rank": 4, "expand": 2}
    )
    prompt, token = (rows(found, phase, "rooflines::selective_scan") for phase in (0, 1))
    assert sum(row.calls for row in prompt) == sum(row.calls for row in token) == LAYERS
    assert prompt[0].matrix_flops == 2 * BATCH * inner * states * PROMPT * prompt[0].calls
    assert token[0].matrix_flops == 2 * BATCH * inner * states * token[0].calls
    # The state in fp32, and the result in bf16.
    assert token[0].bytes_written == (4 * BATCH * inner * states + 2 * BATCH * inner) * token[0].calls
    # A token of decode makes the same products at every context, with the cache of taps and states.
    assert found.kv_bytes == LAYERS * BATCH * inner * (2 * 4 + 4 * states)


@pytest.mark.ci
def test_a_short_prompt_of_mamba_2_counts_by_its_pairs(tmp_path):
    heads, depth, states = 8, 8, 16
    sizes = {"num_heads": heads, "head_dim": depth, "state_size": states, "n_groups": 2, "expand": 2, "chunk_size": 8}
    found = counted(tmp_path, {"model_type": "mamba2", **sizes})
    prompt, token = (rows(found, phase, "rooflines::state_space_scan")[0] for phase in (0, 1))
    inner = heads * depth
    pairs = 2 * PROMPT * inner * states + (states + depth) * heads * PROMPT * (PROMPT + 1)
    assert prompt.matrix_flops == BATCH * min(4 * PROMPT * inner * states, pairs) * prompt.calls
    assert token.matrix_flops == 4 * BATCH * inner * states * token.calls


SPARSE = {
    "model_type": "deepseek_v32", "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "intermediate_size": 48, "first_k_dense_replace": LAYERS,
    "index_n_heads": 2, "index_head_dim": 16,
}  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("most", [4, 1000])
def test_a_query_of_sparse_attention_meets_the_selected_keys(most, tmp_path):
    found = counted(tmp_path, {**SPARSE, "index_topk": most})
    keys = found.phases[1].keys
    meets = min(most, keys)
    kernel, scores = (rows(found, 1, name)[0] for name in ("latent_attention", "index_scores"))
    assert kernel.matrix_flops == 2 * BATCH * 4 * meets * (2 * 32 + 8) * kernel.calls
    assert scores.matrix_flops == 2 * BATCH * 2 * keys * 16 * scores.calls
    assert sum(row.calls for row in rows(found, 1, "latent_attention")) == LAYERS
    prompt = rows(found, 0, "latent_attention")[0]
    pairs = sum(min(most, number) for number in range(1, PROMPT + 1))
    assert prompt.matrix_flops == 2 * BATCH * 4 * pairs * (16 + 8 + 16) * prompt.calls  # on expanded keys and values


E, TOP, F = 8, 2, 48
EXPERTS = [
    ({"model_type": "llama4_text", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": F,
      "intermediate_size_mlp": F, "num_local_experts": E, "num_experts_per_tok": TOP, "interleave_moe_layer_step": 1}, 3 * H * F),
    ({"model_type": "dbrx", "d_model": H, "n_heads": 4, "n_layers": LAYERS, "max_seq_len": 64,
      "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
      "ffn_config": {"ffn_hidden_size": F, "moe_num_experts": E, "moe_top_k": TOP, "hidden_size": H}}, 3 * H * F),
    ({"model_type": "jetmoe", "num_key_value_heads": 2, "kv_channels": 8, "num_experts_per_tok": TOP, "num_local_experts": E,
      "intermediate_size": F}, 3 * H * F + 2 * H * 2 * 8),
]  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize(("config", "weights"), EXPERTS, ids=lambda one: one["model_type"] if isinstance(one, dict) else "")
def test_experts_multiply_the_tokens_that_chose_them(config, weights, tmp_path):
    found = counted(tmp_path, config)
    for phase, tokens in ((0, BATCH * PROMPT), (1, BATCH)):
        grouped = rows(found, phase, "aten::_grouped_mm")
        assert sum(row.matrix_flops for row in grouped) == 2 * tokens * TOP * weights * LAYERS
        read = sum(row.bytes_read for row in grouped)
        assert read > 2 * LAYERS * weights * experts_hit(E, TOP, tokens)
        assert read < 2 * LAYERS * (weights * experts_hit(E, TOP, tokens) + 8 * tokens * TOP * (H + F) + 4 * 2 * E)
