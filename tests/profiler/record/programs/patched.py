"""Methods of torch's classes that the program replaces, and puts back."""

import torch
from small import network, train
from torch import nn

calls = []
module_call, sgd_step = nn.Module.__call__, torch.optim.SGD.step


def call(self, *arguments, **keywords):
    calls.append(type(self).__name__)
    return module_call(self, *arguments, **keywords)


def step(self, closure=None):
    calls.append("step")
    return sgd_step(self, closure)


nn.Module.__call__, torch.optim.SGD.step = call, step
train(8)
print(calls[:8], len(calls))
nn.Module.__call__, torch.optim.SGD.step = module_call, sgd_step
train(8)
model = network()
optimizer = torch.optim.Adam(model.parameters())
step_before = optimizer.step
optimizer.step = lambda *arguments: (calls.append("mine"), step_before(*arguments))[1]
for _ in range(6):
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
print(len(calls), calls[-1])
del optimizer.step
print(optimizer.step)
