"""An exception inside a backward pass, in a custom function."""

import torch
from small import train


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise ValueError("no gradient")


train(10)
Broken.apply(torch.ones(3, requires_grad=True)).sum().backward()
