"""A trace that the program exports, and one that torch's handler for TensorBoard writes."""

import json
import os
from collections import Counter

from small import train
from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler

with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    train(3)
profiler.export_chrome_trace("own.pt.trace.json")
with open("own.pt.trace.json") as file:
    events = json.load(file)["traceEvents"]
print(*sorted(Counter((event["cat"], event["name"]) for event in events if event.get("cat", "").startswith("cpu")).items()), sep="\n")
with profile(activities=[ProfilerActivity.CPU], on_trace_ready=tensorboard_trace_handler("board", worker_name="me")):
    train(12)
print(len(os.listdir("board")), "file for TensorBoard")
train(12)
