"""Standard streams that are None, as under pythonw."""

import os
import sys

from small import train

train(4)
out, sys.stdout, sys.stderr, sys.stdin = sys.stdout, None, None, None
train(10)
os.write(1, b"written\n")
out.write("and printed\n")
