"""A step that is counted and not run: its phases, and how its memory grows with the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.profiler.options import PointOptions
from rooflines.profiler.records import StepMemory, Workload
from rooflines.roofline.count.formulas.record import precision_of
from rooflines.roofline.dry_run.memory_fit import MemoryGrowth
from rooflines.roofline.dry_run.served_attention import FLASH, KERNEL
from rooflines.roofline.dry_run.stored_weights import stored_weights
from rooflines.roofline.judge.shapes import ITEM_BYTES, sizes_in
from rooflines.roofline.predict.cached_keys import with_fewer_bits_cached
from rooflines.roofline.predict.device_bounds import folded, phase_of
from rooflines.roofline.predict.forecast import MemoryNeed, Operator, Step
from rooflines.roofline.predict.weights import QUANTIZED, SERVED, with_fewer_bits
from rooflines.units import significant

if TYPE_CHECKING:
    import torch

    from rooflines.roofline.dry_run.count import Count
    from rooflines.roofline.dry_run.phases import GenerationCount

AS_SERVED = (
    "Attention as servers compute it: one kernel per layer, without masked pairs; in decode without "
    "the expansion of MLA"
)
MASKED = (
    "Attention with a mask counts masked pairs, as transformers computes it: kernels that skip them "
    "may beat this bound"
)
UNFUSED = (
    "Attention in several operators, as transformers computes it, moves its scores: one kernel for "
    "it may beat this bound"
)
# The KV cache in the precision of the network.
AUTO = "auto"
# What a step holds for every batch size.
_FIXED = ("parameters", "gradients", "optimizer")


@dataclass(frozen=True)
class CountedStep:
    """A step of a workload, counted: the facts of its phases, their operators, and how its memory grows.

    ``generation`` is what was counted of a generation, ``unknown`` are operators without a formula.
    """

    workload: Workload
    step: Step
    unit: str
    operators: Mapping[str, tuple[Operator, ...]]
    growth: MemoryGrowth | None
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    generation: GenerationCount | None = None


def count_step(
    name: str, options: PointOptions, *, served_in: str = "", cache_dtype: str = AUTO
) -> CountedStep:
    """Count a step of the network called ``name``: a training step, one of inference, or a whole generation.

    A generation computes its products ``served_in`` one of ``SERVED``, where that is given, and keeps keys
    and values in ``cache_dtype``. Raises WorkloadError as ``rooflines profile`` does.
    """
    cached = arg("kv_cache_dtype", cache_dtype) if cache_dtype != AUTO else ""
    for asked in (arg("precision", served_in) if served_in else "", cached):
        if asked and options.mode != "generate":
            raise UsageError(f"{asked} is predicted with {arg('mode', 'generate')}.")
    tf32, compiled = options.precision == "tf32", options.compile != "off"
    precision = "fp32" if tf32 else options.precision
    options = replace(options, device="cpu", precision=precision, compile="off")
    predicted = (
        options.mode == "generate" and options.quantize in QUANTIZED and options.precision in ITEM_BYTES
    )
    if options.quantize != "none" and not predicted:
        asked = f"{arg('mode', options.mode)}, {arg('precision', options.precision)}"
        raise UsageError(
            f"{arg('quantize', options.quantize)} is not predicted with {asked}.",
            hint=f"With {arg('mode', 'generate')}, {arg('precision', 'bf16')}: {' or '.join(QUANTIZED)}.",
        )
    if options.mode == "generate":
        return _of_generation(name, options, tf32, served_in, cache_dtype)
    from rooflines.roofline.dry_run.count import record_network, summarize

    recorded = record_network(name, options, memory=True)
    workload = structs.replace(recorded.prepared.facts, compiled=compiled)
    count = summarize(recorded.recording)
    length = options.sequence_length if workload.unit == "sequences" else None
    found = _of_count(workload, _in_tf32(count) if tf32 else count, length)
    return replace(found, notes=(*recorded.prepared.notes, *found.notes))


def count_module(module: torch.nn.Module, inputs: Any, mode: str) -> CountedStep:
    """Count a step of the caller's ``module`` with ``inputs`` (a tensor, a tuple, or a dict of keywords):
    forward, in training also backward; the optimizer is not known."""
    import torch

    from rooflines.profiler.workloads.inputs import as_arguments, batch_size_of
    from rooflines.roofline.dry_run.count import count

    if mode not in ("inference", "training"):
        raise UsageError(
            f"mode={mode!r} requires a model by name.", hint="For example: hf:path/to/config.json"
        )
    positional, keywords = as_arguments(inputs)
    with torch.set_grad_enabled(mode == "training"):
        found = count(module, *positional, backward=mode == "training", memory=True, **keywords)
    dtypes = [str(parameter.dtype) for parameter in module.parameters() if parameter.is_floating_point()]
    workload = Workload(
        name=type(module).__name__,
        mode=mode,  # type: ignore[arg-type]
        precision=(precision_of(dtypes[0].removeprefix("torch.")) or "") if dtypes else "",
        batch_size=batch_size_of(inputs),
    )
    return _of_count(workload, found, None)


def _in_tf32(count: Count) -> Count:
    """``count`` with products in fp32 as TF32."""
    rows = (
        structs.replace(row, precision="tf32") if row.matrix_flops and row.precision == "fp32" else row
        for row in count.operators
    )
    return structs.replace(count, operators=tuple(rows))


def _of_count(workload: Workload, count: Count, length: int | None) -> CountedStep:
    batch = workload.batch_size or 1
    memory = count.memory
    tokens = batch * length if length is not None else None
    every = {name: folded(count, name) for name in ("forward", "backward", "optimizer")}
    operators = {name: found for name, found in every.items() if found}
    phases = [
        phase_of(name, found, count.coverage, tokens=length, all_tokens=tokens)
        for name, found in operators.items()
    ]
    step = Step(
        batch_size=batch,
        sequence_length=length,
        produced=tokens or batch,
        phases=tuple(phases),
        memory=_need(memory) if memory is not None else None,
    )
    growth = _growth(memory, batch) if memory is not None else None
    unit = "tokens" if length is not None else workload.unit
    notes = (count.note,) if count.note else ()
    return CountedStep(workload, step, unit, operators, growth, _unknown(count), notes)


def _of_generation(
    name: str, options: PointOptions, tf32: bool, served_in: str, cache_dtype: str
) -> CountedStep:
    """A generation: prefill of the prompts, and decode at the mean context; attention as servers compute
    it."""
    from rooflines.roofline.dry_run.phases import count_generation

    found = count_generation(name, replace(options, quantize="none"), served=True)
    notes = [*found.notes, *(one.count.note for one in found.phases if one.count.note)]
    stored = QUANTIZED.get(options.quantize) or SERVED.get(served_in)
    if stored is None and found.quantization:
        stored = stored_weights(found.quantization)
        computes = stored.precision or options.precision
        notes.append(
            f"quantization_config: {stored.method}, {significant(stored.bits)} bits for a weight with its "
            f"scales, products in {computes}"
        )
    if stored is not None:
        found = with_fewer_bits(found, stored)
    cache_bits = 8 if cache_dtype == "fp8" else stored.cache_bits if stored is not None else None
    if cache_bits:
        found = with_fewer_bits_cached(found, cache_bits)
        notes.append(f"KV cache: {cache_bits} bits for a number, without scales")
    if tf32:
        phases = tuple(structs.replace(one, count=_in_tf32(one.count)) for one in found.phases)
        found = structs.replace(found, phases=phases)
    operators: dict[str, tuple[Operator, ...]] = {
        one.phase: folded(one.count, one.phase) for one in found.phases
    }
    facts = [
        phase_of(
            one.phase,
            operators[one.phase],
            one.count.coverage,
            calls=one.calls,
            tokens=one.tokens,
            context=one.keys,
            all_tokens=found.batch * one.tokens,
        )
        for one in found.phases
    ]
    need = MemoryNeed(
        total_bytes=found.needed_bytes,
        parameters_bytes=found.parameter_bytes,
        kv_cache_bytes=found.kv_bytes or 0,
        activations_bytes=found.activation_bytes,
        kv_cache_bytes_per_token=found.kv_bytes_per_token,
    )
    step = Step(
        batch_size=found.batch,
        prompt_length=options.prompt_length,
        new_tokens=options.new_tokens,
        produced=found.batch * options.new_tokens,
        phases=tuple(facts),
        memory=need,
    )
    unknown = _unknown(*(one.count for one in found.phases))
    notes += _about_attention([row for rows in operators.values() for row in rows])
    return CountedStep(
        found.workload,
        step,
        "tokens",
        operators,
        MemoryGrowth.of(found),
        unknown,
        tuple(dict.fromkeys(notes)),
        found,
    )


def _about_attention(operators: Sequence[Operator]) -> Iterator[str]:
    """How attention is counted, and where it costs what a better kernel would not, which may be faster than
    the bound."""
    if any(row.name in (FLASH, KERNEL) for row in operators):
        yield AS_SERVED
    attention = [
        (row, sizes_in(row.shapes)) for row in operators if row.part == "attention" and row.matrix_flops
    ]
    if any(
        row.category == "attention" and len(sizes) > 3 and min(sizes[3][-2:], default=0) > 1
        for row, sizes in attention
    ):
        yield MASKED
    if any(
        row.category != "attention"
        and [len(one) for one in sizes[:2]] == [3, 3]
        and not row.module.endswith("_proj")
        for row, sizes in attention
    ):
        yield UNFUSED


def _unknown(*counts: Count) -> tuple[str, ...]:
    """The operators that have no formula."""
    return tuple(
        dict.fromkeys(row.name for count in counts for row in count.operators if row.kind == "unknown")
    )


def _need(memory: StepMemory) -> MemoryNeed:
    held = memory.at_peak
    return MemoryNeed(
        total_bytes=memory.peak_bytes,
        parameters_bytes=held.parameters,
        gradients_bytes=held.gradients,
        optimizer_bytes=held.optimizer,
        activations_bytes=held.activations + held.inputs + held.workspace + held.overhead,
    )


def _growth(memory: StepMemory, batch: int) -> MemoryGrowth:
    """At each moment of the step, parameters, gradients and optimizer stay, and what else there is grows with
    the batch.

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
