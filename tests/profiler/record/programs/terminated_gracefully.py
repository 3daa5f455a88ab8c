"""SIGTERM to itself, with a handler that ends the program."""

import os
import signal
import sys

from small import train


def handler(number, frame):
    print("ending", number)
    sys.exit(5)


signal.signal(signal.SIGTERM, handler)
train(10)
os.kill(os.getpid(), signal.SIGTERM)
