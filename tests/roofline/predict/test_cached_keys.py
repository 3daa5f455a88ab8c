"""A KV cache of fewer bits, in closed form: what is held and read of it, and that FLOPs and prefill stay."""

import json

import pytest

pytest.importorskip("transformers")

from rooflines.errors import UsageError
from rooflines.profiler.options import PointOptions
from rooflines.roofline.dry_run.phases import count_generation
from rooflines.roofline.predict.cached_keys import with_fewer_bits_cached
from rooflines.roofline.predict.counted_step import count_step

# hidden size, layers, query heads, key heads, size of a head
H, L, A, K, D = 64, 3, 4, 2, 16
BATCH, PROMPT, NEW = 2, 10, 8
DENSE = {
    "model_type": "llama", "hidden_size": H, "num_hidden_layers": L, "num_attention_heads": A, "num_key_value_heads": K, "head_dim": D,
    "intermediate_size": 96, "vocab_size": 128, "max_position_embeddings": 64,
}  # fmt: skip
LATENT = {
    "model_type": "deepseek_v3", "hidden_size": H, "num_hidden_layers": L, "num_attention_heads": A, "num_key_value_heads": A,
    "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "intermediate_size": 96,
    "first_k_dense_replace": L, "vocab_size": 128, "max_position_embeddings": 64,
}  # fmt: skip
OPTIONS = PointOptions(mode="generate", prompt_length=PROMPT, new_tokens=NEW, batch_size=BATCH, precision="bf16")


def saved(folder, config):
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return f"hf:{path}"


@pytest.mark.ci
@pytest.mark.parametrize(("config", "numbers"), [(DENSE, 2 * K * D), (LATENT, 32 + 8)])
def test_a_token_of_decode_reads_half_of_what_it_would(config, numbers, tmp_path):
    before = count_generation(saved(tmp_path, config), OPTIONS, served=True)
    after = with_fewer_bits_cached(before, 8)
    keys = before.phases[1].keys
    assert before.phases[1].count.bytes_read - after.phases[1].count.bytes_read == BATCH * L * keys * numbers
    assert before.phases[0] == after.phases[0]
    assert before.phases[1].count.flops == after.phases[1].count.flops
    assert (after.kv_bytes_per_token, after.kv_bytes) == (L * numbers, BATCH * L * numbers * (PROMPT + NEW - 1))
    assert with_fewer_bits_cached(before, 16) is before


@pytest.mark.ci
def test_a_prediction_takes_the_bits_that_were_asked_for_or_that_the_configuration_names(tmp_path):
    shipped = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    asked = count_step(saved(tmp_path, DENSE), OPTIONS, cache_dtype="fp8")
    named = count_step(saved(tmp_path, DENSE | {"quantization_config": shipped}), OPTIONS)
    plain = count_step(saved(tmp_path, DENSE), OPTIONS)
    assert asked.step.memory.kv_cache_bytes == named.step.memory.kv_cache_bytes == plain.step.memory.kv_cache_bytes / 2
    assert any("KV cache: 8 bits" in note for note in named.notes)


@pytest.mark.ci
def test_products_of_a_generation_served_in_fp8_are_those_but_the_heads(tmp_path):
    name = saved(tmp_path, DENSE)
    plain, served = count_step(name, OPTIONS), count_step(name, OPTIONS, served_in="fp8")
    products = L * (2 * H * A * D + 2 * H * K * D + 3 * H * 96)
    assert plain.step.memory.parameters_bytes - served.step.memory.parameters_bytes == products
    made = [row for row in served.operators["decode"] if row.category == "matmul" and row.matrix_flops]
    assert {row.precision for row in made if row.part != "head"} == {"fp8"}
    assert {row.precision for row in made if row.part == "head"} == {"bf16"}


@pytest.mark.parametrize("asked", [{"served_in": "fp4"}, {"cache_dtype": "fp8"}])
def test_only_a_generation_is_served(asked):
    with pytest.raises(UsageError, match="generate"):
        count_step("hf:gpt2", PointOptions(precision="bf16"), **asked)
