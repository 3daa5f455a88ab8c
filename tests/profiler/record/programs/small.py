"""A small network and its training, for the programs of this folder."""

import torch
from torch import nn


def network():
    """Two linear layers with the same weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def one_step(model, optimizer):
    """A training step; its loss."""
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(steps=14, name="", after_step=None):
    """Train a network, print the loss of each step, and return model and optimizer."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        print(f"{name}step {step} loss {one_step(model, optimizer):.6f}")
        if after_step is not None:
            after_step()
    return model, optimizer


def operators(profile):
    """The operators and ranges of a torch profile, how often each ran."""
    return sorted((event.key, event.count) for event in profile.key_averages())
