"""TorchScript: scripted, traced, loaded again, frozen, and a scripted child of a module."""

import torch
from small import network, one_step
from torch import nn

scripted = torch.jit.script(network())
traced = torch.jit.trace(network(), torch.ones(4, 8))
torch.jit.save(scripted, "scripted.pt")
models = [scripted, traced, torch.jit.load("scripted.pt"), torch.jit.freeze(torch.jit.script(network().eval()))]
with torch.no_grad():
    for model in models:
        for _ in range(4):
            print(round(model(torch.ones(4, 8)).sum().item(), 6))
mixed = nn.Sequential(torch.jit.script(nn.Linear(8, 8)), nn.Linear(8, 2))
optimizer = torch.optim.SGD(mixed.parameters(), lr=0.1)
print(*(round(one_step(mixed, optimizer), 6) for _ in range(12)))
