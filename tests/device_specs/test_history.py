"""Ceilings from the rounds of several measurements."""

import msgspec
import pytest

from rooflines.device_specs import detect, history
from rooflines.device_specs.history import MOST_SESSIONS, History, Series, Session, best_of
from rooflines.device_specs.records import Ceiling, Source, marked, marks_of
from rooflines.serial import from_plain, to_plain

EMPTY = History(device="laptop", kind="cpu", fingerprint="f", method=4, threads=2)


def series(name, *values, quiet=None, detail="kernel", further="", **fields):
    kind = fields.setdefault("kind", "compute")
    source = Source(kind="measured", detail=detail)
    ceiling = Ceiling(name=name, value=values[0], unit="s" if kind == "latency" else "FLOP/s", source=source, **fields)
    return Series(ceiling=ceiling, values=values, quiet=quiet or (True,) * len(values), further=further)


def session(*found, minute=0, **fields):
    return Session(measured_at=f"2026-11-20T10:{minute:02}:00+00:00", series=found, **fields)


def test_the_best_round_of_all_measurements_is_the_roof():
    slow, fast = session(series("a", 50.0, 51.0)), session(series("a", 100.0, 99.0), minute=1)
    for sessions in ((slow, fast), (fast, slow)):
        (one,) = best_of(sessions)
        assert (one.value, one.rounds, one.agreeing) == (100.0, 4, 2)
        assert one.spread > 0.3  # between all of them
    (time,) = best_of([session(series("a", 2.0, 1.0, kind="latency")), session(series("a", 1.02, kind="latency"), minute=1)])
    assert (time.value, time.agreeing) == (1.0, 2)


def test_a_figure_that_no_quiet_round_has_is_disturbed_until_a_later_measurement_has_one():
    noisy = session(series("a", 40.0, 50.0, quiet=(False, False)))
    (one,) = best_of([noisy])
    assert (one.value, marks_of(one)) == (50.0, ["disturbed"])
    (one,) = best_of([noisy, session(series("a", 55.0, 54.0), minute=1)])
    assert (one.value, one.rounds, marks_of(one)) == (55.0, 2, [])


def test_a_best_round_alone_is_marked_until_a_later_measurement_confirms_it():
    alone = session(series("a", 100.0, 80.0, 81.0))
    (one,) = best_of([alone])
    assert (one.value, marks_of(one)) == (100.0, ["unconfirmed"])
    (one,) = best_of([alone, session(series("a", 98.0), minute=1)])
    assert marks_of(one) == []


def test_the_fastest_way_is_the_figure_and_another_kind_of_stores_a_variant():
    ways = (
        series("DRAM copy", 30.0, 31.0, detail="ordinary", further="ordinary stores"),
        series("DRAM copy", 50.0, 49.0, detail="non-temporal", further="non-temporal stores"),
        series("GEMM fp32", 3.0, 3.0, detail="1024"),
        series("GEMM fp32", 4.0, 4.0, detail="2048"),
    )
    found = {(one.name, one.variant): one.value for one in best_of([session(*ways)])}
    assert found == {("DRAM copy", ""): 50.0, ("DRAM copy", "ordinary stores"): 31.0, ("GEMM fp32", ""): 4.0}


def test_what_breaks_a_law_is_marked_with_the_law(monkeypatch):
    monkeypatch.setattr(detect, "physical_cores", lambda: 2)
    fields = {"precision": "fp32", "engine": "vector"}
    half = session(series("FMA fp32", 117e9, 117e9, threads=2, **fields), series("FMA fp64", 119e9, 119e9, threads=2))
    single, double = EMPTY.joined([half]).ceilings().ceilings
    assert (marks_of(single), marks_of(double)) == (["contradicts"], [])
    assert marked(single, "contradicts") == "49 % of 2 x FMA fp64 (119 GFLOP/s)"
    whole = session(series("FMA fp32", 238e9, 237e9, threads=2, **fields), minute=1)
    assert not any(marks_of(one) for one in EMPTY.joined([half, whole]).ceilings().ceilings)


def test_notes_belong_to_a_level_and_not_to_the_way():
    sessions = [
        session(series("L3 read", 5.0, level="L3"), notes={"L3": ", but it ends at 90 MiB"}),
        session(series("L3 read", 5.0, level="L3"), minute=1),
    ]
    (one,) = best_of(sessions)
    assert (one.rounds, one.source.detail) == (2, "kernel, but it ends at 90 MiB")


def test_sustained_figures_are_those_held_for_as_long_as_asked():
    def held(seconds, value):
        return msgspec.structs.replace(series("GEMM bf16", value, variant="sustained"), values=(), quiet=()), seconds

    both = [
        session(*[one], sustained_s=seconds, minute=minute) for minute, (one, seconds) in enumerate((held(1.0, 90.0), held(30.0, 70.0)))
    ]
    known = EMPTY.joined(both)
    assert [one.value for one in known.ceilings().ceilings] == [70.0]
    assert [one.value for one in known.ceilings(1.0).ceilings] == [90.0]
    assert known.ceilings(1.0).sustained_s == 1.0


def test_a_history_is_in_order_with_each_measurement_once_and_not_endless():
    first, second = session(series("a", 1.0)), session(series("a", 2.0), minute=1, full=True, clock_hz=3e9)
    known = EMPTY.joined([second]).joined([first, second])
    assert known.sessions == (first, second)
    found = known.ceilings()
    assert (found.since, found.measured_at, found.measurements) == (first.measured_at, second.measured_at, 2)
    assert (found.full, found.clock_hz, found.threads, found.method) == (True, 3e9, 2, 4)
    many = known.joined([session(series("a", 1.0), minute=minute) for minute in range(2, 50)])
    assert len(many.sessions) == MOST_SESSIONS
    assert many.sessions[-1].measured_at.startswith("2026-11-20T10:49")


def test_what_is_stored_is_what_was_measured():
    known = EMPTY.joined([session(series("a", 1.0, 2.0, quiet=(True, False), further="b"), notes={"L3": "x"}, disturbed_by="y")])
    assert from_plain(to_plain(known), History) == known


def test_laws_of_a_gpu_need_no_cores(monkeypatch):
    monkeypatch.setattr(detect, "physical_cores", lambda: pytest.fail("asked for the cores of a GPU"))
    assert history.broken_laws((), None) == ()
