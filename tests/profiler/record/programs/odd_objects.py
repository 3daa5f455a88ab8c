"""Modules and optimizers that answer no question about themselves."""

import torch
from torch import nn


class Unnameable(nn.Linear):
    def named_modules(self, *_, **__):
        raise RuntimeError("no names")


class Unlisted(nn.Linear):
    def parameters(self, *_, **__):
        raise RuntimeError("no parameters")

    def children(self):
        raise RuntimeError("no children")


class Incomparable(nn.Linear):
    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __bool__(self):
        raise RuntimeError("neither true nor false")


class Nothing(nn.Module):
    def __init__(self):
        super().__init__()
        del self.training, self._modules

    def __getattr__(self, name):
        raise KeyError(name)

    def forward(self, x):
        return x


class Weights(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        groups, self.param_groups = self.param_groups, [{"params": None}]
        self.hidden = groups

    def zero_grad(self, set_to_none=True):
        self.param_groups = getattr(self, "hidden", self.param_groups)
        super().zero_grad(set_to_none)


torch.manual_seed(0)
odd = [Unnameable(4, 4), Unlisted(4, 4), Incomparable(4, 4), Nothing()]
head = nn.Linear(4, 2)
optimizer = Weights(head.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    x = torch.ones(3, 4)
    for module in odd:
        x = module(x)
    with torch.no_grad():
        odd[step % 4](x)
    loss = head(x).square().mean()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.4f}")
