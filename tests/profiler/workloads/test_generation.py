"""Generations: the tokens are those of transformers, whatever the cache; times of tokens; what generates and what is refused."""

import dataclasses

import pytest
import torch
from torch import nn

from rooflines.errors import UsageError, WorkloadError
from rooflines.profiler.calls.memory import storages
from rooflines.profiler.options import PointOptions
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.workloads.causal_models import cache_tensors, generation_sizes
from rooflines.profiler.workloads.prepare import from_module, from_step, prepare
from rooflines.roofline.dry_run.phases import count_generation

transformers = pytest.importorskip("transformers")

BATCH, PROMPT, NEW, VOCABULARY = 2, 10, 8, 97
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
        max_position_embeddings=64, bos_token_id=0, eos_token_id=1,
    ),
    "gpt2": lambda: transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=64, bos_token_id=0, eos_token_id=1
    ),
    "windows": lambda: transformers.Gemma3TextConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        vocab_size=VOCABULARY, sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "t5": lambda: transformers.T5Config(
        d_model=64, d_kv=16, d_ff=96, num_layers=3, num_decoder_layers=2, num_heads=4, vocab_size=VOCABULARY, decoder_start_token_id=0,
    ),
    "bart": lambda: transformers.BartConfig(
        d_model=64, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
        decoder_ffn_dim=96, vocab_size=VOCABULARY, max_position_embeddings=64, decoder_start_token_id=2, forced_eos_token_id=None,
    ),
}  # fmt: skip


def options(**asked):
    return PointOptions(
        **{"mode": "generate", "batch_size": BATCH, "prompt_length": PROMPT, "new_tokens": NEW, "device": "cpu", **asked}
    )


def network(kind):
    """A network whose tokens differ from each other."""
    torch.manual_seed(3)
    config = CONFIGS[kind]()
    config.tie_word_embeddings = False  # a tied head tends to repeat the last token
    kind_of = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    made = kind_of.from_config(config).eval()
    for parameter in made.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5 if kind == "bart" else 0.3)
    return made


def prompts(seed=0):
    return torch.randint(VOCABULARY, (BATCH, PROMPT), generator=torch.Generator().manual_seed(seed))


def generated(prepared):
    with prepared.flags():
        return torch.cat(prepared.step().tokens, dim=1)


@pytest.mark.ci
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_tokens_are_those_of_transformers_with_every_cache(kind):
    made = network(kind)
    inputs = {"input_ids": prompts(), "attention_mask": torch.ones(BATCH, PROMPT, dtype=torch.int64)}
    expected = made.generate(**inputs, do_sample=False, min_new_tokens=NEW, max_new_tokens=NEW, eos_token_id=None)[:, -NEW:]
    assert expected.unique().numel() > 2  # else the cache would not matter
    for cache in ("dynamic", "static", "none"):
        prepared = from_module(made, None, options(kv_cache=cache))
        assert torch.equal(generated(prepared), expected), cache
        assert torch.equal(generated(prepared), expected), "the next generation is the same"
        assert prepared.facts.kv_cache == cache
    assert (prepared.facts.prompt_length, prepared.facts.new_tokens, prepared.facts.batch_size) == (PROMPT, NEW, BATCH)


@pytest.mark.slow
def test_the_compiled_decode_gives_the_same_tokens():
    made = network("llama")
    eager = generated(from_module(made, None, options()))
    assert torch.equal(generated(from_module(made, None, options(kv_cache="static", compile=True))), eager)


def test_other_prompts_follow_the_seed_alone():
    made = network("llama")
    first, other = (generated(from_module(made, None, options(seed=seed))) for seed in (0, 1))
    torch.manual_seed(5)
    assert torch.equal(generated(from_module(made, None, options())), first)
    assert not torch.equal(other, first)


def test_each_token_has_a_time():
    prepared = from_module(network("gpt2"), None, options())
    before = now_ns()
    for _ in range(2):
        generated(prepared)
    assert len(prepared.tokens.generations) == 2
    for times in prepared.tokens.generations:
        assert len(times) == NEW
        assert times[0] > 0
        assert list(times) == sorted(times)
    assert sum(times[-1] for times in prepared.tokens.generations) <= now_ns() - before


@pytest.mark.ci
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_counted_kv_cache_is_that_of_the_real_tensors(kind, tmp_path):
    CONFIGS[kind]().save_pretrained(tmp_path)
    held, sizes = {}, {}
    for cache in ("dynamic", "static"):
        prepared = prepare(f"hf:{tmp_path}", options(kv_cache=cache))
        generated(prepared)
        held[cache] = sum(tensor.nbytes for tensor in cache_tensors(prepared.generator.cache))
        sizes[cache] = generation_sizes(prepared.generator, prepared.generator.cache)
    counted = count_generation(f"hf:{tmp_path}", options())
    for real in sizes.values():
        for name in ("kv_bytes_per_token", "kv_windows", "parameter_bytes", "longest_context"):
            assert getattr(real, name) == getattr(counted, name)
    assert counted.kv_bytes == held["static"]
    if kind in ("t5", "bart"):  # the prompts, which the encoder read, and a start token before the new ones but the last
        assert held["static"] == held["dynamic"] == counted.kv_bytes_per_token * BATCH * (PROMPT + NEW)
        return
    assert counted.kv_bytes == BATCH * counted.cache_bytes(PROMPT + NEW - 1)
    if kind == "windows":  # the cache that grows leaves out the token that the next one will not see
        one_token = BATCH * 2 * 2 * 2 * 32 * 4  # keys and values of two layers with windows
        assert held["static"] - held["dynamic"] == one_token
    else:
        assert held["static"] == held["dynamic"] == counted.kv_bytes_per_token * BATCH * (PROMPT + NEW - 1)


def test_weights_are_those_of_the_directory_where_it_has_them(tmp_path):
    made = network("llama")
    made.save_pretrained(tmp_path)
    prepared = prepare(f"hf:{tmp_path}", options())
    assert torch.equal(generated(prepared), generated(from_module(made, None, options())))
    assert prepared.notes == (f"weights: those in {tmp_path}",)
    (tmp_path / "model.safetensors").unlink()
    assert prepare(f"hf:{tmp_path}", options()).notes == ("weights: random",)


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "precision"), [("int8-weight", "bf16"), ("int8-weight", "fp32"), ("int4-weight", "bf16")])
def test_quantized_weights_generate_and_are_counted_as_they_are_packed(kind, precision, tmp_path):
    pytest.importorskip("torchao")
    config = dataclasses.replace(CONFIGS["llama"](), vocab_size=96)
    config.save_pretrained(tmp_path)
    asked = options(quantize=kind, precision=precision)
    prepared = prepare(f"hf:{tmp_path}", asked)
    assert generated(prepared).shape == (BATCH, NEW)
    packed = sum(storage.nbytes() for tensor in prepared.generator.network.parameters() for storage in storages(tensor))
    counted = count_generation(f"hf:{tmp_path}", asked)
    plain = count_generation(f"hf:{tmp_path}", options(precision=precision))
    assert counted.parameter_bytes == packed < plain.parameter_bytes
    assert counted.parameters == plain.parameters
    assert counted.phases[1].count.coverage == 1


FACTORIES = """
import torch
from torch import nn

class Counting:
    '''Its next token is the last one plus the number of tokens so far.'''
    vocab_size = 50

    def prefill(self, tokens):
        self.length = tokens.shape[1]
        return self.scores(tokens[:, -1])

    def decode(self, tokens):
        self.length += 1
        return self.scores(tokens[:, 0])

    def scores(self, last):
        return nn.functional.one_hot((last + self.length) % self.vocab_size, self.vocab_size).float()

class Module(nn.Module):
    vocab_size = 50

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50)

    def prefill(self, tokens):
        self.seen = self.table(tokens)
        return self.head(self.seen.cumsum(1))

    def decode(self, tokens):
        self.seen = torch.cat([self.seen, self.table(tokens)], 1)
        return self.head(self.seen.sum(1))

def counting(prompt_length, new_tokens):
    assert (prompt_length, new_tokens) == (10, 8)
    return Counting()

def module():
    return Module(), None

def causal():
    import transformers
    return transformers.AutoModelForCausalLM.from_config(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=50))

def linear():
    return nn.Linear(3, 3)

def step():
    return lambda: None
"""


@pytest.fixture
def factory(tmp_path):
    (tmp_path / "models.py").write_text(FACTORIES)
    return lambda name: f"{tmp_path / 'models.py'}:{name}"


def test_any_object_with_the_protocol_generates(factory):
    prepared = prepare(factory("counting"), options())
    last = torch.randint(50, (BATCH, PROMPT), generator=torch.Generator().manual_seed(0))[:, -1:]
    expected = [last := (last + length) % 50 for length in range(PROMPT, PROMPT + NEW)]
    assert torch.equal(generated(prepared), torch.cat(expected, 1))
    assert (prepared.facts.source, prepared.facts.kv_cache) == ("step", None)


def test_modules_with_the_protocol_are_converted_and_counted(factory):
    prepared = prepare(factory("module"), options(precision="bf16"))
    with prepared.flags():
        assert prepared.step().logits.dtype == torch.bfloat16
    counted = count_generation(factory("module"), options(), keys=(12, 15))
    prefill, *decodes = (phase.count for phase in counted.phases)
    assert prefill.matrix_flops == 2 * BATCH * PROMPT * 8 * 50
    assert [count.matrix_flops for count in decodes] == [2 * BATCH * 8 * 50] * 2
    assert decodes[1].bytes - decodes[0].bytes == 3 * 3 * BATCH * 8 * 4  # copied (read, written) and summed
    assert (counted.parameters, counted.kv_bytes) == (50 * 8 + 8 * 50 + 50, None)


def test_a_causal_model_of_a_factory_is_one_by_name(factory):
    prepared = prepare(factory("causal"), options(kv_cache="static"))
    assert generated(prepared).shape == (BATCH, NEW)
    assert prepared.facts.kv_cache == "static"


PROTOCOL = r"an object with vocab_size, prefill\(tokens\) and decode\(tokens\), or a causal model of transformers"


def test_what_does_not_generate_is_refused_with_the_protocol(factory):
    with pytest.raises(WorkloadError, match=rf"models.py:linear \(Linear\) does not generate\. Give {PROTOCOL}"):
        prepare(factory("linear"), options())
    with pytest.raises(WorkloadError, match=rf"models.py:step returned function\. Return {PROTOCOL}"):
        prepare(factory("step"), options())
    with pytest.raises(WorkloadError, match="the step function run does not generate"):
        from_step(lambda: None, options(), name="run")
    headless = transformers.AutoModel.from_config(CONFIGS["llama"]())
    with pytest.raises(WorkloadError, match=r"LlamaModel.* does not generate"):
        from_module(headless, None, options())
    with pytest.raises(WorkloadError, match="inputs do not apply"):
        from_module(network("gpt2"), torch.zeros(1, 3), options())
    for asked, named in (({"kv_cache": "static"}, "kv_cache"), ({"precision": "bf16"}, "precision")):
        with pytest.raises(WorkloadError, match=f"{named} does not apply to models.py:counting"):
            prepare(factory("counting"), options(**asked))


@pytest.mark.parametrize(("name", "asked", "message"), [
    ("hf:bert", {}, "hf:bert: bert is an encoder; mode='generate' runs decoders"),
    ("hf:vision-encoder-decoder", {}, "vision-encoder-decoder is an encoder with a decoder, whose input is not made"),
    ("hf:bart", {"prompt_length": 1025}, "the longest context of hf:bart is 1024"),
    ("hf:vit", {}, "hf:vit: vit is no causal language model"),
    ("hf:rwkv", {}, "hf:rwkv: rwkv is a model without a KV cache, which can be run with kv_cache='none' only"),
    ("resnet18", {}, "'resnet18' is no language model, which mode='generate' requires"),
    ("hf:gpt2", {"prompt_length": 1020}, "prompt_length=1020 and new_tokens=8 are 1028 tokens; the longest context of hf:gpt2 is 1024. "
                                         "For example: prompt_length=1016"),
    ("hf:gpt2", {"prompt_length": 10, "new_tokens": 2000}, "For example: new_tokens=1014"),
    ("hf:nowhere/config.json", {}, "hf:nowhere/config.json: no such file"),
    ("hf:gpt2", {"compile": True}, "compile requires kv_cache='static': each token would have other shapes"),
    ("hf:gpt2", {"quantize": "static-int8"}, "exports a graph for inputs of one shape. .* Use quantize='int8-weight'"),
    ("hf:gpt2", {"sequence_length": 5}, "sequence_length does not apply to mode='generate'. Use prompt_length"),
    ("hf:gpt2", {"cuda_graphs": True}, "cuda_graphs does not apply to mode='generate'"),
    ("hf:gpt2", {"optimizer": "adam"}, "optimizer applies to training only"),
])  # fmt: skip
def test_what_cannot_generate_is_refused_before_anything_is_built(name, asked, message):
    with pytest.raises(UsageError, match=message):
        prepare(name, options(**asked))


def test_an_unknown_architecture_is_named(tmp_path):
    for text, message in (
        ('{"architectures": ["FooForCausalLM"], "model_type": "foo"}', "cannot build FooForCausalLM: its type 'foo' is unknown"),
        ('{"architectures": ', "no configuration: .* is not a valid JSON file"),
        ('{"architectures": ["FooForCausalLM"]}', "cannot build FooForCausalLM: its config.json has no model_type"),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(WorkloadError, match=message):
            prepare(f"hf:{tmp_path}", options())
    (tmp_path / "config.json").unlink()
    with pytest.raises(WorkloadError, match=r"the folder has no config\.json"):
        prepare(f"hf:{tmp_path}", options())
