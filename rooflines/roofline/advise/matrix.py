"""Advice on matrix work: products on the wrong kernel, attention written as products and a softmax,
precision."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from rooflines.device_specs.records import Ceiling, rate_unit
from rooflines.roofline.advise.case import Advice, Case, Ran, Setting, computes, setting, total, whole
from rooflines.roofline.advise.verdict import plural
from rooflines.roofline.analysis import Kernel, Key, OperatorRow, Row
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.count.kernel_names import matrix_precision, short_kernel
from rooflines.roofline.judge.bounds import place_on_roofline
from rooflines.roofline.judge.shapes import ITEM_BYTES, tensor_bytes
from rooflines.units import counted, seconds, si

_PRODUCTS = re.compile(r"aten::(mm|bmm|addmm|baddbmm|addbmm|matmul|linear|einsum|_scaled_mm)$")
_ALIGNED = re.compile(r"align([124])(?!\d)")
_SIMT = re.compile(r"(?:^|_)sgemm|simt|gemmSN|gemv2")
_HALF = re.compile(r"(?:^|[_<, ])(?:fp16|f16|bf16|half|h)(?=[_gs<>, ]|$)|__half|bfloat")
_HOPPER = re.compile(r"\bG?H(?:100|200|800|20)\b")
# Elements of 16 bytes: what tensor cores read at once in half precision.
MULTIPLE = 8
# Time of which no saving can be stated is worth a sentence from this share of a step on.
WORTH_UNKNOWN = 0.05
# A roof that is less far above another one is none to change a precision for.
WORTH_FASTER = 1.2
_IN_CODE = {
    "fp32": "in the code: no torch.autocast on this device, and parameters in fp32",
    "bf16": "in the code: torch.bfloat16 instead of torch.float16",
    "fp16": "in the code: torch.float16 instead of torch.bfloat16, with torch.amp.GradScaler in training",
}


def fallback(case: Case) -> Advice | None:
    """Products on kernels for operands that are not aligned, of an older architecture or without tensor
    cores."""
    hopper = is_hopper(case)
    found = [(one, sizes) for one in case.ran(_is_product) if (sizes := culprits(one, hopper)) is not None]
    if not found:
        return _compiled(case, hopper)
    rows = [one for one, _ in found]
    time_s = total(rows)
    known = [(one, sizes) for one, sizes in found if one.row.lower_bound_s is not None]
    fallbacks = [one.key for one in rows]
    saves_s = sum(_saved(case, one, sizes, fallbacks) for one, sizes in known) if known else None
    if saves_s is None and time_s < WORTH_UNKNOWN * case.step_s:
        return None
    worst, worst_sizes = max(found, key=lambda pair: pair[0].left_s)
    sizes = sorted({size for _, each in found for size in each})
    because = (
        f"sizes that are not a multiple of {MULTIPLE}: {', '.join(map(str, sizes[:4]))}"
        if sizes
        else "shapes are not recorded"
    )
    which = " and ".join(map(str, worst_sizes)) if worst_sizes else "each size of the products"
    return Advice(
        "Pad the matrix products to aligned sizes",
        saves_s,
        f"matrix products on fallback kernels take {case.cost(time_s)}; {because}; the "
        f"longest is {worst.row.name}{worst.where} ({worst.row.shapes or 'no shapes'}) on "
        f"{short_kernel(worst.kernels[0].name)}",
        f"pad {which} to a multiple of {MULTIPLE} (F.pad, or the width of the layer or the vocabulary)",
        whole(rows),
        changes="kernels",
    )


def _compiled(case: Case, hopper: bool) -> Advice | None:
    """Fallback kernels inside functions that have no operators of their own: the sizes are not in the
    trace."""
    found = {
        one: [
            kernel
            for kernel in one.kernels
            if is_fallback(kernel.name, half=_HALF.search(kernel.name) is not None, hopper=hopper)
        ]
        for one in case.ran(lambda one: not _is_product(one) and not isinstance(one.row, OperatorRow))
    }
    of = {
        one.key: min(one.left_s, sum(kernel.time_s for kernel in kernels))
        for one, kernels in found.items()
        if kernels
    }
    time_s = sum(of.values())
    if not of or time_s < WORTH_UNKNOWN * case.step_s:
        return None
    longest = max(
        (kernel for kernels in found.values() for kernel in kernels), key=lambda kernel: kernel.time_s
    )
    return Advice(
        "Pad the matrix products to aligned sizes",
        None,
        f"matrix products on fallback kernels take {case.cost(time_s)}; they run inside compiled "
        f"functions, so their sizes are not recorded; the longest is {short_kernel(longest.name)}",
        f"pad each size of the products to a multiple of {MULTIPLE} (F.pad, embedding and layer widths)",
        of,
    )


def is_hopper(case: Case) -> bool:
    """Whether the device is an H100 or one of its kind, by its name or its kernels."""
    if case.kind != "cuda":
        return False
    if name := case.analysis.environment.device_name:
        return _HOPPER.search(name) is not None
    return any(kernel.name.startswith("sm90_") for kernel in case.kernels())


def _is_product(one: Ran) -> bool:
    return bool(one.kernels) and (one.category == "matmul" or _PRODUCTS.match(one.row.name) is not None)


def culprits(one: Ran, hopper: bool) -> list[int] | None:
    """The sizes that keep a product from the better kernels, empty where shapes are not recorded; None for a
    product that runs well."""
    if not one.kernels:
        return None
    name = one.kernels[0].name
    half = (
        (one.row.precision in ("fp16", "bf16"))
        if isinstance(one.row, OperatorRow)
        else _HALF.search(name) is not None
    )
    if not is_fallback(name, half=half, hopper=hopper):
        return None
    aligned = None if half and _SIMT.search(name) else _ALIGNED.search(name)
    if not one.matrix_sizes:
        return []
    # A kernel for two elements at a time runs where a size is even and no multiple of four.
    step = int(aligned[1]) if aligned is not None else 0
    wrong = [
        size
        for size in one.matrix_sizes
        if size % MULTIPLE and size > 1 and (not step or size % (2 * step) == step % (2 * step))
    ]
    return wrong or None


def is_fallback(name: str, *, half: bool, hopper: bool) -> bool:
    """Whether a kernel is one for unaligned operands, without tensor cores in half precision, or of an older
    architecture.

    The ``align1`` of CUTLASS's SIMT kernels is ignored: all of them have it.
    """
    aligned = _ALIGNED.search(name)
    if aligned is not None and (half or (aligned[1] in "12" and "simt" not in name)):
        return True
    return half and (_SIMT.search(name) is not None or (hopper and "s1688" in name))


def _saved(case: Case, one: Ran, sizes: list[int], fallbacks: list[Key]) -> float:
    """The time above that of the padded product at the rate that the other products attain."""
    row = one.row
    padded = math.prod(math.ceil(size / MULTIPLE) * MULTIPLE / size for size in sizes)
    attained = case.attainable(row.precision, fallbacks) if computes(row) else 1.0
    return one.saved((row.lower_bound_s or 0.0) * padded / attained)


_SOFTMAX = ("aten::softmax", "aten::_softmax", "aten::_softmax_backward_data", "aten::_safe_softmax")
# The backward pass of fused attention computes the scores once more: five products where the forward pass has
# two.
_BACKWARD_PRODUCTS = 2.5


def emulated(case: Case) -> Advice | None:
    """Products in a precision that the device emulates, which it computes faster in another one, with the
    casts of autocast."""
    rows = case.ran(
        lambda one: (
            one.row.matrix_flops > 0
            and computes(one.row)
            and case.ceilings.emulated(one.row.precision or "") is not None
        )
    )
    if not rows:
        return None
    operators = [one.row for one in rows]
    precision = max(operators, key=lambda row: row.time_s).precision or ""
    slow, best = case.ceilings.emulated(precision), _best(case, ("fp32", "bf16", "fp16"))
    rate = sum(row.matrix_flops for row in operators) / sum(row.time_s for row in operators)
    # A library may compute in fp32 what the device has few units for: then the rate is above theirs.
    if slow is None or best is None or (not slow.variant and rate > slow.value):
        return None
    # Only autocast is known to make them for the products.
    workload = case.analysis.workload
    autocast = workload.precision.startswith("amp-")
    casts = case.ran(lambda one: autocast and best.precision == "fp32" and one.row.name == "aten::_to_copy")
    saved = {one.key: one.saved(_least_s(case, one.row, best)) for one in rows}
    with_casts = f", and casts {seconds(total(casts))}" if casts else ""
    amp = "amp-" if best.precision != "fp32" and (autocast or workload.mode == "training") else ""
    in_code = None if workload.source == "model" else _IN_CODE[best.precision or "fp32"]
    return Advice(
        f"Compute in {best.precision}: {case.analysis.environment.device_name or 'this device'} emulates "
        f"{precision}",
        sum(saved.values()) + total(casts),
        f"{' and '.join(sorted({plural(row.category) for row in operators}))} in {precision} take "
        f"{seconds(total(rows))} {case.per}{with_casts}; they reach {si(rate, rate_unit(precision))}, and in "
        f"{best.precision} up to {si(best.value, best.unit)} ({best.source.kind})",
        f"the network in {best.precision}, without quantization"
        if precision == "int8"
        else Setting("precision", f"{amp}{best.precision}", in_code),
        saved | whole(casts),
    )


def _best(case: Case, precisions: tuple[str, ...]) -> Ceiling | None:
    """The highest matrix roof of these precisions, the first of equal ones; None where none is known."""
    found = [
        roof
        for one in precisions
        if (roof := case.ceilings.compute(one, "matrix")) is not None and roof.precision == one
    ]
    return max(found, key=lambda roof: roof.value, default=None)


def _least_s(case: Case, row: Row, best: Ceiling) -> float:
    """The lower bound of a row in the precision of ``best``: its arithmetic at that roof, its bytes at their
    new size."""
    bound_s = row.lower_bound_s or 0.0
    size = ITEM_BYTES.get(best.precision or "", 4) / ITEM_BYTES.get(row.precision or "", 4)
    now = case.ceilings.compute(row.precision or "fp32", "matrix")
    memory = case.ceilings.outermost_memory()
    if not computes(row) or now is None:
        return bound_s * size
    return max(bound_s * now.value / best.value, row.bytes * size / memory.value if memory else 0.0)


def double(case: Case) -> Advice | None:
    """Work in double precision, whose arithmetic a device may do at a part of its rate in fp32."""
    best, now = case.ceilings.compute("fp32", "matrix"), case.ceilings.compute("fp64", "matrix")
    # What is limited by something else than a roof takes as long in fp32.
    rows = case.ran(lambda one: one.row.precision == "fp64" and one.row.bound in ("compute", "memory"))
    if best is None or now is None or not rows:
        return None
    saved = {one.key: one.saved(_least_s(case, one.row, best)) for one in rows}
    return Advice(
        "Compute in fp32 instead of fp64",
        sum(saved.values()),
        f"operators in fp64 that a roof limits take {case.cost(total(rows))}; the fp64 roof of this device "
        f"is {si(now.value, now.unit)}, compared with {si(best.value, best.unit)} in fp32, and fp64 moves "
        "twice the bytes",
        "parameters and inputs in torch.float32 (complex64), if the results allow it: arrays of NumPy are "
        "float64 unless a dtype is given",
        saved,
        changes="kernels",
    )


class _Written(NamedTuple):
    """Attention written as operators: the softmax, the products around it and the other passes over the
    scores."""

    softmax: Ran
    products: list[Ran]
    passes: list[Ran]
    width: int

    @property
    def parts(self) -> list[Ran]:
        return [self.softmax, *self.products, *self.passes]


def hand_written(case: Case) -> Advice | None:
    """Attention as two products with a softmax between them, whose scores go through memory."""
    every = case.ran(lambda one: isinstance(one.row, OperatorRow))
    found: list[_Written] = []
    used: set[object] = set()
    for softmax in every:
        written = (
            _around(softmax, [one for one in every if one.key not in used])
            if softmax.row.name in _SOFTMAX
            else None
        )
        if written is not None:
            found.append(written)
            used.update(part.key for part in written.parts)
    if not found:
        return None
    parts = [part for written in found for part in written.parts]
    time_s = total(parts)
    fused_s = sum(_fused_s(case, written) for written in found)
    if not case.analysis.ceilings:
        # The products remain; what only reads and writes the scores goes.
        fused_s = total([part for written in found for part in written.products])
    largest = max(found, key=lambda written: total(written.parts)).softmax.row
    scores = largest.shapes.partition(",")[0]
    modules = sorted({written.softmax.row.module for written in found} - {""})
    others = f" and {counted(len(modules) - 1, 'other module')}" if len(modules) > 1 else ""
    where = f" in {modules[0]}{others}" if modules else ""
    basis = "the roofline of fused attention" if case.analysis.ceilings else "the products alone"
    return Advice(
        "Use fused attention",
        time_s - fused_s,
        f"matrix products, softmax and other passes over the scores ({scores}) take {case.cost(time_s)}"
        f"{where}; {basis}: {seconds(fused_s)}{_on_fallback(case, found)}",
        "torch.nn.functional.scaled_dot_product_attention(q, k, v), which does not write the "
        "scores to memory",
        whole(parts),
    )


def _around(softmax: Ran, every: list[Ran]) -> _Written | None:
    """The attention that ``softmax`` is part of; None where no product makes its scores and none reads its
    result."""
    scores = softmax.tensors[0] if softmax.tensors else ()
    if len(scores) < 3 or min(scores[-2:]) < 2:
        return None
    near = [
        one
        for one in every
        if one.row.phase == softmax.row.phase and _related(one.row.module, softmax.row.module)
    ]
    products = [one for one in near if one.category == "matmul" and _uses(one, scores)]
    makes = [
        one for one in products if _operands(one)[1][-1] == scores[-1] and _operands(one)[1][-2] != scores[-1]
    ]
    reads = [one for one in products if _operands(one)[0][-2:] == scores[-2:]]
    if sum(one.row.calls for one in products) < 2 * softmax.row.calls:
        return None
    if softmax.row.phase != "backward" and not (reads and (makes or len(reads) > 1)):
        return None
    widths = [
        size
        for one in products
        for factor in _operands(one)
        for size in factor[-2:]
        if size not in scores[-2:]
    ]
    passes = [
        one
        for one in near
        if one.category in ("element-wise", "copy", "reduction")
        and one.key != softmax.key
        and scores in one.tensors
    ]
    return _Written(softmax, products, passes, min(widths, default=scores[-1]))


def _uses(product: Ran, scores: tuple[int, ...]) -> bool:
    """Whether a batched product reads scores of this size or makes them."""
    operands = _operands(product)
    if len(operands) < 2 or math.prod(operands[0][:-2]) != math.prod(scores[:-2]):
        return False
    (left, right), sizes = operands, scores[-2:]
    return sizes in (left[-2:], left[:-3:-1], right[-2:], right[:-3:-1], (left[-2], right[-1]))


def _operands(product: Ran) -> list[tuple[int, ...]]:
    """The two factors of a batched product; fewer where it is none."""
    return [tensor for tensor in product.tensors if len(tensor) >= 3][-2:]


def _related(one: str, other: str) -> bool:
    """Whether two modules are the same, or one is directly in the other."""
    return other in (one, one.rpartition(".")[0]) or other.rpartition(".")[0] == one


def _fused_s(case: Case, written: _Written) -> float:
    """The least time of fused attention over the same operands."""
    row = written.softmax.row
    scores = written.softmax.tensors[0]
    queries = scores[-2]
    keys = scores[-1]
    batch = math.prod(scores[:-2])
    precision = next((one.row.precision for one in written.products), None) or "fp32"
    flops = 4 * batch * queries * keys * written.width
    read = queries + 2 * keys
    wrote = queries
    if row.phase == "backward":
        flops = round(flops * _BACKWARD_PRODUCTS)
        read = 3 * queries + 2 * keys
        wrote = queries + 2 * keys
    moved = tensor_bytes((batch, written.width), precision)
    judged = "fp32" if precision == "tf32" else precision
    work = Work(matrix_flops=flops, bytes_read=read * moved, bytes_written=wrote * moved, precision=judged)
    placement = place_on_roofline(work, case.ceilings, precision=precision)
    if placement is None:
        return 0.0
    attained = (
        case.attainable(precision, [one.key for one in written.products])
        if placement.bound == "compute"
        else 1.0
    )
    return placement.lower_bound_s * row.calls / attained


def _on_fallback(case: Case, found: list[_Written]) -> str:
    """The part of the products that runs on kernels for sizes that are not aligned."""
    wrong = [
        (one, sizes)
        for written in found
        for one in written.products
        if (sizes := culprits(one, is_hopper(case)))
    ]
    if not wrong:
        return ""
    time_s = sum(one.left_s for one, _ in wrong)
    size = max(wrong, key=lambda pair: pair[0].left_s)[1][0]
    return (
        f"; {seconds(time_s)} are products on fallback kernels, because {size} is not a multiple of "
        f"{MULTIPLE}"
    )


def lower_precision(case: Case) -> Advice | None:
    """A half precision whose matrix roof lies above the one in use, and TF32 where it is off."""
    if case.analysis.workload.precision not in ("fp32", "tf32"):
        return None
    rows = case.ran(_is_full)
    now = case.ceilings.compute(rows[0].row.precision or "fp32", "matrix") if rows else None
    best = _best_half(case, now)
    if now is None or best is None:
        return None
    # What the compute roof bounds has a lower bound in the other precision, or that of half of the bytes.
    bounded = [one for one in rows if one.row.bound == "compute" and one.row.lower_bound_s is not None]
    saved = {one.key: one.saved(_least_s(case, one.row, best)) for one in bounded}
    return Advice(
        f"Run the matrix work in {best.precision}",
        sum(saved.values()),
        f"{' and '.join(sorted({plural(one.category) for one in rows}))} in {now.precision} take "
        f"{seconds(total(rows))} {case.per}; "
        f"this device's {best.name} roof is {si(best.value, best.unit)}, compared with "
        f"{si(now.value, now.unit)} "
        f"({now.name}, {now.source.kind}){_with_tf32(case, bounded)}",
        setting(case.analysis, "precision", f"amp-{best.precision}"),
        saved,
        changes="kernels",
    )


def _with_tf32(case: Case, rows: list[Ran]) -> str:
    """How to use TF32, which keeps all tensors in fp32, and its roof; empty where no product could use it."""
    workload = case.analysis.workload
    now, tf32 = case.ceilings.compute("fp32", "matrix"), _best(case, ("tf32",))
    if now is None or tf32 is None or tf32.value < WORTH_FASTER * now.value:
        return ""
    model = workload.source == "model"
    # Convolutions have a switch of their own.
    off = any(one.row.precision == "fp32" and (model or one.category != "convolution") for one in rows)
    how = "--precision tf32" if model else "torch.set_float32_matmul_precision('high')"
    roof = f"; TF32 is off: {how} keeps tensors in fp32 and has a roof of {si(tf32.value, tf32.unit)}"
    return roof if off and case.kind == "cuda" and workload.precision != "tf32" else ""


def _is_full(one: Ran) -> bool:
    """Whether it is matrix work in fp32, whose kernels do not compute in less either."""
    row = one.row
    full = row.matrix_flops > 0 and row.precision in ("fp32", "tf32")
    return full and not any(
        matrix_precision(kernel.name) in ("bf16", "fp16", "fp8", "int8") for kernel in one.kernels
    )


def named_in_full_precision(case: Case) -> Advice | None:
    """Products in fp32 or TF32 by the names of their kernels, where their operators have no count, or the
    device no roofs.

    Needs no shape: the saving is that of the ratio of the roofs, and none where they are not known.
    Preconditions: the kernels take 5 % of the step, and none of them belongs to the optimizer; no advice on
    precision was given; the device has a higher roof in half precision. If its roofs are not known, the
    advice says to check that.
    """
    if any(isinstance(one, Setting) and one.option == "precision" for one in case.given):
        return None
    found: dict[Key, list[Kernel]] = {}
    other = ""
    for one in case.every():
        if not (isinstance(one.row, OperatorRow) and case.analysis.ceilings) and one.row.phase != "optimizer":
            named = [kernel for kernel in one.kernels if matrix_precision(kernel.name) in ("fp32", "tf32")]
            if one.left_s > 0:
                found[one.key] = named
            elif named:
                other = "other "  # further advice is about these
    kernels = sorted(
        (kernel for each in found.values() for kernel in each), key=lambda kernel: -kernel.time_s
    )
    time_s = sum(kernel.time_s for kernel in kernels)
    if not time_s or time_s < WORTH_UNKNOWN * case.step_s:
        return None
    longest = kernels[0]
    used = case.ceilings.compute(matrix_precision(longest.name), "matrix")
    best = _best_half(case, used)
    if case.analysis.ceilings and best is None:
        return None
    half = best.precision if best is not None else "bf16"
    hidden = {one.key: one.left_s / one.row.time_s for one in case.every() if one.row.time_s}
    parts = {kernel: _faster(case, kernel, best) for kernel in kernels}
    known = None not in parts.values()
    of = {
        key: sum(kernel.time_s * (hidden[key] * (parts[kernel] or 0.0) if known else 1.0) for kernel in each)
        for key, each in found.items()
        if each
    }
    why = "the roofs of this device are not known: check that it has matrix units for half precision"
    if used is not None and best is not None:
        rates = f"{si(used.value, used.unit)} and {si(best.value, best.unit)}"
        why = f"their operators have no work model, and the rates of the two are {rates}"
    named_by = " or ".join(
        sorted({matrix_precision(kernel.name).replace("tf", "TF") for kernel in kernels}, reverse=True)
    )
    return Advice(
        f"Run the matrix work in {half}",
        sum(of.values()) if known else None,
        f"{other}matrix kernels in {named_by}, by their names, take {case.cost(time_s)}; the "
        f"longest is {short_kernel(longest.name)} ({seconds(longest.time_s)}); {why}",
        (
            "torch.autocast(dtype=torch.float16) around the forward pass and the loss, with "
            "torch.amp.GradScaler in training"
        )
        if half == "fp16"
        else "torch.autocast(dtype=torch.bfloat16) around the forward pass and the loss",
        of,
        changes="kernels",
    )


def _faster(case: Case, kernel: Kernel, best: Ceiling | None) -> float | None:
    """The part of its time that a kernel would save at the rate of ``best``; None where its own rate is not
    known.

    A product with a vector reads its matrix once, and half of its bytes take half of the time.
    """
    used = case.ceilings.compute(matrix_precision(kernel.name), "matrix")
    if used is None or best is None:
        return None
    least = 0.5 if short_kernel(kernel.name).startswith(("GEMV", "dot product")) else 0.0
    return max(0.0, 1 - max(least, used.value / best.value))


def _best_half(case: Case, now: Ceiling | None) -> Ceiling | None:
    """The highest matrix roof in half precision; None where the device has none well above ``now``, or none
    is known."""
    best = _best(case, ("bf16", "fp16"))
    return best if best is not None and now is not None and best.value >= WORTH_FASTER * now.value else None
