"""Predictions: bounds by hand, sums, rates, memory, prices, closed forms of language models, and what is refused."""

import json
import math

import pytest
import torch

import rooflines
from rooflines.device_specs import catalog
from rooflines.errors import UsageError, WorkloadError
from rooflines.pipeline import predicting
from rooflines.pipeline.predicting import predict
from rooflines.profiler.calls.recorder import record
from rooflines.profiler.options import PointOptions
from rooflines.profiler.workloads.prepare import prepare
from rooflines.reports.document import texts
from rooflines.reports.page import predict as predict_page
from rooflines.roofline.dry_run.count import count_network
from rooflines.roofline.dry_run.memory_fit import MemoryGrowth
from rooflines.roofline.predict.forecast import Forecast
from tests.commands import write_ceilings
from tests.roofline.real import DATA

FACTORIES = """
import torch
from torch import nn

def mlp(batch_size):
    return nn.Sequential(nn.Linear(800, 1600), nn.ReLU(), nn.Linear(1600, 400)), torch.randn(batch_size, 800)
"""
H200, MI300X, T4 = "NVIDIA H200", "AMD Instinct MI300X", "Tesla T4"
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 112, "num_attention_heads": 8,
    "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 1000, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = LLAMA | {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2,
    "sliding_window": None,
}  # fmt: skip
LLAMA_70B = LLAMA | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 80,
    "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
MIXTRAL_8X7B = MIXTRAL | {
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
    "vocab_size": 32000, "max_position_embeddings": 32768, "num_local_experts": 8,
}  # fmt: skip


@pytest.fixture
def mlp(tmp_path):
    (tmp_path / "models.py").write_text(FACTORIES)
    return f"{tmp_path / 'models.py'}:mlp"


@pytest.fixture
def device(tmp_path):
    """A file with the ceilings of a CPU."""
    return str(write_ceilings(tmp_path))


@pytest.fixture
def without_cache(monkeypatch):
    """These networks are so small that a cache holds all of them: here memory bounds them all the same."""
    monkeypatch.setattr(predicting, "_in_cache", lambda *_: False)


def config(tmp_path, values):
    (tmp_path / "config.json").write_text(json.dumps(values))
    return f"hf:{tmp_path}/config.json"


def roofs(name):
    """FLOP/s of products in bf16, and B/s."""
    found = catalog.ceilings_of(catalog.identify(name).sheet)
    return found.compute("bf16", "matrix").value, found.outermost_memory().value


@pytest.mark.usefixtures("without_cache")
def test_the_bound_of_an_operator_is_that_of_the_roofline_and_the_step_is_their_sum(mlp):
    found = predict(mlp, devices=[H200, MI300X], batch_size=300, precision="bf16")
    first = next(row for row in found.operators if row.module == "0")
    flops, size = 2 * 300 * 800 * 1600, 2 * (300 * 800 + 800 * 1600 + 1600 + 300 * 1600)
    assert (first.matrix_flops, first.bytes) == (flops, size)
    for number, name in enumerate((H200, MI300X)):
        compute, memory = roofs(name)
        assert first.bounds[number].lower_bound_s == pytest.approx(max(flops / compute, size / memory))
        step = found.devices[number].steps[0]
        (phase,) = step.phases
        bounds = [row.bounds[number] for row in found.operators]
        assert phase.eager_bound_s == step.eager_bound_s == pytest.approx(sum(bound.lower_bound_s for bound in bounds))
        assert sum(phase.by_roof_s.values()) == pytest.approx(phase.lower_bound_s)
        matrix = [bound.lower_bound_s for row, bound in zip(found.operators, bounds, strict=True) if row.matrix_flops]
        assert phase.lower_bound_s == step.lower_bound_s == pytest.approx(sum(matrix))
        assert phase.ridge_flop_per_byte == pytest.approx(compute / memory)
        assert step.units_per_s == pytest.approx(300 / step.lower_bound_s)
        assert step.estimate is None


@pytest.mark.ci
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", ["inference", "training", "generate"])
def test_the_precision_is_the_one_asked_for_and_not_that_of_the_configuration(tmp_path, mode, precision):
    other = {"fp32": "bfloat16", "bf16": "float32"}[precision]
    name = config(tmp_path, LLAMA | {"dtype": other, "torch_dtype": other})
    asked = {"mode": mode, "precision": precision, **({"prompt_length": 8, "new_tokens": 2} if mode == "generate" else {})}
    prepared = prepare(name, PointOptions(device="cpu", **asked))
    products = [call.signature for call in record(prepared.step, None, restore=False).calls if call.signature.name == "aten::mm"]
    assert {tensor.dtype for call in products for tensor in call.tensors} == {{"fp32": "float32", "bf16": "bfloat16"}[precision]}
    found = predict(name, devices=[H200], **asked)
    assert {row.precision for row in found.operators if row.matrix_flops} == {precision}


def test_latency_bounds_small_operators_where_a_device_has_one(mlp, device):
    found = predict(mlp, devices=[device], batch_size=1)
    relu = next(row for row in found.operators if row.name == "aten::relu")
    assert (relu.bounds[0].bound, relu.bounds[0].lower_bound_s) == ("latency", 1.1e-6)
    assert found.devices[0].device.source == "file"
    assert found.devices[0].steps[0].fits is None  # a file does not tell the size of the memory


@pytest.mark.usefixtures("without_cache")
def test_a_step_without_products_has_an_eager_bound_only():
    found = rooflines.predict(torch.nn.ReLU(), torch.zeros(1000, 1000), devices=[H200])
    on = found.devices[0].steps[0]
    assert on.eager_bound_s == pytest.approx(8e6 / roofs(H200)[1])
    assert (on.lower_bound_s, on.units_per_s, on.cost_per_million, on.energy_per_unit_j) == (None,) * 4
    assert "one after the other (eager)" in str(found)


@pytest.mark.ci
def test_a_larger_batch_never_lowers_the_bound_and_every_combination_is_a_step(tmp_path, mlp):
    found = predict(mlp, devices=[H200, MI300X], batch_size=[1, 2, 64, 4096], precision="bf16")
    for one in found.devices:
        bounds = [step.lower_bound_s for step in one.steps]
        assert bounds == sorted(bounds)
        for step, on in zip(found.steps, one.steps, strict=True):
            assert on.units_per_s == pytest.approx(step.batch_size / on.lower_bound_s)
    found = predict(config(tmp_path, LLAMA), devices=[H200], batch_size=[1, 2], sequence_length=[8, 16], precision="bf16")
    assert [(step.batch_size, step.sequence_length) for step in found.steps] == [(1, 8), (1, 16), (2, 8), (2, 16)]
    assert (found.unit, found.steps[3].produced) == ("tokens", 32)


def test_a_precision_without_a_rate_is_said_and_has_no_bound(mlp):
    found = predict(mlp, devices=[T4, H200], precision="tf32")
    old, new = (one.steps[0] for one in found.devices)
    assert old.missing == "Tesla T4 has no rate for products in tf32"
    assert old.lower_bound_s is None
    assert old.units_per_s is None
    assert old.fits is True
    assert new.missing is None
    products = [row for row in found.operators if row.matrix_flops]
    assert all(row.bounds[0].lower_bound_s is None for row in products)


def test_bf16_on_a_gpu_without_units_for_it_is_computed_in_fp32(mlp):
    half, exact = (predict(mlp, devices=[T4], batch_size=3000, precision=name).devices[0].steps[0] for name in ("bf16", "fp32"))
    assert half.phases[0].by_roof_s["compute"] == pytest.approx(exact.phases[0].by_roof_s["compute"])


def test_tf32_products_are_bounded_by_their_own_rate(mlp):
    exact, rounded = (predict(mlp, devices=[H200], batch_size=3000, precision=name).devices[0].steps[0] for name in ("fp32", "tf32"))
    assert rounded.lower_bound_s < exact.lower_bound_s


@pytest.mark.ci
def test_memory_is_that_of_the_recorder(mlp):
    weights = 4 * (800 * 1600 + 1600 + 1600 * 400 + 400)
    found = predict(mlp, devices=[T4], mode="training", optimizer="adam", batch_size=50)
    need, on = found.steps[0].memory, found.devices[0].steps[0]
    _, counted = count_network(mlp, PointOptions(mode="training", optimizer="adam", batch_size=50), memory=True)
    assert need.total_bytes == counted.memory.peak_bytes
    assert need.parameters_bytes == weights
    assert need.optimizer_bytes == 2 * weights + 4 * 4  # two moments, and the steps of the four parameters
    assert [phase.name for phase in found.steps[0].phases] == ["forward", "backward", "optimizer"]
    assert found.devices[0].device.memory_bytes == 16 * 2**30
    assert on.fits is True


@pytest.mark.usefixtures("without_cache")
@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 1), ("adamw", 2)])
def test_an_optimizer_moves_its_parameters_gradients_and_state(mlp, optimizer, states):
    found = predict(mlp, devices=[H200], mode="training", optimizer=optimizer, batch_size=50)
    weights, on = 4 * (800 * 1600 + 1600 + 1600 * 400 + 400), found.devices[0].steps[0]
    phases = {phase.name: phase for phase in on.phases}
    # Gradients are read; parameters and each state (momentum, or two moments) are read and written.
    least_s = (1 + 2 + 2 * states) * weights / roofs(H200)[1]
    assert phases["optimizer"].lower_bound_s == pytest.approx(least_s, rel=1e-4)  # Adam has the numbers of its steps, too
    assert phases["optimizer"].lower_bound_s <= phases["optimizer"].eager_bound_s
    assert on.lower_bound_s == pytest.approx(sum(phase.lower_bound_s for phase in on.phases))


@pytest.mark.ci
def test_the_largest_batch_fits_and_a_larger_one_does_not():
    options = {"mode": "training", "optimizer": "adam", "image_size": 64}
    found = predict("resnet18", devices=[T4], batch_size=16, **options)
    capacity, most = found.devices[0].device.memory_bytes, found.devices[0].steps[0].largest_batch
    for batch, fits in ((most, True), (math.ceil(most * 1.02), False)):
        _, counted = count_network("resnet18", PointOptions(batch_size=batch, **options), memory=True)
        assert (counted.memory.peak_bytes <= capacity) is fits


def test_growth_of_memory():
    # Two moments: the larger one of a small batch is not that of a large one.
    growth = MemoryGrowth(((100, 0), (60, 10)))
    assert growth.largest_batch(160) == 10
    assert growth.largest_batch(99) == 0
    assert MemoryGrowth(((100, 0),)).largest_batch(100) is None


def test_a_step_that_does_not_fit_has_no_rate_and_says_what_it_takes(mlp):
    capacity = predict(mlp, devices=[T4]).devices[0].device.memory_bytes
    found = predict(mlp, devices=[T4, H200], batch_size=1_500_000, precision="fp32", price={T4: 1.0, H200: 2.0})
    need, (small, large) = found.steps[0].memory.total_bytes, (one.steps[0] for one in found.devices)
    assert capacity < need < 2 * capacity
    assert (small.fits, small.least_devices) == (False, 2)
    assert (small.units_per_s, small.cost_per_million, small.energy_per_unit_j) == (None, None, None)
    assert small.lower_bound_s is not None
    assert (large.fits, large.least_devices) == (True, 1)
    assert large.units_per_s is not None
    first, second, *_ = predict_page.sentences(found)
    assert first.startswith("Tesla T4: does not fit (")
    assert f"at least 2 devices by memory; at most batch {small.largest_batch:,}; bf16, which needs about half." in first
    assert "/s" not in first
    assert second.startswith("H200 SXM5: at least")
    devices = next(table for table in predict_page.page(found).tables() if table.name == "devices")
    shown = dict(zip(texts(devices).titles(), texts(devices).rows[0], strict=True))
    assert {name: text for name, text in shown.items() if text not in ("–", "")} == {"device": "Tesla T4", "fits": "no"}


@pytest.mark.usefixtures("without_cache")
@pytest.mark.ci
def test_times_of_noise_are_in_no_table_and_each_phase_is_in_the_short_form(tmp_path):
    pytest.importorskip("transformers")
    found = predict(config(tmp_path, LLAMA), devices=[H200], mode="generate", prompt_length=20, new_tokens=400, precision="bf16")
    page = predict_page.page(found, rows=3)
    rows = {table.name: table for table in page.tables()}
    bounds = [row.cells[-1].value for row in rows["operators"].rows]
    assert bounds == sorted(bounds, reverse=True)
    assert min(bounds) >= 1e-9
    assert min(row.cells[-1] for row in rows["parts"].rows) >= 1e-9
    short = rows["operators"].of_form(full=False)
    # The decode steps take longest, and the largest operator of prefill has one of the three rows.
    assert [row.cells[1] for row in short] == ["decode", "decode", "prefill"]
    assert len(rows["operators"].rows) > 3


def test_price_and_power_of_a_token(mlp):
    found = predict(mlp, devices=[H200, MI300X], batch_size=10, precision="bf16", price={H200: 3.6}, power={MI300X: 500})
    first, second = (one.steps[0] for one in found.devices)
    assert first.cost_per_million == pytest.approx(3.6 / 3600 * first.lower_bound_s / 10 * 1e6)
    assert first.energy_per_unit_j == pytest.approx(700 * first.lower_bound_s / 10)
    assert second.cost_per_million is None
    assert second.energy_per_unit_j == pytest.approx(500 * second.lower_bound_s / 10)
    assert [one.device.power_source for one in found.devices] == ["TDP", "given"]


def test_a_module_with_inputs():
    network = torch.nn.Linear(30, 50).to(torch.bfloat16)
    found = rooflines.predict(network, torch.zeros(20, 30, dtype=torch.bfloat16), devices=[H200])
    assert isinstance(found, Forecast)
    assert found.steps[0].phases[0].matrix_flops == 2 * 20 * 30 * 50
    assert (found.workload.name, found.workload.batch_size, found.workload.precision) == ("Linear", 20, "bf16")
    backward = rooflines.predict(network, torch.zeros(20, 30, dtype=torch.bfloat16), devices=[H200], mode="training")
    assert sum(phase.matrix_flops for phase in backward.steps[0].phases) == 2 * 2 * 20 * 30 * 50  # not that of the input
    title, *sentences = str(found).splitlines()
    assert title == "Linear: prediction of inference, batch 20, bf16"
    assert sentences[0].startswith("H200 SXM5: at least ")
    assert list(found.to_dataframe()["device"]) == ["H200 SXM5"]


def closed_form(values, tokens, context):
    """FLOPs of a token in decode: twice the active weights of products, and attention over ``context`` tokens."""
    hidden, layers, heads = values["hidden_size"], values["num_hidden_layers"], values["num_attention_heads"]
    head = hidden // heads
    attention = hidden * head * (2 * heads + 2 * values["num_key_value_heads"])
    ffn = 3 * hidden * values["intermediate_size"]
    experts = values.get("num_local_experts")
    if experts:
        ffn = ffn * values["num_experts_per_tok"] + hidden * experts
    active = layers * (attention + ffn) + hidden * values["vocab_size"]
    return tokens * (2 * active + 4 * layers * heads * head * context)


@pytest.mark.usefixtures("without_cache")
@pytest.mark.ci
@pytest.mark.parametrize("values", [
    LLAMA, MIXTRAL, pytest.param(LLAMA_70B, marks=pytest.mark.slow), pytest.param(MIXTRAL_8X7B, marks=pytest.mark.slow)
], ids=["llama", "mixtral", "llama-70b", "mixtral-8x7b"])  # fmt: skip
def test_a_generation_in_closed_form(tmp_path, values):
    pytest.importorskip("transformers")
    batch, prompt, new = 2, 100, 51
    sizes = {"batch_size": batch, "prompt_length": prompt, "new_tokens": new}
    found = predict(config(tmp_path, values), devices=[H200], mode="generate", precision="bf16", **sizes)
    step, on = found.steps[0], found.devices[0].steps[0]
    prefill, decode = step.phases
    assert (prefill.calls, prefill.tokens, decode.calls, decode.tokens) == (1, prompt, new - 1, 1)
    # The angles of rotary embeddings are products, too.
    assert decode.matrix_flops == pytest.approx(closed_form(values, batch, decode.context), rel=1e-3)
    assert decode.matrix_flops >= closed_form(values, batch, decode.context)
    assert decode.flops_per_token == decode.flops / batch
    # The bound of the generation is one prefill and the decode steps.
    bounds = {phase.name: phase.lower_bound_s for phase in on.phases}
    assert on.lower_bound_s == pytest.approx(bounds["prefill"] + (new - 1) * bounds["decode"])
    assert on.units_per_s == pytest.approx(batch * new / on.lower_bound_s)
    # Parameters, and keys and values of every token but the last.
    head = values["hidden_size"] // values["num_attention_heads"]
    each = 2 * values["num_hidden_layers"] * values["num_key_value_heads"] * head * 2
    need = step.memory
    assert need.kv_cache_bytes_per_token == each
    assert need.kv_cache_bytes == batch * (prompt + new - 1) * each
    assert need.total_bytes == need.parameters_bytes + need.kv_cache_bytes + need.activations_bytes
    if on.largest_batch:
        held = need.parameters_bytes + (need.kv_cache_bytes + need.activations_bytes) * on.largest_batch / batch
        assert held <= found.devices[0].device.memory_bytes
        free = found.devices[0].device.memory_bytes - need.parameters_bytes - need.activations_bytes
        assert on.largest_context == min(values["max_position_embeddings"], free // (batch * each))
    # Every weight that is used is read in a step of decode.
    if "num_local_experts" not in values:
        read = need.parameters_bytes - 2 * values["vocab_size"] * values["hidden_size"]
        assert decode.bytes >= read
        assert on.phases[1].lower_bound_s >= read / roofs(H200)[1]


@pytest.mark.ci
def test_estimates_from_a_trace_lie_in_their_interval_above_the_bound():
    pytest.importorskip("transformers")
    trace = DATA / "bert-small_h100_inference.json.gz"
    found = predict("hf:bert", devices=["H100 SXM5 80GB", "RTX 4090"], like=[trace], precision="fp16")
    assert found.like == (str(trace),)
    for number, one in enumerate(found.devices):
        on = one.steps[0]
        assert on.lower_bound_s <= on.estimate.low_s <= on.estimate.time_s
        assert on.estimate.high_s is None or on.estimate.time_s <= on.estimate.high_s
        parts = [row.bounds[number].estimate.time_s * row.calls for row in found.operators]
        assert on.estimate.time_s == pytest.approx(sum(parts))


def test_public_traces_predict_gpus_only(mlp, device):
    found = predict(mlp, devices=[H200, device], like=["public"], batch_size=3000)
    gpu, cpu = (one.steps[0] for one in found.devices)
    assert gpu.estimate.time_s >= gpu.lower_bound_s
    assert cpu.estimate is None


@pytest.mark.ci
def test_parallel_layouts_of_a_generation(tmp_path):
    pytest.importorskip("transformers")
    sizes = {"mode": "generate", "batch_size": 4, "prompt_length": 20, "new_tokens": 5, "precision": "tf32"}
    found = predict(config(tmp_path, LLAMA), devices=[H200, T4], layouts=["tp=2,pp=1", "4", "tp=2"], **sizes)
    new, old = found.devices
    assert [str(bound.layout) for bound in new.layouts][:2] == ["tensor 2", "tensor 4"]
    assert len({bound.layout for bound in new.layouts}) == len(new.layouts)
    assert all(bound.layout.devices == 4 for bound in new.layouts[1:])
    assert old.layouts == ()  # no rate, no bound
    for text in ("tp", "tp=0", "xp=2", "dp=4,ep=2", ""):
        with pytest.raises(UsageError, match="is not a layout"):
            predict(config(tmp_path, LLAMA), devices=[H200], layouts=[text], **sizes)
    with pytest.raises(UsageError, match="layout requires mode='generate'"):
        predict(config(tmp_path, LLAMA), devices=[H200], layouts=["tp=2"])


@pytest.mark.ci
@pytest.mark.parametrize(("options", "field", "begins"), [
    ({"mode": "generate", "prompt_length": 20, "new_tokens": 5}, "layouts", "H100 SXM5 80GB: does not fit ("),
    ({"mode": "training", "optimizer": "adamw", "sequence_length": 16}, "training", "2 x H100 SXM5 80GB, "),
])  # fmt: skip
def test_where_one_device_is_too_small_the_smallest_layout_that_fits_is_named(tmp_path, options, field, begins):
    pytest.importorskip("transformers")
    values = LLAMA_70B if field == "layouts" else LLAMA_70B | {"num_hidden_layers": 12}
    model = config(tmp_path, values)
    found = predict(model, devices=["H100 SXM5 80GB", H200, MI300X], precision="bf16", **options)
    small, *larger = found.devices
    capacity = small.device.memory_bytes
    assert found.steps[0].memory.total_bytes > capacity
    assert {getattr(bound, "layout", bound).devices for bound in getattr(small, field)} == {2}
    fitting = [bound for bound in getattr(small, field) if bound.fits]
    assert fitting
    assert all(bound.memory_bytes <= capacity for bound in fitting)
    assert [getattr(one, field) for one in larger if one.steps[0].fits] == [()] * len(larger)
    sentences = predict_page.sentences(found)
    assert sentences[0].startswith(begins)
    too_small = next(text for text in sentences if "does not fit" in text)
    assert "by memory" not in too_small
    if field == "layouts":
        assert "To make it fit: 2 x H100 SXM5 80GB (tensor 2), at least " in too_small
    else:
        assert "To make it fit: 2 devices with " in too_small
    table = next(table for table in predict_page.page(found).tables() if table.name == field)
    # A device that is large enough has no row, but where its link is not known.
    headings = [row.cell(0).value for row in table.rows if row.heading]
    assert headings == ["H100 SXM5 80GB", "Instinct MI300X: link to other devices not known"]


@pytest.mark.parametrize(("arguments", "message", "hint"), [
    ({"devices": []}, "no device was given", "NVIDIA H200"),
    ({"devices": ["NVIDIA H2000"]}, "no data sheet for 'NVIDIA H2000'", "H200 SXM5"),
    ({"devices": [H200], "price": {"H200": 1.0}}, "price names 'H200'", "Devices: NVIDIA H200"),
    ({"devices": [H200], "power": {H200: 0.0}}, "must be above 0", ""),
    ({"devices": [H200], "batch_size": [1, 0]}, "batch_size must be at least 1, got 0", "batch_size=8"),
    ({"devices": [H200], "batchsize": 1}, "unknown option 'batchsize'", "batch_size"),
    ({"devices": [H200], "prompt_length": 4}, "prompt_length requires mode='generate'", ""),
    ({"devices": [H200], "like": ["public", "a"]}, "public cannot be combined", "one of them"),
], ids=str)  # fmt: skip
def test_what_is_refused(mlp, arguments, message, hint):
    with pytest.raises(UsageError, match=message) as raised:
        predict(mlp, **arguments)
    assert hint in raised.value.hint


def test_a_context_beyond_the_model_is_refused(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(WorkloadError, match=r"the longest context of .* is 512"):
        predict(config(tmp_path, LLAMA), devices=[H200], mode="generate", prompt_length=500, new_tokens=50)


@pytest.mark.ci
def test_a_source_without_operators_gives_no_estimate(mlp, tmp_path):
    run = tmp_path / "run"
    rooflines.profile(torch.nn.Linear(3, 3), torch.zeros(1, 3), output=run, formats=(), trace=False, steps=2, warmup=1, device="cpu",
                      ceilings="H200 SXM5")  # fmt: skip
    with pytest.raises(UsageError, match="it has no operators with a time") as raised:
        predict(mlp, devices=[H200], like=[run])
    assert raised.value.hint == "Give a run with a trace."
