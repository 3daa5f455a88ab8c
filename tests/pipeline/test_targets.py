"""What a generation must reach: which layouts do, by prediction and by bound, and which comes first."""

import json

import pytest

pytest.importorskip("transformers")

import rooflines
from rooflines.errors import UsageError
from rooflines.reports.page.predict import sentences
from rooflines.roofline.predict.targets import serving
from tests import commands

SIZES = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 4096,
}  # fmt: skip
OPTIONS = {"mode": "generate", "precision": "bf16", "batch_size": 8, "prompt_length": 256, "new_tokens": 32}
H200, T4 = "NVIDIA H200", "Tesla T4"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(SIZES))
    return f"hf:{path}"


def layouts(forecast):
    return {(one.device.name, bound.layout.devices): bound for one in forecast.devices for bound in one.layouts}


@pytest.mark.ci
def test_a_target_is_missed_by_what_takes_longer(model):
    plain = rooflines.predict(model, devices=[H200], layouts=["1", "tp=2"], **OPTIONS)
    each = layouts(plain)
    one, two = ({phase.name: phase.lower_bound_s for phase in each["H200 SXM5", number].phases} for number in (1, 2))
    assert two["decode"] < one["decode"]
    assert plain.targets is None
    between = (one["decode"] + two["decode"]) / 2
    found = rooflines.predict(model, devices=[H200], layouts=["1", "tp=2"], target_itl_s=between, **OPTIONS)
    assert [bound.misses for bound in found.devices[0].layouts] == [("itl_s",), ()]
    assert [bound.layout.devices for _, bound in serving(found.devices)] == [2]
    assert "2 x H200 SXM5 (tensor 2)" in sentences(found)[0]
    never = rooflines.predict(model, devices=[H200], target_rate=1e12, target_ttft_s=1e3, **OPTIONS)
    assert {bound.misses for bound in never.devices[0].layouts} == {("tokens_per_s",)}
    assert {bound.layout.devices for bound in never.devices[0].layouts} == {1, 2, 4, 8}
    assert sentences(never)[0].startswith("No layout that was tried reaches 8 sequences at once,")


@pytest.mark.ci
def test_a_prediction_decides_where_there_is_one(model):
    found = rooflines.predict(model, devices=[H200], layouts=["1", "tp=2", "pp=2"], like="public", target_itl_s=1.0, **OPTIONS)
    single, tensor, pipeline = found.devices[0].layouts
    whole = {phase.name: phase.estimate.time_s for phase in found.devices[0].steps[0].phases}
    for phase in single.phases:
        assert phase.estimate_s == pytest.approx(whole[phase.name])
    for bound in (tensor, pipeline):
        assert all(phase.estimate_s > phase.lower_bound_s for phase in bound.phases)
        assert bound.estimate_tokens_per_s < bound.tokens_per_s
        # A server's sequence takes its part of a prefill for its first token, and of a decode step for each of the 31 others.
        times = {phase.name: phase.estimate_s for phase in bound.phases}
        assert bound.sustained_tokens_per_s == pytest.approx(8 * 32 / (times["prefill"] + 31 * times["decode"]))
    middle = (single.phases[1].lower_bound_s + single.phases[1].estimate_s) / 2
    asked = {"layouts": ["1"], "target_itl_s": middle, **OPTIONS}
    bounded = rooflines.predict(model, devices=[H200], **asked)
    predicted = rooflines.predict(model, devices=[H200], like="public", **asked)
    assert (bounded.devices[0].layouts[0].misses, predicted.devices[0].layouts[0].misses) == ((), ("itl_s",))


def test_the_cheapest_comes_first_where_all_have_a_price(model):
    options = {"devices": [H200, T4], "layouts": ["1"], "target_itl_s": 1.0, **OPTIONS}
    assert serving(rooflines.predict(model, **options).devices)[0][0].device.name == "H200 SXM5"
    priced = rooflines.predict(model, price={H200: 3.0, T4: 0.3}, **options)
    assert "Tesla T4" in sentences(priced)[0]
    assert sentences(priced)[0].startswith("Cheapest for 8 sequences at once, a token each 1.00 s: 1 x")


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"target_itl_s": 0.0}, "above 0"), ({"target_ttft_s": 1.0, "mode": "inference"}, "requires")],
)
def test_a_target_that_says_nothing_is_refused(asked, said):
    with pytest.raises(UsageError, match=said):
        rooflines.predict("hf:gpt2", devices=[H200], **{"mode": "generate", **asked})


def test_the_command_answers_in_its_first_sentence(model):
    answer = commands.run(
        "predict", model, "--mode", "generate", "--precision", "fp8", "--kv-cache-dtype", "fp8", "--batch-size", "8", "--device", H200,
        "--like", "public", "--target-itl", "0.05", "--target-ttft", "2", "--price", f"{H200}=3", cwd=".",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "Cheapest for 8 sequences at once, the first token in 2.00 s and a token each 50.0 ms: 1 x" in " ".join(answer.out.split())
