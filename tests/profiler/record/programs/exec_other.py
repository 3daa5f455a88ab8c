"""A program that another one replaces."""

import os
import sys

from small import train

train(10)
sys.stdout.flush()
os.execv(sys.executable, [sys.executable, "-c", "print('another program'); raise SystemExit(4)"])
