"""A tool of sys.monitoring (Python 3.12) that counts the starts of functions."""

import sys
from collections import Counter

from small import train

calls = Counter()
monitoring = getattr(sys, "monitoring", None)
if monitoring is None:
    print("no sys.monitoring")
    train()
else:
    for number in range(6):
        print(number, monitoring.get_tool(number))
    monitoring.use_tool_id(monitoring.PROFILER_ID, "mine")
    monitoring.register_callback(
        monitoring.PROFILER_ID, monitoring.events.PY_START,
        lambda code, _: calls.update([code.co_name] if code.co_filename.endswith("small.py") else []),
    )  # fmt: skip
    monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)
    train()
    monitoring.set_events(monitoring.PROFILER_ID, 0)
    monitoring.free_tool_id(monitoring.PROFILER_ID)
    print(sorted(calls.items()))
