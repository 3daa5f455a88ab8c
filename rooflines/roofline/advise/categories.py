"""Advice on operators of one kind that stay far below their own bound, where no other rule says why."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from rooflines.roofline.advise.case import (
    Advice,
    Case,
    Ran,
    Rule,
    Setting,
    calls_of,
    computes,
    headroom,
    larger_batch,
    setting,
    total,
)
from rooflines.roofline.advise.copies import channels_last
from rooflines.roofline.advise.matrix import is_hopper
from rooflines.roofline.advise.small_kernels import fewer_launches, fills, of_library
from rooflines.roofline.advise.verdict import efficiency_of, plural
from rooflines.roofline.analysis import CATEGORIES as ALL_CATEGORIES
from rooflines.roofline.analysis import Key
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.roofline.judge.shapes import path_pattern, repeated_key
from rooflines.roofline.predict.rows import FUSABLE, updates_at_once
from rooflines.units import percent, seconds

# Those that a change of the operators themselves can help.
CATEGORIES = tuple(category for category in ALL_CATEGORIES if category not in ("communication", "other"))
# Operators that reach more of their bound than this run well.
GOOD = 0.8
# vLLM's compiled operators.
_VLLM = ("_C", "_C_cache_ops", "_moe_C", "_rocm_C", "vllm")
# Autograd's nodes and the ranges of SGLang's profiler do not name the library; FBGEMM's are known by what
# they look up.
_UNNAMED = ("torch", "sglang_profiler")
_FBGEMM = re.compile("Split.*Lookup|split_embedding")
# A call that takes longer than this fills the device: a larger batch makes it longer, not better.
LARGE_S = 50e-6
# A library's tiles of 128 waste so much of a size that is just above a multiple of them.
TILE = 128
WASTE = 1.1
# What to do, by a word of the remedy; the first one counts.
_TITLES = {
    "cudnn.benchmark": "Compare algorithms for {}",
    "channels": "Use the channels-last layout for the images of {}",
    "max-autotune": "Measure other kernels for {}",
    "TUNABLEOP": "Measure other kernels for {}",
    "multiples of": "Choose sizes that fill the tiles of {}",
    "newer release": "Try a newer library for {}",
    "tuned for": "Tune the kernels of {} for this device",
    "need_weights": "Use a fused kernel for {}",
    "a fused backend": "Use a fused kernel for {}",
    "runs fused already": "Try another kernel for {}",
    "the server's graphs": "Launch {} in graphs",
    "fused=True": "Fuse {}",
    "compile": "Fuse {}",
    "graph breaks": "Fuse {}",
    "": "Give {} more work in a call",
}
_MAKER = re.compile(
    r"\((Tensile|CK|AITER|vLLM|TensorRT-LLM|FlashInfer|triton_kernels|cuBLAS|cuDNN|MIOpen)[,)]"
)
_RENAMED = {"Tensile": "hipBLASLt", "CK": "Composable Kernel", "fbgemm": "FBGEMM"}


def slow(category: str) -> Rule:
    """The rule for one category."""

    def rule(case: Case) -> Advice | None:
        every = [
            row for row in case.analysis.operators if row.category == category and row.efficiency is not None
        ]
        # Steps of the optimizer are in its phase, where one is known; the clipping of gradients is not.
        if phases := {row.phase for row in every} & {category}:
            every = [row for row in every if row.phase in phases]
        # A copy between host and device depends on the link, and has a separate rule.
        found = case.ran(
            lambda one: (
                one.category == category
                and one.row.efficiency is not None
                and not one.transfers
                and (not phases or one.row.phase in phases)
            )
        )
        efficiency = efficiency_of(one.row for one in found)
        if efficiency is None or efficiency > GOOD or not case.judged:
            return None
        lost = {one.key: _lost_s(case, one) for one in found}
        # The figures of the operators are not those of the time that other advice has left.
        entire = [one.whole() for one in found]
        saves_s = sum(lost.values())
        time_s = total(entire)
        attained_s = time_s - sum(_lost_s(case, one) for one in entire)
        attained = (
            f", {seconds(attained_s)} at the rate that products attain here"
            if attained_s > time_s - headroom(entire)
            else ""
        )
        suggestion = _remedy(category, case, found)
        if saves_s <= 0 or suggestion is None:
            return None
        title = next(title for word, title in _TITLES.items() if word in str(suggestion))
        name = f"{'the other ' if len(found) < len(every) else ''}{plural(category)}".replace(
            "other the ", "other steps of the "
        )
        return Advice(
            title.format(name),
            saves_s,
            f"{seconds(time_s)} {case.per} at {percent(efficiency)} efficiency{attained}; largest loss: "
            f"{_worst(found, lost)}",
            suggestion,
            lost,
            changes="work"
            if category in (*FUSABLE, "optimizer") and "channels" not in str(suggestion)
            else "kernels",
        )

    rule.__name__ = f"slow_{category.replace('-', '_')}"
    return rule


def _worst(found: list[Ran], lost: Mapping[Key, float]) -> str:
    """The operator that loses most in all layers together: where it is, its calls, the mean time of one and
    its efficiency."""
    every = grouped(found, lambda one: repeated_key(one.row))
    most = max(every.values(), key=lambda members: sum(lost[one.key] for one in members))
    worst = [one.row for one in most]
    time_s = sum(row.time_s for row in worst)
    calls = sum(row.calls for row in worst)
    module = path_pattern([row.module for row in worst])
    lines = longest_first((one.place, one.share * row.time_s) for row in worst for one in row.lines)
    line = next(iter(lines), "")
    where = f"{worst[0].name}{f' in {module}' if module else ''}{f' at {line}' if line else ''}"
    many = f"{calls:,.0f}" if calls >= 1 else f"{calls:.2g}"
    return f"{where} ({many} × {seconds(time_s / calls)} at {percent(efficiency_of(worst) or 0.0)})"


def _lost_s(case: Case, one: Ran) -> float:
    """The time above the bound, for arithmetic above what products attain on this device."""
    row = one.row
    return one.saved((row.lower_bound_s or 0.0) / (case.attainable(row.precision) if computes(row) else 1.0))


def _remedy(category: str, case: Case, found: list[Ran]) -> Setting | str | None:
    """What helps; None where the trace shows that it is in use already, or that it does not apply."""
    lost_s = headroom(found)
    own = [one for one in found if of_library(one)]
    if own and category != "moe" and headroom(own) > 0.5 * lost_s:
        return _newer_library(own)
    analysis = case.analysis
    batch_norm = any("batch_norm" in one.row.name for one in found)
    if (
        category in ("convolution", "normalization", "reduction")
        and analysis.workload.image_size
        and not channels_last(case)
    ):
        return setting(analysis, "channels_last", True)
    if category == "attention":
        return _faster_attention(case, found)
    if category == "optimizer":
        return (
            None
            if all(updates_at_once(one.row) for one in found)
            else "torch.optim with fused=True: one pass over parameters and states"
        )
    if category in FUSABLE and not batch_norm:
        if not analysis.compiled:
            return fewer_launches(case, found)
        outside = [
            one for one in found if not any(kernel.name.startswith("triton_") for kernel in one.kernels)
        ]
        breaks = "graph breaks (TORCH_LOGS=graph_breaks): what they separate is not fused"
        return breaks if headroom(outside) > 0.5 * lost_s else None
    short = sum(one.row.time_s for one in found) < LARGE_S * calls_of(found)
    if not case.on_device or (short and not fills(case, found) and not _by_channel(found)):
        return larger_batch(analysis)
    if category == "matmul":
        return _faster_products(case, found)
    return _tuned_experts(found) if category == "moe" else _faster_images(category, case, found)


def _by_channel(found: list[Ran]) -> bool:
    """Whether most of the loss is in kernels with a block for each channel, whose number does not grow with
    the batch."""
    rows = [one for one in found if one.kernels and one.tensors and len(one.tensors[0]) == 4]
    alone = [one for one in rows if math.prod(one.kernels[0].grid or ()) == one.tensors[0][1]]
    return headroom(alone) > 0.5 * headroom(found)


def _newer_library(found: list[Ran]) -> str | None:
    """The library that the longest kernel belongs to, where its name says it, else that of the operator; None
    where neither does."""
    worst = max(found, key=lambda one: one.headroom_s)
    namespace, of_operator, _ = worst.row.name.partition("::")
    library = (
        "vLLM"
        if namespace in _VLLM
        else "FBGEMM"
        if _FBGEMM.search(worst.row.name)
        else _RENAMED.get(namespace, namespace)
    )
    named = _MAKER.search(short_kernel(worst.kernels[0].name)) if worst.kernels else None
    maker = _RENAMED.get(named[1], named[1]) if named else library
    if maker in _UNNAMED:
        return None
    other = of_operator and library not in _UNNAMED and maker.casefold() != library.casefold()
    calls = f", whose kernel {library} calls" if other else ""
    return (
        f"a newer release of {maker}{calls}, or tune {maker} for these sizes (PyTorch's settings do "
        "not affect its kernels)"
    )


def _faster_attention(case: Case, found: list[Ran]) -> Setting | str | None:
    needs = ", which needs half precision and no dense mask" if case.on_cuda else ""
    names = [
        " ".join((one.row.name, *(short_kernel(kernel.name) for kernel in one.kernels[:1]))).lower()
        for one in found
    ]
    if all("native_multi_head" in name for name in names):
        return "need_weights=False in the calls of nn.MultiheadAttention, which computes the scores otherwise"
    if not all(
        any(word in name for word in ("flash", "efficient", "cudnn", "paged", "aiter", "fmha"))
        for name in names
    ):
        return f"a fused backend (torch.nn.attention.sdpa_kernel){needs}"
    if not case.on_cuda:
        return None if case.on_device else larger_batch(case.analysis)
    if case.kind == "hip":
        return None if all("aiter" in name for name in names) else "AITER's attention: it runs fused already"
    if is_hopper(case):
        newest = all("version 3" in name or "cudnn" in name for name in names)
        return (
            None
            if newest
            else "FlashAttention 3, or cuDNN's attention (SDPBackend.CUDNN_ATTENTION): it runs fused already"
        )
    return "compare the fused backends on this device (torch.nn.attention.sdpa_kernel): it runs fused already"


def _faster_products(case: Case, found: list[Ran]) -> str | None:
    if any(kernel.name.startswith("Cijk_") for one in found for kernel in one.kernels):
        return (
            "PYTORCH_TUNABLEOP_ENABLED=1 (if it is not set), which measures the kernels of the "
            "library for each size"
        )
    worst = max(found, key=lambda one: one.headroom_s)
    sizes = [
        size for size in worst.matrix_sizes if size > TILE and math.ceil(size / TILE) * TILE >= WASTE * size
    ]
    if sizes:
        return (
            f"sizes that are multiples of {TILE} instead of {', '.join(map(str, sizes[:4]))}: the "
            "library computes whole tiles"
        )
    if any(kernel.name.startswith(("triton_tem_", "triton_mm")) for kernel in case.kernels()):
        return None
    clock = "; check the clock (nvidia-smi -q -d CLOCK)" if case.kind == "cuda" else ""
    return f'torch.compile(mode="max-autotune"), which measures other kernels for each size{clock}'


def _tuned_experts(found: list[Ran]) -> str | None:
    worst = max(found, key=lambda one: one.headroom_s)
    if worst.row.bound == "memory":
        return "more tokens per step, which share the weights that are read, if their latency allows it"
    if any("fused_moe_kernel" in kernel.name for kernel in worst.kernels):
        return (
            "fused_moe_kernel tuned for this device (vLLM: benchmark_moe.py --tune; SGLang: "
            "tuning_fused_moe_triton.py)"
        )
    return _newer_library([worst])


def _faster_images(category: str, case: Case, found: list[Ran]) -> str | None:
    """Settings for convolutions and normalization of images that the kernels do not show to be in use."""
    last = channels_last(case) or any(
        "nhwc" in kernel.name.lower() for one in found for kernel in one.kernels
    )
    images = any(len(tensor) == 4 for one in found for tensor in one.tensors)
    searched = category == "convolution" and case.on_cuda
    measures = ["torch.backends.cudnn.benchmark = True (if it is not set): it measures algorithms"] * searched
    return "; ".join([*measures, *["channels-last images"] * (images and not last)]) or None
