"""A gradient scaler that skips every step."""

from __future__ import annotations

from typing import Final

from rooflines.roofline.failures.nonfinite import OTHER_KERNEL, exceeds, nan_for_a_small_result, overflows
from rooflines.roofline.failures.records import Case, Explanation
from rooflines.roofline.failures.sentences import again, inputs, result

# torch's first scale is 65,536, and each skipped step halves it: after as many it is below 1, and scaling is not the reason.
_SKIPS: Final = 17


def every_step_skipped(case: Case) -> Explanation | None:
    """Gradients that are never finite: the scale falls, and no parameter changes."""
    steps, found = len(case.facts.losses), case.nonfinite
    defect = found if found is not None and nan_for_a_small_result(found) else None
    if not steps or case.facts.skipped_steps != steps or not (defect is not None or steps >= _SKIPS):
        return None
    first, suggestion = "", "Use fp32 or amp-bf16."
    if defect is not None:
        first, suggestion = f" {result(defect)} {inputs(defect)}; {again(defect)}.", OTHER_KERNEL
    elif found is not None and found.inputs == "finite" and overflows(found):
        first, suggestion = f" {exceeds(found)}", "Use amp-bf16: a lower scale does not help."
    elif found is not None:
        first = f" {result(found)}."
    return Explanation(
        cause="The gradient scaler skips every step",
        evidence=f"The scaler skipped all {steps:,} steps because gradients were not finite: no parameter changed.{first}",
        suggestion=suggestion,
        operator=found.operator if found is not None else "",
        module=found.module if found is not None else "",
        step=found.step if found is not None else None,
    )
