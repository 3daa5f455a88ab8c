"""A profile function of the program's own in sys.setprofile and threading.setprofile."""

import sys
import threading
from collections import Counter

from small import train

calls = Counter()


def profiler(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.endswith("small.py"):
        calls[frame.f_code.co_name] += 1


threading.setprofile(profiler)
sys.setprofile(profiler)
train()
print(sys.getprofile() is profiler)
thread = threading.Thread(target=train, args=(3, "thread "))
thread.start()
thread.join()
sys.setprofile(None)
print(sorted(calls.items()))
