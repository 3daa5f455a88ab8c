"""SIGTERM to itself."""

import os
import signal
import sys

from small import train

train(10)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGTERM)
