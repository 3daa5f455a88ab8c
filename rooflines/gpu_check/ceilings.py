"""The ceilings part: every measured ceiling of the GPU, compared with its data sheet and with the targets of the device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from rooflines.device_specs import catalog
from rooflines.device_specs.catalog import Facts
from rooflines.device_specs.measure import measure
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.errors import UsageError
from rooflines.gpu_check import laws
from rooflines.gpu_check.recorder import Recorder
from rooflines.gpu_check.targets import targets
from rooflines.profiler.records import Environment

# What a measurement reports of a figure that it leaves out: "GEMM fp8: not available (...)".
_OMITTED = re.compile(r"(?P<what>[^:]+): (?P<reason>(?:skipped|not available|left out|not enough).*)", re.DOTALL)


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A measured ceiling beside the data sheet's rate for the same arithmetic or memory; ``fraction`` is the ratio of the two."""

    ceiling: Ceiling
    sheet: float | None = None
    sheet_name: str = ""
    fraction: float | None = None


def run(recorder: Recorder) -> None:
    """Measure the full set and compare it."""
    omitted: list[str] = []

    def progress(line: str) -> None:
        if (found := _OMITTED.fullmatch(line)) and line not in omitted:
            omitted.append(line)
            recorder.leave_out(found["what"], found["reason"])

    environment = recorder.device.environment
    measured = measure(recorder.torch_device, full=True, remeasure=True, progress=progress)
    recorder.figure("measured", measured)
    sheet: Ceilings | None = None
    try:
        sheet = sheet_of(environment)
        recorder.figure("sheet", sheet)
    except UsageError as error:
        recorder.leave_out("comparison with the data sheet", error.message)
    rows = compared(measured.ceilings, sheet.ceilings if sheet else ())
    recorder.figure("compared", rows)
    goals = targets(environment.device_name, facts_of(environment), measured.ceilings)
    recorder.figure("targets", goals)
    recorder.check(
        laws.our_kernels_ran(measured.ceilings, omitted),
        laws.clock_at_maximum(measured.ceilings, recorder.device.max_clock_hz),
        laws.above_no_sheet((one.ceiling.name, one.fraction) for one in rows if one.fraction is not None),
        *(laws.target_reached(goal) for goal in goals),
    )


def facts_of(environment: Environment) -> Facts:
    """What tells the device of ``environment`` from others of its name."""
    kind = environment.device.partition(":")[0]
    return Facts(kind=kind, units=environment.device_units, memory_bytes=environment.device_memory_bytes)


def sheet_of(environment: Environment) -> Ceilings:
    """The data-sheet ceilings of the device of ``environment``. Raises UsageError where there is no sheet."""
    facts = facts_of(environment)
    return catalog.look_up(
        environment.device_name, kind=facts.kind, cores=environment.cpu_cores if facts.kind == "cpu" else None,
        multiprocessors=facts.units, memory_bytes=facts.memory_bytes,
    )  # fmt: skip


def compared(measured: Iterable[Ceiling], sheet: Sequence[Ceiling]) -> tuple[Compared, ...]:
    """Each measured ceiling beside its rate in the ``sheet``.

    A sheet gives one rate for device memory, whatever the access, and none for caches, links and latencies.
    """
    return tuple(_beside(one, max(_same(one, sheet), key=lambda other: other.value, default=None)) for one in measured)


def _beside(one: Ceiling, other: Ceiling | None) -> Compared:
    if other is None:
        return Compared(ceiling=one)
    return Compared(ceiling=one, sheet=other.value, sheet_name=other.name, fraction=one.value / other.value)


def _same(one: Ceiling, sheet: Iterable[Ceiling]) -> list[Ceiling]:
    """The rates of a sheet that bound ``one``.

    fp8 products use fast accumulation, which keeps partial sums in the tensor core's narrower accumulator. A sheet that has a rate for
    fp8 with fp16 accumulation (GeForce: twice the other) bounds them by that one. With slow accumulation the fp32 rate is the bound.
    """
    if one.kind == "memory" and one.level == "HBM":
        return [other for other in sheet if other.kind == "memory" and other.capacity_bytes is None]
    if one.kind != "compute":
        return []
    fast = one.precision == "fp8" and "slow accumulation" not in one.variant
    return [
        other
        for other in sheet
        if (other.kind, other.precision, other.engine) == ("compute", one.precision, one.engine)
        and (fast or other.accumulate in (None, one.accumulate))
    ]
