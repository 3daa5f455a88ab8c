"""The ceilings part: every measured ceiling of the GPU, compared with its data sheet and with the targets of the device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import msgspec
import pytest

from rooflines.device_specs import catalog
from rooflines.device_specs import measure as measurement
from rooflines.device_specs.catalog import SheetFacts
from rooflines.device_specs.compare import References, RoofComparison, compare
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.device_specs.sheet import Sheet
from rooflines.errors import UsageError
from rooflines.pipeline.ceilings import sheet_of
from rooflines.serial import write_json
from rooflines.units import si
from tests.gpu.laws import CLOCK_LAW, clock_verdict
from tests.gpu.parts import Device, Findings, Judge, Recorder, Verdict, named

# A ceiling further above its data sheet than any clock above the advertised one explains is an error of ours.
MOST_ABOVE_SHEET = 1.2
# Seconds for which each main rate is held as well: its second half is after the power limit has lowered the clock.
_SUSTAINED_S = 2.0
# What a measurement reports of a figure that it leaves out: "GEMM fp8: not available (...)".
_OMITTED = re.compile(r"(?P<what>.+?): (?P<reason>(?:skipped|not available|left out|not enough).*)", re.DOTALL)
# A figure of our kernels that the measurement left out because of an error, or all of them.
_KERNEL_FAILED = re.compile(r"CUDA kernels: |(?:FMA|HBM|L2|shared memory)[^:]*: left out")
# The least that passes and the goal that the kernels are written to reach, in B/s and FLOP/s. They exist for the H200 and the H100 SXM
# only: the same chip at the same clocks and power, so that the same fraction of the data sheet can be reached on both. A device of
# another power limit (H100 PCIe, H200 NVL) or a slice of one (MIG) has none.
_TARGETS = {
    "HBM copy": (4.1e12, 4.3e12), "FMA fp32": (60e12, 62e12), "GEMM bf16": (780e12, 800e12), "GEMM fp8": (1400e12, 1500e12),
}  # fmt: skip
_REFERENCE, _SAME_CHIP = "H200 SXM5", "H100 SXM5 80GB"


def measure(recorder: Recorder) -> None:
    """Measure the full set and compare it. Its messages and all of its rounds are kept in files."""
    omitted: list[str] = []

    def progress(line: str) -> None:
        with (recorder.folder / "progress.txt").open("a") as file:
            file.write(f"{line}\n")
        if (match := _OMITTED.fullmatch(line)) and line not in omitted:
            omitted.append(line)
            recorder.leave_out(match["what"], match["reason"])

    measured = measurement.measure(recorder.torch_device, full=True, sustained_s=_SUSTAINED_S, remeasure=True, progress=progress)
    write_json(recorder.folder / "rounds.json", measurement.sessions(measured)[-1:])
    recorder.figure("measured", measured)
    environment = recorder.device.environment
    sheet, no_sheet = sheet_of(environment)
    if no_sheet:
        recorder.leave_out("comparison with the data sheet", no_sheet)
    recorder.figure("compared", compare(measured, References(spec=sheet, no_spec=no_sheet)))
    recorder.figure("targets", targets(environment.device_name, recorder.device.facts, measured.ceilings))


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The ``least`` that passes and the ``goal`` of a ceiling, what was ``measured``, and the ``basis`` of both."""

    ceiling: str
    unit: str
    least: float
    goal: float
    basis: str
    measured: float | None = None


def fractions(rows: Iterable[RoofComparison], fp8_factor: float) -> Iterator[tuple[str, float]]:
    """Yield the measured rates with a data-sheet rate, and their ratio; of fp8 products to ``fp8_factor`` times the sheet's roof."""
    for row in rows:
        if row.measured is not None and row.spec is not None:
            factor = fp8_factor if row.measured.precision == "fp8" else 1.0
            yield row.measured.name, row.measured.value / (factor * row.spec.value)


def fast_fp8(device: Device) -> float:
    """Return the sheet's fastest fp8 rate over its rate with sums in fp32, which is the roof; 1 for a sheet with one rate, or no sheet.

    fp8 products are measured with fast accumulation, which keeps partial sums in the tensor cores. On GeForce that may run at the rate
    that the sheet states for sums in fp16, twice the other.
    """
    try:
        sheet = catalog.identify(device.environment.device_name, device.facts).sheet
    except UsageError:
        return 1.0
    roof = sheet.rate("fp8", "matrix")
    return max(rate.per_second for rate in sheet.compute if rate.precision == "fp8") / roof.per_second if roof else 1.0


def targets(device_name: str, facts: SheetFacts, measured: Iterable[Ceiling]) -> tuple[Target, ...]:
    """Return the targets of the device that its driver calls ``device_name``; empty for a device that has none."""
    try:
        match = catalog.identify(device_name, facts)
    except UsageError:
        return ()
    sheet = match.sheet
    if match.mig is not None or sheet.name not in (_REFERENCE, _SAME_CHIP):
        return ()
    reference = next(known for known in catalog.sheets() if known.name == _REFERENCE)
    values = {ceiling.name: ceiling.value for ceiling in measured if not ceiling.variant}
    found = []
    for name, (least, goal) in _TARGETS.items():
        share = _rate(sheet, name) / _rate(reference, name)
        proportion = "" if sheet is reference else f", times {share:.4g}, the ratio of the data-sheet rates of the two"
        found.append(Target(
            ceiling=name, unit="B/s" if name.startswith("HBM") else "FLOP/s", least=least * share, goal=goal * share,
            basis=f"set for the {reference.name}{proportion}", measured=values.get(name),
        ))  # fmt: skip
    return tuple(found)


def _rate(sheet: Sheet, name: str) -> float:
    """Return the data-sheet rate of the memory or arithmetic that the ceiling ``name`` measures."""
    kind, precision = name.split()
    if kind == "HBM":
        return sheet.memory.bytes_per_second
    wanted = precision, "vector" if kind == "FMA" else "matrix", "fp32"
    return next(rate.per_second for rate in sheet.compute if (rate.precision, rate.engine, rate.accumulate) == wanted)


# --- laws ---------------------------------------------------------------------------------------------------------------


def our_kernels_ran(found: Findings, device: Device) -> Verdict:
    """A kernel of ours measured the FMA rate, and none of them failed. Without NVVM the rate is derived from the clock."""
    omitted = [f"{left.what}: {left.reason}" for left in found.left_out]
    failed = "; ".join(line for line in omitted if _KERNEL_FAILED.match(line))
    ceilings = found.figure("measured", Ceilings).ceilings
    rate = next((ceiling for ceiling in ceilings if ceiling.name == "FMA fp32" and not ceiling.variant), None)
    if failed or rate is None or rate.source.kind != "measured":
        return False, failed or "FMA fp32 was not measured"
    return True, rate.source.detail


def clock_at_maximum(found: Findings, device: Device) -> Verdict:
    """The device was not still cold while a figure was taken, or held down.

    Links are left out: the multiprocessors have no part in a copy between memories.
    """
    clocks = [
        (ceiling.name + (f" ({ceiling.variant})" if ceiling.variant else ""), then.clock_hz, then.throttled)
        for ceiling in found.figure("measured", Ceilings).ceilings
        if ceiling.kind != "link" and ceiling.source.kind == "measured"
        if (then := ceiling.conditions) is not None and then.clock_hz is not None
    ]
    return clock_verdict(clocks, device.max_clock_hz)


def above_no_sheet(found: Findings, device: Device) -> Verdict:
    """No rate exceeds its data sheet by more than a clock explains."""
    rows = found.figure("compared", tuple[RoofComparison, ...])
    name, most = max(fractions(rows, fast_fp8(device)), key=lambda pair: pair[1], default=("", None))
    if most is None:
        return "no measured ceiling has a data-sheet rate"
    return most <= MOST_ABOVE_SHEET, f"{most:.2f} by {name}"


def target_law(target: Target) -> str:
    return f"{target.ceiling} >= {si(target.least, target.unit)}"


def target_reached(law: str, found: Findings, device: Device) -> Verdict:
    """A ceiling reaches the least that passes on this device; the goal is only reported."""
    known = {target_law(target): target for target in found.figure("targets", tuple[Target, ...])}
    if (target := known.get(law)) is None:
        return "a target of another device"
    value = "not measured" if target.measured is None else si(target.measured, target.unit)
    holds = target.measured is not None and target.measured >= target.least
    return holds, f"{value}; goal {si(target.goal, target.unit)}"


LAWS: dict[str, Judge] = {
    "the CUDA kernels of rooflines ran": our_kernels_ran,
    CLOCK_LAW: clock_at_maximum,
    f"no ceiling above {MOST_ABOVE_SHEET} x its data-sheet rate": above_no_sheet,
}
for _driver_name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"):
    for _target in targets(_driver_name, SheetFacts(kind="cuda"), ()):
        LAWS[target_law(_target)] = partial(target_reached, target_law(_target))


@pytest.mark.gpu
@pytest.mark.parametrize("law", named("ceilings", LAWS))
def test_ceilings(judge: Callable[[Judge], None], law: Judge) -> None:
    judge(law)
