"""Recursion almost as deep as Python allows."""

import sys

import torch
from small import train
from torch import nn


def depth(left):
    return 0 if left == 0 else 1 + depth(left - 1)


def nested(module, times):
    for _ in range(times):
        module = nn.Sequential(module)
    return module


train(8)
print(depth(sys.getrecursionlimit() - 60))
model = nested(nn.Linear(2, 2), 150)
with torch.no_grad():
    print(model(torch.ones(1, 2)).shape)
