"""Attention of language models on fake tensors: as servers compute it, against all pairs of query and key, and as it is called."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.costs import SOFTMAX
from rooflines.roofline.count.formulas.experts import UNIFORM, experts_hit
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


@pytest.mark.parametrize("kind", WINDOWED)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@pytest.mark.parametrize(("kind", "config"), [
    ("llama4_text", {"attention_chunk_size": 8}),  # chunks are no windows
    ("bloom", {"n_head": HEADS, "n_layer": 2}),  # does not call attention by its name
])  # fmt: skip
def test_attention_that_is_not_known_is_counted_as_it_is_called(tmp_path, kind, config):
    as_called, served = (counted(tmp_path, kind, 20, 21, served, **config) for served in (False, True))
    assert served == as_called


def test_the_next_count_calls_attention_as_before(tmp_path):
    config = {"sliding_window": 8, **MIXED}
    before, _, after = (counted(tmp_path, "gemma3_text", 20, 21, served, **config) for served in (False, True, False))
    assert before == after


# --- as it is called ---------------------------------------------------------------------------------------------------------------

laws = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@laws
@given(groups=st.sampled_from([1, 2, 4, 8]), batch=st.integers(1, 3), prompt=st.integers(2, 60), keys=st.integers(2, 99))
def test_grouped_heads_read_fewer_keys_and_compute_as_much(tmp_path, groups, batch, prompt, keys):
    """Multi-query (1), grouped and multi-head attention (8); the causal mask of a prompt is the half that the kernel computes."""
    found = counted(tmp_path, "llama", prompt, keys, served=False, batch=batch, num_key_value_heads=groups)
    prefill, decode = found.phases
    for row in cores(prefill):
        assert row.matrix_flops == batch * HEADS * prompt * (prompt + 1) // 2 * 4 * DEPTH
        assert row.bytes_read == ITEM * batch * prompt * DEPTH * (HEADS + 2 * groups)
    for row in cores(decode):
        assert row.matrix_flops == batch * HEADS * keys * 4 * DEPTH
        assert row.bytes_read == ITEM * batch * DEPTH * (HEADS + 2 * groups * keys)
    assert len(cores(decode)) == SIZES["num_hidden_layers"]
    assert found.kv_bytes_per_token == SIZES["num_hidden_layers"] * 2 * groups * DEPTH * ITEM


@laws
@given(window=st.integers(2, 40), prompt=st.integers(2, 60), keys=st.integers(2, 99), groups=st.sampled_from([1, 2, 8]))
def test_a_window_bounds_what_decode_reads(tmp_path, window, prompt, keys, groups):
    """Of a prompt that fills the window, transformers masks the whole square, which is what is computed."""
    config = {"num_key_value_heads": groups, "sliding_window": window, **MIXED}
    found = counted(tmp_path, "gemma3_text", prompt, keys, served=False, batch=1, **config)
    prefill, decode = map(cores, found.phases)
    inside = min(window, keys)
    read = [ITEM * DEPTH * (HEADS + 2 * groups * seen) for seen in (inside, keys)]
    masks = [row.bytes_read - least for row, least in zip(decode, read, strict=True)]
    assert masks[1] == 0
    assert masks[0] in (0, inside, ITEM * inside)  # a mask where the window is full
    assert [row.matrix_flops for row in decode] == [HEADS * seen * 4 * DEPTH for seen in (inside, keys)]
    triangle, square = HEADS * prompt * (prompt + 1) // 2 * 4 * DEPTH, HEADS * prompt**2 * 4 * DEPTH
    assert [row.matrix_flops for row in prefill] == [triangle if prompt < window else square, triangle]


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
    found = counted(tmp_path, kind, 2, 3, served=False, batch=batch, **config)
    rows = [row for row in found.phases[1].count.operators if row.name == "aten::_grouped_mm"]
    hidden, layers = SIZES["hidden_size"], SIZES["num_hidden_layers"]
    assert sum(row.matrix_flops for row in rows) == layers * batch * chosen * 3 * 2 * hidden * inner
    weights = sum(row.bytes_read for row in rows) - layers * (ITEM * batch * chosen * (hidden + inner) + 2 * 4 * experts)
    assert weights == pytest.approx(layers * 3 * hidden * inner * ITEM * experts_hit(experts, chosen, batch), abs=len(rows))
    assert {row.assumption for row in rows} == {UNIFORM}
