"""A step that is counted and not run: its phases, and how its memory grows with the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflines.errors import UsageError
from rooflines.profiler.options import Options
from rooflines.profiler.records import StepMemory, Workload
from rooflines.roofline.forecast.device_bounds import Folded, folded, phase_of
from rooflines.roofline.forecast.forecast import MemoryNeed, Phase, Step

if TYPE_CHECKING:
    import torch

    from rooflines.roofline.counting.count import Count
    from rooflines.roofline.counting.phases import GenerationCount

# What a step holds whatever its batch is.
_FIXED = ("parameters", "gradients", "optimizer")
_PHASES = ("forward", "backward", "optimizer")
_PRECISIONS = {"torch.float64": "fp64", "torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}


class MemoryGrowth(NamedTuple):
    """The memory of a step: at several moments the bytes that stay, and those that each sample adds."""

    moments: tuple[tuple[float, float], ...]

    def largest_batch(self, capacity_bytes: int) -> int | None:
        """The largest batch that fits, 0 where not even one sample does; None where samples take no memory."""
        if any(fixed > capacity_bytes for fixed, _ in self.moments):
            return 0
        return min((int((capacity_bytes - fixed) // each) for fixed, each in self.moments if each > 0), default=None)


@dataclass(frozen=True)
class CountedStep:
    """A step of a workload, counted: the facts of its phases, their operators, and how its memory grows.

    ``generation`` is what was counted of a generation, ``unknown`` are operators without a formula. ``tf32`` says that products in fp32
    are to run as TF32.
    """

    workload: Workload
    step: Step
    unit: str
    operators: Mapping[str, tuple[Folded, ...]]
    growth: MemoryGrowth | None
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tf32: bool = False
    generation: GenerationCount | None = None

    def largest_context(self, capacity_bytes: int) -> int | None:
        """The most tokens of each sequence that fit into the KV cache and that the model allows; None without a KV cache."""
        found = self.generation
        if found is None or not found.kv_bytes_per_token:
            return None
        from rooflines.roofline.counting.memory_fit import largest_context

        fitting = largest_context(
            capacity_bytes, parameter_bytes=found.parameter_bytes, kv_bytes_per_token=found.kv_bytes_per_token,
            activation_bytes=found.activation_bytes, batch_size=self.step.batch_size or 1,
        )  # fmt: skip
        return min(fitting, found.longest_context or fitting)


def count_step(name: str, options: Options) -> CountedStep:
    """Count a step of the network called ``name``: a training step, one of inference, or a whole generation.

    Raises WorkloadError as ``rooflines profile`` does.
    """
    counted_as = replace(options, device="cpu", precision="fp32" if options.precision == "tf32" else options.precision)
    if options.mode == "generate":
        return _of_generation(name, counted_as, options.precision == "tf32")
    from rooflines.roofline.counting.count import count_network

    workload, count = count_network(name, counted_as, memory=True)
    length = options.sequence_length if workload.unit == "sequences" else None
    return _of_count(workload, count, length, options.precision == "tf32")


def count_module(module: torch.nn.Module, inputs: Any, mode: str) -> CountedStep:
    """Count a step of the caller's ``module`` with ``inputs`` (a tensor, a tuple, or a dict of keywords): forward, in training also
    backward; the optimizer is not known."""
    import torch

    from rooflines.profiler.workloads.networks import tensors_in
    from rooflines.roofline.counting.count import count

    if mode not in ("inference", "training"):
        raise UsageError(f"mode={mode!r} requires a model by name.", hint="For example: hf:path/to/config.json")
    positional = () if isinstance(inputs, Mapping) else tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
    keywords = dict(inputs) if isinstance(inputs, Mapping) else {}
    with torch.set_grad_enabled(mode == "training"):
        found = count(module, *positional, backward=mode == "training", memory=True, **keywords)
    dtypes = [str(parameter.dtype) for parameter in module.parameters() if parameter.is_floating_point()]
    workload = Workload(
        name=type(module).__name__, mode=mode,  # type: ignore[arg-type]
        precision=_PRECISIONS.get(dtypes[0], "") if dtypes else "",
        batch_size=next((int(tensor.shape[0]) for tensor in tensors_in(inputs) if tensor.dim()), None),
    )  # fmt: skip
    return _of_count(workload, found, None, tf32=False)


def _of_count(workload: Workload, count: Count, length: int | None, tf32: bool) -> CountedStep:
    batch = workload.batch_size or 1
    tokens = batch * length if length is not None else None
    operators: dict[str, tuple[Folded, ...]] = {}
    phases: list[Phase] = []
    for name in _PHASES:
        if found := tuple(folded(count, name)):
            operators[name] = found
            phases.append(phase_of(name, operators[name], count.coverage, tokens=length, all_tokens=tokens))
    step = Step(
        batch_size=batch, sequence_length=length, produced=tokens or batch, phases=tuple(phases),
        memory=_need(count.memory) if count.memory is not None else None,
    )  # fmt: skip
    growth = _growth(count.memory, batch) if count.memory is not None else None
    unit, notes = "tokens" if length is not None else workload.unit, (count.note,) if count.note else ()
    return CountedStep(workload, step, unit, operators, growth, unknown_in(count), notes, tf32)


def _of_generation(name: str, options: Options, tf32: bool) -> CountedStep:
    """A generation: prefill of the prompts, and decode at the mean context; latent attention as servers compute it."""
    from rooflines.roofline.counting.phases import count_generation
    from rooflines.roofline.forecast.latent_attention import AS_SERVED, with_served_latent_attention

    as_called = count_generation(name, options)
    found = with_served_latent_attention(as_called)
    batch = options.batch_size or 1
    operators: dict[str, tuple[Folded, ...]] = {one.phase: tuple(folded(one.count, one.phase)) for one in found.phases}
    phases = tuple(
        phase_of(
            one.phase, operators[one.phase], one.count.coverage, calls=one.calls, tokens=one.tokens, context=one.keys,
            all_tokens=batch * one.tokens,
        )
        for one in found.phases
    )  # fmt: skip
    cache = found.kv_bytes or 0
    need = MemoryNeed(
        total_bytes=found.parameter_bytes + cache + found.activation_bytes, parameters_bytes=found.parameter_bytes,
        kv_cache_bytes=cache, activations_bytes=found.activation_bytes, kv_cache_bytes_per_token=found.kv_bytes_per_token,
    )  # fmt: skip
    growth = MemoryGrowth(((found.parameter_bytes, (cache + found.activation_bytes) / batch),))
    step = Step(
        batch_size=batch, prompt_length=options.prompt_length, new_tokens=options.new_tokens, produced=batch * options.new_tokens,
        phases=phases, memory=need,
    )  # fmt: skip
    counts = [one.count for one in found.phases]
    notes = tuple(dict.fromkeys(count.note for count in counts if count.note)) + ((AS_SERVED,) if found is not as_called else ())
    return CountedStep(found.workload, step, "tokens", operators, growth, unknown_in(*counts), notes, tf32, found)


def unknown_in(*counts: Count) -> tuple[str, ...]:
    """The operators that have no formula."""
    return tuple(dict.fromkeys(row.name for count in counts for row in count.operators if row.kind == "unknown"))


def _need(memory: StepMemory) -> MemoryNeed:
    held = memory.at_peak
    return MemoryNeed(
        total_bytes=memory.peak_bytes, parameters_bytes=held.parameters, gradients_bytes=held.gradients, optimizer_bytes=held.optimizer,
        activations_bytes=held.activations + held.inputs + held.workspace + held.overhead,
    )  # fmt: skip


def _growth(memory: StepMemory, batch: int) -> MemoryGrowth:
    """At each moment of the step, parameters, gradients and optimizer stay, and what else there is grows with the batch.

    Without activations, the rest is what the optimizer works with, which stays, too.
    """
    held: list[tuple[float, float]] = []
    if memory.curve is not None:
        for at in range(len(memory.curve.at)):
            parts = {name: values[at] for name, values in memory.curve.parts.items()}
            stay = _FIXED if parts.get("activations") else (*_FIXED, "workspace")
            held.append((sum(parts.get(name, 0) for name in stay), sum(parts.values())))
    peak = memory.at_peak
    held = held or [(peak.parameters + peak.gradients + peak.optimizer, memory.peak_bytes)]
    return MemoryGrowth(tuple({(fixed, (total - fixed) / batch) for fixed, total in held}))
