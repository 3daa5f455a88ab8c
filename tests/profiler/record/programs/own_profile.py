"""A profiler of the program's own around a part of its training, with a range of its own."""

from small import network, one_step, operators, train
from torch.optim import SGD
from torch.profiler import ProfilerActivity, profile, record_function

train(4)
model = network()
optimizer = SGD(model.parameters(), lr=0.1)
for part in range(3):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(3):
            with record_function("my range"):
                one_step(model, optimizer)
    print(part, *operators(profiler), sep="\n  ")
train(12)
