"""Weights of fewer bits, in closed form: what is read, held and cut by layouts, and that FLOPs stay."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("transformers")

from rooflines.errors import UsageError
from rooflines.profiler.options import PointOptions
from rooflines.roofline.count.formulas.experts import experts_hit
from rooflines.roofline.dry_run.phases import count_generation
from rooflines.roofline.dry_run.stored_weights import stored_weights
from rooflines.roofline.predict.counted_step import count_step
from rooflines.roofline.predict.layouts import network_facts
from rooflines.roofline.predict.weights import QUANTIZED, weights_read, with_fewer_bits

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
@pytest.mark.parametrize("quantize", QUANTIZED)
def test_products_read_and_hold_weights_of_fewer_bits(model, quantize):
    kind, name = model
    before = count_generation(name, OPTIONS)
    after = with_fewer_bits(before, QUANTIZED[quantize])
    experts = kind == "mixtral"
    held = L * (ATTENTION + 3 * H * F * (E if experts else 1) + (E * H if experts else 0)) + H * V
    used = held - L * 3 * H * F * (E - experts_hit(E, TOP, BATCH)) if experts else held
    scale = QUANTIZED[quantize].bits / 8
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


# What a configuration says, the bits of a weight with its scales, and the precision of the products.
CONFIGS = [
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2, "fp8"),
    ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, 8, "fp8"),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, 4.25, None),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 4 + 20 / 128, None),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 16 / 128, None),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8, None),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5, None),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, None),
    ({"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*gate$"], "config_groups": {"group_0": {
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "input_activations": {"num_bits": 8, "type": "float"},
    }}}, 8, "fp8"),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}, "input_activations": None,
    }}}, 4 + 16 / 128, None),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 4, "type": "float", "group_size": 16}, "input_activations": {"num_bits": 4, "type": "float"},
    }}}, 4.5, "fp4"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5, "fp4"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["model.layers.3.mlp.gate*", "re:.*gate$"]}, 8, "fp8"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "bits", "precision"), CONFIGS)
def test_weights_as_a_configuration_says(config, bits, precision):
    stored = stored_weights(config)
    assert (stored.bits, stored.precision) == (pytest.approx(bits), precision)
    assert stored.keeps("lm_head")
    assert not stored.keeps("model.layers.0.mlp.up_proj")
    assert stored.keeps("model.layers.3.self_attn.q_proj") == (config["quant_method"] == "mxfp4")
    assert stored.keeps("model.layers.3.mlp.gate") == ("re:.*gate$" in config.get("ignore", ()))


FLOATS = {"weights": {"num_bits": 4, "type": "float"}, "input_activations": {"num_bits": 4, "type": "float"}}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"quant_method": "quip"},
        {"quant_method": "awq"},
        {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"},
        {"quant_method": "gptq", "bits": "four", "group_size": 128},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": FLOATS}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": FLOATS["weights"]}}},
    ],
)
def test_a_method_that_is_not_known_is_refused(config):
    with pytest.raises(UsageError, match="quantization_config: the method"):
        stored_weights(config)


@pytest.mark.ci
def test_a_model_counts_as_it_is_shipped(tmp_path):
    """All products of a dense model but its head in 8 bits with a scale for each 16 x 16, computed in fp8."""
    path = tmp_path / "config.json"
    shipped = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}}
    path.write_text(json.dumps({"model_type": "llama", **SIZES, **shipped}))
    step = count_step(f"hf:{path}", OPTIONS)
    products = L * (ATTENTION + 3 * H * F)
    norms = (2 * L + 1) * H
    assert step.step.memory.parameters_bytes == pytest.approx(2 * (2 * H * V + norms) + products * (1 + 4 / 256), abs=L)
    assert {row.precision for row in step.operators["decode"] if row.category == "matmul" and row.part != "head"} == {"fp8"}
    assert {row.precision for row in step.operators["decode"] if row.part == "head" and row.matrix_flops} == {"bf16"}
    assert any("quantization_config: fp8" in note for note in step.notes)


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
