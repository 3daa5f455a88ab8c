"""An observer of operators that writes a file of its own."""

import json
from collections import Counter

from small import train
from torch.profiler import ExecutionTraceObserver

observer = ExecutionTraceObserver().register_callback("observed.json")
observer.start()
train(6)
observer.stop()
observer.unregister_callback()
with open("observed.json") as file:
    names = Counter(node["name"] for node in json.load(file)["nodes"])
print(*sorted(names.items()), sep="\n")
train(12)
