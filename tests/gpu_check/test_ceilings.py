"""The ceilings part: data sheets by all facts of a device, and what its figures are compared with."""

from __future__ import annotations

import pytest

from rooflines.device_specs.compare import References, compare
from rooflines.device_specs.history import History, Series, Session
from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.gpu_check import ceilings as part
from rooflines.gpu_check import laws
from rooflines.gpu_check.recorder import Recorder
from rooflines.gpu_check.records import Device, Findings
from rooflines.pipeline.ceilings import sheet_of
from rooflines.profiler.records import Environment
from rooflines.serial import read_json


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


@pytest.mark.parametrize(
    ("name", "units", "memory_gib", "bytes_per_s"),
    [
        ("NVIDIA GeForce RTX 3080", 68, 9.8, 760e9),
        ("NVIDIA GeForce RTX 3080", 70, 11.8, 912e9),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 4.8, 1555e9 / 8),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, 9.8, 3350e9 / 8),
    ],
)
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
    assert laws.above_no_sheet(()).outcome == "left out"


def test_fp8_with_fast_accumulation_is_compared_with_the_faster_rate_of_the_sheet():
    """An RTX 4090 has 330 TFLOP/s with fp32 sums and 660 with fp16 sums: 600 are above 1.2 times the first and below the second."""
    found = reached("NVIDIA GeForce RTX 4090", 128, 23.6, product("fp8", 600e12), product("fp16", 160e12))
    assert found["GEMM fp8"] == pytest.approx(600 / 660.6)
    assert found["GEMM fp16"] == pytest.approx(160 / 165.2)  # sums in fp32, as torch has them
    assert laws.above_no_sheet(found.items()).outcome == "ok"
    assert laws.above_no_sheet(reached("NVIDIA GeForce RTX 4090", 128, 23.6, product("fp8", 800e12)).items()).outcome == "failed"
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
    part.run(Recorder(tmp_path, Device(environment=environment("NVIDIA H200", 132, 140), max_clock_hz=1.98e9)))
    found = read_json(tmp_path / "findings.json", Findings)
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
        series = Series(ceiling=figure, values=(rate, rate), quiet=(True, True))
        return Session(measured_at=f"2026-11-{day}T10:00:00.000+00:00", series=(series,))

    history = History(device="NVIDIA H200", kind="cuda", fingerprint="f", method=5, sessions=(session(16, 4.3e12), session(23, 3.0e12)))
    best = history.ceilings()
    assert best.ceilings[0].value == 4.3e12
    found = part.alone(best, history.sessions[-1:])
    assert found.ceilings[0].value == 3.0e12
    assert found.measurements == 1
    assert part.alone(best, ()) == best  # a cache that cannot be written
