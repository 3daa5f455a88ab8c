"""A profiler of the program's own with a schedule, told of each step."""

from small import operators, train
from torch.profiler import ProfilerActivity, profile, schedule


def ready(profiler):
    print("profile of step", profiler.step_num, *operators(profiler), sep="\n  ")


with profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=2, warmup=1, active=2, repeat=2), on_trace_ready=ready
) as profiler:
    train(16, after_step=profiler.step)
train(12)
