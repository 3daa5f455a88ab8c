"""The attributes of an optimizer: its step is that of its class."""

from small import train
from torch.optim import SGD

_, optimizer = train()
print(sorted(vars(optimizer)), optimizer.step.__func__ is SGD.step, optimizer.step == optimizer.step, SGD.step.__qualname__)
print(sorted(vars(SGD)), SGD.__init__.__qualname__)
