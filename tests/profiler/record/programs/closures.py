"""Optimizers that call the model themselves (LBFGS), several that take turns, and parameters that step in the backward pass."""

import torch
from small import network, one_step

model = network()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
data = torch.randn(4, 8)


def closure():
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    return loss


for _ in range(8):
    print(round(optimizer.step(closure).item(), 6))
first, second = network(), network()
turns = [(one, torch.optim.Adam(one.parameters())) for one in (first, second)]
for _ in range(8):
    print(*(round(one_step(*turn), 6) for turn in turns))
for parameter in first.parameters():
    own = torch.optim.SGD([parameter], lr=0.1)
    parameter.register_post_accumulate_grad_hook(lambda p, own=own: own.step() or own.zero_grad())
for _ in range(8):
    loss = first(data).square().mean()
    loss.backward()
    print(round(loss.item(), 6))
