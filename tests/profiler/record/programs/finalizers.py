"""Objects that say when they end: at the program's end, weak references, and generators that are closed."""

import gc
import weakref

import torch
from small import network, train


class Loud:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("ended", self.name)


def generate():
    try:
        yield 1
    finally:
        print("generator closed")


kept, circle = Loud("global"), Loud("circle")
circle.itself = circle
running = generate()
next(running)
weakref.finalize(kept, print, "finalized")
train(6)
del circle
model, optimizer = train(10)
references = [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(optimizer)]
del model, optimizer
gc.collect()
print([reference() is None for reference in references])
for _ in range(10):
    net = network()
    with torch.no_grad():
        net(torch.ones(1, 8))
    reference = weakref.ref(net)
    del net
    gc.collect()
    print(reference() is None)
print("main ends")
