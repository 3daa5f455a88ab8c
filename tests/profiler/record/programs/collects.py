"""The garbage collector: thresholds, callbacks, frozen objects."""

import gc

from small import train

print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks))
gc.callbacks.append(lambda phase, info: None)
gc.disable()
train(6)
print(gc.isenabled(), len(gc.callbacks))
gc.freeze()
gc.set_threshold(100, 5, 5)
train(10)
print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0)
gc.enable()
