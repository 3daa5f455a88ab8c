"""The laws of the GPU check: pure functions from recorded data to the result of a law.

A law that finds no data is left out, with the reason; it is never "ok".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rooflines.device_specs.records import Ceiling
from rooflines.gpu_check.records import Check
from rooflines.gpu_check.targets import Target
from rooflines.units import si

# A ceiling further above its data sheet than any clock above the advertised one explains is an error of ours.
MOST_ABOVE_SHEET = 1.2
MOST_EFFICIENCY = 1.05
# Relative error of sums: times within a step, FLOPs against a closed form.
SUM_TOLERANCE = 1e-3
ENERGY_TOLERANCE = 0.03
# Our CUDA network against eager torch with the data on the GPU; the samples a second that were once published for a Numba CUDA version
# of it whose convolutions were never trained; of two fp32 runs over 100 steps, whose sums are in different orders; launches of a step.
LEAST_OF_TORCH = 0.5
PUBLISHED_SAMPLES_PER_S = 71_758
MOST_LOSS_DIFFERENCE = 1e-2
LAUNCHES = 13
_PHASES = {"inference": {"forward"}, "training": {"forward", "backward", "optimizer"}}


def judged(law: str, subject: str, holds: bool, found: str) -> Check:
    """The result of a law that had its data."""
    return Check(law=law, subject=subject, outcome="ok" if holds else "failed", found=found)


def left_out(law: str, subject: str, reason: str) -> Check:
    """The result of a law that had no data."""
    return Check(law=law, subject=subject, outcome="left out", found=reason)


# --- ceilings ----------------------------------------------------------------------------------------------------------------------


def our_kernels_ran(ceilings: Iterable[Ceiling], omitted: Sequence[str]) -> Check:
    """The FMA rate was measured by a kernel of ours; without NVVM it is derived from the clock, or absent."""
    rates = [one for one in ceilings if one.name == "FMA fp32" and not one.variant]
    ran = any(one.source.kind == "measured" for one in rates)
    why = next((line for line in omitted if line.startswith("CUDA kernels")), "FMA fp32 was not measured")
    return judged("the CUDA kernels of rooflines ran", "ceilings", ran, rates[0].source.detail if ran else why)


def above_no_sheet(fractions: Iterable[tuple[str, float]]) -> Check:
    """No ceiling is further above its data sheet than a clock explains; ``fractions`` are names with the fraction reached."""
    law = f"no ceiling above {MOST_ABOVE_SHEET} x its data-sheet rate"
    name, most = max(fractions, key=lambda one: one[1], default=("", None))
    if most is None:
        return left_out(law, "ceilings", "no measured ceiling has a data-sheet rate")
    return judged(law, "ceilings", most <= MOST_ABOVE_SHEET, f"{most:.2f} by {name}")


def target_reached(target: Target) -> Check:
    """A ceiling reaches the least that passes; the goal is only reported."""
    law = f"{target.ceiling} >= {si(target.least, target.unit)}"
    goal = f"goal {si(target.goal, target.unit)}"
    if target.measured is None:
        return judged(law, "ceilings", False, f"not measured; {goal}")
    return judged(law, "ceilings", target.measured >= target.least, f"{si(target.measured, target.unit)}; {goal}")


# --- profiles ----------------------------------------------------------------------------------------------------------------------


def times_add_up(label: str, analysis: dict[str, Any]) -> Check:
    """Operators, device time without a model and idle time add up to the span, less what overlaps."""
    timeline = analysis["timeline"]
    parts = sum(row["time_s"] for row in analysis["operators"]) + sum(one["time_s"] for one in analysis["coverage"]["unmodelled"])
    error = abs(parts + timeline["idle_s"] - timeline["overlap_s"] - timeline["span_s"]) / timeline["span_s"]
    return judged("operators + unmodelled + idle = span within 0.1 %", label, error < SUM_TOLERANCE, f"off by {error:.2e}")


def command_succeeded(label: str, code: int, stderr: str) -> Check:
    """``rooflines profile`` ended well; else the last line that it printed."""
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    return judged("rooflines profile succeeds", label, code == 0, f"exit code {code}" + (f": {last}" if code and last else ""))


def flops_equal(label: str, analysis: dict[str, Any], closed_form: int | None) -> Check:
    """Matrix FLOPs of a step equal the ``closed_form``."""
    law = "matrix FLOPs equal the closed form within 0.1 %"
    if closed_form is None:
        return left_out(law, label, "there is no closed form for this workload")
    ratio = analysis["totals"]["matrix_flops"] / closed_form
    return judged(law, label, abs(ratio - 1) < SUM_TOLERANCE, f"ratio {ratio:.6f}")


def covered(label: str, analysis: dict[str, Any], least: float | None) -> Check:
    """The operators with a work model take at least the share ``least`` of the device time."""
    if least is None:
        return left_out("coverage", label, "no least coverage is set for this workload")
    fraction = analysis["coverage"]["modelled_time_fraction"]
    return judged(f"coverage >= {least}", label, fraction >= least, f"{fraction:.4f}")


def nothing_beats_its_bound(label: str, analysis: dict[str, Any]) -> Check:
    """No operator is faster than its bound by more than the ceilings are uncertain."""
    law = f"no efficiency above {MOST_EFFICIENCY}"
    rows = [row for row in analysis["operators"] if row.get("efficiency") is not None]
    if not rows:
        return left_out(law, label, "no operator has an efficiency")
    best = max(rows, key=lambda row: row["efficiency"])
    where = " ".join(filter(None, (best["name"], best.get("module"), str(best.get("shapes") or ""))))
    return judged(law, label, best["efficiency"] <= MOST_EFFICIENCY, f"{best['efficiency']:.3f} by {where}")


def modules_named(label: str, analysis: dict[str, Any], module: str) -> Check:
    """A row carries the name of ``module``."""
    if not module:
        return left_out("rows carry module names", label, "this workload names no module to look for")
    named = {row["module"] for row in analysis["operators"] if row.get("module")}
    return judged(
        "rows carry module names",
        label,
        module in named,
        f"{len(named)} modules, {module} {'' if module in named else 'not '}among them",
    )


def phases_told_apart(label: str, analysis: dict[str, Any], mode: str) -> Check:
    """Every phase of a step in ``mode`` has time."""
    wanted = _PHASES[mode]
    phases = {row["phase"] for row in analysis["operators"] if row["time_s"] > 0}
    return judged("phases are told apart", label, wanted <= phases, ", ".join(sorted(phase or "none" for phase in phases)))


# --- energy ------------------------------------------------------------------------------------------------------------------------


def energies_agree(label: str, found: dict[str, Any]) -> Check:
    """The integral of power equals the difference of the energy counter. ``found`` has both, or the reasons why one is missing."""
    law = f"integrated power = energy counter within {ENERGY_TOLERANCE:.0%}"
    for method in ("counter", "power"):
        if "energy_j" not in found[method]:
            return left_out(law, label, f"no energy by {method}: {found[method]['reason']}")
    counter, power = (found[method]["energy_j"] for method in ("counter", "power"))
    texts = (f"{found[method]['energy_j']:.0f} J ±{found[method]['error_j']:.0f} by {method}" for method in ("counter", "power"))
    apart = power / counter - 1
    return judged(law, label, abs(apart) <= ENERGY_TOLERANCE, f"{' and '.join(texts)}, {apart * 100:+.1f} % apart")


# --- networks ----------------------------------------------------------------------------------------------------------------------


def networks_reach(training: dict[str, Any]) -> tuple[Check, ...]:
    """Our CUDA network is about as fast as eager torch, faster than a published one, computes the same and takes few launches."""
    label = "numba-cuda beside torch-cuda"
    rate, ratio = training["samples_per_s"]["numba-cuda"], training["ratio"]
    spread = f"{ratio:.2f} ({training['ratio_least']:.2f} to {training['ratio_most']:.2f})"
    difference = training["curves"]["largest_difference"]
    launches = training["kernels"]["numba-cuda"].get("launches")
    count = f"{LAUNCHES} kernels per step"
    return (
        judged(f"speed >= {LEAST_OF_TORCH} x torch, data resident", label, ratio >= LEAST_OF_TORCH, spread),
        judged(f"more than {PUBLISHED_SAMPLES_PER_S:,} samples/s", label, rate > PUBLISHED_SAMPLES_PER_S, f"{rate:,.0f} samples/s"),
        judged(f"losses within {MOST_LOSS_DIFFERENCE}", label, difference <= MOST_LOSS_DIFFERENCE, f"{difference:.2g}"),
        left_out(count, label, training["kernels"]["numba-cuda"]["left_out"])
        if launches is None
        else judged(count, label, launches == LAUNCHES, f"{launches:g}"),
    )


# --- hardware counters -------------------------------------------------------------------------------------------------------------


def counted_alike(label: str, kind: str, ratio: float | None, within: float) -> Check:
    """The hardware's count of ``kind`` (bytes, FLOPs) is ``ratio`` times ours."""
    law = f"{kind} by hardware counters within {within:.0%} of ours"
    if ratio is None:
        return left_out(law, label, "the hardware has no such counter")
    return judged(law, label, abs(ratio - 1) <= within, f"{ratio:.4f}")
