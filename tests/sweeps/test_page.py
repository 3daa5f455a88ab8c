"""What a sweep shows: knees, what fits, the Pareto front, and a page of it all."""

import pytest
from msgspec.structs import replace

from rooflines.reports.charts.curves import Choices, Curves
from rooflines.reports.render.html import render
from rooflines.sweeps.page import curves_section, page
from rooflines.sweeps.records import MeasuredValue, Sweep, SweepAnalysis, SweepPoint, SweepRow
from rooflines.sweeps.results import Curve, axis_of, curves, fit, knee, pareto
from rooflines.sweeps.sweep import write_hyperparameters, write_sweep_table
from tests.printing import in_terminal


def row(model, size, rate=None, memory=None, reason=None, **options):
    point = SweepPoint(id=f"{model}-{size}", label=f"{model} · batch {size}", options={"model": model, "batch_size": size, **options})
    values = {"samples_per_s": rate, "step_s": rate and size / rate, "sample_s": rate and 1 / rate, "peak_memory_bytes": memory}
    estimates = {
        name: MeasuredValue(value=value, low=value * 0.9, high=value * 1.1) for name, value in values.items() if value is not None
    }
    return SweepRow(point=point, rounds=1, estimates=estimates, reason=reason, facts={"device_name": "test"} if rate else {})


ROWS = (
    row("a", 1, 10.0, 100.0), row("a", 2, 18.0, 200.0), row("a", 4, 28.0, 400.0), row("a", 8, 30.0, 800.0),
    row("a", 16, reason="out of memory in a: too much. Try less."),
    row("b", 1, 40.0, 300.0), row("b", 2, 39.0, 500.0), row("b", 4, 41.0, 900.0),
)  # fmt: skip


def test_curves_knee_and_largest_batch():
    # Curves run over the number that varies most.
    assert axis_of(ROWS) == "batch_size"
    assert axis_of(ROWS[:1]) is None
    a, b = curves(ROWS, "batch_size")
    assert (a.name, b.name) == ("a", "b")
    assert [one.point.options["batch_size"] for one in a.rows] == [1, 2, 4, 8, 16]
    # The knee is the first batch with nine tenths of the highest throughput.
    a, b = curves(ROWS, "batch_size")
    assert knee(a, "batch_size").value == 4  # 28 of 30
    assert knee(b, "batch_size").value == 1  # 40 of 41
    assert knee(Curve("b", b.rows[:2]), "batch_size") is None
    # The largest batch that fits and the smallest that does not.
    a, b = (fit(curve) for curve in curves(ROWS, "batch_size"))
    assert (a.largest, a.too_large) == (8, 16)
    assert (b.largest, b.too_large) == (4, None)


def test_no_point_beats_those_on_the_pareto_front_in_both():
    front = pareto(ROWS, {"samples_per_s": True, "peak_memory_bytes": False})
    assert [one.point.id for one in front] == ["a-1", "a-2", "b-1", "b-4"]
    for one in ROWS:
        if one.estimates and one not in front:
            assert any(
                other.value("samples_per_s") >= one.value("samples_per_s")
                and other.value("peak_memory_bytes") <= one.value("peak_memory_bytes")
                for other in front
            )
    accurate = pareto(ROWS, {"samples_per_s": True, "peak_memory_bytes": True})
    assert [one.point.id for one in accurate] == ["b-4"]


def page_of(rows):
    return page(SweepAnalysis(sweep=Sweep(name="two", repeats=3, points=tuple(one.point for one in rows)), rows=tuple(rows)))


@pytest.mark.ci
def test_the_page_has_every_point_with_its_value_or_its_reason(tmp_path):
    made = page_of(ROWS)
    assert made.verdict == "Highest throughput: b · batch 4 with 41.0 samples/s (36.9 to 45.1), 4.10 × that of a · batch 1."
    assert "a: batch 8 fits, batch 16 does not." in made.said
    table = made.tables()[0]
    assert [line.cells[0] for line in table.rows] == [one.point.label for one in ROWS]
    assert table.rows[4].cells[-1] == "out of memory in a: too much"
    drawings = [figure.drawing for figure in made.figures()]
    assert [type(one) for one in drawings] == [Curves, Curves, Curves, Choices]
    printed = curves_section(ROWS, {"samples_per_s": {"b": [(1, 20.0), (2, 25.0)]}}).blocks[0].drawing
    assert printed.series[1].paper_points == ((1, 20.0), (2, 25.0))
    assert "b · batch 4" in render(made)
    write_sweep_table(ROWS, tmp_path)
    assert (tmp_path / "results.csv").read_text().splitlines()[0].startswith("point,kind,model,batch_size,rounds,samples_per_s")
    assert (tmp_path / "results.parquet").is_file()


def test_every_point_is_a_run_of_tensorboard_with_its_options(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    made = page_of(ROWS)
    folder = write_hyperparameters(made, ROWS, tmp_path / "tensorboard")
    assert {path.name for path in folder.iterdir()} == {"report", *(one.point.id for one in ROWS if one.estimates)}
    (events,) = (folder / "a-4").iterdir()
    tags = {value.tag for event in EventFileLoader(str(events)).Load() for value in event.summary.value}
    assert tags >= {"_hparams_/session_start_info", "summary/samples_per_s", "summary/peak_memory_bytes"}


def test_a_sweep_of_failures_has_a_page():
    made = page_of(ROWS[4:5])
    assert made.verdict.startswith("No point has a result: out of memory in a")
    assert "out of memory" in render(made)


@pytest.mark.parametrize("done", [0, 2])
def test_points_that_have_not_run_are_said(done):
    waiting = tuple(row("c", size, reason="not run yet") for size in (1, 2))
    made = page_of((*ROWS[:done], *waiting))
    assert made.status[0] == "interrupted"


def printed(rows, width):
    return " ".join(in_terminal(page_of(rows), width).split())


def test_a_column_is_explained_where_it_is_shown():
    fast = tuple(replace(one, facts={"limited_by": "memory"}) for one in ROWS if one.reason is None)
    assert "Remark:" not in printed(fast, 50)
    assert "Remark: what limits most of the step. " in f"{printed(fast, 160)} "
    assert "Remark: why a point failed, or what limits most of the step." in printed(ROWS, 160)
