"""How large a batch fits into a memory, and the refusal of a generation that does not.

The memory of a generation is parameters, KV cache and activations (``GenerationCount``). Cache and
activations grow with the batch, the cache with the context. What an allocator or a library adds is not in it,
so that what plainly does not fit is refused and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rooflines.arguments import arg
from rooflines.errors import OutOfMemoryError
from rooflines.profiler.options import PointOptions
from rooflines.units import binary_bytes

if TYPE_CHECKING:
    from rooflines.roofline.dry_run.phases import GenerationCount


class MemoryGrowth(NamedTuple):
    """The memory of a step: at several moments the bytes that stay, and those that each sample adds."""

    moments: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, counted: GenerationCount) -> MemoryGrowth:
        """Return how the memory of a generation grows with its sequences."""
        return cls(
            ((counted.parameter_bytes, (counted.needed_bytes - counted.parameter_bytes) / counted.batch),)
        )

    def largest_batch(self, memory_bytes: int) -> int | None:
        """The largest batch that fits, 0 where not even one sample does; None where samples take no
        memory."""
        if any(fixed > memory_bytes for fixed, _ in self.moments):
            return 0
        return min(
            (int((memory_bytes - fixed) // each) for fixed, each in self.moments if each > 0), default=None
        )


def check_memory(
    name: str, counted: GenerationCount, free_bytes: int, free: str, options: PointOptions
) -> None:
    """Raise OutOfMemoryError if the generation needs more than ``free_bytes``, with the largest batch or
    context that fits.

    ``free`` says in words what is free where.
    """
    if counted.needed_bytes <= free_bytes:
        return
    room = free_bytes - counted.parameter_bytes - counted.activation_bytes
    prompt = (counted.largest_context(room, counted.batch) or 0) - options.new_tokens
    if fitting := MemoryGrowth.of(counted).largest_batch(free_bytes):
        hint = f"The largest batch that fits: {arg('batch_size', fitting)}."
    elif 0 < prompt < options.prompt_length:
        hint = f"The longest prompt that fits: {arg('prompt_length', prompt)}."
    elif options.precision in ("fp32", "tf32") and counted.needed_bytes < 2 * free_bytes:
        hint = f"Try {arg('precision', 'bf16')}."
    else:
        hint = "Predict it on a device with more memory: rooflines predict."
    raise OutOfMemoryError(
        f"not enough memory for {name} (generate, batch {counted.batch}, context "
        f"{options.prompt_length + options.new_tokens}): "
        f"{binary_bytes(counted.parameter_bytes)} of parameters, "
        f"{binary_bytes(counted.kv_bytes or 0)} of KV cache and "
        f"{binary_bytes(counted.activation_bytes)} of activations; {free}.",
        hint=hint,
    )
