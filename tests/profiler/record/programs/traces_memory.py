"""tracemalloc, off at first, on for the program's own allocations."""

import tracemalloc

from small import train

print(tracemalloc.is_tracing())
tracemalloc.start(3)
train()
kept = [bytes(1000) for _ in range(50)]
found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)]).statistics("filename")
print(len(found), found[0].size >= 50_000, tracemalloc.get_traceback_limit())
tracemalloc.stop()
