"""Hooks of the program on all modules and on one, their order and removal."""

import torch
from small import network, train
from torch.nn.modules import module as modules

said = []
handles = [
    modules.register_module_forward_pre_hook(lambda module, inputs: said.append(f"before {type(module).__name__}")),
    modules.register_module_forward_hook(lambda module, inputs, output: said.append(f"after {type(module).__name__}")),
    modules.register_module_full_backward_hook(lambda module, *_: said.append(f"back {type(module).__name__}")),
]
model = network()
model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
model[2].register_forward_hook(lambda module, inputs, output: output + 1)
model(torch.ones(1, 8, requires_grad=True)).sum().backward()
print(*said, sep="\n")
said.clear()
train(8)
print(len(said))
for handle in handles:
    handle.remove()
train(8)
print(len(said), model(torch.ones(1, 8)).sum().item())
