"""A limit of the address space, which an allocation exceeds."""

import resource

import torch
from small import train

train(3)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30), -1))
try:
    torch.empty(3 << 30, dtype=torch.uint8)
except RuntimeError:
    print("not enough memory")
train()
