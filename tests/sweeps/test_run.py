"""Running a sweep: orders, processes, failures, restarts, and the places where it runs."""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
import torch

from rooflines.device_specs.measure_torch import emulation
from rooflines.errors import Interrupted, OutputError, RunError, UsageError
from rooflines.profiler.progress import Silent
from rooflines.sweeps.places import parameters
from rooflines.sweeps.point import run_point
from rooflines.sweeps.process import JobError, run_job
from rooflines.sweeps.records import Job, MeasuredValue, PointResult, Sweep, SweepPoint
from rooflines.sweeps.results import estimate, frame, read_results, row_of, sweep_rows
from rooflines.sweeps.run import in_rounds, load_sweep, run_sweep
from tests.processes import wait_until

ROOT = Path(__file__).parents[2]
JOB = "tests.sweeps.jobs:measure"


def points(*models, sizes=(1, 2)):
    return tuple(
        SweepPoint(id=f"{model}-{size}", label=f"{model} {size}", function=JOB, options={"model": model, "batch_size": size})
        for model in models
        for size in sizes
    )


def test_points_run_in_rounds_in_opposite_orders():
    sweep = Sweep(name="s", repeats=3, points=points("plain"))
    assert [(task.point.id, task.round) for task in in_rounds(sweep, Path())] == [
        ("plain-1", 0), ("plain-2", 0), ("plain-2", 1), ("plain-1", 1), ("plain-1", 2), ("plain-2", 2)
    ]  # fmt: skip


def test_each_round_is_a_process_and_a_failure_is_a_row(tmp_path):
    sweep, directory = run_sweep("s", points("plain", "refused", "killed", "raises", sizes=(2,)), repeats=2, output=tmp_path / "s")
    plain, refused, killed, raises = sweep_rows(directory, sweep)
    assert (plain.rounds, plain.value("samples_per_s"), plain.reason) == (2, 20.0, None)
    results = read_results(directory, sweep)
    pids = {results["plain-2", number].facts["pid"] for number in (0, 1)}
    assert len(pids) == 2
    assert str(os.getpid()) not in pids
    assert refused.reason == "out of memory in refused. Use less."
    assert "killed by signal 9" in killed.reason
    assert "KeyError" in raises.reason
    assert (refused.rounds, killed.rounds) == (0, 0)
    assert {number for point, number in results if point != "plain-2"} == {0}  # what failed is not tried again
    assert "printed by the job" in (directory / "points" / "plain-2" / "round-0" / "log.txt").read_text()
    table = frame((plain, refused))
    assert list(table["reason"].fillna("")) == ["", refused.reason]


@pytest.mark.ci
def test_a_sweep_that_was_killed_does_only_what_is_missing(tmp_path):
    program = f"""
from pathlib import Path
from rooflines.sweeps.run import run_sweep
from tests.sweeps.test_run import points
run_sweep("s", points("waits", sizes=(1, 2, 3, 4)), repeats=1, output=Path({str(tmp_path / "s")!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    done = tmp_path / "s" / "points" / "waits-1" / "round-0" / "result.json"
    begun = tmp_path / "s" / "points" / "waits-2" / "round-0" / "seen"
    wait_until(lambda: done.is_file() and begun.is_file())
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))
    before = done.read_bytes()
    sweep, directory = run_sweep("s", points("waits", sizes=(1, 2, 3, 4)), repeats=1, output=tmp_path / "s")
    assert done.read_bytes() == before
    assert [row.value("samples_per_s") for row in sweep_rows(directory, sweep)] == [10.0, 20.0, 30.0, 40.0]


def test_more_points_and_rounds_are_added_and_other_sweeps_refused(tmp_path):
    first, directory = run_sweep("s", points("plain", sizes=(1,)), repeats=1, output=tmp_path / "s")
    pid = read_results(directory, first)["plain-1", 0].facts["pid"]
    both, _ = run_sweep("s", points("plain"), repeats=2, output=tmp_path / "s")
    found = read_results(directory, both)
    assert len(found) == 4
    assert found["plain-1", 0].facts["pid"] == pid
    assert load_sweep(directory) == both
    with pytest.raises(OutputError, match="holds a sweep with other points"):
        run_sweep("s", points("waits"), repeats=1, output=tmp_path / "s")
    with pytest.raises(RunError, match=r"holds no sweep\.json"):
        load_sweep(tmp_path)
    with pytest.raises(UsageError, match="has no points"):
        run_sweep("s", (), output=tmp_path / "none")


def test_ctrl_c_keeps_what_has_ended_and_ends_the_process(tmp_path):
    class Stops(Silent):
        def stage(self, name, total):
            if name.startswith("2/"):
                raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="continues it"):
        run_sweep("s", points("plain"), repeats=1, output=tmp_path / "s", progress=Stops())
    sweep = load_sweep(tmp_path / "s")
    assert [row.reason for row in sweep_rows(tmp_path / "s", sweep)] == [None, "not run yet"]


def test_what_a_point_had_found_is_kept_if_it_dies_or_is_interrupted(tmp_path):
    dead, directory = run_sweep("s", points("dies", sizes=(2,)), repeats=1, output=tmp_path / "dies")
    (row,) = sweep_rows(directory, dead)
    assert row.value("samples_per_s") == 1.0
    assert "killed by signal 9" in row.reason
    assert not row.unfinished

    class Stops(Silent):
        def advance(self):
            raise KeyboardInterrupt

    directory = tmp_path / "stops"
    with pytest.raises(Interrupted):
        run_sweep("s", points("stops", sizes=(2,)), repeats=1, output=directory, progress=Stops())
    (row,) = sweep_rows(directory, load_sweep(directory))
    assert (row.value("samples_per_s"), row.reason, row.unfinished) == (1.0, "interrupted", True)
    (tmp_path / "go").touch()
    again, _ = run_sweep("s", points("stops", sizes=(2,)), repeats=1, output=directory)
    (row,) = sweep_rows(directory, again)
    assert (row.value("samples_per_s"), row.reason) == (20.0, None)


def test_answers_and_intervals_of_rounds():
    # A job without an answer says how it ended.
    with pytest.raises(JobError, match="No module named 'nowhere'"):
        run_job(Job(function="nowhere:nothing", options={}), Silent())
    # The interval of three rounds is student's t of their logarithms.
    values = [1.0, math.e, math.e**2]
    found = estimate(values)
    half = 4.30265273 * 1.0 / math.sqrt(3)  # the logarithms 0, 1 and 2 have a standard deviation of 1
    assert found.value == math.e
    assert (math.log(found.low), math.log(found.high)) == (pytest.approx(1 - half), pytest.approx(1 + half))
    assert estimate([1.0, 2.0]) == MeasuredValue(value=1.5)


# --- the arithmetic ----------------------------------------------------------------------------------------------------------------


def test_throughput_agrees_with_the_step_and_two_rounds_take_the_widest_interval_of_their_own():
    point = points("plain", sizes=(4,))[0]
    results = [
        PointResult(point=point.id, round=number, values={
            "step_s": step, "samples_per_s": 4 / step, "sample_s": step / 4, "step_low_s": step - 0.01, "step_high_s": step + 0.02,
        })
        for number, step in enumerate((0.1, 0.2))
    ]  # fmt: skip
    row = row_of(point, results)
    step, rate = row.estimates["step_s"], row.estimates["samples_per_s"]
    assert (step.low, step.high) == (pytest.approx(0.09), pytest.approx(0.22))
    assert rate.value == pytest.approx(4 / step.value)
    assert (rate.low, rate.high) == (pytest.approx(4 / 0.22), pytest.approx(4 / 0.09))
    assert "step_low_s" not in row.estimates


# --- other places ------------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_a_dask_cluster_gives_the_same_table(tmp_path):
    distributed = pytest.importorskip("distributed")
    from rooflines.sweeps.places import on_dask

    with contextlib.closing(
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)
    ) as cluster:
        address = cluster.scheduler_address
        sweep, there = run_sweep("s", points("plain", "refused"), repeats=1, output=tmp_path / "there", place=on_dask(address))
    same, here = run_sweep("s", points("plain", "refused"), repeats=1, output=tmp_path / "here")
    columns = ["point", "batch_size", "samples_per_s", "step_s", "reason"]
    remote, local = frame(sweep_rows(there, sweep))[columns], frame(sweep_rows(here, same))[columns]
    assert remote.equals(local)
    assert (there / "points" / "plain-1" / "round-0" / "seen").is_file()


@pytest.mark.ci
def test_jobs_of_submitit_give_the_same_results(tmp_path):
    pytest.importorskip("submitit")
    from rooflines.sweeps.places import on_slurm

    place = on_slurm(tmp_path / "jobs", {}, cluster="local")
    sweep, directory = run_sweep("s", points("plain", "killed", sizes=(2,)), repeats=1, output=tmp_path / "s", place=place)
    plain, killed = sweep_rows(directory, sweep)
    assert plain.value("samples_per_s") == 20.0
    assert "killed by signal 9" in killed.reason


def test_slurm_is_asked_for_with_its_own_parameters(tmp_path):
    assert parameters("slurm_partition=gpu,timeout_min=30") == {"slurm_partition": "gpu", "timeout_min": 30}
    with pytest.raises(UsageError, match="'gpu' is not a parameter"):
        parameters("gpu")
    pytest.importorskip("submitit")
    from rooflines.sweeps.places import on_slurm

    with pytest.raises(UsageError, match="jobs cannot be submitted"):
        run_sweep("s", points("plain"), repeats=1, output=tmp_path / "s", place=on_slurm(tmp_path / "jobs", {}))


@pytest.mark.parametrize(("capability", "told"), [((7, 5), True), ((8, 0), False)])
def test_bf16_on_a_gpu_without_units_for_it(monkeypatch, capability, told):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert ("in fp32" in (emulation(torch.device("cuda"), "amp-bf16") or "")) == told
    assert emulation(torch.device("cuda"), "fp16") is None


def test_a_point_in_a_precision_that_the_processor_emulates_is_not_measured(tmp_path):
    """And in one that it computes, nothing keeps the point from running."""
    cpu = torch.device("cpu")
    assert emulation(cpu, "fp32") is emulation(torch.device("meta"), "bf16") is None
    before = torch.random.get_rng_state()
    reason = emulation(cpu, "amp-bf16")
    assert torch.equal(torch.random.get_rng_state(), before), "the random numbers are the program's"
    if reason is None:
        pytest.skip("this processor has units for bf16")
    assert re.fullmatch(r"this processor emulates bf16: a product takes \d+ times as long as in fp32", reason)
    point = SweepPoint(id="a", label="a", options={"model": "resnet18", "precision": "amp-bf16", "device": "cpu"})
    result = run_point({"point": msgspec.to_builtins(point), "round": 0}, tmp_path, None)
    assert result.reason.startswith("skipped: this processor emulates bf16: a product takes ")
    assert not list(tmp_path.iterdir())
