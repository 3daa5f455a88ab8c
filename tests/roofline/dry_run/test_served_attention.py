"""Attention as servers compute it, against all pairs of query and key: windows, sinks, soft caps, deep heads, and what stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.costs import SOFTMAX
from rooflines.roofline.dry_run.phases import count_generation

HEADS, GROUPS, DEPTH, ITEM = 8, 2, 16, 2
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS,
    "head_dim": DEPTH, "vocab_size": 128, "max_position_embeddings": 4096,
}  # fmt: skip
MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
# Model type, its configuration, and whether each of the two layers has the window.
WINDOWED = {
    "gemma3_text": (MIXED, (True, False)),
    "gemma2": (MIXED, (True, False)),  # with a soft cap: products, softmax and products in the code of the model
    "gpt_oss": ({**MIXED, "num_local_experts": 4, "num_experts_per_tok": 2}, (True, False)),  # with sinks, likewise
    "mistral": ({}, (True, True)),
    "qwen2": ({"use_sliding_window": True, "max_window_layers": 1}, (False, True)),
}


def counted(folder, kind, prompt, keys, served=True, batch=2, cache="dynamic", **config):
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **SIZES, **config}))
    options = PointOptions(mode="generate", prompt_length=prompt, new_tokens=2, batch_size=batch, precision="bf16", kv_cache=cache)
    return count_generation(f"hf:{folder}", options, keys=(keys,), served=served)


def cores(phase):
    """The attention of each layer, in its order."""
    return sorted((row for row in phase.count.operators if row.category == "attention"), key=lambda row: row.module)


def met(queries, keys, window):
    """The pairs of the last ``queries`` of ``keys`` tokens, each with itself and those before it in its window."""
    return sum(query - window < key <= query for query in range(keys - queries, keys) for key in range(keys))


@pytest.mark.ci
@pytest.mark.parametrize("kind", WINDOWED)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(window=st.integers(2, 30), prompt=st.integers(2, 40), keys=st.integers(2, 60))
@example(window=8, prompt=20, keys=21)
@example(window=20, prompt=20, keys=20)
def test_one_kernel_meets_the_pairs_of_its_window(tmp_path, kind, window, prompt, keys):
    config, layers = WINDOWED[kind]
    found = counted(tmp_path, kind, prompt, keys, sliding_window=window, **config)
    prefill, decode = map(cores, found.phases)
    for row, first, has_window in zip(decode, prefill, layers, strict=True):
        within = window if has_window else prompt + keys
        pairs, read = 2 * HEADS * met(prompt, prompt, within), 2 * prompt * DEPTH * (HEADS + 2 * GROUPS)
        assert (first.matrix_flops, first.flops - first.matrix_flops) == (4 * DEPTH * pairs, pairs * (1 + SOFTMAX))
        assert first.bytes_read == ITEM * read
        seen = min(keys, within)
        assert met(1, keys, within) == seen
        assert row.matrix_flops == 4 * DEPTH * 2 * HEADS * seen
        assert row.bytes_read == ITEM * 2 * DEPTH * (HEADS + 2 * GROUPS * seen)
    for phase in found.phases:  # no products of scores
        assert not [row for row in phase.count.operators if row.name == "aten::bmm" and row.module.endswith("self_attn")]
    held = 2 * GROUPS * DEPTH * ITEM
    assert found.kv_windows == ((window, sum(layers) * held),)
    assert found.kv_bytes == 2 * held * sum(min(prompt + 1, window) if has_window else prompt + 1 for has_window in layers)


def test_without_a_cache_every_token_is_a_prompt(tmp_path):
    decode = counted(tmp_path, "mistral", 5, 23, cache="none", sliding_window=8).phases[1]
    assert [row.matrix_flops for row in cores(decode)] == [4 * DEPTH * 2 * HEADS * met(23, 23, 8)] * 2


@pytest.mark.ci
def test_deep_heads_and_values_of_another_depth_are_not_copied(tmp_path):
    """Keys of several heads of queries stay as they are where transformers would repeat them."""
    deep = counted(tmp_path, "llama", 5, 9, head_dim=320)
    assert [row.bytes_read for row in cores(deep.phases[1])] == [ITEM * 2 * 320 * (HEADS + 2 * GROUPS * 9)] * 2
    # MiMo: keys of 24 numbers, values of 16
    sizes = {
        "head_dim": 24, "swa_head_dim": 24, "v_head_dim": DEPTH, "swa_v_head_dim": DEPTH, "swa_num_attention_heads": HEADS,
        "swa_num_key_value_heads": GROUPS, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
    }  # fmt: skip
    values = counted(tmp_path, "mimo_v2_flash", 20, 21, sliding_window=8, **MIXED, **sizes)
    pairs = [2 * HEADS * met(20, 20, within) for within in (8, 99)]
    assert [row.matrix_flops for row in cores(values.phases[0])] == [2 * (24 + DEPTH) * each for each in pairs]


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "config"), [
    ("llama4_text", {"attention_chunk_size": 8}),  # chunks are no windows
    ("bloom", {"n_head": HEADS, "n_layer": 2}),  # does not call attention by its name
])  # fmt: skip
def test_attention_that_is_not_known_is_counted_as_it_is_called(tmp_path, kind, config):
    as_called, served = (counted(tmp_path, kind, 20, 21, served, **config) for served in (False, True))
    assert [cores(phase) for phase in served.phases] == [cores(phase) for phase in as_called.phases]


@pytest.mark.ci
def test_the_next_count_calls_attention_as_before(tmp_path):
    config = {"sliding_window": 8, **MIXED}
    before, _, after = (counted(tmp_path, "gemma3_text", 20, 21, served, **config) for served in (False, True, False))
    assert before == after
