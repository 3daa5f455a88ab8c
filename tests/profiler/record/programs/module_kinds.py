"""Lazy modules, parametrizations, checkpointing, shared and nested modules, nested tensors."""

import torch
from small import one_step
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Checkpointed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False) + self.inner(x)


model = nn.Sequential(
    nn.LazyLinear(8), parametrizations.weight_norm(nn.Linear(8, 8)), parametrizations.orthogonal(nn.Linear(8, 8)),
    Checkpointed(nn.Linear(8, 8)), nn.utils.spectral_norm(nn.Linear(8, 2)),
)  # fmt: skip
model(torch.randn(4, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print(*(round(one_step(model, optimizer), 5) for _ in range(12)), sep="\n")
print(type(model[0]).__name__, list(model.state_dict()), repr(model))
nested = torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)], layout=torch.jagged, requires_grad=True)
with torch.no_grad():
    for _ in range(4):
        print(nn.Linear(8, 2)(nested).values().sum().item())
