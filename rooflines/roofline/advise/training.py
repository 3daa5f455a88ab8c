"""Advice on a training: memory that comes and goes with every step, activations that are computed twice, the
optimizer."""

from __future__ import annotations

from rooflines.roofline.advise.case import Advice, Case, calls_of, total, whole
from rooflines.roofline.analysis import Key, OperatorRow
from rooflines.roofline.judge.step.interference import paging, paging_s
from rooflines.roofline.predict.rows import in_loop
from rooflines.units import binary_bytes, seconds

# Memory of which more is in use has no room for the activations that checkpointing leaves out.
FULL = 0.8
# Page faults a step worth a sentence: 16 MiB of pages of 4 KiB, taken from the system and given back in every
# step.
PAGING_FAULTS = 4000


_DROPS = {"aten::native_dropout", "aten::_fused_dropout"}
_COUNTS = ("aten::add_", "scalar, scalar", None)
_BATCH_NORMS = {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}
# Kernels of batch normalization that take the statistics of the batch.
_OF_BATCH = ("bn_fw_tr", "batch_norm_collect_statistics")


def evaluating(case: Case) -> Advice | None:
    """Dropout and batch normalization in training mode where nothing is differentiated."""
    if case.analysis.workload.mode != "inference":
        return None
    names = {one.row.name for one in case.every()}
    drops = bool(names & _DROPS) or {"aten::dropout", "aten::bernoulli_"} <= names
    # Each call of batch normalization in training mode counts its batches, in an integer.
    added = [row for row in case.analysis.operators if (row.name, row.shapes, row.precision) == _COUNTS]
    counted = sum(row.calls for row in added)
    normalized = sum(one.row.calls for one in case.every() if one.row.name in _BATCH_NORMS)
    normalizes = 0 < normalized <= counted or any(
        part in kernel.name for kernel in case.kernels() for part in _OF_BATCH
    )
    found = " and ".join(["dropout"] * drops + ["batch normalization"] * normalizes)
    if not found:
        return None
    return Advice(
        "Call model.eval(), if this is inference",
        None,
        f"{found} in training mode, and nothing is differentiated: the results are not those of inference",
        "model.eval() and torch.inference_mode() around the forward pass (nothing where it is the forward "
        "pass of a training)",
        {},
    )


def page_faults(case: Case) -> Advice | None:
    """Memory that the C library gives back to the system after use and takes again in the next step."""
    found = case.analysis.page_faults
    cost_s = paging_s(case.analysis)
    if (
        found is None
        or found.page_s is None
        or not cost_s
        or (found.timed < PAGING_FAULTS and not paging(case.analysis))
    ):
        return None
    traced = f" (the traced ones {round(found.traced):,})" if found.traced is not None else ""
    return Advice(
        "Keep the memory between steps",
        cost_s,
        f"the timed steps took {round(found.timed):,} pages each from the system{traced}: memory "
        "that the C library had "
        f"returned to it; one took {seconds(found.page_s)} between the passes",
        "MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_MMAP_THRESHOLD_=8000000000 in the environment "
        "(glibc), or jemalloc",
        {"page_faults": cost_s},
    )


def recomputed(case: Case) -> Advice | None:
    """Activations that checkpointing computes again in the backward pass, on a device whose memory is not
    full without them."""
    found = case.analysis.recomputation
    if found is None or not found.time_s:
        return None
    # The rows of the backward pass that the forward pass has as well.
    forward = {(one.row.name, one.row.shapes) for one in case.ran(lambda one: one.row.phase == "forward")}
    backward = case.ran(
        lambda one: (
            one.row.phase == "backward"
            and isinstance(one.row, OperatorRow)
            and "backward" not in one.row.name
        )
    )
    again = {one.key: one.left_s for one in backward if (one.row.name, one.row.shapes) in forward}
    saves_s = min(found.time_s, sum(again.values()))
    memory = case.analysis.memory
    room = case.analysis.environment.device_memory_bytes
    used = memory.peak_bytes / room if memory is not None and memory.peak_bytes and room else None
    if used is not None and used > FULL:
        return None
    unknown = "if the activations fit into memory: " if used is None else ""
    peak = (
        f"; peak memory is {binary_bytes(memory.peak_bytes)}"
        if memory is not None and memory.peak_bytes
        else ""
    )
    of = f" of {binary_bytes(room)}" if peak and room else ""
    return Advice(
        "Recompute less in the backward pass",
        saves_s,
        "operators of the forward pass run again inside the backward pass (activation "
        f"checkpointing): {found.calls:,.0f} calls, "
        f"{case.cost(found.time_s)}{peak}{of}",
        f"{unknown}checkpoint only as many blocks as memory needs, or keep the products (context_fn)",
        again,
    )


# An update in a loop over the parameters has several calls for each of them.
MANY_CALLS = 50
_FILLS = ("aten::zero_", "aten::_foreach_zero_", "aten::fill_")


def zeroed_gradients(case: Case) -> Advice | None:
    """Gradients that are filled with zeros, which the backward pass then adds to; a single element is the
    flag of a scaler."""
    found = case.ran(
        lambda one: one.row.phase == "optimizer" and one.row.name in _FILLS and set(one.tensors) != {(1,)}
    )
    if not found:
        return None
    time_s = total(found)
    return Advice(
        "Drop the gradients instead of filling them with zeros",
        time_s,
        f"fills with zeros in the optimizer: {calls_of(found):,.0f} calls, {case.cost(time_s)}",
        "optimizer.zero_grad(set_to_none=True): the backward pass then writes gradients instead "
        "of adding them to zeros",
        whole(found),
    )


def loop(case: Case) -> Advice | None:
    """An update with one small operator after another for each parameter."""
    found = case.ran(lambda one: in_loop(one.row))
    calls = sum(
        sum(kernel.calls for kernel in one.kernels) if one.kernels else one.row.calls for one in found
    )
    if calls < MANY_CALLS:
        return None
    of: dict[Key, float] = {one.key: one.headroom_s for one in found if one.headroom_s}
    _, idle_s = case.host_work("optimizer")
    waits = f", and the device waits {seconds(idle_s)} for their launches" if idle_s else ""
    return Advice(
        "Update all parameters at once",
        sum(of.values()) + idle_s,
        f"the optimizer makes {calls:,.0f} small calls {case.per}: {seconds(total(found))} "
        f"({case.share(total(found))}){waits}",
        "torch.optim with foreach=True or fused=True, where the optimizer has it: a few kernels "
        "for all parameters",
        {**of, "host_bound": idle_s},
    )
