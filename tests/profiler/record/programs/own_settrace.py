"""A line tracer as coverage has one, in this and in other threads."""

import sys
import threading
from collections import Counter

from small import train

lines = Counter()


def tracer(frame, event, argument):
    if not frame.f_code.co_filename.endswith("small.py"):
        return None
    if event == "line":
        lines[frame.f_code.co_name, frame.f_lineno] += 1
    return tracer


threading.settrace(tracer)
sys.settrace(tracer)
train()
print(sys.gettrace() is tracer)
thread = threading.Thread(target=train, args=(3, "thread "))
thread.start()
thread.join()
sys.settrace(None)
print(*sorted(lines.items()), sep="\n")
