"""One generation as a step: prefill of the prompts, then a token of each sequence at a time, chosen greedily.

The first token comes from prefill, each further one from a decode step. Nothing ends a sequence early, so
that every generation computes the same. A token is ready when its phase has ended.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rooflines.profiler.hooks.generation_phases import generating
from rooflines.profiler.hooks.step_clock import StepClock

if TYPE_CHECKING:
    import torch

PROTOCOL = "an object with vocab_size, prefill(tokens) and decode(tokens), or a causal model of transformers"


class Generator(Protocol):
    """A model that generates and keeps its own KV cache; ``prefill`` starts with an empty one.

    ``prefill`` takes the prompts, int64 [batch, prompt_length], ``decode`` the last token of each sequence,
    [batch, 1]. Both return the logits of the next token, [batch, vocab_size], or those of several positions,
    [batch, positions, vocab_size]: the last count.
    """

    vocab_size: int

    def prefill(self, tokens: torch.Tensor) -> torch.Tensor: ...

    def decode(self, tokens: torch.Tensor) -> torch.Tensor: ...


def is_generator(model: object) -> bool:
    """Whether ``model`` follows the protocol."""
    return (
        callable(getattr(model, "prefill", None))
        and callable(getattr(model, "decode", None))
        and hasattr(model, "vocab_size")
    )


class TokenClock:
    """Notes when each token is ready; ``generations`` has for each that has ended the nanoseconds from its
    begin to each token."""

    def __init__(self, device: torch.device) -> None:
        from rooflines.kernels.micro.clock import synchronize_device

        self.generations: list[tuple[int, ...]] = []
        self._clock = StepClock(
            device, None if device.type == "cpu" else functools.partial(synchronize_device, device)
        )

    def begin(self) -> None:
        """A generation begins."""
        self._clock.drop()
        self._clock.begin()

    def ready(self) -> None:
        """All that was asked of the device so far gives a token."""
        self._clock.end()

    def end(self) -> None:
        """Wait for the last token and add the generation."""
        self.generations.append(tuple(self._clock.take_ns()))


class Generated(NamedTuple):
    """The tokens [batch, 1] of one generation, and the logits [batch, vocab_size] of its first one."""

    tokens: tuple[torch.Tensor, ...]
    logits: torch.Tensor


def generation_step(
    generator: Generator,
    prompts: torch.Tensor,
    new_tokens: int,
    autocast: Callable[[], Any],
    clock: TokenClock,
    recomputes: bool,
) -> Callable[[], Generated]:
    """Return a function that continues ``prompts`` by ``new_tokens``. ``recomputes`` says that each token
    runs the whole sequence."""
    import torch

    batch, length = prompts.shape

    def step() -> Generated:
        with torch.inference_mode(), autocast():
            clock.begin()
            with generating("prefill", requests=batch, tokens=batch * length, keys=batch * length):
                logits = next_logits(generator.prefill(prompts))
                tokens = [logits.argmax(-1, keepdim=True)]
            clock.ready()
            for keys in range(length + 1, length + new_tokens):
                with generating(
                    "decode", requests=batch, tokens=batch * (keys if recomputes else 1), keys=batch * keys
                ):
                    tokens.append(next_logits(generator.decode(tokens[-1])).argmax(-1, keepdim=True))
                clock.ready()
            clock.end()
            return Generated(tuple(tokens), logits)

    return step


def next_logits(logits: torch.Tensor) -> torch.Tensor:
    """The logits of the last position, [batch, vocab_size]."""
    return logits[:, -1] if logits.dim() == 3 else logits
