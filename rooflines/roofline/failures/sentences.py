"""Parts of sentences about a non-finite result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rooflines.roofline.failures.records import Explanation
from rooflines.units import percent

if TYPE_CHECKING:
    from rooflines.profiler.dispatch.nonfinite import NonFinite

NAMES: Final = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def precision(dtype: str) -> str:
    """``fp16`` for ``float16``."""
    return NAMES.get(dtype, dtype)


def number(value: float) -> str:
    """A number of any size: ``0.01``, ``2.3``, ``65,504``, ``1.2e+05``."""
    if value == round(value) and 1e3 <= abs(value) < 1e5:
        return f"{value:,.0f}"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.2g}"


def named(path: str, kind: str = "") -> str:
    """``layer1.0.conv2 (Conv2d)``, ``the network (ResNet)``."""
    return f"{path or 'the network'}{f' ({kind})' if kind else ''}"


def place(found: NonFinite) -> str:
    """``aten::mm in fc (Linear)``, ``aten::mm in the backward pass of fc (Linear)``, ``aten::addcdiv_ in the optimizer step``."""
    inside = bool(found.module or found.module_type)
    module = named(found.module, found.module_type)
    if found.phase == "optimizer":
        return f"{found.operator} in the optimizer step"
    if found.phase == "backward":
        return f"{found.operator} in the backward pass{f' of {module}' if inside else ''}"
    return f"{found.operator} in {module}" if inside else found.operator


def result(found: NonFinite) -> str:
    """``aten::mm in fc (Linear) gives inf for 25 % of its elements in fp16``."""
    what = "NaN" if found.what == "nan" else "inf"
    return f"{place(found)} gives {what} for {percent(found.share)} of its elements in {precision(found.dtype)}"


def inputs(found: NonFinite) -> str:
    """``from finite inputs (largest magnitude 40,000)``."""
    largest = f" (largest magnitude {number(found.input_magnitude)})" if found.input_magnitude is not None else ""
    return f"from finite inputs{largest}"


def again(found: NonFinite) -> str:
    """``the same call gives 1.2e+05 in fp32``."""
    if found.wider is None or found.wider_magnitude is None:
        return "the call could not be repeated in fp32"
    return f"the same call gives {number(found.wider_magnitude)} in {precision(found.wider)}"


def explained(found: NonFinite, cause: str, evidence: str, suggestion: str) -> Explanation:
    """The explanation at the place of ``found``."""
    return Explanation(
        cause=cause, evidence=evidence, suggestion=suggestion, operator=found.operator, module=found.module, step=found.step
    )
