"""A training whose loss is not finite says so in its run, with the step, the operator and the cause; others say nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rooflines


def profiled(network, x, directory, **options):
    return rooflines.profile(
        network, x, mode="training", device="cpu", steps=3, warmup=2, trace=False, formats=("json",), output=directory, **options
    )


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield


def test_overflow_in_fp16_is_noted_with_its_operator(tmp_path):
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    nn.init.constant_(network[2].weight, 40000.0)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    run = profiled(network, torch.rand(4, 8), tmp_path / "run", precision="fp16")
    assert run.facts.loss_finite is False
    (note,) = (note for note in run.facts.notes if "not finite" in note)
    assert note.startswith("the loss is not finite at step 1. fp16 overflow: aten::addmm in 2 (Linear) ")
    assert note in rooflines.load(run.directory).facts.notes
    assert note in rooflines.analyze(run).notes
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network[0].weight.dtype == torch.float32


def test_a_training_that_diverges_names_the_step(tmp_path):
    class Squares(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([300.0]))

        def forward(self, x):
            return (self.weight * x).pow(4)

    run = profiled(Squares(), torch.ones(2, 1), tmp_path / "run")
    (note,) = (note for note in run.facts.notes if "not finite" in note)
    assert note.startswith("the loss is not finite at step 3. Divergence: The loss grew from ")
    assert "over 2 steps at a learning rate of 0.01; then aten::pow" in note


def test_a_loss_that_stays_finite_has_no_note(tmp_path):
    run = profiled(nn.Sequential(nn.Linear(8, 4), nn.Tanh()), torch.rand(4, 8), tmp_path / "run")
    assert run.facts.loss_finite is True
    assert not any("finite" in note for note in run.facts.notes)
    run = rooflines.profile(
        nn.Linear(8, 4), torch.rand(4, 8), device="cpu", steps=1, trace=False, formats=(), output=tmp_path / "other"
    )
    assert run.facts.loss_finite is None
