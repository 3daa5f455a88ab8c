"""Ceilings from the rounds of several measurements."""

import msgspec
import pytest

from rooflines.device_specs import detect, history
from rooflines.device_specs.compare import References, compare, references, without_reference
from rooflines.device_specs.history import MOST_SESSIONS, History, HistorySeries, HistorySession, best_of
from rooflines.device_specs.records import Ceiling, Ceilings, Source, marked, marks_of
from rooflines.serial import from_plain, to_plain
from tests import samples

EMPTY = History(device="laptop", kind="cpu", fingerprint="f", method=4, threads=2)


def series(name, *values, quiet=None, detail="kernel", further="", **fields):
    kind = fields.setdefault("kind", "compute")
    source = Source(kind="measured", detail=detail)
    ceiling = Ceiling(name=name, value=values[0], unit="s" if kind == "latency" else "FLOP/s", source=source, **fields)
    return HistorySeries(ceiling=ceiling, values=values, quiet=quiet or (True,) * len(values), further=further)


def session(*found, minute=0, **fields):
    return HistorySession(measured_at=f"2026-11-20T10:{minute:02}:00+00:00", series=found, **fields)


def test_which_round_of_all_measurements_is_the_roof():
    # The best round of all measurements is the roof.
    slow, fast = session(series("a", 50.0, 51.0)), session(series("a", 100.0, 99.0), minute=1)
    for sessions in ((slow, fast), (fast, slow)):
        (one,) = best_of(sessions)
        assert (one.value, one.rounds, one.agreeing) == (100.0, 4, 2)
        assert one.spread > 0.3  # between all of them
    (time,) = best_of([session(series("a", 2.0, 1.0, kind="latency")), session(series("a", 1.02, kind="latency"), minute=1)])
    assert (time.value, time.agreeing) == (1.0, 2)
    # The fastest way is the figure and another kind of stores a variant.
    ways = (
        series("DRAM copy", 30.0, 31.0, detail="ordinary", further="ordinary stores"),
        series("DRAM copy", 50.0, 49.0, detail="non-temporal", further="non-temporal stores"),
        series("GEMM fp32", 3.0, 3.0, detail="1024"),
        series("GEMM fp32", 4.0, 4.0, detail="2048"),
    )
    found = {(one.name, one.variant): one.value for one in best_of([session(*ways)])}
    assert found == {("DRAM copy", ""): 50.0, ("DRAM copy", "ordinary stores"): 31.0, ("GEMM fp32", ""): 4.0}

    # Sustained figures are those held for as long as asked.
    def held(seconds, value):
        return msgspec.structs.replace(series("GEMM bf16", value, variant="sustained"), values=(), quiet=()), seconds

    both = [
        session(*[one], sustained_s=seconds, minute=minute) for minute, (one, seconds) in enumerate((held(1.0, 90.0), held(30.0, 70.0)))
    ]
    known = EMPTY.joined(both)
    assert [one.value for one in known.ceilings().ceilings] == [70.0]
    assert [one.value for one in known.ceilings(1.0).ceilings] == [90.0]
    assert known.ceilings(1.0).sustained_s == 1.0
    # Notes belong to a level and not to the way.
    sessions = [
        session(series("L3 read", 5.0, level="L3"), notes={"L3": ", but it ends at 90 MiB"}),
        session(series("L3 read", 5.0, level="L3"), minute=1),
    ]
    (one,) = best_of(sessions)
    assert (one.rounds, one.source.detail) == (2, "kernel, but it ends at 90 MiB")


def test_a_round_is_marked_until_a_later_measurement_confirms_it():
    # A figure that no quiet round has is disturbed until a later measurement has one.
    noisy = session(series("a", 40.0, 50.0, quiet=(False, False)))
    (one,) = best_of([noisy])
    assert (one.value, marks_of(one)) == (50.0, ["disturbed"])
    (one,) = best_of([noisy, session(series("a", 55.0, 54.0), minute=1)])
    assert (one.value, one.rounds, marks_of(one)) == (55.0, 2, [])
    # A best round alone is marked until a later measurement confirms it.
    alone = session(series("a", 100.0, 80.0, 81.0))
    (one,) = best_of([alone])
    assert (one.value, marks_of(one)) == (100.0, ["unconfirmed"])
    (one,) = best_of([alone, session(series("a", 98.0), minute=1)])
    assert marks_of(one) == []


def test_laws_are_marked_and_those_of_a_gpu_need_no_cores(monkeypatch):
    # What breaks a law is marked with the law.
    monkeypatch.setattr(detect, "physical_cores", lambda: 2)
    fields = {"precision": "fp32", "engine": "vector"}
    half = session(series("FMA fp32", 117e9, 117e9, threads=2, **fields), series("FMA fp64", 119e9, 119e9, threads=2))
    single, double = EMPTY.joined([half]).ceilings().ceilings
    assert (marks_of(single), marks_of(double)) == (["contradicts"], [])
    assert marked(single, "contradicts") == "49 % of 2 x FMA fp64 (119 GFLOP/s)"
    whole = session(series("FMA fp32", 238e9, 237e9, threads=2, **fields), minute=1)
    assert not any(marks_of(one) for one in EMPTY.joined([half, whole]).ceilings().ceilings)
    # Laws of a gpu need no cores.
    monkeypatch.setattr(detect, "physical_cores", lambda: pytest.fail("asked for the cores of a GPU"))
    assert history.broken_laws((), None) == ()


def test_a_history_is_stored_in_order():
    # A history is in order with each measurement once and not endless.
    first, second = session(series("a", 1.0)), session(series("a", 2.0), minute=1, full=True, clock_hz=3e9)
    known = EMPTY.joined([second]).joined([first, second])
    assert known.sessions == (first, second)
    found = known.ceilings()
    assert (found.since, found.measured_at, found.measurements) == (first.measured_at, second.measured_at, 2)
    assert (found.full, found.clock_hz, found.threads, found.method) == (True, 3e9, 2, 4)
    many = known.joined([session(series("a", 1.0), minute=minute) for minute in range(2, 50)])
    assert len(many.sessions) == MOST_SESSIONS
    assert many.sessions[-1].measured_at.startswith("2026-11-20T10:49")
    # What is stored is what was measured.
    known = EMPTY.joined([session(series("a", 1.0, 2.0, quiet=(True, False), further="b"), notes={"L3": "x"}, disturbed_by="y")])
    assert from_plain(to_plain(known), History) == known


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


def test_what_figures_are_compared_with():
    # The fraction is measured over the sheet and over the derived where there is none.
    rows = held([rate("fp32", "vector", 500e9)], derived=[rate("fp32", "vector", 920e9), rate("fp64", "vector", 460e9)])
    assert (rows["FMA fp32"].fraction, rows["FMA fp32"].reference_source) == (pytest.approx(460 / 500), "spec")
    assert rows["FMA fp32"].derived.value == 920e9
    assert (rows["FMA fp64"].fraction, rows["FMA fp64"].reference_source) == (pytest.approx(230 / 460), "derived")
    # A product without a matrix figure is compared with the vector units, on which it runs.
    measured = of(gemm("fp32", 400e9))
    assert held([rate("fp32", "vector", 500e9)], measured)["GEMM fp32"].fraction == pytest.approx(0.8)
    rows = held([rate("fp32", "vector", 500e9), rate("fp32", "matrix", 800e9)], measured)
    assert rows["GEMM fp32"].fraction == pytest.approx(0.5)
    assert rows["fp32 vector"].measured is None
    # Another accumulate type or precision is another figure.
    measured = of(gemm("fp16", 150e12))
    rows = held([rate("fp16", "matrix", 330e12, "fp16"), rate("bf16", "matrix", 165e12, "fp32")], measured)
    assert "GEMM fp16" not in rows
    assert all(row.fraction is None for row in rows.values())
    assert held([rate("fp16", "matrix", 165e12, "fp32")], measured)["GEMM fp16"].fraction == pytest.approx(150 / 165)
    # Memory is compared by level, every access with the one figure of its level.
    copy = msgspec.structs.replace(samples.ceilings()[5], name="DRAM copy", access="copy", value=40e9)
    rows = held([memory(50e9, "HBM")], of(*samples.ceilings(), copy))
    assert rows["DRAM triad"].fraction == pytest.approx(0.9)  # whatever it is called, it is the memory outside of all caches
    assert rows["DRAM copy"].fraction == pytest.approx(0.8)
    assert "L2 read" not in rows
    assert held([memory(820e9, "L2", 1 << 20)])["L2 read"].fraction == pytest.approx(0.5)

    # A link goes by its direction.
    def link(name, value, **more):
        return Ceiling(kind="link", name=name, value=value, unit="B/s", level="host", source=SHEET, **more)

    measured = of(link("H2D", 26e9), link("H2D", 11e9, variant="pageable"), link("cuda:0 to cuda:1", 200e9))
    rows = held([link("H2D", 32e9), link("D2H", 32e9)], measured)
    assert {name: row.fraction for name, row in rows.items()} == {"H2D": pytest.approx(26 / 32)}


def test_what_has_no_fraction():
    # Further roofs are not compared but sustained ones are.
    single = msgspec.structs.replace(samples.ceilings()[0], variant="1 thread", value=230e9)
    held_long = msgspec.structs.replace(samples.ceilings()[0], variant="sustained", value=450e9)
    rows = compare(of(*samples.ceilings(), single, held_long), References(spec=of(rate("fp32", "vector", 500e9))))
    assert [row.fraction for row in rows] == [pytest.approx(0.92), pytest.approx(0.9)]
    # What only the sheet has is listed without a fraction.
    rows = held([rate("fp8", "matrix", 2e15, "fp32"), memory(50e9)])
    assert (rows["fp8 matrix"].measured, rows["fp8 matrix"].fraction) == (None, None)
    # Without any reference there is no row and every rate stands alone.
    assert compare(MEASURED, References(no_spec="none")) == ()
    assert [one.name for one in without_reference(MEASURED, ())] == [one.name for one in samples.ceilings() if one.kind != "latency"]
    # Above one is kept.
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
