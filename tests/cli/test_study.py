"""``rooflines study`` as a user runs it, with sizes that take a moment."""

from __future__ import annotations

import csv
import json
import signal
import time

import pytest

from tests.commands import call, run, start, write_ceilings
from tests.studies.test_data import write_mnist

EPOCH_COLUMNS = [
    "backend", "epoch", "epoch_s", "samples_per_s", "test_accuracy", "train_loss", "process_memory_bytes", "device_memory_bytes",
    "input_s", "data",
]  # fmt: skip


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_backends_on_mnist_from_a_folder(tmp_path):
    """The whole command on two backends and 90 images: the same data, order and losses in both, and every file."""
    write_mnist(tmp_path / "data", train=90, test=20)
    answer = run(
        "study", "backends", "--backends", "torch-cpu,numba-cpu,torch-mps", "--data-dir", "data", "--epochs", "2", "--batch-size", "32",
        "--threads", "1", "--ceilings", write_ceilings(tmp_path), "--output", "out", cwd=tmp_path,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    out = tmp_path / "out"
    losses = {}
    for backend in ("numba-cpu", "torch-cpu"):
        epochs = rows(out / "epochs" / f"{backend}.csv")
        assert list(epochs[0]) == EPOCH_COLUMNS
        assert [(row["epoch"], row["data"]) for row in epochs] == [("1", "mnist"), ("2", "mnist")]
        for row in epochs:
            # 96 samples: three whole batches
            assert float(row["samples_per_s"]) * float(row["epoch_s"]) == pytest.approx(96)
            assert 0 <= float(row["input_s"]) < float(row["epoch_s"])
            assert int(row["process_memory_bytes"]) > 1e7
            assert row["device_memory_bytes"] == ""
        losses[backend] = [float(row["train_loss"]) for row in epochs]
    assert losses["numba-cpu"] == pytest.approx(losses["torch-cpu"], rel=1e-4)
    study = json.loads((out / "study.json").read_text())
    assert [one["backend"] for one in study["results"]] == ["numba-cpu", "torch-cpu"]
    assert study["results"][1]["loader"]["samples"] == 90
    assert all(one["operators"] and one["speed"]["data"]["label"] == "MNIST" for one in study["results"])
    assert {row["backend"] for row in rows(out / "operators.csv")} == {"numba-cpu", "torch-cpu"}
    assert len(rows(out / "backends.csv")) == 5
    assert {path.name for path in (out / "figures").glob("*.svg")} == {
        "epoch-time.svg", "throughput.svg", "accuracy.svg", "mean-throughput.svg", "roofline-cpu.svg",
    }  # fmt: skip
    assert "The paper contradicts itself" in (out / "report.html").read_text()
    assert "torch-mps: no Apple GPU" in answer.out or "torch-mps" in answer.out
    assert "report    out/report.html" in answer.out


def test_from_scratch_on_synthetic_images(tmp_path):
    answer = run(
        "study", "from-scratch", "--backends", "numpy", "--samples", "300", "--iterations", "4", "--sizes", "784-10-10@100,20-5-10@50",
        "--threads", "1", "--ceilings", write_ceilings(tmp_path), "--output", "out", cwd=tmp_path,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    out = tmp_path / "out"
    (found,) = json.loads((out / "study.json").read_text())["results"]
    memory = found["memory"]
    parts = sum(memory[name] for name in ("parameters", "input", "activations", "gradients", "overhead"))
    assert parts == pytest.approx(memory["total"], rel=0.05)
    assert len(found["speed"]["losses"]) == 4
    assert [(row["widths"], row["samples"]) for row in rows(out / "sizes.csv")] == [("784-10-10", "100"), ("20-5-10", "50")]
    assert {row["iteration"] for row in rows(out / "iterations" / "numpy.csv") if row["data"] == "synthetic"} == {"1", "2", "3", "4"}
    assert "synthetic images of MNIST's size" in answer.out
    assert (out / "figures" / "roofline-cpu.png").stat().st_size > 1000


def test_ctrl_c_keeps_the_epochs_that_ended(tmp_path):
    process = start(
        "study", "backends", "--backends", "numba-cpu", "--samples", "64", "--batch-size", "32", "--epochs", "100000", "--threads", "1",
        "--ceilings", write_ceilings(tmp_path), "--output", "out", cwd=tmp_path,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "100000 epochs" in line:
                break
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "interrupted; the report contains the results so far" in err
    study = json.loads((tmp_path / "out" / "study.json").read_text())
    assert study["status"] == "interrupted"
    epochs = study["results"][0]["speed"]["epochs"]
    assert len(rows(tmp_path / "out" / "epochs" / "numba-cpu.csv")) == len(epochs) >= 1
    assert "Interrupted" in out


def test_a_library_that_fails_half_way_is_said(tmp_path):
    """A petabyte of samples fits nowhere; what was measured before stays."""
    answer = run(
        "study", "from-scratch", "--backends", "numpy", "--samples", "100", "--iterations", "2", "--sizes", f"784-10-10@{10**13}",
        "--threads", "1", "--ceilings", write_ceilings(tmp_path), "--output", "out", cwd=tmp_path,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    study = json.loads((tmp_path / "out" / "study.json").read_text())
    assert len(study["results"][0]["speed"]["losses"]) == 2
    ((backend, reason),) = [(one["backend"], one["reason"]) for one in study["missing"]]
    assert backend == "numpy"
    assert "there was not enough memory" in reason
    assert "not enough memory" in answer.out
    assert "Everything that was asked for ran" not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("study", "arguments"),
    [
        ("from-scratch", ("--backends", "numpy", "--samples", 10**13, "--iterations", "2", "--sizes", f"784-10-10@{10**13}")),
        ("backends", ("--backends", "torch-cpu", "--samples", 10**13, "--epochs", "1")),
    ],
)
def test_a_study_in_which_nothing_was_measured_is_an_error(tmp_path, study, arguments):
    answer = run("study", study, *arguments, "--threads", "1", "--ceilings", write_ceilings(tmp_path), "--output", "out", cwd=tmp_path)
    assert answer.code == 1
    assert "nothing was measured" in answer.complaint[0]
    assert "there was not enough memory" in " ".join(answer.complaint)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("study", "arguments"),
    [
        pytest.param(
            "backends", ("--backends", "torch-cpu", "--samples", "64", "--batch-size", "32", "--epochs", "1"), marks=pytest.mark.slow
        ),
        ("from-scratch", ("--backends", "numpy", "--samples", "100", "--iterations", "2", "--sizes", "784-10-10@100")),
    ],
)
def test_ctrl_c_while_ceilings_are_measured_keeps_the_study(tmp_path, monkeypatch, study, arguments):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    process = start("study", study, *arguments, "--threads", "1", "--output", "out", cwd=tmp_path)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "measuring ceilings (cached for later runs)" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    assert found["status"] == "interrupted"
    assert not found.get("ceilings")
    assert found["results"][0]["speed"]
    assert (tmp_path / "out" / "report.html").is_file()
    assert "Interrupted" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("backends", "--backends", "jax"), "unknown backend 'jax' for this study"),
        (("backends", "--backends", ","), "--backends is empty"),
        (("backends", "--data-dir", "absent"), "--data-dir absent is not a directory"),
        (("backends", "--ceilings", "absent.json"), "--ceilings absent.json: file not found"),
        (("from-scratch", "--widths", "784"), "has too few layers"),
        (("from-scratch", "--widths", "784-10-3"), "the last width must be 10"),
        (("from-scratch", "--sizes", "784-10-10"), "must be a positive integer"),
        (("from-scratch", "--backends", "torch-mps", "--output", "new"), "none of torch-mps can run here: no Apple GPU"),
    ],
)
def test_what_cannot_be_done_is_one_line(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    answer = call(capsys, monkeypatch, "study", *arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]
    assert not list(tmp_path.iterdir())


def test_study_alone_says_which_there_are(capsys, monkeypatch):
    answer = call(capsys, monkeypatch, "study")
    assert answer.code == 0
    assert "backends" in answer.out
    assert "from-scratch" in answer.out


def test_help_has_examples(capsys, monkeypatch):
    for name in ("backends", "from-scratch"):
        answer = call(capsys, monkeypatch, "study", name, "--help")
        assert answer.code == 0
        assert f"rooflines study {name} --quick" in answer.out
