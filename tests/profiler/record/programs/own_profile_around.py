"""A profiler of the program's own around all of its training."""

from small import operators, train
from torch.profiler import ProfilerActivity, profile

with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True) as profiler:
    train(20)
print(*operators(profiler), sep="\n  ")
