"""The ceilings part: every measured ceiling of the GPU, compared with its data sheet and with the targets of the device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rooflines.device_specs import catalog
from rooflines.device_specs.compare import References, RoofComparison, compare
from rooflines.device_specs.history import History, Session
from rooflines.device_specs.measure import measure, sessions
from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError
from rooflines.gpu_check import laws
from rooflines.gpu_check.recorder import Recorder
from rooflines.gpu_check.records import Device
from rooflines.gpu_check.targets import targets
from rooflines.pipeline.ceilings import sheet_of
from rooflines.serial import write_json

# Seconds for which each main rate is held as well: its second half is after the power limit has lowered the clock.
_SUSTAINED_S = 2.0
# What a measurement reports of a figure that it leaves out: "GEMM fp8: not available (...)".
_OMITTED = re.compile(r"(?P<what>.+?): (?P<reason>(?:skipped|not available|left out|not enough).*)", re.DOTALL)


def run(recorder: Recorder) -> None:
    """Measure the full set and compare it. Its messages and all of its rounds are kept in files."""
    omitted: list[str] = []

    def progress(line: str) -> None:
        with (recorder.folder / "progress.txt").open("a") as file:
            file.write(f"{line}\n")
        if (found := _OMITTED.fullmatch(line)) and line not in omitted:
            omitted.append(line)
            recorder.leave_out(found["what"], found["reason"])

    best = measure(recorder.torch_device, full=True, sustained_s=_SUSTAINED_S, remeasure=True, progress=progress)
    rounds = sessions(best)[-1:]
    write_json(recorder.folder / "rounds.json", rounds)
    measured = alone(best, rounds)
    recorder.figure("measured", measured)
    environment = recorder.device.environment
    sheet, no_sheet = sheet_of(environment)
    if no_sheet:
        recorder.leave_out("comparison with the data sheet", no_sheet)
    rows = compare(measured, References(spec=sheet, no_spec=no_sheet))
    recorder.figure("compared", rows)
    goals = targets(environment.device_name, recorder.device.facts, measured.ceilings)
    recorder.figure("targets", goals)
    recorder.check(
        laws.our_kernels_ran(measured.ceilings, omitted),
        laws.clock_at_maximum(measured.ceilings, recorder.device.max_clock_hz),
        laws.above_no_sheet(fractions(rows, fast_fp8(recorder.device))),
        *(laws.target_reached(goal) for goal in goals),
    )


def alone(best: Ceilings, sessions: tuple[Session, ...]) -> Ceilings:
    """The ceilings of ``sessions`` without those of earlier measurements, which say nothing about this machine as it is now.

    ``best`` are the best of all measurements; they stand where the user's cache cannot be written.
    """
    if not sessions or best.method is None:
        return best
    history = History(
        device=best.device, kind=best.kind, fingerprint=best.fingerprint, method=best.method, packages=best.packages,
        driver=best.driver, threads=best.threads, sessions=sessions,
    )  # fmt: skip
    return history.ceilings(best.sustained_s)


def fractions(rows: Iterable[RoofComparison], fp8_factor: float) -> Iterator[tuple[str, float]]:
    """The measured rates with a data-sheet rate, and their ratio; of fp8 products to ``fp8_factor`` times the sheet's roof."""
    for row in rows:
        if row.measured is not None and row.spec is not None:
            factor = fp8_factor if row.measured.precision == "fp8" else 1.0
            yield row.measured.name, row.measured.value / (factor * row.spec.value)


def fast_fp8(device: Device) -> float:
    """The sheet's fastest fp8 rate over its rate with sums in fp32, which is the roof; 1 for a sheet with one rate, or without a sheet.

    fp8 products are measured with fast accumulation, which keeps partial sums in the tensor cores. On GeForce that may run at the rate
    that the sheet states for sums in fp16, twice the other.
    """
    try:
        sheet = catalog.identify(device.environment.device_name, device.facts).sheet
    except UsageError:
        return 1.0
    roof = sheet.rate("fp8", "matrix")
    return max(rate.per_second for rate in sheet.compute if rate.precision == "fp8") / roof.per_second if roof else 1.0
