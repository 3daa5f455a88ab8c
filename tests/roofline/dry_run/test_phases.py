"""The count of a generation in closed form: FLOPs of each phase, bytes of decode, the KV cache of published models."""

import pytest

from rooflines.errors import WorkloadError
from rooflines.profiler.options import PointOptions
from rooflines.roofline.dry_run.phases import count_generation

transformers = pytest.importorskip("transformers")

# hidden size, layers, query heads, key heads, size of a head (which is not hidden / heads), feed-forward, vocabulary
H, L, A, K, D, F, V = 48, 3, 4, 2, 16, 80, 96
BATCH, PROMPT, NEW, FP32 = 2, 10, 8, 4


def llama(**more):
    return transformers.LlamaConfig(
        hidden_size=H, num_hidden_layers=L, num_attention_heads=A, num_key_value_heads=K, head_dim=D, intermediate_size=F, vocab_size=V,
        max_position_embeddings=64, **more,
    )  # fmt: skip


def gpt2():
    return transformers.GPT2Config(n_embd=H, n_layer=L, n_head=A, vocab_size=V, n_positions=64)


def counted(config, tmp_path, keys=None, **asked):
    config.save_pretrained(tmp_path)
    sizes = {"batch_size": BATCH, "prompt_length": PROMPT, "new_tokens": NEW, **asked}
    return count_generation(f"hf:{tmp_path}", PointOptions(mode="generate", device="cpu", **sizes), keys=keys)


def t5():
    return transformers.T5Config(d_model=H, d_kv=D, d_ff=F, num_layers=2, num_decoder_layers=L, num_heads=A, vocab_size=V)


def whisper():
    return transformers.WhisperConfig(
        d_model=H, encoder_layers=2, decoder_layers=L, encoder_attention_heads=A, decoder_attention_heads=A, encoder_ffn_dim=F,
        decoder_ffn_dim=F, vocab_size=V, num_mel_bins=8, max_source_positions=20, max_target_positions=64,
        pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip


def read(count, *names):
    return sum(row.bytes_read for row in count.operators if row.name.removeprefix("aten::") in names)


def attention(count):
    return next(row.name.removeprefix("aten::") for row in count.operators if row.category == "attention")


LLAMA_LAYER = H * A * D + 2 * H * K * D + A * D * H + 3 * H * F
GPT2_LAYER = 3 * H * H + H * H + 2 * 4 * H * H


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["llama", "tied", "gpt2"])
def test_flops_are_two_for_each_weight_and_token_and_four_for_each_pair_of_tokens(kind, tmp_path):
    config = gpt2() if kind == "gpt2" else llama(tie_word_embeddings=kind == "tied")
    layer, inner = (GPT2_LAYER, H) if kind == "gpt2" else (LLAMA_LAYER, A * D)
    generation = counted(config, tmp_path, keys=(11, 14))
    prefill, first, second = generation.phases
    head = 2 * BATCH * H * V  # of the last position only
    pairs = PROMPT * (PROMPT + 1) // 2  # causal
    rows = {phase.keys: sum(row.matrix_flops for row in phase.count.operators) for phase in generation.phases}
    assert rows[PROMPT] == prefill.count.matrix_flops == BATCH * L * (2 * PROMPT * layer + 4 * pairs * inner) + head
    for phase in (first, second):
        assert phase.count.matrix_flops == BATCH * L * (2 * layer + 4 * phase.keys * inner) + head
        assert (phase.tokens, phase.calls) == (1, NEW - 1)
        assert phase.count.coverage == 1


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["t5", "whisper"])
def test_an_encoder_is_counted_once_and_a_decoder_for_each_token(kind, tmp_path):
    # The encoder of T5 reads the prompt, that of Whisper 20 positions of sound, and the prompt begins the decoder's sequence.
    read_tokens, begins, inner = (PROMPT, 1, A * D) if kind == "t5" else (20, PROMPT, H)
    generation = counted(t5() if kind == "t5" else whisper(), tmp_path, keys=(13,))
    prefill, decode = (phase.count.matrix_flops for phase in generation.phases)
    layer = 4 * H * inner + 2 * H * F
    encoder = 2 * BATCH * (2 * read_tokens * layer + 4 * read_tokens**2 * inner)
    encoder += 0 if kind == "t5" else 2 * BATCH * (40 * 8 + 20 * H) * H * 3
    crossing = L * 2 * BATCH * 2 * read_tokens * H * inner  # keys and values of what was read, once
    of_token = L * (layer + 2 * H * inner) + H * V
    pairs = begins * (begins + 1) // 2 + begins * read_tokens
    assert prefill == encoder + crossing + 2 * BATCH * begins * of_token + 4 * BATCH * L * pairs * inner
    context = 13 - PROMPT + begins
    assert decode == 2 * BATCH * of_token + 4 * BATCH * L * (context + read_tokens) * inner
    assert generation.kv_bytes == FP32 * BATCH * L * 2 * inner * (begins + NEW - 1 + read_tokens)
    assert generation.kv_bytes_per_token == FP32 * L * 2 * inner


@pytest.mark.ci
def test_an_image_is_read_once_and_its_tokens_are_in_front_of_the_prompt(tmp_path):
    # 2 x 2 patches and a class token of size 32, of which the projector takes the patches.
    vision = transformers.CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=14
    )
    config = transformers.LlavaConfig(vision_config=vision, text_config=llama(), image_token_index=V - 1)
    generation = counted(config, tmp_path, keys=(13,))
    prefill, decode = (phase.count.matrix_flops for phase in generation.phases)
    seen, head = 4, 2 * BATCH * H * V
    tower = 2 * (2 * (seen + 1) * (4 * 32 * 32 + 2 * 32 * 64) + 4 * 32 * (seen + 1) ** 2) + 2 * seen * 3 * 14 * 14 * 32
    projector = 2 * seen * (32 * H + H * H)
    tokens = PROMPT + seen
    text = L * (2 * tokens * LLAMA_LAYER + 4 * tokens * (tokens + 1) // 2 * A * D)
    assert prefill == BATCH * (tower + projector + text) + head
    assert decode == BATCH * L * (2 * LLAMA_LAYER + 4 * (13 + seen) * A * D) + head
    assert generation.kv_bytes == BATCH * generation.kv_bytes_per_token * (PROMPT + NEW - 1 + seen)
    assert generation.workload.image_size == 28
    assert generation.notes[-1] == "each sequence begins with an image: 4 tokens before the prompt"


@pytest.mark.ci
def test_images_in_another_form_are_refused_by_name(tmp_path):
    with pytest.raises(WorkloadError, match=r"idefics3 takes images in a form that is not made: .* language model \(text_config\)"):
        count_generation("hf:idefics3", PointOptions(mode="generate", device="cpu"))
    with pytest.raises(WorkloadError, match="kv_cache='none' does not apply to llava, which takes images"):
        count_generation("hf:llava", PointOptions(mode="generate", device="cpu", kv_cache="none"))


@pytest.mark.ci
def test_decode_is_counted_at_the_mean_context(tmp_path):
    _, decode = counted(llama(), tmp_path).phases
    every = range(PROMPT + 1, PROMPT + NEW)
    assert decode.keys == sum(every) / len(every)
    assert [phase.phase for phase in counted(llama(), tmp_path, new_tokens=1).phases] == ["prefill"]


def test_decode_of_a_llama_reads_its_parameters_and_its_kv_cache_to_the_byte(tmp_path):
    generation = counted(llama(tie_word_embeddings=True), tmp_path, keys=(13,))
    decode = generation.phases[1].count
    norms = (2 * L + 1) * H
    assert generation.parameter_bytes == FP32 * generation.parameters == FP32 * (L * LLAMA_LAYER + H * V + norms)
    # of each product its activations; the embedding is read as the head
    activations = FP32 * BATCH * (L * (3 * H + A * D + 2 * H + F) + H)
    assert read(decode, "mm") == generation.parameter_bytes - FP32 * norms + activations
    assert generation.kv_bytes_per_token == FP32 * 2 * L * K * D
    queries = FP32 * BATCH * L * A * D
    assert read(decode, attention(decode)) == BATCH * 13 * generation.kv_bytes_per_token + queries
    assert generation.kv_bytes == BATCH * (PROMPT + NEW - 1) * generation.kv_bytes_per_token


@pytest.mark.ci
def test_decode_of_a_gpt2_reads_its_parameters_and_its_kv_cache_to_the_byte(tmp_path):
    generation = counted(gpt2(), tmp_path, keys=(13,))
    decode = generation.phases[1].count
    biases, norms, positions = L * (3 * H + H + 4 * H + H), (2 * L + 1) * 2 * H, 64 * H
    assert generation.parameters == L * GPT2_LAYER + biases + norms + H * V + positions
    activations = FP32 * BATCH * (L * (H + H + H + 4 * H) + H)
    normalized = FP32 * BATCH * (2 * L + 1) * H
    assert read(decode, "addmm", "mm", "native_layer_norm") == FP32 * (generation.parameters - positions) + activations + normalized
    assert read(decode, attention(decode)) == FP32 * BATCH * (13 * 2 * L * H + L * H)


def test_without_a_cache_each_token_costs_the_whole_sequence(tmp_path):
    generation = counted(llama(), tmp_path, keys=(13,), kv_cache="none")
    decode = generation.phases[1]
    assert (decode.tokens, decode.keys, generation.kv_bytes) == (13, 13, None)
    pairs = 13 * 14 // 2
    assert decode.count.matrix_flops == BATCH * L * (2 * 13 * LLAMA_LAYER + 4 * pairs * A * D) + 2 * BATCH * H * V


@pytest.mark.ci
def test_windows_bound_what_a_layer_reads_and_holds(tmp_path):
    window = 8
    config = transformers.Gemma3TextConfig(
        hidden_size=H, num_hidden_layers=2, num_attention_heads=A, num_key_value_heads=K, head_dim=D, intermediate_size=F, vocab_size=V,
        sliding_window=window, layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    generation = counted(config, tmp_path, keys=(11, 14))
    assert generation.kv_bytes_per_token == FP32 * 2 * 2 * K * D  # of both layers
    of_a_layer = FP32 * BATCH * 2 * K * D
    assert generation.kv_bytes == of_a_layer * (window + PROMPT + NEW - 1)
    first, second = (phase.count for phase in generation.phases[1:])
    assert read(second, attention(second)) - read(first, attention(first)) == of_a_layer * 3  # of the layer without a window


@pytest.mark.ci
def test_the_memory_is_that_of_the_largest_phase(tmp_path):
    generation = counted(llama(), tmp_path)
    for phase in generation.phases:
        held = phase.count.memory.at_peak
        assert held.parameters == generation.parameter_bytes + 2 * FP32 * D // 2  # and two tables of the rotary embedding
        assert held.activations <= generation.activation_bytes
    twice = counted(llama(), tmp_path, batch_size=2 * BATCH)
    assert twice.kv_bytes == 2 * generation.kv_bytes


# --- published models ----------------------------------------------------------------------------------------------------------------


def published(kind):
    if kind == "qwen3-4b":
        return transformers.Qwen3Config(
            hidden_size=2560, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128, intermediate_size=9728,
            vocab_size=151936,
        )  # fmt: skip
    if kind == "deepseek-v3":
        return transformers.DeepseekV3Config()
    sizes = {"llama-3.1-8b": (4096, 14336, 32, 32), "llama-3.1-70b": (8192, 28672, 80, 64)}
    hidden, inner, layers, heads = sizes[kind]
    return transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=8,
        vocab_size=128256,
    )  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "per_token"), [
    ("llama-3.1-8b", 128 * 1024),
    ("qwen3-4b", 2 * 36 * 8 * 128 * 2),
    pytest.param("llama-3.1-70b", 320 * 1024, marks=pytest.mark.slow),
    pytest.param("deepseek-v3", 70272, marks=pytest.mark.slow),  # 61 layers of (512 + 64) numbers, shared by all heads
])  # fmt: skip
def test_the_kv_cache_of_a_published_model(kind, per_token, tmp_path):
    generation = counted(published(kind), tmp_path, keys=(), batch_size=1, precision="bf16")
    assert generation.kv_bytes_per_token == per_token
    assert generation.kv_bytes == per_token * (PROMPT + NEW - 1)


def test_a_configuration_that_cannot_run_is_refused_with_what_its_model_says(tmp_path):
    config = transformers.BambaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, mamba_n_heads=4, vocab_size=V,
        attn_layer_indices=[], intermediate_size=F,
    )  # fmt: skip
    with pytest.raises(WorkloadError, match=r"cannot be counted: `get_seq_length` can only be called on Attention layers"):
        counted(config, tmp_path)
