"""Lines that are written in parts while others are printed between them, on both streams."""

import sys

from small import network, one_step
from torch.optim import SGD

model = network()
optimizer = SGD(model.parameters(), lr=0.1)
for step in range(14):
    print(f"step {step} ...", end="", flush=True)
    print(f"step {step}", end=" ... ", file=sys.stderr, flush=True)
    loss = one_step(model, optimizer)
    print(f" loss {loss:.6f}")
    print("done", file=sys.stderr)
