"""Parallel layouts: laws over small networks, volumes by formula, and the arithmetic of a large one on eight H100."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

pytest.importorskip("transformers")

from rooflines.device_specs import catalog, search
from rooflines.errors import UsageError
from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.experts import experts_hit
from rooflines.roofline.dry_run.phases import count_generation
from rooflines.roofline.predict.device_bounds import bound_operator, folded
from rooflines.roofline.predict.layouts import Layout, bound_layouts, cache_share, layouts_of, network_facts, parse_layouts

SHEET = search.only("H100 SXM5").sheet
ROOFS, LINK = catalog.ceilings_of(SHEET), catalog.peer_link(SHEET)
LLAMA = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 4096, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS = {
    "llama": LLAMA,
    "mixtral": {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    "deepseek": {
        "model_type": "deepseek_v3", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 16,
        "num_key_value_heads": 16, "q_lora_rank": 128, "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32,
        "v_head_dim": 32, "n_routed_experts": 16, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 2,
        "moe_intermediate_size": 128, "vocab_size": 4096, "tie_word_embeddings": False,
    },
    # Llama 3 70B (arXiv 2407.21783, table 3), with a tenth of its layers
    "large": {
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 8, "num_attention_heads": 64,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
    },
}  # fmt: skip
BATCH, PROMPT = 16, 256
ALONE = Layout()


@cache
def generation(name, batch=BATCH):
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIGS[name]))
        options = PointOptions(mode="generate", prompt_length=PROMPT, new_tokens=2, batch_size=batch, precision="bf16")
        return count_generation(f"hf:{folder}", options, served=True)


def bound(name, layout=ALONE, link=LINK, batch=BATCH, **facts):
    (found,) = bound_layouts(generation(name, batch), ROOFS, link, [layout], **facts)
    return found


def phases(found):
    return {phase.name: phase for phase in found.phases}


sizes = st.sampled_from([1, 2, 4, 8])
networks = st.sampled_from(["llama", "mixtral", "deepseek"])
layouts = st.builds(
    lambda tensor, pipeline, data: Layout(tensor=tensor, pipeline=pipeline, data=data), sizes, sizes, sizes
) | st.sampled_from([
    Layout(tensor=tensor, data=data, expert=expert)
    for tensor in (1, 2, 4, 8) for data in (1, 2, 4, 8) for expert in {data, tensor * data} if expert <= 8
])  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("name", ["llama", "mixtral", "deepseek"])
def test_one_device_sends_nothing_and_has_the_plain_bound(name):
    found = bound(name, link=None)
    for phase, counted in zip(found.phases, generation(name).phases, strict=True):
        rows = [row for row in folded(counted.count, counted.phase) if row.matrix_flops]
        plain = sum(bound_operator(row, ROOFS).lower_bound_s for row in rows)
        assert phase.lower_bound_s == phase.computed_s == pytest.approx(plain)
        assert (phase.sent_bytes, phase.communication_s, phase.exposed_s) == (0, 0, 0)
    assert found.weights_bytes == generation(name).parameter_bytes
    assert found.kv_cache_bytes == generation(name).kv_bytes
    assert found.tokens_per_s == BATCH / phases(found)["decode"].lower_bound_s


@pytest.mark.ci
@settings(deadline=None, max_examples=60)
@given(name=networks, layout=layouts)
def test_laws_of_all_layouts(name, layout):
    found, alone = bound(name, layout), bound(name)
    total = generation(name)
    assert found.weights_bytes * layout.devices >= total.parameter_bytes
    assert found.kv_cache_bytes * layout.devices >= total.kv_bytes
    assert found.memory_bytes <= alone.memory_bytes
    fast = bound(name, layout, link=replace(LINK, value=LINK.value * 2))
    for before, after, one in zip(found.phases, fast.phases, alone.phases, strict=True):
        assert after.lower_bound_s <= before.lower_bound_s
        assert before.sent_bytes == after.sent_bytes
        assert before.lower_bound_s == pytest.approx(before.computed_s + before.exposed_s)
        assert before.exposed_s >= 0
        # No cut saves more work than there are devices: each of them computes at least its share.
        assert before.lower_bound_s * layout.devices >= one.lower_bound_s * (1 - 1e-9)
    assert bound(name, layout, memory_bytes=found.memory_bytes).fits
    assert not bound(name, layout, memory_bytes=found.memory_bytes - 1).fits


@pytest.mark.ci
@given(kv_heads=st.integers(1, 64), tensor=st.integers(1, 64))
def test_every_device_holds_at_least_a_head(kv_heads, tensor):
    facts = replace(network_facts(generation("llama")), kv_heads=kv_heads)
    assert cache_share(facts, tensor) == pytest.approx(max(1 / kv_heads, 1 / tensor))


@pytest.mark.ci
def test_heads_of_keys_are_those_of_any_kernel():
    windows = {**CONFIGS["llama"], "model_type": "mistral", "sliding_window": 8}
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(windows))
        options = PointOptions(mode="generate", prompt_length=20, new_tokens=1, precision="bf16")
        found = count_generation(f"hf:{folder}", options, served=True)
    assert network_facts(found).kv_heads == network_facts(generation("llama")).kv_heads


@pytest.mark.ci
def test_facts_of_the_networks():
    llama, mixtral, deepseek = (network_facts(generation(name)) for name in ("llama", "mixtral", "deepseek"))
    assert (llama.layers, llama.reduced, llama.routed, llama.hidden, llama.heads, llama.kv_heads) == (6, 12, 0, 512, 16, 4)
    block = 512 * 32 * (2 * 16 + 2 * 4) + 3 * 512 * 1536
    assert llama.block_weights_bytes == 2 * 6 * block
    assert llama.head_bytes == 2 * 512 * 4096
    assert (mixtral.routed, mixtral.chosen, mixtral.expert_weights_bytes) == (6, 2, 2 * 6 * 8 * 3 * 512 * 1536)
    assert (deepseek.routed, deepseek.chosen, deepseek.heads, deepseek.kv_heads) == (4, 4, 16, None)
    assert deepseek.expert_weights_bytes == 2 * 4 * 16 * 3 * 512 * 128


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_volume_of_tensor_parallelism(tensor):
    """Two all-reduces of tokens x hidden in each layer, 2 (n - 1) / n times over the link."""
    found = phases(bound("llama", Layout(tensor=tensor)))
    for name, tokens in (("prefill", BATCH * PROMPT), ("decode", BATCH)):
        assert found[name].sent_bytes == pytest.approx(6 * 2 * tokens * 512 * 2 * 2 * (tensor - 1) / tensor)
        assert found[name].communication_s == pytest.approx(found[name].sent_bytes / 450e9)
    assert found["decode"].exposed_s == pytest.approx(found["decode"].communication_s)


def test_volume_of_expert_parallelism():
    """Dispatch and combine: tokens x experts per token x hidden of the device's own tokens, in each layer with experts."""
    found = phases(bound("deepseek", Layout(data=4, expert=4)))["decode"]
    assert found.sent_bytes == pytest.approx(2 * 4 * (BATCH / 4) * 4 * 512 * 2 * 3 / 4)


def test_whole_experts_beside_attention_that_is_cut():
    """tp=8, ep=8: every device has all tokens, so nothing is exchanged but what tensor parallelism adds up; of 16 experts it has two
    whole ones, which are as large as its parts of all."""
    cut, whole = bound("deepseek", Layout(tensor=8)), bound("deepseek", Layout(tensor=8, expert=8))
    assert whole.weights_bytes == pytest.approx(cut.weights_bytes, abs=1)
    for ours, theirs in zip(whole.phases, cut.phases, strict=True):
        assert ours.sent_bytes == theirs.sent_bytes
        assert ours.computed_s == pytest.approx(theirs.computed_s, rel=0.02)
    # Of two replicas of four devices, half of the experts of a token are in the other one, and a device sends a fourth of its tokens.
    sent = [phases(bound("deepseek", Layout(tensor=4, data=2, expert=expert)))["decode"].sent_bytes for expert in (1, 8)]
    assert sent[1] - sent[0] == pytest.approx(2 * 4 * (BATCH / 2) * 4 * 512 * 2 / 2 / 4)
    assert parse_layouts(generation("deepseek"), ["tp=4,ep=8", "tp=8,ep=8", "ep=8"]) == (
        Layout(tensor=4, data=2, expert=8), Layout(tensor=8, expert=8), Layout(data=8, expert=8),
    )  # fmt: skip
    with pytest.raises(UsageError, match="spreads experts, of which the model has 16"):
        parse_layouts(generation("deepseek"), ["ep=32"])


def test_experts_of_all_replicas_tokens():
    """A device reads its part of the experts that the tokens of all replicas use."""
    from rooflines.roofline.predict.layouts import on_device
    from rooflines.roofline.predict.weights import weights_read

    counted = generation("mixtral").phases[1]
    (row, *_) = [row for row in folded(counted.count, "decode") if row.name == "aten::_grouped_mm"]
    facts, expert = network_facts(generation("mixtral")), 2 * 512 * 3072
    assert weights_read(row, 2) == pytest.approx(expert * experts_hit(8, 2, BATCH), abs=64)
    spread = on_device(row, Layout(data=4, expert=4), facts, 1 / 4, BATCH)
    replica = on_device(row, Layout(data=4), facts, 1 / 4, BATCH)
    assert weights_read(spread, 2) == pytest.approx(expert * experts_hit(8, 2, BATCH) / 4, rel=0.02)
    assert spread.work.matrix_flops == replica.work.matrix_flops == row.work.matrix_flops // 4
    assert expert * experts_hit(8, 2, BATCH // 4) <= replica.work.bytes_read


@pytest.mark.ci
def test_fewer_sequences_than_replicas_bring_no_more_tokens():
    """One token uses its two experts, wherever they are."""
    from rooflines.roofline.predict.layouts import on_device
    from rooflines.roofline.predict.weights import weights_read

    alone = generation("mixtral", 1)
    (row, *_) = [row for row in folded(alone.phases[1].count, "decode") if row.name == "aten::_grouped_mm"]
    spread = on_device(row, Layout(data=8, expert=8), network_facts(alone), 1.0, 1)
    assert weights_read(spread, 2) == pytest.approx(weights_read(row, 2) / 8, rel=0.01)


@pytest.mark.parametrize(("text", "reason"), [
    ("tp=3", "divides 16 heads by 3"), ("pp=7", "7 stages for 6 layers"), ("ep=2", "spreads experts, of which the model has none"),
    ("tp=0", "at least 1"), ("8x", "is not a layout"),
])  # fmt: skip
def test_layouts_that_the_network_cannot_have_are_refused(text, reason):
    with pytest.raises(UsageError, match=reason):
        parse_layouts(generation("llama"), [text])


@pytest.mark.ci
def test_a_token_passes_every_stage_of_a_pipeline():
    """Alone it takes as long as on one device, and the messages; in a full pipeline each micro-batch reads the weights again."""
    alone, cut = bound("large", batch=1), bound("large", Layout(pipeline=4), batch=1)
    before, after = phases(alone)["decode"], phases(cut)["decode"]
    assert after.computed_s == pytest.approx(before.computed_s, rel=1e-3)
    assert after.exposed_s == pytest.approx(3 * 8192 * 2 / 450e9)
    many = phases(bound("large", Layout(pipeline=4)))["decode"]
    assert many.computed_s > 0.9 * phases(bound("large"))["decode"].computed_s
    stage = (8 / 4 * 2 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672) + 2 * 8192 * 128256) / 3350e9
    assert many.computed_s >= 4 * stage  # four micro-batches through the last stage, which has the head


@pytest.mark.ci
def test_replicas_share_the_sequences():
    found = bound("large", Layout(data=8))
    two = bound("large", batch=2)
    assert phases(found)["decode"].lower_bound_s == pytest.approx(phases(two)["decode"].lower_bound_s, rel=0.01)
    assert found.tokens_per_s == pytest.approx(8 * two.tokens_per_s, rel=0.01)
    more = bound("large", Layout(data=8), batch=1)
    assert more.tokens_per_s == pytest.approx(bound("large", batch=1).tokens_per_s)


def test_eight_h100_by_hand():
    """H100 SXM5: 989.4 TFLOP/s in bf16, 3.35 TB/s, NVLink 450 GB/s in one direction."""
    found = bound("large", Layout(tensor=8), memory_bytes=80 * 2**30)
    block = 8192 * 128 * (2 * 64 + 2 * 8) + 3 * 8192 * 28672
    products = 8 * block + 8192 * 128256
    assert found.weights_bytes == pytest.approx(2 * (products + 8192 * 128256) / 8, rel=1e-4)  # and norms
    assert found.kv_cache_bytes == 8 * 2 * 8 * 128 * 2 * BATCH * (PROMPT + 1) / 8
    assert found.fits
    decode = phases(found)["decode"]
    read_s = (2 * products / 8 + found.kv_cache_bytes) / 3350e9
    assert read_s < decode.computed_s < 1.1 * read_s  # and activations
    sent = 8 * 2 * BATCH * 8192 * 2 * 2 * 7 / 8
    assert decode.exposed_s == pytest.approx(sent / 450e9)
    assert found.tokens_per_s == BATCH / decode.lower_bound_s
    prefill = phases(found)["prefill"]
    tokens = BATCH * PROMPT
    flops = 2 * tokens * 8 * block + 2 * BATCH * 8192 * 128256 + 8 * BATCH * 64 * PROMPT * (PROMPT + 1) // 2 * 4 * 128
    assert prefill.computed_s > flops / 8 / 989.4e12
    assert prefill.exposed_s == 0  # computes for longer than it sends
    assert prefill.communication_s == pytest.approx(8 * 2 * tokens * 8192 * 2 * 2 * 7 / 8 / 450e9)


def test_usual_layouts():
    found = layouts_of(8, experts=16, heads=64)
    assert {layout.devices for layout in found} == {8}
    assert len(set(map(str, found))) == len(found)
    assert found[0] == Layout(tensor=8)
    assert {Layout(data=8, expert=8), Layout(tensor=8, expert=8), Layout(tensor=2, data=4, expert=8)} <= set(found)
    assert not [layout for layout in layouts_of(8, experts=4) if layout.expert > 1]
    assert all(12 % layout.tensor == 0 for layout in layouts_of(8, heads=12))
    assert layouts_of(1, experts=16) == (Layout(),)
    with pytest.raises(ValueError, match="at least 1"):
        layouts_of(0)
    with pytest.raises(ValueError, match="over one, dp, or tp times dp"):
        Layout(data=4, expert=2)


def test_without_a_link_only_what_sends_nothing():
    found = bound_layouts(generation("llama"), ROOFS, None, [Layout(), Layout(tensor=2), Layout(data=2), Layout(data=2, expert=2)])
    assert [one.layout for one in found] == [Layout(), Layout(data=2)]


@pytest.mark.parametrize(
    ("name", "link", "rate"), [("H100 SXM5", "NVLink", 450e9), ("RTX 4090", "PCI Express", 16e9 * 16 / 8 * 128 / 130)]
)
def test_links_of_sheets(name, link, rate):
    assert catalog.peer_link(search.only("MI300X").sheet) is None  # its fabric is not in the sheet
    found = catalog.peer_link(search.only(name).sheet)
    assert found.name == link
    assert found.value == pytest.approx(rate)


def test_a_model_with_an_encoder_has_no_stages():
    options = PointOptions(mode="generate", device="cpu", prompt_length=8, new_tokens=4)
    found = count_generation("hf:t5", options, served=True)
    assert {layout.pipeline for layout in parse_layouts(found, ["4"])} == {1}
    with pytest.raises(UsageError, match="stages is not known for a model that has an encoder"):
        parse_layouts(found, ["tp=2,pp=2"])
