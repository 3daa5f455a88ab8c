"""An exception that torch raises inside a module."""

import torch
from small import network, train

train(10)
network()(torch.ones(4, 9))
