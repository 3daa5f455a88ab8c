"""A recording of the program's own (rooflines.record), by itself and inside a torch profiler, where it is refused."""

from small import train
from torch.profiler import profile

import rooflines
from rooflines.errors import UsageError

for profiler in (None, profile()):
    try:
        if profiler is not None:
            profiler.start()
        with rooflines.record(f"recorded{profiler is not None}", ceilings="spec", formats=["json"], steps=2, warmup=1) as r:
            train(8, after_step=r.step)
        print("recorded", r.run.facts.status, r.done)
    except UsageError as error:
        print("refused:", str(error).split(":")[0].split("into")[0])
    finally:
        if profiler is not None:
            profiler.stop()
train(8)
