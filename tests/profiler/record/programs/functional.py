"""torch.func: vmap, grad, functional calls of a module, and a hessian."""

import torch
from small import network
from torch.func import functional_call, grad, hessian, jacrev, vmap

model = network()
parameters = {name: value.detach() for name, value in model.named_parameters()}
data = torch.randn(6, 8)


def loss(parameters, x):
    return functional_call(model, parameters, (x,)).square().mean()


for _ in range(10):
    gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, data)
    parameters = {name: value - 0.1 * gradients[name].mean(0) for name, value in parameters.items()}
    print(round(loss(parameters, data).item(), 6))
print(hessian(lambda x: x.sin().sum())(torch.ones(2)), jacrev(torch.tanh)(torch.ones(2)).diagonal())
