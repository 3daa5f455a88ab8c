"""Advice on copies: between host and device, within the device, and to another layout of images."""

from __future__ import annotations

import re

from rooflines.roofline.advise.case import Advice, Case, Ran, calls_of, setting, total, whole
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.roofline.predict.rows import CONVERTS, conversion_s
from rooflines.units import seconds

_CONVERSIONS = ("aten::to", "aten::_to_copy", "aten::clone", "aten::contiguous", "aten::copy_")
_CONVERTED = (
    "check whether the caller needs the copy: one dtype throughout, views instead of .contiguous() "
    "and .clone()"
)
_OWN_COPY = (
    "check whether the caller needs a copy of its own: gradients that another tensor shares, "
    "inputs that a graph keeps "
    "(torch._dynamo.mark_static_address leaves them in place), .clone()"
)
_TO_DEVICE = "{} and .to(device, non_blocking=True), so that the copy overlaps with other work"
_TO_HOST = (
    "copy results to pinned memory with non_blocking=True (torch.empty(..., pin_memory=True).copy_), "
    "and read them a step later"
)


def pageable(case: Case) -> Advice | None:
    """Copies from or to pageable memory: they do not overlap with other work, and the host waits for them."""
    # What nothing hides of them; where that is not known, none.
    found = {
        one: min(one.left_s, _pageable_s(one), one.row.exposed_s or 0.0)
        for one in case.ran(lambda one: _pageable_s(one) > 0)
    }
    time_s = sum(map(_pageable_s, found))
    exposed_s = sum(found.values())
    # Nothing but other work hides what the link needs.
    least_s = sum(one.row.lower_bound_s or 0.0 for one in found)
    saves_s = exposed_s - max(0.0, least_s - case.timeline.compute_s)
    if saves_s <= 0:
        return None
    worst = max(found, key=lambda one: found[one])
    loads = case.division.loader_s
    pinned = "DataLoader(pin_memory=True)" if loads else "tensors in pinned memory (tensor.pin_memory())"
    return Advice(
        "Copy from pinned memory",
        saves_s,
        f"copies between pageable memory and the device take {seconds(time_s)} {case.per}, of "
        f"which {seconds(exposed_s)} "
        f"({case.share(exposed_s)}) run while nothing is computed; the longest is "
        f"{worst.row.name}{worst.where}"
        f"{f' ({worst.row.shapes})' if worst.row.shapes else ''}",
        _TO_HOST if any("DtoH" in kernel.name for kernel in worst.kernels) else _TO_DEVICE.format(pinned),
        {one.key: part for one, part in found.items()},
    )


def of_ddp(case: Case) -> Advice | None:
    """Copies that DistributedDataParallel makes itself: between gradients and its buckets, and of buffers
    that it broadcasts, for which the device may wait as well."""
    buckets = case.ran(
        lambda one: (
            one.row.name in _CONVERSIONS and (one.row.caller or "").startswith("torch.distributed.ddp.")
        )
    )
    modules = {one.row.module for one in case.every()} | {
        f"{module.path} {module.type}" for module in case.analysis.modules
    }
    wrappers = {
        name.partition(" ")[0] for name in modules if "DistributedDataParallel" in name.rpartition(".")[2]
    } - {""}
    own = (*_CONVERSIONS, "aten::cat")  # buffers are packed for the broadcast
    buffers = case.ran(lambda one: one.row.name in own and one.row.module in wrappers and one not in buckets)
    idle_s = case.host_work("broadcast")[1] if wrappers or buckets else 0.0
    parts = [
        (total(buckets), "gradients and their buckets", "gradient_as_bucket_view=True"),
        (
            total(buffers) + idle_s,
            "buffers that are broadcast",
            "broadcast_buffers=False if the ranks may differ in them",
        ),
    ]
    said = [(what, remedy) for part_s, what, remedy in sorted(parts, reverse=True) if part_s]
    if not said:
        return None
    time_s = total(buckets + buffers) + idle_s
    waits = (
        f", of which the device waits {seconds(idle_s)} for the host to pack and unpack them"
        if idle_s
        else ""
    )
    return Advice(
        "Remove the copies of DistributedDataParallel",
        time_s,
        f"copies of {' and of '.join(what for what, _ in said)} take {case.cost(time_s)}{waits}",
        f"DistributedDataParallel with {', and '.join(remedy for _, remedy in said)}",
        whole(buckets + buffers) | ({"host_bound": idle_s} if idle_s else {}),
    )


def on_device(case: Case) -> Advice | None:
    """Copies within the device: to another dtype or layout, or as they are. A caller that needs none saves
    their whole time."""
    found = case.ran(
        lambda one: one.row.name in _CONVERSIONS and one.row.phase != "optimizer" and not one.transfers
    )
    if not case.on_device or not found:
        return None
    time_s = total(found)
    callers = longest_first(
        (
            one.row.module
            or f"{one.row.name} ({one.row.shapes or 'no shapes'})"
            + (f" in {one.row.caller}" if one.row.caller else ""),
            one.left_s,
        )
        for one in found
    )
    listed = ", ".join(f"{caller} {seconds(callers[caller])}" for caller in [*callers][:3])
    # What the runtime copies has one dtype and one layout.
    same_s = total(
        one
        for one in found
        if one.kernels and all(kernel.name.startswith("Memcpy") for kernel in one.kernels)
    )
    kinds = ", ".join(
        f"{seconds(part_s)} {what}"
        for part_s, what in (
            (time_s - same_s, "to another dtype or layout"),
            (same_s, "of the same dtype and layout"),
        )
        if part_s > 0
    )
    return Advice(
        "Remove copies within the device",
        time_s,
        f"{calls_of(found):,.0f} copies take {seconds(time_s)} {case.per} "
        f"({case.share(time_s)}; {kinds}), "
        f"most of it in {listed}",
        _OWN_COPY if same_s > 0.5 * time_s else _CONVERTED,
        whole(found),
    )


def _pageable_s(one: Ran) -> float:
    return sum(
        kernel.time_s
        for kernel in one.kernels
        if kernel.name.startswith("Memcpy") and "Pageable" in kernel.name
    )


_TO_FIRST = re.compile(r"nhwc(?:To|2)nchw", re.I)
_TO_LAST = re.compile(r"nchw(?:To|2)nhwc", re.I)


def channels_last(case: Case) -> bool:
    """Whether the images are channels-last already: a library converts them to channels-first at least as
    often as from it."""
    to_first, to_last = (
        sum(kernel.calls for kernel in case.kernels() if way.search(kernel.name))
        for way in (_TO_FIRST, _TO_LAST)
    )
    return case.analysis.workload.channels_last or 0 < to_first >= to_last


def conversions(case: Case) -> Advice | None:
    """Conversions between channels-first and channels-last that a library runs around its convolutions of
    images in channels-first."""
    found = {
        one: min(one.left_s, conversion_s(one.row))
        for one in case.ran()
        if any(CONVERTS.search(kernel.name) for kernel in one.kernels)
    }
    kernels = [kernel for one in found for kernel in one.kernels if CONVERTS.search(kernel.name)]
    if not found or channels_last(case):
        return None
    time_s = sum(found.values())
    around_s = sum(one.row.time_s for one in found)
    worst = max(kernels, key=lambda kernel: kernel.time_s)
    return Advice(
        "Keep the images in channels-last layout",
        time_s,
        f"kernels that only change the layout take {case.cost(time_s)}, part of the "
        f"{seconds(around_s)} of the operators that call them; "
        f"{sum(kernel.calls for kernel in kernels):,.0f} calls, most of the "
        f"time in {short_kernel(worst.name)}",
        setting(case.analysis, "channels_last", True),
        {one.key: part for one, part in found.items()},
    )
