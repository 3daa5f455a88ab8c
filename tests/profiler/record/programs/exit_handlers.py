"""Handlers at exit, in the reverse order, one of which raises, and one that is taken back."""

import atexit

from small import train


def raises():
    raise ValueError("at exit")


def removed():
    print("never")


for number in range(3):
    atexit.register(print, "handler", number)
atexit.register(raises)
atexit.register(removed)
train()
atexit.unregister(removed)
print("main ends")
