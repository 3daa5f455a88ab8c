"""Language models of transformers that generate: their weights, the context they allow, their KV cache, and
how they generate."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.arguments import arg
from rooflines.errors import WorkloadError
from rooflines.profiler.options import KVCache, PointOptions
from rooflines.profiler.records import GenerationSizes

if TYPE_CHECKING:
    import torch

_MAXIMUM = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_target_positions",
)  # how configurations name the longest context
_CACHES = ("past_key_values", "cache_params")
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")


def causal_network(name: str, config: Any, options: PointOptions) -> tuple[torch.nn.Module, list[str]]:
    """The causal model of ``config`` in the precision of ``options``, and notes: where its weights are from,
    what it names.

    They are those of ``name``, where that is a directory that has them, else random; on fake tensors nothing
    is read. Raises WorkloadError for a network that does not generate, and for a context that is longer than
    the model's.
    """
    import torch
    import transformers

    from rooflines.profiler.calls.fakes import fake_mode_of

    builder = _builder(config)
    known, masked = (
        getattr(one, "_model_mapping", {}) for one in (builder, transformers.AutoModelForMaskedLM)
    )
    asked = arg("mode", "generate")
    refused = ""
    if builder is None:
        refused = (
            f"an encoder with a decoder, whose input is not made; {asked} runs those of tokens and Whisper"
        )
    elif (
        not config.is_encoder_decoder and type(config) in masked and not getattr(config, "is_decoder", False)
    ):
        refused = f"an encoder; {asked} runs decoders"
    elif type(config) not in known:
        refused = f"no causal language model, which {asked} requires"
    elif options.kv_cache != "none" and not takes_cache(known[type(config)]):
        refused = f"a model without a KV cache, which can be run with {arg('kv_cache', 'none')} only"
    if refused:
        raise WorkloadError(
            f"hf:{name}: {config.model_type} is {refused}.", hint="For example: hf:gpt2 or hf:llama"
        )
    check_context(f"hf:{name}", config, options)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision, torch.float32)
    named = f"{config.dtype}".removeprefix("torch.")
    differs = (
        [f"precision: {options.precision}; the configuration names {named}"]
        if config.dtype not in (None, dtype)
        else []
    )
    is_fake = fake_mode_of() is not None
    if not is_fake and any(any(Path(name).glob(pattern)) for pattern in _WEIGHTS):
        return builder.from_pretrained(name, dtype=dtype, trust_remote_code=False), [
            f"weights: those in {name}",
            *differs,
        ]
    network = builder.from_config(config, dtype=dtype, trust_remote_code=False)
    return network, differs if is_fake else ["weights: random", *differs]


def _builder(config: Any) -> Any:
    """What builds the network of ``config`` to generate; None for an encoder with a decoder that reads
    neither tokens nor the sound of Whisper."""
    import transformers

    if not config.is_encoder_decoder:
        sees = type(config) in transformers.AutoModelForImageTextToText._model_mapping
        text = type(config) in transformers.AutoModelForCausalLM._model_mapping
        return (
            transformers.AutoModelForImageTextToText
            if sees and not text
            else transformers.AutoModelForCausalLM
        )
    if type(config) in transformers.AutoModelForSeq2SeqLM._model_mapping:
        return transformers.AutoModelForSeq2SeqLM
    is_speech = type(config) in transformers.AutoModelForSpeechSeq2Seq._model_mapping
    whole = is_speech and hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions")
    return transformers.AutoModelForSpeechSeq2Seq if whole else None


def check_context(name: str, config: Any, options: PointOptions) -> None:
    """Raise WorkloadError where prompt and new tokens are longer than the longest context of the model; an
    encoder of tokens has the prompt in a context of its own."""
    most = longest_context(config)
    lengths = options.prompt_length, options.new_tokens
    in_halves = config.is_encoder_decoder and not hasattr(config, "num_mel_bins")
    context = max(lengths) if in_halves else sum(lengths)
    if most is not None and context > most:
        raise WorkloadError(
            f"{arg('prompt_length', options.prompt_length)} and "
            f"{arg('new_tokens', options.new_tokens)} are {context} tokens; "
            f"the longest context of {name} is {most}.",
            hint=f"For example: {arg('prompt_length', shorter)}"
            if (shorter := most - options.new_tokens) > 0
            else f"For example: {arg('new_tokens', max(1, most - options.prompt_length))}",
        )


def longest_context(config: Any) -> int | None:
    """The most tokens that a sequence of the model of ``config`` may have; None where it names no limit."""
    text = config.get_text_config(decoder=True)
    return next(
        (int(value) for field in _MAXIMUM if (value := getattr(text, field, None)) and value > 0), None
    )


def generates(model: Any) -> bool:
    """Whether ``model`` is a network of transformers that generates from tokens, or from sound, and a KV
    cache."""
    can_generate: Any = getattr(model, "can_generate", bool)
    return can_generate() and _builder(model.config) is not None and takes_cache(model)


def takes_cache(network: Any) -> bool:
    """Whether ``network``, a module or its class, takes tokens and a KV cache."""
    taken = inspect.signature(network.forward).parameters
    return bool(_cache_argument(network)) and not taken.keys().isdisjoint(("input_ids", "decoder_input_ids"))


def _cache_argument(network: Any) -> str:
    """What ``network`` calls its KV cache, or the cache of its states; empty where it takes none."""
    taken = inspect.signature(network.forward).parameters
    return next((name for name in _CACHES if name in taken), "")


@dataclass(eq=False)
class CausalModel:
    """A causal model of transformers as a ``Generator``, with a KV cache of its ``kind`` that has ``slots``
    tokens at the end.

    Decode steps call ``called``, which may be the compiled ``network``.
    """

    network: Any
    called: Any
    kind: KVCache
    slots: int

    def __post_init__(self) -> None:
        self.vocab_size = vocab_size(self.network.config)
        self.cache: Any = None
        self._cached = _cache_argument(self.network)
        self._sequence: Any = None
        # Networks without this argument compute the head for all positions.
        self._keep = (
            {"logits_to_keep": 1}
            if "logits_to_keep" in inspect.signature(self.network.forward).parameters
            else {}
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of the inputs."""
        return ()

    def places(self, tokens: int) -> int:
        """How many of all ``tokens`` of a sequence are in the cache of the decoder."""
        return tokens

    def new_cache(self, kind: KVCache, tokens: int) -> Any:
        """An empty KV cache, with room for ``tokens`` of a sequence if it is static; None for ``none``."""
        return make_cache(self.network.config, kind, self.places(tokens))

    def prefill(self, tokens: torch.Tensor) -> torch.Tensor:
        """Begin a new cache with the prompts."""
        self.cache = self.new_cache(self.kind, self.slots)
        return self.begin(tokens, self.cache)

    def begin(self, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        """The logits after the prompts, which fill ``cache``."""
        self._sequence = tokens
        return self.logits(self.network, tokens, cache)

    def decode(self, tokens: torch.Tensor) -> torch.Tensor:
        """Compute one token of each sequence; without a cache, the sequences again with it."""
        import torch

        if self.kind == "none":
            self._sequence = tokens = torch.cat([self._sequence, tokens], dim=1)
        return self.logits(self.called, tokens, self.cache)

    def logits(self, called: Any, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        """Call ``called`` with ``tokens``; returns the logits of the last position where the network can
        leave the others out."""
        logits: torch.Tensor = called(input_ids=tokens, **self.cached(cache)).logits
        return logits

    def cached(self, cache: Any) -> dict[str, Any]:
        """What every call is given besides its tokens."""
        cached = {"use_cache": False} if cache is None else {self._cached: cache, "use_cache": True}
        return {**cached, **self._keep}


def make_cache(config: Any, kind: KVCache, slots: int) -> Any:
    """A new KV cache as ``config`` needs it (windows, states): one that grows, or with room for ``slots``
    tokens; None for ``none``."""
    import transformers

    if kind == "none":
        return None
    if kind == "static":
        return transformers.StaticCache(config=config, max_cache_len=slots)
    return transformers.DynamicCache(config=config)


def cache_tensors(cache: Any) -> Iterator[torch.Tensor]:
    """The keys, values and states in a cache."""
    import torch
    from torch.utils._pytree import tree_leaves

    from rooflines.profiler.calls.repeated_layers import caches_in

    return (
        leaf
        for leaf in tree_leaves([vars(layer) for one in caches_in(cache) for layer in one.layers])
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 1
    )


def vocab_size(config: Any) -> int:
    """The number of tokens that the model of ``config`` knows."""
    return int(config.get_text_config(decoder=True).vocab_size)


def generation_sizes(generator: Any, cache: Any) -> GenerationSizes:
    """The sizes of what generates, a module or an object that has some, and of ``cache``, a transformers
    cache or None."""
    import torch

    from rooflines.profiler.calls.memory import storages
    from rooflines.profiler.calls.repeated_layers import caches_in

    layers = getattr(caches_in(cache)[0], "layers", ())
    each = [
        sum(
            tensor.nbytes
            // (tensor.shape[0] * tensor.shape[-2])  # [batch, heads, tokens, depth] or [batch, tokens, depth]
            for name, tensor in vars(layer).items()
            if name.endswith(("keys", "values")) and getattr(tensor, "ndim", 0) > 2 and tensor.numel()
        )
        for layer in layers
    ]
    modules = torch.nn.ModuleList(
        value for value in (generator, *vars(generator).values()) if isinstance(value, torch.nn.Module)
    )
    parameters = list(modules.parameters())  # each once
    config = next(
        (one for module in modules if hasattr(one := getattr(module, "config", None), "get_text_config")),
        None,
    )
    windows: dict[int, int] = {}
    if config is not None and any(getattr(layer, "is_sliding", False) for layer in layers):
        # A cache that grows knows its windows; one with fewer slots than that does not.
        for size, layer in zip(each, make_cache(config, "dynamic", 0).layers, strict=False):
            if size and (window := getattr(layer, "sliding_window", None)):
                windows[window] = windows.get(window, 0) + size
    return GenerationSizes(
        parameters=sum(map(torch.numel, parameters)),
        parameter_bytes=sum(storage.nbytes() for tensor in parameters for storage in storages(tensor)),
        kv_bytes_per_token=sum(each) or None,
        kv_bytes=sum(tensor.nbytes for tensor in cache_tensors(cache)) if layers else None,
        kv_windows=tuple(sorted(windows.items())),
        longest_context=longest_context(config) if config is not None else None,
    )
