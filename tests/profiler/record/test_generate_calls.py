"""Calls of transformers' ``generate()`` in a program: their phases, token times and sizes."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import rooflines
from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.read.request_marks import phase_mark
from rooflines.profiler.record.generate_calls import GenerateCalls
from rooflines.profiler.record.script import StepHooks

transformers = pytest.importorskip("transformers")
BATCH, PROMPT, NEW = 2, 9, 5
LAYERS, WIDTH = 2, 32
SIZES = {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": 2, "vocab_size": 61, "bos_token_id": None, "eos_token_id": None}
SCRIPT = f"""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(**{SIZES!r})).eval()
    prompt = torch.randint(0, 61, ({BATCH}, {PROMPT}))
    for _ in range(30):
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens={NEW}, do_sample=False, pad_token_id=0)
"""


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES)).eval()


def generate(model, new=NEW, **more):
    prompt = torch.randint(0, 61, (BATCH, PROMPT))
    options = {"max_new_tokens": new, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    return model.generate(prompt, **options, **more)


def test_forwards_are_prefill_and_decode(model):
    ended = []
    plain = transformers.GenerationMixin.generate
    with GenerateCalls(ended.append, lambda: True, Guard()) as calls, profile(activities=[ProfilerActivity.CPU]) as recorded:
        generate(model)
    assert transformers.GenerationMixin.generate is plain
    assert "prepare_inputs_for_generation" not in vars(model)
    marks = sorted((event.time_range.start, mark) for event in recorded.events() if (mark := phase_mark(event.name)) is not None)
    found = [(mark.kind, mark.requests, mark.tokens, mark.keys) for _, mark in marks]
    decodes = [("decode", BATCH, BATCH, BATCH * keys) for keys in range(PROMPT + 1, PROMPT + NEW)]
    assert found == [("prefill", BATCH, BATCH * PROMPT, BATCH * PROMPT), *decodes]
    assert (ended, calls.lengths) == ([model], (BATCH, PROMPT, NEW))
    # One time for each token, in their order.
    (times,) = calls.generations
    assert len(times) == NEW
    assert list(times) == sorted(times)
    assert calls.sizes.parameter_bytes == sum(parameter.nbytes for parameter in model.parameters())
    assert calls.sizes.kv_bytes_per_token == 2 * LAYERS * WIDTH * 4
    assert calls.sizes.kv_bytes == calls.sizes.kv_bytes_per_token * BATCH * (PROMPT + NEW - 1)


def test_calls_of_other_lengths_and_without_a_cache(model):
    with GenerateCalls(lambda _: None, lambda: True, Guard()) as calls:
        generate(model, use_cache=False)
        assert calls.lengths == (BATCH, PROMPT, NEW)
        assert (calls.sizes.kv_bytes, calls.sizes.kv_bytes_per_token) == (None, None)
        generate(model, new=NEW + 1)
        assert calls.sizes.kv_bytes == calls.sizes.kv_bytes_per_token * BATCH * (PROMPT + NEW)  # not those of a call to warm up
    assert calls.lengths is None
    assert [len(times) for times in calls.generations] == [NEW, NEW + 1]


def test_a_call_that_raises_leaves_the_model_as_it_was(model):
    with GenerateCalls(lambda _: None, lambda: True, Guard()) as calls:
        with pytest.raises(ValueError, match="stopping"):
            generate(model, stopping_criteria=[_refuse])
        assert not calls.is_active
        generate(model)
    assert "prepare_inputs_for_generation" not in vars(model)
    assert len(calls.generations) == 1


def _refuse(*_, **__):
    raise ValueError("stopping")


def test_a_call_is_one_step(model):
    seen = []
    with StepHooks(seen.append, lambda: True, lambda: False, lambda: True, Guard()), torch.no_grad():
        generate(model)
        generate(model)
    assert [doing for doing in seen if doing != "call"] == ["generate", "generate"]


@pytest.mark.ci
def test_a_script_that_generates(profiled):
    _, recorded = profiled(SCRIPT)
    facts = recorded.facts
    assert (facts.workload.mode, facts.workload.batch_size) == ("generate", BATCH)
    assert (facts.workload.prompt_length, facts.workload.new_tokens) == (PROMPT, NEW)
    assert len(facts.steps.timed_token_ns) == len(facts.steps.timed_ns)
    analysis = rooflines.analyze(recorded)
    assert [phase.kind for phase in analysis.generation.phases] == ["prefill", "decode"]
    assert analysis.generation.of("decode").steps == (NEW - 1) * analysis.basis.steps
    assert {"attention", "MLP", "head", "embedding"} <= analysis.generation.of("decode").parts.keys()
