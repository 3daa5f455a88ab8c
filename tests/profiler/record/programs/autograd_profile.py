"""The old profiler, torch.autograd.profiler, and its marks for other tools."""

import torch
from small import operators, train

with torch.autograd.profiler.profile(record_shapes=True) as profiler:
    train(5)
print(*operators(profiler), sep="\n  ")
for marks in (torch.autograd.profiler.emit_itt, torch.autograd.profiler.emit_nvtx):
    try:
        with marks():
            train(5)
        print(marks.__name__, "marked")
    except Exception as error:
        print(marks.__name__, type(error).__name__, str(error).splitlines()[0])
train(10)
