"""Advice on matrix products that run on a kernel that is not the device's best."""

from __future__ import annotations

import math
import re

from rooflines.roofline.advice.case import Advice, Case, Key, Ran, computes, total, whole
from rooflines.roofline.analysis import Kernel, OperatorRow
from rooflines.roofline.kernel_names import short_kernel
from rooflines.units import seconds

_PRODUCTS = re.compile(r"aten::(mm|bmm|addmm|baddbmm|addbmm|matmul|linear|einsum|_scaled_mm)$")
_ALIGNED = re.compile(r"align([124])(?!\d)")
_SIMT = re.compile(r"(?:^|_)sgemm|simt|gemmSN|gemv2")
_HALF = re.compile(r"(?:^|[_<, ])(?:fp16|f16|bf16|half|h)(?=[_gs<>, ]|$)|__half|bfloat")
_HOPPER = re.compile(r"\bG?H(?:100|200|800|20)\b")
# Elements of 16 bytes: what tensor cores read at once in half precision.
MULTIPLE = 8
# Time of which no saving can be stated is worth a sentence from this share of a step on.
WORTH_UNKNOWN = 0.05


def fallback(case: Case) -> Advice | None:
    """Products on kernels for operands that are not aligned, of an older architecture or without tensor cores."""
    hopper = is_hopper(case)
    found = [(one, sizes) for one in case.ran(_is_product) if (sizes := culprits(one, hopper)) is not None]
    if not found:
        return _compiled(case, hopper)
    rows = [one for one, _ in found]
    time_s = total(rows)
    known = [(one, sizes) for one, sizes in found if isinstance(one.row, OperatorRow) and one.row.lower_bound_s is not None]
    fallbacks = [one.key for one in rows]
    saves_s = sum(_saved(case, one, sizes, fallbacks) for one, sizes in known) if known else None
    if saves_s is None and time_s < WORTH_UNKNOWN * case.step_s:
        return None
    worst, worst_sizes = max(found, key=lambda pair: pair[0].left_s)
    sizes = sorted({size for _, each in found for size in each})
    because = (
        f"; sizes that are not a multiple of {MULTIPLE}: {', '.join(map(str, sizes[:4]))}" if sizes else "; shapes are not recorded"
    )
    where = f" in {worst.row.module}" if worst.row.module else ""
    which = " and ".join(map(str, worst_sizes)) if worst_sizes else "each size of the products"
    return Advice(
        title="Pad the matrix products to aligned sizes",
        saves_s=saves_s,
        evidence=(
            f"matrix products on fallback kernels take {seconds(time_s)} {case.per} ({case.share(time_s)}){because}; the "
            f"longest is {worst.row.name}{where} ({worst.row.shapes or 'no shapes'}) on {short_kernel(worst.kernels[0].name)}"
        ),
        suggestion=f"pad {which} to a multiple of {MULTIPLE} (F.pad, or the width of the layer or the vocabulary)",
        of=whole(rows),
    )


def _compiled(case: Case, hopper: bool) -> Advice | None:
    """Fallback kernels inside functions that have no operators of their own: the sizes are not in the trace."""
    found = {one: kernels for one in case.ran(lambda one: not _is_product(one)) if (kernels := _in_compiled(one, hopper))}
    of = {one.key: min(one.left_s, sum(kernel.time_s for kernel in kernels)) for one, kernels in found.items()}
    time_s = sum(of.values())
    if not of or time_s < WORTH_UNKNOWN * case.step_s:
        return None
    longest = max((kernel for kernels in found.values() for kernel in kernels), key=lambda kernel: kernel.time_s)
    return Advice(
        title="Pad the matrix products to aligned sizes",
        saves_s=None,
        evidence=(
            f"matrix products on fallback kernels take {seconds(time_s)} {case.per} ({case.share(time_s)}); they run inside compiled "
            f"functions, so their sizes are not recorded; the longest is {short_kernel(longest.name)}"
        ),
        suggestion=f"pad each size of the products to a multiple of {MULTIPLE} (F.pad, embedding and layer widths)",
        of=of,
    )


def is_hopper(case: Case) -> bool:
    """Whether the device is an H100 or one of its kind, by its name or its kernels."""
    name, kernels = case.analysis.environment.device_name, (kernel for one in case.every() for kernel in one.kernels)
    return _HOPPER.search(name) is not None if name else any(kernel.name.startswith("sm90_") for kernel in kernels)


def _is_product(one: Ran) -> bool:
    return bool(one.kernels) and (one.category == "matmul" or _PRODUCTS.match(one.row.name) is not None)


def culprits(one: Ran, hopper: bool) -> list[int] | None:
    """The sizes that keep a product from the better kernels, empty where shapes are not recorded; None for a product that runs well."""
    if not one.kernels:
        return None
    name = one.kernels[0].name
    half = (one.row.precision in ("fp16", "bf16")) if isinstance(one.row, OperatorRow) else _HALF.search(name) is not None
    if not is_fallback(name, half=half, hopper=hopper):
        return None
    aligned = None if half and _SIMT.search(name) else _ALIGNED.search(name)
    sizes = {size for tensor in one.tensors if len(tensor) > 1 for size in tensor[-2:]}
    if not sizes:
        return []
    # A kernel for two elements at a time runs where a size is even and no multiple of four.
    step = int(aligned[1]) if aligned is not None else 0
    wrong = [size for size in sorted(sizes) if size % MULTIPLE and size > 1 and (not step or size % (2 * step) == step % (2 * step))]
    return wrong or None


def is_fallback(name: str, *, half: bool, hopper: bool) -> bool:
    """Whether a kernel is one for unaligned operands, without tensor cores in half precision, or of an older architecture."""
    aligned = _ALIGNED.search(name)
    if aligned is not None and (half or aligned[1] in "12"):
        return True
    return half and (_SIMT.search(name) is not None or (hopper and "s1688" in name))


def _in_compiled(one: Ran, hopper: bool) -> list[Kernel]:
    """The fallback kernels of a function without operators, such as a compiled one."""
    if isinstance(one.row, OperatorRow):
        return []
    return [kernel for kernel in one.kernels if is_fallback(kernel.name, half=_HALF.search(kernel.name) is not None, hopper=hopper)]


def _saved(case: Case, one: Ran, sizes: list[int], fallbacks: list[Key]) -> float:
    """The time above that of the padded product at the rate that the other products attain."""
    row = one.row
    assert isinstance(row, OperatorRow)
    assert row.lower_bound_s is not None
    padded = math.prod(math.ceil(size / MULTIPLE) * MULTIPLE / size for size in sizes)
    attained = case.attainable(row.precision, fallbacks) if computes(row) else 1.0
    return one.saved(row.lower_bound_s * padded / attained)
