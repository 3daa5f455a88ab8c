"""Language models as they are shipped: what ``rooflines predict`` counts of them against closed forms.

Every entry has the sizes of a published configuration and a formula of its parameters, of the FLOPs of products in prefill and in one
token of decode, and of the KV cache and states, written from the papers and configurations. Nothing of rooflines is imported: its
command is run, and its JSON read. Writes ``results/served_models.md``. Fails if a figure differs by more than a tenth of a percent.

    python benchmarks/served_models.py [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "served_models.md"
# Published sizes; Whisper's with 1,024 positions instead of 448, because the prompts are longer than that.
CONFIGURATIONS = Path(__file__).with_name("served_configurations.json")
BATCH, PROMPT, NEW = 2, 512, 64
# The mean context of a token of decode, itself included.
CONTEXT = PROMPT + NEW // 2
END = PROMPT + NEW - 1
TOLERANCE = 1e-3


class Sizes(NamedTuple):
    """Parameters in bytes, FLOPs of products in prefill and in a token of decode of all sequences, bytes of KV cache and states."""

    weights: float
    prefill: float
    decode: float
    cache: float


class Layers:
    """Adds up layers: weights in 16 or in fewer bits, FLOPs of products in both phases, bytes of the cache."""

    def __init__(self, bits: float = 16.0, before: int = 0) -> None:
        """Each sequence has ``before`` tokens before its prompt, those of an image."""
        self.bits, self.weights, self.prefill, self.decode, self.cache = bits, 0.0, 0.0, 0.0, 0.0
        self.prompt, self.context, self.end = PROMPT + before, CONTEXT + before, END + before

    def plain(self, numbers: float) -> None:
        """Weights that are in no product: embeddings, norms, biases."""
        self.weights += 2 * numbers

    def product(self, numbers: float, held: float | None = None, *, kept: bool = False) -> None:
        """A product of each token with ``numbers`` weights, of ``held`` that are stored."""
        self.weights += (held or numbers) * (2 if kept else self.bits / 8)
        self.prefill += 2 * BATCH * self.prompt * numbers
        self.decode += 2 * BATCH * numbers

    def head(self, hidden: int, vocabulary: int, *, tied: bool = False) -> None:
        """The head, of the last token of a prompt only, and the embedding."""
        self.weights += 2 * hidden * vocabulary * (1 if tied else 2)
        self.prefill += 2 * BATCH * hidden * vocabulary
        self.decode += 2 * BATCH * hidden * vocabulary

    def attention(self, heads: int, depth: int, keys: int, value: int | None = None, window: int | None = None) -> None:
        """Pairs of queries and keys, and a cache of ``keys`` numbers a token."""
        both = depth + (value or depth)
        full = min(self.prompt, window or self.prompt)
        self.prefill += 2 * BATCH * heads * both * (full * (full + 1) // 2 + (self.prompt - full) * full)
        self.decode += 2 * BATCH * heads * both * min(self.context, window or self.context)
        self.cache += 2 * BATCH * keys * min(self.end, window or self.end)

    def sizes(self) -> Sizes:
        return Sizes(self.weights, self.prefill, self.decode, self.cache)


def gated(layers: Layers, hidden: int, inner: int, experts: int = 1, chosen: int = 1) -> None:
    """Three products of a gated feed-forward layer."""
    layers.product(3 * hidden * inner * chosen, 3 * hidden * inner * experts)


def grouped_attention(
    layers: Layers, of: dict[str, Any], window: int | None = None, *, bias: bool = False, gate: bool = False, kept: bool = False
) -> None:
    """Projections and attention with several heads of queries for one of keys."""
    hidden, heads, keys = of["hidden_size"], of["num_attention_heads"], of["num_key_value_heads"]
    depth = of.get("head_dim", hidden // heads)
    layers.product(hidden * heads * depth * (2 + gate) + 2 * hidden * keys * depth, kept=kept)
    layers.plain((heads + 2 * keys) * depth * bias)
    layers.attention(heads, depth, 2 * keys * depth, window=window)


def dense(of: dict[str, Any], bits: float = 16.0, *, bias: bool = False) -> Sizes:
    """Llama and Qwen."""
    layers = Layers(bits)
    for _ in range(of["num_hidden_layers"]):
        grouped_attention(layers, of, bias=bias)
        gated(layers, of["hidden_size"], of["intermediate_size"])
        layers.plain(2 * of["hidden_size"])
    layers.plain(of["hidden_size"])
    layers.head(of["hidden_size"], of["vocab_size"])
    return layers.sizes()


def llava(of: dict[str, Any]) -> Sizes:
    """A Llama, with the tokens of an image before each prompt: CLIP's tower, whose class token is left out, and two products."""
    text, vision = of["text_config"], of["vision_config"]
    hidden, inner, seen = vision["hidden_size"], vision["intermediate_size"], (vision["image_size"] // vision["patch_size"]) ** 2
    layers, width = Layers(before=seen), text["hidden_size"]
    for _ in range(text["num_hidden_layers"]):
        grouped_attention(layers, text)
        gated(layers, width, text["intermediate_size"])
        layers.plain(2 * width)
    layers.plain(width)
    layers.head(width, text["vocab_size"])
    patch = 3 * vision["patch_size"] ** 2 * hidden
    layers.plain(patch + (seen + 2) * hidden + 4 * hidden)
    layers.prefill += 2 * BATCH * seen * patch
    for _ in range(vision["num_hidden_layers"]):
        numbers = 4 * hidden * hidden + 2 * hidden * inner
        layers.plain(numbers + 5 * hidden + inner + 4 * hidden)
        layers.prefill += 2 * BATCH * (seen + 1) * numbers + 4 * BATCH * hidden * (seen + 1) ** 2
    layers.plain(hidden * width + width * width + 2 * width)
    layers.prefill += 2 * BATCH * seen * (hidden * width + width * width)
    return layers.sizes()


def qwen_vl(of: dict[str, Any]) -> Sizes:
    """A Qwen2 behind an image of 448 x 448: patches of 14 x 14 in windows of 8 x 8, in four layers all of them, four for a token."""
    text, vision = of["text_config"], of["vision_config"]
    hidden, inner, patches = vision["hidden_size"], vision["intermediate_size"], (448 // 14) ** 2
    layers, width = Layers(before=patches // 4), text["hidden_size"]
    for _ in range(text["num_hidden_layers"]):
        grouped_attention(layers, text, bias=True)
        gated(layers, width, text["intermediate_size"])
        layers.plain(2 * width)
    layers.plain(width)
    layers.head(width, text["vocab_size"])
    patch = 3 * 2 * 14**2 * hidden
    layers.plain(patch)
    layers.prefill += 2 * BATCH * patches * patch
    for number in range(vision["depth"]):
        numbers = 4 * hidden * hidden + 3 * hidden * inner
        layers.plain(numbers + 4 * hidden + 2 * inner + hidden + 2 * hidden)
        pairs = patches**2 if number % 8 == 7 else patches * 64
        layers.prefill += 2 * BATCH * patches * numbers + 4 * BATCH * hidden * pairs
    merged = (4 * hidden) ** 2 + 4 * hidden * width
    layers.plain(hidden + merged + 4 * hidden + width)
    layers.prefill += 2 * BATCH * patches // 4 * merged
    return layers.sizes()


def gemma2(of: dict[str, Any]) -> Sizes:
    layers = Layers()
    for number in range(of["num_hidden_layers"]):
        grouped_attention(layers, of, window=None if number % 2 else of["sliding_window"])
        gated(layers, of["hidden_size"], of["intermediate_size"])
        layers.plain(4 * of["hidden_size"])
    layers.plain(of["hidden_size"])
    layers.head(of["hidden_size"], of["vocab_size"], tied=True)
    return layers.sizes()


def qwen3_moe(of: dict[str, Any]) -> Sizes:
    """Every product but the routers' and the head's in fp8 with a scale for each 128 x 128."""
    layers = Layers(8 + 32 / 128**2)
    for _ in range(of["num_hidden_layers"]):
        grouped_attention(layers, of)
        layers.product(of["hidden_size"] * of["num_experts"], kept=True)
        gated(layers, of["hidden_size"], of["moe_intermediate_size"], of["num_experts"], of["num_experts_per_tok"])
        layers.plain(2 * of["hidden_size"] + 2 * of["head_dim"])
    layers.plain(of["hidden_size"])
    layers.head(of["hidden_size"], of["vocab_size"])
    return layers.sizes()


def gpt_oss(of: dict[str, Any]) -> Sizes:
    """Experts in mxfp4; attention, with biases and a sink for each head, and routers in bf16."""
    layers = Layers(4.25)
    hidden, inner, experts, chosen = (
        of[name] for name in ("hidden_size", "intermediate_size", "num_local_experts", "num_experts_per_tok")
    )
    for number in range(of["num_hidden_layers"]):
        grouped_attention(layers, of, window=None if number % 2 else of["sliding_window"], bias=True, kept=True)
        layers.plain(hidden + of["num_attention_heads"])
        layers.product(hidden * experts, kept=True)
        gated(layers, hidden, inner, experts, chosen)
        layers.plain(experts + experts * (2 * inner + hidden) + 2 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"])
    return layers.sizes()


def llama4(of: dict[str, Any]) -> Sizes:
    layers = Layers()
    hidden, inner = of["hidden_size"], of["intermediate_size"]
    for _ in range(of["num_hidden_layers"]):
        grouped_attention(layers, of)
        layers.product(hidden * of["num_local_experts"])
        gated(layers, hidden, inner, of["num_local_experts"], of["num_experts_per_tok"])
        gated(layers, hidden, inner)
        layers.plain(2 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"])
    return layers.sizes()


def glm4_moe(of: dict[str, Any]) -> Sizes:
    layers = Layers()
    hidden, inner = of["hidden_size"], of["moe_intermediate_size"]
    for number in range(of["num_hidden_layers"]):
        grouped_attention(layers, of, bias=True)
        if number < of["first_k_dense_replace"]:
            gated(layers, hidden, of["intermediate_size"])
        else:
            layers.product(hidden * of["n_routed_experts"])
            gated(layers, hidden, inner, of["n_routed_experts"], of["num_experts_per_tok"])
            gated(layers, hidden, inner * of["n_shared_experts"])
        layers.plain(2 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"])
    return layers.sizes()


def dbrx(of: dict[str, Any]) -> Sizes:
    layers = Layers()
    hidden, heads, attention, inner = of["d_model"], of["n_heads"], of["attn_config"], of["ffn_config"]
    depth = hidden // heads
    for _ in range(of["n_layers"]):
        keys = attention["kv_n_heads"]
        layers.product(2 * hidden * hidden + 2 * hidden * keys * depth)
        layers.attention(heads, depth, 2 * keys * depth)
        layers.product(hidden * inner["moe_num_experts"])
        gated(layers, hidden, inner["ffn_hidden_size"], inner["moe_num_experts"], inner["moe_top_k"])
        layers.plain(2 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"])
    return layers.sizes()


def jetmoe(of: dict[str, Any]) -> Sizes:
    """Experts of attention too: each token has the queries of ``num_experts_per_tok`` of them, for the same keys."""
    layers = Layers()
    hidden, keys, depth, chosen = of["hidden_size"], of["num_key_value_heads"], of["kv_channels"], of["num_experts_per_tok"]
    experts = of["num_local_experts"]
    for _ in range(of["num_hidden_layers"]):
        layers.product(2 * hidden * keys * depth)
        layers.product(2 * hidden * keys * depth * chosen, 2 * hidden * keys * depth * experts)
        layers.attention(keys * chosen, depth, 2 * keys * depth)
        layers.product(2 * hidden * experts)
        gated(layers, hidden, of["intermediate_size"], experts, chosen)
        layers.plain(4 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"], tied=True)
    return layers.sizes()


def latent_attention(layers: Layers, of: dict[str, Any]) -> None:
    """DeepSeek: prefill expands the latents, decode absorbs the expansion."""
    hidden, heads, rank, rope = of["hidden_size"], of["num_attention_heads"], of["kv_lora_rank"], of["qk_rope_head_dim"]
    key, value, queries = of["qk_nope_head_dim"], of["v_head_dim"], of["q_lora_rank"]
    layers.product(hidden * queries + queries * heads * (key + rope) + hidden * (rank + rope) + heads * value * hidden)
    layers.product(rank * heads * (key + value))  # the expansion, or its two halves beside query and result
    layers.plain(queries + rank)
    layers.prefill += 2 * BATCH * heads * (key + rope + value) * PROMPT * (PROMPT + 1) // 2
    layers.decode += 2 * BATCH * heads * (2 * rank + rope) * CONTEXT
    layers.cache += 2 * BATCH * (rank + rope) * END


def deepseek(of: dict[str, Any]) -> Sizes:
    """Every product but the routers' and the head's in fp8; with an indexer, whose keys are in bf16, where there is one."""
    layers = Layers(8 + 32 / 128**2)
    hidden, inner = of["hidden_size"], of["moe_intermediate_size"]
    for number in range(of["num_hidden_layers"]):
        latent_attention(layers, of)
        if "index_n_heads" in of:
            heads, depth = of["index_n_heads"], of["index_head_dim"]
            layers.product(of["q_lora_rank"] * heads * depth + hidden * depth + hidden * heads)
            layers.plain(2 * depth)
            layers.prefill += 2 * BATCH * heads * depth * PROMPT * (PROMPT + 1) // 2
            layers.decode += 2 * BATCH * heads * depth * CONTEXT
            layers.cache += 2 * BATCH * depth * END
        if number < of["first_k_dense_replace"]:
            gated(layers, hidden, of["intermediate_size"])
        else:
            layers.product(hidden * of["n_routed_experts"], kept=True)
            gated(layers, hidden, inner, of["n_routed_experts"], of["num_experts_per_tok"])
            gated(layers, hidden, inner * of["n_shared_experts"])
        layers.plain(2 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"])
    return layers.sizes()


def convolution(layers: Layers, channels: int, taps: int) -> None:
    """A causal convolution of every channel by itself; the last ``taps`` inputs stay."""
    layers.plain(channels * taps + channels)
    layers.prefill += 2 * BATCH * channels * taps * PROMPT
    layers.decode += 2 * BATCH * channels * taps
    layers.cache += 2 * BATCH * channels * taps


def mamba_mixer(layers: Layers, hidden: int, inner: int, states: int, rank: int, taps: int) -> None:
    """Mamba: projections, convolution, and the contraction of the state with C, which is in fp32."""
    layers.product(hidden * 2 * inner + inner * (rank + 2 * states) + rank * inner + inner * hidden)
    convolution(layers, inner, taps)
    layers.plain(inner + inner * states + inner)
    layers.prefill += 2 * BATCH * inner * states * PROMPT
    layers.decode += 2 * BATCH * inner * states
    layers.cache += 4 * BATCH * inner * states


def mamba(of: dict[str, Any]) -> Sizes:
    layers = Layers()
    for _ in range(of["num_hidden_layers"]):
        mamba_mixer(layers, of["hidden_size"], of["intermediate_size"], of["state_size"], of["time_step_rank"], of["conv_kernel"])
        layers.plain(of["hidden_size"])
    layers.plain(of["hidden_size"])
    layers.head(of["hidden_size"], of["vocab_size"], tied=of.get("tie_word_embeddings", True))
    return layers.sizes()


def jamba(of: dict[str, Any]) -> Sizes:
    layers = Layers()
    hidden = of["hidden_size"]
    for number in range(of["num_hidden_layers"]):
        if number % of["attn_layer_period"] == of["attn_layer_offset"]:
            grouped_attention(layers, of)
        else:
            rank, states = of["mamba_dt_rank"], of["mamba_d_state"]
            mamba_mixer(layers, hidden, of["mamba_expand"] * hidden, states, rank, of["mamba_d_conv"])
            layers.plain(rank + 2 * states)
        if number % of["expert_layer_period"] == of["expert_layer_offset"]:
            layers.product(hidden * of["num_experts"])
            gated(layers, hidden, of["intermediate_size"], of["num_experts"], of["num_experts_per_tok"])
        else:
            gated(layers, hidden, of["intermediate_size"])
        layers.plain(2 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"])
    return layers.sizes()


def space_mixer(layers: Layers, hidden: int, heads: int, depth: int, states: int, groups: int, taps: int) -> None:
    """Mamba 2: the products are those of the recurrence, or of all pairs of a short prompt and the state after them."""
    inner, mixed = heads * depth, heads * depth + 2 * groups * states
    layers.product(hidden * (inner + mixed + heads) + inner * hidden)
    convolution(layers, mixed, taps)
    layers.plain(3 * heads + inner)
    steps = 4 * PROMPT * inner * states
    pairs = 2 * PROMPT * inner * states + (states + depth) * heads * PROMPT * (PROMPT + 1)
    layers.prefill += BATCH * min(steps, pairs)
    layers.decode += 4 * BATCH * inner * states
    layers.cache += 4 * BATCH * inner * states


def mamba2(of: dict[str, Any]) -> Sizes:
    layers = Layers()
    for _ in range(of["num_hidden_layers"]):
        space_mixer(layers, of["hidden_size"], of["num_heads"], of["head_dim"], of["state_size"], of["n_groups"], of["conv_kernel"])
        layers.plain(of["hidden_size"])
    layers.plain(of["hidden_size"])
    layers.head(of["hidden_size"], of["vocab_size"])
    return layers.sizes()


def bamba(of: dict[str, Any]) -> Sizes:
    layers = Layers()
    hidden = of["hidden_size"]
    for number in range(of["num_hidden_layers"]):
        if number in of["attn_layer_indices"]:
            grouped_attention(layers, of)
        else:
            names = ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv")
            space_mixer(layers, hidden, *(of[name] for name in names))
        gated(layers, hidden, of["intermediate_size"])
        layers.plain(2 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"])
    return layers.sizes()


def qwen3_next(of: dict[str, Any]) -> Sizes:
    """Three of four layers have the gated delta rule; the others attention whose queries have a gate. The shared expert has one too."""
    layers = Layers()
    hidden, inner, experts = of["hidden_size"], of["moe_intermediate_size"], of["num_experts"]
    keys, heads, depth, width = (
        of[f"linear_{name}"] for name in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    )
    for number in range(of["num_hidden_layers"]):
        if number % 4 == 3:
            grouped_attention(layers, of, gate=True)
            layers.plain(2 * of["head_dim"])
        else:
            mixed = 2 * keys * depth + heads * width
            layers.product(hidden * (mixed + heads * width) + hidden * 2 * heads + heads * width * hidden)
            convolution(layers, mixed, of["linear_conv_kernel_dim"])
            layers.plain(2 * heads + width - mixed)  # its convolution has no bias
            steps = 6 * PROMPT * heads * depth * width
            pairs = 2 * PROMPT * heads * depth * width + 2 * (depth + width) * heads * PROMPT * (PROMPT + 1)
            layers.prefill += BATCH * min(steps, pairs)
            layers.decode += 6 * BATCH * heads * depth * width
            layers.cache += 4 * BATCH * heads * depth * width
        layers.product(hidden * experts + hidden)
        gated(layers, hidden, inner, experts, of["num_experts_per_tok"])
        gated(layers, hidden, of["shared_expert_intermediate_size"])
        layers.plain(2 * hidden)
    layers.plain(hidden)
    layers.head(hidden, of["vocab_size"])
    return layers.sizes()


def both_halves(
    hidden: int, inner: int, layers_of: tuple[int, int], heads: tuple[int, int], read: int, begins: int, **more: Any
) -> Layers:
    """An encoder of ``read`` tokens and a decoder whose prompt has ``begins`` tokens: ``heads`` are their number and depth."""
    layers, (number, depth) = Layers(), heads
    wide, biased, gates = number * depth, more.get("biased", True), more.get("gates", 2)
    at, end = begins + NEW // 2, begins + NEW - 1

    def weights(numbers: float, in_prefill: int, *, in_decode: bool) -> None:
        layers.weights += 2 * numbers
        layers.prefill += 2 * BATCH * in_prefill * numbers
        layers.decode += 2 * BATCH * numbers * in_decode

    def pairs(in_prefill: float, in_decode: float) -> None:
        layers.prefill += 4 * BATCH * wide * in_prefill
        layers.decode += 4 * BATCH * wide * in_decode

    for _ in range(layers_of[0]):
        weights(4 * hidden * wide + gates * hidden * inner, read, in_decode=False)
        pairs(read * read, 0)
        layers.plain((4 * hidden + inner + hidden - hidden * more.get("no_key_bias", False)) * biased + 2 * hidden * (1 + biased))
    for _ in range(layers_of[1]):
        weights(6 * hidden * wide + gates * hidden * inner, begins, in_decode=True)
        weights(2 * hidden * wide, read, in_decode=False)
        pairs(begins * (begins + 1) // 2 + begins * read, at + read)
        layers.plain((8 * hidden + inner + hidden - 2 * hidden * more.get("no_key_bias", False)) * biased + 3 * hidden * (1 + biased))
        layers.cache += 2 * BATCH * 2 * wide * (end + read)
    return layers


def t5(of: dict[str, Any]) -> Sizes:
    """T5 1.1: gated layers without biases, and in the first layer of each half a bias for 32 distances. Its head is not the embedding
    as published; transformers, which builds the network, ties them always."""
    hidden, number = of["d_model"], of["num_heads"]
    depths = of["num_layers"], of["num_decoder_layers"]
    layers = both_halves(hidden, of["d_ff"], depths, (number, of["d_kv"]), PROMPT, 1, biased=False, gates=3)
    layers.plain(2 * 32 * number + 2 * hidden)
    layers.head(hidden, of["vocab_size"], tied=True)
    return layers.sizes()


def bart(of: dict[str, Any]) -> Sizes:
    hidden, number = of["d_model"], of["encoder_attention_heads"]
    depths = of["encoder_layers"], of["decoder_layers"]
    layers = both_halves(hidden, of["encoder_ffn_dim"], depths, (number, hidden // number), PROMPT, 1)
    layers.plain(2 * (of["max_position_embeddings"] + 2) * hidden + 2 * 2 * hidden)
    layers.head(hidden, of["vocab_size"], tied=True)
    return layers.sizes()


def whisper(of: dict[str, Any]) -> Sizes:
    """Two convolutions before the encoder; the head computes every token of the prompt, as transformers calls it."""
    hidden, number, read = of["d_model"], of["encoder_attention_heads"], of["max_source_positions"]
    depths = of["encoder_layers"], of["decoder_layers"]
    layers = both_halves(hidden, of["encoder_ffn_dim"], depths, (number, hidden // number), read, PROMPT, no_key_bias=True)
    taps = 3 * hidden * of["num_mel_bins"], 3 * hidden * hidden
    layers.plain(sum(taps) + 2 * hidden + (read + of["max_target_positions"]) * hidden + 2 * 2 * hidden)
    layers.prefill += 2 * BATCH * (2 * read * taps[0] + read * taps[1])
    layers.head(hidden, of["vocab_size"], tied=True)
    layers.prefill += 2 * BATCH * (PROMPT - 1) * hidden * of["vocab_size"]
    return layers.sizes()


# The closed form of each model in served_configurations.json.
FORMS: dict[str, Callable[[dict[str, Any]], Sizes]] = {
    "Llama 3.1 8B, fp8": lambda of: dense(of, 8),
    "Llama 3.1 8B, nvfp4": lambda of: dense(of, 4.5),
    "Qwen2.5 7B, AWQ": lambda of: dense(of, 4 + 20 / 128, bias=True),
    "Gemma 2 9B": gemma2,
    "Qwen3 30B-A3B, fp8": qwen3_moe,
    "Qwen3-Coder 480B-A35B, fp8": qwen3_moe,
    "gpt-oss 20B, mxfp4": gpt_oss,
    "Llama 4 Scout, text": llama4,
    "GLM-4.5 Air": glm4_moe,
    "DBRX": dbrx,
    "JetMoe 8B": jetmoe,
    "DeepSeek-V3, fp8": deepseek,
    "Kimi K2, fp8": deepseek,
    "DeepSeek-V3.2, fp8": deepseek,
    "Mamba 2.8B": mamba,
    "Falcon Mamba 7B": mamba,
    "Codestral Mamba 7B": mamba2,
    "Jamba 52B": jamba,
    "Bamba 9B": bamba,
    "Qwen3-Next 80B-A3B": qwen3_next,
    "LLaVA 1.5 7B, an image": llava,
    "Qwen2.5-VL 7B, an image": qwen_vl,
    "Flan-T5 XL": t5,
    "BART large": bart,
    "Whisper large v3, 1024 positions": whisper,
}


def counted(config: dict[str, Any]) -> Sizes:
    """What the command counts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        command = [
            sys.executable,
            "-m",
            "rooflines",
            "predict",
            f"hf:{path}",
            "--mode",
            "generate",
            "--precision",
            "bf16",
            "--batch-size",
            str(BATCH),
            "--prompt-length",
            str(PROMPT),
            "--new-tokens",
            str(NEW),
            "--device",
            "NVIDIA B200",
            "--format",
            "json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{config['model_type']}: {done.stderr.strip()}")
    step = json.loads(done.stdout)["steps"][0]
    prefill, decode = step["phases"]
    memory = step["memory"]
    return Sizes(memory["parameters_bytes"], prefill["matrix_flops"], decode["matrix_flops"], memory["kv_cache_bytes"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FORMS, default=list(FORMS))
    wrong, configurations = 0, json.loads(CONFIGURATIONS.read_text())
    lines = [
        f"{BATCH} sequences, prompts of {PROMPT} tokens, {NEW} new ones; decode is a token of each at a context of {CONTEXT}.\n",
        "| model | weights | FLOPs of prefill | of a token of decode | KV cache and states | differs |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name in parser.parse_args().only:
        known, found = FORMS[name](configurations[name]), counted(configurations[name])
        said = []
        for field, closed, ours in zip(Sizes._fields, known, found, strict=True):
            if abs(ours - closed) > TOLERANCE * max(closed, 1):
                wrong += 1
                said.append(f"{field}: {ours:.6g}, closed form {closed:.6g} ({ours / closed - 1:+.2%})")
        cells = f"{found.weights / 2**30:.2f} GiB | {found.prefill:.4g} | {found.decode:.4g} | {found.cache / 2**20:.1f} MiB"
        lines.append(f"| {name} | {cells} | {'; '.join(said) or 'no'} |")
        print(lines[-1], flush=True)
    if wrong == 0 and len(lines) == len(FORMS) + 3:
        RESULTS.write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 3} models, {wrong} figures that differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
