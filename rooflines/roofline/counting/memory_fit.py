"""How large a batch or a context fits into a memory, and the refusal of a generation that does not.

The memory of a generation is parameters, KV cache and activations (``GenerationCount``). Cache and activations grow with the batch, the
cache with the context. What an allocator or a library adds is not in it, so that what plainly does not fit is refused and nothing else.
"""

from __future__ import annotations

from rooflines.arguments import arg
from rooflines.errors import OutOfMemoryError
from rooflines.profiler.options import Options
from rooflines.roofline.counting.phases import GenerationCount
from rooflines.units import binary_bytes


def largest_batch(memory_bytes: int, *, parameter_bytes: int, kv_bytes: int, activation_bytes: int, batch_size: int = 1) -> int:
    """The most sequences that fit into ``memory_bytes``; ``kv_bytes`` and ``activation_bytes`` are those of ``batch_size``."""
    each = kv_bytes + activation_bytes
    return max(0, memory_bytes - parameter_bytes) * batch_size // each if each else 0


def largest_context(
    memory_bytes: int, *, parameter_bytes: int, kv_bytes_per_token: int, activation_bytes: int, batch_size: int = 1
) -> int:
    """The most tokens of each of ``batch_size`` sequences whose KV cache fits beside parameters and activations.

    ``kv_bytes_per_token`` is that of one sequence while no window is full, so that with windows more may fit.
    """
    free = max(0, memory_bytes - parameter_bytes - activation_bytes)
    return free // (kv_bytes_per_token * batch_size) if kv_bytes_per_token else 0


def check_memory(name: str, counted: GenerationCount, free_bytes: int, free: str, options: Options) -> None:
    """Raise OutOfMemoryError if the generation needs more than ``free_bytes``, with the largest batch or context that fits.

    ``free`` says in words what is free where.
    """
    batch, cache = options.batch_size or 1, counted.kv_bytes or 0
    needed = counted.parameter_bytes + cache + counted.activation_bytes
    if needed <= free_bytes:
        return
    held = {"parameter_bytes": counted.parameter_bytes, "activation_bytes": counted.activation_bytes, "batch_size": batch}
    fitting = largest_batch(free_bytes, kv_bytes=cache, **held)
    prompt = largest_context(free_bytes, kv_bytes_per_token=counted.kv_bytes_per_token or 0, **held) - options.new_tokens
    if fitting:
        hint = f"The largest batch that fits: {arg('batch_size', fitting)}."
    elif 0 < prompt < options.prompt_length:
        hint = f"The longest prompt that fits: {arg('prompt_length', prompt)}."
    else:
        hint = f"Try {arg('precision', 'bf16')}, or weights in {arg('quantize', 'int8-weight')}."
    raise OutOfMemoryError(
        f"not enough memory for {name} (generate, batch {batch}, context {options.prompt_length + options.new_tokens}): "
        f"{binary_bytes(counted.parameter_bytes)} of parameters, {binary_bytes(cache)} of KV cache and "
        f"{binary_bytes(counted.activation_bytes)} of activations; {free}.",
        hint=hint,
    )
