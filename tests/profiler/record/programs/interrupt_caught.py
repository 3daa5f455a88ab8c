"""SIGINT to itself, caught, and one that a handler counts."""

import os
import signal

from small import train

print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
train(4)
try:
    os.kill(os.getpid(), signal.SIGINT)
    train(10)
except KeyboardInterrupt:
    print("caught")
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
os.kill(os.getpid(), signal.SIGINT)
train()
print(seen)
