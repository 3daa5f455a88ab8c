"""Attention and experts of language models on fake tensors, by closed form: grouped heads, windows, masks, tokens routed."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.experts import UNIFORM, experts_hit
from rooflines.roofline.dry_run.phases import count_generation

HEADS, DEPTH, ITEM = 8, 16, 2
SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": HEADS, "head_dim": DEPTH,
    "vocab_size": 128, "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip


def counted(folder, kind, batch, prompt, keys, **config):
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **SMALL, **config}))
    options = PointOptions(mode="generate", prompt_length=prompt, new_tokens=2, batch_size=batch, precision="bf16")
    return count_generation(f"hf:{folder}", options, keys=keys)


def cores(count):
    """The attention of each layer."""
    return sorted((row for row in count.operators if row.category == "attention"), key=lambda row: row.module)


laws = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.ci
@laws
@given(groups=st.sampled_from([1, 2, 4, 8]), batch=st.integers(1, 3), prompt=st.integers(2, 60), keys=st.integers(2, 99))
def test_grouped_heads_read_fewer_keys_and_compute_as_much(tmp_path, groups, batch, prompt, keys):
    """Multi-query (1), grouped and multi-head attention (8); the causal mask of a prompt is the half that the kernel computes."""
    found = counted(tmp_path, "llama", batch, prompt, (keys,), num_key_value_heads=groups)
    prefill, decode = (phase.count for phase in found.phases)
    for row in cores(prefill):
        assert row.matrix_flops == batch * HEADS * prompt * (prompt + 1) // 2 * 4 * DEPTH
        assert row.bytes_read == ITEM * batch * prompt * DEPTH * (HEADS + 2 * groups)
    for row in cores(decode):
        assert row.matrix_flops == batch * HEADS * keys * 4 * DEPTH
        assert row.bytes_read == ITEM * batch * DEPTH * (HEADS + 2 * groups * keys)
    assert len(cores(decode)) == SMALL["num_hidden_layers"]
    assert found.kv_bytes_per_token == SMALL["num_hidden_layers"] * 2 * groups * DEPTH * ITEM


@pytest.mark.ci
@laws
@given(window=st.integers(2, 40), prompt=st.integers(2, 60), keys=st.integers(2, 99), groups=st.sampled_from([1, 2, 8]))
def test_a_window_bounds_what_decode_reads(tmp_path, window, prompt, keys, groups):
    """Of a prompt that fills the window, transformers masks the whole square, which is what is computed."""
    layers = ["sliding_attention", "full_attention"]
    config = {"num_key_value_heads": groups, "sliding_window": window, "layer_types": layers}
    found = counted(tmp_path, "gemma3_text", 1, prompt, (keys,), **config)
    prefill, decode = (cores(phase.count) for phase in found.phases)
    inside = min(window, keys)
    read = [ITEM * DEPTH * (HEADS + 2 * groups * seen) for seen in (inside, keys)]
    masks = [row.bytes_read - least for row, least in zip(decode, read, strict=True)]
    assert masks[1] == 0
    assert masks[0] in (0, inside, ITEM * inside)  # a mask where the window is full
    assert [row.matrix_flops for row in decode] == [HEADS * seen * 4 * DEPTH for seen in (inside, keys)]
    triangle, square = HEADS * prompt * (prompt + 1) // 2 * 4 * DEPTH, HEADS * prompt**2 * 4 * DEPTH
    assert [row.matrix_flops for row in prefill] == [triangle if prompt < window else square, triangle]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("kind", "config", "parameters"),
    [
        # Llama 3 70B (arXiv 2407.21783, table 3), with two layers
        ("llama", {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
                   "head_dim": 128, "vocab_size": 128256}, 2 * 8192 * (128 * (2 * 64 + 2 * 8) + 3 * 28672) + 8192 * 128256),
        # Qwen3-4B: heads of 128 that are not hidden_size / heads
        ("qwen3", {"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                   "vocab_size": 151936}, 2 * 2560 * (128 * (2 * 32 + 2 * 8) + 3 * 9728) + 2560 * 151936),
    ],
)  # fmt: skip
def test_flops_of_a_token_are_twice_the_weights_and_attention(tmp_path, kind, config, parameters):
    batch, keys = 4, 2048
    decode = counted(tmp_path, kind, batch, 2, (keys,), **config).phases[1].count
    core = 4 * SMALL["num_hidden_layers"] * config["num_attention_heads"] * config["head_dim"] * keys
    exact = batch * (2 * parameters + core)
    assert exact <= decode.matrix_flops <= exact * 1.0001  # and the angles of rotary embeddings


@pytest.mark.ci
@pytest.mark.parametrize("batch", [1, 4, 64])
@pytest.mark.parametrize(
    ("kind", "config", "experts", "chosen", "inner"),
    [
        ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}, 8, 2, 96),
        ("qwen3_moe", {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24}, 16, 4, 24),
        ("gpt_oss", {"num_local_experts": 16, "num_experts_per_tok": 4, "layer_types": ["full_attention"] * 2}, 16, 4, 96),
    ],
)
def test_experts_by_tokens_routed(tmp_path, kind, config, experts, chosen, inner, batch):
    """A token of decode computes with the experts that it chose; their weights are read once for all tokens."""
    found = counted(tmp_path, kind, batch, 2, (3,), **config)
    rows = [row for row in found.phases[1].count.operators if row.name == "aten::_grouped_mm"]
    hidden, layers = SMALL["hidden_size"], SMALL["num_hidden_layers"]
    assert sum(row.matrix_flops for row in rows) == layers * batch * chosen * 3 * 2 * hidden * inner
    weights = sum(row.bytes_read for row in rows) - layers * (ITEM * batch * chosen * (hidden + inner) + 2 * 4 * experts)
    assert weights == pytest.approx(layers * 3 * hidden * inner * ITEM * experts_hit(experts, chosen, batch), abs=len(rows))
    assert {row.assumption for row in rows} == {UNIFORM}
