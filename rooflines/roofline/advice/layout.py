"""Advice on kernels that only change the layout of images."""

from __future__ import annotations

import re

from rooflines.roofline.advice.case import Advice, Case, Ran
from rooflines.roofline.advice.setting import setting
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import seconds

_CONVERTS = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose|SubTensorOp|transpose_NHWC|transpose_NCHW", re.I)

_TO_FIRST, _TO_LAST = re.compile(r"nhwc(?:To|2)nchw", re.I), re.compile(r"nchw(?:To|2)nhwc", re.I)


def conversion_s(row: Ran | OperatorRow) -> float:
    """Return the time of the kernels of ``row`` that only change the layout."""
    return sum(kernel.time_s for kernel in row.kernels if _CONVERTS.search(kernel.name))


def channels_last(case: Case) -> bool:
    """Whether the images are channels-last already: a library converts them to channels-first at least as often as from it."""
    kernels = [kernel for one in case.every() for kernel in one.kernels]
    to_first, to_last = (sum(kernel.calls for kernel in kernels if way.search(kernel.name)) for way in (_TO_FIRST, _TO_LAST))
    return case.analysis.workload.channels_last or 0 < to_first >= to_last


def conversions(case: Case) -> Advice | None:
    """Conversions between channels-first and channels-last that a library runs around its convolutions of images in channels-first."""
    found = {
        one.key: (one, min(one.left_s, conversion_s(one)))
        for one in case.ran()
        if any(_CONVERTS.search(kernel.name) for kernel in one.kernels)
    }
    kernels = [kernel for one, _ in found.values() for kernel in one.kernels if _CONVERTS.search(kernel.name)]
    if not found or channels_last(case):
        return None
    time_s = sum(part for _, part in found.values())
    worst = max(kernels, key=lambda kernel: kernel.time_s)
    around_s = sum(one.row.time_s for one, _ in found.values())
    return Advice(
        title="Keep the images in channels-last layout",
        saves_s=time_s,
        evidence=(
            f"kernels that only change the layout take {seconds(time_s)} {case.per} ({case.share(time_s)}), part of the "
            f"{seconds(around_s)} of the operators that call them; {sum(kernel.calls for kernel in kernels):,.0f} calls, most of the "
            f"time in {short_kernel(worst.name)}"
        ),
        suggestion=setting(case.analysis, "channels_last", True),
        of={key: part for key, (_, part) in found.items()},
    )
