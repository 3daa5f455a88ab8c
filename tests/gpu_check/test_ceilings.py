"""The ceilings part: data sheets by all facts of a device, and what its figures are compared with."""

import msgspec
import pytest

from rooflines.device_specs.catalog import SheetFacts
from rooflines.device_specs.compare import References, compare
from rooflines.device_specs.history import History, HistorySeries, HistorySession
from rooflines.device_specs.records import Ceiling, Ceilings, Conditions, Source
from rooflines.gpu_check import ceilings as part
from rooflines.gpu_check import energy
from rooflines.gpu_check.records import Device, Recorder, Target
from rooflines.pipeline.ceilings import sheet_of
from rooflines.profiler.records import Environment


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


def reached(name, units, memory_gib, *found):
    here = environment(name, units, memory_gib)
    sheet, why = sheet_of(here)
    return dict(
        part.fractions(compare(measured_on(name, *found), References(spec=sheet, no_spec=why)), part.fast_fp8(Device(environment=here)))
    )


@pytest.mark.parametrize(("name", "units", "memory_gib", "bytes_per_s"), [
    ("NVIDIA GeForce RTX 3080", 68, 9.8, 760e9),
    ("NVIDIA GeForce RTX 3080", 70, 11.8, 912e9),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 4.8, 1555e9 / 8),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, 9.8, 3350e9 / 8),
])  # fmt: skip
def test_devices_that_share_a_name_and_slices_have_their_sheet(name, units, memory_gib, bytes_per_s):
    """RTX 3080 with 10 and with 12 GB are told apart by SM count and memory; a slice has its share."""
    sheet, why = sheet_of(environment(name, units, memory_gib))
    assert why == ""
    assert sheet.outermost_memory().value == pytest.approx(bytes_per_s)


def test_a_device_without_a_sheet_has_a_reason_and_no_error():
    sheet, why = sheet_of(environment("NVIDIA Nothing 9000", 10, 8))
    assert sheet is None
    assert "no data sheet" in why
    assert reached("NVIDIA Nothing 9000", 10, 8, product("fp8", 1e12)) == {}
    assert part.above_no_sheet(()).outcome == "left out"


def test_fp8_with_fast_accumulation_is_compared_with_the_faster_rate_of_the_sheet():
    """An RTX 4090 has 330 TFLOP/s with fp32 sums and 660 with fp16 sums: 600 are above 1.2 times the first and below the second."""
    found = reached("NVIDIA GeForce RTX 4090", 128, 23.6, product("fp8", 600e12), product("fp16", 160e12))
    assert found["GEMM fp8"] == pytest.approx(600 / 660.6)
    assert found["GEMM fp16"] == pytest.approx(160 / 165.2)  # sums in fp32, as torch has them
    assert part.above_no_sheet(found.items()).outcome == "ok"
    assert part.above_no_sheet(reached("NVIDIA GeForce RTX 4090", 128, 23.6, product("fp8", 800e12)).items()).outcome == "failed"
    assert reached("NVIDIA H100 80GB HBM3", 132, 79.1, product("fp8", 1500e12))["GEMM fp8"] == pytest.approx(1500 / 1978.9)


def test_the_part_records_everything_before_it_judges(tmp_path, monkeypatch):
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

    monkeypatch.setattr(part, "measure", measure)
    recorder = Recorder(tmp_path, Device(environment=environment("NVIDIA H200", 132, 140), max_clock_hz=1.98e9))
    part.run(recorder)
    found = recorder.findings
    assert (tmp_path / "progress.txt").read_text().splitlines()[-1] == "GEMM bf16: 781 TFLOP/s"
    assert (tmp_path / "rounds.json").is_file()
    assert [one.what for one in found.left_out] == ["CUDA kernels", "GEMM fp8", "cuda:0 and cuda:1"]
    results = {check.law: check.outcome for check in found.checks}
    assert results["the CUDA kernels of rooflines ran"] == "failed"
    assert results["GEMM bf16 >= 780 TFLOP/s"] == "ok"
    assert results["GEMM fp8 >= 1.40 PFLOP/s"] == "failed"
    assert results["no ceiling above 1.2 x its data-sheet rate"] == "ok"
    assert {"measured", "compared", "targets"} <= set(found.figures)


def test_earlier_measurements_in_the_cache_are_no_evidence():
    """Last week a copy moved 4.3 TB/s; today it moves 3.0 TB/s, which the check has to say."""

    def session(day, rate):
        figure = Ceiling(kind="memory", name="HBM copy", value=rate, unit="B/s", level="HBM", access="copy",
                         source=Source(kind="measured", detail="kernel"))  # fmt: skip
        series = HistorySeries(ceiling=figure, values=(rate, rate), quiet=(True, True))
        return HistorySession(measured_at=f"2026-11-{day}T10:00:00.000+00:00", series=(series,))

    history = History(device="NVIDIA H200", kind="cuda", fingerprint="f", method=5, sessions=(session(16, 4.3e12), session(23, 3.0e12)))
    best = history.ceilings()
    assert best.ceilings[0].value == 4.3e12
    found = part.alone(best, history.sessions[-1:])
    assert found.ceilings[0].value == 3.0e12
    assert found.measurements == 1
    assert part.alone(best, ()) == best  # a cache that cannot be written


@pytest.mark.parametrize("run", [part.run, energy.run])
def test_a_rehearsal_without_a_gpu_measures_nothing(tmp_path, run):
    cpu = Environment(rooflines="0", device="cpu", device_name="a CPU")
    recorder = Recorder(tmp_path, Device(environment=cpu))
    run(recorder)
    found = recorder.findings
    assert (found.figures, found.checks) == ({}, [])
    assert [one.reason for one in found.left_out] == ["there is no GPU"]


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


def outcome(check):
    return check.outcome


def test_figures_are_taken_at_the_maximum_clock():
    warm = figure("FMA fp32", 60e12, clock=1.97e9)
    assert outcome(part.clock_at_maximum([warm], MAX_CLOCK)) == "ok"
    cold = figure("HBM copy", 4e12, kind="memory", unit="B/s", clock=1.2e9)
    check = part.clock_at_maximum([warm, cold], MAX_CLOCK)
    assert check.outcome == "failed"
    assert "1.20 GHz of 1.98 GHz in HBM copy (no reason reported)" in check.found


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
    product = figure("GEMM bf16", 790e12, clock=1.4e9, throttled=throttled)
    check = part.clock_at_maximum([product], MAX_CLOCK)
    assert check.outcome == expected
    assert "1.40 GHz of 1.98 GHz in GEMM bf16" in check.found
    assert all(reason in check.found for reason in throttled)


def test_which_ceilings_pass():
    # Clocks that nobody read are left out.
    assert outcome(part.clock_at_maximum([figure("GEMM bf16", 790e12)], MAX_CLOCK)) == "left out"
    assert outcome(part.clock_at_maximum([figure("GEMM bf16", 790e12, clock=1.2e9)], None)) == "left out"
    # copies between host and device need no clock of the multiprocessors
    assert outcome(part.clock_at_maximum([figure("H2D", 50e9, kind="link", unit="B/s", clock=0.3e9)], MAX_CLOCK)) == "left out"
    # Ceilings above the sheet.
    assert outcome(part.above_no_sheet([("GEMM bf16", 0.8), ("FMA fp32", 1.19)])) == "ok"
    check = part.above_no_sheet([("GEMM bf16", 0.8), ("HBM copy", 2.0)])
    assert (check.outcome, check.found) == ("failed", "2.00 by HBM copy")
    assert outcome(part.above_no_sheet([])) == "left out"
    # The least decides and the goal is reported.
    target = Target(ceiling="HBM copy", unit="B/s", least=4.1e12, goal=4.3e12, basis="set", measured=4.2e12)
    check = part.target_reached(target)
    assert (check.law, check.outcome, check.found) == ("HBM copy >= 4.10 TB/s", "ok", "4.20 TB/s; goal 4.30 TB/s")
    assert outcome(part.target_reached(msgspec.structs.replace(target, measured=4.0e12))) == "failed"
    check = part.target_reached(msgspec.structs.replace(target, measured=None))
    assert (check.outcome, check.found) == ("failed", "not measured; goal 4.30 TB/s")


def test_our_kernels_ran_or_the_check_fails():
    ran = figure("FMA fp32", 60e12)
    assert outcome(part.our_kernels_ran([ran], [])) == "ok"
    derived = figure("FMA fp32", 67e12, source="derived")
    check = part.our_kernels_ran([derived], ["CUDA kernels: skipped (NVVM not found); memory is measured with torch"])
    assert (check.outcome, check.found) == ("failed", "CUDA kernels: skipped (NVVM not found); memory is measured with torch")
    assert outcome(part.our_kernels_ran([], [])) == "failed"
    assert part.our_kernels_ran([derived], []).found == "FMA fp32 was not measured"
    assert outcome(part.our_kernels_ran([derived], [])) == "failed"
    check = part.our_kernels_ran([ran], ["HBM copy: left out (CUDA_ERROR_INVALID_PTX)", "GEMM fp8: not available (no such operator)"])
    assert (check.outcome, check.found) == ("failed", "HBM copy: left out (CUDA_ERROR_INVALID_PTX)")
    assert outcome(part.our_kernels_ran([ran], ["GEMM fp8: left out (CUBLAS_STATUS_NOT_SUPPORTED)"])) == "ok"
    assert outcome(part.our_kernels_ran([ran], ["L2 read: skipped, 3.00 TB/s is not above HBM"])) == "ok"
