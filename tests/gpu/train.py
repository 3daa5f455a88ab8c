"""A training script, as a user would write it: a perceptron, SGD, a number of steps or of seconds."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

# Width of every layer and samples of a batch.
WIDTHS = {"cuda": 2048, "cpu": 32}
LAYERS = 3


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    device = torch.device(options.device)
    width = WIDTHS[device.type]
    network = nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS))).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    batch = torch.randn(width, width, device=device)
    end, step = time.monotonic() + options.seconds, 0
    while step < options.steps or time.monotonic() < end:
        optimizer.zero_grad()
        loss = network(batch).square().mean()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4g}")


def flops(kind: str) -> int:
    """The matrix FLOPs of a step on a device of this ``kind``: three products for each layer, less the gradient of the batch."""
    width: int = WIDTHS[kind]
    return (3 * LAYERS - 1) * 2 * width**3


if __name__ == "__main__":
    main()
