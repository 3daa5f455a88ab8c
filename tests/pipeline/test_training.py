"""Training to accuracy: what is learned, what a restart gives, what a failure says."""

import dataclasses

import pytest
import torch

from rooflines.errors import DataError, Interrupted, OutputError, UsageError
from rooflines.pipeline import train
from rooflines.pipeline.training import load_training
from rooflines.profiler.progress import Silent
from rooflines.profiler.training.loop import read_checkpoint, write_checkpoint
from rooflines.profiler.training.options import TrainOptions
from rooflines.reports.page.training import page
from tests.commands import call, mounted

NETWORKS = """
import torch
from torch import nn

def small():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 64, 10)
    ), torch.zeros(2, 3, 32, 32)

def overflowing():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 16), nn.ReLU(), nn.Linear(16, 10))
    with torch.no_grad():
        network[1].weight.fill_(1000.0)
    return network, torch.zeros(2, 3, 32, 32)

class Breaking(nn.Module):
    # From its eleventh step in training on, the derivative of its output is infinite, and the output is not.

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3 * 32 * 32, 10)
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        out = self.layer(x.flatten(1))
        if not self.training:
            return out
        self.steps += 1
        return out + (out * (self.steps < 11)).abs().sqrt()

def breaking():
    return Breaking(), torch.zeros(2, 3, 32, 32)
"""


@pytest.fixture
def networks(tmp_path):
    path = tmp_path / "networks.py"
    path.write_text(NETWORKS)
    return path


def options(**asked):
    return TrainOptions(**{"device": "cpu", "threads": 1, "data": "digits", "train_samples": 128, "test_samples": 64, "epochs": 3,
                           "batch_size": 16, "learning_rate": 0.02, **asked})  # fmt: skip


def losses(training):
    return [(epoch.epoch, epoch.train_loss, epoch.test_accuracy) for one in training.results for epoch in one.epochs]


@pytest.mark.ci
def test_a_network_learns_and_the_record_says_on_what(networks, tmp_path):
    pytest.importorskip("sklearn")
    each = []
    training, directory = train(
        f"{networks}:small", options(epochs=6, seeds=2, variants="bf16"), output=tmp_path / "run", each=each.append
    )
    assert [len(losses(one)) for one in each] == list(range(1, 13))
    assert training.status == "complete"
    assert [one.seed for one in training.results] == [0, 1]
    assert training.accuracy > 0.5
    assert min(training.accuracies) <= training.accuracy <= max(training.accuracies)
    assert training.data.real
    first, *later = training.results[0].epochs
    assert first.first_step_s <= first.epoch_s
    assert all(epoch.first_step_s is None and epoch.input_s <= epoch.epoch_s for epoch in later)
    fp32, bf16 = training.variants
    assert fp32.error is None
    assert 0 < bf16.error.relative < 0.1
    assert bf16.accuracy == pytest.approx(fp32.accuracy, abs=1 - bf16.error.same_class)
    assert load_training(directory) == training
    shown = page(training)
    assert "median of 2 seeds" in shown.verdict
    assert "chance is 10.0 %" in shown.verdict
    assert [section.name for section in shown.sections] == ["epochs", "variants", "method"]


@pytest.mark.ci
def test_int8_after_an_epoch_with_rounding(networks, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("torchao")
    training, _ = train(f"{networks}:small", options(epochs=4, variants="static-int8,qat"), output=tmp_path / "run")
    fp32, static, trained = training.variants
    assert not trained.reason
    assert trained.accuracy > 0.5
    # the weights of the further epoch are others, so it differs more from fp32 than rounding alone
    assert 0 < static.error.relative < trained.error.relative
    assert "one more epoch" in trained.notes[1]
    assert fp32.accuracy == training.accuracy


@pytest.mark.ci
@pytest.mark.parametrize("workers", [0, 1])
def test_a_training_that_was_interrupted_continues_as_if_it_had_not_been(networks, tmp_path, workers):
    name = f"{networks}:small"
    asked = options(data="cifar10", data_workers=workers)
    whole, _ = train(name, asked, output=tmp_path / "whole")

    class Stops(Silent):
        left = 8 + 3  # into the second epoch

        def advance(self):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="continues it"):
        train(name, asked, output=tmp_path / "parts", progress=Stops())
    begun = load_training(tmp_path / "parts")
    assert (begun.status, len(begun.results[0].epochs)) == ("interrupted", 1)
    continued, _ = train(name, asked, output=tmp_path / "parts")
    assert losses(continued) == losses(whole)
    again, _ = train(name, asked, output=tmp_path / "parts")
    assert again == continued
    with pytest.raises(OutputError, match="another value of epochs"):
        train(name, dataclasses.replace(asked, epochs=4), output=tmp_path / "parts")


def test_a_loss_that_is_not_finite_ends_the_training_with_its_step(networks, tmp_path):
    training, _ = train(f"{networks}:overflowing", options(precision="fp16", data="cifar10"), output=tmp_path / "run")
    (result,) = training.results
    assert result.epochs == ()
    assert (result.failure.epoch, result.failure.step) == (1, 1)
    assert training.accuracy is None
    assert "at step 1 of epoch 1." in page(training).verdict


def test_a_seed_that_failed_stays_failed(networks, tmp_path):
    """The update of step 3 of the second epoch makes the parameters NaN; the loss is NaN in step 4."""
    training, directory = train(f"{networks}:breaking", options(data="cifar10"), output=tmp_path / "run")
    (result,) = training.results
    failure = result.failure
    assert (len(result.epochs), failure.epoch, failure.step) == (1, 2, 4)
    assert failure.what == "the loss is NaN at step 4 of epoch 2"
    again, _ = train(f"{networks}:breaking", options(data="cifar10"), output=directory)
    assert again == training


def test_pretrained_weights_are_loaded_but_for_a_classifier_of_other_classes(networks, tmp_path):
    from rooflines.profiler.training.loop import classifier_of, load_weights, read_weights

    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))
    torch.save({"state_dict": {f"module.{name}": value for name, value in network.state_dict().items()}}, tmp_path / "w.pt")
    weights = read_weights(str(tmp_path / "w.pt"))
    other = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    before = other[1].weight.clone()
    load_weights(other, weights, classifier_of(other, "other")[0], "w.pt")
    assert torch.equal(other[0].weight, network[0].weight)
    assert torch.equal(other[1].weight, before)
    wrong = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Linear(8, 3))
    with pytest.raises(DataError, match=r"'0\.weight' has another shape"):
        load_weights(wrong, weights, "1", "w.pt")
    (tmp_path / "text.pt").write_text("weights")
    with pytest.raises(DataError, match="cannot be read"):
        read_weights(str(tmp_path / "text.pt"))


@pytest.mark.parametrize(("asked", "problem"), [
    ({"epochs": 0}, "epochs must be at least 1, got 0"),
    ({"learning_rate": -1.0}, "learning_rate must be positive"),
    ({"lr_steps": "ten"}, "lr_steps must be epochs, got 'ten'"),
    ({"variants": "bf8"}, "unknown variant 'bf8'"),
    ({"data": "resident"}, "requires labeled images"),
    ({"batch_size": 200}, "128 training images, fewer than a batch of 200"),
])  # fmt: skip
def test_what_cannot_be_trained_is_refused(networks, tmp_path, asked, problem):
    with pytest.raises(UsageError, match=problem):
        train(f"{networks}:small", options(**{"data": "cifar10", **asked}), output=tmp_path / "run")


@pytest.mark.ci
def test_the_learning_rate_falls_to_a_tenth_after_each_milestone(networks, tmp_path):
    training, _ = train(f"{networks}:small", options(data="cifar10", lr_steps="1,2", optimizer="adam"), output=tmp_path / "run")
    assert [epoch.learning_rate for epoch in training.results[0].epochs] == pytest.approx([0.02, 0.002, 0.0002])


@pytest.mark.ci
def test_the_command_prints_the_page_and_fails_with_the_training(networks, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common = ("--device", "cpu", "--data", "cifar10", "--train-samples", 32, "--test-samples", 16, "--batch-size", 8, "--epochs", 1)
    done = call(capsys, monkeypatch, "train", f"{networks}:small", *common, "-o", "done")
    assert done.code == 0
    assert "of the test images are right after 1 epoch of synthetic images" in " ".join(done.out.split())
    assert (tmp_path / "done" / "report.html").is_file()
    failed = call(capsys, monkeypatch, "train", f"{networks}:overflowing", *common, "--precision", "fp16", "-o", "failed")
    assert failed.code == 1
    assert "the loss is NaN at step" in failed.err


# --- checkpoints


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path):
    with mounted("-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path):
        path = tmp_path / "seed-0.pt"
        write_checkpoint(path, {"epoch": 1})
        with pytest.raises(OutputError, match=r"cannot write the checkpoint .*No space left on device"):
            write_checkpoint(path, {"weights": torch.zeros(100_000)})
        assert read_checkpoint(path) == {"epoch": 1}
        assert list(tmp_path.iterdir()) == [path]
