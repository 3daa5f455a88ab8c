"""Optimizers as objects: their hooks, methods, copies, subclasses, closures, and what they return."""

import copy
import inspect
import io
import pickle

import torch
from small import network, one_step
from torch.optim import SGD, Adam, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

said = []


class Own(Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None, *, scale=1.0):
        """Step of the program's own."""
        return ("own", closure, scale)


model = network()
optimizer = SGD(model.parameters(), lr=0.1)
handles = [
    register_optimizer_step_pre_hook(lambda *_: said.append("all before")),
    register_optimizer_step_post_hook(lambda *_: said.append("all after")),
    optimizer.register_step_pre_hook(lambda *_: said.append("before")),
    optimizer.register_step_post_hook(lambda *_: said.append("after")),
]
print(*(round(one_step(model, optimizer), 6) for _ in range(6)))
print(said[:4], len(said))
for handle in handles:
    handle.remove()
print(type(optimizer.step).__name__, optimizer.step.__self__ is optimizer, optimizer.step.__name__, inspect.signature(optimizer.step))
own = Own(model.parameters())
print(own.step(), own.step(3), own.step(scale=2.0), Own.step.__doc__, own.step.__doc__, Optimizer.__init__.__name__)
print(inspect.signature(Optimizer.__init__), inspect.getsource(SGD.step).splitlines()[0], Optimizer.__init__.__qualname__)
for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer)), copy.copy(optimizer)):
    print(type(copied).__name__, sorted(vars(copied)), repr(copied))
    print(copied.step())
file = io.BytesIO()
torch.save([optimizer, optimizer.state_dict(), model], file)
file.seek(0)
loaded, state, _ = torch.load(file, weights_only=False)
print(len(file.getvalue()), type(loaded).__name__, state)
adam = Adam(model.parameters())
adam.load_state_dict(Adam(model.parameters()).state_dict())
print(*(round(one_step(model, adam), 6) for _ in range(10)))
