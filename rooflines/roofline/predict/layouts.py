"""A generation on several equal devices: what each computes, holds and sends in a parallel layout, as lower
bounds.

- **Tensor** (Megatron-LM, arXiv 1909.08053): attention by heads, MLP and experts by their inner size,
  embedding and head by the vocabulary. An all-reduce of tokens x hidden after attention and one after the MLP
  or the experts. A device holds at least one head of the keys and values, and all of a latent cache.
- **Pipeline** (GPipe, arXiv 1811.06965): stages of whole layers, the embedding in the first and the head in
  the last. A batch is cut into as many micro-batches as there are stages, which send tokens x hidden to the
  next one. The latency of a token is the sum of the stages, or the micro-batches through the slowest stage if
  that is longer.
- **Data**: replicas, each with a share of the sequences.
- **Expert** (GShard, arXiv 2006.16668): experts spread evenly over the replicas, everything else in each of
  them. Two all-to-alls of tokens x experts per token x hidden per layer with experts. With tensor parallel
  attention (DeepSpeed-TED, arXiv 2303.06318) experts are whole, spread over the devices of all replicas: the
  tokens of a replica are on each of its devices, so they are sent to other replicas only.

Bounds are those of products and attention, as in a step. Each matrix of weights is read once per micro-batch.
Collectives move their size times the bus factor of nccl-tests over the link in one direction, and have no
latency. Nothing hides those of decode; those of prefill are hidden by as much as the device computes
meanwhile. Predictions are those of one device for what it computes, each collective with a latency, which
nothing hides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil, prod
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.errors import UsageError
from rooflines.profiler.read.exchanges import bus_factor
from rooflines.roofline.count.formulas.experts import experts_hit
from rooflines.roofline.dry_run.served_attention import FLASH, KERNEL
from rooflines.roofline.judge.network_parts import Part, part_of
from rooflines.roofline.judge.shapes import sizes_in
from rooflines.roofline.predict.device_bounds import bound_operator, estimates_of, folded
from rooflines.roofline.predict.forecast import Layout, LayoutBound, LayoutPhase, Operator
from rooflines.roofline.predict.weights import is_grouped, item_bytes, weights_held, weights_read

if TYPE_CHECKING:
    from rooflines.roofline.dry_run.count import PhaseCount
    from rooflines.roofline.predict.calibrated import Calibrated
    from rooflines.roofline.predict.efficiencies import Efficiencies, Estimate
from rooflines.roofline.dry_run.phases import GenerationCount

_SHARDED: Final = ("attention", "MLP", "experts", "embedding", "head")
_WAYS: Final = {"tp": "tensor", "pp": "pipeline", "dp": "data", "ep": "expert"}
# Measured all-reduces of 1 to 32 kB over NVLink take 4 to 6 us (kernel tables of ai-dynamo/aiconfigurator).
_COLLECTIVE_S: Final = 5e-6
_BLOCK: Final = re.compile(r"(?:^|\.)(\d+|\*)(?:\.|$)")


def layouts_of(devices: int, *, experts: int = 0, heads: int | None = None) -> tuple[Layout, ...]:
    """The layouts of ``devices`` that are usual: tensor alone and with a pipeline or replicas, ``experts``
    spread if there are enough.

    Tensor sizes divide the number of query heads where that is known.
    """
    if devices < 1:
        raise ValueError(f"devices must be at least 1, got {devices}")
    sizes = [size for size in range(devices, 0, -1) if devices % size == 0 and not (heads and heads % size)]
    found = [Layout(tensor=size, pipeline=devices // size) for size in sizes]
    found += [Layout(tensor=size, data=devices // size) for size in sizes if size < devices]
    if 1 < devices <= experts:
        found += [Layout(tensor=size, data=devices // size, expert=devices) for size in sizes]
    return tuple(found)


def parse_layouts(generation: GenerationCount, texts: Sequence[str]) -> tuple[Layout, ...]:
    """The layouts that ``texts`` name: sizes (``tp=4,pp=2``), or a number of devices for all layouts that are
    usual for it.

    Experts are spread over all devices, so that ``ep=8`` is ``dp=8,ep=8`` and ``tp=4,ep=8`` is
    ``tp=4,dp=2,ep=8``. Raises UsageError for any other text.
    """
    found: list[Layout] = []
    facts = network_facts(generation)
    for text in texts:
        try:
            if text.isdigit():
                usual = layouts_of(int(text), experts=facts.experts, heads=facts.heads)
                found += (layout for layout in usual if layout.pipeline == 1 or not facts.encodes)
                continue
            sizes = {
                _WAYS[way.strip()]: int(size) for way, size in (part.split("=") for part in text.split(","))
            }
            if "expert" in sizes and "data" not in sizes:
                sizes["data"] = max(1, sizes["expert"] // sizes.get("tensor", 1))
            layout = Layout(**sizes)
            if facts.heads and facts.heads % layout.tensor:
                raise ValueError(f"the layout divides {facts.heads} heads by {layout.tensor}")
            if layout.pipeline > max(facts.layers, 1):
                raise ValueError(f"the layout has {layout.pipeline} stages for {facts.layers} layers")
            if layout.pipeline > 1 and facts.encodes:
                raise ValueError("a layout with stages is not known for a model that has an encoder, too")
            if layout.expert > 1 and layout.expert > facts.experts:
                raise ValueError(
                    f"the layout spreads experts, of which the model has {facts.experts or 'none'}"
                )
            found.append(layout)
        except (KeyError, ValueError) as error:
            reason = f": {error}" if isinstance(error, ValueError) and "layout" in str(error) else ""
            raise UsageError(
                f"{arg('layout')} {text!r} is not a layout{reason}.",
                hint="For example: tp=8, tp=4,pp=2, dp=8, ep=8, or 8 for all.",
            ) from None
    return tuple(dict.fromkeys(found))


# --- facts of the network ---------------------------------------------------------------------------------


class NetworkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the layouts need to know of a network besides its work, from its counted rows.

    ``layers`` are blocks, ``reduced`` their parts after which tensor parallelism adds up (attention, MLP or
    experts), ``routed`` those with experts. ``kv_heads`` is None where keys and values are not cached by
    heads, or not known: then the cache is not sharded. ``block_weights_bytes`` are in the blocks,
    ``expert_weights_bytes`` in the experts, and ``head_bytes`` in the head. ``cached_item_bytes`` are those
    of a number in the KV cache, where it has fewer. ``encodes`` is whether prefill has blocks that decode has
    not: those of an encoder, or of a vision tower. Of the ``experts`` of a layer each token has ``chosen``.
    """

    layers: int
    reduced: int
    routed: int
    hidden: int
    item_bytes: int
    heads: int | None = None
    kv_heads: int | None = None
    experts: int = 0
    chosen: int = 0
    block_weights_bytes: int = 0
    expert_weights_bytes: int = 0
    head_bytes: int = 0
    cached_item_bytes: float | None = None
    encodes: bool = False


def network_facts(generation: GenerationCount) -> NetworkFacts:
    """Return the facts that the rows of ``generation`` show."""
    phase = generation.phases[-1]
    rows = folded(phase.count, phase.phase)
    item = item_bytes(generation)
    tokens = generation.batch * phase.tokens
    types = {module.path: module.type for module in phase.count.modules}
    parts: dict[str, set[Part]] = defaultdict(set)
    routed = set()
    for row in phase.count.operators:
        if found := _BLOCK.search(row.module):
            part = part_of(row.module, row.name, row.category, phase=phase.phase, types=types)
            parts[found[1]].add(part)
            if is_grouped(row):
                routed.add(found[1])
    grouped = [row for row in rows if is_grouped(row)]
    held = [(row, weights_held(row, generation)) for row in rows]
    attention = [(row.name, sizes_in(row.shapes)) for row in rows if _is_attention(row)]
    query = next((sizes[0] for _, sizes in attention), None)
    # [batch, heads, tokens, depth], or [batch, tokens, heads, depth]
    kv_heads = next(
        (
            sizes[1][2 if name == FLASH else 1]
            for name, sizes in attention
            if name != KERNEL and len(sizes[1]) == 4
        ),
        None,
    )
    heads = [row for row in rows if row.part == "head" and row.matrix_flops]
    return NetworkFacts(
        layers=len(parts),
        reduced=sum(("attention" in found) + bool(found & {"MLP", "experts"}) for found in parts.values()),
        routed=len(routed),
        hidden=next(size[-1] for size in sizes_in(heads[-1].shapes) if len(size) > 1) if heads else 0,
        item_bytes=item,
        heads=prod(query[:-1]) // tokens if query else None,
        kv_heads=kv_heads,
        experts=sizes_in(grouped[0].shapes)[1][0] if grouped else 0,
        chosen=sizes_in(grouped[0].shapes)[0][0] // tokens if grouped else 0,
        block_weights_bytes=sum(size for row, size in held if _BLOCK.search(row.module)),
        expert_weights_bytes=sum(size for row, size in held if row in grouped),
        head_bytes=sum(size for row, size in held if row.part == "head"),
        cached_item_bytes=generation.cached_item_bytes,
        encodes=bool(_blocks(generation.phases[0]) - _blocks(phase)),
    )


def _blocks(phase: PhaseCount) -> set[str]:
    """The paths of the blocks that a phase runs."""
    found = (_BLOCK.search(row.module) for row in phase.count.operators)
    return {one.string[: one.end(1)] for one in found if one is not None}


def _is_attention(one: Operator) -> bool:
    """Whether the operator reads keys and values; scans have states instead."""
    return one.category == "attention" and "attention" in one.name


def _cached(one: Operator, item: float) -> int:
    """Bytes of the KV cache that a call of attention reads."""
    if not _is_attention(one):
        return 0
    sizes = sizes_in(one.shapes)
    numbers = sum(map(prod, sizes[1:2] if one.name == KERNEL else sizes[1:3]))
    return min(one.work.bytes_read, round(item * numbers))


# --- a device in a layout ---------------------------------------------------------------------------------


class _Shares(NamedTuple):
    """How the sequences of a batch are cut: ``replica`` of them in each replica, in ``micro`` micro-batches;
    ``share`` is the part of all sequences that is in a micro-batch. ``layers`` is the part of the layers that
    the longest stage has, ``least`` the shortest."""

    replica: int
    micro: int
    share: float
    layers: float
    least: float


def _shares(layout: Layout, batch: int, layers: int) -> _Shares:
    replica = ceil(batch / layout.data)
    micro = min(layout.pipeline, replica)
    longest = ceil(layers / layout.pipeline)
    shortest = layers // layout.pipeline
    whole = max(layers, 1)
    return _Shares(replica, micro, ceil(replica / micro) / batch, longest / whole, shortest / whole)


def cache_share(facts: NetworkFacts, tensor: int) -> float:
    """The part of the keys and values that one of ``tensor`` devices holds: at least one head; all, where
    they are not by heads."""
    return max(1, facts.kv_heads / tensor) / facts.kv_heads if facts.kv_heads else 1.0


def on_device(one: Operator, layout: Layout, facts: NetworkFacts, share: float, tokens: int) -> Operator:
    """What a device does of an operator for ``share`` of the sequences, of which all have ``tokens``."""
    if layout.devices == 1:
        return one
    tensor = layout.tensor if one.part in _SHARDED else 1
    read = weights_read(one, facts.item_bytes)
    cached = _cached(one, facts.cached_item_bytes or facts.item_bytes)
    spread = 1
    weights = read
    part = share
    if is_grouped(one):
        spread = layout.expert
        if spread > layout.data:  # whole experts
            tensor = 1
        part = (
            min(1.0, share * layout.data) if spread > 1 else share
        )  # tokens of all replicas come to the experts
        experts = sizes_in(one.shapes)[1][0]
        all_used, used = (experts_hit(experts, facts.chosen, round(part * tokens)) for part in (1, part))
        weights = round(weights * used / all_used) if all_used else weights
    work = one.work
    divided = tensor * spread
    other = (work.bytes_read - read - cached) * part / divided
    read = round(
        weights / divided + other + cached * part * (cache_share(facts, tensor) if tensor > 1 else 1)
    )
    written, matrix, vector = (
        round(of * part / divided) for of in (work.bytes_written, work.matrix_flops, work.other_flops)
    )
    figures = {"flops": matrix + vector, "matrix_flops": matrix, "bytes": read + written, "bytes_read": read}
    return replace(one, **{name: figure * one.calls for name, figure in figures.items()})


def bound_layouts(
    generation: GenerationCount,
    ceilings: Ceilings,
    link: Ceiling | None,
    layouts: Iterable[Layout],
    *,
    memory_bytes: int | None = None,
    like: Efficiencies | Calibrated | None = None,
) -> tuple[LayoutBound, ...]:
    """Return the generation in each of ``layouts``, on devices with these ``ceilings`` and ``memory_bytes``
    each, with predictions ``like`` what was measured.

    ``link`` is what a device reaches the others by, in one direction (``catalog.peer_link``); without one
    there are only layouts that send nothing.
    """
    facts = network_facts(generation)
    batch = generation.batch
    every = [(phase, folded(phase.count, phase.phase)) for phase in generation.phases]
    found = []
    for layout in layouts:
        if link is None and max(layout.tensor, layout.pipeline, layout.expert) > 1:
            continue
        shares = _shares(layout, batch, facts.layers)
        phases = tuple(
            _phase(phase, rows, layout, facts, shares, batch, ceilings, link, like) for phase, rows in every
        )
        weights, cache, activations = _memory(generation, layout, facts, shares)
        decode = next((phase for phase in phases if phase.name == "decode"), None)
        fits = weights + cache + activations <= memory_bytes if memory_bytes is not None else None
        calls = [phase.calls for phase in generation.phases]
        whole_s = sum(phase.expected_s * times for phase, times in zip(phases, calls, strict=True))
        found.append(
            LayoutBound(
                layout=layout,
                weights_bytes=weights,
                kv_cache_bytes=cache,
                activations_bytes=activations,
                phases=phases,
                tokens_per_s=batch / decode.lower_bound_s
                if decode and decode.lower_bound_s and fits is not False
                else None,
                estimate_tokens_per_s=batch / decode.estimate_s
                if decode and decode.estimate_s and fits is not False
                else None,
                sustained_tokens_per_s=batch * sum(calls) / whole_s
                if whole_s and fits is not False
                else None,
                fits=fits,
            )
        )
    return tuple(found)


def _memory(
    generation: GenerationCount, layout: Layout, facts: NetworkFacts, shares: _Shares
) -> tuple[int, int, int]:
    """Weights, KV cache and activations of the device that has most layers."""
    outside = max(0, generation.parameter_bytes - facts.block_weights_bytes)
    if layout.pipeline > 1 and outside > facts.head_bytes:  # embedding and head are in different stages
        outside = max(facts.head_bytes, outside - facts.head_bytes)
    # Whole experts are not cut as the tensors are.
    experts = facts.expert_weights_bytes / layout.expert * max(1, layout.expert // layout.data)
    weights = (facts.block_weights_bytes - facts.expert_weights_bytes + experts) * shares.layers + outside
    cache = (
        (generation.kv_bytes or 0)
        * shares.replica
        / generation.batch
        * cache_share(facts, layout.tensor)
        * shares.layers
    )
    return ceil(weights / layout.tensor), ceil(cache), ceil(generation.activation_bytes * shares.share)


def _phase(
    phase: PhaseCount,
    rows: Sequence[Operator],
    layout: Layout,
    facts: NetworkFacts,
    shares: _Shares,
    batch: int,
    ceilings: Ceilings,
    link: Ceiling | None,
    like: Efficiencies | Calibrated | None,
) -> LayoutPhase:
    tokens = batch * phase.tokens
    sums = {True: 0.0, False: 0.0}
    parts: dict[bool, list[tuple[Estimate, float]]] = {True: [], False: []}
    for row in rows:
        if not row.matrix_flops and like is None:
            continue
        bound = bound_operator(on_device(row, layout, facts, shares.share, tokens), ceilings, like)
        is_inside = _BLOCK.search(row.module) is not None
        sums[is_inside] += (bound.lower_bound_s or 0.0) * bool(row.matrix_flops)
        parts[is_inside] += estimates_of([row], [bound])
    message = shares.share * tokens * facts.hidden * facts.item_bytes
    collectives = facts.reduced * message * (bus_factor("allreduce", layout.tensor) or 0)
    exchanging = min(layout.expert, layout.data)
    collectives += (
        2 * facts.routed * message * facts.chosen * (bus_factor("alltoall", exchanging) or 0) / layout.tensor
    )
    handed_on = message if layout.pipeline > 1 else 0.0
    sent = shares.micro * (collectives * shares.layers + handed_on)
    rate = link.value if link is not None else 1.0

    def last(inside: float, outside: float, exposed_s: float, send_s: float) -> float:
        """When the last micro-batch is ready, if its layers, the rest, this much of its collectives and each
        message take these times."""
        whole = inside + outside + exposed_s + (layout.pipeline - 1) * send_s
        stage = (
            max(inside * shares.layers, inside * shares.least + outside) + exposed_s * shares.layers + send_s
        )
        return (
            max(whole, shares.micro * stage)
            if phase.phase == "decode"
            else whole + (shares.micro - 1) * stage
        )

    hidden_s = sum(sums.values()) if phase.phase == "prefill" else 0.0
    computed_s = last(sums[True], sums[False], 0.0, 0.0)
    bound_s = last(sums[True], sums[False], max(0.0, collectives / rate - hidden_s), handed_on / rate)
    estimate_s = None
    if like is not None:
        started_s = _COLLECTIVE_S * (
            facts.reduced * (layout.tensor > 1) + 2 * facts.routed * (exchanging > 1)
        )
        inside, outside = (
            like.total(parts[where]).time_s if parts[where] else 0.0 for where in (True, False)
        )
        send_s = (handed_on / rate + _COLLECTIVE_S) * (layout.pipeline > 1)
        estimate_s = max(bound_s, last(inside, outside, collectives / rate + started_s, send_s))
    return LayoutPhase(
        name=phase.phase,
        computed_s=computed_s,
        sent_bytes=sent,
        communication_s=sent / rate,
        exposed_s=bound_s - computed_s,
        lower_bound_s=bound_s,
        estimate_s=estimate_s,
    )
