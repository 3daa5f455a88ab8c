"""Random numbers of Python, NumPy and torch, before, during and after training."""

import random

import numpy as np
import torch
from small import network, one_step
from torch.utils.data import DataLoader, TensorDataset

random.seed(1)
np.random.seed(2)  # noqa: NPY002 (the old generator is shared by all)
torch.manual_seed(3)


def draw():
    print(random.random(), np.random.rand(), torch.rand(1).item(), torch.initial_seed())  # noqa: NPY002


draw()
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(14):
    one_step(model, optimizer)
    draw()
for (batch,) in DataLoader(TensorDataset(torch.arange(12.0)), batch_size=4, shuffle=True):
    print(batch)
    draw()
print(torch.nn.functional.dropout(torch.ones(8)))
