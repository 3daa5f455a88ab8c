"""A profiler of the program's own that is started in one step and stopped in another."""

from small import operators, train
from torch.profiler import ProfilerActivity, profile

profiler, steps = profile(activities=[ProfilerActivity.CPU]), iter(range(30))


def after_step():
    step = next(steps)
    if step == 5:
        profiler.start()
    if step == 8:
        profiler.stop()
        print(*operators(profiler), sep="\n  ")


train(20, after_step=after_step)
