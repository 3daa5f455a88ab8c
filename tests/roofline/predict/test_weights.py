"""Weights of fewer bits, in closed form: what is read, held and cut by layouts, and that FLOPs stay."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("transformers")

from rooflines.errors import UsageError
from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.experts import experts_hit
from rooflines.roofline.dry_run.phases import count_generation
from rooflines.roofline.predict.counted_step import count_step
from rooflines.roofline.predict.layouts import network_facts
from rooflines.roofline.predict.weights import BITS, weights_read, with_fewer_bits

# hidden size, layers, query heads, key heads, size of a head, feed-forward, vocabulary, experts, experts per token
H, L, A, K, D, F, V, E, TOP = 64, 3, 4, 2, 16, 96, 128, 8, 2
BATCH, ITEM = 2, 2
ATTENTION = 2 * H * A * D + 2 * H * K * D
SIZES = {
    "hidden_size": H, "num_hidden_layers": L, "num_attention_heads": A, "num_key_value_heads": K, "head_dim": D, "intermediate_size": F,
    "vocab_size": V, "num_local_experts": E, "num_experts_per_tok": TOP, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
OPTIONS = PointOptions(mode="generate", prompt_length=10, new_tokens=8, batch_size=BATCH, precision="bf16")


@pytest.fixture(scope="module", params=["llama", "mixtral"])
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "config.json"
    path.write_text(json.dumps({"model_type": request.param, **SIZES}))
    return request.param, f"hf:{path}"


def read(generation, phase):
    return sum(weights_read(row, ITEM) * row.calls for row in generation.phases[phase].count.operators)


@pytest.mark.ci
@pytest.mark.parametrize("quantize", BITS)
def test_products_read_and_hold_weights_of_fewer_bits(model, quantize):
    kind, name = model
    before = count_generation(name, OPTIONS)
    after = with_fewer_bits(before, quantize)
    experts = kind == "mixtral"
    held = L * (ATTENTION + 3 * H * F * (E if experts else 1) + (E * H if experts else 0)) + H * V
    used = held - L * 3 * H * F * (E - experts_hit(E, TOP, BATCH)) if experts else held
    scale = BITS[quantize] / 8
    assert before.parameter_bytes - after.parameter_bytes == pytest.approx((ITEM - scale) * held, abs=1)
    offsets = L * 2 * 4 * E if experts else 0  # where the tokens of each expert begin, which count as weights
    assert read(before, 1) == pytest.approx(ITEM * used + offsets, abs=2 * L)
    assert read(after, 1) == pytest.approx(scale * (used + offsets / ITEM), abs=2 * L * A)
    for one, other in zip(before.phases, after.phases, strict=True):
        assert one.count.matrix_flops == other.count.matrix_flops
        assert one.count.bytes - other.count.bytes == one.count.bytes_read - other.count.bytes_read > 0
        assert sum(row.bytes for row in other.count.operators) == other.count.bytes
        assert {row.path: row.bytes for row in other.count.modules}[""] == other.count.bytes - (
            one.count.bytes - {row.path: row.bytes for row in one.count.modules}[""]
        )
    facts = network_facts(after)
    assert facts.block_weights_bytes == pytest.approx(scale * (held - H * V), rel=1e-4)
    assert facts.head_bytes == pytest.approx(scale * H * V, rel=1e-4)


@pytest.mark.ci
def test_a_predicted_step_says_how_its_weights_are_stored(model):
    _, name = model
    plain, quantized = (
        count_step(name, PointOptions(mode="generate", prompt_length=10, new_tokens=8, precision="bf16", quantize=quantize))
        for quantize in ("none", "int4-weight")
    )
    assert quantized.workload.quantized == "int4-weight"
    assert plain.workload.quantized is None
    assert quantized.step.memory.parameters_bytes < plain.step.memory.parameters_bytes
    assert quantized.growth.largest_batch(10**9) >= plain.growth.largest_batch(10**9)


@pytest.mark.parametrize("asked", [{"quantize": "dynamic-int8"}, {"precision": "amp-bf16"}, {"mode": "inference"}])
def test_other_quantization_is_refused(asked):
    with pytest.raises(UsageError, match="is not predicted with"):
        count_step("hf:gpt2", PointOptions(**{"mode": "generate", "quantize": "int8-weight", **asked}))


@pytest.mark.ci
def test_a_configuration_that_names_another_precision_is_told(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "torch_dtype": "bfloat16", **SIZES}))
    notes = {precision: count_step(f"hf:{path}", replace(OPTIONS, precision=precision)).notes for precision in ("fp32", "bf16")}
    assert notes["fp32"] == ("precision: fp32; the configuration names bfloat16",)
    assert not any("configuration" in note for note in notes["bf16"])
