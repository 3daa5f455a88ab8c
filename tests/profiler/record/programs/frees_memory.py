"""Memory from before a step that is freed in it, with a log of torch's own."""

import torch
from small import network, one_step

model = network()
optimizer = torch.optim.Adam(model.parameters())
old = [torch.ones(1000) for _ in range(40)]
for _ in range(16):
    print(round(one_step(model, optimizer), 6))
    del old[-2:]
