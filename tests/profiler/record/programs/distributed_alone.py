"""A group of one process, and DistributedDataParallel."""

import torch
import torch.distributed as dist
from small import network, one_step

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print(*(round(one_step(model, optimizer), 6) for _ in range(14)), sep="\n")
print(dist.get_world_size(), dist.get_backend())
dist.destroy_process_group()
