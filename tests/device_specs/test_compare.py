"""Which measured figure is held against which of a sheet, and that nothing is held against what it is not."""

import msgspec
import pytest

from rooflines.device_specs import detect
from rooflines.device_specs.compare import References, compare, references, without_reference
from rooflines.device_specs.records import Ceiling, Ceilings, Source
from tests import samples

MEASURED = Ceilings(device="laptop", kind="cpu", ceilings=samples.ceilings(), threads=2, clock_hz=3e9)
SHEET = Source(kind="spec", detail="the sheet")


def rate(precision, engine, value, accumulate=None):
    return Ceiling(kind="compute", name=f"{precision} {engine}", value=value, unit="FLOP/s", precision=precision, engine=engine,
                   accumulate=accumulate or precision, source=SHEET)  # fmt: skip


def memory(value, level="DRAM", capacity=None):
    return Ceiling(kind="memory", name=level, value=value, unit="B/s", level=level, capacity_bytes=capacity, source=SHEET)


def held(spec, measured=MEASURED, derived=None):
    known = References(spec=of(*spec), derived=of(*derived) if derived else None)
    return {row.any.name: row for row in compare(measured, known)}


def of(*ceilings):
    return Ceilings(device="laptop", kind="cpu", ceilings=ceilings)


def gemm(precision, value, accumulate="fp32"):
    return msgspec.structs.replace(
        samples.ceilings()[2], name=f"GEMM {precision}", precision=precision, value=value, accumulate=accumulate
    )


def test_the_fraction_is_measured_over_the_sheet_and_over_the_derived_where_there_is_none():
    rows = held([rate("fp32", "vector", 500e9)], derived=[rate("fp32", "vector", 920e9), rate("fp64", "vector", 460e9)])
    assert (rows["FMA fp32"].fraction, rows["FMA fp32"].reference_source) == (pytest.approx(460 / 500), "spec")
    assert rows["FMA fp32"].derived.value == 920e9
    assert (rows["FMA fp64"].fraction, rows["FMA fp64"].reference_source) == (pytest.approx(230 / 460), "derived")


def test_a_product_without_a_matrix_figure_is_held_against_the_vector_units_it_runs_on():
    measured = of(gemm("fp32", 400e9))
    assert held([rate("fp32", "vector", 500e9)], measured)["GEMM fp32"].fraction == pytest.approx(0.8)
    rows = held([rate("fp32", "vector", 500e9), rate("fp32", "matrix", 800e9)], measured)
    assert rows["GEMM fp32"].fraction == pytest.approx(0.5)
    assert rows["fp32 vector"].measured is None


def test_another_accumulate_type_or_precision_is_another_figure():
    measured = of(gemm("fp16", 150e12))
    rows = held([rate("fp16", "matrix", 330e12, "fp16"), rate("bf16", "matrix", 165e12, "fp32")], measured)
    assert "GEMM fp16" not in rows
    assert all(row.fraction is None for row in rows.values())
    assert held([rate("fp16", "matrix", 165e12, "fp32")], measured)["GEMM fp16"].fraction == pytest.approx(150 / 165)


def test_memory_goes_by_level_and_every_access_is_held_against_the_one_figure():
    copy = msgspec.structs.replace(samples.ceilings()[5], name="DRAM copy", access="copy", value=40e9)
    rows = held([memory(50e9, "HBM")], of(*samples.ceilings(), copy))
    assert rows["DRAM triad"].fraction == pytest.approx(0.9)  # whatever it is called, it is the memory outside of all caches
    assert rows["DRAM copy"].fraction == pytest.approx(0.8)
    assert "L2 read" not in rows
    assert held([memory(820e9, "L2", 1 << 20)])["L2 read"].fraction == pytest.approx(0.5)


def test_a_link_goes_by_its_direction():
    def link(name, value, **more):
        return Ceiling(kind="link", name=name, value=value, unit="B/s", level="host", source=SHEET, **more)

    measured = of(link("H2D", 26e9), link("H2D", 11e9, variant="pageable"), link("cuda:0 to cuda:1", 200e9))
    rows = held([link("H2D", 32e9), link("D2H", 32e9)], measured)
    assert {name: row.fraction for name, row in rows.items()} == {"H2D": pytest.approx(26 / 32)}


def test_further_roofs_are_not_compared_but_sustained_ones_are():
    single = msgspec.structs.replace(samples.ceilings()[0], variant="1 thread", value=230e9)
    held_long = msgspec.structs.replace(samples.ceilings()[0], variant="sustained", value=450e9)
    rows = compare(of(*samples.ceilings(), single, held_long), References(spec=of(rate("fp32", "vector", 500e9))))
    assert [row.fraction for row in rows] == [pytest.approx(0.92), pytest.approx(0.9)]


def test_what_only_the_sheet_has_is_listed_without_a_fraction():
    rows = held([rate("fp8", "matrix", 2e15, "fp32"), memory(50e9)])
    assert (rows["fp8 matrix"].measured, rows["fp8 matrix"].fraction) == (None, None)


def test_without_any_reference_there_is_no_row_and_every_rate_stands_alone():
    assert compare(MEASURED, References(no_spec="none")) == ()
    assert [one.name for one in without_reference(MEASURED, ())] == [one.name for one in samples.ceilings() if one.kind != "latency"]


def test_above_one_is_kept():
    assert held([rate("fp32", "vector", 400e9)])["FMA fp32"].fraction == pytest.approx(1.15)


@pytest.mark.parametrize(("name", "told"), [("AMD EPYC 7763 64-Core Processor", True), ("Zorblax 9000", False)])
def test_a_device_without_a_sheet_is_told_so_and_nothing_is_made_up(monkeypatch, name, told):
    detect.cpu()  # kept for the process, with its own name
    monkeypatch.setattr(detect, "cpu_name", lambda: name)
    found = references(MEASURED, "cpu")
    assert (found.spec is not None) is told
    if told:
        cores = min(2, detect.physical_cores())
        assert next(one for one in found.spec.ceilings if one.kind == "compute").source.detail.startswith(f"{cores} of 64 cores")
    else:
        assert "no data sheet for 'Zorblax 9000'" in found.no_spec


def test_a_cpu_is_derived_from_the_measured_clock_or_not_at_all():
    without = references(msgspec.structs.replace(MEASURED, clock_hz=None), "cpu")
    assert without.derived is None
    assert "clock" in without.no_derived
    found = references(MEASURED, "cpu").derived
    if found is not None:  # the core is one that we know
        assert all("3.000 GHz" in one.source.detail for one in found.ceilings if one.kind == "compute")
