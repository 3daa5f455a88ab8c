"""Two profilers of the program's own, one inside the other, which torch refuses or not."""

from small import operators, train
from torch.profiler import ProfilerActivity, profile

with profile(activities=[ProfilerActivity.CPU]) as outer:
    train(2)
    try:
        with profile(activities=[ProfilerActivity.CPU]) as inner:
            train(2)
        print("inner", *operators(inner), sep="\n  ")
    except RuntimeError as error:
        print("refused", str(error).splitlines()[0])
print("outer", len(operators(outer)) > 0)
train(12)
