"""Count the phases of a generation, prefill and decode, without running it: ``rooflines count --mode
generate``.

Prefill is one call of all prompts. Decode is counted for one token of each sequence at given contexts, with a
KV cache of exactly that many tokens: what is read is the cache that exists, without the copies of one that
grows and without empty slots. The cache of prefill gives its shapes, so that no step before has to be run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.errors import RooflinesError, WorkloadError, first_line
from rooflines.profiler.hooks.generation_phases import generating
from rooflines.profiler.records import GenerationSizes, StepMemory, Workload
from rooflines.profiler.workloads.causal_models import CausalModel, cache_tensors
from rooflines.profiler.workloads.generation import next_logits
from rooflines.profiler.workloads.prepare import Prepared, prepare
from rooflines.profiler.workloads.steps import make_autocast
from rooflines.roofline.dry_run.count import Count, Phase, PhaseCount, summarize
from rooflines.roofline.dry_run.served_attention import one_kernel, with_served_latent_attention
from rooflines.roofline.dry_run.served_experts import grouped_experts
from rooflines.roofline.dry_run.served_scans import one_scan
from rooflines.roofline.dry_run.stored_weights import StoredWeights
from rooflines.serial import to_plain

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from rooflines.profiler.calls.repeated_layers import RepeatedLayers
    from rooflines.profiler.options import PointOptions

GENERATION_SCHEMA = "rooflines.generation-count/1"


class GenerationCount(GenerationSizes, frozen=True, kw_only=True):
    """The phases of a generation and the memory that it needs: ``activation_bytes`` is the most that a phase
    holds besides parameters and KV cache, ``notes`` say what else is to be known.

    ``quantization`` is what the model's configuration says of its weights, which are counted in the precision
    of the workload; ``stored`` is how they count where that has been taken into account, and
    ``cached_item_bytes`` what a number in the KV cache has, where it is less.
    """

    workload: Workload
    phases: tuple[PhaseCount, ...]
    activation_bytes: int
    notes: tuple[str, ...] = ()
    quantization: dict[str, Any] = msgspec.field(default_factory=dict)
    stored: StoredWeights | None = None
    cached_item_bytes: float | None = None

    @property
    def batch(self) -> int:
        """The number of sequences."""
        return self.workload.batch_size or 1

    @property
    def needed_bytes(self) -> int:
        """Parameters, KV cache and activations."""
        return self.parameter_bytes + (self.kv_bytes or 0) + self.activation_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the count as plain Python containers, as ``rooflines count --format json`` prints it."""
        return {"schema": GENERATION_SCHEMA, **to_plain(self)}


def count_generation(
    name: str, options: PointOptions, *, keys: Sequence[int] | None = None, served: bool = False
) -> GenerationCount:
    """Count the phases of a generation of a named model (``hf:``, ``path/to/file.py:factory``) on fake
    tensors.

    Decode is counted at each context in ``keys`` (tokens per sequence, the computed one included), by default
    at the mean context of the generation, rounded down: FLOPs and bytes are linear in it, but for sliding
    windows. Attention is as the model calls it, or ``served``: as servers compute it (``served_attention``).
    Raises WorkloadError as ``rooflines profile`` does, and for a model whose operators need data.
    """
    from rooflines.profiler.calls.fakes import Building, fake_tensors
    from rooflines.profiler.workloads.causal_models import generation_sizes

    mode = fake_tensors()
    options = replace(options, mode="generate", device="cpu", compile="off")
    length = options.prompt_length
    steps = options.new_tokens - 1
    if keys is None:
        keys = (length + (steps + 1) // 2,) if steps else ()
    try:
        with mode, Building(mode):
            prepared = prepare(name, options)
        as_served = prepared.generator if served else None
        with prepared.flags(), one_kernel(as_served), one_scan(as_served), grouped_experts(as_served):
            phases = _Phases(prepared, mode)
            counted = [
                PhaseCount(phase="prefill", tokens=length, keys=length, calls=1, count=phases.prefill(length))
            ]
            tokens = 1 if options.kv_cache != "none" else None
            for context in keys:
                count = phases.decode(context)
                counted.append(
                    PhaseCount(
                        phase="decode", tokens=tokens or context, keys=context, calls=steps, count=count
                    )
                )
            sizes = generation_sizes(prepared.generator, phases.cache(length + steps))
    except RooflinesError:
        raise
    except Exception as error:
        raise WorkloadError(f"{name} cannot be counted: {first_line(error)}.") from error
    config = getattr(getattr(prepared.generator, "network", None), "config", None)
    if served:
        selected = getattr(config, "index_topk", None)
        counted = [
            with_served_latent_attention(phase, options.batch_size or 1, selected) for phase in counted
        ]
    return GenerationCount(
        workload=prepared.facts,
        phases=tuple(counted),
        activation_bytes=max(_activations(phase.count.memory) for phase in counted),
        notes=prepared.notes,
        quantization=getattr(config, "quantization_config", None) or {},
        **msgspec.structs.asdict(sizes),
    )


class _Phases:
    """Counts calls of one generator on fake tensors. ``prefill`` comes first: its KV cache gives the shapes
    of those of ``decode``."""

    def __init__(self, prepared: Prepared, mode: FakeTensorMode) -> None:
        self._generator: Any = prepared.generator
        self._mode = mode
        self._autocast = make_autocast(prepared.options, prepared.device)
        self._batch = prepared.options.batch_size or 1
        self._filled: Any = None
        self._layers: RepeatedLayers | None = None
        # Autocast keeps the weights that it has converted, of each layer its own.
        if isinstance(self._generator, CausalModel) and not prepared.options.precision.startswith("amp"):
            from rooflines.profiler.calls.repeated_layers import RepeatedLayers

            self._layers = RepeatedLayers(self._generator.network)

    def prefill(self, length: int) -> Count:
        """Count the prompts."""
        tokens = self._tokens(length)
        generator = self._generator
        if not isinstance(generator, CausalModel):
            return self._count("prefill", lambda: generator.prefill(tokens))

        def call() -> torch.Tensor:
            self._filled = generator.new_cache("none" if generator.kind == "none" else "static", length)
            return generator.begin(tokens, self._filled)

        return self._count("prefill", call, lambda: self._filled)

    def decode(self, keys: int) -> Count:
        """Count the token of each sequence that is the last of ``keys``."""
        generator = self._generator
        if not isinstance(generator, CausalModel):
            import torch

            token = self._tokens(1)
            before = self._tokens(keys - 1)
            with self._mode, torch.inference_mode(), self._autocast():
                generator.prefill(before)  # fills its cache
            return self._count("decode", lambda: generator.decode(token))
        tokens = self._tokens(generator.places(keys) if generator.kind == "none" else 1)
        cache = self.cache(keys)
        return self._count(
            "decode", lambda: generator.logits(generator.network, tokens, cache), lambda: cache
        )

    def cache(self, slots: int) -> Any:
        """A KV cache of ``slots`` tokens that lacks the last one; None where there is none."""
        if self._filled is None:
            return None
        from rooflines.profiler.calls.fakes import Building
        from rooflines.profiler.calls.repeated_layers import caches_in

        with self._mode, Building(self._mode):
            cache = self._generator.new_cache("static", slots)
            for made, filled in zip(caches_in(cache), caches_in(self._filled), strict=True):
                made.layers = [_resized(*pair) for pair in zip(filled.layers, made.layers, strict=True)]
        if hasattr(cache, "is_updated"):  # the decoder finds what the encoder gave
            cache.is_updated = dict(self._filled.is_updated)
        return cache

    def _tokens(self, length: int) -> torch.Tensor:
        import torch

        from rooflines.profiler.calls.fakes import Building

        with self._mode, Building(self._mode):
            return torch.zeros(self._batch, length, dtype=torch.int64)

    def _count(
        self, phase: Phase, call: Callable[[], torch.Tensor], cache: Callable[[], Any] = lambda: None
    ) -> Count:
        import torch

        from rooflines.profiler.calls.memory import record_with_memory

        def step() -> None:
            with (
                torch.inference_mode(),
                self._autocast(),
                generating(phase, requests=self._batch, tokens=0, keys=0),
            ):
                next_logits(call()).argmax(-1, keepdim=True)

        def held() -> Iterable[torch.Tensor]:
            return () if (filled := cache()) is None else cache_tensors(filled)

        if self._layers is None:
            return summarize(record_with_memory(step, self._mode, held=held))
        with self._layers.skipped():
            recording = record_with_memory(step, self._mode, held=held)
        return summarize(self._layers.completed(recording))


def _resized(filled: Any, layer: Any) -> Any:
    """``filled``, a layer of a cache after prefill, with as many slots as ``layer``, of which the last is
    empty."""
    import torch

    made = copy.copy(filled)
    slots = getattr(layer, "max_cache_len", None)
    if slots is None:
        return made  # a state, which has no place for each token
    for name, value in vars(filled).items():
        if isinstance(value, torch.Tensor) and "cumulative_length" in name:
            setattr(made, name, torch.tensor(slots - 1))
        elif isinstance(value, torch.Tensor) and value.shape[-2:-1] == (filled.max_cache_len,):
            setattr(made, name, value.new_zeros(*value.shape[:-2], slots, value.shape[-1]))
    # All slots are used: no mask has to say which, as for a cache that grows.
    vars(made).update(max_cache_len=slots, cumulative_length_int=slots - 1, is_compileable=False)
    return made


def _activations(memory: StepMemory | None) -> int:
    """What a call holds at its peak besides parameters, inputs and KV cache, ``notes`` say what else is to be
    known."""
    return (
        0
        if memory is None
        else memory.at_peak.activations + memory.at_peak.workspace + memory.at_peak.overhead
    )
