"""Encoders with decoders of transformers (T5, BART, Whisper) and how they generate: the encoder reads the
prompts once, or half a minute of sound, and each layer of the decoder keeps its keys and values of that
beside those of its own tokens."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflines.profiler.options import KVCache
from rooflines.profiler.workloads.causal_models import CausalModel, make_cache

if TYPE_CHECKING:
    import torch


@dataclass(eq=False)
class EncoderDecoder(CausalModel):
    """An encoder with a decoder as a ``Generator`` for ``prompts`` [batch, tokens].

    An encoder of tokens reads them, and the decoder begins with its start token. One of sound reads as much
    as it takes at once, and the prompts begin the decoder's sequence.
    """

    prompts: torch.Tensor

    def __post_init__(self) -> None:
        import torch

        super().__post_init__()
        config, batch = self.network.config, len(self.prompts)
        device = self.prompts.device
        self._sound = self.network.main_input_name == "input_features"
        # Two convolutions leave half of the columns.
        size = (config.num_mel_bins, 2 * config.max_source_positions) if self._sound else (0, 0)
        self._features = torch.zeros(batch, *size, dtype=self.network.dtype, device=device)
        start = getattr(config, "decoder_start_token_id", None) or 0
        self._start = torch.full((batch, 1), start, dtype=torch.int64, device=device)
        self._encoded: Any = None

    @property
    def notes(self) -> tuple[str, ...]:
        frames = f"a spectrogram of {self._features.shape[-1]:,} frames"
        read = frames if self._sound else "the prompts"
        begins = "the prompts" if self._sound else "a start token"
        return (f"the encoder reads {read}, and the decoder begins with {begins}",)

    def places(self, tokens: int) -> int:
        return tokens if self._sound else tokens - self.prompts.shape[1] + 1

    def new_cache(self, kind: KVCache, tokens: int) -> Any:
        from transformers import EncoderDecoderCache

        config = copy.deepcopy(self.network.config.get_text_config(decoder=True))
        config.is_encoder_decoder = False  # else it would be that of the decoder's decoder
        config.num_hidden_layers = getattr(config, "num_decoder_layers", config.num_hidden_layers)
        own, read = make_cache(config, kind, self.places(tokens)), make_cache(config, "dynamic", 0)
        return None if own is None else EncoderDecoderCache(own, read)

    def begin(self, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        self._sequence = tokens if self._sound else self._start
        read = {"input_features": self._features} if self._sound else {"input_ids": tokens}
        return self._called(self.network, self._sequence, cache, **read)

    def logits(self, called: Any, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        """Call ``called`` with ``tokens`` of the decoder; returns the logits of all of them."""
        from transformers.modeling_outputs import BaseModelOutput

        read = BaseModelOutput(last_hidden_state=self._encoded)
        return self._called(called, tokens, cache, encoder_outputs=read)

    def _called(self, called: Any, tokens: torch.Tensor, cache: Any, **read: Any) -> torch.Tensor:
        found = called(decoder_input_ids=tokens, past_key_values=cache, use_cache=cache is not None, **read)
        self._encoded = found.encoder_last_hidden_state
        logits: torch.Tensor = found.logits
        return logits
