"""Advice on operators of one kind that stay far below their own bound, where no other rule says why."""

from __future__ import annotations

from collections.abc import Callable

from rooflines.roofline.advice.case import Advice, Case, Ran
from rooflines.roofline.advice.setting import Setting, larger_batch, setting
from rooflines.roofline.advice.small_kernels import FUSABLE, fewer_launches, of_library
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.verdict import efficiency_of, plural, runs
from rooflines.units import percent, seconds

CATEGORIES = ("convolution", "matmul", "attention", "moe", "normalisation", "element-wise", "reduction", "copy", "optimizer")
# Operators that reach more of their bound than this run well.
GOOD = 0.8
# vLLM's compiled operators.
_VLLM = ("_C", "_C_cache_ops", "_moe_C", "_rocm_C", "vllm")
# Autograd's nodes and the ranges of SGLang's profiler do not name the library.
_UNNAMED = ("torch", "sglang_profiler")
# A call that takes longer than this fills the device: a larger batch makes it longer, not better.
LARGE_S = 50e-6
_LARGE = {
    "convolution": "torch.backends.cudnn.benchmark = True, which measures the algorithms for each size; channels-last images",
    "moe": "more tokens per step if the layer is memory-bound; otherwise kernels tuned for this device (vLLM: benchmark_moe.py --tune)",
    "normalisation": "half precision and channels-last images, for which libraries have faster kernels",
}


def slow(category: str) -> Callable[[Case], Advice | None]:
    """The rule for one category."""

    def rule(case: Case) -> Advice | None:
        every = [row for row in case.analysis.operators if row.category == category and row.efficiency is not None]
        found = case.ran(lambda one: one.category == category and one.headroom_s is not None and _is_judged(one))
        rows = tuple(one.row for one in found if isinstance(one.row, OperatorRow))
        efficiency = efficiency_of(rows)
        if efficiency is None or efficiency > GOOD or not case.judged:
            return None
        headroom = {one.key: one.headroom_s or 0.0 for one in found}
        time_s, lost_s = sum(row.time_s for row in rows), sum(row.headroom_s or 0.0 for row in rows)
        worst = max(rows, key=lambda row: row.headroom_s or 0.0)
        where = f"{worst.name} in {worst.module}" if worst.module else worst.name
        name = f"{'the other ' if len(rows) < len(every) else ''}{plural(category)}".replace("other the ", "other steps of the ")
        return Advice(
            title=f"{name[0].upper()}{name[1:]} {runs(category)} at {percent(efficiency)} of the bound",
            saves_s=sum(headroom.values()),
            evidence=(
                f"{seconds(time_s)} {case.per}, the roofline allows {seconds(time_s - lost_s)}; "
                f"largest loss: {where} ({worst.shapes}): {seconds(worst.time_s)}, "
                f"{percent(worst.efficiency or 0.0)} of its bound"
            ),
            suggestion=_remedy(category, case, found),
            of=headroom,
        )

    rule.__name__ = f"slow_{category.replace('-', '_')}"
    return rule


def _is_judged(one: Ran) -> bool:
    """A copy between host and device depends on the link, and has a separate rule."""
    return isinstance(one.row, OperatorRow) and one.row.efficiency is not None and not one.transfers


def _remedy(category: str, case: Case, found: list[Ran]) -> Setting | str:
    own = [one for one in found if of_library(one)]
    if own and category != "moe" and sum(one.headroom_s or 0.0 for one in own) > 0.5 * sum(one.headroom_s or 0.0 for one in found):
        return _newer_library(own)
    workload, batch_norm = case.analysis.workload, any("batch_norm" in one.row.name for one in found)
    if category in ("convolution", "normalisation", "reduction") and not workload.channels_last and workload.image_size:
        return setting(case.analysis, "channels_last", True)
    if category == "attention":
        return _faster_attention(found)
    if category == "optimizer":
        return "torch.optim with fused=True: one pass over the parameters and their states"
    if category == "copy" and all(one.row.module.startswith("DistributedDataParallel") for one in found):
        return "DistributedDataParallel(gradient_as_bucket_view=True, broadcast_buffers=False)"
    if category in FUSABLE and not batch_norm:
        return (
            "graph breaks (TORCH_LOGS=graph_breaks): what they separate is not fused"
            if case.analysis.compiled
            else fewer_launches(case, found)
        )
    calls = sum(one.row.calls for one in found)
    if not case.on_device or sum(one.row.time_s for one in found) < LARGE_S * calls:
        return larger_batch(case.analysis)
    return _LARGE.get(category, _LARGE["normalisation"]) if category != "matmul" else _faster_products(found)


def _newer_library(found: list[Ran]) -> str:
    worst = max(found, key=lambda one: one.headroom_s or 0.0)
    namespace = worst.row.name.partition("::")[0]
    library = "vLLM" if namespace in _VLLM else "the library" if namespace in _UNNAMED else namespace
    return f"a newer release of {library}, or tune {library} for these sizes (PyTorch's settings do not affect its kernels)"


def _faster_attention(found: list[Ran]) -> str:
    if all(any(word in one.row.name for word in ("flash", "efficient", "cudnn")) for one in found):
        return "a newer library for fused attention (FlashAttention 3 on Hopper, AITER on AMD): it runs fused already"
    return "a fused backend (torch.nn.attention.sdpa_kernel), which needs half precision and no dense mask"


def _faster_products(found: list[Ran]) -> str:
    if any(kernel.name.startswith("Cijk_") for one in found for kernel in one.kernels):
        return "PYTORCH_TUNABLEOP_ENABLED=1, which measures the kernels of the library for each size"
    return "sizes that are multiples of 128, for which the library has its fastest kernels, and fewer, larger products"
