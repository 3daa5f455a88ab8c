"""The ceilings part: data sheets by all facts of a device, and what its figures are compared with."""

import pytest

from rooflines.device_specs.catalog import SheetFacts
from rooflines.device_specs.compare import References, compare
from rooflines.device_specs.records import Ceiling, Ceilings, Conditions, Source
from rooflines.pipeline.ceilings import sheet_of
from rooflines.profiler.records import Environment
from rooflines.serial import to_plain
from tests.gpu import test_ceilings as part
from tests.gpu.parts import Device, Findings, LeftOut, Recorder
from tests.gpu.rehearsal import outcome
from tests.gpu.test_ceilings import Target


def environment(name, units, memory_gib):
    return Environment(
        rooflines="0", device="cuda:0", device_name=name, device_units=units, device_memory_bytes=int(memory_gib * 2**30)
    )


def product(precision, value, **fields):
    source = Source(kind="measured", detail="torch")
    return Ceiling(kind="compute", name=f"GEMM {precision}", value=value, unit="FLOP/s", source=source, precision=precision,
                   engine="matrix", accumulate="fp32", **fields)  # fmt: skip


def measured_on(name, *found):
    return Ceilings(device=name, kind="cuda", ceilings=found)


def compared(name, units, memory_gib, *found):
    """The device and the comparison of what was ``found`` there with its sheet."""
    here = environment(name, units, memory_gib)
    sheet, why = sheet_of(here)
    return Device(environment=here), compare(measured_on(name, *found), References(spec=sheet, no_spec=why))


def reached(*arguments):
    device, rows = compared(*arguments)
    return dict(part.fractions(rows, part.fast_fp8(device)))


def above_sheet(*arguments):
    device, rows = compared(*arguments)
    return outcome(part.above_no_sheet(Findings(figures=to_plain({"compared": rows})), device))


def test_a_device_without_a_sheet_is_not_compared():
    assert reached("NVIDIA Nothing 9000", 10, 8, product("fp8", 1e12)) == {}
    assert above_sheet("NVIDIA Nothing 9000", 10, 8, product("fp8", 1e12)) == "left out"


def test_fp8_with_fast_accumulation_is_compared_with_the_faster_rate_of_the_sheet():
    """An RTX 4090 has 330 TFLOP/s with fp32 sums and 660 with fp16 sums: 600 are above 1.2 times the first and below the second."""
    found = reached("NVIDIA GeForce RTX 4090", 128, 23.6, product("fp8", 600e12), product("fp16", 160e12))
    assert found["GEMM fp8"] == pytest.approx(600 / 660.6)
    assert found["GEMM fp16"] == pytest.approx(160 / 165.2)  # sums in fp32, as torch has them
    assert above_sheet("NVIDIA GeForce RTX 4090", 128, 23.6, product("fp8", 600e12)) == "ok"
    assert above_sheet("NVIDIA GeForce RTX 4090", 128, 23.6, product("fp8", 800e12)) == "failed"
    assert reached("NVIDIA H100 80GB HBM3", 132, 79.1, product("fp8", 1500e12))["GEMM fp8"] == pytest.approx(1500 / 1978.9)


def test_the_part_records_everything(tmp_path, monkeypatch):
    """A GPU without NVVM: the FMA rate is derived, which is a failure, and what was left out is listed with its reason."""
    derived = Ceiling(kind="compute", name="FMA fp32", value=67e12, unit="FLOP/s", precision="fp32", engine="vector", accumulate="fp32",
                      source=Source(kind="derived", detail="132 multiprocessors"))  # fmt: skip

    def measure(device, *, full, sustained_s, remeasure, progress):
        assert (device, full, remeasure) == ("cuda:0", True, True)
        assert sustained_s > 1
        progress("CUDA kernels: skipped (NVVM not found); memory is measured with torch")
        progress("GEMM fp8: not available (no such operator)")
        progress("GEMM fp8: not available (no such operator)")
        progress("cuda:0 and cuda:1: skipped (peer access is not supported)")
        progress("GEMM bf16: 781 TFLOP/s")
        return measured_on("NVIDIA H200", derived, product("bf16", 781e12))

    monkeypatch.setattr(part.measurement, "measure", measure)
    device = Device(environment=environment("NVIDIA H200", 132, 140), max_clock_hz=1.98e9)
    recorder = Recorder(tmp_path, device, 60.0)
    part.measure(recorder)
    found = recorder.findings
    assert (tmp_path / "progress.txt").read_text().splitlines()[-1] == "GEMM bf16: 781 TFLOP/s"
    assert (tmp_path / "rounds.json").is_file()
    assert [one.what for one in found.left_out] == ["CUDA kernels", "GEMM fp8", "cuda:0 and cuda:1"]
    results = {law: outcome(judge(found, device)) for law, judge in part.LAWS.items()}
    assert results["the CUDA kernels of rooflines ran"] == "failed"
    assert results["GEMM bf16 >= 780 TFLOP/s"] == "ok"
    assert results["GEMM fp8 >= 1.40 PFLOP/s"] == "failed"
    assert results["HBM copy >= 2.86 TB/s"] == "left out"  # the least of the H100
    assert results["no ceiling above 1.2 x its data-sheet rate"] == "ok"


# --- targets ------------------------------------------------------------------------------------------------------------------------

H200 = SheetFacts(kind="cuda", units=132, memory_bytes=150_000_000_000)
H100 = SheetFacts(kind="cuda", units=132, memory_bytes=85_000_000_000)


def test_goals_of_the_h200_and_in_proportion_of_the_h100():
    # The h200 has goals and what passes below them.
    found = {one.ceiling: (one.least, one.goal) for one in part.targets("NVIDIA H200", H200, ())}
    assert found == {
        "HBM copy": (4.1e12, 4.3e12), "FMA fp32": (60e12, 62e12), "GEMM bf16": (780e12, 800e12), "GEMM fp8": (1400e12, 1500e12),
    }  # fmt: skip
    # Arithmetic is that of the H200; its memory has 3.35 of 4.8 TB/s.
    found = {one.ceiling: one for one in part.targets("NVIDIA H100 80GB HBM3", H100, ())}
    assert found["HBM copy"].goal == pytest.approx(4.3e12 * 3350 / 4800)
    assert found["HBM copy"].least == pytest.approx(4.1e12 * 3350 / 4800)
    assert "0.6979" in found["HBM copy"].basis
    for name, goal in (("FMA fp32", 62e12), ("GEMM bf16", 800e12), ("GEMM fp8", 1500e12)):
        assert found[name].goal == pytest.approx(goal)
    # Main ceilings count and not their variants.
    measured = (product("bf16", 791e12), product("bf16", 700e12, variant="sustained"))
    found = {one.ceiling: one.measured for one in part.targets("NVIDIA H200", H200, measured)}
    assert found["GEMM bf16"] == 791e12
    assert found["GEMM fp8"] is None


@pytest.mark.parametrize(("name", "facts"), [
    ("NVIDIA H200 NVL", SheetFacts(kind="cuda", units=132)),
    ("NVIDIA H100 PCIe", SheetFacts(kind="cuda", units=114)),
    ("NVIDIA H200 MIG 1g.18gb", SheetFacts(kind="cuda", units=16)),
    ("NVIDIA GeForce RTX 4090", SheetFacts(kind="cuda", units=128)),
    ("a GPU without a sheet", SheetFacts(kind="cuda", units=7)),
])  # fmt: skip
def test_no_other_device_has_targets(name, facts):
    assert part.targets(name, facts, ()) == ()


# --- laws ---------------------------------------------------------------------------------------------------------------------------

MAX_CLOCK = 1.98e9


def figure(name, value, *, kind="compute", unit="FLOP/s", clock=None, throttled=(), source="measured", **fields):
    conditions = None if clock is None else Conditions(clock_hz=clock, throttled=throttled)
    return Ceiling(
        kind=kind, name=name, value=value, unit=unit, source=Source(kind=source, detail="kernel"), conditions=conditions, **fields
    )


def clocks(*ceilings, max_clock_hz=MAX_CLOCK):
    device = Device(environment=environment("NVIDIA H200", 132, 140), max_clock_hz=max_clock_hz)
    return part.clock_at_maximum(Findings(figures=to_plain({"measured": measured_on("NVIDIA H200", *ceilings)})), device)


def ours(*ceilings, left_out=()):
    omitted = [LeftOut(what=what, reason=reason) for what, _, reason in (line.partition(": ") for line in left_out)]
    figures = to_plain({"measured": measured_on("NVIDIA H200", *ceilings)})
    return part.our_kernels_ran(Findings(figures=figures, left_out=omitted), None)


def test_figures_are_taken_at_the_maximum_clock():
    warm = figure("FMA fp32", 60e12, clock=1.97e9)
    assert outcome(clocks(warm)) == "ok"
    cold = figure("HBM copy", 4e12, kind="memory", unit="B/s", clock=1.2e9)
    assert clocks(warm, cold) == (False, "1.20 GHz of 1.98 GHz in HBM copy (no reason reported)")
    # nobody read the clock, or knows the highest; copies between host and device need no clock of the multiprocessors
    assert outcome(clocks(figure("GEMM bf16", 790e12))) == "left out"
    assert outcome(clocks(figure("GEMM bf16", 790e12, clock=1.2e9), max_clock_hz=None)) == "left out"
    assert outcome(clocks(figure("H2D", 50e9, kind="link", unit="B/s", clock=0.3e9))) == "left out"


@pytest.mark.parametrize(("throttled", "expected"), [
    (("software power cap",), "ok"),
    (("hardware power brake slowdown", "software power cap"), "ok"),
    (("software thermal slowdown",), "failed"),
    (("software power cap", "hardware thermal slowdown"), "failed"),
    (("applications clocks setting",), "failed"),
    ((), "failed"),
])  # fmt: skip
def test_only_the_power_limit_excuses_a_low_clock(throttled, expected):
    """A large product at 700 W runs at 1.4 of 1.98 GHz: that is what the board can do. Heat and clocks set by a user are not."""
    verdict = clocks(figure("GEMM bf16", 790e12, clock=1.4e9, throttled=throttled))
    assert outcome(verdict) == expected
    assert "1.40 GHz of 1.98 GHz in GEMM bf16" in verdict[1]
    assert all(reason in verdict[1] for reason in throttled)


@pytest.mark.parametrize(("measured", "expected"), [
    (4.2e12, (True, "4.20 TB/s; goal 4.30 TB/s")),
    (4.0e12, (False, "4.00 TB/s; goal 4.30 TB/s")),
    (None, (False, "not measured; goal 4.30 TB/s")),
])  # fmt: skip
def test_the_least_decides_and_the_goal_is_reported(measured, expected):
    target = Target(ceiling="HBM copy", unit="B/s", least=4.1e12, goal=4.3e12, basis="set", measured=measured)
    assert part.target_law(target) == "HBM copy >= 4.10 TB/s"
    assert part.LAWS["HBM copy >= 4.10 TB/s"](Findings(figures=to_plain({"targets": (target,)})), None) == expected


def test_our_kernels_ran_or_the_check_fails():
    ran, derived = figure("FMA fp32", 60e12), figure("FMA fp32", 67e12, source="derived")
    assert ours(ran) == (True, "kernel")
    no_nvvm = "CUDA kernels: skipped (NVVM not found); memory is measured with torch"
    assert ours(derived, left_out=[no_nvvm]) == (False, no_nvvm)
    assert ours() == ours(derived) == (False, "FMA fp32 was not measured")
    invalid = "HBM copy: left out (CUDA_ERROR_INVALID_PTX)"
    assert ours(ran, left_out=[invalid, "GEMM fp8: not available (no such operator)"]) == (False, invalid)
    assert ours(ran, left_out=["GEMM fp8: left out (CUBLAS_STATUS_NOT_SUPPORTED)"])[0]
    assert ours(ran, left_out=["L2 read: skipped, 3.00 TB/s is not above HBM"])[0]
