"""``rooflines study`` as a user runs it, with sizes that take a moment."""

import csv
import json
import signal

import pytest

from tests import image_data
from tests.commands import call, run, start, write_ceilings
from tests.processes import wait_until

EPOCH_COLUMNS = [
    "backend", "data", "epoch", "epoch_s", "samples_per_s", "test_accuracy", "train_loss", "process_memory_bytes",
    "device_memory_bytes", "input_s",
]  # fmt: skip
SMALL = ("--repeats", "1", "--set", "samples=64", "--set", "batch_size=32", "--parts", "speed")


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def results(out, part):
    """The rows of a part as ``study.json`` has them."""
    return [row for row in json.loads((out / "study.json").read_text())["rows"] if row["point"]["part"] == part]


def details(row, out):
    return json.loads((out.parent / row["run"] / "measured.json").read_text())


@pytest.mark.ci
def test_backends_on_mnist_from_a_folder(tmp_path):
    """The whole command on two backends and 90 images: the same data, order and losses in both, and every file."""
    image_data.mnist(tmp_path / "data", train=90, test=20)
    answer = run(
        "study", "backends", "--repeats", "1", "--set", "backend=numba-cpu,torch-cpu,torch-mps", "--data-dir", "data", "--set",
        "epochs=2", "--set", "batch_size=32", "--threads", "1", "--ceilings", write_ceilings(tmp_path), "--output", "out", "--formats",
        "json", cwd=tmp_path,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    out = tmp_path / "out"
    epochs = rows(out / "epochs.csv")
    assert list(epochs[0]) == EPOCH_COLUMNS
    assert [(row["backend"], row["epoch"], row["data"]) for row in epochs] == [
        (backend, number, "mnist") for backend in ("numba-cpu", "torch-cpu") for number in ("1", "2")
    ]
    for row in epochs:
        # 96 samples: three whole batches
        assert float(row["samples_per_s"]) * float(row["epoch_s"]) == pytest.approx(96)
        assert 0 <= float(row["input_s"]) < float(row["epoch_s"])
        assert int(row["process_memory_bytes"]) > 1e7
        assert row["device_memory_bytes"] == ""
    losses = [float(row["train_loss"]) for row in epochs]
    assert losses[:2] == pytest.approx(losses[2:], rel=1e-4)
    speeds = results(out, "speed")
    assert [row["point"]["options"]["backend"] for row in speeds] == ["numba-cpu", "torch-cpu"]
    assert all(row["facts"]["data"] == "MNIST, 90 samples for training" for row in speeds)
    (loader,) = results(out, "loader")
    assert loader["estimates"]["timed_samples"]["value"] == 90
    assert results(out, "accuracy") == []
    assert {row["backend"] for row in rows(out / "operators.csv")} == {"numba-cpu", "torch-cpu"}
    page = (out / "report.json").read_text()
    assert "The paper contradicts itself" in page
    assert "no Apple GPU" in page
    assert "report    out/report.json" in answer.out


@pytest.mark.ci
def test_from_scratch_on_synthetic_images_is_continued_with_another_library(tmp_path):
    given = (
        "--repeats", "1", "--set", "samples=300", "--set", "iterations=4", "--threads", "1", "--ceilings", write_ceilings(tmp_path),
        "--output", "out",
    )  # fmt: skip
    answer = run(
        "study", "from-scratch", "--set", "backend=numpy", *given, "--parts", "speed,memory", "--formats", "markdown", cwd=tmp_path
    )
    assert answer.code == 0, answer.err
    out = tmp_path / "out"
    (memory,) = (row["estimates"] for row in results(out, "memory"))
    parts = sum(memory[f"{name}_bytes"]["value"] for name in ("parameters", "input", "activations", "gradients", "overhead"))
    assert parts == pytest.approx(memory["total_bytes"]["value"], rel=0.05)
    (speed,) = results(out, "speed")
    assert len(details(speed, out)["losses"]) == 4
    assert [row["iteration"] for row in rows(out / "iterations.csv")] == ["1", "2", "3", "4"]
    assert "synthetic images of MNIST's size" in answer.out
    assert (out / "figures" / "roofline-1.png").stat().st_size > 1000
    before = {path: path.read_bytes() for path in out.glob("points/*/round-0/result.json")}
    answer = run(
        "study", "from-scratch", "--set", "backend=numpy,torch-cpu", *given, "--parts", "speed", "--formats", "json", cwd=tmp_path
    )
    assert answer.code == 0, answer.err
    assert {path: path.read_bytes() for path in before} == before
    assert [row["point"]["options"]["backend"] for row in results(out, "speed")] == ["numpy", "torch-cpu"]
    assert len(results(out, "memory")) == 1


def interrupted(process, line, sign, ready=lambda: True):
    """What the process printed that was sent ``sign`` after ``line``, as soon as it was ``ready``."""
    try:
        for text in process.stderr:
            if line in text:
                break
        wait_until(ready)
        process.send_signal(sign)
        return process.communicate(timeout=120)
    finally:
        process.kill()


@pytest.mark.ci
@pytest.mark.parametrize("sign", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_and_the_end_of_a_job_keep_the_epochs_that_ended(tmp_path, sign):
    process = start(
        "study", "backends", "--set", "backend=numba-cpu", *SMALL, "--set", "epochs=100000", "--threads", "1", "--ceilings",
        write_ceilings(tmp_path), "--output", "out", cwd=tmp_path,
    )  # fmt: skip

    def several_epochs():
        """The first epochs are in the file before the process that is interrupted has read of them."""
        return any(len(json.loads(path.read_text())["epochs"]) > 50 for path in tmp_path.glob("out/**/measured.json"))

    out, err = interrupted(process, "100000 epochs", sign, several_epochs)
    assert process.returncode == 130, err
    assert "interrupted; the report contains the results so far" in err
    assert "--output out continues it" in err
    assert (tmp_path / "out" / "report.pdf").read_bytes().startswith(b"%PDF")
    (row,) = results(tmp_path / "out", "speed")
    assert row["reason"] == "interrupted"
    assert len(rows(tmp_path / "out" / "epochs.csv")) == len(details(row, tmp_path / "out")["epochs"]) >= 1
    assert "Interrupted" in out


@pytest.mark.ci
def test_a_size_that_fails_is_a_row_with_its_reason(tmp_path):
    """A petabyte of samples fits nowhere; the other points stay."""
    answer = run(
        "study", "from-scratch", "--repeats", "1", "--set", "backend=numpy", "--set", "samples=100", "--set", "iterations=2", "--set",
        f"size=784-10-10@{10**13}", "--parts", "speed,sizes", "--threads", "1", "--ceilings", write_ceilings(tmp_path), "--output",
        "out", cwd=tmp_path,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    (speed,), (size,) = results(tmp_path / "out", "speed"), results(tmp_path / "out", "sizes")
    assert "reason" not in speed
    assert size["point"]["options"]["size"] == f"784-10-10@{10**13}"
    assert "there was not enough memory" in size["reason"]
    assert "not enough memory" in answer.out
    assert "Everything that was asked for ran" not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.ci
def test_a_study_in_which_nothing_was_measured_is_an_error(tmp_path):
    answer = run(
        "study", "from-scratch", "--set", "backend=numpy", "--set", f"samples={10**13}", "--parts", "speed", "--threads", "1",
        "--ceilings", write_ceilings(tmp_path), "--output", "out", cwd=tmp_path,
    )  # fmt: skip
    assert answer.code == 1
    assert "nothing was measured" in answer.complaint[0]
    assert "there was not enough memory" in " ".join(answer.complaint)
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.ci
def test_ctrl_c_while_ceilings_are_measured_keeps_the_study(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = ("--repeats", "1", "--set", "backend=numpy", "--set", "samples=100", "--set", "iterations=2", "--parts", "speed")
    process = start("study", "from-scratch", *settings, "--threads", "1", "--output", "out", cwd=tmp_path)
    out, err = interrupted(process, "measuring ceilings (cached for later runs)", signal.SIGINT)
    assert process.returncode == 130, err
    (row,) = results(tmp_path / "out", "speed")
    found = details(row, tmp_path / "out")
    assert found["operators"]
    assert "ceilings" not in found
    assert (tmp_path / "out" / "report.html").is_file()
    assert (tmp_path / "out" / "report.pdf").is_file()
    assert "Interrupted" in out


@pytest.mark.parametrize(("arguments", "message"), [
    (("backends", "--set", "backend=jax"), "unknown backend 'jax' for this study"),
    (("backends", "--set", "backend"), "--set backend has no value"),
    (("backends", "--set", "epoch=1"), "--set epoch=1: the study has no option 'epoch'"),
    (("backends", "--data-dir", "absent"), "--data-dir absent is not a directory"),
    (("backends", "--ceilings", "absent.json"), "--ceilings absent.json: file not found"),
    (("from-scratch", "--set", "widths=784-x"), "a width must be a positive integer"),
    (("from-scratch", "--set", "widths=784-10-3"), "the last width must be 10"),
    (("from-scratch", "--set", "size=784-10-10"), "must be a positive integer"),
    (("from-scratch", "--set", "backend=torch-mps", "--output", "new"), "nothing of from-scratch can run here: no Apple GPU"),
])  # fmt: skip
def test_what_cannot_be_done_is_one_line(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    answer = call(capsys, monkeypatch, "study", *arguments)
    assert answer.code == 2
    assert message in answer.complaint[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.ci
def test_study_alone_says_which_there_are_and_their_help_has_examples(capsys, monkeypatch):
    alone = call(capsys, monkeypatch, "study")
    assert alone.code == 0
    for name in ("backends", "from-scratch"):
        assert name in alone.out
        assert f"rooflines study {name} --quick" in call(capsys, monkeypatch, "study", name, "--help").out
