"""A compiled function with a graph break, in a thread and in the main one."""

import threading

import torch


def function(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return (y @ y).sum()


compiled = torch.compile(function, backend="eager")


def work(name):
    for number in range(12):
        print(name, round(compiled(torch.full((8, 8), float(number))).item(), 5))


thread = threading.Thread(target=work, args=("thread",))
thread.start()
thread.join()
work("main")
print(torch._dynamo.utils.counters["graph_break"].total(), "graph breaks")
