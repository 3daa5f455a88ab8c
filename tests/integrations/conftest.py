"""Programs of plain torch run in the process of the tests, which has loaded torch already."""

import pytest

import rooflines
from tests.commands import call, write_ceilings
from tests.integrations.reports import command_line

MLP = """
import torch
from torch import nn

def mlp(outputs=2):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, outputs))

def loss(model, size=4):
    return model(torch.randn(size, 8)).square().mean()

def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def update(optimizer, value):
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
"""


@pytest.fixture
def profile_here(tmp_path, capsys, monkeypatch):
    """Profile a program that may use ``MLP``; returns the run."""

    def profile(source):
        monkeypatch.chdir(tmp_path)
        answer = call(capsys, monkeypatch, *command_line(tmp_path, MLP + source))
        assert answer.code == 0, answer
        return rooflines.load(tmp_path / "out")

    return profile


@pytest.fixture
def recorder_of(tmp_path):
    """Makes the callback of a trainer, with ceilings from a file."""

    def make(callback, **options):
        return callback(tmp_path / "out", formats=["json"], ceilings=str(write_ceilings(tmp_path)), **options)

    return make
