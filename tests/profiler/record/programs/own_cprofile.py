"""cProfile around training, which counts the calls of the program's functions."""

import cProfile
import pstats

from small import train

profiler = cProfile.Profile()
profiler.enable()
train()
profiler.disable()
calls = pstats.Stats(profiler).stats
print(sorted((name, count) for (file, _, name), (_, count, *_) in calls.items() if file.endswith("small.py")))
